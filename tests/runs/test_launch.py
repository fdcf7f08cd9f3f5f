from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from nqlab import presets
from nqlab.config import RunConfig
from nqlab.corpus import add_text
from nqlab.runs import launch, store
from nqlab.runs.launch import check, create, reopen
from nqlab.runs.race import Race
from nqlab.runs.worker import Worker
from tests.small import small
from tests.training.test_device import ABSENT

DOCS = {"corpus": "python-docs"}


def test_a_race_is_created_whole_with_the_resolved_configurations(runs_dir: Path) -> None:
    configs = [presets.arm(small(**DOCS), name) for name in ("linear", "nonlinear")]
    race, runs = create(runs_dir, configs)
    assert [json.loads((r.folder / "config.json").read_text(encoding="utf-8")) for r in runs] == [json.loads(c.to_json()) for c in configs]
    assert [r.config for r in runs] == [c.resolved() for c in configs]
    assert race.info["runs"] == [r.id for r in runs]
    for run in runs:
        assert run.race == race
        assert run.meta["schema_version"] == 1
        assert {"race", "created", "launched"} <= run.meta.keys()
        assert not run.events.exists()


def test_a_name_can_be_said_and_tells_the_variant(runs_dir: Path) -> None:
    base = small(**DOCS)
    _, runs = create(runs_dir, [base, presets.arm(base, "nonlinear"), presets.arm(base, "wide_mlp"), small(**DOCS, seed=1)])
    names = [r.name for r in runs]
    first = re.fullmatch(r"([a-z]+-[a-z-]+)-linear-1", names[0])
    assert first
    assert names[1:] == [f"{first[1]}-{label}" for label in ("nonlinear", "wide_mlp", "linear-2")]


def test_two_races_in_the_same_second_have_ids_of_their_own(runs_dir: Path) -> None:
    races = [create(runs_dir, [small(**DOCS)])[0] for _ in range(20)]
    assert len({r.id for r in races}) == 20


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ([], "at least one variant"),
        ([small(**DOCS)] * 13, "13 runs are too many for one race; at most 12"),
        ([small(corpus="nonesuch")], "corpus 'nonesuch' is unknown"),
        ([small(corpus="text:0123456789ab")], "is not kept here"),
        ([small(**DOCS, block_size=60_000)], "too short for block_size 60000"),
        ([small(**DOCS), small(**DOCS, device=ABSENT)], f"device '{ABSENT}' is not available"),
        ([small(**DOCS, sample_interval=5, sample_prompt="北")], "sample_prompt: the corpus has no '北'"),
    ],
)
def test_a_race_that_could_not_run_is_refused_and_nothing_created(runs_dir: Path, configs: list[RunConfig], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        create(runs_dir, configs)
    assert not runs_dir.exists()


def test_a_prompt_is_not_looked_at_where_nothing_is_sampled() -> None:
    check([small(**DOCS, sample_interval=0, sample_prompt="北")])


def test_a_race_that_cannot_be_written_leaves_nothing(runs_dir: Path) -> None:
    runs_dir.mkdir()
    (runs_dir / ".races").write_text("in the way", encoding="utf-8")
    with pytest.raises(OSError, match="races"):
        create(runs_dir, [small(**DOCS), small(**DOCS)])
    assert [p.name for p in runs_dir.iterdir()] == [".races"]


def test_runs_of_two_races_cannot_go_on_together(runs_dir: Path) -> None:
    runs = [create(runs_dir, [small(**DOCS)])[1][0] for _ in range(2)]
    with pytest.raises(ValueError, match="2 races at once cannot go on together"):
        reopen(runs)


def test_a_run_that_is_only_starting_cannot_be_resumed(runs_dir: Path) -> None:
    _, (run,) = create(runs_dir, [small(**DOCS)])
    with pytest.raises(ValueError, match=f"run {run.name} is starting; only a stopped or interrupted run can go on"):
        reopen([run])


def test_a_race_whose_own_folder_was_lost_can_be_reopened(runs_dir: Path) -> None:
    race, (run,) = create(runs_dir, [small(corpus=add_text("abcd\n" * 50).name)])
    run.events.write_text('{"type": "stopped", "step": 0}\n', encoding="utf-8")
    shutil.rmtree(race.folder)
    assert reopen([run]) == Race(race.folder)
    assert race.info["runs"] == [run.id]
    assert race.wish() == ("run", 0)


def test_a_run_that_goes_on_is_starting_at_once_so_that_a_second_click_is_refused(runs_dir: Path) -> None:
    race, runs = create(runs_dir, [small(**DOCS)])
    race.stop()
    assert Worker(race, runs).work() == 0
    assert runs[0].status() == "stopped"
    reopen(runs)
    assert runs[0].status() == "starting"
    with pytest.raises(ValueError, match="is starting; only a stopped or interrupted run can go on"):
        reopen(runs)


def test_while_a_race_is_being_created_nothing_half_made_is_listed(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    write = launch.write_json
    monkeypatch.setattr(launch, "write_json", lambda path, data: (seen.append(len(store.runs(runs_dir))), write(path, data)))
    create(runs_dir, [small(**DOCS), small(**DOCS, query="identity")])
    assert set(seen) == {0}
    assert len(store.runs(runs_dir)) == 2
