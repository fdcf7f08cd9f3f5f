from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from nqlab.runs.files import read_json, write_json
from nqlab.runs.race import Race, races


@pytest.fixture
def race(tmp_path: Path) -> Race:
    folder = tmp_path / "runs" / ".races" / "r1"
    folder.mkdir(parents=True)
    return Race(folder)


def test_the_wish_is_to_run_until_somebody_says_otherwise(race: Race) -> None:
    assert race.wish() == ("run", 0)
    race.pause()
    assert race.wish() == ("pause", 0)
    race.stop()
    assert race.wish() == ("stop", 0)
    race.command("pause", 7)
    assert race.wish() == ("pause", 7)
    race.command("run")
    assert race.wish() == ("run", 0)


def test_a_pace_outlives_pausing_and_is_no_wish_to_run(race: Race) -> None:
    assert race.pace() == 0
    race.pause()
    race.set_pace(2.5)
    assert (race.wish(), race.pace()) == (("pause", 0), 2.5)
    race.command("run")
    assert race.pace() == 2.5
    race.set_pace(0)
    assert (race.wish(), race.pace()) == (("run", 0), 0)
    for wrong in (-1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="must be 0 or more"):
            race.set_pace(wrong)


BROKEN = ["", "{", '{"pace": "fast"}', '{"pace": -3}', "[]", '{"command": "explode"}', '{"command": null, "until": null}']


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_wish_is_to_run(race: Race, content: str) -> None:
    (race.folder / "control.json").write_text(content, encoding="utf-8")
    assert race.wish() == ("run", 0)
    assert race.pace() == 0


def test_a_worker_is_believed_while_its_process_lives(race: Race) -> None:
    assert race.worker() is None
    race.announce("paused", 7, ["r1-0", "r1-1"], 12.5)
    worker = race.worker()
    assert worker is not None
    assert (worker.pid, worker.phase, worker.step, worker.runs, worker.since) == (os.getpid(), "paused", 7, ("r1-0", "r1-1"), 12.5)
    race.retire()
    assert race.worker() is None
    race.retire()


def test_another_process_with_the_same_number_is_not_the_worker(race: Race) -> None:
    race.announce("running", 7, ["r1-0"], 0.0)
    word = read_json(race.folder / "worker.json")
    assert word is not None
    write_json(race.folder / "worker.json", word | {"created": word["created"] - 60})
    assert psutil.pid_exists(word["pid"])
    assert race.worker() is None


def test_a_process_that_has_ended_but_was_not_collected_is_not_the_worker(race: Race) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        created = psutil.Process(child.pid).create_time()
        word = {"pid": child.pid, "created": created, "phase": "running", "step": 1, "runs": ["r1-0"], "since": 0.0}
        write_json(race.folder / "worker.json", word)
        assert race.worker() is not None
        child.kill()
        while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
            pass
        assert race.worker() is None
    assert race.worker() is None


@pytest.mark.parametrize("content", ["", "{", "{}", '{"pid": "x"}', '{"pid": -1, "created": 0}', "[]", '{"pid": 1e300, "created": 0}'])
def test_a_broken_word_of_a_worker_is_no_worker(race: Race, content: str) -> None:
    (race.folder / "worker.json").write_text(content, encoding="utf-8")
    assert race.worker() is None


def test_races_are_listed_newest_first_and_broken_ones_left_out(tmp_path: Path) -> None:
    runs_dir = tmp_path / "runs"
    assert races(runs_dir) == []
    for name in ("b", "c", "a", "empty"):
        (runs_dir / ".races" / name).mkdir(parents=True)
        if name != "empty":
            (runs_dir / ".races" / name / "race.json").write_text(json.dumps({"runs": []}), encoding="utf-8")
    assert [r.id for r in races(runs_dir)] == ["c", "b", "a"]
    assert races(runs_dir)[0].info == {"runs": []}
    assert Race(runs_dir / ".races" / "empty").info == {}
