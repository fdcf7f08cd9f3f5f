"""Figures that pages and notebooks share. One colour and one dash pattern per arm, everywhere.

The colours are those of Okabe and Ito, which people with colour-blindness tell apart; the dash says the same again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from nqlab import presets
from nqlab.analysis.curves import Curve, decimate, numbers, smooth

_STYLES = {
    "linear": ("#0072B2", "solid"),
    "nonlinear": ("#D55E00", "dash"),
    "identity": ("#009E73", "dot"),
    "residual_linear": ("#CC79A7", "dashdot"),
    "bottleneck_linear": ("#E69F00", "longdash"),
    "wide_mlp": ("#56B4E9", "longdashdot"),
    "reduced_mlp": ("#8C8C8C", "5px,2px"),
}
AXES = {"step": "optimiser step", "tokens": "characters seen", "elapsed_s": "seconds of training (the run's own)"}


def colour(arm: str) -> str:
    """The arm's colour; black for one that has none yet."""
    return _STYLES.get(arm, ("#666666", "solid"))[0]


def dash(arm: str) -> str:
    """The arm's dash pattern."""
    return _STYLES.get(arm, ("#666666", "solid"))[1]


@dataclass(frozen=True)
class Line:
    """One run on a chart. ``faint`` is for a run laid behind a race to compare with."""

    id: str
    label: str
    arm: str
    curve: Curve
    faint: bool = False


def loss_figure(
    lines: Sequence[Line],
    *,
    x: str = "step",
    show: Sequence[str] = ("train", "val"),
    log_y: bool = False,
    smoothing: float = 0.0,
    references: Mapping[str, float] | None = None,
    height: int = 460,
    revision: str = "",
) -> go.Figure:
    """Training and validation loss of several runs in one chart.

    Args:
        lines: The runs.
        x: ``step``, ``tokens`` or ``elapsed_s``.
        show: ``train``, ``val`` or both.
        log_y: A logarithmic loss axis.
        smoothing: Factor of the moving average on training losses, 0 to below 1; the raw curve stays, faint.
        references: Named losses to draw as faint level lines (ln V, unigram and bigram entropy).
        height: In pixels.
        revision: Zoom and hidden traces are kept between two figures with the same one.
    """
    figure = go.Figure()
    for line in lines:
        if "train" in show:
            _add_train(figure, line, x, smoothing)
        if "val" in show:
            _add_val(figure, line, x)
    for name, value in (references or {}).items():
        figure.add_hline(
            y=value, line={"color": "rgba(128,128,128,0.6)", "width": 1, "dash": "dot"},
            annotation={"text": f"{name} {value:.2f}", "font": {"size": 11, "color": "rgba(128,128,128,1)"}},
            annotation_position="top right",
        )  # fmt: skip
    figure.update_layout(
        height=height,
        margin={"l": 56, "r": 12, "t": 12, "b": 48},
        hovermode="x unified",
        legend={"orientation": "h", "y": -0.2, "yanchor": "top"},
        uirevision=revision,
        xaxis={"title": {"text": AXES[x]}, "rangemode": "tozero", "uirevision": f"{revision}-{x}"},
        yaxis={
            "title": {"text": "loss (nats per character)"},
            "type": "log" if log_y else "linear",
            "uirevision": f"{revision}-{log_y}",
            **({"range": _empty_range(references)} if not lines or not any(line.curve.val["step"] for line in lines) else {}),
        },
    )
    if not lines:
        figure.update_xaxes(range=[0, 1000])
    return figure


def _empty_range(references: Mapping[str, float] | None) -> list[float]:
    return [1.5, max((references or {"": 4.2}).values()) + 0.3]


def _add_train(figure: go.Figure, line: Line, x: str, smoothing: float) -> None:
    xs, ys = numbers(line.curve.train[x]), numbers(line.curve.train["loss"])
    base = {"color": colour(line.arm), "dash": dash(line.arm)}
    hover = f"%{{y:.4f}}<extra>{line.label} · train</extra>"
    common = {"legendgroup": line.id, "mode": "lines", "hovertemplate": hover}
    if smoothing > 0:
        px, py = decimate(xs, ys)
        figure.add_scatter(
            x=px.tolist(), y=py.round(5).tolist(), uid=f"{line.id}-raw", showlegend=False, opacity=0.2, hoverinfo="skip",
            line={**base, "dash": "solid", "width": 1}, legendgroup=line.id, mode="lines",
        )  # fmt: skip
    px, py = decimate(xs, smooth(ys, smoothing))
    figure.add_scatter(
        x=px.tolist(), y=py.round(5).tolist(), uid=f"{line.id}-train", name=f"{line.label} · train",
        opacity=0.3 if line.faint else 0.65, line={**base, "width": 1}, **common,
    )  # fmt: skip


def _add_val(figure: go.Figure, line: Line, x: str) -> None:
    xs, ys = numbers(line.curve.val[x]), numbers(line.curve.val["val_loss"])
    px, py = decimate(xs, ys)
    figure.add_scatter(
        x=px.tolist(), y=py.round(5).tolist(), uid=f"{line.id}-val", name=f"{line.label} · validation", legendgroup=line.id,
        mode="lines+markers" if len(px) <= 60 else "lines", opacity=0.45 if line.faint else 1.0, marker={"size": 5},
        line={"color": colour(line.arm), "dash": dash(line.arm), "width": 1.5 if line.faint else 2.5},
        hovertemplate=f"%{{y:.4f}}<extra>{line.label} · validation</extra>",
    )  # fmt: skip


def title_of(arm: str) -> str:
    """What people read for an arm."""
    return presets.ARMS.get(arm, arm)
