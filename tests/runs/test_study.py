"""What a study file says, and which runs follow from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nqlab.config import difference
from nqlab.presets import arm_of
from nqlab.runs.study import Study, StudyFolder, read_study, studies

SHIPPED = sorted(p for p in (Path(__file__).parents[2] / "data" / "reference").glob("*.json") if ".receipt" not in p.name)


def study(**changes: object) -> Study:
    return Study.of({"name": "try", "arms": ("linear", "nonlinear"), "seeds": (0, 1)} | changes)


def test_cells_are_arms_times_grid_times_seeds_with_seeds_outermost() -> None:
    cells = list(study(grid={"learning_rate": (1e-3, 1e-2), "weight_decay": ("0.1", "0.01")}).cells())
    assert len(cells) == 2 * 2 * 2 * 2
    assert [c.seed for c in cells] == [0] * 8 + [1] * 8
    assert {(arm_of(c), c.training.learning_rate, c.training.weight_decay) for c in cells[:8]} == {
        (arm, rate, decay) for arm in ("linear", "nonlinear") for rate in (1e-3, 1e-2) for decay in (0.1, 0.01)
    }


def test_an_arm_that_does_not_read_a_setting_has_its_equal_cells_once() -> None:
    cells = list(study(grid={"bottleneck": (4, 8, 16)}).cells())
    assert [arm_of(c) for c in cells].count("linear") == 2
    assert [arm_of(c) for c in cells].count("nonlinear") == 6


def test_what_a_study_sets_quiet_moves_no_loss() -> None:
    changed = set(difference(study(settings={"training.device": "auto"}).base, study().base))
    assert changed == {"training.device"}
    assert study().base.training.threads == 1


def test_round_trip_through_json() -> None:
    one = study(grid={"training.learning_rate": (1e-3, 3e-3)}, settings={"training.steps": 50})
    assert Study.from_json(one.to_json()) == one
    assert [c.short_hash() for c in Study.from_json(one.to_json()).cells()] == [c.short_hash() for c in one.cells()]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "../up"}, "won't do for a folder"),
        ({"arms": ()}, "has no arms"),
        ({"seeds": ()}, "has no seeds"),
        ({"grid": {"learning_rate": ()}}, "has no learning_rate"),
        ({"arms": ("linear", "linear")}, "names something twice"),
        ({"baseline": "identity"}, "not among the arms linear, nonlinear"),
        ({"arms": ("linear", "cubic")}, "query 'cubic' is unknown"),
        ({"grid": {"learning_rat": (1e-3,)}}, "did you mean"),
        ({"grid": {"learning_rate": ("fast",)}}, "learning_rate = 'fast'"),
        ({"grid": {"n_head": (3,)}}, "not a multiple of n_head 3"),
        ({"preset": "huge"}, "preset 'huge' is unknown"),
        ({"seeds": tuple(range(3000))}, "more than a study may have"),
        ({"colour": "red"}, "is not a setting"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        study(**changes)


def test_a_file_that_is_none_or_broken_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no study file"):
        read_study(tmp_path / "x.json")
    (tmp_path / "x.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"x\.json"):
        read_study(tmp_path / "x.json")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_shipped_studies_are_whole_and_named_as_their_file(path: Path) -> None:
    one = read_study(path)
    assert one.name == path.stem
    assert one.question.endswith("?")
    assert json.loads(one.to_json()) == json.loads(path.read_text(encoding="utf-8"))


def test_folders_are_found_and_wishes_kept(tmp_path: Path) -> None:
    place = StudyFolder(tmp_path / ".studies" / "try")
    assert studies(tmp_path) == []
    place.folder.mkdir(parents=True)
    (place.folder / "study.json").write_text(study().to_json(), encoding="utf-8")
    assert [p.study for p in studies(tmp_path)] == [study()]
    assert place.wish() == "run"
    place.command("stop")
    assert place.wish() == "stop"
    config = next(study().cells())
    assert not place.ended(config)
