"""Studies on the command line: sweep, compare, studies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nqlab.analysis import studies
from nqlab.runs.study import Study
from tests.test_cli import answer, nqlab
from tests.ui.studied import STUDY, filled


def test_a_study_file_is_filled_compared_listed_and_packed(runs_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "class.json"
    path.write_text(STUDY.to_json(), encoding="utf-8")
    assert answer("sweep", str(path), "--json")["ended"] == 18
    assert answer("sweep", "class", "--json")["ended"] == 18  # by name, now that it is here
    rows = answer("compare", "class", "--json")
    assert {(r["arm"], r["baseline"], r["budget"]) for r in rows} == {("nonlinear", "linear", b) for b in ("same settings", "equal tuning")}
    assert all(r["n"] == 3 and {"mean", "low", "high", "verdict"} <= r.keys() for r in rows)
    assert len(answer("compare", "class", "--at", "learning_rate=1e-2", "--json")) == 2
    said = nqlab("compare", "class").stdout
    assert "3 paired seeds" in said
    assert "parameters" in said
    listed = {r["study"]: r for r in answer("studies", "list", "--json")}
    assert listed["class"]["ended"] == 18
    assert not listed["class"]["shipped"]
    packed = answer("studies", "pack", "class", "--to", str(tmp_path / "packed"), "--json")
    assert len(packed["files"]) == 3
    assert answer("compare", str(tmp_path / "packed"), "--json") == rows


def test_the_values_of_one_setting_are_compared(runs_dir: Path) -> None:
    filled(runs_dir)
    rows = answer("compare", "class", "--by", "learning_rate", "--json")
    assert {(r["arm"], r["value"], r["against"], r["n"]) for r in rows} == {
        (arm, value, 0.003, 3) for arm in ("linear", "nonlinear") for value in (0.01, 1e4)
    }
    wrong = nqlab("compare", "class", "--by", "n_layer")
    assert wrong.exit_code == 2
    assert "nothing to compare" in wrong.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sweep", "nowhere"], "there is no study"),
        (["sweep", "nowhere.json"], "no study file"),
        (["sweep", "--arm", "cubic"], "'cubic' is unknown"),
        (["sweep", "--learning-rate", ","], "holds no value"),
        (["sweep", "--seeds", "6000"], "more than a study may have"),
        (["compare", "nowhere"], "there is no study 'nowhere'"),
        (["studies", "pack", "nowhere"], "there is no study"),
        (["studies", "stop", "nowhere"], "there is no study"),
    ],
)
def test_bad_input_is_answered_in_one_line_and_leaves_nothing(runs_dir: Path, arguments: list[str], words: str) -> None:
    result = nqlab(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not list((runs_dir / ".studies").glob("*"))


def test_an_arm_or_setting_that_the_study_lacks_is_named(runs_dir: Path) -> None:
    filled(runs_dir)
    assert "has no arm 'identity'" in nqlab("compare", "class", "--arm", "identity").stderr
    assert "learning_rate" in nqlab("compare", "class", "--at", "learning_rat=1").stderr
    assert nqlab("studies", "stop", "class").exit_code == 2
    assert "nobody is filling" in nqlab("studies", "stop", "class").stderr


def test_a_file_that_is_no_study_is_named(runs_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text(json.dumps({"name": "x", "arms": []}), encoding="utf-8")
    result = nqlab("sweep", str(path))
    assert result.exit_code == 2
    assert "broken.json" in result.stderr
    assert "no arms" in result.stderr


def test_a_study_in_mid_air_is_shown_as_far_as_it_is(runs_dir: Path) -> None:
    place = filled(runs_dir)
    wider = Study.of(STUDY.model_dump() | {"seeds": (0, 1, 2, 3)})
    (place.folder / "study.json").write_text(wider.to_json(), encoding="utf-8")
    (found,) = studies.find("class", runs_dir)
    assert not found.complete
    assert all(r["n"] == 3 for r in answer("compare", "class", "--json"))


def test_where_training_survives_is_listed_for_people_and_programs(runs_dir: Path) -> None:
    filled(runs_dir)
    rows = answer("stability", "class", "--json")
    assert {(r["arm"], r["learning_rate"]) for r in rows} == {(arm, rate) for arm in ("linear", "nonlinear") for rate in (0.003, 0.01, 1e4)}
    assert all(r["of"] == 3 and r["bottleneck"] == (8 if r["arm"] == "nonlinear" else None) for r in rows)
    shown = nqlab("stability", "class").stdout
    assert "learnt" in shown
    assert shown.count("nonlinear") == 3
    assert "there is no study 'nowhere'" in nqlab("stability", "nowhere").stderr


def test_the_ladder_is_told_for_people_and_programs(runs_dir: Path) -> None:
    data = answer("ladder", "query-width", "--json")
    assert [(f["budget"], f["against"], f["sizes"]) for f in data["fits"]] == [
        (budget, against, 4) for budget in ("equal tuning", "same settings") for against in ("parameters", "flops")
    ]
    assert len(data["rungs"]) == 8
    said = " ".join(nqlab("ladder", "query-width").stdout.split())
    assert all(f"{fit['slope']:+.4f} nats" in said for fit in data["fits"])
    assert "at least 3" in nqlab("ladder", "small-rates").stderr
    assert "no arm 'magic'" in nqlab("ladder", "query-width", "--arm", "magic").stderr
