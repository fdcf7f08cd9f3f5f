"""Statistics of paired differences: how large, how sure, and what it would take to know.

A difference is the arm's final loss minus the baseline's, of two runs that share everything but the arm; below zero
the arm is better. Over n pairs: the mean, its t-interval, the smallest difference that n pairs could have shown.
Source: Student's t for paired samples and its power by the noncentral t distribution (Cohen 1988, chapter 2). When
several differences are looked at together, each interval is widened (Bonferroni: level 1 - alpha/m), so that the
chance of *any* false verdict among them stays at alpha.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, stdev
from typing import Literal

from scipy import optimize, stats

ALPHA = 0.05
POWER = 0.8
MOST_SEEDS = 1000

Word = Literal["better", "worse", "inconclusive"]


@dataclass(frozen=True)
class Difference:
    """A mean paired difference, nats per character.

    ``low`` and ``high`` bound its interval, ``detectable`` is the smallest true difference that so many pairs find
    with probability 0.8, given their spread; None from one pair, which shows no spread. ``more_seeds`` would settle a
    difference as large as ``mean`` (0: settled; None: more than a thousand, or nothing to go by).
    """

    n: int
    mean: float
    sd: float | None
    low: float | None
    high: float | None
    p: float | None
    detectable: float | None
    more_seeds: int | None
    verdict: Word
    corrected_for: int


def difference(values: Sequence[float], comparisons: int = 1) -> Difference:
    """The difference that pairs show; ``comparisons``: how many are looked at together. ValueError without a pair."""
    if not values:
        raise ValueError("there is no pair to take a difference of")
    if not all(map(math.isfinite, values)):
        raise ValueError(f"differences {list(values)} are not all finite; a diverged run must be counted before")
    n, mean = len(values), fmean(values)
    if n == 1:
        return Difference(1, mean, None, None, None, None, None, None, "inconclusive", comparisons)
    alpha, sd = ALPHA / comparisons, stdev(values)
    half = float(stats.t.isf(alpha / 2, n - 1)) * sd / math.sqrt(n)
    low, high = mean - half, mean + half
    verdict: Word = "better" if high < 0 else "worse" if low > 0 else "inconclusive"
    p = _p_value(mean, sd, n)
    needed = 0 if verdict != "inconclusive" else more_seeds(mean, sd, n, alpha)
    return Difference(n, mean, sd, low, high, p, detectable(sd, n, alpha), needed, verdict, comparisons)


def _p_value(mean: float, sd: float, n: int) -> float:
    """Two-sided, of one comparison on its own."""
    if sd == 0:
        return 0.0 if mean else 1.0
    return float(2 * stats.t.sf(abs(mean) * math.sqrt(n) / sd, n - 1))


def detectable(sd: float, n: int, alpha: float = ALPHA) -> float:
    """The true difference that ``n`` pairs of this spread find with probability 0.8."""
    return _effect(n, alpha) * sd / math.sqrt(n)


@lru_cache(maxsize=4096)
def _effect(n: int, alpha: float) -> float:
    """The noncentrality at which a two-sided t-test of ``n`` pairs has power 0.8."""
    return float(optimize.brentq(lambda nc: power(nc, n, alpha) - POWER, 0, 1e4))


def power(noncentrality: float, n: int, alpha: float = ALPHA) -> float:
    """The probability that ``n`` pairs show a difference whose mean is ``noncentrality`` standard errors from zero."""
    critical = stats.t.isf(alpha / 2, n - 1)
    # the far tail is left out: it is below alpha/2, and where it counts scipy's noncentral t loses its digits
    return float(stats.nct.sf(critical, n - 1, noncentrality)) if noncentrality else alpha / 2


def more_seeds(mean: float, sd: float, n: int, alpha: float = ALPHA) -> int | None:
    """How many more pairs would find a true difference of ``mean``, with probability 0.8; None beyond a thousand."""
    if sd == 0 or mean == 0:
        return None
    enough = next((k for k in range(max(2, n), MOST_SEEDS + 1) if detectable(sd, k, alpha) <= abs(mean)), None)
    return None if enough is None else max(1, enough - n)


def noise_floor(losses: Sequence[float]) -> float | None:
    """How far two means of n runs of the *same* arm, with other seeds, lie apart at most, in 95 of 100 cases.

    t(0.975, n-1) s sqrt(2/n), with s the baseline's own spread over seeds; None from one run.
    """
    n = len(losses)
    return float(stats.t.isf(ALPHA / 2, n - 1)) * stdev(losses) * math.sqrt(2 / n) if n > 1 else None
