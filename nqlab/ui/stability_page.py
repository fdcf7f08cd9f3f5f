"""Stability map: which settings each variant survives. Click a setting to see its runs."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from nqlab import corpus as corpora
from nqlab.analysis import elsewhere, tables
from nqlab.analysis.figures import reference_lines
from nqlab.analysis.stability import Cell, axis_title, cells, panel_figure, seeds_figure, table
from nqlab.ui import share, sources
from nqlab.ui.shared import as_table
from nqlab.words import _

PANELS = 3  # in a row; a narrow screen puts them below each other
QUIET = {"displayModeBar": False}


def page() -> None:
    """Draw everything; nothing is computed but means."""
    st.subheader(_("Where does training survive?"))
    st.markdown(
        _(
            "A square is a setting at which **every** seed learnt; its number is the mean final validation loss. A cross is one where some "
            "did not, with how many did: the others ended above the text's bigram entropy, or stopped being finite. On the far left that "
            "means *too slow* for so few steps, on the far right *unstable*. Click a mark to see its runs."
        )
    )
    with st.sidebar:
        filled = sources.choose()
    if filled is None:
        return
    sources.about(filled)
    found, y = _chosen(cells(filled.results))
    if not found:
        st.info(_("No run of this has ended yet."))
        return
    means = [cell.mean for cell in found]
    text = _("Colour: mean final loss, from yellow ({low:.2f}) to violet ({high:.2f}), the same for all variants.")
    st.caption(text.format(low=min(means), high=max(means)))
    arms = [arm for arm in filled.study.arms if any(cell.arm == arm for cell in found)]
    for first in range(0, len(arms), PANELS):
        for column, arm in zip(st.columns(PANELS), arms[first : first + PANELS]):
            with column:
                _panel(found, arm, y)
    as_table(pd.DataFrame(table(found)))
    _one(found)
    name = filled.study.name
    share.elsewhere({"study": name}, elsewhere.stability_command(name), elsewhere.stability_cell(name, y))


def _panel(found: Sequence[Cell], arm: str, y: str) -> None:
    """One variant's map; a click on a mark chooses its setting below."""
    key = f"map.{arm}"

    def clicked() -> None:
        points = st.session_state[key]["selection"]["points"]
        if points:
            st.session_state["setting"] = found[int(points[0]["customdata"])].key

    st.plotly_chart(panel_figure(found, arm, y), on_select=clicked, selection_mode="points", key=key, config=QUIET)


def _chosen(found: Sequence[Cell]) -> tuple[list[Cell], str]:
    """The settings to draw, one bottleneck width at a time unless the width is an axis; and the vertical axis."""
    widths = sorted({cell.value("bottleneck") for cell in found if cell.value("bottleneck")})
    if len(widths) < 2:
        return list(found), "weight_decay"
    with st.sidebar:
        upwards = st.radio(
            _("Upwards"), ["weight_decay", "bottleneck"], format_func=axis_title, key="stability_y",
            help=_("What the map's vertical axis is. Weight decay λ: AdamW shrinks every matrix by 1 − ηλ at each step "
                   "(arXiv:1711.05101). Bottleneck width R: the hidden width of f (arXiv:2603.13381)."),
        )  # fmt: skip
        if upwards == "bottleneck":
            return list(found), upwards
        width = st.select_slider(
            _("Bottleneck width R"), widths, key="stability_r",
            help=_("For variants that have one; the others do not move. Narrower: f has less capacity and fewer parameters."),
        )  # fmt: skip
    return [cell for cell in found if cell.value("bottleneck") in (0, width)], upwards


def _one(found: Sequence[Cell]) -> None:
    """The choice of one setting, and its runs."""
    named = {cell.key: cell for cell in found}
    if st.session_state.get("setting") not in named:
        st.session_state["setting"] = None
    chosen = st.selectbox(
        _("Setting"), list(named), index=None, placeholder=_("click a mark, or choose here"), key="setting",
        format_func=lambda key: named[key].title,
        help=_("One variant at one setting: its runs, which differ in their seed alone, are drawn below."),
    )  # fmt: skip
    if chosen is None:
        return
    cell = named[chosen]
    text = _("**{title}**: {how}; mean final loss **{loss:.4f}** nats per character")
    st.markdown(text.format(title=cell.title, how=cell.words, loss=cell.mean))
    levels = reference_lines(corpora.levels_here(cell.results[0].config.corpus))
    st.plotly_chart(seeds_figure(cell, levels), key="seeds", config=QUIET)
    as_table(tables.curves_table(cell.curves(), _("optimiser step")))
    st.dataframe(pd.DataFrame(cell.rows()), hide_index=True)
