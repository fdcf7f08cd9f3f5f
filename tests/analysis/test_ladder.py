"""The ladder of sizes: the fit by hand, its uncertainty by simulation, and what it refuses."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from statistics import fmean, stdev

import numpy as np
import pytest
from scipy import stats

from nqlab.analysis.differences import difference
from nqlab.analysis.ladder import Ladder, Rung, fit_rows, ladder_figure, ladder_rows, ladders, slope_sentence
from nqlab.analysis.studies import Filled
from nqlab.runs.study import Study
from tests.analysis.made import result

WIDTHS = (32, 64, 128)
STUDY = Study.of(
    {"name": "sizes", "arms": ("linear", "nonlinear"), "grid": {"n_embd": WIDTHS, "learning_rate": (1e-3, 3e-3)}, "seeds": (0, 1, 2)}
)


def filled(gap: Callable[[int, int], float]) -> Filled:
    """A study in which the arm's gap at 3e-3, the better rate for both, is ``gap(width, seed)``; at 1e-3 it is -0.05."""
    results = []
    for width in WIDTHS:
        for seed in (0, 1, 2):
            base = 3 - 0.2 * math.log2(width) + 0.01 * seed
            results += [result("linear", seed, base, rate=3e-3, n_embd=width), result("linear", seed, base + 0.3, rate=1e-3, n_embd=width)]
            results += [
                result("nonlinear", seed, base + gap(width, seed), rate=3e-3, n_embd=width),
                result("nonlinear", seed, base + 0.25, rate=1e-3, n_embd=width),
            ]
    return Filled(STUDY, tuple(results), {})


def test_a_ladder_has_a_rung_for_every_size_at_both_budgets() -> None:
    tuned, same = ladders(filled(lambda width, seed: 0.01 * math.log2(width / 64) + 0.001 * seed))
    assert (tuned.budget, same.budget) == ("equal tuning", "same settings")
    assert [round(r.row["mean"], 12) for r in tuned.rungs] == [-0.009, 0.001, 0.011]
    assert [r.row["settings"]["training.learning_rate"] for r in tuned.rungs] == [3e-3] * 3
    assert [round(r.row["mean"], 12) for r in same.rungs] == [-0.05] * 3
    assert [r.row["settings"]["training.learning_rate"] for r in same.rungs] == [1e-3] * 3
    first = next(r for r in filled(lambda width, seed: 0).results if r.config.model.n_embd == 32)
    assert (tuned.rungs[0].parameters, tuned.rungs[0].flops) == (first.parameters, 1000 * first.step_flops)
    assert tuned.rungs[0].parameters < tuned.rungs[1].parameters < tuned.rungs[2].parameters
    assert len(ladder_rows([tuned, same])) == 6


def test_the_slope_is_the_mean_of_the_seeds_slopes_with_their_t_interval() -> None:
    (tuned, _same) = ladders(filled(lambda width, seed: (0.01 + 0.002 * seed) * math.log2(width) + 0.003 * (width == 64)))
    for against in ("parameters", "flops"):
        xs = np.log2([r.parameters if against == "parameters" else r.flops for r in tuned.rungs])
        slopes = [float(((xs - xs.mean()) * [r.gaps[s] for r in tuned.rungs]).sum() / ((xs - xs.mean()) ** 2).sum()) for s in (0, 1, 2)]
        fit = tuned.fit(against)
        assert fit.slope.mean == pytest.approx(fmean(slopes))
        half = stats.t.ppf(0.975, 2) * stdev(slopes) / math.sqrt(3)
        assert (fit.slope.low, fit.slope.high) == pytest.approx((fmean(slopes) - half, fmean(slopes) + half))
        assert fit.at(fit.x0).mean == pytest.approx(fmean(r.row["mean"] for r in tuned.rungs))
    assert [row["against"] for row in fit_rows([tuned])] == ["parameters", "flops"]


def test_where_nothing_changes_a_slope_is_found_in_one_case_of_twenty() -> None:
    """The interval's level, by simulation: rungs of a seed share an error, and have one of their own."""
    draw = random.Random(1)
    found = 0
    for _trial in range(1000):
        shared = [draw.gauss(0, 0.01) for _seed in range(4)]
        rungs = []
        for k in range(4):
            gaps = {seed: shared[seed] + draw.gauss(0, 0.01) for seed in range(4)}
            row = {"mean": fmean(gaps.values()), "low": None, "high": None, "size": str(k)}
            rungs.append(Rung(row, 1000 * 2**k, 1e9 * 2**k, gaps))
        found += Ladder("nonlinear", "linear", "equal tuning", tuple(rungs)).fit().slope.verdict != "inconclusive"
    assert 30 <= found <= 72  # 50 expected; three standard errors of the binomial


def test_sentences_say_what_was_found() -> None:
    rising, flat = (lambda w, s: 0.02 * math.log2(w) + 0.0001 * s), (lambda w, s: 0.01 * (-1) ** s * math.log2(w / 64))
    assert "against nonlinear" in slope_sentence(ladders(filled(rising))[0])
    assert "in favour of nonlinear" in slope_sentence(ladders(filled(lambda w, s: -rising(w, s) * (1 + 0.1 * s)))[0])
    assert "inconclusive" in slope_sentence(ladders(filled(flat))[0], "flops")
    assert "3 sizes, 3 seeds" in slope_sentence(ladders(filled(flat))[0])


def test_what_no_line_fits_says_so() -> None:
    tuned, _same = ladders(filled(lambda width, seed: 0.0))
    with pytest.raises(ValueError, match="at least 3"):
        Ladder(tuned.arm, tuned.baseline, tuned.budget, tuned.rungs[:2]).fit()
    lonely = tuple(Rung(r.row, r.parameters, r.flops, {k: 0.0}) for k, r in enumerate(tuned.rungs))
    with pytest.raises(ValueError, match="share 0 seeds"):
        Ladder(tuned.arm, tuned.baseline, tuned.budget, lonely).fit()
    assert fit_rows([Ladder(tuned.arm, tuned.baseline, tuned.budget, lonely)]) == []


def test_the_figure_holds_the_points_and_a_band_around_the_line() -> None:
    tuned, _same = ladders(filled(lambda width, seed: 0.01 * math.log2(width) + 0.001 * seed * (width - 64) / 64))
    figure = ladder_figure(tuned, "flops")
    band, line, points = figure.data
    assert list(points.x) == [r.flops for r in tuned.rungs]
    assert list(points.y) == [r.row["mean"] for r in tuned.rungs]
    fit = tuned.fit("flops")
    assert line.y[0] == pytest.approx(fit.at(tuned.rungs[0].flops).mean)
    assert band.y[0] == pytest.approx(difference([h + s * math.log2(tuned.rungs[0].flops / fit.x0) for h, s in fit.lines]).low)
    assert len(ladder_figure(Ladder(tuned.arm, tuned.baseline, tuned.budget, tuned.rungs[:2])).data) == 1
