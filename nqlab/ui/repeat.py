"""A run once more: start it, watch how far it is, and read whether the same losses came out."""

from __future__ import annotations

import streamlit as st

from nqlab.analysis.receipt import TOLERANCE, Agreement, compare
from nqlab.analysis.standing import state_word
from nqlab.runs import again
from nqlab.runs.store import ACTIVE, Run
from nqlab.ui import shared, visit
from nqlab.words import _

TICK_S = 1.0


def panel(run: Run) -> None:
    """Draw the button and, where there is a repetition, what came of it."""
    st.button(
        _("Run again and compare"), key="again", icon=":material/replay:", on_click=_start, args=[run],
        disabled=run.status() in ACTIVE or not visit.may_control(),
        help=_("Trains the same configuration once more in the background, with as many threads, and compares every loss."),
    )  # fmt: skip
    ticking = _busy(_pair(run))
    st.fragment(_verdict, run_every=TICK_S if ticking else None)(run, ticking)


def _start(run: Run) -> None:
    shared.attempt(lambda: again.start(run))


def _pair(run: Run) -> tuple[Run, Run] | None:
    """The run that was repeated and its newest repetition; None where there are no two."""
    first = again.repeated(run)
    if first is not None:
        return first, run
    return next(((run, one) for one in again.repetitions(run) if one.status() != "broken"), None)


def _busy(pair: tuple[Run, Run] | None) -> bool:
    return pair is not None and pair[1].status() in ACTIVE


def _verdict(run: Run, ticking: bool) -> None:
    """One tick; asks for a full rerun when the repetition has begun or ended."""
    pair = _pair(run)
    if _busy(pair) != ticking:
        st.rerun()
    if pair is None:
        st.caption(_("It has not been repeated here yet."))
        return
    first, repetition = pair
    if first.status() == "broken":
        return
    status, step = repetition.status(), repetition.summary()["step"]
    if status in ACTIVE:
        text = _("**{name}** is {status}, step {step:,}").format(name=repetition.name, status=state_word(status), step=step)
        st.progress(min(1.0, step / repetition.config.training.steps), text)
        return
    _words(first, repetition, compare(first, repetition))


def _words(first: Run, repetition: Run, found: Agreement) -> None:
    show = {"bitwise equal": st.success, "within tolerance": st.info, "different": st.error, "nothing to compare": st.warning}[found.word]
    text = {
        "bitwise equal": _("bitwise equal: all {n:,} losses up to step {last:,} are the same numbers."),
        "within tolerance": _(
            "within tolerance: {n:,} losses up to step {last:,} differ by at most {largest:.1e} of their size (allowed: {tolerance:g}); "
            "the first that is not the same number is at step {first:,}."
        ),
        "different": _("different: from step {first:,} on; the largest difference is {largest:.1e} of the loss (allowed: {tolerance:g})."),
        "nothing to compare": _("nothing to compare: they have no loss of the same step."),
    }[found.word]
    numbers = {"n": found.compared, "last": found.last, "first": found.first, "largest": found.largest, "tolerance": TOLERANCE}
    show(f"**{first.name}**, **{repetition.name}**: " + text.format(**numbers))
    if found.circumstances:
        changed = ", ".join(f"{key} {a} → {b}" for key, (a, b) in found.circumstances.items())
        st.caption(_("The circumstances differ: {changed}.").format(changed=changed))
    else:
        st.caption(_("Versions, device, threads and text were the same."))
    if found.configuration != "no difference":
        st.caption(_("The configurations differ: {difference}.").format(difference=found.configuration))
