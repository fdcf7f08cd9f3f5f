"""Latency: does a gain pay in use? Prefill and per-token times of the variants, measured here, beside what they cost and reach."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from nqlab import presets
from nqlab.analysis import elsewhere, latency
from nqlab.analysis.figures import title_of
from nqlab.experiment import DEFAULT_ARMS
from nqlab.runs import stopwatch
from nqlab.runs.latency import LEAST_REPEATS, REPEATS, contexts_up_to, training_now
from nqlab.ui import share, shared, visit
from nqlab.ui.chart import live_chart, message_of
from nqlab.words import _, several

TICK_S, IDLE_S = 1.0, 5.0
Records = Sequence[dict[str, Any]]


def page() -> None:
    """Draw everything; the measurement is another process's."""
    st.subheader(_("Does the gain pay in use?"))
    st.markdown(
        _(
            "A variant that learns better may still write slower. **Prefill** reads a text of so many characters at once; **per token** is "
            "one further character, with the text's keys and values in the cache. Weights are random here: times do not depend on them."
        )
    )
    visit.why_not()
    preset, arms, contexts, repeats = _choices()
    share.elsewhere({}, elsewhere.latency_command(preset, arms, contexts, repeats), elsewhere.latency_cell(preset, arms, contexts, repeats))
    ticking = stopwatch.process(shared.runs_dir()) is not None
    st.fragment(_panel, run_every=TICK_S if ticking else IDLE_S)(preset, arms, contexts, repeats, ticking)


def _choices() -> tuple[str, list[str], list[int], int]:
    left, right = st.columns(2)
    preset = left.selectbox(_("Size"), list(presets.PRESETS), key="latency.preset", help=_("Of the models."))
    repeats = right.number_input(
        _("Repeats"), LEAST_REPEATS, 1000, REPEATS, key="latency.repeats",
        help=_("How often everything is measured, in an order drawn anew each time."),
    )  # fmt: skip
    arms = st.multiselect(
        _("Variants"), list(presets.ARMS), list(DEFAULT_ARMS), format_func=title_of, key="latency.arms",
        help=_("The first is the baseline of the ratios."),
    )  # fmt: skip
    possible = contexts_up_to(presets.preset(preset).model.block_size)
    contexts = st.multiselect(
        _("Contexts (characters)"), possible, possible, key=f"latency.contexts.{preset}",
        help=_("How many characters stand before the one that is written; at most the model's context T."),
    )  # fmt: skip
    return preset, arms, contexts, repeats


def _panel(preset: str, arms: list[str], contexts: list[int], repeats: int, ticking: bool) -> None:
    """Drawn anew every tick, the same elements in order."""
    active = stopwatch.process(shared.runs_dir()) is not None
    if active != ticking:
        st.rerun()
    with st.container(horizontal=True, vertical_alignment="center"):
        able = not active and bool(arms) and bool(contexts) and visit.may_control()
        given = [preset, arms, contexts, repeats]
        st.button(
            _("Measure"), key="latency.start", type="primary", icon=":material/timer:", disabled=not able, on_click=_start, args=given
        )
        st.button(
            _("Stop"), key="latency.stop", icon=":material/stop:", disabled=not active or not visit.may_control(),
            on_click=stopwatch.stop, args=[shared.runs_dir()], help=_("What has been measured is kept."),
        )  # fmt: skip
    shared.problem()
    records = stopwatch.records(shared.runs_dir())
    _messages(records, active)
    _results(records, active)


def _start(preset: str, arms: list[str], contexts: list[int], repeats: int) -> None:
    shared.attempt(lambda: stopwatch.start(shared.runs_dir(), preset, arms, contexts, repeats))


def _messages(records: Records, active: bool) -> None:
    """What would spoil the times, or has; always one element."""
    with st.container():
        if busy := training_now(shared.runs_dir()):
            st.warning(
                _("**{names}** trains on this machine now. Times measured meanwhile are worthless: wait for its end, or stop it.").format(
                    names=", ".join(busy)
                )
            )
        elif spoilt := latency.disturbed(records):
            st.warning(
                several(
                    "{n} repeat was measured while something trained on this machine: its times are worthless. Measure again.",
                    "{n} repeats were measured while something trained on this machine: their times are worthless. Measure again.",
                    spoilt,
                ).format(n=spoilt)
            )
        if not active and (message := stopwatch.complaint(shared.runs_dir())) and not records:
            st.error(message)


def _results(records: Records, active: bool) -> None:
    done, total = latency.progress(records)
    if not total:
        st.markdown(
            _("Starting ...")
            if active
            else _("Nothing has been measured here yet: press **Measure**. It takes about 20 seconds at the tiny size.")
        )
        return
    word = _("measuring") if active else _("complete") if done == total else _("stopped")
    st.progress(done / total, _("{word}: {done} of {total} readings · {on}").format(
        word=word, done=f"{done:,}", total=f"{total:,}", on=latency.circumstances(records)))  # fmt: skip
    rows = latency.summary(records, _losses(json.dumps(records[0])))
    st.markdown("#### " + _("One more token, against the context"))
    live_chart(
        message_of(latency.ratio_spec(rows)),
        key="latency.chart",
        label=_("time per token against the baseline's; the table has the numbers"),
    )
    st.caption(
        _(
            "A ratio is the median over repeats of two times measured right after each other; bars and brackets go from the first "
            "quartile to the third. Below 1 is faster than {baseline}. It is no quotient of the table's medians, which other work on this "
            "machine moves."
        ).format(baseline=title_of(rows[0]["variant"]))
    )
    st.table(pd.DataFrame(latency.table(rows)).set_index(_("context")))
    known = {row["variant"]: row["val_loss_at"] for row in rows if row["val_loss_at"]}
    st.caption(
        _("Validation loss in nats per character, the mean over seeds, where studies or runs know it: {where}; – elsewhere.").format(
            where="; ".join(f"{title_of(variant)} ({at})" for variant, at in known.items()) or _("nowhere yet")
        )
    )


@st.cache_data(show_spinner=False, ttl=600, max_entries=20)
def _losses(begin: str) -> dict[str, latency.Row]:
    """What these variants reached, looked up once for every viewer."""
    return latency.losses_of([json.loads(begin)], latency.sources(shared.runs_dir()))
