"""Microscope: what a trained run's query does, layer by layer and on a sentence of your own, and what its f is worth."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import streamlit as st

from nqlab.analysis import elsewhere, microscope
from nqlab.analysis.microscope import Look, WorthOfF
from nqlab.analysis.microscope_figures import layer_figure
from nqlab.presets import arm_of
from nqlab.ui import attention_part, share, sources
from nqlab.ui.checkpoints import Place, Runs, model_at, place_of
from nqlab.ui.shared import as_table
from nqlab.words import _

COLUMNS = 3  # charts in a row; a narrow screen puts them below each other
QUIET = {"displayModeBar": False}


def page() -> None:
    """Draw everything; what takes seconds waits for its button."""
    st.subheader(_("What does the query do?"))
    run = sources.choose_run()
    if run is None:
        return
    shown, looks = sources.with_its_race(run), {}
    for label, one in shown.items():
        try:
            with st.spinner(_("Looking into the model ..."), show_time=False):
                looks[label] = _look(place_of(one))
        except (ValueError, OSError) as error:  # a text that has changed, a model that diverged
            st.warning(f"**{label}**: {error}")
    shown = {label: shown[label] for label in looks}
    if shown:
        _layers(shown, looks)
        attention_part.draw(shown)
        _worth(shown)
        ids = {label: one.id for label, one in shown.items()}
        share.elsewhere({"run": run.id}, elsewhere.microscope_command(list(ids.values())), elsewhere.microscope_cell(ids))


# --- what is computed, once for every viewer, as numbers alone


@st.cache_data(show_spinner=False, max_entries=100)
def _look(place: Place) -> Look:
    return microscope.look(*model_at(place))


@st.cache_data(show_spinner=False, max_entries=100)
def _worth_of(place: Place, windows: int) -> WorthOfF:
    model, corpus, _step = model_at(place)
    return microscope.worth_of_f(model, corpus, windows)


# --- what is shown


def _layers(shown: Runs, looks: Mapping[str, Look]) -> None:
    st.markdown(_("#### Layer by layer"))
    steps = sorted({f"{one.step:,}" for one in looks.values()})
    without = [label for label, one in looks.items() if not one.has_f]
    said = [_("Measured on validation text, at the checkpoint of step {steps}.").format(steps=_(" and ").join(steps))]
    if len(without) < len(looks):
        said.append(_("**f** is the learned part of a query q = (x + f(x))/2."))
    if without:
        text = _("**No f** in {names}: its measures are not defined there, and have no bar.")
        said.append(text.format(names=", ".join(without)))
    st.caption(" ".join(said))
    arms = {label: arm_of(run.config) for label, run in shown.items()}
    measures = list(microscope.measures().items())
    for first in range(0, len(measures), COLUMNS):
        for column, (measure, (title, caption)) in zip(st.columns(COLUMNS), measures[first : first + COLUMNS]):
            column.markdown(f"**{title}**")
            column.plotly_chart(layer_figure(measure, looks, arms), key=f"layers.{measure}", config=QUIET)
            column.caption(caption)
    rows, none = pd.DataFrame(microscope.layer_rows(looks)).astype(object), _("no f")
    as_table(rows.map(lambda v: none if pd.isna(v) else f"{v:.4f}" if isinstance(v, float) else str(v)))


def _worth(shown: Runs) -> None:
    st.markdown(_("#### What f is worth"))
    st.caption(
        _(
            "Validation loss in nats per character, and in brackets what it costs to set f to zero, or to put the best linear map in its "
            "place (least squares on training text). Nothing is retrained: a cost says that f is *used*, not that a model trained without "
            "it would be worse."
        )
    )
    places = {run.id: (place_of(run), run.config.training.eval_windows) for run in shown.values()}
    about = _("Evaluates each model up to three times; seconds at the tiny size.")
    if st.button(_("Take f away"), key="microscope.worth", help=about):
        st.session_state["microscope.taken"] = places
    if st.session_state.get("microscope.taken") == places:
        with st.spinner(_("Evaluating without f ...")):
            found = {label: _worth_of(*places[run.id]) for label, run in shown.items()}
        st.table(pd.DataFrame(microscope.worth_rows(found)).set_index(_("variant")))
        st.markdown("\n".join(f"- **{label}**: {one.why}." for label, one in found.items() if one.why))
