"""Who is compared with whom, what is refused, and that choosing does not flatter."""

from __future__ import annotations

import json

import numpy as np
import pytest

from nqlab.analysis.bands import at_equal_cost, band
from nqlab.analysis.results import Result
from nqlab.analysis.sentences import sentence
from nqlab.analysis.verdict import SAME, TUNED, Row, by_field, verdicts
from tests.analysis.made import UNIGRAM, result


def pairs(gaps: list[float], arm: str = "nonlinear", **settings: object) -> list[Result]:
    found = []
    for seed, gap in enumerate(gaps):
        found += [result("linear", seed, 2.0 + seed / 10, **settings), result(arm, seed, 2.0 + seed / 10 + gap, **settings)]  # type: ignore[arg-type]
    return found


def only(rows: list[Row], budget: str = SAME) -> Row:
    (row,) = [r for r in rows if r["budget"] == budget]
    return row


def test_pairs_share_their_seed() -> None:
    row = only(verdicts(pairs([-0.05, -0.03, -0.04])))
    assert row["mean"] == pytest.approx(-0.04)
    assert row["n"] == 3
    assert row["verdict"] == "better"  # though the seeds themselves lie a tenth apart
    assert row["settings"] == {"training.learning_rate": 1e-3, "training.weight_decay": 0.1}
    assert row["survived"] == [3, 3, 3, 3]
    assert row["size"] == "tiny"
    assert row["losses"] == pytest.approx([2.06, 2.1])
    lonely = [*pairs([-0.05]), result("nonlinear", 7, 1.0), result("linear", 8, 9.0)]
    assert only(verdicts(lonely))["n"] == 1


def test_every_row_is_plain_json_without_nan() -> None:
    results = [
        *pairs([-0.05, -0.03]),
        *pairs([0.1, 0.1], rate=1e-2),
        result("identity", 0, 2.5),
        result("wide_mlp", 0, outcome="unfinished"),
    ]
    rows = verdicts(results)
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    keys = {"arm", "baseline", "budget", "mean", "low", "high", "n", "verdict", "parameters", "flops_percent", "seconds_ratio"}
    assert all(keys <= row.keys() for row in rows)
    assert all(sentence(row).endswith(".") for row in rows)


def test_what_moves_no_loss_does_not_part_a_pair() -> None:
    mixed = [result("linear", 0, 2.0, log_interval=10), result("nonlinear", 0, 1.9, sample_interval=0, eval_interval=7)]
    assert only(verdicts(mixed))["mean"] == pytest.approx(-0.1)


def test_more_than_the_declared_difference_is_refused_and_shown() -> None:
    (row,) = verdicts([result("linear", 0, 2.0), result("nonlinear", 0, 1.9, dropout=0.1)])
    assert row["verdict"] == "refused"
    assert row["mean"] is None
    assert "dropout 0 → 0.1" in row["reason"]
    assert "not ranked" in sentence(row)


def test_sizes_and_texts_are_never_mixed() -> None:
    rows = verdicts([*pairs([-0.1, -0.1]), *pairs([0.2, 0.2], n_layer=3), *pairs([0.5, 0.5], corpus="python-docs")])
    assert {row["size"]: row["mean"] for row in rows if row["budget"] == SAME} == {
        "tiny, corpus shakespeare": pytest.approx(-0.1),
        "3x64, 1000 steps, corpus shakespeare": pytest.approx(0.2),
        "tiny, corpus python-docs": pytest.approx(0.5),
    }


def test_runs_that_have_not_annealed_are_left_out_and_counted_or_refused() -> None:
    (row,) = verdicts([*pairs([]), result("linear", 0), result("nonlinear", 0, outcome="unfinished")])
    assert row["verdict"] == "refused"
    assert "annealed" in row["reason"]
    row = only(verdicts([*pairs([-0.1, -0.1]), result("nonlinear", 2, outcome="unfinished"), result("linear", 2)]))
    assert row["n"] == 2
    assert "1 run is not finished" in row["reason"]


def test_unequal_parameters_are_refused_unless_declared_or_the_arms_point() -> None:
    wide = [result("linear", s, 2.0 + s) for s in (0, 1)] + [result("nonlinear", s, 1.9 + s, bottleneck=64) for s in (0, 1)]
    (row,) = verdicts(wide)
    assert row["verdict"] == "refused"
    assert "+8,448 (+8.57 % of the blocks)" in row["reason"]
    row = only(verdicts(wide, declared=["model.bottleneck"]))
    assert row["settings"]["model.bottleneck"] == 64
    assert row["parameters"] == 8448
    for arm, extra in (("identity", -8192), ("wide_mlp", 12288), ("nonlinear", 256)):
        assert only(verdicts(pairs([-0.1, -0.2], arm)))["parameters"] == extra


def test_a_diverged_run_counts_and_nothing_is_dropped() -> None:
    results = [*pairs([-0.1, -0.1]), result("linear", 2, 2.0), result("nonlinear", 2, outcome="diverged")]
    row = only(verdicts(results))
    assert row["n"] == 3
    assert row["mean"] == pytest.approx((-0.1 - 0.1 + UNIGRAM - 2.0) / 3)
    assert row["survived"] == [2, 3, 3, 3]
    assert "2 of 3 runs learnt, of the baseline's 3 of 3" in sentence(row)


def test_a_diverged_baseline_counts_too_and_a_failed_run_is_no_gap_in_the_mean() -> None:
    results = [result("linear", s, 3.25, "did not learn") for s in (0, 1)] + [result("nonlinear", s, 2.25) for s in (0, 1)]
    row = only(verdicts(results))
    assert row["mean"] == pytest.approx(-1.0)
    assert row["survived"] == [2, 2, 0, 2]


def test_intervals_are_corrected_for_arms_and_settings_or_for_arms_alone_where_the_setting_was_fixed() -> None:
    results = [r for rate in (1e-3, 1e-2) for arm in ("nonlinear", "identity") for r in pairs([-0.1, -0.11, -0.12], arm, rate=rate)]
    assert {r["corrected_for"] for r in verdicts(results) if r["budget"] == SAME} == {4}
    assert {r["corrected_for"] for r in verdicts(results) if r["budget"] == TUNED} == {2}
    fixed = [r for r in verdicts(results, at={"training.learning_rate": 1e-2}) if r["budget"] == SAME]
    assert [(r["corrected_for"], r["settings"]["training.learning_rate"]) for r in fixed] == [(2, 1e-2)] * 2


def test_noise_inside_the_floor_is_marked() -> None:
    row = only(verdicts(pairs([-0.05, -0.03, -0.04])))
    assert row["noise_floor"] == pytest.approx(4.30265273 * 0.1 * (2 / 3) ** 0.5)
    assert row["inside_noise"]
    assert not only(verdicts(pairs([-0.5, -0.6, -0.55])))["inside_noise"]


def test_equal_tuning_takes_each_arms_best_chosen_on_one_half_and_judged_on_the_other() -> None:
    results = []
    for seed in (0, 1):
        results += [
            result("linear", seed, halves=(2.0, 2.5 + seed / 100), rate=1e-3),
            result("linear", seed, halves=(1.9, 2.6), rate=1e-2),  # better on the half that chooses
            result("nonlinear", seed, halves=(1.8, 2.4 + seed / 100), rate=1e-3),
            result("nonlinear", seed, halves=(2.1, 2.0), rate=1e-2),
        ]
    row = only(verdicts(results), TUNED)
    assert row["settings"]["training.learning_rate"] == 1e-3
    assert row["baseline_settings"]["training.learning_rate"] == 1e-2
    assert row["mean"] == pytest.approx((2.4 - 2.6 + 2.41 - 2.6) / 2)
    assert row["tried"] == [2, 2]
    assert "best of 2 settings (learning rate 0.001, weight decay 0.1; baseline learning rate 0.01, weight decay 0.1)" in sentence(row)


def test_equal_tuning_uses_only_what_both_have_tried_and_says_how_much() -> None:
    results = [r for rate in (1e-3, 1e-2) for r in pairs([0.0, 0.0], rate=rate)]
    results += [result("linear", s, halves=(0.1, 0.1), rate=0.5) for s in (0, 1)]  # tried by the baseline alone
    row = only(verdicts(results), TUNED)
    assert row["tried"] == [2, 2]
    assert row["losses"][1] > 1
    widths = [result("nonlinear", s, 1.9, rate=rate, bottleneck=r) for s in (0, 1) for rate in (1e-3, 1e-2) for r in (4, 8)]
    row = only(verdicts(results + widths, declared=["model.bottleneck"]), TUNED)
    assert row["tried"] == [6, 2]
    assert "best of 6 settings against the best of 2" in sentence(row)


def test_one_setting_is_no_tuning() -> None:
    assert [row["budget"] for row in verdicts(pairs([0.1, 0.2]))] == [SAME]


def test_choosing_does_not_flatter() -> None:
    """Eight settings, all equal in truth, for the arm; one of eight for the baseline too: the mean gap must be near 0."""
    rng = np.random.default_rng(11)
    fair, flattered = [], []
    for _ in range(100):
        halves = rng.normal(2.0, 0.1, (8, 3, 2))
        base = rng.normal(2.0, 0.1, (8, 3, 2))
        results = []
        for k in range(8):
            for seed in range(3):
                rate = 1e-3 * (k + 1)
                results.append(result("nonlinear", seed, halves=tuple(halves[k, seed]), rate=rate))
                results.append(result("linear", seed, halves=tuple(base[k, seed]), rate=rate))
        row = only(verdicts(results), TUNED)
        fair.append(row["losses"][0])
        flattered.append(min(halves[:, :, 1].mean(axis=1)))
    assert np.mean(fair) == pytest.approx(2.0, abs=0.02)
    assert np.mean(flattered) < 1.95


def test_the_values_of_a_setting_can_be_compared_with_everything_else_equal() -> None:
    results = [result("linear", s, 2.0 + s / 10) for s in (0, 1, 2)]
    results += [result("linear", s, 2.01 + s / 10 + s / 1000, dtype="bfloat16") for s in (0, 1, 2)]
    results += [result("linear", 5, 9.0, dtype="bfloat16"), result("linear", 0, 1.0, rate=1e-2)]
    (row,) = by_field(results, "training.dtype")
    assert (row["value"], row["against"], row["n"], row["verdict"]) == ("bfloat16", "float32", 3, "worse")
    assert row["mean"] == pytest.approx(0.011)
    assert by_field(results, "model.n_layer") == []


def test_the_cost_is_printed() -> None:
    results = [result("linear", s, 2.0, cpu_s=10.0) for s in (0, 1)] + [result("nonlinear", s, 1.9, cpu_s=11.0) for s in (0, 1)]
    assert only(verdicts(results))["seconds_ratio"] == pytest.approx(1.1)
    unmeasured = [result("linear", 0, 2.0, cpu_s=None), result("nonlinear", 0, 1.9)]
    assert only(verdicts(unmeasured))["seconds_ratio"] is None
    assert only(verdicts(pairs([0.1], "identity")))["flops_percent"] < 0


def test_a_band_keeps_a_diverged_run_to_the_end() -> None:
    found = band([result("linear", 0, 2.0), result("linear", 1, 2.2), result("linear", 2, outcome="diverged")])
    assert list(found.x) == [0, 1000]
    assert found.low[-1] == 2.0
    assert found.high[-1] == UNIGRAM
    assert found.mean[-1] == pytest.approx((2.0 + 2.2 + UNIGRAM) / 3)
    assert band([result("linear", 0)], "tokens").x[-1] == 1000 * 1024
    assert band([result("linear", 0), result("linear", 1, cpu_s=30.0)], "seconds").x[-1] == pytest.approx(20.0)
    with pytest.raises(ValueError, match="no validation curve"):
        band([])


def test_a_slower_arm_is_judged_where_the_faster_one_ends() -> None:
    slow = [result("nonlinear", s, 2.0, cpu_s=20.0) for s in (0, 1)]
    fast = [result("linear", s, 2.0, cpu_s=10.0) for s in (0, 1)]
    found = at_equal_cost(slow, fast, "seconds")
    assert found is not None
    assert found.surplus_percent == pytest.approx(100)
    assert found.mean == pytest.approx((4.2 + 2.0) / 2 - 2.0)  # half of its way from 4.2 to 2.0
    assert found.dearer == "nonlinear"
    assert at_equal_cost(fast, [result("linear", 0, 2.0, cpu_s=None)], "seconds") is None
    assert at_equal_cost([], fast, "flops") is None


# --- arms that have settings of their own


def refusals(rows: list[Row]) -> list[Row]:
    return [r for r in rows if r["verdict"] == "refused"]


def test_several_widths_of_the_baseline_are_several_comparisons() -> None:
    base = [result("nonlinear", s, 2.0 + width / 100, bottleneck=width) for s in (0, 1) for width in (4, 8)]
    arm = [result("linear", s, 2.5) for s in (0, 1)]
    rows = verdicts(base + arm, "nonlinear", declared=["model.bottleneck"])
    found = {r["baseline_settings"]["model.bottleneck"]: r["mean"] for r in rows if r["budget"] == SAME}
    assert found == {4: pytest.approx(0.46), 8: pytest.approx(0.42)}
    assert {r["corrected_for"] for r in rows} == {2}


def test_arms_that_both_have_a_width_are_paired_at_the_same_width() -> None:
    results = [
        result(arm, s, loss, bottleneck=w)
        for s in (0, 1)
        for w in (4, 8, 32)
        for arm, loss in (("nonlinear", 2.0 + w / 100), ("bottleneck_linear", 2.1))
    ]
    rows = verdicts(results, "bottleneck_linear", declared=["model.bottleneck"])
    same = {
        r["settings"].get("model.bottleneck"): (r["mean"], r["baseline_settings"].get("model.bottleneck"))
        for r in rows
        if r["budget"] == SAME
    }
    assert same == {None: (pytest.approx(0.22), None), 4: (pytest.approx(-0.06), 4), 8: (pytest.approx(-0.02), 8)}
    alone = [r for r in results if (r.arm, r.config.model.bottleneck) in (("nonlinear", 4), ("bottleneck_linear", 8))]
    (row,) = verdicts(alone, "bottleneck_linear", declared=["model.bottleneck"])
    assert row["verdict"] == "refused"
    assert "bottleneck 4" in row["reason"]
    assert "bottleneck 8" in row["reason"]


def test_where_keys_have_a_width_the_linear_arm_has_it_too_and_widths_are_not_mixed() -> None:
    results = [
        result(arm, s, loss, bottleneck=w, key="nonlinear")
        for s in (0, 1)
        for w in (8, 16)
        for arm, loss in (("linear", 2.0), ("nonlinear", 2.0 + w / 100))
    ]
    rows = [r for r in verdicts(results, declared=["model.bottleneck"]) if r["budget"] == SAME]
    assert {r["settings"]["model.bottleneck"]: r["mean"] for r in rows} == {8: pytest.approx(0.08), 16: pytest.approx(0.16)}
    assert all(r["baseline_settings"] == r["settings"] for r in rows)


def test_an_undeclared_width_spoils_only_itself() -> None:
    rows = verdicts([*pairs([-0.1, -0.1]), *(result("nonlinear", s, 1.0, bottleneck=64) for s in (0, 1))])
    assert [r["mean"] for r in rows if r["budget"] == SAME] == [pytest.approx(-0.1)]
    (row,) = refusals(rows)
    assert "nobody declared that" in row["reason"]


def test_a_wide_baseline_is_no_fair_partner_either() -> None:
    rows = verdicts([result("nonlinear", 0, 2.0, bottleneck=64), result("linear", 0, 2.0)], "nonlinear")
    assert [r["verdict"] for r in rows] == ["refused"]


def test_every_arm_of_every_size_has_a_row_with_the_right_reason() -> None:
    missing = [*pairs([-0.1, -0.1]), result("nonlinear", 0, 2.0, n_layer=3)]
    (row,) = refusals(verdicts(missing))
    assert "n_layer 2 → 3" in row["reason"]
    (row,) = verdicts([result("linear", 0, outcome="unfinished"), result("nonlinear", 0, 2.0)])
    assert "none of the baseline's runs has made all its steps" in row["reason"]
    (row,) = verdicts([result("linear", 0, 2.0), result("nonlinear", 1, 2.0)])
    assert "its seeds are 1, the baseline's 0" in row["reason"]
    (row,) = verdicts([result("nonlinear", 1, 2.0)])
    assert "no run of the baseline" in row["reason"]
    (row,) = verdicts(pairs([-0.1]), at={"training.learning_rate": 0.5})
    assert "no pair at learning rate 0.5; it has pairs at learning rate 0.001" in row["reason"]


def test_a_tuned_field_may_hold_words() -> None:
    results = [r for dtype in ("float32", "bfloat16") for r in pairs([-0.1, -0.12], dtype=dtype)]
    rows = verdicts(results, tuned=["training.dtype"])
    assert "best of 2 settings (dtype bfloat16; baseline dtype bfloat16)" in sentence(rows[0])
    assert [r["settings"]["training.dtype"] for r in rows] == ["bfloat16", "bfloat16", "float32"]


def test_at_equal_cost_a_diverged_run_counts() -> None:
    slow = [result("nonlinear", 0, 2.0, cpu_s=20.0), result("nonlinear", 1, outcome="diverged", cpu_s=6.24)]
    fast = [result("linear", s, 2.0, cpu_s=10.0) for s in (0, 1)]
    found = at_equal_cost(slow, fast, "seconds")
    assert found is not None
    assert found.n == 2
    assert found.mean == pytest.approx(((4.2 + 2.0) / 2 + UNIGRAM) / 2 - 2.0)
    assert at_equal_cost(slow, [result("linear", s, outcome="unfinished") for s in (0, 1)], "flops") is None
