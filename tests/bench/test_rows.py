"""Every measurement runs, in miniature, and gives rows that a table can show. Nothing here looks at a clock."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from nqlab import settings
from nqlab.bench import device, generation, harness, room, serving, sweep, training
from nqlab.cli import app
from nqlab.config import ModelConfig, replace


def check(rows):
    for row in rows:
        assert {"figure", "size", "variant", "unit", "spread"} <= row.keys()
        assert ("ratio" in row) != ("value" in row)
        assert (row["unit"] == "ratio") == ("ratio" in row)
        assert 0 < row.get("ratio", row.get("value")) < math.inf
    names = [(row["figure"], row["size"], row["variant"]) for row in rows]
    assert len(set(names)) == len(names), "a row is known by its names"


@pytest.fixture
def miniature(monkeypatch):
    """Size T, smaller still."""
    model = ModelConfig(n_layer=1, n_head=2, n_embd=8, block_size=8)
    config = replace(harness.sizes()["T"], {"batch_size": 2}).model_copy(update={"model": model})
    for module in (generation, sweep, training):
        monkeypatch.setattr(module, "sizes", lambda: {"T": config})


def test_the_tick_has_its_time_and_its_size():
    rows = serving.tick_rows(rounds=4)
    check(rows)
    assert rows[1]["unit"] == "kB"
    assert 10 < rows[1]["value"] < 1000


def test_training_is_measured_against_the_reference_and_linear(miniature):
    rows = training.training_rows("T", rounds=3, seconds_a_turn=0.01)
    check(rows)
    assert [r["variant"] for r in rows if r["figure"] == "training step, reference over ours"] == list(harness.VARIANTS)


def test_generation_is_measured_for_one_text_for_a_batch_and_against_the_reference(miniature):
    rows = generation.generation_rows("T", rounds=3)
    check(rows)
    assert {"linear", "linear, batch 16"} <= {r["variant"] for r in rows if r["figure"] == "generation, without cache over with"}
    assert rows[-1]["figure"] == "generation, reference over ours"


def test_memory_is_that_of_a_process_of_its_own(miniature):
    ballast = np.ones(125_000_000)  # 1000 MB here, which must not count there
    rows = training.memory_rows("T")
    del ballast
    check(rows)
    assert 100 < rows[0]["value"] < 900


def test_a_sweep_deals_every_seed_to_one_process_a_core(miniature, monkeypatch):
    monkeypatch.setattr(settings, "cores", lambda: 2)
    rounds = []

    def once(configs):
        assert [c.seed for c in configs] == list(range(sweep.SEEDS))
        rounds.append(rounds[0] if rounds else real(configs))
        return rounds[-1]

    real = sweep._round
    monkeypatch.setattr(sweep, "_round", once)
    rows = sweep.sweep_rows("T", rounds=2, steps=3)
    check(rows)
    assert [r["variant"] for r in rows] == ["linear, 3 steps, start-up included", "linear, reckoned for 1000 steps"]
    assert 0 < rounds[0].updates_s < rounds[0].sweep_s


def test_a_process_of_a_sweep_that_fails_is_not_counted_as_fast(miniature, monkeypatch):
    monkeypatch.setattr(sweep, "SHARE", "import sys; sys.stdin.read(); sys.exit(3)")
    with pytest.raises(OSError, match="of the sweep failed"):
        sweep.sweep_rows("T", rounds=2, steps=1)


def test_a_longer_sweep_is_reckoned_with_its_start_up_once():
    measured = sweep._Round(reference_s=20.0, sweep_s=13.0, updates_s=10.0)  # 3 s to start
    assert measured.ratio() == pytest.approx(20 / 13)
    assert measured.ratio(5) == pytest.approx(100 / 53)
    assert measured.ratio(1e9) == pytest.approx(2.0)


def test_every_variant_is_trained_on_the_device_that_is_asked_for():
    rows = device.device_rows("cpu", rounds=3, seconds_a_turn=0.01)
    check(rows)
    assert [r["variant"] for r in rows if r["unit"] == "1/s"] == list(harness.VARIANTS)
    assert [r["variant"] for r in rows if r["unit"] == "ratio"] == list(harness.VARIANTS[1:])


def test_a_gpu_gets_the_preset_made_for_it_in_bfloat16(monkeypatch):
    monkeypatch.setattr(device, "has_bfloat16", lambda where: True)
    config = device._config_for(device.torch.device("cuda"))
    assert (config.model.n_layer, config.model.n_embd, config.training.batch_size) == (6, 384, 64)
    assert (config.training.device, config.training.dtype) == ("cuda", "bfloat16")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "cuda"], "device 'cuda' is not available"),
        (["--device", "cpu", "--size", "T"], "do not go together"),
        (["--size", "X"], "size 'X' is unknown"),
    ],
)
def test_what_cannot_be_measured_is_one_line(arguments, message, monkeypatch):
    monkeypatch.setattr(device.torch.cuda, "is_available", lambda: False)
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_the_device_is_measured_from_the_command_line(monkeypatch):
    real = device.device_rows
    monkeypatch.setattr(device, "device_rows", lambda name: real(name, rounds=2, seconds_a_turn=0.01))
    result = CliRunner().invoke(app, ["bench", "--device", "cpu", "--json"])
    assert result.exit_code == 0
    assert "characters a second" in json.loads(result.stdout)[0]["figure"]


@pytest.mark.slow
def test_open_pages_follow_a_race_and_what_they_cost_is_a_ratio() -> None:
    check(room.room_rows(2, rounds=2, seconds=2.0))
