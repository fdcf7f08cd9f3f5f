"""A ladder of sizes: the paired difference at each size, and how it changes with parameters or compute.

A rung is one size of a study whose grid runs over widths or depths. Every rung is judged as any comparison is: at the
same settings, or at equal tuning, the learning rate chosen anew for each size and arm.

The fit is a line, difference = a + b log2(x / x0), x being the baseline's learned numbers or the matrix FLOPs of its
training, x0 the geometric mean over rungs. It is drawn through each seed's differences on its own; the slope b and the
line's height are means over seeds with t-intervals, because seeds are what is drawn anew: the rungs of one seed share
batches and windows, so their errors are not independent. Source: summary measures of repeated measurements (Matthews,
Altman, Campbell, Royston 1990, BMJ 300:230). The interval holds for sizes on this ladder; beyond its ends the line is a guess, and
whether a line is the right curve is not tested by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go

from nqlab.analysis.comparison import at_both_budgets
from nqlab.analysis.curves import Array
from nqlab.analysis.differences import Difference, difference
from nqlab.analysis.figures import GREY, colour, title_of
from nqlab.analysis.studies import Filled
from nqlab.analysis.verdict import SAME, TUNED, Row, sizes
from nqlab.words import _

Against = Literal["parameters", "flops"]
LEAST = 3  # rungs, below which a line fits anything


@dataclass(frozen=True)
class Rung:
    """One size: its verdict, and what the baseline costs there.

    ``parameters`` are learned numbers, ``flops`` the matrix FLOPs of a whole training; ``gaps`` the paired differences
    by seed, nats per character.
    """

    row: Row
    parameters: int
    flops: float
    gaps: dict[int, float]


@dataclass(frozen=True)
class Fit:
    """The line of each seed, and their mean.

    ``slope`` is nats per doubling of ``against``; below zero, larger sizes favour the arm. ``seeds`` are those that
    every rung has. ``lines`` holds (height at x0, slope) of each.
    """

    against: Against
    x0: float
    seeds: tuple[int, ...]
    lines: tuple[tuple[float, float], ...]
    slope: Difference

    def at(self, x: float) -> Difference:
        """The line's height at a size."""
        return difference([height + slope * math.log2(x / self.x0) for height, slope in self.lines])


@dataclass(frozen=True)
class Ladder:
    """The rungs of one arm, from small to large, at one budget."""

    arm: str
    baseline: str
    budget: str
    rungs: tuple[Rung, ...]

    def fit(self, against: Against = "parameters") -> Fit:
        """The line through the rungs. ValueError for fewer than three rungs, or where no two seeds have all of them."""
        if len(self.rungs) < LEAST:
            raise ValueError(f"a line through {len(self.rungs)} sizes says nothing; a ladder needs at least {LEAST}")
        shared = sorted(set.intersection(*(set(rung.gaps) for rung in self.rungs)))
        if len(shared) < 2:
            raise ValueError(f"the sizes share {len(shared)} seeds; a fit with its uncertainty needs at least 2 in every size")
        logs = np.log2([_cost(rung, against) for rung in self.rungs])
        centre = float(logs.mean())
        lines = []
        for seed in shared:
            slope, height = np.polyfit(logs - centre, [rung.gaps[seed] for rung in self.rungs], 1)
            lines.append((float(height), float(slope)))
        return Fit(against, 2**centre, tuple(shared), tuple(lines), difference([slope for _height, slope in lines]))


def _cost(rung: Rung, against: Against) -> float:
    return float(rung.parameters) if against == "parameters" else rung.flops


def ladders(filled: Filled, arm: str | None = None) -> list[Ladder]:
    """The ladders of a study at equal tuning and at the presets' usual settings; rungs without a pair are left out.

    Args:
        filled: A study of several sizes.
        arm: Its arm, the first that is not the baseline by default. ValueError for one that it does not have.
    """
    baseline = filled.study.baseline
    arm = arm or next((other for other in filled.study.arms if other != baseline), None)
    if arm is None:
        return []
    found: dict[str, list[Rung]] = {TUNED: [], SAME: []}
    members = sizes(r for r in filled.results if r.arm in (baseline, arm))
    for size, rows in at_both_budgets(filled, [arm]).items():
        base = next(r for r in members[size] if r.arm == baseline)
        for row in rows:
            gaps = dict(zip(row["seeds"], row["differences"]))
            found[row["budget"]].append(Rung(row, base.parameters, base.step_flops * base.config.training.steps, gaps))
    return [
        Ladder(arm, baseline, budget, tuple(sorted(rungs, key=lambda rung: rung.parameters))) for budget, rungs in found.items() if rungs
    ]


# --- for people


def slope_sentence(ladder: Ladder, against: Against = "parameters") -> str:
    """How the difference changes with size, in words. ValueError as :meth:`Ladder.fit`."""
    fit = ladder.fit(against)
    slope, factor = fit.slope, _("parameters") if against == "parameters" else _("training FLOPs")
    numbers = {
        "slope": f"{slope.mean:+.4f}", "low": f"{slope.low:+.4f}", "high": f"{slope.high:+.4f}",
        "factor": factor, "n": slope.n, "sizes": len(ladder.rungs), "arm": title_of(ladder.arm),
    }  # fmt: skip
    text = {
        "better": _("Every doubling of {factor} moves the difference in favour of {arm}: {slope} nats (95 % interval {low} to {high}, "
                    "{sizes} sizes, {n} seeds)."),
        "worse": _("Every doubling of {factor} moves the difference against {arm}: {slope} nats (95 % interval {low} to {high}, "
                   "{sizes} sizes, {n} seeds)."),
        "inconclusive": _("Whether the difference changes with {factor} is inconclusive: {slope} nats a doubling (95 % interval {low} to "
                          "{high}, {sizes} sizes, {n} seeds)."),
    }[slope.verdict]  # fmt: skip
    return text.format(**numbers)


def ladder_rows(found: Sequence[Ladder]) -> list[dict[str, Any]]:
    """A row a rung: size, costs, losses, difference with its interval, the settings chosen."""
    keys = ("size", "budget", "arm", "baseline", "mean", "low", "high", "n", "verdict", "settings", "baseline_settings", "losses")
    return [
        {key: rung.row[key] for key in keys} | {"baseline_parameters": rung.parameters, "baseline_flops": rung.flops}
        for ladder in found
        for rung in ladder.rungs
    ]


def fit_rows(found: Sequence[Ladder]) -> list[dict[str, Any]]:
    """A row a budget and axis: the slope in nats per doubling, with its interval. A ladder that no line fits has none."""
    rows = []
    for ladder in found:
        for against in ("parameters", "flops"):
            try:
                fit = ladder.fit(against)
            except ValueError:
                continue
            slope = fit.slope
            rows.append({
                "arm": ladder.arm, "baseline": ladder.baseline, "budget": ladder.budget, "against": against, "slope": slope.mean,
                "low": slope.low, "high": slope.high, "n": slope.n, "sizes": len(ladder.rungs), "verdict": slope.verdict,
            })  # fmt: skip
    return rows


def ladder_figure(ladder: Ladder, against: Against = "parameters", height: int = 340) -> go.Figure:
    """The difference at each size with its interval, and the fitted line with its band (both 95 %, at each size on its own)."""
    figure, tint = go.Figure(), colour(ladder.arm)
    xs = [_cost(rung, against) for rung in ladder.rungs]
    if len(ladder.rungs) >= LEAST:
        for trace in _line(ladder.fit(against), np.geomspace(min(xs), max(xs), 41), tint):
            figure.add_trace(trace)
    rows = [rung.row for rung in ladder.rungs]
    low, high = ([row[side] if row[side] is not None else row["mean"] for row in rows] for side in ("low", "high"))
    figure.add_trace(
        go.Scatter(
            x=xs, y=[row["mean"] for row in rows], mode="markers", name=title_of(ladder.arm), text=[row["size"] for row in rows],
            marker={"color": tint, "size": 10, "symbol": "diamond"}, hovertemplate="%{text}: %{y:+.4f}<extra></extra>",
            error_y={
                "type": "data", "symmetric": False, "thickness": 2, "array": [h - row["mean"] for h, row in zip(high, rows)],
                "arrayminus": [row["mean"] - v for v, row in zip(low, rows)],
            },
        )
    )  # fmt: skip
    figure.add_hline(y=0, line={"color": GREY, "width": 1})
    title = _("learned parameters of the baseline") if against == "parameters" else _("matrix FLOPs of the baseline's training")
    figure.update_xaxes(title_text=title, type="log", tickvals=xs, ticktext=[_short(x) for x in xs])
    figure.update_yaxes(title_text=_("difference in nats per character (below: better)").replace(" (", "<br>("))
    figure.update_layout(height=height, margin={"l": 60, "r": 10, "t": 10, "b": 50}, showlegend=False)
    return figure


def _short(number: float) -> str:
    """A number of an axis: 107k, 1.6e+14."""
    return f"{number:.1e}" if number >= 1e9 else f"{number / 1e6:.1f}M" if number >= 1e6 else f"{number / 1e3:.0f}k"


def _line(fit: Fit, xs: Array, tint: str) -> list[go.Scatter]:
    """The band, and the line in it."""
    heights = [fit.at(float(x)) for x in xs]
    around = [*[h.low for h in heights], *[h.high for h in reversed(heights)]]
    band = go.Scatter(
        x=np.concatenate([xs, xs[::-1]]), y=around, fill="toself", fillcolor="rgba(128,128,128,0.2)", line={"width": 0}, hoverinfo="skip"
    )
    line = go.Scatter(x=xs, y=[h.mean for h in heights], mode="lines", line={"color": tint, "dash": "dash"}, hoverinfo="skip")
    return [band, line]
