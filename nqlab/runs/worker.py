"""The process that trains a race: waits for a slot, loops over the events, writes them down, obeys the wish.

It knows no page. It may be killed at any moment: what is on disk then is whole, and a resume goes on from there.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import filelock
import torch

from nqlab import corpus as corpora
from nqlab import presets, settings
from nqlab.config import RunConfig
from nqlab.generate import stream
from nqlab.model.budget import flops_per_token
from nqlab.model.gpt import GPT
from nqlab.runs import speed
from nqlab.runs.files import write_json
from nqlab.runs.log import EventWriter, cut_back, last_record
from nqlab.runs.race import Phase, Race, races
from nqlab.runs.store import Run
from nqlab.training.checkpoint import load_state, restore_model, save_state
from nqlab.training.device import resolve_device
from nqlab.training.events import Checkpoint, Compiled, Event
from nqlab.training.loop import train

POLL_S = 0.02
PACKAGES = ("torch", "numpy", "nqlab", "pydantic", "safetensors")
Listener = Callable[[int, dict[str, Any]], None]


class Worker:
    """One race being trained by this process."""

    def __init__(self, race: Race, runs: Sequence[Run], listener: Listener = lambda index, record: None) -> None:
        self.race, self.runs, self.listener = race, list(runs), listener
        self.interrupted = False
        self.since = time.time()
        self._told: tuple[Phase, int] | None = None
        self._wish_seen: tuple[int, int] | None = None
        self._wish: tuple[str, int] = ("run", 0)
        self._pace = 0.0
        self._begun = (-1, 0.0)  # the newest step of the race and when it began

    # --- what it is told

    def interrupt(self, *_: object) -> None:
        """Stop after the update in progress, keeping everything; a signal handler."""
        self.interrupted = True

    def _read_wish(self) -> tuple[str, int]:
        try:
            stat = (self.race.folder / "control.json").stat()
            seen = (stat.st_mtime_ns, stat.st_ino)
        except FileNotFoundError:
            return ("run", 0)
        if seen != self._wish_seen:
            self._wish_seen, self._wish, self._pace = seen, self.race.wish(), self.race.pace()
        return self._wish

    def must_stop(self, step: int) -> bool:
        """Asked by the loop between updates: waits while the race is paused, says whether to stop."""
        while True:
            command, until = self._read_wish()
            if self.interrupted or command == "stop":
                self._announce("stopping", step)
                return True
            if command == "run" or step < until:
                self._announce("running", step)
                if self._in_time(step):
                    return False
            else:
                self._announce("paused", step)
            time.sleep(POLL_S)

    def _in_time(self, step: int) -> bool:
        """Whether the pace that was asked for lets a step begin; the runs of a race share a step's turn."""
        last, begun = self._begun
        now = time.monotonic()
        if step > last and self._pace and now - begun < 1 / self._pace:
            return False
        if step > last:
            self._begun = (step, now)
        return True

    def _announce(self, phase: Phase, step: int) -> None:
        """Tell others, when there is something new to tell; while running, the step is in the events."""
        if self._told is None or phase != self._told[0] or (phase == "paused" and step != self._told[1]):
            self._told = (phase, step)
            self.race.announce(phase, step, [r.id for r in self.runs], self.since)

    # --- its life

    def work(self) -> int:
        """Wait for a slot, train, write. Exit code: 0, or 1 when a run failed."""
        self._announce("queued", 0)
        try:
            slot = self._wait_for_slot()
            if slot is None:
                for run in self.runs:
                    if last_record(run.events) is None:
                        _append(run, {"type": "stopped", "step": 0})
                return 0
            with slot:
                return self._train()
        finally:
            self.race.retire()

    def _wait_for_slot(self) -> filelock.BaseFileLock | None:
        """The first free slot, in the order of arrival; None when told to stop while waiting."""
        folder = self.race.folder.parent.parent / ".slots"
        folder.mkdir(exist_ok=True)
        locks = [filelock.FileLock(folder / f"{i}.lock") for i in range(settings.slots())]
        while not (self.interrupted or self._read_wish()[0] == "stop"):
            if self._is_next():
                for lock in locks:
                    try:
                        lock.acquire(timeout=0)
                    except filelock.Timeout:
                        continue
                    return lock
            time.sleep(5 * POLL_S)
        return None

    def _is_next(self) -> bool:
        waiting = [(w.since, r.id) for r in races(self.race.folder.parent.parent) if (w := r.worker()) and w.phase == "queued"]
        return min(waiting, default=(self.since, self.race.id)) >= (self.since, self.race.id)

    def _train(self) -> int:
        self._announce("starting", 0)
        writers: list[EventWriter] = []
        try:
            events, writers = self._begin()
            for event in events:
                record = event.record()
                writers[event.run].write(record)
                if isinstance(event, Checkpoint):  # the record comes first: a kill in between falls back to the one before
                    save_state(self.runs[event.run].checkpoint, event.state)
                if isinstance(event, Compiled):
                    _note(self.runs[event.run], event)
                self.listener(event.run, record)
        except (ValueError, OSError, RuntimeError) as error:  # RuntimeError: torch's, out of memory among them
            self._fail(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)
            return 1
        finally:
            for writer in writers:
                writer.close()
        return int(any((last_record(run.events) or {}).get("type") == "diverged" for run in self.runs))

    def _begin(self) -> tuple[Iterator[Event], list[EventWriter]]:
        """Load what is needed, record the circumstances in meta.json, cut logs back to their checkpoints."""
        configs = [run.config for run in self.runs]
        corpus = corpora.load(configs[0].corpus)
        threads = self.runs[0].meta.get("threads") or threads_for(configs[0], len(corpus.vocabulary))
        torch.set_num_threads(threads)
        states = [load_state(run.checkpoint) if run.checkpoint.exists() else None for run in self.runs]
        for run, config in zip(self.runs, configs):
            kept = run.meta.get("corpus_sha256")
            if kept not in (None, corpus.sha256):
                raise ValueError(f"corpus {corpus.name} has changed since the run began (sha256 {corpus.sha256[:12]}, then {kept[:12]})")
            write_json(run.folder / "meta.json", run.meta | circumstances(config, corpus, threads))
        events = train(configs, corpus, resume=states, stop=self.must_stop)
        for run, state in zip(self.runs, states):
            cut_back(run.events, None if state is None else state.step)
        writers = [EventWriter(run.events) for run in self.runs]
        for index, state in enumerate(states):
            if state is not None:
                writers[index].write({"type": "resumed", "step": state.step})
        return events, writers

    def _fail(self, message: str) -> None:
        for index, run in enumerate(self.runs):
            last = last_record(run.events) or {"type": "", "step": 0}
            if last["type"] not in ("done", "diverged"):
                record = {"type": "failed", "step": last["step"], "message": message}
                _append(run, record)
                self.listener(index, record)


def _note(run: Run, event: Compiled) -> None:
    """The newest outcome of compilation, among the circumstances; the events have each."""
    news = {"compiled": event.ok, "compiled_from_step": event.step if event.ok else None, "compiled_message": event.message}
    write_json(run.folder / "meta.json", run.meta | news)


def _append(run: Run, record: dict[str, Any]) -> None:
    writer = EventWriter(run.events)
    writer.write(record)
    writer.close()


STEP_FLOPS_PER_THREAD = 2e9


def threads_for(config: RunConfig, vocab_size: int) -> int:
    """CPU threads for a race: what the configuration asks for, else its share of the machine, but no more than one for
    every two GFLOP of a step. Below that a second thread gains little, and loses much when the page needs the core."""
    if config.training.threads is not None:
        return config.training.threads
    tokens = config.training.batch_size * config.model.block_size
    work = 3 * flops_per_token(config.model, vocab_size) * tokens
    return max(1, min(settings.threads_per_race(), int(work / STEP_FLOPS_PER_THREAD)))


def circumstances(config: RunConfig, corpus: corpora.Corpus, threads: int) -> dict[str, Any]:
    """What a curve depends on beside its configuration, and what is known of the text, as plain data."""
    return {
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES} | {"python": platform.python_version()},
        "commit": _commit(),
        "machine": platform.machine(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "device": str(resolve_device(config.training.device)),
        "threads": threads,
        "flush_denormal": torch.set_flush_denormal(True),
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "corpus_sha256": corpus.sha256,
        "vocabulary": len(corpus.vocabulary),
        "entropies": corpus.levels,
    }


def _commit() -> str | None:
    """The checkout's commit, if this is one."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8", timeout=5).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def load_model(run: Run) -> tuple[GPT, corpora.Corpus, int]:
    """The model of a run's checkpoint, built from the run's own configuration, its corpus, and the step. A copy:
    sampling from it disturbs no training. ValueError when there is no whole checkpoint or the text has changed."""
    state = load_state(run.checkpoint)
    corpus = corpora.load(run.config.corpus)
    if run.meta.get("corpus_sha256") not in (None, corpus.sha256):
        raise ValueError(f"corpus {corpus.name} has changed since run {run.name} began; its characters no longer fit the model")
    model = GPT(run.config.model, len(corpus.vocabulary))
    restore_model(model, state.tensors)
    return model.eval(), corpus, state.step


def generate_text(run: Run, prompt: str, length: int, temperature: float, top_k: int | None, seed: int) -> tuple[str, int]:
    """``length`` characters after ``prompt`` from a run's newest checkpoint, and that checkpoint's step.

    ValueError for characters the corpus never had, no checkpoint, or a diverged model.
    """
    model, corpus, step = load_model(run)
    ids = corpus.encode_prompt(prompt)
    following = stream(model, torch.tensor([ids]), temperature=temperature, top_k=top_k, seed=seed)
    return corpus.vocabulary.decode([int(i) for i in islice(following, length)]), step


def warm_up() -> None:
    """Do once what the first run of a process would wait for: torch's late imports, and the default corpus.

    The steps taken for it are timed and kept, for the page's estimates.
    """
    speed.measure(settings.runs_dir(), threads=1)
    with suppress(OSError, ValueError):  # a machine without the default corpus still has a worker
        corpora.load(presets.tiny().corpus).entropies  # noqa: B018  (cached)


def wait() -> int:
    """A spare worker: warm up, then take one race, as a JSON line, from standard input; end with its owner."""
    warm_up()
    line = sys.stdin.readline()
    if not line.strip():
        return 0
    job = json.loads(line)
    log = os.open(Race(Path(job["race"])).log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    return main(Path(job["race"]), job["runs"])


def main(race_folder: Path, run_ids: Sequence[str]) -> int:
    """Train these runs of this race: what a worker process does."""
    race = Race(race_folder)
    worker = Worker(race, [Run(race_folder.parent.parent / run_id) for run_id in run_ids])
    signal.signal(signal.SIGTERM, worker.interrupt)
    signal.signal(signal.SIGINT, worker.interrupt)
    return worker.work()
