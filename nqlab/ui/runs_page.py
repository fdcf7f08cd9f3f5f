"""Runs: everything that was trained here or imported; searched, filtered, grouped, compared, exported, trained again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

import streamlit as st

from nqlab.analysis import elsewhere, runs_table
from nqlab.analysis.figures import title_of
from nqlab.analysis.run_document import curves_figure, curves_table
from nqlab.analysis.runs_table import Row
from nqlab.analysis.standing import state_word
from nqlab.config import difference_line
from nqlab.runs import store
from nqlab.runs.store import Run
from nqlab.ui import one_run, run_actions, run_import, share, shared, visit
from nqlab.words import _, several


def page() -> None:
    """Draw everything; the run in the address, or those chosen in the table, are shown below it."""
    st.subheader(_("What has been trained"))
    visit.why_not()
    run_actions.messages()
    run_import.panel()
    runs = {run.id: run for run in store.runs(shared.runs_dir())}
    if not runs:
        st.info(_("There is no run yet: start a race on the page Train, or import one that was exported."))
        return
    _table(runs_table.rows(runs.values()))
    chosen = [runs[run_id] for run_id in _chosen(runs)]
    names = [run.id for run in chosen]
    share.elsewhere({"run": names[0]} if len(names) == 1 else {}, elsewhere.runs_command(names), elsewhere.runs_cell(names))
    if len(chosen) == 1:
        one_run.details(chosen[0])
    elif chosen:
        _several(chosen)
    else:
        st.caption(_("Choose a row to see that run; choose two to see in what they differ."))


def _chosen(known: Collection[str]) -> list[str]:
    """The ids in view: the one in the address, else those chosen in the table. A wrong address says so."""
    wanted = st.query_params.get("run")
    if wanted is not None and wanted in known:
        run_actions.choose([wanted])
    elif wanted is not None:
        if wanted != (st.session_state.get("deleted") or ("",))[0]:
            st.warning(_("There is no run {name} here.").format(name=repr(wanted)))
        run_actions.choose([])
    return [run_id for run_id in run_actions.chosen() if run_id in known]


# --- the list


def _table(rows: Sequence[Row]) -> None:
    found = runs_table.filtered(_searched(rows), _filters(rows))
    n = len(found)
    st.caption(several("{n} run of {total}", "{n} runs of {total}", n).format(n=n, total=len(rows)))
    if not found:
        return
    _groups(found)
    ids = [row["id"] for row in found]
    key = f"runs.table.{hashlib.sha256(' '.join(ids).encode('utf-8')).hexdigest()[:8]}"  # other rows, another table: places are not ids

    def picked() -> None:
        run_actions.choose([ids[i] for i in st.session_state[key]["selection"]["rows"]])

    st.dataframe(
        runs_table.table(found), hide_index=True, on_select=picked, selection_mode="multi-row", key=key, height=min(422, 37 + 35 * n)
    )


def _searched(rows: Sequence[Row]) -> Sequence[Row]:
    text = st.text_input(
        _("Search"), key="runs.search", placeholder=_("fox   learning_rate=0.01   val_loss<2   tag=lecture"),
        help=_(
            "Words in any field (name, note, tag, variant, text, setting), all of which must fit; or one field with =, !=, <, <=, > "
            'or >=, such as seed=3. A word in "quotes" is taken as text.'
        ),
    )  # fmt: skip
    try:
        return runs_table.search(rows, text or "")
    except ValueError as error:
        st.error(str(error))
        return rows


def _filters(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """The values wanted in some fields; what can be chosen does not depend on the search."""
    fields = {
        "status": (_("State"), _("Only runs that stand so.")),
        "arm": (_("Variant"), _("Only runs of these variants.")),
        "corpus": (_("Text"), _("Only runs that learnt these texts.")),
        "tags": (_("Tags"), _("Only runs with one of these tags.")),
    }
    wanted = {}
    for column, (key, (label, about)) in zip(st.columns(len(fields)), fields.items()):
        words: Callable[[str], str] = {"arm": title_of, "status": state_word}.get(key, str)  # type: ignore[assignment]
        wanted[key] = column.multiselect(label, runs_table.values_of(rows, key), format_func=words, key=f"runs.only.{key}", help=about)
    return wanted


def _groups(rows: Sequence[Row]) -> None:
    key = st.selectbox(
        _("Group by"), runs_table.fields(rows), index=None, placeholder=_("any setting in which runs differ"), key="runs.group",
        format_func=lambda name: _("variant") if name == "arm" else name.rpartition(".")[2].replace("_", " "),
        help=_("Counts the runs of each value, with the mean and the best final validation loss of those that came to their end."),
    )  # fmt: skip
    if key is not None:
        st.dataframe(runs_table.group_table(rows, key), hide_index=True, key="runs.groups")


# --- several runs


def _several(runs: Sequence[Run]) -> None:
    """In what they differ, in one line each, and their curves in one chart."""
    whole = [run for run in runs if run.status() != "broken"]
    for other in whole[1:]:
        pair = {"a": whole[0].name, "b": other.name, "difference": difference_line(whole[0].config, other.config)}
        st.markdown(_("**{a}** → **{b}**: {difference}").format(**pair))
    if whole:
        st.plotly_chart(curves_figure(whole, shared.curves().get), key="runs.curves", config={"displayModeBar": False})
        shared.as_table(curves_table(whole, shared.curves().get))
