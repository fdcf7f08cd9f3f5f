"""The same thing elsewhere: a link, a command line and a notebook cell that reproduce what a page shows."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

import streamlit as st

from nqlab.ui import visit
from nqlab.words import _


def address(parameters: Mapping[str, str], page: str | None = None) -> str:
    """The address of this page, or of another, with these parameters and what the session keeps (never a teacher's key)."""
    here = (st.context.url or "").split("?")[0].rstrip("/")
    if page is not None:
        here = here.rsplit("/", 1)[0] + f"/{page}" if here.count("/") > 2 else f"{here}/{page}"
    query = urlencode(dict(parameters) | visit.kept(), safe=",:")
    return f"{here}?{query}" if query else here


def elsewhere(parameters: Mapping[str, str], command: str | None, cell: str | None) -> None:
    """Draw the button that offers them; each has a button of its own that copies it. None where there is no such thing."""
    with st.popover(
        _("Share"), key="share", icon=":material/share:", help=_("A link, a command line and a notebook cell that give the same.")
    ):
        st.caption(_("A link to this"))
        st.code(address(parameters), language=None, wrap_lines=True)
        if command is not None:
            st.caption(_("The same on the command line"))
            st.code(command, language="bash", wrap_lines=True)
        if cell is not None:
            st.caption(_("The same in a notebook"))
            st.code(cell, language="python", wrap_lines=True)
