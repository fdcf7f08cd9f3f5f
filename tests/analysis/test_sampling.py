"""Writing on after one's own words, from the checkpoint of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nqlab.analysis.sampling import Wish, writing
from nqlab.runs.launch import create
from nqlab.runs.store import Run
from nqlab.runs.worker import Worker, generate_text
from tests.small import small


@pytest.fixture
def run(runs_dir: Path) -> Run:
    race, runs = create(runs_dir, [small(corpus="python-docs", steps=8)])
    assert Worker(race, runs).work() == 0
    return runs[0]


def test_what_comes_bit_by_bit_is_what_the_command_writes(run: Run) -> None:
    wish = Wish("The ", 40, 0.9, 5, 3)
    before = run.checkpoint.read_bytes()
    text = "".join(writing(run, wish))
    assert text == generate_text(run, "The ", 40, 0.9, 5, 3)[0]
    assert len(text) == 40
    assert run.checkpoint.read_bytes() == before
    assert "".join(writing(run, replace(wish, seed=4))) != text


@pytest.mark.parametrize(
    ("wish", "said"),
    [(Wish("¿"), "the corpus has no '¿'"), (Wish("a", length=0), "length 0"), (Wish("a", temperature=-1), "temperature -1")],
)
def test_what_cannot_be_written_says_why(run: Run, wish: Wish, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        next(writing(run, wish))


def test_before_the_first_checkpoint_there_is_nothing_to_write_from(runs_dir: Path) -> None:
    _race, (run,) = create(runs_dir, [small(corpus="python-docs")])
    with pytest.raises(ValueError, match="checkpoint"):
        next(writing(run, Wish("a")))
