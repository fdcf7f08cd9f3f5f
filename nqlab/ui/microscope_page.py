"""Microscope: what a trained run's query does, layer by layer and on a sentence of your own, and what its f is worth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import streamlit as st

from nqlab import corpus as corpora
from nqlab.analysis import microscope
from nqlab.analysis.attention_maps import AttentionMaps, attention_maps, longest_prompt, uniform_entropy
from nqlab.analysis.microscope import MEASURES, Look, WorthOfF
from nqlab.analysis.microscope_figures import layer_figure, map_figure, scale_figure
from nqlab.corpus import Corpus
from nqlab.model.gpt import GPT
from nqlab.presets import arm_of
from nqlab.runs.store import Run
from nqlab.runs.worker import load_model
from nqlab.ui import sources

Runs = Mapping[str, Run]
Place = tuple[str, int]  # a run's folder, and the time of its checkpoint in ns
COLUMNS = 3  # charts in a row; a narrow screen puts them below each other
QUIET = {"displayModeBar": False}


def page() -> None:
    """Draw everything; what takes seconds waits for its button."""
    st.subheader("What does the query do?")
    run = sources.choose_run()
    if run is None:
        return
    shown, looks = sources.with_its_race(run), {}
    for label, one in shown.items():
        try:
            looks[label] = _look(_place(one))
        except (ValueError, OSError) as error:  # a text that has changed, a model that diverged
            st.warning(f"**{label}**: {error}")
    shown = {label: shown[label] for label in looks}
    if shown:
        _layers(shown, looks)
        _attention(shown)
        _worth(shown)


# --- what is computed, once for every viewer; a newer checkpoint has another time and is another question


def _place(run: Run) -> Place:
    return str(run.folder), run.checkpoint.stat().st_mtime_ns


def _model(place: Place) -> tuple[GPT, Corpus, int]:
    return load_model(Run(Path(place[0])))


@st.cache_data(show_spinner="Looking into the model ...", max_entries=100)
def _look(place: Place) -> Look:
    return microscope.look(*_model(place))


@st.cache_data(show_spinner=False, max_entries=50)
def _maps(place: Place, prompt: str) -> AttentionMaps:
    model, corpus, _ = _model(place)
    return attention_maps(model, corpus.vocabulary, prompt)


@st.cache_data(show_spinner="Evaluating without f ...", max_entries=100)
def _worth_of(place: Place, windows: int) -> WorthOfF:
    model, corpus, _ = _model(place)
    return microscope.worth_of_f(model, corpus, windows)


# --- what is shown


def _layers(shown: Runs, looks: Mapping[str, Look]) -> None:
    st.markdown("#### Layer by layer")
    steps = sorted({f"{one.step:,}" for one in looks.values()})
    without = [label for label, one in looks.items() if not one.has_f]
    st.caption(
        f"Measured on validation text, at the checkpoint of step {' and '.join(steps)}."
        + (f" **No f** in {', '.join(without)}: its measures are not defined there, and have no bar." if without else "")
    )
    arms = {label: arm_of(run.config) for label, run in shown.items()}
    measures = list(MEASURES)
    for first in range(0, len(measures), COLUMNS):
        for column, measure in zip(st.columns(COLUMNS), measures[first : first + COLUMNS]):
            column.markdown(f"**{MEASURES[measure][0]}**")
            column.plotly_chart(layer_figure(measure, looks, arms), key=f"layers.{measure}", config=QUIET)
            column.caption(MEASURES[measure][1])
    with st.expander("The same as a table"):
        rows = pd.DataFrame(microscope.layer_rows(looks)).astype(object)
        st.dataframe(rows.map(lambda v: "no f" if pd.isna(v) else f"{v:.4f}" if isinstance(v, float) else str(v)), hide_index=True)


def _attention(shown: Runs) -> None:
    st.markdown("#### Who looks at whom")
    config = next(iter(shown.values())).config  # the runs of a race share their text
    corpus, layers = corpora.load(config.corpus), max(run.config.model.n_layer for run in shown.values())
    prompt = st.text_input(
        "Text", microscope.example_prompt(corpus, config.model.block_size), key=f"microscope.prompt.{corpus.name}",
        help=f"At most {longest_prompt(config.model.block_size)} characters, of those that the text it was trained on has.",
    )  # fmt: skip
    layer = st.segmented_control(
        "Layer", range(layers), default=0, format_func=lambda i: str(i + 1), key="microscope.layer", required=True,
        help="Layer 1 reads the characters; later ones read what the layers before have written.",
    )  # fmt: skip
    try:
        maps = {label: _maps(_place(run), prompt) for label, run in shown.items()}
    except (ValueError, OSError) as error:
        st.error(str(error))
        return
    st.caption(
        "A row is a position that looks, a column one that is looked at; a row sums to 1. Brighter is more, on one scale for all maps. "
        "Later positions are blank: no one sees ahead. Point at a cell for its number. ␣ is a space. The entropy is the mean over rows in "
        f"nats; without preferences it would be {uniform_entropy(len(prompt) or 1):.2f}."
    )
    st.plotly_chart(scale_figure(), key="map.scale", config=QUIET)
    found = [(label, one, head) for label, one in maps.items() if layer < len(one.weights) for head in range(one.weights.shape[1])]
    found.sort(key=lambda entry: entry[2])  # the same head of all runs beside each other
    columns = len(shown) if len(shown) in (2, 3) else COLUMNS
    for first in range(0, len(found), columns):
        for column, (label, one, head) in zip(st.columns(columns), found[first : first + columns]):
            title = f"{label}, head {head + 1}: entropy {one.entropy(layer, head):.2f}"
            column.plotly_chart(map_figure(one, layer, head, title), key=f"map.{label}.{head}", config=QUIET)


def _worth(shown: Runs) -> None:
    st.markdown("#### What f is worth")
    st.caption(
        "Validation loss in nats per character, and in brackets what it costs to set f to zero, or to put the best linear map in its "
        "place (least squares on training text). Nothing is retrained: a cost says that f is *used*, not that a model trained without "
        "it would be worse."
    )
    places = {label: (_place(run), run.config.training.eval_windows) for label, run in shown.items()}
    if st.button("Take f away", key="microscope.worth", help="Evaluates each model up to three times; seconds at the tiny size."):
        st.session_state["microscope.taken"] = places
    if st.session_state.get("microscope.taken") == places:
        found = {label: _worth_of(*place) for label, place in places.items()}
        st.table(pd.DataFrame(microscope.worth_rows(found)).set_index("variant"))
        st.markdown("\n".join(f"- **{label}**: {one.why}." for label, one in found.items() if one.why))
