"""The shipped study and what is said of it: recomputed by hand from the table, and from the command."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from nqlab.config import TrainingConfig

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "data" / "reference" / "tiny-rates.parquet"


@cache
def compared(*options: str) -> list[dict[str, object]]:
    line = [sys.executable, "-m", "nqlab", "compare", "data/reference", *options, "--json"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=True)
    return json.loads(done.stdout)


def losses(query: str, rate: float) -> dict[int, float]:
    """Final validation loss by seed, straight from the table; the usual MLP width only."""
    found = {}
    for row in pd.read_parquet(TABLE).to_dict("records"):
        config = json.loads(row["config"])
        if config["model"]["query"] == query and config["training"]["learning_rate"] == rate and config["model"]["ffn_hidden"] == 256:
            found[config["seed"]] = row["val_loss"]
    return found


def test_one_verdict_recomputed_by_hand_and_as_the_readme_tells_it() -> None:
    linear, nonlinear = losses("linear", 1e-3), losses("nonlinear", 1e-3)
    assert sorted(linear) == sorted(nonlinear) == [0, 1, 2, 3, 4]
    gaps = [nonlinear[seed] - linear[seed] for seed in range(5)]
    mean = sum(gaps) / 5
    sd = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / 4)
    half = 4.6040948 * sd / math.sqrt(5)  # t(0.995, 4) from the tables: 95 % for one of five comparisons is 99 %
    (row,) = [
        r for r in compared("--at", "learning_rate=1e-3")
        if (r["study"], r["arm"], r["budget"]) == ("tiny-rates", "nonlinear", "same settings")
    ]  # fmt: skip
    assert row["mean"] == pytest.approx(mean, abs=1e-12)
    assert row["low"] == pytest.approx(mean - half, abs=1e-7)
    assert row["high"] == pytest.approx(mean + half, abs=1e-7)
    assert (row["n"], row["verdict"], row["corrected_for"]) == (5, "better", 5)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"{-mean:.4f} nats" in readme
    assert f"{-row['high']:.4f} to {-row['low']:.4f}, 5 paired seeds" in readme


def test_both_verdicts_are_printed_for_each_study_with_what_they_rest_on() -> None:
    rows = compared()
    several = {"tiny-rates", "tiny-decay", "tiny-width", "small-rates"} & {row["study"] for row in rows}
    assert "tiny-rates" in several
    for study in several:
        ranked = [row for row in rows if row["study"] == study and row["verdict"] != "refused"]
        assert {row["budget"] for row in ranked} == {"same settings", "equal tuning"}
        for row in ranked:
            assert row["n"] >= 1
            assert "training.learning_rate" in row["settings"]
            assert {"low", "high", "noise_floor", "detectable", "parameters", "flops_percent", "seconds_ratio"} <= row.keys()


def test_the_readme_tells_equal_tuning_and_stability_as_the_table_has_them() -> None:
    (row,) = [
        r
        for r in compared("--at", "learning_rate=1e-3")
        if (r["study"], r["arm"], r["budget"]) == ("tiny-rates", "nonlinear", "equal tuning")
    ]
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"{row['mean']:.4f} nats worse ({row['high']:.4f} worse to {-row['low']:.4f} better)" in readme
    assert row["verdict"] == "inconclusive"
    table = pd.read_parquet(TABLE)
    at_01 = [(json.loads(r["config"]), r["outcome"]) for r in table.to_dict("records")]
    learnt = {
        q: [o for c, o in at_01 if c["model"]["query"] == q and c["training"]["learning_rate"] == 0.1]
        for q in ("linear", "nonlinear", "identity")
    }
    assert set(learnt["nonlinear"]) == set(learnt["identity"]) == {"finished"}
    assert set(learnt["linear"]) == {"did not learn"}


def test_the_readme_tells_the_small_size_as_the_study_has_it() -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    rows = {r["budget"]: r for r in compared("--at", "learning_rate=1e-3") if (r["study"], r["arm"]) == ("small-rates", "nonlinear")}
    assert {row["verdict"] for row in rows.values()} == {"inconclusive"}
    assert {(row["n"], row["corrected_for"]) for row in rows.values()} == {(3, 3)}
    for budget, where in (("same settings", "at the untuned rate"), ("equal tuning", "at equal tuning")):
        row = rows[budget]
        assert row["mean"] < 0 < row["high"]
        text = f"{-row['mean']:.4f} nats better {where}" if budget == "same settings" else f"{-row['mean']:.4f} better {where}"
        assert f"{text} ({row['high']:.4f} worse to {-row['low']:.4f} better)" in readme


def test_the_readme_tells_what_normed_queries_and_keys_do() -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    rows = [r for r in compared("--at", "learning_rate=1e-3") if (r["study"], r["arm"]) == ("query-qknorm", "nonlinear")]
    (row,) = [r for r in rows if r["budget"] == "same settings"]
    assert (row["verdict"], row["n"]) == ("inconclusive", 3)
    assert f"{row['mean']:.4f} nats worse ({row['high']:.4f} worse to {-row['low']:.4f} better, 3 seeds)" in readme
    table = pd.read_parquet(ROOT / "data" / "reference" / "query-qknorm.parquet").to_dict("records")
    ends = [(json.loads(r["config"]), r["outcome"]) for r in table]
    assert [o for c, o in ends if c["model"]["query"] == "linear" and c["training"]["learning_rate"] == 0.1] == ["finished"] * 3


def test_what_is_said_of_bfloat16_where_it_is_offered_is_what_was_measured() -> None:
    said = TrainingConfig.model_fields["dtype"].description
    assert said is not None
    for study, digits in (("bf16-tiny", ("-0.00003", "-0.0003 to +0.0002")), ("bf16-small", ("+0.0004", "-0.0006 to +0.0014"))):
        line = [sys.executable, "-m", "nqlab", "compare", f"data/reference/{study}", "--by", "dtype", "--json"]
        done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=True)
        (row,) = [r for r in json.loads(done.stdout) if r["arm"] == "linear"]
        assert row["n"] == 5
        gap, interval = digits
        assert float(gap) == pytest.approx(row["mean"], abs=0.6 * 10 ** -(len(gap) - 3))
        assert [float(x) for x in interval.split(" to ")] == pytest.approx([row["low"], row["high"]], abs=6e-5)
        assert all(d in said for d in digits)
