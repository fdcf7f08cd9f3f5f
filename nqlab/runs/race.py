"""A race as files: which runs advance together, what they are told to do, and which process does it.

``RUNS/.races/ID/race.json`` lists the runs; ``control.json`` is the wish (run, pause, stop) and the pace, written by anyone;
``worker.json`` is the worker's word about itself (process, phase, step), believed only while that process lives.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from nqlab.runs.files import read_json, write_json

Command = Literal["run", "pause", "stop"]
Phase = Literal["queued", "starting", "running", "paused", "stopping"]


@dataclass(frozen=True)
class Worker:
    """A living worker: its process, what it is at, the race's step, and the runs it advances."""

    pid: int
    phase: Phase
    step: int
    runs: tuple[str, ...]
    since: float


@dataclass(frozen=True)
class Race:
    """The folder of one race."""

    folder: Path

    @property
    def id(self) -> str:
        """The race's id."""
        return self.folder.name

    @property
    def info(self) -> dict[str, Any]:
        """race.json: ``name``, ``created``, ``runs`` (ids in order); empty when it is broken."""
        return read_json(self.folder / "race.json") or {}

    @property
    def log(self) -> Path:
        """What the worker printed; empty unless something went wrong."""
        return self.folder / "worker.log"

    # --- the wish

    def command(self, command: Command, until: int = 0) -> None:
        """Ask the worker to run, to pause once the race has come to step ``until``, or to stop."""
        write_json(self.folder / "control.json", {"command": command, "until": until, "pace": self.pace()})

    def set_pace(self, pace: float) -> None:
        """Ask for at most ``pace`` steps of the race a second, so that people can follow; 0 for as fast as it goes.

        ValueError for a pace below 0. What is computed is the same at every pace.
        """
        if not 0 <= pace < math.inf:
            raise ValueError(f"pace {pace} must be 0 or more steps a second; 0 is as fast as it goes")
        command, until = self.wish()
        write_json(self.folder / "control.json", {"command": command, "until": until, "pace": pace})

    def pace(self) -> float:
        """The most steps a second that are asked for; 0 where nobody asked."""
        pace = (read_json(self.folder / "control.json") or {}).get("pace")
        return float(pace) if isinstance(pace, int | float) and pace > 0 else 0.0

    def wish(self) -> tuple[Command, int]:
        """What the worker is asked to do; (run, 0) where nobody said anything."""
        data = read_json(self.folder / "control.json") or {}
        command = data.get("command")
        return (command if command in ("run", "pause", "stop") else "run"), int(data.get("until") or 0)

    def pause(self) -> None:
        """Pause after the update in progress."""
        self.command("pause")

    def stop(self) -> None:
        """Stop after the update in progress; everything is kept."""
        self.command("stop")

    def step_once(self) -> None:
        """Advance every run of a paused race by one update; pause a race that is running."""
        worker = self.worker()
        self.command("pause", worker.step + 1 if worker and worker.phase == "paused" else 0)

    # --- the worker

    def announce(self, phase: Phase, step: int, runs: list[str], since: float) -> None:
        """Called by the worker about itself."""
        me = psutil.Process()
        word = {"pid": os.getpid(), "created": me.create_time(), "phase": phase, "step": step, "runs": runs, "since": since}
        write_json(self.folder / "worker.json", word)

    def retire(self) -> None:
        """Called by the worker when it ends in good order."""
        (self.folder / "worker.json").unlink(missing_ok=True)

    def worker(self) -> Worker | None:
        """The worker, if its process lives; another process that got the same number is not it."""
        data = read_json(self.folder / "worker.json") or {}
        try:
            process = psutil.Process(data["pid"])
            if abs(process.create_time() - data["created"]) > 1 or process.status() == psutil.STATUS_ZOMBIE:
                return None
            return Worker(data["pid"], data["phase"], data["step"], tuple(data["runs"]), data["since"])
        except (psutil.Error, KeyError, TypeError, ValueError):
            return None


def races(runs_dir: Path) -> list[Race]:
    """All races, newest first."""
    return sorted((Race(p) for p in (runs_dir / ".races").glob("*") if (p / "race.json").exists()), key=lambda r: r.id, reverse=True)
