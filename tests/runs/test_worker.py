"""Runs trained by real processes: told to pause, killed, queued, resumed."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import filelock
import psutil
import pytest
import torch

from nqlab.config import RunConfig
from nqlab.runs import launch
from nqlab.runs.launch import create, reopen, resume, start
from nqlab.runs.log import EventReader, last_record
from nqlab.runs.race import Race
from nqlab.runs.store import Run, delete
from nqlab.runs.worker import Worker, generate_text
from nqlab.training import loop
from nqlab.training.checkpoint import load_state
from tests.small import small, timeless
from tests.training.test_compiled import Prepared, stand_in

WaitFor = Callable[[Callable[[], object], str], None]
LONG: dict[str, Any] = {"corpus": "python-docs", "steps": 100_000, "eval_interval": 1000}


def records(run: Run) -> list[dict[str, Any]]:
    """All records but for times, and without the lines that say where a run was resumed."""
    return [timeless(r) for r in EventReader(run.events).read() if r["type"] != "resumed"]


def steps_done(run: Run) -> int:
    last = last_record(run.events) or {"type": "", "step": 0}
    return int(last["step"]) + (last["type"] == "step")


def kill(race: Race) -> None:
    """kill -9, of the worker that the race itself names."""
    worker = race.worker()
    assert worker is not None
    process = psutil.Process(worker.pid)
    process.kill()
    psutil.wait_procs([process], timeout=30)


def straight(runs_dir: Path, configs: list[RunConfig]) -> list[Run]:
    """The same race trained in this process without a break."""
    race, runs = create(runs_dir, configs)
    assert Worker(race, runs).work() == 0
    return runs


# --- pause, step, go on, stop, resume


def test_a_race_is_paused_advanced_by_one_let_run_stopped_resumed_and_terminated(runs_dir: Path, wait_for: WaitFor) -> None:
    race, (run, other) = start(runs_dir, [small(**LONG), small(**LONG, query="nonlinear")])
    assert run.status() in ("starting", "queued")
    wait_for(lambda: steps_done(run) > 3, "some steps")
    assert run.status() == other.status() == "running"

    race.pause()
    wait_for(lambda: run.status() == "paused", "pause")
    worker = race.worker()
    assert worker is not None
    before = steps_done(run)
    assert worker.step == min(before, steps_done(other))
    time.sleep(0.2)
    assert steps_done(run) == before, "it went on while paused"

    for k in (1, 2):  # whatever run the pause came after, a step brings the race on by one
        race.step_once()
        wait_for(lambda k=k: (w := race.worker()) and (w.phase, w.step) == ("paused", worker.step + k), "one step")
    assert steps_done(run) == steps_done(other) == worker.step + 2
    first_pause = worker.step

    race.command("run")
    wait_for(lambda: steps_done(run) > first_pause + 4, "going on")
    text, step = generate_text(other, "def", 10, 1.0, None, 0)
    assert len(text) == 10
    assert step % 1000 == 0
    assert run.status() == "running"
    with pytest.raises(ValueError, match="is running; stop it first"):
        delete(run)
    with pytest.raises(ValueError, match="is running; only a stopped or interrupted run"):
        resume([run])

    race.stop()
    wait_for(lambda: race.worker() is None, "the end of the worker")
    assert run.status() == other.status() == "stopped"
    for stopped in (run, other):
        assert [r["type"] for r in records(stopped)[-2:]] == ["checkpoint", "stopped"]
        assert load_state(stopped.checkpoint).step == steps_done(stopped)

    kept = steps_done(run)
    again = resume([run])
    assert again == race
    wait_for(lambda: steps_done(run) > kept, "going on from the checkpoint")
    assert run.status() == "running"
    assert other.status() == "stopped", "only one of them was resumed"
    assert [r for r in EventReader(run.events).read() if r["type"] == "resumed"] == [{"type": "resumed", "step": kept}]

    worker = race.worker()
    assert worker is not None
    os.kill(worker.pid, signal.SIGTERM)
    wait_for(lambda: race.worker() is None, "the end of the worker")
    assert run.status() == "stopped"
    assert load_state(run.checkpoint).step == steps_done(run)
    assert race.log.read_text(encoding="utf-8") == ""


# --- kill -9

KILLED: dict[str, Any] = {
    "corpus": "python-docs", "n_layer": 1, "steps": 100, "eval_interval": 9, "sample_interval": 7, "sample_length": 5,
    "checkpoint_interval": 15,
}  # fmt: skip
ALONE = [small(**KILLED)]
RACE = [
    small(**KILLED),
    small(**KILLED | {"steps": 80}, query="nonlinear", dropout=0.2, seed=1),
    small(**KILLED | {"eval_interval": 10}, query="identity", log_interval=2),
]


@pytest.mark.parametrize("configs", [ALONE, RACE], ids=["alone", "race"])
def test_killed_at_about_forty_and_resumed_is_straight_through(runs_dir: Path, wait_for: WaitFor, configs: list[RunConfig]) -> None:
    race, runs = create(runs_dir, configs)
    race.command("pause", 45)  # lest it be through before it is killed
    if len(runs) == 1:
        launch.prepare_spare()  # a spare worker trains the same as one started for the race
    launch.spawn(race, runs)
    wait_for(lambda: steps_done(runs[0]) >= 40, "40 steps")
    with pytest.raises(filelock.Timeout):
        filelock.FileLock(runs_dir / ".slots" / "0.lock").acquire(timeout=0)
    kill(race)
    assert [r.status() for r in runs] == ["interrupted"] * len(runs)
    assert 40 <= steps_done(runs[0]) <= 46
    assert load_state(runs[0].checkpoint).step in (30, 45)
    assert race.log.exists()

    reopen(runs)
    assert Worker(race, runs).work() == 0
    for resumed, expected in zip(runs, straight(runs_dir, configs)):
        assert records(resumed) == records(expected)
        resumed_at = [r["step"] for r in EventReader(resumed.events).read() if r["type"] == "resumed"]
        assert len(resumed_at) == 1
        assert resumed_at[0] % 15 == 0
        a, b = (load_state(r.checkpoint).tensors for r in (resumed, expected))
        assert a.keys() == b.keys()
        assert all(torch.equal(a[name], b[name]) for name in a)
        assert resumed.status() == expected.status() == "did not learn"


def test_killed_between_a_checkpoints_line_and_its_file_is_straight_through_too(runs_dir: Path) -> None:
    configs = [small(**KILLED | {"steps": 40})]
    (expected,) = straight(runs_dir, configs)
    (run,) = straight(runs_dir, configs)
    lines = run.events.read_bytes().splitlines(keepends=True)
    cut = next(i for i, line in enumerate(lines) if b'"checkpoint", "step": 30' in line) + 1
    race, (early,) = create(runs_dir, configs)
    early_worker = Worker(race, [early])
    early_worker.listener = lambda index, record: early_worker.interrupt() if record == {"type": "checkpoint", "step": 15} else None
    early_worker.work()
    assert load_state(early.checkpoint).step == 15
    shutil.copyfile(early.checkpoint, run.checkpoint)  # the file is still the one before
    run.events.write_bytes(b"".join(lines[:cut]) + b'{"type": "st')  # the line is there, and the next one torn
    assert run.status() == "interrupted"
    reopen([run])
    assert Worker(run.race, [run]).work() == 0
    assert records(run) == records(expected)


def test_a_run_killed_before_its_first_checkpoint_begins_anew(runs_dir: Path) -> None:
    configs = [small(**KILLED | {"steps": 5})]
    (expected,) = straight(runs_dir, configs)
    (run,) = straight(runs_dir, configs)
    run.checkpoint.unlink()
    run.events.write_bytes(run.events.read_bytes()[:200])
    reopen([run])
    assert Worker(run.race, [run]).work() == 0
    assert records(run) == records(expected)
    assert not [r for r in EventReader(run.events).read() if r["type"] == "resumed"]


# --- the queue


@pytest.fixture
def taken_slot(runs_dir: Path) -> Iterator[filelock.BaseFileLock]:
    """The only slot, held by this process."""
    (runs_dir / ".slots").mkdir(parents=True)
    with filelock.FileLock(runs_dir / ".slots" / "0.lock") as lock:
        yield lock


def test_races_queue_for_the_slot_in_the_order_of_their_coming(
    runs_dir: Path, wait_for: WaitFor, taken_slot: filelock.BaseFileLock
) -> None:
    first, (a,) = start(runs_dir, [small(**LONG)])
    wait_for(lambda: a.status() == "queued", "the first to queue")
    second, (b,) = start(runs_dir, [small(**LONG | {"steps": 3})])
    wait_for(lambda: b.status() == "queued", "the second to queue")
    assert not a.events.exists()
    with pytest.raises(ValueError, match="is queued; stop it first"):
        delete(a)

    taken_slot.release()
    wait_for(lambda: steps_done(a) > 3, "the first to train")
    assert b.status() == "queued"
    assert not b.events.exists()
    first.stop()
    wait_for(lambda: b.status() == "did not learn", "the second to train and end")
    assert a.status() == "stopped"
    assert records(a)[-1]["type"] == "stopped"
    wait_for(lambda: second.worker() is None, "the end of the second worker")


def test_it_is_a_races_turn_when_none_that_came_before_it_waits(runs_dir: Path) -> None:
    workers = [Worker(*create(runs_dir, [small(corpus="python-docs")])) for _ in range(3)]
    for worker in (workers[2], workers[0], workers[1]):
        worker._announce("queued", 0)
    assert [w._is_next() for w in workers] == [True, False, False]
    workers[0]._announce("running", 0)
    assert [w._is_next() for w in workers[1:]] == [True, False]
    workers[1].race.retire()
    assert workers[2]._is_next()
    for worker in workers:
        worker.race.retire()


def test_a_pace_makes_each_step_of_the_race_wait_its_turn_and_all_its_runs_share_it(
    runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    race, runs = create(runs_dir, [small(corpus="python-docs")])
    now = [100.0]
    monkeypatch.setattr("nqlab.runs.worker.time.monotonic", lambda: now[0])
    monkeypatch.setattr("nqlab.runs.worker.time.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    worker = Worker(race, runs)

    def begun(step: int) -> float:
        assert not worker.must_stop(step)
        return now[0]

    assert [begun(0), begun(0), begun(1)] == [100.0, 100.0, 100.0]
    race.set_pace(4)
    paced = [begun(2), begun(2), begun(3), begun(3), begun(4)]
    assert paced == pytest.approx([100.25, 100.25, 100.5, 100.5, 100.75], abs=0.05)
    race.stop()
    assert worker.must_stop(5)
    race.retire()


def test_a_race_stopped_before_its_turn_has_done_nothing_and_can_be_resumed(runs_dir: Path) -> None:
    race, (run,) = create(runs_dir, [small(corpus="python-docs", steps=3)])
    race.stop()
    assert Worker(race, [run]).work() == 0
    assert run.status() == "stopped"
    assert records(run) == [{"type": "stopped", "step": 0}]
    assert not run.checkpoint.exists()
    reopen([run])
    assert Worker(race, [run]).work() == 0
    assert run.status() == "did not learn"
    assert "stopped" not in {r["type"] for r in records(run)}


# --- compilation


def test_the_outcome_of_compilation_is_in_the_events_and_the_circumstances(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(make: Callable[[Any], Any], compile_: bool = True) -> Run:
        monkeypatch.setattr(loop, "Builds", lambda: Prepared(make, at=4))
        (run,) = straight(runs_dir, [small(corpus="python-docs", device="cpu", compile=compile_)])
        return run

    plain, made, failed = trained(stand_in, compile_=False), trained(stand_in), trained(lambda job: "there is no compiler")
    assert "compiled" not in plain.meta
    assert (made.meta["compiled"], made.meta["compiled_from_step"]) == (True, 4)
    assert (failed.meta["compiled"], failed.meta["compiled_from_step"]) == (False, None)
    assert failed.meta["compiled_message"] == "training goes on without compilation: there is no compiler"
    for run in (made, failed):
        (news,) = [r for r in records(run) if r["type"] == "compiled"]
        assert (news["step"], news["ok"], news["message"]) == (4, run.meta["compiled"], run.meta["compiled_message"])
        assert [r for r in records(run) if r["type"] != "compiled"] == records(plain)
        assert run.status() == plain.status()
