"""What a class costs the trainer: steps a second of a race with thirty open pages, against none, in turns in one run.

The app is served as ever, in a process of its own; the pages are sessions that speak its protocol
(:mod:`nqlab.bench.viewers`), with the lowest priority, because in a class browsers run on other machines.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from nqlab import presets
from nqlab.bench.harness import CORPUS, Row, _row
from nqlab.config import replace
from nqlab.runs import launch
from nqlab.runs.log import last_record
from nqlab.runs.race import Race
from nqlab.runs.store import Run

ROOT = Path(__file__).parents[2]
ARMS = ("linear", "nonlinear", "identity")
SETTLE_S = 2.0


def room_rows(count: int = 30, rounds: int = 9, seconds: float = 8.0) -> list[Row]:
    """The share of its steps a second that the trainer keeps, and whether every page came along.

    Args:
        count: Open pages on one race.
        rounds: Pairs of a stretch with them and one without.
        seconds: Length of a stretch.

    RuntimeError when a page has not advanced in every stretch with pages.
    """
    shares, ticks = [], []
    with (
        tempfile.TemporaryDirectory() as name,
        _race(folder := Path(name)) as (race, runs),
        _served(folder) as address,
        _viewers(address, f"race={race.id}", count) as say,
    ):
        say("open")
        for _ in range(rounds):
            say("go")
            time.sleep(SETTLE_S)
            before = say("look")
            watched = _rate(runs[-1], seconds)
            after = say("look")
            if asleep := sum(b["step"] <= a["step"] for a, b in zip(before, after)):
                raise RuntimeError(f"{asleep} of {count} pages did not advance in {seconds:g} s")
            ticks += [(b["ticks"] - a["ticks"]) / seconds for a, b in zip(before, after)]
            say("rest")
            time.sleep(SETTLE_S)
            shares.append(watched / _rate(runs[-1], seconds))
    what = f"{count} pages, race of {len(ARMS)}"
    return [
        _row("steps a second with pages open, over without", "T", what, shares),
        _row("updates of a page", "T", what, ticks, "a second"),
    ]


def _rate(run: Run, seconds: float) -> float:
    """Steps a second of a race's last run."""
    started, before = time.perf_counter(), _step(run)
    time.sleep(seconds)
    return (_step(run) - before) / (time.perf_counter() - started)


def _step(run: Run) -> int:
    return int((last_record(run.events) or {"step": 0})["step"])


@contextmanager
def _race(folder: Path) -> Iterator[tuple[Race, list[Run]]]:
    """A race that goes on for as long as it is looked at."""
    os.environ["NQLAB_RUNS_DIR"] = str(folder)
    base = replace(presets.tiny(), {"corpus": CORPUS, "steps": 1_000_000, "checkpoint_interval": 1000})
    race, runs = launch.start(folder, [presets.arm(base, arm) for arm in ARMS])
    try:
        while last_record(runs[-1].events) is None:
            time.sleep(0.1)
        yield race, runs
    finally:
        race.stop()
        launch.wait_for_children()


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """The address of the app's websocket, with the runs in ``folder``."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    with (folder / ".server.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"NQLAB_RUNS_DIR": str(folder)}, stdout=log, stderr=log)
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"ws://localhost:{port}/_stcore/stream"
    finally:
        server.terminate()
        server.wait(30)


@contextmanager
def _viewers(address: str, query: str, count: int) -> Iterator[Any]:
    """``say(word)`` to a process that keeps ``count`` open pages; what it answers."""
    command = [sys.executable, "-m", "nqlab.bench.viewers", address, query, str(count)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    psutil.Process(process.pid).nice(19)
    assert process.stdin is not None
    assert process.stdout is not None
    writer, reader = process.stdin, process.stdout

    def say(word: str) -> list[dict[str, int]]:
        writer.write(word + "\n")
        writer.flush()
        found: list[dict[str, int]] = json.loads(reader.readline())
        return found

    try:
        yield say
    finally:
        writer.close()
        process.wait(30)
        reader.close()
