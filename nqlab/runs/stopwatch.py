"""A latency measurement in the background: one at a time, in a process of its own, its readings in a file beside the runs.

``RUNS/.latency/readings.jsonl`` holds the records of :func:`nqlab.runs.latency.records`, the newest measurement's;
``process.json`` names the process, believed only while it lives; ``errors.log`` is what it complained of.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from nqlab.runs.files import read_json, write_json
from nqlab.runs.log import EventReader

_children: list[subprocess.Popen[bytes]] = []  # kept, so that their ends are noticed
_lock = threading.Lock()


def start(runs_dir: Path, preset: str, arms: Sequence[str], contexts: Sequence[int], repeats: int) -> None:
    """Begin a measurement; the readings of the one before are gone. ValueError while one is under way."""
    with _lock:
        if process(runs_dir) is not None:
            raise ValueError("a measurement is under way already; two at once would only measure each other: wait, or stop it")
        folder = _folder(runs_dir)
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "nqlab", "latency", "--json-lines", "--preset", preset, "--repeats", str(repeats)]
        for arm in arms:
            command += ["--arm", arm]
        for context in contexts:
            command += ["--context", str(context)]
        command += ["--runs-dir", str(runs_dir)]
        with (folder / "readings.jsonl").open("wb") as out, (folder / "errors.log").open("wb") as log:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=log, start_new_session=True)
        _children.append(child)
        write_json(folder / "process.json", {"pid": child.pid, "created": psutil.Process(child.pid).create_time()})


def stop(runs_dir: Path) -> None:
    """End the measurement after what it is at; its readings so far are kept. Nothing happens where none is under way."""
    one = process(runs_dir)
    if one is not None:
        one.terminate()


def process(runs_dir: Path) -> psutil.Process | None:
    """The process that measures, if it lives."""
    _children[:] = [child for child in _children if child.poll() is None]
    data = read_json(_folder(runs_dir) / "process.json") or {}
    try:
        found = psutil.Process(data["pid"])
        alive = abs(found.create_time() - data["created"]) < 1 and found.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, KeyError, TypeError, ValueError):
        return None
    return found if alive else None


def records(runs_dir: Path) -> list[dict[str, Any]]:
    """What the newest measurement has written so far; empty before the first."""
    return EventReader(_folder(runs_dir) / "readings.jsonl").read()


def complaint(runs_dir: Path) -> str:
    """The last line of what it complained of; empty where all is well."""
    try:
        lines = (_folder(runs_dir) / "errors.log").read_text(encoding="utf-8").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""


def _folder(runs_dir: Path) -> Path:
    return runs_dir / ".latency"
