"""Replay of a race that has ended: its curves as they were after any number of steps, scrubbed or played."""

from __future__ import annotations

import time

import streamlit as st

from nqlab.analysis.standing import Standing
from nqlab.words import _

SPEEDS = (10, 50, 200, 1000)


def playing() -> bool:
    """Whether a replay plays in this session."""
    return "replay.since" in st.session_state


def at(now: Standing) -> Standing:
    """Draw the controls of a race that has ended; the race as it is to be seen."""
    with st.container():
        if now.active or now.step < 2:
            st.session_state.pop("replay.since", None)
            return now
        if not st.toggle(_("Replay"), key="replay.on", help=_("See the race grow again: by hand, or played at a speed.")):
            st.session_state.pop("replay.since", None)
            return now
        return now.until(_controls(now.step))


def _controls(last: int) -> int:
    """The step to show."""
    state = st.session_state
    state["replay.step"] = min(_step_now(last), last)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if playing():
            st.button(_("Hold"), key="replay.hold", icon=":material/pause:", on_click=_hold)
        else:
            st.button(_("Play"), key="replay.play", icon=":material/play_arrow:", on_click=_play, args=[last])
        st.selectbox(
            _("Steps a second"), SPEEDS, index=1, key="replay.speed", on_change=_anew, width=140, help=_("How fast the replay plays.")
        )
        step = st.slider(_("Step shown"), 0, last, key="replay.step", on_change=_anew, help=_("Pull to any moment of the race."))
    return int(step)


def _step_now(last: int) -> int:
    """Where the replay is: where it was held, or where its speed has brought it."""
    state = st.session_state
    step = int(state.get("replay.step", 0))
    if not playing():
        return step
    begun, base = state["replay.since"]
    step = base + int((time.time() - begun) * state.get("replay.speed", SPEEDS[1]))
    if step >= last:
        del state["replay.since"]
    return step


def _play(last: int) -> None:
    state = st.session_state
    step = int(state.get("replay.step", 0))
    state["replay.since"] = (time.time(), 0 if step >= last else step)


def _hold() -> None:
    st.session_state.pop("replay.since", None)


def _anew() -> None:
    """Go on from the step shown, at the speed chosen."""
    if playing():
        st.session_state["replay.since"] = (time.time(), int(st.session_state.get("replay.step", 0)))
