"""Figures that pages and notebooks share. One colour, one dash and one fill pattern per arm, everywhere.

The colours are those of Okabe and Ito, which people with colour-blindness tell apart; dash and fill say the same again.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from nqlab import presets
from nqlab.analysis.curves import Array, Curve, decimate, numbers, smooth
from nqlab.config import RunConfig, difference_line
from nqlab.words import _

_STYLES = {
    "linear": ("#0072B2", "solid", ""),
    "nonlinear": ("#D55E00", "dash", "/"),
    "identity": ("#009E73", "dot", "."),
    "residual_linear": ("#CC79A7", "dashdot", "x"),
    "bottleneck_linear": ("#E69F00", "longdash", "-"),
    "routed": ("#7B3FA0", "10px,3px", "\\"),
    "wide_mlp": ("#56B4E9", "longdashdot", "|"),
    "reduced_mlp": ("#8C8C8C", "5px,2px", "+"),
}
_PLAIN = ("#666666", "solid", "\\")
GREY = "#808080"
Spec = dict[str, Any]
AXES = ("step", "tokens", "elapsed_s")


def axis_title(x: str) -> str:
    """What people read at the axis ``x``, one of :data:`AXES`."""
    return {
        "step": _("optimiser step"),
        "tokens": _("characters seen"),
        "elapsed_s": _("seconds of training (the run's own)"),
    }[x]


def colour(arm: str) -> str:
    """The arm's colour; black for one that has none yet."""
    return _STYLES.get(arm, _PLAIN)[0]


def dash(arm: str) -> str:
    """The arm's dash pattern."""
    return _STYLES.get(arm, _PLAIN)[1]


def pattern(arm: str) -> str:
    """The arm's fill pattern, for bars."""
    return _STYLES.get(arm, _PLAIN)[2]


@dataclass(frozen=True)
class Line:
    """One run on a chart. ``faint`` is for a run laid behind a race to compare with.

    ``id`` must be safe in CSS (letters, digits, ``-`` and ``_`` only): plotly puts a trace's uid into a selector.
    """

    id: str
    label: str
    arm: str
    curve: Curve
    faint: bool = False


def loss_spec(
    lines: Sequence[Line],
    *,
    x: str = "step",
    show: Sequence[str] = ("train", "val"),
    log_y: bool = False,
    close: bool = False,
    smoothing: float = 0.0,
    references: Mapping[str, float] | None = None,
    height: int = 460,
    revision: str = "",
) -> Spec:
    """Training and validation loss of several runs in one chart, as plain data in Plotly's own form.

    Args:
        lines: The runs.
        x: ``step``, ``tokens`` or ``elapsed_s``.
        show: ``train``, ``val`` or both.
        log_y: A logarithmic loss axis.
        close: The loss axis shows what the curves do after the first fifth of the way, where they differ, and no more.
        smoothing: Factor of the moving average on training losses, 0 to below 1; the raw curve stays, faint.
        references: Named losses to draw as faint level lines, such as :func:`reference_lines`.
        height: In pixels.
        revision: Zoom and hidden traces are kept between two figures with the same one.
    """
    data: list[Spec] = []
    for line in lines:
        if "train" in show:
            data += _train_traces(line, x, smoothing, in_legend="val" not in show)
        if "val" in show:
            data.append(_val_trace(line, x))
    levels = references or {}
    x_axis: Spec = {"title": {"text": axis_title(x)}, "rangemode": "tozero", "uirevision": f"{revision}-{x}"}
    y_axis: Spec = {
        "title": {"text": _("loss (nats per character)")},
        "type": "log" if log_y else "linear",
        "uirevision": f"{revision}-{log_y}-{close}",
    }
    shown: tuple[float, float] | None
    if not any(trace["x"] for trace in data):  # what will appear: empty axes of the right size
        low = min([1.5, *(value - 0.1 for value in levels.values() if value > 0.3)])
        shown = low, max([4.2, *levels.values()]) + 0.3
        x_axis["range"] = [0, 1000]
    else:
        shown = _late(data) if close else None
    if shown is not None:
        y_axis["range"] = [math.log10(value) for value in shown] if log_y else list(shown)
    layout = {
        "height": height,
        "margin": {"l": 56, "r": 12, "t": 12, "b": 48},
        "hovermode": "x unified",
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "uirevision": revision,
        "xaxis": x_axis,
        "yaxis": y_axis,
        "shapes": [_level(value) for value in levels.values()],
        "annotations": [_level_name(name, value, log_y) for name, value in levels.items()],
    }
    return {"data": data, "layout": layout}


def _late(data: Sequence[Spec]) -> tuple[float, float]:
    """From the least to the greatest loss after a fifth of the longest curve, with a margin."""
    start = max(max(trace["x"]) for trace in data if trace["x"]) / 5
    late = [y for trace in data for x, y in zip(trace["x"], trace["y"]) if x >= start]
    margin = 0.05 * (max(late) - min(late)) or 0.05
    return max(min(late) - margin, 1e-3), max(late) + margin


def loss_figure(lines: Sequence[Line], **options: Any) -> go.Figure:
    """:func:`loss_spec` as a figure, for notebooks and files."""
    return go.Figure(loss_spec(lines, **options))


def reference_lines(levels: Mapping[str, float]) -> dict[str, float]:
    """A corpus's levels (:attr:`nqlab.corpus.Corpus.levels`), or a run's ``entropies``, by the names they have on charts."""
    names = {
        "uniform": _("ln V"), "unigram": _("unigram entropy"), "bigram": _("bigram entropy"), "rate": _("entropy rate"),
    }  # fmt: skip
    return {names[key]: value for key, value in levels.items()}


def as_message(spec: Spec) -> str:
    """A figure of x-y traces as JSON for Plotly, with the numbers in Plotly's binary form: a third fewer bytes, and no digits to write."""
    data = [trace | {axis: _packed(trace[axis]) for axis in ("x", "y")} for trace in spec["data"]]
    return json.dumps(spec | {"data": data}, separators=(",", ":"))


def _packed(values: list[float]) -> Spec | list[float]:
    """Numbers as base64 in the smallest type that holds them: whole ones exactly, others to 7 digits."""
    if not values:
        return values
    array = numbers(values)
    whole = bool((array == np.floor(array)).all())
    kind = "u2" if whole and array.min() >= 0 and array.max() < 2**16 else "i4" if whole and abs(array).max() < 2**31 else "f4"
    return {"dtype": kind, "bdata": base64.b64encode(array.astype(f"<{kind}").tobytes()).decode("ascii")}


def _level(value: float) -> Spec:
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": value, "y1": value, "line": {"color": GREY, "width": 1, "dash": "dot"}}


def _level_name(name: str, value: float, log_y: bool) -> Spec:
    place = {"xref": "paper", "x": 1, "xanchor": "right", "y": math.log10(value) if log_y else value, "yanchor": "bottom"}
    return place | {"text": f"{name} {value:.2f}", "showarrow": False, "font": {"size": 11, "color": GREY}}


def _trace(run: Line, part: str, xs: Array, ys: Array, look: Spec) -> Spec:
    px, py = decimate(xs, ys)
    base = {"type": "scatter", "mode": "lines", "x": px.tolist(), "y": py.round(5).tolist(), "uid": f"{run.id}-{part}"}
    return base | {"name": run.label, "legendgroup": run.id} | look


def _train_traces(run: Line, x: str, smoothing: float, in_legend: bool) -> list[Spec]:
    xs, ys = numbers(run.curve.train[x]), numbers(run.curve.train["loss"])
    style: Spec = {"color": colour(run.arm), "width": 1}
    look: Spec = {"showlegend": in_legend, "opacity": 0.3 if run.faint else 0.65, "line": style | {"dash": dash(run.arm)}}
    look["hovertemplate"] = "%{y:.4f}<extra>" + run.label + " · " + _("training") + "</extra>"
    traces = [_trace(run, "train", xs, smooth(ys, smoothing), look)]
    if smoothing > 0:
        traces.insert(0, _trace(run, "raw", xs, ys, {"line": style, "showlegend": False, "opacity": 0.2, "hoverinfo": "skip"}))
    return traces


def _val_trace(run: Line, x: str) -> Spec:
    xs, ys = numbers(run.curve.val[x]), numbers(run.curve.val["val_loss"])
    style: Spec = {"color": colour(run.arm), "dash": dash(run.arm), "width": 1.5 if run.faint else 2.5}
    look: Spec = {"mode": "lines+markers" if len(xs) <= 60 else "lines", "marker": {"size": 5}, "line": style}
    look |= {"opacity": 0.45 if run.faint else 1.0, "hovertemplate": "%{y:.4f}<extra>" + run.label + " · " + _("validation") + "</extra>"}
    return _trace(run, "val", xs, ys, look)


def short_of(arm: str) -> str:
    """The same in a word or two, where there is little room."""
    short = {
        "linear": _("linear"), "nonlinear": _("nonlinear"), "identity": _("identity"), "residual_linear": _("residual linear"),
        "bottleneck_linear": _("bottleneck linear"), "wide_mlp": _("wide mlp"), "reduced_mlp": _("reduced mlp"),
    }  # fmt: skip
    return short.get(arm, arm.replace("_", " "))


def title_of(arm: str) -> str:
    """What people read for an arm."""
    return _(presets.ARMS.get(arm, arm))


def labels(configs: Sequence[RunConfig]) -> list[str]:
    """A short word for each run of a race: its arm; where an arm stands twice, what sets the run apart too. No two are alike."""
    arms = [presets.arm_of(config) for config in configs]
    first = {arm: configs[arms.index(arm)] for arm in arms}
    words = [title_of(a) if c is first[a] else f"{title_of(a)} ({difference_line(first[a], c)})" for a, c in zip(arms, configs)]
    return [
        word if words.count(word) == 1 else _("{name}, no. {n}").format(name=word, n=words[: i + 1].count(word))
        for i, word in enumerate(words)
    ]


def error_figure(errors: Mapping[str, float], epsilon: float, height: int = 220) -> go.Figure:
    """Relative errors as bars on a log axis, with the spacing of numbers near 1 as a line: rounding, or wrong."""
    names, values = list(errors), [max(value, epsilon / 10) for value in errors.values()]
    wrong, marks = [value > math.sqrt(epsilon) for value in values], {True: _("✗ wrong"), False: _("✓ rounding")}
    figure = go.Figure(
        go.Bar(
            x=values, y=names, orientation="h",
            text=[f"{v:.0e} {marks[w]}" for v, w in zip(errors.values(), wrong)], textposition="outside",
            cliponaxis=False,
            marker={"color": ["#D55E00" if w else "#0072B2" for w in wrong], "pattern": {"shape": ["/" if w else "" for w in wrong]}},
        )
    )  # fmt: skip
    figure.add_vline(x=epsilon, line={"dash": "dot", "color": GREY})
    figure.update_layout(
        height=height, margin={"l": 8, "r": 8, "t": 28, "b": 40}, title={"text": _("relative error of the outputs"), "font": {"size": 14}}
    )
    low, high = math.log10(epsilon) - 1, max(0.0, math.log10(max(values)))
    figure.update_xaxes(type="log", range=[low, high + 0.3 * (high - low)], exponentformat="power")  # room for the last words
    return figure
