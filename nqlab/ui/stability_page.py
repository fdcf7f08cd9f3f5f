"""Stability map: which settings each variant survives. Click a setting to see its runs."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from nqlab.analysis.stability import AXES, Cell, cells, panel_figure, seeds_figure, table
from nqlab.ui import sources

PANELS = 3  # in a row; a narrow screen puts them below each other
QUIET = {"displayModeBar": False}


def page() -> None:
    """Draw everything; nothing is computed but means."""
    st.subheader("Where does training survive?")
    st.markdown(
        "A square is a setting at which **every** seed learnt; its number is the mean final validation loss. A cross is one where some "
        "did not: they ended above the text's bigram entropy, or stopped being finite. On the far left that means *too slow* for so few "
        "steps, on the far right *unstable*. Click a mark to see its runs."
    )
    with st.sidebar:
        filled = sources.choose()
    if filled is None:
        return
    sources.about(filled)
    found = _chosen(cells(filled.results))
    if not found:
        st.info("No run of this has ended yet.")
        return
    y = "bottleneck" if st.session_state.get("stability_y") == AXES["bottleneck"] else "weight_decay"
    means = [cell.mean for cell in found]
    st.caption(f"Colour: mean final loss, from yellow ({min(means):.2f}) to violet ({max(means):.2f}), the same for all variants.")
    arms = [arm for arm in filled.study.arms if any(cell.arm == arm for cell in found)]
    for first in range(0, len(arms), PANELS):
        for column, arm in zip(st.columns(PANELS), arms[first : first + PANELS]):
            with column:
                _panel(found, arm, y)
    with st.expander("The same as a table"):
        st.dataframe(pd.DataFrame(table(found)), hide_index=True)
    names = [cell.title for cell in found]
    if st.session_state.get("setting") not in names:
        st.session_state["setting"] = None
    chosen = st.selectbox("Setting", names, index=None, placeholder="click a mark, or choose here", key="setting")
    if chosen is not None:
        _one(found[names.index(chosen)])


def _panel(found: Sequence[Cell], arm: str, y: str) -> None:
    """One variant's map; a click on a mark chooses its setting below."""
    key = f"map.{arm}"

    def clicked() -> None:
        points = st.session_state[key]["selection"]["points"]
        if points:
            st.session_state["setting"] = found[int(points[0]["customdata"])].title

    st.plotly_chart(panel_figure(found, arm, y), on_select=clicked, selection_mode="points", key=key, config=QUIET)


def _chosen(found: Sequence[Cell]) -> list[Cell]:
    """The settings to draw: one bottleneck width at a time, unless the width is an axis."""
    widths = sorted({cell.value("bottleneck") for cell in found if cell.value("bottleneck")})
    if len(widths) < 2:
        return list(found)
    with st.sidebar:
        upwards = st.radio(
            "Upwards", [AXES["weight_decay"], AXES["bottleneck"]], key="stability_y", help="What the map's vertical axis is."
        )
        if upwards == AXES["bottleneck"]:
            return list(found)
        width = st.select_slider(
            "Bottleneck width R", widths, key="stability_r", help="For variants that have one; the others do not move."
        )
    return [cell for cell in found if cell.value("bottleneck") in (0, width)]


def _one(cell: Cell) -> None:
    """The runs of one setting."""
    st.markdown(f"**{cell.title}**: {cell.words}; mean final loss **{cell.mean:.4f}** nats per character")
    st.plotly_chart(seeds_figure(cell), key="seeds", config=QUIET)
    st.dataframe(pd.DataFrame(cell.rows()), hide_index=True)
