"""The list of past runs: choose some to lay behind the chart; rename, note, delete, export."""

from __future__ import annotations

from functools import partial

import pandas as pd
import streamlit as st

from nqlab.presets import ARMS
from nqlab.runs import exporting, store
from nqlab.runs.race import Race
from nqlab.runs.store import Run
from nqlab.ui import shared

COLUMNS = {
    "name": "name",
    "status": "state",
    "arm": "variant",
    "learning_rate": "learning rate",
    "weight_decay": "weight decay",
    "seed": "seed",
    "step": "step",
    "val_loss": "val. loss",
    "corpus": "text",
    "created": "started",
    "note": "note",
}


def panel() -> None:
    """Draw the list; the chosen runs go to ``session_state["overlay"]``."""
    st.subheader("Past runs")
    _undo()
    runs = store.runs(shared.runs_dir())
    if not runs:
        st.caption("Every run is kept here, to be laid behind the next race.")
        st.session_state["overlay"] = []
        return
    rows = [run.summary() for run in runs]
    table = pd.DataFrame(rows).reindex(columns=list(COLUMNS)).rename(columns=COLUMNS)
    table["variant"] = table["variant"].map(lambda arm: ARMS.get(arm, arm))
    st.caption("Choose rows to lay those runs behind the chart above.")
    chosen = st.dataframe(
        table, hide_index=True, on_select="rerun", selection_mode="multi-row", key="past", height=min(420, 40 + 35 * len(rows))
    )
    picked = [runs[i] for i in chosen["selection"]["rows"] if i < len(runs)]
    before = st.session_state.get("overlay", [])
    st.session_state["overlay"] = [run.id for run in picked if run.status() != "broken"]
    if before != st.session_state["overlay"]:
        st.rerun()  # before anything is offered: a download button drawn in a run that is thrown away would fetch nothing
    if len(picked) == 1:
        _one(picked[0])


def _undo() -> None:
    gone = st.session_state.get("deleted")
    if gone and (shared.runs_dir() / ".trash" / gone[0]).exists():
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{gone[1]}** is deleted.")
            st.button("Undo", key="undo", on_click=_undelete, args=[gone[0]])


def _undelete(run_id: str) -> None:
    try:
        store.undelete(shared.runs_dir(), run_id)
    except ValueError as error:  # brought back by another viewer
        st.session_state["problem"] = str(error)


def _one(run: Run) -> None:
    """What can be done with one run."""
    label = run.label
    with st.container(border=True):
        st.markdown(f"**{label['name']}** · `{run.id}` · {run.status()}")
        if run.status() == "broken":
            st.button("Delete", key="delete", on_click=_delete, args=[run])
            return
        name, note = st.columns(2)
        name.text_input("Name", label["name"], key=f"name.{run.id}", on_change=_relabel, args=[run])
        note.text_input("Note", label["note"], key=f"note.{run.id}", on_change=_relabel, args=[run])
        with st.container(horizontal=True):
            st.button("Show its race", key="show_race", on_click=_show, args=[run.race], disabled=not run.race.info)
            st.download_button("Curve (CSV)", exporting.curve_csv(run), f"{run.id}.csv", "text/csv", key="csv", on_click="ignore")
            st.download_button(
                "Everything (zip)", partial(exporting.archive, run), f"{run.id}.zip", "application/zip", key="zip", on_click="ignore"
            )
            st.button("Delete", key="delete", on_click=_delete, args=[run], icon=":material/delete:")


def _show(race: Race) -> None:
    shared.look_at(race)


def _relabel(run: Run) -> None:
    state = st.session_state
    try:
        run.relabel(name=state[f"name.{run.id}"], note=state[f"note.{run.id}"])
    except ValueError as error:
        state["problem"] = str(error)
    except FileNotFoundError:  # deleted meanwhile, here or by another viewer
        state["notice"] = f"{run.id} is not there any more; nothing was renamed."


def _delete(run: Run) -> None:
    name = run.name
    try:
        store.delete(run)
    except (ValueError, FileNotFoundError) as error:
        st.session_state["problem"] = str(error)
    else:
        st.session_state["deleted"] = (run.id, name)
