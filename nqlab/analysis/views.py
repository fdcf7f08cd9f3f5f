"""Charts of comparisons: paired differences, and slices of a study. One colour and one sign per arm, as everywhere."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from nqlab.analysis.curves import Array
from nqlab.analysis.figures import GREY, colour, dash, short_of, title_of
from nqlab.analysis.sentences import verdict_word
from nqlab.analysis.stability import AXES, Cell, axis_title
from nqlab.words import _, several

SYMBOLS = {
    "linear": "circle", "nonlinear": "diamond", "identity": "square", "residual_linear": "triangle-up",
    "bottleneck_linear": "triangle-down", "wide_mlp": "pentagon", "reduced_mlp": "hexagon",
}  # fmt: skip
LABEL_WIDTH = 24  # characters
MARGIN = {"l": 60, "r": 10, "t": 20, "b": 50}


def _symbol(arm: str) -> str:
    return SYMBOLS.get(arm, "circle-open")


def _faded(hex_colour: str, opacity: float) -> str:
    red, green, blue = (int(hex_colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity})"


def legend_words() -> str:
    """What the marks of :func:`difference_figure` mean."""
    return _(
        "Bar: the interval; its level, named below, holds 95 % for all comparisons together. Grey band: the noise floor, how far "
        "two means of the baseline lie apart with other seeds; a hollow grey mark lies inside it. Pairs share their batches, so "
        "their difference can be settled inside the band."
    )


def difference_figure(rows: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> go.Figure:
    """Mean paired differences with their intervals, a line a row; left of zero is better than the baseline.

    The noise floor is a grey bar behind each; a difference inside it is drawn grey and hollow. Rows without a number
    (refused) are left out.
    """
    folded = ["<br>".join(textwrap.wrap(label, LABEL_WIDTH)) for label in labels]  # a phone has no room for more beside a chart
    shown = [(row, label) for row, label in zip(rows, folded) if row["mean"] is not None]
    figure = go.Figure()
    for row, label in shown:
        floor = row.get("noise_floor")
        if floor is not None:
            figure.add_trace(
                go.Scatter(
                    x=[-floor, floor], y=[label, label], mode="lines", line={"color": "rgba(128,128,128,0.25)", "width": 14},
                    hoverinfo="skip", showlegend=False,
                )
            )  # fmt: skip
    for row, label in shown:
        figure.add_trace(_difference(row, label))
    figure.add_vline(x=0, line={"color": GREY, "width": 1})
    height = 110 + sum(16 + 16 * (1 + label.count("<br>")) for _row, label in shown)
    figure.update_layout(height=height, margin={"l": 10, "r": 10, "t": 10, "b": 65}, showlegend=False)
    title = "<br>".join(textwrap.wrap(_("difference in nats per character (left: better)"), LABEL_WIDTH))
    figure.update_xaxes(title={"text": title, "font": {"size": 12}})
    figure.update_yaxes(autorange="reversed", type="category", automargin=True)
    return figure


def _difference(row: Mapping[str, Any], label: str) -> go.Scatter:
    tint = GREY if row["inside_noise"] else colour(row["arm"])
    mean, low, high = row["mean"], row["low"], row["high"]
    error: dict[str, Any] = {"visible": False}
    if low is not None:
        error = {"type": "data", "symmetric": False, "array": [high - mean], "arrayminus": [mean - low], "color": tint, "thickness": 2}
    interval = _("no interval from one pair") if low is None else _("{low} to {high}").format(low=f"{low:+.4f}", high=f"{high:+.4f}")
    pairs = several("{n} pair: {verdict}", "{n} pairs: {verdict}", row["n"]).format(n=row["n"], verdict=verdict_word(row["verdict"]))
    return go.Scatter(
        x=[mean], y=[label], mode="markers", error_x=error, name=label,
        marker={"color": tint, "size": 10, "symbol": _symbol(row["arm"]) + ("-open" if row["inside_noise"] else "")},
        hovertemplate=f"{mean:+.4f} ({interval})<br>{pairs}<extra></extra>",
    )  # fmt: skip


def band_figure(
    bands: Mapping[str, tuple[Array, Array, Array, Array]],
    x_title: str,
    log_x: bool = False,
    references: Mapping[str, float] | None = None,
) -> go.Figure:
    """Validation curves as mean and band (least to greatest over seeds): arm -> x, mean, low, high.

    ``references`` are named losses; those within the range that is shown are drawn as faint level lines.
    """
    figure = go.Figure()
    for arm, (x, mean, low, high) in bands.items():
        xs = np.concatenate([x, x[::-1]])
        figure.add_trace(
            go.Scatter(
                x=xs, y=np.concatenate([high, low[::-1]]), fill="toself", fillcolor=_faded(colour(arm), 0.18),
                line={"width": 0}, hoverinfo="skip", showlegend=False, legendgroup=arm,
            )
        )  # fmt: skip
        line = {"color": colour(arm), "dash": dash(arm)}
        figure.add_trace(go.Scatter(x=x, y=mean, name=title_of(arm), legendgroup=arm, line=line))
    figure.update_layout(height=380, margin=MARGIN, legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"}, hovermode="x unified")
    figure.update_xaxes(title_text=x_title, type="log" if log_x else "linear")
    shown = _end_of(bands)
    figure.update_yaxes(title_text=_("validation loss (nats per character)"), range=shown)
    for name, value in (references or {}).items():
        if shown and shown[0] < value < shown[1]:
            figure.add_hline(
                y=value, line={"color": GREY, "width": 1, "dash": "dot"},
                annotation={"text": f"{name} {value:.2f}", "font": {"size": 11, "color": GREY}},
            )  # fmt: skip
    return figure


def _end_of(bands: Mapping[str, tuple[Array, Array, Array, Array]]) -> list[float] | None:
    """The range in which curves differ: from the least loss to the greatest after a fifth of the way."""
    if not bands:
        return None
    low = min(float(low.min()) for _x, _mean, low, _high in bands.values())
    high = max(float(high[len(high) // 5 :].max()) for _x, _mean, _low, high in bands.values())
    return [low - 0.05 * (high - low), high + 0.05 * (high - low)]


def slice_figure(found: Sequence[Cell], arms: Sequence[str], axis: str = "learning_rate") -> go.Figure:
    """Final loss against one setting, the best over the others: mean over seeds with least and greatest."""
    figure = go.Figure()
    for arm in arms:
        best: dict[float, Cell] = {}
        for cell in found:
            value = cell.value(axis)
            if cell.arm == arm and (value not in best or cell.mean < best[value].mean):
                best[value] = cell
        values = sorted(best)
        if not values:
            continue
        means = [best[v].mean for v in values]
        losses = [[r.counted_loss or math.nan for r in best[v].results] for v in values]
        figure.add_trace(
            go.Scatter(
                x=values, y=means, name=title_of(arm), mode="lines+markers",
                line={"color": colour(arm), "dash": dash(arm)}, marker={"symbol": _symbol(arm), "size": 8},
                error_y={
                    "type": "data", "symmetric": False, "thickness": 1,
                    "array": [max(z) - m for z, m in zip(losses, means)], "arrayminus": [m - min(z) for z, m in zip(losses, means)],
                },
                customdata=[best[v].words for v in values], hovertemplate="%{y:.4f}, %{customdata}",
            )
        )  # fmt: skip
    figure.update_layout(height=380, margin=MARGIN, legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"}, hovermode="x unified")
    figure.update_xaxes(title_text=axis_title(axis), type="log", **_ticks([cell.value(axis) for cell in found]))
    figure.update_yaxes(title_text=_("final validation loss (nats per character)"))
    return figure


def contour_figure(found: Sequence[Cell], arm: str, y: str = "weight_decay") -> go.Figure:
    """Mean final loss of one arm over learning rate and another setting, as a contour with its points."""
    mine = [cell for cell in found if cell.arm == arm]
    xs, ys = (sorted({cell.value(axis) for cell in mine}) for axis in ("learning_rate", y))
    z: list[list[float | None]] = [[_mean_at(mine, a, y, b) for a in xs] for b in ys]
    figure = go.Figure(go.Contour(x=xs, y=ys, z=z, colorscale="Viridis", reversescale=True, colorbar={"title": {"text": _("loss")}}))
    points = {"color": "#808080", "size": 6, "symbol": "x"}
    figure.add_trace(
        go.Scatter(
            x=[c.value("learning_rate") for c in mine], y=[c.value(y) for c in mine], mode="markers", marker=points,
            text=[f"{c.mean:.4f}, {c.words}" for c in mine], hoverinfo="text", showlegend=False,
        )
    )  # fmt: skip
    figure.update_layout(height=380, margin=MARGIN)
    figure.update_xaxes(title_text=axis_title("learning_rate"), type="log", **_ticks(xs))
    figure.update_yaxes(title_text=axis_title(y), type="log" if min(ys) > 0 else "linear")
    return figure


def _ticks(values: Iterable[float]) -> dict[str, Any]:
    """Ticks at the values that were tried, written as people write them."""
    tried = sorted({value for value in values if value})
    return {"tickvals": tried, "ticktext": [f"{value:g}" for value in tried]}


def _mean_at(found: Sequence[Cell], rate: float, axis: str, value: float) -> float | None:
    return next((c.mean for c in found if c.value("learning_rate") == rate and c.value(axis) == value), None)


def parallel_figure(found: Sequence[Cell], arms: Sequence[str]) -> go.Figure:
    """Every setting as a line through its values, to its loss and to the share of its seeds that learnt."""
    mine = [cell for cell in found if cell.arm in arms]
    dimensions: list[dict[str, Any]] = [
        {
            "label": _("variant"), "values": [arms.index(c.arm) for c in mine],
            "tickvals": list(range(len(arms))), "ticktext": [short_of(a) for a in arms],
        }
    ]  # fmt: skip
    for axis in AXES:
        values = sorted({c.value(axis) for c in mine})
        if len(values) > 1:
            places = [values.index(c.value(axis)) for c in mine]
            names = [f"{v:g}" if v or axis != "bottleneck" else _("none") for v in values]
            dimensions.append({"label": axis_title(axis), "values": places, "tickvals": list(range(len(values))), "ticktext": names})
    dimensions.append({"label": _("share that learnt"), "values": [c.survived / c.n for c in mine], "range": [0, 1]})
    dimensions.append({"label": _("mean final loss"), "values": [c.mean for c in mine]})
    line = {"color": [c.mean for c in mine], "colorscale": "Viridis", "reversescale": True}
    figure = go.Figure(go.Parcoords(dimensions=dimensions, line=line))
    figure.update_layout(height=420, margin={"l": 120, "r": 60, "t": 50, "b": 30})
    return figure
