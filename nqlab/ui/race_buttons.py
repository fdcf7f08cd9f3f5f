"""The buttons of a race: start, pause, go on, step, stop, pace. What they may do depends on who looks."""

from __future__ import annotations

import streamlit as st

from nqlab.analysis import standing
from nqlab.analysis.standing import Standing
from nqlab.runs import launch, store
from nqlab.runs.race import Race
from nqlab.ui import shared, visit
from nqlab.ui.form import Form
from nqlab.words import _

PACES = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0)


def draw(form: Form, now: Standing) -> None:
    """Draw them and the headline, in one row."""
    allowed, race = visit.may_control(), now.race
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            _("Start (queues)") if now.active else _("Start"), key="start", type="primary", icon=":material/play_arrow:",
            disabled=not form.configs or not allowed, on_click=start, args=[form],
            help=_("A race of the chosen variants, on the same batches. It goes on when you leave."),
        )  # fmt: skip
        _pause(now, allowed)
        can_step, can_stop = now.active and "queued" not in now.statuses, now.active and "stopping" not in now.statuses
        st.button(_("Step"), key="step", icon=":material/skip_next:", disabled=not can_step or not allowed,
                  on_click=race.step_once if race else None, help=_("One update of every variant."))  # fmt: skip
        st.button(_("Stop"), key="stop", icon=":material/stop:", disabled=not can_stop or not allowed,
                  on_click=race.stop if race else None, help=_("After the update in progress; everything is kept."))  # fmt: skip
        _pace(now, allowed)
        st.markdown(standing.headline(now))


def _pause(now: Standing, allowed: bool) -> None:
    race = now.race
    if race is None:
        st.button(_("Pause"), key="pause", icon=":material/pause:", disabled=True)
    elif now.halted and not now.active:
        st.button(_("Go on"), key="resume", icon=":material/resume:", disabled=not allowed, on_click=_resume, args=[now],
                  help=_("From the last checkpoint, as if it had never stopped."))  # fmt: skip
    elif "paused" in now.statuses:
        st.button(_("Continue"), key="continue", icon=":material/resume:", disabled=not allowed, on_click=race.command, args=["run"])
    else:
        st.button(_("Pause"), key="pause", icon=":material/pause:", disabled=not now.active or not allowed, on_click=race.pause)


def _pace(now: Standing, allowed: bool) -> None:
    """The speed of a race that trains; what is computed is the same at every speed."""
    race = now.race
    if race is None or not now.active:
        return
    pace = race.pace()
    options = sorted({*PACES, pace})

    def chosen(race: Race = race) -> None:
        race.set_pace(float(st.session_state["pace"]))

    st.session_state["pace"] = pace
    st.selectbox(
        _("Pace"), options, key="pace", on_change=chosen, disabled=not allowed, width=170, label_visibility="collapsed",
        format_func=lambda p: _("{n:g} steps a second").format(n=p) if p else _("full speed"),
        help=_("Slower, so that people can follow; the numbers stay the same."),
    )  # fmt: skip


def start(form: Form) -> None:
    """Start a race, unless the very same one trains already; errors are shown, nothing is started."""
    hashes = [c.short_hash() for c in form.configs]
    for race in store.active_races(shared.runs_dir()):
        if [run.config.short_hash() for run in shared.runs_of(race)] == hashes:
            shared.look_at(race)
            return
    shared.attempt(lambda: shared.look_at(launch.start(shared.runs_dir(), form.configs)[0]))


def _resume(now: Standing) -> None:
    shared.attempt(lambda: launch.resume(now.halted))
