"""Results of run folders and studies, and their way into files and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nqlab import presets
from nqlab.analysis import studies
from nqlab.analysis.results import result_of, results_of, surviving
from nqlab.runs.launch import create
from nqlab.runs.log import EventWriter
from nqlab.runs.study import Study, StudyFolder
from nqlab.runs.sweep import Sweep, save_study
from nqlab.runs.worker import Worker
from tests.small import small

SMALL = {
    "n_embd": 16, "block_size": 16, "batch_size": 4, "steps": 20, "eval_interval": 10, "eval_windows": 8,
    "corpus": "python-docs",
}  # fmt: skip


@pytest.fixture
def place(runs_dir: Path) -> StudyFolder:
    study = Study.of({"name": "try", "settings": SMALL, "seeds": (0,), "grid": {"learning_rate": (1e-3,)}})
    place = save_study(runs_dir, study)
    Sweep(place, 1).run()
    return place


def test_a_run_folder_becomes_a_result(runs_dir: Path) -> None:
    race, runs = create(runs_dir, [presets.arm(small(corpus="python-docs", steps=20), name) for name in ("linear", "identity")])
    Worker(race, runs).work()
    linear, identity = results_of(runs)
    assert (linear.arm, identity.arm) == ("linear", "identity")
    assert linear.outcome == "did not learn"  # 20 steps are not enough
    assert linear.step == 20
    assert linear.steps[0] == 0
    assert linear.losses[-1] == linear.val_loss == linear.counted_loss
    assert linear.halves is not None
    assert sum(linear.halves) / 2 == pytest.approx(linear.val_loss)
    assert linear.counted_half(1) == linear.halves[1]
    assert linear.cpu_s is not None
    assert 0 < linear.cpu_s < 60
    assert linear.parameters - identity.parameters == 2 * 16 * 16
    assert linear.step_flops > identity.step_flops
    assert list(linear.axis("tokens")) == [s * 64 for s in linear.steps]
    assert linear.axis("seconds")[-1] == pytest.approx(linear.cpu_s)
    assert surviving([linear, identity]) == (0, 2)


def test_a_diverged_run_counts_as_no_better_than_letter_frequencies(runs_dir: Path) -> None:
    race, (run,) = create(runs_dir, [small(corpus="python-docs", steps=20)])
    Worker(race, [run]).work()
    writer = EventWriter(run.events)
    writer.write({"type": "diverged", "step": 12, "quantity": "loss", "cause": "test"})
    writer.close()
    result = result_of(run)
    assert result.outcome == "diverged"
    assert result.val_loss is None
    assert result.counted_loss == max(result.unigram, result.losses[-1])
    assert result.counted_half(0) == result.counted_loss


def test_a_run_under_way_has_no_final_loss(runs_dir: Path) -> None:
    _, (run,) = create(runs_dir, [small(corpus="python-docs")])
    result = result_of(run)
    assert (result.outcome, result.val_loss, result.counted_loss, result.counted_half(0)) == ("unfinished", None, None, None)


def test_packed_and_unpacked_is_equal(place: StudyFolder, tmp_path: Path) -> None:
    filled = studies.of_folder(place)
    assert filled.complete
    study, table, receipt = studies.pack(filled, tmp_path / "packed")
    again = studies.unpack(table)
    assert again.results == filled.results
    assert again.study == filled.study
    assert again.complete
    words = json.loads(receipt.read_text(encoding="utf-8"))
    assert words["cells"] == 2
    assert words["threads"] == [1]
    assert words["versions"][0]["torch"]
    assert words["processor_hours"] >= 0
    assert study.name == "try.json"


def test_a_study_is_found_by_name_file_table_and_folder(place: StudyFolder, runs_dir: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    studies.pack(studies.of_folder(place), packed)
    (place.folder.parent.parent / "x").mkdir()
    for target in ("try", str(packed), str(packed / "try.json"), str(packed / "try.parquet"), str(place.folder / "study.json")):
        (found,) = studies.find(target, runs_dir)
        assert found.study.name == "try"
        assert len(found.results) == 2
    with pytest.raises(ValueError, match="there is no study 'tri'"):
        studies.find("tri", runs_dir)
    with pytest.raises(ValueError, match="no packed studies"):
        studies.find(str(runs_dir), runs_dir)


def test_nothing_ended_is_nothing_to_pack(runs_dir: Path, tmp_path: Path) -> None:
    place = save_study(runs_dir, Study.of({"name": "new", "settings": SMALL}))
    with pytest.raises(ValueError, match="nothing to pack"):
        studies.pack(studies.of_folder(place), tmp_path)
    assert not list(tmp_path.glob("*.parquet"))


def test_a_broken_table_is_named(place: StudyFolder, tmp_path: Path) -> None:
    _, table, _ = studies.pack(studies.of_folder(place), tmp_path)
    table.write_bytes(b"PAR1 torn")
    with pytest.raises(ValueError, match=r"try\.parquet is no packed study"):
        studies.unpack(table)


def test_what_is_shipped_is_whole() -> None:
    for filled in studies.shipped():
        assert filled.shipped
        assert filled.receipt["cells"] == len(filled.results)
        assert {r.config.short_hash() for r in filled.results} <= {c.short_hash() for c in filled.study.cells()}
    assert sum(p.stat().st_size for p in studies.REFERENCE.glob("*")) < 3_000_000
