"""The argument: where W_Q can be absorbed, where not, and what that means for a trained run."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from nqlab.analysis import elsewhere
from nqlab.analysis.figures import error_figure
from nqlab.analysis.redundancy.diagram import dot, factors
from nqlab.analysis.redundancy.examine import Errors, errors_of
from nqlab.ui import argument_form, argument_trained, share
from nqlab.ui.shared import as_table
from nqlab.words import _

# On a narrow screen the diagram keeps its size and scrolls, instead of shrinking until nothing can be read.
LEGIBLE = """<style>
[data-testid='stGraphVizChart'] {overflow-x: auto}
[data-testid='stGraphVizChart'] svg {min-width: 760px; height: auto}
</style>"""
BADGES = {"exact": "green", "orthogonal only": "orange", "impossible": "red"}


def page() -> None:
    """Draw everything; a changed choice is answered at once."""
    st.subheader(_("Where does W_Q disappear?"))
    st.markdown(
        _(
            "Attention sees its input only through **X W_Q, X W_K, X W_V**. Multiply X by an invertible S and the three matrices by "
            "S⁻¹: nothing changes. With S = W_Q the query matrix becomes I, **if whoever writes X can absorb S**. "
            "Choose a transformer and see."
        )
    )
    with st.sidebar:
        architecture, condition, dtype = argument_form.draw()
    if architecture is None:
        return
    found = errors_of(architecture, condition, dtype)
    _verdict(found)
    st.html(LEGIBLE)
    st.graphviz_chart(dot(found.analysis), width="stretch")
    st.caption(_("Each box is a hidden state. Boxes of one colour must share one S; a dashed skip forces that, a norm restricts it."))
    st.plotly_chart(error_figure(_bars(found), found.epsilon), width="stretch", key="errors")
    st.caption(_("Dotted: how far apart numbers near 1 lie in this precision. An error of about that size is rounding."))
    as_table(pd.DataFrame({_("relative error of the outputs"): _bars(found)}).rename_axis(_("state")).reset_index())
    with st.expander(_("What absorbs what")):
        st.table(pd.DataFrame(factors(found.analysis)).set_index(_("state")))
    st.info(
        _(
            "In a standard GPT (LayerNorm before each block, both skips) **W_Q = I is a restriction, not a rewriting**. "
            "That it costs little is an empirical finding: the Train page shows it, the algebra does not prove it."
        )
    )
    command = elsewhere.examine_command(architecture, condition, dtype)
    share.elsewhere(argument_form.address(), command, elsewhere.examine_cell(architecture, condition, dtype))
    argument_trained.draw()


def _verdict(found: Errors) -> None:
    analysis = found.analysis
    word = {"exact": _("exact"), "orthogonal only": _("orthogonal only"), "impossible": _("impossible")}[analysis.verdict]
    st.markdown(_("#### Every W_Q = I: {verdict}").format(verdict=f":{BADGES[analysis.verdict]}-badge[{word}]"))
    counts = _("W_Q made I: **{removable}**, made triangular: **{triangular}**, weights saved: **{saved:,}**.").format(
        removable=analysis.removable, triangular=analysis.triangular, saved=analysis.parameters_saved
    )
    st.markdown(f"{analysis.sentence} {counts}")


def _bars(found: Errors) -> dict[str, float]:
    bars = {_("as the rule allows"): found.rule, _("W_Q = I anyway"): found.anyway}
    if found.gauge is None:
        return bars
    return bars | {_("gauge per head (saves {n:,})").format(n=found.gauge_saved): found.gauge}
