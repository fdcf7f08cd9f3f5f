"""Medians, spreads and ratios of readings; the loss beside them."""

from __future__ import annotations

from typing import Any

import pytest

from nqlab import presets
from nqlab.analysis import latency, studies
from nqlab.analysis.figures import as_message, colour
from nqlab.analysis.studies import Filled
from nqlab.config import replace
from nqlab.model.budget import flops_per_token
from nqlab.runs.study import Study
from tests.analysis.made import result

CONTEXTS = (8, 64)


def begin(*arms: str, repeats: int = 5, val_loss: float | None = None) -> dict[str, Any]:
    configs = [presets.arm(presets.tiny(), arm) for arm in arms]
    subjects = [
        {
            "variant": arm,
            "arm": arm,
            "vocabulary": 65,
            "parameters": 1000,
            "config": c.resolved().model_dump(mode="json"),
            "val_loss": val_loss,
        }
        for arm, c in zip(arms, configs)
    ]
    return {
        "type": "begin", "step": 0, "subjects": subjects, "contexts": [64, 8], "repeats": repeats, "threads": 1, "device": "cpu",
        "machine": "abacus", "torch": "0",
    }  # fmt: skip


def reading(variant: str, context: int, kind: str, repeat: int, seconds: float, busy: bool = False) -> dict[str, Any]:
    where = {"variant": variant, "context": context, "kind": kind, "repeat": repeat, "busy": busy}
    return {"type": "reading", "step": repeat, "seconds": seconds, **where}


def whole() -> list[dict[str, Any]]:
    """Five repeats in which the machine slows down by ten from one to the next, and nonlinear always takes 1.5 times as long."""
    return [begin("linear", "nonlinear")] + [
        reading(variant, context, kind, repeat, factor * context * 10.0**repeat)
        for repeat in range(5)
        for context in CONTEXTS
        for kind in latency.KINDS
        for variant, factor in (("linear", 1.0), ("nonlinear", 1.5))
    ]


def row_of(rows: list[latency.Row], variant: str, context: int) -> latency.Row:
    (row,) = [r for r in rows if (r["variant"], r["context"]) == (variant, context)]
    return row


def test_a_time_is_the_median_with_its_quartiles_and_a_ratio_is_taken_within_a_repeat() -> None:
    rows = latency.summary(whole())
    assert [(r["context"], r["variant"]) for r in rows] == [(8, "linear"), (8, "nonlinear"), (64, "linear"), (64, "nonlinear")]
    row = row_of(rows, "nonlinear", 8)
    assert (row["token_low_s"], row["token_s"], row["token_high_s"]) == pytest.approx((120.0, 1200.0, 12000.0))
    for kind in latency.KINDS:
        assert [row[f"{kind}_ratio{end}"] for end in ("_low", "", "_high")] == pytest.approx([1.5] * 3), "drift is no spread of the ratio"
        assert row_of(rows, "linear", 64)[f"{kind}_ratio"] == 1.0
    assert row["repeats"] == 5


def test_the_ratio_spreads_as_its_repeats_do() -> None:
    records = [begin("linear", "identity")]
    for repeat, (a, b) in enumerate([(1.0, 2.0), (1.0, 1.0), (2.0, 1.0), (1.0, 3.0), (4.0, 1.0)]):
        records += [reading("linear", 8, "token", repeat, a), reading("identity", 8, "token", repeat, b)]
    row = row_of(latency.summary(records), "identity", 8)
    assert [row[f"token_ratio{end}"] for end in ("_low", "", "_high")] == [0.5, 1.0, 2.0]
    assert row["token_s"] == 1.0


def test_what_has_not_come_yet_is_none_and_a_dash() -> None:
    records = whole()[:2]  # one reading of linear
    rows = latency.summary(records)
    assert row_of(rows, "linear", 8)["prefill_s"] == 8.0
    assert row_of(rows, "nonlinear", 8)["prefill_s"] is None
    assert row_of(rows, "nonlinear", 8)["repeats"] == 0
    assert latency.table(rows)[3]["per token, ms"] == "–"
    assert [len(trace["x"]) for trace in latency.ratio_spec(rows)["data"]] == [0, 0]
    assert latency.progress(records) == (1, 40)
    assert latency.summary([]) == []
    assert latency.progress([]) == (0, 0)
    assert latency.circumstances([]) == ""


def test_flops_are_those_of_a_token_that_looks_so_far_back() -> None:
    rows = latency.summary(whole())
    model = presets.tiny().model
    assert row_of(rows, "linear", 64)["flops"] == flops_per_token(model, 65)
    assert row_of(rows, "linear", 64)["flops"] - row_of(rows, "linear", 8)["flops"] == model.n_layer * 4 * (64 - 8) * model.n_embd


def test_people_read_milliseconds_with_three_digits_and_the_spread() -> None:
    table = latency.table(latency.summary(whole()))
    assert table[1]["context"] == "8"
    assert table[1]["ratio per token"] == "1.50 (1.50–1.50)"
    assert latency._digits(0.1604) == "0.160"
    assert latency._digits(123.4) == "123"


def test_repeats_beside_a_training_are_counted() -> None:
    records = [begin("linear"), *(reading("linear", 8, "token", k, 1.0, busy=k in (1, 3)) for k in (0, 1, 1, 2, 3))]
    assert latency.disturbed(records) == 2


def test_the_chart_has_a_trace_a_variant_with_its_spread_and_can_be_sent() -> None:
    records = whole()
    records[-1]["seconds"] *= 4  # nonlinear at 64, prefill or token, in the last repeat
    spec = latency.ratio_spec(latency.summary(records))
    linear, nonlinear = spec["data"]
    assert nonlinear["line"]["color"] == colour("nonlinear")
    assert nonlinear["y"] == pytest.approx([1.5, 1.5])
    assert all(low >= 0 for trace in spec["data"] for low in trace["error_y"]["array"] + trace["error_y"]["arrayminus"])
    assert [round(x) for x in linear["x"]] == [8, 63]  # a little to the left
    assert "linear (baseline)" in spec["layout"]["yaxis"]["title"]["text"]
    assert as_message(spec)
    assert "prefill" in latency.ratio_spec(latency.summary(records), "prefill")["layout"]["yaxis"]["title"]["text"]


# --- the loss


def filled(*results: Any) -> Filled:
    return Filled(Study(name="made"), tuple(results), {})


def test_the_loss_is_the_best_settings_mean_told_from_the_other_half() -> None:
    runs = [result(seed=seed, rate=rate, halves=(even, even + 0.5)) for rate, even in ((1e-3, 2.0), (1e-2, 1.8)) for seed in range(3)]
    lucky = result(rate=3e-2, halves=(1.0, 1.5))  # one seed is no mean
    other = result(halves=(0.5, 0.5), steps=5000)  # another length of training is another question
    wanted = presets.arm(presets.tiny(), "linear")
    found = latency.known_loss(wanted, [filled(*runs, lucky), filled(other)])
    assert found["val_loss"] == pytest.approx(2.3)
    assert found["val_loss_at"] == "learning rate 0.01, weight decay 0.1, 3 seeds, best of 2"
    assert latency.known_loss(wanted, [filled(lucky)])["val_loss"] == pytest.approx(1.5)
    assert latency.known_loss(replace(wanted, {"n_layer": 3}), [filled(*runs)]) == {"val_loss": None, "val_loss_at": None}


def test_the_reference_study_knows_the_tiny_size_and_a_run_knows_itself() -> None:
    records = [begin("linear", "reduced_mlp")]
    losses = latency.losses_of(records, studies.shipped())
    assert 1.8 < losses["linear"]["val_loss"] < 2.1
    assert losses["reduced_mlp"]["val_loss"] is None
    own = [begin("linear", val_loss=2.5)]
    assert latency.losses_of(own, studies.shipped())["linear"] == {"val_loss": 2.5, "val_loss_at": "the run's own"}
    rows = latency.summary([*records, *whole()[1:]], losses)
    assert latency.table(rows)[1]["val. loss"] == "–"
    assert latency.losses_of([], []) == {}
