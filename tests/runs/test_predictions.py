"""Predictions about a race: kept as they were said, by whoever said them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from nqlab.runs.launch import create
from nqlab.runs.predictions import predict, predictions
from nqlab.runs.race import Race
from tests.small import small


@pytest.fixture
def race(runs_dir: Path) -> Race:
    return create(runs_dir, [small(corpus="python-docs", query=q) for q in ("linear", "nonlinear")])[0]


def test_what_was_said_is_kept_in_order(race: Race) -> None:
    assert predictions(race) == []
    first, second = race.info["runs"]
    predict(race, second, 0.03, " Ada ", step=7)
    predict(race, first, 0)
    ada, nobody = predictions(race)
    assert (ada.winner, ada.margin, ada.name, ada.step) == (second, 0.03, "Ada", 7)
    assert (nobody.winner, nobody.margin, nobody.name) == (first, 0.0, "")
    assert ada.said.endswith("+00:00")


@pytest.mark.parametrize(
    ("winner", "margin", "name", "said"),
    [("other", 0.1, "", "does not run in this race"), (None, -0.1, "", "give 0 to 100"), (None, float("nan"), "", "give 0"),
     (None, 0.1, "x" * 41, "at most 40")],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_and_nothing_written(race: Race, winner: str | None, margin: float, name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        predict(race, winner or race.info["runs"][0], margin, name)
    assert predictions(race) == []


def test_a_class_that_predicts_at_once_loses_nobody(race: Race) -> None:
    winner = race.info["runs"][0]
    people = [threading.Thread(target=predict, args=(race, winner, 0.01, f"pupil {i}")) for i in range(30)]
    for person in people:
        person.start()
    for person in people:
        person.join()
    assert sorted(p.name for p in predictions(race)) == sorted(f"pupil {i}" for i in range(30))


def test_a_torn_line_hides_itself_alone(race: Race) -> None:
    predict(race, race.info["runs"][0], 0.01, "whole")
    with (race.folder / "predictions.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"winner": "x"\n{"colour": "red"}\n')
    assert [p.name for p in predictions(race)] == ["whole"]
