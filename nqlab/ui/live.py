"""The live panel: buttons, chart, table, samples of one race. Drawn anew every tick, the same elements in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from nqlab.analysis import standing
from nqlab.analysis.figures import AXES, Line, loss_spec, reference_lines
from nqlab.analysis.standing import Standing
from nqlab.presets import arm_of
from nqlab.runs import speed
from nqlab.runs.race import Race
from nqlab.runs.store import Run
from nqlab.ui import predict, race_buttons, replay, sampled, shared, visit
from nqlab.ui.chart import live_chart, message_of
from nqlab.ui.form import Form
from nqlab.words import _

TICK_S, IDLE_S = 0.7, 3.0


def now_of(race: Race | None) -> Standing:
    """How a race stands now; broken folders left out."""
    if race is None:
        return Standing(None)
    entries = [(run, run.status(), shared.curves().get(run.events)) for run in shared.runs_of(race)]
    return Standing(race, tuple(entry for entry in entries if entry[1] != "broken"))


def must_tick() -> bool:
    """Whether the panel has to be drawn anew often: something trains, or a replay plays."""
    return now_of(shared.race_in_view()).active or replay.playing()


def panel(form: Form, ticking: bool, speed_known: bool) -> None:
    """One tick.

    Asks for a full rerun when the pace has to change (``ticking``: how the page was drawn), or when the machine's
    speed has been measured since, so that the page can say how long a race takes.
    """
    race = shared.race_in_view()
    now = now_of(race)
    if (now.active or replay.playing()) != ticking or (not speed_known and speed.measured(shared.runs_dir()) is not None):
        st.rerun()
    if visit.follows():
        st.markdown(f"### {standing.headline(now)}")
    else:
        race_buttons.draw(form, now)
    with st.container():
        for key, show in (("problem", st.error), ("notice", st.warning)):
            if text := st.session_state.pop(key, None):
                show(text)
        for kind, text in standing.messages(now):
            {"info": st.info, "warning": st.warning, "error": st.error}[kind](text)
    if predict.ask(now):
        return
    seen = replay.at(now)
    overlay = [Run(shared.runs_dir() / run_id) for run_id in st.session_state.get("overlay", [])]
    _chart(seen, form, [run for run in overlay if run.status() != "broken"])
    _table(seen)
    _experts(seen)
    _samples(seen)
    predict.scores(now)


def _chart(now: Standing, form: Form, overlay: Sequence[Run]) -> None:
    x_names = {"step": _("steps"), "tokens": _("characters"), "elapsed_s": _("seconds")}
    show_names = {"train": _("training"), "val": _("validation")}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        x = st.segmented_control(_("x axis"), list(AXES), default="step", required=True, key="chart.x", format_func=x_names.__getitem__,
                                 help=_("Against seconds of training, a variant that is slower per step is judged on its "
                                        "time as well."))  # fmt: skip
        show = st.segmented_control(_("curves"), list(show_names), selection_mode="multi", default=list(show_names), key="chart.show",
                                    format_func=show_names.__getitem__,
                                    help=_("Training loss, thin: of each batch, before its update. Validation loss, thick with dots: text "
                                           "never trained on."))  # fmt: skip
        smoothing = st.slider(_("smoothing"), 0.0, 0.99, 0.8, 0.01, key="chart.smooth", width=200,
                              help=_("Moving average of the training loss; the raw curve stays, faint."))  # fmt: skip
        close = st.toggle(_("close-up"), key="chart.close",
                          help=_("The loss axis without the first fifth of the way, where all fall alike."))  # fmt: skip
        log_y = st.toggle(_("log loss"), key="chart.log", help=_("The loss axis logarithmic: late differences show better."))
    lines = [Line(run.id, label, arm_of(run.config), curve) for label, (run, _status, curve) in zip(now.labels, now.entries)]
    shown = {line.id for line in lines}
    lines += [Line(r.id, r.name, arm_of(r.config), shared.curves().get(r.events), faint=True) for r in overlay if r.id not in shown]
    options: dict[str, Any] = {
        "x": x, "show": tuple(show or show_names), "log_y": log_y, "close": close, "smoothing": smoothing,
        "references": reference_lines(standing.levels(now) or (form.corpus.levels if form.corpus else {})),
        "revision": now.race.id if now.race else "none",
    }  # fmt: skip
    message = shared.drawn(lines, options, lambda: message_of(loss_spec(lines, **options)))
    live_chart(message, key="livechart", label=_("Loss curves of the race; the table below has the newest numbers."))


def _table(now: Standing) -> None:
    if now.entries:
        st.table(pd.DataFrame(standing.rows(now)).set_index(_("variant")))
        return
    st.markdown(
        _(
            "The curves of all chosen variants will grow here together, with a table of their numbers "
            "and a sample of what each has learnt to write."
        )
    )


def _experts(now: Standing) -> None:
    """Who of a mixture's experts has how much to do; always one element."""
    with st.container():
        if not (found := pd.DataFrame(standing.loads(now))).empty:
            st.caption(_("Experts' load: the share of the characters that each expert sees, mean of the last 20 logged steps. Even is "
                         "best; an expert near zero has died."))  # fmt: skip
            bars = {name: st.column_config.ProgressColumn(name, format="percent", min_value=0, max_value=1) for name in found.columns[2:]}
            st.dataframe(found, hide_index=True, column_config=bars, key="experts")


def _samples(now: Standing) -> None:
    if not now.entries:
        return
    for column, label, (run, _status, curve) in zip(st.columns(len(now.entries)), now.labels, now.entries):
        with column:
            if curve.sample is None:
                st.caption(f"**{label}** · " + _("no sample yet"))
            else:
                st.caption(f"**{label}** · " + _("sample at step {step:,}").format(step=curve.sample[0]))
            st.code(curve.sample[1] if curve.sample else " ", language=None, wrap_lines=True, height=220)
            if curve.sample is not None:
                sampled.picture(run.config, curve.sample[1], key=f"sampled.{run.id}")
