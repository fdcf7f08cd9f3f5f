"""Validation curves over seeds as mean and band, and what a curve had reached at an equal cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

import numpy as np

from nqlab.analysis.curves import Array
from nqlab.analysis.results import Result

Axis = Literal["step", "tokens", "seconds", "flops"]


@dataclass(frozen=True)
class Band:
    """Curves of runs that differ in their seed alone: ``x``, and the mean, least and greatest loss there, nats."""

    x: Array
    mean: Array
    low: Array
    high: Array


def band(results: Sequence[Result], axis: Axis = "step") -> Band:
    """The band of some runs. ``seconds`` is steps times the median processor time of a step.

    A run that diverged stays in the band to the end, at the loss it counts with. ValueError without a curve.
    """
    longest = max(results, key=lambda r: len(r.steps), default=None)
    if longest is None or not longest.steps:
        raise ValueError("there is no validation curve to draw")
    steps = np.asarray(longest.steps, dtype=np.float64)
    rows = np.array([np.interp(steps, r.steps, r.losses, right=_after(r)) for r in results if r.steps])
    unit = 1.0 if axis == "step" else cost_of_a_step(results, axis)
    return Band(steps * unit, rows.mean(axis=0), rows.min(axis=0), rows.max(axis=0))


def _after(result: Result) -> float:
    """The loss that stands for a run behind its last evaluation."""
    counted = result.counted_loss
    return result.losses[-1] if counted is None else counted


def cost_of_a_step(results: Sequence[Result], axis: Axis) -> float:
    """What one update costs: 1 step, its characters, median processor seconds (NaN if unmeasured), or matrix FLOPs."""
    first = results[0]
    if axis == "seconds":
        times = [r.step_s for r in results if r.step_s is not None]
        return median(times) if times else float("nan")
    tokens = float(first.config.training.batch_size * first.config.model.block_size)
    return {"step": 1.0, "tokens": tokens, "flops": first.step_flops}[axis]


@dataclass(frozen=True)
class EqualCost:
    """Arm against baseline where the cheaper of the two ends.

    ``surplus_percent`` is what the arm's training costs more. ``mean`` is the mean paired difference at that cost. The
    dearer of the two is caught before its learning rate has come down, so the number is a bound in its disfavour:
    a difference that survives it survives the cost; one that does not is open.
    """

    axis: Axis
    surplus_percent: float
    mean: float
    n: int
    dearer: str


def at_equal_cost(arm: Sequence[Result], baseline: Sequence[Result], axis: Axis) -> EqualCost | None:
    """Paired by seed; None where the axis was not measured or no pair has ended.

    A run that diverged stays in the mean, at the loss it counts with.
    """
    ended = [[r for r in runs if r.outcome != "unfinished"] for runs in (arm, baseline)]
    pairs = [(a, b) for a in ended[0] for b in ended[1] if a.config.seed == b.config.seed]
    if not pairs:
        return None
    unit_a, unit_b = cost_of_a_step([a for a, _ in pairs], axis), cost_of_a_step([b for _, b in pairs], axis)
    if not unit_a > 0 or not unit_b > 0:
        return None
    first_a, first_b = pairs[0]
    whole_a, whole_b = (r.config.training.steps * unit for r, unit in ((first_a, unit_a), (first_b, unit_b)))
    end = min(whole_a, whole_b)  # not where a diverged run broke off
    gaps = [_at(a, end / unit_a) - _at(b, end / unit_b) for a, b in pairs]
    surplus = 100 * (whole_a / whole_b - 1)
    return EqualCost(axis, surplus, fmean(gaps), len(gaps), first_a.arm if surplus > 0 else first_b.arm)


def _at(result: Result, step: float) -> float:
    """The curve at a step, linear between evaluations; behind its end, what the run counts with."""
    return float(np.interp(step, result.steps, result.losses, right=_after(result)))
