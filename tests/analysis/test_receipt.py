from __future__ import annotations

import json
from pathlib import Path

import pytest

from nqlab.analysis.receipt import TOLERANCE, compare, receipt, receipt_rows
from nqlab.config import RunConfig
from nqlab.runs.files import write_json
from nqlab.runs.log import as_lines
from nqlab.runs.store import Run
from tests.runs.test_store import DOCS, created, worked
from tests.small import small


def made(folder: Path, losses: list[float], end: str = "done", config: RunConfig | None = None, **meta: object) -> Run:
    """A run folder with these training losses, one validation loss at its last step, and circumstances."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text((config or small()).to_json(), encoding="utf-8")
    write_json(folder / "meta.json", {"versions": {"torch": "2"}, "device": "cpu", "threads": 1} | meta)
    steps = [{"type": "step", "step": i, "loss": loss} for i, loss in enumerate(losses)]
    last = {"type": "evaluation", "step": len(losses), "val_loss": losses[-1]} if losses else {"type": "resumed", "step": 0}
    (folder / "events.jsonl").write_bytes(as_lines([*steps, last, {"type": end, "step": len(losses)}]))
    return Run(folder)


def test_equal_is_every_loss_bit_for_bit(tmp_path: Path) -> None:
    agreement = compare(made(tmp_path / "a", [4.0, 3.0, 0.1 + 0.2]), made(tmp_path / "b", [4.0, 3.0, 0.1 + 0.2]))
    assert (agreement.word, agreement.compared, agreement.last, agreement.first, agreement.largest) == ("bitwise equal", 4, 3, None, 0.0)
    assert agreement.sentence() == "bitwise equal: 4 losses up to step 3; the circumstances are the same"
    assert json.loads(json.dumps(agreement.record()))["tolerance"] == TOLERANCE


def test_a_last_bit_is_within_tolerance_and_says_where(tmp_path: Path) -> None:
    agreement = compare(made(tmp_path / "a", [4.0, 3.0, 0.3]), made(tmp_path / "b", [4.0, 3.0, 0.1 + 0.2], threads=2))
    assert (agreement.word, agreement.first) == ("within tolerance", 2)
    assert 0 < agreement.largest < 1e-15
    assert "circumstances differ: threads 1 → 2" in agreement.sentence()


@pytest.mark.parametrize(("factor", "word"), [(1 + 0.9 * TOLERANCE, "within tolerance"), (1 + 1.1 * TOLERANCE, "different")])
def test_the_tolerance_is_relative_to_the_larger_loss(tmp_path: Path, factor: float, word: str) -> None:
    agreement = compare(made(tmp_path / "a", [4.0, 3.0]), made(tmp_path / "b", [4.0, 3.0 * factor]))
    assert (agreement.word, agreement.first) == (word, 1)
    assert agreement.largest == pytest.approx(factor - 1, rel=2e-3)


def test_what_differs_beside_the_losses_is_named(tmp_path: Path) -> None:
    one = made(tmp_path / "a", [4.0], commit="abc")
    other = made(tmp_path / "b", [5.0], config=small(seed=1), device="cuda", versions={"torch": "3"}, commit="def")
    agreement = compare(one, other)
    assert (agreement.word, agreement.first) == ("different", 0)
    assert agreement.configuration == "seed 0 → 1"
    assert agreement.circumstances == {"torch": ("2", "3"), "device": ("cpu", "cuda"), "commit": ("abc", "def")}


def test_a_run_that_ended_where_the_other_went_on_is_different(tmp_path: Path) -> None:
    short = made(tmp_path / "a", [4.0, 3.0], end="diverged")
    agreement = compare(short, made(tmp_path / "b", [4.0, 3.0, 3.0]))
    assert (agreement.word, agreement.first) == ("different", 2)


def test_a_run_that_has_not_ended_is_compared_as_far_as_it_came(tmp_path: Path) -> None:
    short = made(tmp_path / "a", [4.0, 3.0], end="stopped")
    agreement = compare(short, made(tmp_path / "b", [4.0, 3.0, 2.0]))
    assert (agreement.word, agreement.last) == ("bitwise equal", 1), "evaluations lie at different steps"
    nothing = compare(made(tmp_path / "c", [], end="stopped"), short)
    assert (nothing.word, nothing.last) == ("nothing to compare", None)
    assert nothing.sentence().startswith("nothing to compare")


def test_receipts_of_the_same_configuration_share_their_hashes_and_another_seed_has_others(runs_dir: Path) -> None:
    runs = [created(runs_dir, small(**DOCS, steps=3, seed=seed))[0] for seed in (0, 0, 1)]
    told = []
    for run in runs:
        assert receipt(run)["losses_sha256"] is None
        assert receipt(run)["weights_sha256"] is None
        worked([run])
        told.append(receipt(run))
    hashes = [(r["configuration"], r["losses_sha256"], r["weights_sha256"]) for r in told]
    assert hashes[0] == hashes[1]
    assert all(a != b for a, b in zip(hashes[0], hashes[2]))
    rows = {row["what"]: row["value"] for row in receipt_rows(told[0])}
    assert (rows["threads"], rows["device"], rows["torch"]) == ("1", "cpu", told[0]["versions"]["torch"])
    assert json.loads(json.dumps(told)) == told


def test_a_checkpoint_that_is_not_whole_has_no_hash(runs_dir: Path) -> None:
    (run,) = created(runs_dir)
    run.checkpoint.write_bytes(b"half")
    assert receipt(run)["weights_sha256"] is None
