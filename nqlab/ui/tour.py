"""The tour of a first visit: five steps, to be skipped at any time, with a running race at its end."""

from __future__ import annotations

from functools import cache
from typing import Any

import streamlit as st

from nqlab.experiment import Experiment
from nqlab.ui import form, race_buttons, visit
from nqlab.words import _

SEEN = "nqlab_tour_seen"
# A cookie of this page alone, kept a year in the viewer's browser; nothing else is kept there.
REMEMBER = """export default function ({ data }) {
  if (data.name) document.cookie = `${data.name}=1; max-age=31536000; path=/; samesite=strict`;
}
"""


def _steps() -> list[tuple[str, str]]:
    return [
        (
            _("The question"),
            _(
                "Attention compares a **query** of each character with **keys** of those before it. Usually the query is a learned linear "
                "map, q = x W_Q. Recent algebra says that W_Q is redundant in some transformers; a paper replaces it by something "
                "nonlinear. Here you train such models yourself and see what difference it makes."
            ),
        ),
        (
            _("What races"),
            _(
                "The controls (in the sidebar; on a phone, behind the arrow at the top) choose the variants: **linear** is the usual one, "
                "**nonlinear** the paper's, **identity** has no learned query at all. They start alike, see the same batches in the same "
                "order, and differ in the query alone."
            ),
        ),
        (
            _("What you will see"),
            _(
                "Two curves a variant: the loss on the text it learns from, and, thicker, on text it never sees. Lower is better, "
                "in nats per "
                "character. The dotted lines are what letter frequencies (unigram) and pairs of letters (bigram) would reach."
            ),
        ),
        (
            _("What to believe"),
            _(
                "A race is one seed at one learning rate: it shows, it does not prove. On **Compare** the same is done over paired "
                "seeds and "
                "with equal tuning for all, and the answer may well be: inconclusive."
            ),
        ),
        (
            _("Your first race"),
            _("Three variants, a thousand steps each, on Shakespeare. It takes seconds to minutes; you can pause or stop it."),
        ),
    ]


def draw() -> None:
    """Draw the step the viewer is at; nothing for who has seen the tour, came by a link, or is not to control anything."""
    state = st.session_state
    if "tour" not in state:
        came_by_link = any(name not in ("lang",) for name in st.query_params)
        state["tour"] = None if came_by_link or st.context.cookies.get(SEEN) or not visit.may_control() else 0
    _remember(state.get("tour.over", False))
    if state["tour"] is None:
        return
    steps, at = _steps(), int(state["tour"])
    title, text = steps[at]
    with st.container(border=True, key="tour"):
        st.markdown(f"**{at + 1}/{len(steps)} · {title}**  \n{text}")
        with st.container(horizontal=True):
            if at:
                st.button(_("Back"), key="tour.back", on_click=_go, args=[at - 1])
            if at + 1 < len(steps):
                st.button(_("Next"), key="tour.next", type="primary", on_click=_go, args=[at + 1])
            else:
                st.button(_("Start the first race"), key="tour.start", type="primary", icon=":material/play_arrow:", on_click=_start)
            st.button(_("Skip the tour"), key="tour.skip", type="tertiary", on_click=_end)


def again() -> None:
    """Draw the button that begins the tour anew."""
    if st.session_state.get("tour") is None and visit.may_control():
        st.button(_("Tour"), key="tour.again", type="tertiary", icon=":material/explore:", on_click=_go, args=[0],
                  help=_("Five short steps, with a running race at the end."))  # fmt: skip


def _go(step: int) -> None:
    st.session_state["tour"] = step


def _end() -> None:
    st.session_state["tour"], st.session_state["tour.over"] = None, True


def _start() -> None:
    usual = Experiment()
    form.adopt(usual)
    race_buttons.start(form.read())
    _end()


def _remember(over: bool) -> None:
    """Always drawn, so that what follows keeps its place; sets the cookie once the tour is over."""
    _component()(key="remember", data={"name": SEEN if over else ""}, height=1)


@cache
def _component() -> Any:
    return st.components.v2.component("nqlab.remember", js=REMEMBER, isolate_styles=False)
