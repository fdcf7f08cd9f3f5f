from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nqlab.analysis.receipt import compare
from nqlab.runs import again
from nqlab.runs.files import write_json
from nqlab.runs.store import delete
from tests.runs.test_store import DOCS, created, worked
from tests.small import small

WaitFor = Callable[[Callable[[], object], str], None]


def test_a_repetition_has_the_configuration_the_threads_and_the_name_of_its_run(runs_dir: Path) -> None:
    first, other = created(runs_dir, small(**DOCS, steps=3, threads="none"), small(**DOCS, steps=3, threads="none", query="identity"))
    worked([first, other])
    write_json(first.folder / "meta.json", first.meta | {"threads": 3})
    first.relabel(name="x" * 78)
    race, repetition = again.create(first)
    assert race.info["runs"] == [repetition.id]
    assert (repetition.config, repetition.meta["threads"], repetition.meta["repeats"]) == (first.config, 3, first.id)
    assert repetition.name == "x" * 74 + " again"
    assert again.repeated(repetition) == first
    assert again.repeated(first) is None
    assert again.repetitions(first) == [repetition]
    assert again.repetitions(other) == []
    delete(first)
    assert again.repeated(repetition) is None


def test_a_repetition_in_the_background_has_the_same_losses_bit_for_bit(runs_dir: Path, wait_for: WaitFor) -> None:
    """Though the first trained in a race of two, and this one alone."""
    runs = created(runs_dir, *(small(**DOCS, steps=6, eval_interval=3, query=query, dropout=0.1) for query in ("nonlinear", "linear")))
    worked(runs)
    repetition = again.start(runs[0])
    wait_for(lambda: repetition.status() == "did not learn", "the repetition")
    agreement = compare(runs[0], repetition)
    assert (agreement.word, agreement.compared, agreement.circumstances) == ("bitwise equal", 6 + 3, {})
