"""The statistics: by hand, and by simulation with known truth."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from nqlab.analysis.differences import detectable, difference, more_seeds, noise_floor, power


def test_by_hand() -> None:
    found = difference([-0.053, -0.032, -0.040])  # nonlinear - linear of a study at learning rate 1e-3
    assert found.mean == pytest.approx(-0.0416666667)
    assert found.sd == pytest.approx(0.0105987420)  # sqrt(((-.011333)^2 + .009667^2 + .001667^2) / 2)
    half = 4.30265273 * 0.0105987420 / math.sqrt(3)  # t(0.975, 2) from the tables
    assert (found.low, found.high) == pytest.approx((-0.0416666667 - half, -0.0416666667 + half))
    assert found.verdict == "better"
    assert found.more_seeds == 0
    assert found.p == pytest.approx(2 * stats.t.sf(0.0416666667 / (0.0105987420 / math.sqrt(3)), 2))


def test_a_correction_widens_and_can_unsettle() -> None:
    values = [-0.053, -0.032, -0.040]
    five = difference(values, comparisons=5)
    assert five.corrected_for == 5
    assert five.verdict == "inconclusive"
    assert five.low is not None
    assert five.high is not None
    assert five.high - five.mean == pytest.approx(stats.t.isf(0.005, 2) * 0.0105987420 / math.sqrt(3))
    assert five.more_seeds is not None
    assert five.more_seeds > 0


def test_one_pair_shows_no_spread() -> None:
    found = difference([-0.5])
    assert (found.n, found.verdict, found.low, found.p, found.detectable, found.more_seeds) == (1, "inconclusive", None, None, None, None)


@pytest.mark.parametrize(("values", "verdict"), [([0.0, 0.0], "inconclusive"), ([0.1, 0.1, 0.1], "worse"), ([-0.1, -0.1], "better")])
def test_differences_without_spread_do_not_break(values: list[float], verdict: str) -> None:
    found = difference(values)
    assert found.verdict == verdict
    assert found.detectable == 0


@pytest.mark.parametrize("values", [[], [math.nan, 1.0], [math.inf]])
def test_what_is_no_difference_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"pair|finite"):
        difference(values)


@pytest.mark.parametrize("n", [3, 5])
def test_equal_arms_are_called_different_in_five_percent_of_trials(n: int) -> None:
    draws = np.random.default_rng(n).normal(0.0, 0.01, (1000, n))
    called = sum(difference(list(row)).verdict != "inconclusive" for row in draws)
    low, high = stats.binom.interval(0.999, 1000, 0.05)  # a fair procedure lands outside once in a thousand seeds
    assert low <= called <= high


def test_with_five_arms_any_false_verdict_comes_in_five_percent_of_trials() -> None:
    draws = np.random.default_rng(7).normal(0.0, 0.01, (1000, 5, 5))
    called = sum(any(difference(list(arm), 5).verdict != "inconclusive" for arm in trial) for trial in draws)
    uncorrected = sum(any(difference(list(arm)).verdict != "inconclusive" for arm in trial) for trial in draws)
    low, high = stats.binom.interval(0.999, 1000, 0.05)
    assert called <= high
    assert called >= low / 2  # Bonferroni is a little stricter than it must be
    assert uncorrected > 150


def test_a_gap_of_two_noise_floors_is_found_in_most_trials() -> None:
    """Baseline and arm over five seeds, a part of the noise shared by a seed's pair; the gap is twice the floor."""
    rng = np.random.default_rng(3)
    found, shown = 0, 0
    for _ in range(1000):
        shared = rng.normal(0, 0.007, 5)
        baseline = 2.0 + shared + rng.normal(0, 0.007, 5)
        floor = noise_floor(list(baseline))
        assert floor is not None
        arm = 2.0 + shared + rng.normal(0, 0.007, 5) - 2 * noise_of(0.0099, 5)
        verdict = difference(list(arm - baseline)).verdict
        found += verdict == "better"
        shown += abs(float(np.mean(arm - baseline))) > floor
    assert found > 900
    assert shown > 800


def noise_of(sd: float, n: int) -> float:
    """The noise floor that a true spread of ``sd`` has."""
    return float(stats.t.isf(0.025, n - 1)) * sd * math.sqrt(2 / n)


def test_the_noise_floor_holds_two_means_of_one_arm_in_most_cases() -> None:
    rng = np.random.default_rng(5)
    inside = 0
    for _ in range(1000):
        first, second = rng.normal(2.0, 0.01, (2, 5))
        floor = noise_floor(list(first))
        assert floor is not None
        inside += abs(first.mean() - second.mean()) < floor
    assert 930 <= inside <= 980  # 95 % with one sample's spread
    assert noise_floor([2.0]) is None


@pytest.mark.parametrize(("n", "alpha"), [(3, 0.05), (5, 0.05), (5, 0.01)])
def test_the_detectable_difference_is_detected_in_four_of_five_trials(n: int, alpha: float) -> None:
    sd = 0.01
    gap = detectable(sd, n, alpha)
    draws = np.random.default_rng(n).normal(gap, sd, (4000, n))
    t = draws.mean(axis=1) / (draws.std(axis=1, ddof=1) / math.sqrt(n))
    share = float(np.mean(np.abs(t) > stats.t.isf(alpha / 2, n - 1)))
    assert share == pytest.approx(0.8, abs=0.025)
    assert power(0, n, alpha) == pytest.approx(alpha / 2)


def test_more_seeds_fewer_for_larger_gaps_and_none_for_hopeless_ones() -> None:
    needed = [more_seeds(gap, 0.01, 3) for gap in (0.002, 0.005, 0.01, 0.02)]
    assert all(a is not None and b is not None and a > b for a, b in pairwise(needed))
    assert more_seeds(0.00001, 0.01, 3) is None
    assert more_seeds(0.0, 0.01, 3) is None
    seeds = needed[2]
    assert seeds is not None
    assert detectable(0.01, 3 + seeds) <= 0.01 < detectable(0.01, 3 + seeds - 1)
