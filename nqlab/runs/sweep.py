"""Fill a study: one single-threaded process a core on this machine, or the workers of a dask scheduler.

What is finished is kept, so a sweep that was stopped or killed goes on where it was. One bad cell does not stop the
rest: its message is written into its folder, and the next sweep of the study tries it again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import psutil

from nqlab import limits, settings
from nqlab.config import RunConfig
from nqlab.model.budget import flops_per_token
from nqlab.runs import cells
from nqlab.runs.files import read_json, write_json
from nqlab.runs.launch import check
from nqlab.runs.log import EventWriter, last_record
from nqlab.runs.study import Study, StudyFolder, folder_of

POLL_S = 0.2
ATTEMPTS = 2  # a worker process that dies under a cell (out of memory, say) gets one more try

_children: list[subprocess.Popen[bytes]] = []  # kept, so that their ends are noticed

Listener = Callable[["Progress"], None]


@dataclass(frozen=True)
class Progress:
    """How a sweep stands. ``left_s`` is None before the first cell has ended."""

    ended: int
    total: int
    failed: int
    elapsed_s: float
    left_s: float | None
    cell: str = ""
    end: str = ""


def save_study(runs_dir: Path, study: Study) -> StudyFolder:
    """The study's folder with its file. ValueError when another study has that name: its cells would be mixed up.

    More seeds, arms or values in the same study are welcome; what is there stays.
    """
    limits.check_study(study.size)
    for config in {c.model_copy(update={"seed": 0}) for c in study.cells()}:
        check([config])
    place = folder_of(runs_dir, study.name)
    if (place.folder / "study.json").exists():
        old = place.study
        if (old.preset, old.settings) != (study.preset, study.settings):
            raise ValueError(f"a study {study.name!r} with another preset or other settings is here already; choose another name")
    place.folder.mkdir(parents=True, exist_ok=True)
    write_json(place.folder / "study.json", json.loads(study.to_json()))
    return place


class Sweep:
    """One sweep of one study by this process."""

    def __init__(self, place: StudyFolder, workers: int | None = None, listener: Listener = lambda progress: None) -> None:
        self.place, self.study, self.listener = place, place.study, listener
        self.workers = workers or settings.cores()
        self.interrupted = False
        self._configs = list(self.study.cells())
        self._todo = deque(c for c in self._configs if not place.ended(c))
        self._total, self._ended = len(self._configs), len(self._configs) - len(self._todo)
        self._work_left = {c.short_hash(): work(c) for c in self._todo}
        self._failed, self._work_done, self._began = 0, 0.0, time.monotonic()
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[str]] = []

    def interrupt(self, *_: object) -> None:
        """Stop every cell after the update in progress, keeping everything; a signal handler."""
        self.interrupted = True

    def progress(self, cell: str = "", end: str = "") -> Progress:
        """How it stands, with the time left from the work done so far (matrix FLOPs)."""
        elapsed = time.monotonic() - self._began
        left = sum(self._work_left.values()) / self._work_done * elapsed if self._work_done else None
        return Progress(self._ended, self._total, self._failed, elapsed, left, cell, end)

    def run(self, scheduler: str | None = None) -> int:
        """Until the study is full, or told to stop. Exit code 0, or 1 when a cell failed.

        ValueError when another process is filling this study.
        """
        with self._claimed():
            self.listener(self.progress())
            if scheduler is not None:
                from nqlab.runs.cluster import Cluster

                Cluster(self, scheduler).run()
            else:
                self._on_this_machine()
        return int(self._failed > 0)

    @contextmanager
    def _claimed(self) -> Iterator[None]:
        lock = filelock.FileLock(self.place.folder / "sweep.lock")
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            raise ValueError(f"the study {self.study.name!r} is being filled by another process; wait, or stop that one") from None
        try:
            me = psutil.Process()
            word = {"pid": me.pid, "created": me.create_time(), "workers": self.workers, "since": time.time()}
            self.place.command("run")
            write_json(self.place.folder / "sweep.json", word)
            yield
        finally:
            (self.place.folder / "sweep.json").unlink(missing_ok=True)
            lock.release()

    def must_stop(self) -> bool:
        """Whether a signal or somebody's wish says so."""
        self.interrupted = self.interrupted or self.place.wish() == "stop"
        return self.interrupted

    # --- this machine

    def _on_this_machine(self) -> None:
        feeders = [threading.Thread(target=self._feed, daemon=True) for _ in range(min(self.workers, max(1, len(self._todo))))]
        for feeder in feeders:
            feeder.start()
        told = False
        while any(feeder.is_alive() for feeder in feeders):
            if self.must_stop() and not told:
                told = True
                for process in self._processes:
                    process.terminate()
            time.sleep(POLL_S)

    def take(self) -> RunConfig | None:
        """The next cell to do, its folder prepared; None when there is none or it is time to stop."""
        with self._lock:
            if self.interrupted or not self._todo:
                return None
            config = self._todo.popleft()
        cells.prepare(self.place.cell(config), config)
        return config

    def ended(self, config: RunConfig, end: str, message: str = "") -> None:
        """A cell has ended; ``stopped`` leaves it for the next sweep."""
        run = self.place.cell(config)
        if end == "failed":
            last = last_record(run.events) or {"step": 0}
            writer = EventWriter(run.events)
            writer.write({"type": "failed", "step": last["step"], "message": message})
            writer.close()
        with self._lock:
            self._failed += end == "failed"
            self._ended += end in ("done", "diverged")
            spent = self._work_left.pop(run.id) if end != "stopped" else 0.0
            self._work_done += spent if end != "failed" else 0.0
            self.listener(self.progress(run.id, end))

    def _feed(self) -> None:
        """Keep one worker process busy."""
        process: subprocess.Popen[str] | None = None
        while (config := self.take()) is not None:
            for _ in range(ATTEMPTS):
                if process is None or process.poll() is not None:
                    _dismiss(process)
                    process = self._worker()
                answer = self._ask(process, config)
                if answer is not None or self.interrupted:
                    break
                process.kill()  # it may be dead and not yet seen to be
                process.wait()
            else:
                answer = {"end": "failed", "message": f"its process ended {ATTEMPTS} times; is there enough memory for this size?"}
            if answer is not None:
                self.ended(config, answer["end"], answer["message"])
        _dismiss(process)

    def _worker(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "nqlab", "cell-worker"]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        with (self.place.folder / "workers.log").open("ab") as log, self._lock:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, encoding="utf-8", env=environment
            )
            self._processes.append(process)
        if self.interrupted:
            process.terminate()
        return process

    def _ask(self, process: subprocess.Popen[str], config: RunConfig) -> dict[str, str] | None:
        """Have a cell trained; None when the process died over it."""
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"cell": str(self.place.cell(config).folder)}) + "\n")
            process.stdin.flush()
        except OSError:
            return None
        line = process.stdout.readline()
        return json.loads(line) if line.endswith("\n") else None


def _dismiss(process: subprocess.Popen[str] | None) -> None:
    """Let a worker end: it does when it has nothing more to read."""
    if process is not None:
        with suppress(BrokenPipeError), process:  # leaving closes the pipes and waits
            pass


def work(config: RunConfig) -> float:
    """What a cell costs, to tell the time left: matrix FLOPs of its updates and evaluations."""
    training, model = config.training, config.model
    passes = 3 * training.steps * training.batch_size + (training.steps / training.eval_interval + 1) * training.eval_windows
    return flops_per_token(model, 65) * model.block_size * passes


def sweeper(place: StudyFolder) -> dict[str, Any] | None:
    """The word of the living process that fills this study, or None."""
    _children[:] = [child for child in _children if child.poll() is None]
    data = read_json(place.folder / "sweep.json") or {}
    try:
        process = psutil.Process(data["pid"])
        alive = abs(process.create_time() - data["created"]) < 1 and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, KeyError, TypeError, ValueError):
        return None
    return data if alive else None


def discard(place: StudyFolder) -> None:
    """Move a study to the trash beside the runs. ValueError while it is being filled."""
    if sweeper(place) is not None:
        raise ValueError(f"the study {place.study.name!r} is being filled; stop it first")
    target = place.folder.parent.parent / ".trash" / f"study-{place.folder.name}"
    target.parent.mkdir(exist_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    place.folder.replace(target)


def start(place: StudyFolder, extra: Sequence[str] = ()) -> None:
    """Fill a study in the background, in a process that outlives this one. ValueError when that is under way."""
    if sweeper(place) is not None:
        raise ValueError(f"the study {place.study.name!r} is being filled already")
    place.command("run")
    command = [
        sys.executable,
        "-m",
        "nqlab",
        "sweep",
        str(place.folder / "study.json"),
        "--runs-dir",
        str(place.folder.parent.parent),
        *extra,
    ]
    with (place.folder / "sweep.log").open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    _children.append(process)
    # its own word follows when its imports are done; until then this one stands, so that nobody starts it twice
    word = {"pid": process.pid, "created": psutil.Process(process.pid).create_time(), "workers": 0, "since": time.time()}
    write_json(place.folder / "sweep.json", word)
