"""The microscope's maps: which position looks at which, head by head, on a text of one's own."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from nqlab import corpus as corpora
from nqlab.analysis import microscope, tables
from nqlab.analysis.attention_maps import AttentionMaps, attention_maps, longest_prompt, uniform_entropy
from nqlab.analysis.microscope_figures import map_figure, scale_figure
from nqlab.ui.checkpoints import Place, Runs, model_at, place_of
from nqlab.ui.shared import as_table
from nqlab.words import _

COLUMNS = 3  # maps in a row; a narrow screen puts them below each other
QUIET = {"displayModeBar": False}


@st.cache_data(show_spinner=False, max_entries=50)
def _maps(place: Place, prompt: str) -> AttentionMaps:
    model, corpus, _step = model_at(place)
    return attention_maps(model, corpus.vocabulary, prompt)


def draw(shown: Runs) -> None:
    """Draw the choice of text and layer, and the maps of all heads of that layer."""
    st.markdown(_("#### Who looks at whom"))
    prompt, layer = _choices(shown)
    try:
        maps = {label: _maps(place_of(run), prompt) for label, run in shown.items()}
    except (ValueError, OSError) as error:
        st.error(str(error))
        return
    text = _(
        "A row is a position that looks, a column one that is looked at; a row sums to 1. Brighter is more, on one scale for all maps, "
        "which goes with the root of the weight. Later positions are blank: no one sees ahead. Point at a cell for its number. ␣ is a "
        "space. The entropy is the mean over rows in nats; without preferences it would be {entropy:.2f}. Heads have no order: head h of "
        "one variant need not correspond to head h of another, though they stand beside each other."
    )
    st.caption(text.format(entropy=uniform_entropy(len(prompt) or 1)))
    st.plotly_chart(scale_figure(), key="map.scale", config=QUIET)
    found = [(label, one, head) for label, one in maps.items() if layer < len(one.weights) for head in range(one.weights.shape[1])]
    found.sort(key=lambda entry: entry[2])  # the same head of all runs beside each other
    columns = len(shown) if len(shown) in (2, 3) else COLUMNS
    for first in range(0, len(found), columns):
        for column, (label, one, head) in zip(st.columns(columns), found[first : first + columns]):
            title = _("{label}, head {n}: entropy {entropy:.2f}").format(label=label, n=head + 1, entropy=one.entropy(layer, head))
            column.plotly_chart(map_figure(one, layer, head, title), key=f"map.{shown[label].id}.{head}", config=QUIET)
    as_table(tables.maps_table(maps, layer).map(lambda v: "" if pd.isna(v) else f"{v:.4f}" if isinstance(v, float) else str(v)))


def _choices(shown: Runs) -> tuple[str, int]:
    """The text to look at, and the layer, the first being 0."""
    config = next(iter(shown.values())).config  # the runs of a race share their text
    corpus, layers = corpora.load(config.corpus), max(run.config.model.n_layer for run in shown.values())
    about = _("At most {n} characters, of those that the text it was trained on has.")
    prompt = st.text_input(
        _("Text"), microscope.example_prompt(corpus, config.model.block_size), key=f"microscope.prompt.{corpus.name}",
        help=about.format(n=longest_prompt(config.model.block_size)),
    )  # fmt: skip
    layer = st.segmented_control(
        _("Layer"), range(layers), default=0, format_func=lambda i: str(i + 1), key="microscope.layer", required=True,
        help=_("Layer 1 reads the characters; later ones read what the layers before have written. The weights of a head are "
               "softmax(q kᵀ/√D) over the positions so far (arXiv:1706.03762)."),
    )  # fmt: skip
    return prompt, layer
