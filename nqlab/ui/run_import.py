"""Import on the page Runs: an exported run is uploaded, checked, and shown."""

from __future__ import annotations

import streamlit as st

from nqlab.runs.importing import import_run
from nqlab.ui import run_actions, shared, visit
from nqlab.words import _

MAX_UPLOAD = 200  # MB; larger ones come in on the command line


def panel() -> None:
    """Draw where a file is chosen, and the button that takes it in."""
    with st.expander(_("Import a run")), st.form("runs.import", clear_on_submit=True, border=False):
        st.file_uploader(
            _("An exported run (zip)"), ["zip"], key="runs.upload", max_upload_size=MAX_UPLOAD,
            help=_("As the button Everything (zip) wrote it, here or on another machine. It is checked before anything is kept."),
        )  # fmt: skip
        st.form_submit_button(
            _("Import"),
            key="runs.take",
            on_click=_take,
            disabled=not visit.may_control(),
            help=_("Checks the file and puts the run into the list."),
        )


def _take() -> None:
    """Import the uploaded file, and show that run."""
    file = st.session_state.get("runs.upload")
    if file is None:
        st.session_state["problem"] = _("No file was chosen; choose the zip of an exported run first.")
        return

    def take() -> None:
        imported = import_run(shared.runs_dir(), file.getvalue())
        said = {"imported": _("**{name}** is imported."), "already here": _("**{name}** is already here; nothing was changed.")}
        text = said.get(imported.outcome, _("**{name}** is imported as {id}, because another run has its id."))
        st.session_state["notice"] = text.format(name=imported.run.name, id=imported.run.id)
        run_actions.choose([imported.run.id])

    shared.attempt(take)
