"""The live panel: buttons, chart, table, samples of one race. Drawn anew every tick, the same elements in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from nqlab.analysis.curves import Curve
from nqlab.analysis.figures import AXES, Line, labels, loss_spec
from nqlab.presets import arm_of
from nqlab.runs import launch, speed, store
from nqlab.runs.race import Race
from nqlab.runs.store import ACTIVE, RESUMABLE, Run, Status
from nqlab.ui import shared
from nqlab.ui.chart import live_chart
from nqlab.ui.form import Form

TICK_S, IDLE_S = 0.7, 3.0
SMOOTH_HELP = "Moving average of the training loss; the raw curve stays, faint."
STOP_HELP = "After the update in progress; everything is kept."
RESUME_HELP = "From the last checkpoint, as if it had never stopped."
Standing = list[tuple[Run, Status, Curve]]


def standing(race: Race | None) -> Standing:
    """Runs of a race with how they stand and their curves; broken folders left out."""
    if race is None:
        return []
    entries = [(run, run.status(), shared.curves().get(run.events)) for run in shared.runs_of(race)]
    return [entry for entry in entries if entry[1] != "broken"]


def is_active(race: Race | None) -> bool:
    """Whether any run of the race trains or is about to."""
    return race is not None and any(run.status() in ACTIVE for run in shared.runs_of(race))


# --- what the buttons do


def _start(form: Form) -> None:
    """Start a race, unless the very same one trains already; errors are shown, nothing is started."""
    hashes = [c.short_hash() for c in form.configs]
    for race in store.active_races(shared.runs_dir()):
        if [run.config.short_hash() for run in shared.runs_of(race)] == hashes:
            shared.look_at(race)
            return
    _try(lambda: shared.look_at(launch.start(shared.runs_dir(), form.configs)[0]))


def _resume(runs: Sequence[Run]) -> None:
    _try(lambda: launch.resume(runs))


def _try(action: Any) -> None:
    try:
        action()
    except (ValueError, OSError) as error:
        st.session_state["problem"] = str(error)


def _buttons(form: Form, race: Race | None, now: Standing) -> None:
    statuses = {status for _, status, _ in now}
    active, paused = bool(statuses & ACTIVE), "paused" in statuses
    halted = [run for run, status, _ in now if status in RESUMABLE]
    with st.container(horizontal=True, vertical_alignment="center"):
        label = "Start (queues)" if active else "Start"
        st.button(label, key="start", type="primary", icon=":material/play_arrow:", disabled=not form.configs, on_click=_start, args=[form])
        if race is None:
            st.button("Pause", key="pause", icon=":material/pause:", disabled=True)
        elif halted and not active:
            st.button("Go on", key="resume", icon=":material/resume:", on_click=_resume, args=[halted], help=RESUME_HELP)
        elif paused:
            st.button("Continue", key="continue", icon=":material/resume:", on_click=race.command, args=["run"])
        else:
            st.button("Pause", key="pause", icon=":material/pause:", disabled=not active, on_click=race.pause)
        can_step, can_stop = active and "queued" not in statuses, active and "stopping" not in statuses
        step, stop = (race.step_once, race.stop) if race else (None, None)
        st.button(
            "Step", key="step", icon=":material/skip_next:", disabled=not can_step, on_click=step, help="One update of every variant."
        )
        st.button("Stop", key="stop", icon=":material/stop:", disabled=not can_stop, on_click=stop, help=STOP_HELP)
        st.markdown(_headline(race, statuses, now))


def _headline(race: Race | None, statuses: set[Status], now: Standing) -> str:
    if race is None:
        return "No race yet: press **Start**."
    word = next((s for s in ("queued", "starting", "running", "paused", "stopping") if s in statuses), "finished")
    if word == "finished" and not statuses <= {"finished", "did not learn", "diverged"}:
        word = min(statuses)
    step = min((c.step for _, s, c in now if s in ACTIVE), default=max((c.step for *_, c in now), default=0))
    steps = max((run.config.training.steps for run, *_ in now), default=0)
    return f"**{race.info.get('name', race.id)}** · {word} · step {step:,} of {steps:,}"


# --- what it shows


def _labels(now: Standing) -> list[str]:
    return labels([run.config for run, *_ in now])


def _row(label: str, run: Run, status: Status, curve: Curve) -> dict[str, str]:
    left = run.config.training.steps - curve.step
    eta = left * curve.elapsed_s / curve.step if curve.step and status in ACTIVE else None
    val = curve.last("val_loss")
    return {
        "variant": label,
        "state": status,
        "step": f"{curve.step:,}",
        "train loss": _number(curve.last("loss"), ".4f"),
        "val. loss": _number(val, ".4f"),
        "bits/char": _number(None if val is None else val / math.log(2), ".3f"),
        "grad. norm": _number(curve.last("grad_norm"), ".3f"),
        "chars/s": _number(curve.tokens_per_second(), ",.0f"),
        "own time left": _number(eta, ".0f", " s"),
    }


def _number(value: float | None, spec: str, unit: str = "") -> str:
    return "–" if value is None else format(value, spec) + unit


def _messages(now: Standing) -> None:
    with st.container():
        metas = [run.meta for run, status, _ in now if status in ACTIVE]
        for message in dict.fromkeys(meta["compiled_message"] for meta in metas if not meta.get("compiled", True)):
            st.info(message[:1].upper() + message[1:] + ".")
        for run, status, curve in now:
            end = curve.end or {}
            if status == "diverged":
                st.warning(
                    f"**{run.name}** diverged at step {end['step']:,}: the {end['quantity']} is no longer finite. "
                    f"Likely cause: {end['cause']}."
                )
            elif status == "failed":
                st.error(f"**{run.name}** failed: {end.get('message', 'see its log')}. Its last checkpoint is kept.")
            elif status == "did not learn":
                bigram = run.meta.get("entropies", {}).get("bigram", math.nan)
                st.info(
                    f"**{run.name}** did not learn: it ended at {end['val_loss']:.3f}, above the bigram entropy {bigram:.3f} of its text."
                )
            elif status == "interrupted":
                st.info(f"**{run.name}** was interrupted (its process is gone); **Go on** continues from its last checkpoint.")


def _references(now: Standing, form: Form) -> dict[str, float]:
    kept = next((run.meta["entropies"] for run, *_ in now if "entropies" in run.meta), None)
    if kept is None and form.corpus is not None:
        unigram, bigram = form.corpus.entropies
        kept = {"uniform": form.corpus.uniform_entropy, "unigram": unigram, "bigram": bigram}
    names = {"uniform": "ln V", "unigram": "unigram entropy", "bigram": "bigram entropy"}
    return {names[k]: v for k, v in (kept or {}).items()}


X_NAMES = {"step": "steps", "tokens": "characters", "elapsed_s": "seconds"}
SHOW_NAMES = {"train": "training", "val": "validation"}


def _chart(race: Race | None, now: Standing, form: Form, overlay: Sequence[Run]) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        x = st.segmented_control("x axis", list(AXES), default="step", required=True, key="chart.x", format_func=X_NAMES.__getitem__)
        show = st.segmented_control(
            "curves",
            list(SHOW_NAMES),
            selection_mode="multi",
            default=list(SHOW_NAMES),
            key="chart.show",
            format_func=SHOW_NAMES.__getitem__,
        )
        smoothing = st.slider(
            "smoothing",
            0.0,
            0.99,
            0.8,
            0.01,
            key="chart.smooth",
            width=200,
            help="Moving average of the training loss; the raw curve stays, faint.",
        )
        log_y = st.toggle("log loss", key="chart.log")
    lines = [Line(run.id, label, arm_of(run.config), curve) for label, (run, _, curve) in zip(_labels(now), now)]
    shown = {line.id for line in lines}
    lines += [Line(r.id, r.name, arm_of(r.config), shared.curves().get(r.events), faint=True) for r in overlay if r.id not in shown]
    spec = loss_spec(
        lines,
        x=x,
        show=show or list(SHOW_NAMES),
        log_y=log_y,
        smoothing=smoothing,
        references=_references(now, form),
        revision=race.id if race else "none",
    )
    live_chart(spec, key="livechart", label="Loss curves of the race; the table below has the newest numbers.")


def _samples(now: Standing) -> None:
    if not now:
        return
    for column, label, (_, _, curve) in zip(st.columns(len(now)), _labels(now), now):
        with column:
            sample = curve.sample
            st.caption(f"**{label}** · " + ("no sample yet" if sample is None else f"sample at step {sample[0]:,}"))
            st.code(sample[1] if sample else " ", language=None, wrap_lines=True, height=220)


def panel(form: Form, ticking: bool, speed_known: bool) -> None:
    """One tick: buttons, messages, chart, table, samples.

    Asks for a full rerun when the pace has to change (``ticking``: how the page was drawn), or when the machine's
    speed has been measured since, so that the page can say how long a race takes.
    """
    race = shared.race_in_view()
    now = standing(race)
    active = any(status in ACTIVE for _, status, _ in now)
    if active != ticking or (not speed_known and speed.measured(shared.runs_dir()) is not None):
        st.rerun()
    _buttons(form, race, now)
    with st.container():
        for key, show in (("problem", st.error), ("notice", st.warning)):
            if text := st.session_state.pop(key, None):
                show(text)
    _messages(now)
    overlay = [Run(shared.runs_dir() / run_id) for run_id in st.session_state.get("overlay", [])]
    _chart(race, now, form, [run for run in overlay if run.status() != "broken"])
    if now:
        st.table(pd.DataFrame([_row(label, *entry) for label, entry in zip(_labels(now), now)]).set_index("variant"))
    else:
        st.markdown(
            "The curves of all chosen variants will grow here together, with a table of their numbers "
            "and a sample of what each has learnt to write."
        )
    _samples(now)
