"""Times in use on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nqlab.runs import latency
from tests.test_cli import answer, nqlab, trained

QUICK = ["--repeats", "3", "--context", "2", "--context", "8"]


def test_the_table_has_a_row_for_each_context_and_variant(runs_dir: Path) -> None:
    rows = answer("latency", "--arm", "linear", "--arm", "identity", *QUICK, "--json")
    assert [(r["context"], r["variant"]) for r in rows] == [(2, "linear"), (2, "identity"), (8, "linear"), (8, "identity")]
    assert all(r["repeats"] == 3 and r["token_low_s"] <= r["token_s"] <= r["token_high_s"] for r in rows)
    assert rows[0]["token_ratio"] == 1.0
    assert rows[1]["parameters"] < rows[0]["parameters"]
    assert rows[0]["val_loss_at"].startswith("learning rate")
    shown = nqlab("latency", "--arm", "linear", *QUICK).stdout
    assert "ratio per token" in shown
    assert "linear (baseline)" in shown


def test_every_reading_is_a_line_as_it_comes(runs_dir: Path) -> None:
    lines = [json.loads(line) for line in nqlab("latency", "--json-lines", "--arm", "linear", *QUICK).stdout.splitlines()]
    assert [line["type"] for line in lines] == ["begin"] + ["reading"] * (3 * 2 * 2)


def test_without_contexts_all_powers_of_two_are_taken(runs_dir: Path) -> None:
    rows = answer("latency", "--arm", "linear", "--repeats", "3", "--json")
    assert [r["context"] for r in rows] == [2, 4, 8, 16, 32, 64]


def test_runs_are_measured_under_their_names_with_their_own_losses(runs_dir: Path) -> None:
    names = [trained("--query", query)["name"] for query in ("linear", "identity")]
    rows = answer("latency", "--run", names[0], "--run", names[1], *QUICK, "--json")
    assert [r["variant"] for r in rows[:2]] == names
    assert [r["arm"] for r in rows[:2]] == ["linear", "identity"]
    assert all(r["val_loss_at"] == "the run's own" for r in rows)


def test_a_training_at_the_same_time_is_said(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "training_now", lambda folder: ["busy-bee"])
    said = nqlab("latency", "--arm", "linear", *QUICK, "--json")
    assert "busy-bee trains at the same time" in said.stderr
    assert json.loads(said.stdout)


def test_ctrl_c_shows_what_is_known_by_then(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = latency.measure

    def interrupted(*args: object, **options: object) -> object:
        readings = real(*args, **options)  # type: ignore[arg-type]
        for _ in range(4):
            yield next(readings)
        raise KeyboardInterrupt

    monkeypatch.setattr(latency, "measure", interrupted)
    result = nqlab("latency", "--arm", "linear", *QUICK, "--json")
    assert result.exit_code == 130
    assert [r["repeats"] for r in json.loads(result.stdout)] == [1, 1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--preset", "huge"], "'huge' is unknown"),
        (["--arm", "cubic"], "'cubic' is unknown"),
        (["--arm", "linear", "--arm", "linear"], "name one twice"),
        (["--context", "65"], "choose 2, 4, 8, 16, 32, 64"),
        (["--repeats", "2"], "take at least 3"),
        (["--threads", "0"], "threads 0"),
        (["--device", "abacus"], "device 'abacus' is not available"),
        (["--run", "nowhere"], "there is no run 'nowhere'"),
        (["--run", "nowhere", "--arm", "linear"], "do not go together"),
    ],
)
def test_bad_input_is_answered_in_one_line(runs_dir: Path, arguments: list[str], words: str) -> None:
    result = nqlab("latency", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
