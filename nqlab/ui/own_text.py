"""A person's own text: a file or what was pasted, checked in plain words, kept by its hash, deleted when asked."""

from __future__ import annotations

import streamlit as st

from nqlab import corpus as corpora
from nqlab import limits
from nqlab.ui import form, shared
from nqlab.words import _


def draw() -> None:
    """Draw the form that takes a text, and, where one's own is chosen, the button that deletes it."""
    with st.container():  # always one element: what comes after keeps its place, and stays open
        if refused := st.session_state.pop("own_text.refused", None):
            st.error(refused)
    with st.expander(_("Your own text")):
        most = max(1, limits.current().upload_bytes // 1_000_000)
        with st.form("own_text", border=False):
            st.file_uploader(
                _("A text file"), max_upload_size=most, key="own_text.file",
                help=_("Any plain text of at most {n} MB; nine tenths are learnt from, the rest is for validation. It stays on "
                       "this server.").format(n=most),
            )  # fmt: skip
            st.text_area(_("or paste one"), key="own_text.pasted", height=100, help=_("A file goes first."))
            st.form_submit_button(_("Use this text"), on_click=_take)
        chosen = st.session_state[form.key("corpus")]
        if chosen.startswith(corpora.TEXT_PREFIX) and chosen in corpora.available():
            st.button(_("Delete this text"), key="own_text.delete", icon=":material/delete:", on_click=_delete, args=[chosen],
                      help=_("From this server, for good. Runs trained on it keep their curves, but can't be looked "
                             "into any more."))  # fmt: skip


def _take() -> None:
    state = st.session_state
    file = state.get("own_text.file")
    raw, title = (file.getvalue(), file.name) if file else (state["own_text.pasted"], _("pasted text"))
    try:
        corpus = corpora.add_text(raw, title, int(state[form.key("model.block_size")]))
    except ValueError as error:
        state["own_text.refused"] = str(error)
    else:
        state[form.key("corpus")] = corpus.name


def _delete(name: str) -> None:
    def delete() -> None:
        corpora.remove_text(name)
        st.session_state[form.key("corpus")] = form.RunConfig().corpus

    shared.attempt(delete)
