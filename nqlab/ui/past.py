"""The list of past runs below the race: choose some to lay behind the chart. The page Runs has everything else about them."""

from __future__ import annotations

from functools import partial

import streamlit as st

from nqlab.analysis import runs_table
from nqlab.analysis.standing import state_word
from nqlab.runs import exporting, store
from nqlab.runs.race import Race
from nqlab.runs.store import Run
from nqlab.ui import run_actions, shared
from nqlab.words import _


def panel() -> None:
    """Draw the list; the chosen runs go to ``session_state["overlay"]``."""
    st.subheader(_("Past runs"))
    run_actions.undo()
    runs = store.runs(shared.runs_dir())
    if not runs:
        st.caption(_("Every run is kept here, to be laid behind the next race."))
        st.session_state["overlay"] = []
        return
    st.caption(_("Choose rows to lay those runs behind the chart above."))
    chosen = st.dataframe(
        runs_table.table(runs_table.rows(runs)),
        hide_index=True, on_select="rerun", selection_mode="multi-row", key="past", height=min(422, 37 + 35 * len(runs)),
    )  # fmt: skip
    picked = [runs[i] for i in chosen["selection"]["rows"] if i < len(runs)]
    before = st.session_state.get("overlay", [])
    st.session_state["overlay"] = [run.id for run in picked if run.status() != "broken"]
    if before != st.session_state["overlay"]:
        st.rerun()  # before anything is offered: a download button drawn in a run that is thrown away would fetch nothing
    if len(picked) == 1:
        _one(picked[0])


def _one(run: Run) -> None:
    """What can be done with one run here."""
    with st.container(border=True):
        st.markdown(f"**{run.name}** · `{run.id}` · {state_word(run.status())}")
        if run.status() == "broken":
            run_actions.delete_button(run)
            return
        name, note = st.columns(2)
        with name:
            run_actions.name_field(run)
        with note:
            run_actions.note_field(run)
        with st.container(horizontal=True):
            st.button(_("Show its race"), key="show_race", on_click=_show, args=[run.race], disabled=not run.race.info)
            shared.download(_("Curve (CSV)"), partial(exporting.curve_csv, run), f"{run.id}.csv", "text/csv", key="csv")
            shared.download(_("Everything (zip)"), partial(exporting.archive, run), f"{run.id}.zip", "application/zip", key="zip")
            run_actions.delete_button(run)


def _show(race: Race) -> None:
    shared.look_at(race)
