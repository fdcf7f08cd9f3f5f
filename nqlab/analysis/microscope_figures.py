"""Charts of the microscope: bars by layer, and maps of attention."""

from __future__ import annotations

import html
from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from nqlab.analysis.attention_maps import AttentionMaps
from nqlab.analysis.figures import GREY, colour, pattern
from nqlab.analysis.microscope import Look
from nqlab.words import _

VISIBLE = {" ": "␣", "\n": "↵", "\t": "⇥"}
# Colour goes with the root of a weight: most weights are small, and a scale fixed at 0 to 1 makes all maps comparable.
ROOTS = np.linspace(0, 1, 17)
SCALE = [[float(r * r), c] for r, c in zip(ROOTS, sample_colorscale("Viridis", ROOTS.tolist()))]


def layer_figure(measure: str, looks: Mapping[str, Look], arms: Mapping[str, str], height: int = 250) -> go.Figure:
    """One measure as bars, a group a layer and a bar a run; ``arms`` has each run's arm, for its colour and pattern.

    A run without f has no bar for a measure of f. ValueError for a measure that is not there.
    """
    figure = go.Figure([_bars(measure, label, one, arms[label]) for label, one in looks.items()])
    figure.update_layout(
        height=height + 20 * (len(looks) // 3), margin={"l": 40, "r": 8, "t": 8, "b": 30}, barmode="group", showlegend=True,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "font": {"size": 11}},
        uniformtext={"minsize": 8, "mode": "hide"},
    )  # fmt: skip
    levels = sorted({one.uniform for one in looks.values()}) if measure == "entropy" else []
    if levels:  # the numbers go into the bars, away from the line
        inside = {"color": "white", "shadow": "0 0 5px black, 0 0 4px black, 0 0 3px black, 0 0 2px black"}
        figure.update_traces(textposition="inside", insidetextanchor="middle", insidetextfont=inside)
    for level in levels:
        figure.add_hline(
            y=level, line={"dash": "dash", "color": GREY, "width": 1.5},
            annotation={"text": _("no preferences {entropy:.2f}").format(entropy=level), "font": {"size": 11, "color": GREY}},
        )  # fmt: skip
    numbers = [value for one in looks.values() for value in one.values(measure) if value is not None]
    low, high = min([0.0, *numbers]), max([0.0, *numbers, *levels]) or 1.0
    if not numbers:
        words = _("not defined: without an f")
        figure.add_annotation(text=words, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False, font={"color": GREY})
    room = 0.18 * (high - low)  # for the numbers at the ends of the bars
    figure.update_xaxes(type="category")
    figure.update_yaxes(range=[low - room if low < 0 else 0, high + room])
    return figure


def _bars(measure: str, label: str, one: Look, arm: str) -> go.Bar:
    return go.Bar(
        x=[_("layer {n}").format(n=layer.layer + 1) for layer in one.layers], y=one.values(measure), name=label,
        texttemplate="%{y:.3g}", textposition="outside", textangle=0, cliponaxis=False,
        marker={"color": colour(arm), "pattern": {"shape": pattern(arm), "fillmode": "overlay", "solidity": 0.2}},
        hovertemplate=f"{label}, %{{x}}: %{{y:.4f}}<extra></extra>",
    )  # fmt: skip


def map_figure(maps: AttentionMaps, layer: int, head: int, title: str = "", height: int = 360) -> go.Figure:
    """One head's map: a row looks, a column is looked at, the first position being 1. Later positions are left blank.

    The colours are those of :func:`scale_figure`, the same for every map of any model. With many characters the rows
    have room for some of their labels only; the hover names them all.
    """
    weights = maps.weights[layer, head]
    places = [f"{i + 1} '{_shown(c)}'" for i, c in enumerate(maps.text)]
    visible = np.tril(np.ones(weights.shape, dtype=bool))
    figure = go.Figure(
        go.Heatmap(
            x=places, y=places, z=np.where(visible, weights, np.nan), zmin=0, zmax=1, colorscale=SCALE, showscale=False,
            hoverongaps=False,
            hovertemplate=_("position {one} looks at position {other}").format(one="%{y}", other="%{x}") + ": %{z:.2f}<extra></extra>",
        )
    )  # fmt: skip
    title_spec = {"text": title, "font": {"size": 14}, "x": 0, "xref": "container"}
    figure.update_layout(height=height, margin={"l": 24, "r": 8, "t": 34, "b": 24}, title=title_spec)
    size = min(12, max(8, 270 // len(places)))  # px; the map is about 300 wide
    ticks = {"type": "category", "tickangle": 0, "ticks": "", "showgrid": False, "constrain": "domain"}
    ticks |= {"tickfont": {"size": size, "family": "monospace"}, "tickvals": places, "ticktext": [_shown(c) for c in maps.text]}
    figure.update_xaxes(**ticks, constraintoward="left")
    step = -(-len(places) * size // 300)
    ticks |= {"tickvals": places[::step], "ticktext": [_shown(c) for c in maps.text[::step]]}
    figure.update_yaxes(**ticks, autorange="reversed", scaleanchor="x", constraintoward="top")
    return figure


def scale_figure(height: int = 76) -> go.Figure:
    """The colours of all maps, from 0 to 1."""
    roots, marks = np.linspace(0, 1, 101), (0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.7, 1)
    strip = go.Heatmap(
        x=roots, y=[_("weight")], z=[(roots**2).tolist()], zmin=0, zmax=1, colorscale=SCALE, showscale=False, hoverinfo="skip"
    )
    figure = go.Figure(strip)
    figure.update_layout(height=height, margin={"l": 50, "r": 12, "t": 4, "b": 36})
    figure.update_xaxes(tickvals=[mark**0.5 for mark in marks], ticktext=[f"{mark:g}" for mark in marks], fixedrange=True)
    figure.update_yaxes(fixedrange=True, showgrid=False)
    return figure


def _shown(character: str) -> str:
    """A character on an axis: white space by a sign for it, and nothing that Plotly would take for a tag."""
    return html.escape(VISIBLE.get(character, character), quote=False)
