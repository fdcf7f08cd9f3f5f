"""How a viewer came here: language, view, teacher's key, what is hidden or locked.

From the address (``?lang=``, ``?view=``, ``?teacher=``, ``?hide=``, ``?lock=``, ``?predict=1``) at first, then kept for the
session, because walking from page to page empties the address.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TypeVar

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from nqlab import limits, words
from nqlab.words import _

Made = TypeVar("Made")
KEPT = ("lang", "view", "teacher", "hide", "lock", "predict")
VIEWS = ("follow", "projector")
LARGE = "<style>html {font-size: 22px} [data-testid='stMainBlockContainer'] {padding-top: 2rem}</style>"


def begin() -> None:
    """Take over what the address says; the first thing a page does. With a wrong limits file it says so and goes no further."""
    words.speak_through(language)
    try:
        limits.current()
    except ValueError as error:
        st.error(str(error))
        st.stop()
    for name in KEPT:
        if name in st.query_params:
            st.session_state[f"visit.{name}"] = st.query_params[name]
    if large():
        st.html(LARGE)


def _kept(name: str) -> str:
    return str(st.session_state.get(f"visit.{name}", ""))


def kept() -> dict[str, str]:
    """What of this belongs into a link for others: never the teacher's key."""
    return {name: _kept(name) for name in ("lang", "hide", "lock", "predict") if _kept(name)}


# --- language


def language() -> str:
    """One of :data:`nqlab.words.LANGUAGES`: as chosen, else English. Safe to call where there is no viewer."""
    if get_script_run_ctx(suppress_warning=True) is None:
        return "en"
    return wanted if (wanted := _kept("lang")) in words.LANGUAGES else "en"


def in_language(make: Callable[[], Made]) -> Callable[[], Made]:
    """``make``, in the language of this viewer even where it is called later, as a download is."""
    wanted = language()

    def made() -> Made:
        with words.speaking(wanted):
            return make()

    return made


def language_choice() -> None:
    """Draw the switch between languages; and say so where the address asked for one that there is not."""
    if (wanted := _kept("lang")) and wanted not in words.LANGUAGES:
        st.warning(_("There is no language {name!r} here; this is English.").format(name=wanted))
    st.session_state["language"] = language()

    def chosen() -> None:
        st.session_state["visit.lang"] = st.query_params["lang"] = st.session_state["language"]

    st.segmented_control(
        "Language · 語言", list(words.LANGUAGES), format_func=words.LANGUAGES.__getitem__, key="language", on_change=chosen, required=True,
        help=_("Of everything on these pages. Notebooks and the command line are in English."),
    )  # fmt: skip


# --- view


def follows() -> bool:
    """A viewer who looks on: no controls at all."""
    return _kept("view") == "follow"


def large() -> bool:
    """Large type, for a projector and for those who follow it."""
    return _kept("view") in VIEWS


def unknown_view() -> str | None:
    """A sentence where the address asks for a view that there is not."""
    wanted = _kept("view")
    if wanted and wanted not in VIEWS:
        return _("There is no view {name!r}; views are {known}. This is the usual one.").format(name=wanted, known=", ".join(VIEWS))
    return None


def hidden(control: str) -> bool:
    """Whether the address hides a control (``?hide=advanced,past``)."""
    return control in _kept("hide").split(",")


def locked(control: str) -> bool:
    """Whether the address shows a control that can't be moved (``?lock=steps,seed``)."""
    return control in _kept("lock").split(",")


def predicts_first() -> bool:
    """Whether curves wait for a prediction."""
    return _kept("predict") == "1"


# --- who may do what


def may_control() -> bool:
    """Whether this viewer may start, stop, change or delete anything: everybody, unless the limits file names a key."""
    key = limits.current().teacher
    return key is None or secrets.compare_digest(_kept("teacher").encode(), key.encode())


def why_not() -> None:
    """Say, once a page, why the buttons are off; and the limits that hold here."""
    if not may_control():
        st.info(_("On this server the teacher starts and stops; you can look at everything, choose what to see, and predict."))
    if told := limits.words():
        st.caption(_("Limits of this server: {limits}.").format(limits="; ".join(told)))
