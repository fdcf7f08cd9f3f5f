"""Predictions scored against what a race and its verdict say."""

from __future__ import annotations

import pytest

from nqlab.analysis.prediction import Outcome, outcome, over_seeds, score
from nqlab.runs.predictions import Prediction
from tests.analysis.made import UNIGRAM, result


def test_the_outcome_is_the_lowest_and_how_far_the_next_is() -> None:
    found = outcome({"a": result(loss=2.0), "b": result("nonlinear", loss=1.9), "c": result("identity", loss=2.2)})
    assert found == Outcome("b", pytest.approx(0.1))
    assert outcome({"a": result(loss=2.0)}) == Outcome("a", 0.0)


def test_there_is_none_before_the_end_and_a_diverged_run_loses() -> None:
    assert outcome({"a": result(loss=2.0), "b": result("nonlinear", outcome="unfinished")}) is None
    assert outcome({}) is None
    assert outcome({"a": result(loss=2.0), "b": result("nonlinear", outcome="diverged")}) == Outcome("a", pytest.approx(UNIGRAM - 2.0))


def test_the_right_winner_comes_first_then_the_nearest() -> None:
    said = [Prediction("a", 0.0, "wrong, near"), Prediction("b", 0.5, "right, far"), Prediction("b", 0.08, "right, near")]
    scored = score([*said, Prediction("a", 0.3, "wrong, far")], Outcome("b", 0.1))
    assert [(s.prediction.name, s.right) for s in scored] == [
        ("right, near", True), ("right, far", True), ("wrong, near", False), ("wrong, far", False),
    ]  # fmt: skip
    assert [s.missed_by for s in scored] == pytest.approx([0.02, 0.4, 0.1, 0.4])


def test_the_verdict_counts_other_seeds_of_the_same_settings_once() -> None:
    race = [result(loss=2.0), result("nonlinear", loss=1.9)]
    (alone,) = over_seeds(race, [])
    assert "single pair" in alone
    others = [result(a, seed, loss) for seed in (0, 1, 2) for a, loss in (("linear", 2.0 + seed / 1000), ("nonlinear", 1.9))]
    others += [result(a, 5, loss, rate=3e-3) for a, loss in (("linear", 1.0), ("nonlinear", 3.0))]
    (said,) = over_seeds(race, others)
    assert "3 paired seeds" in said
    assert "0.1010 nats better" in said
