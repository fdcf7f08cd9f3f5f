"""Run folders: what is there, how a run stands, and what a person may do with it.

A run folder holds config.json (complete), meta.json (what and where), events.jsonl, checkpoint.safetensors, and
label.json (name and note, the only part a person edits). How a run stands is worked out from the events and from
whether its worker's process lives; no file's word is taken for it.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from nqlab.config import RunConfig
from nqlab.presets import arm_of
from nqlab.runs.files import read_json, write_bytes, write_json
from nqlab.runs.log import EventReader, last_record
from nqlab.runs.race import Race

Status = Literal[
    "queued",
    "starting",
    "running",
    "paused",
    "stopping",
    "stopped",
    "interrupted",
    "diverged",
    "failed",
    "did not learn",
    "finished",
    "broken",
]
ACTIVE: frozenset[str] = frozenset({"queued", "starting", "running", "paused", "stopping"})
RESUMABLE: frozenset[str] = frozenset({"stopped", "interrupted", "failed"})
START_GRACE_S = 20.0


@dataclass(frozen=True)
class Run:
    """One run folder."""

    folder: Path

    @property
    def id(self) -> str:
        """The folder's name."""
        return self.folder.name

    @cached_property
    def config(self) -> RunConfig:
        """The complete configuration; ValueError when the file is missing or not one."""
        try:
            return RunConfig.from_json((self.folder / "config.json").read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(f"run {self.id} has no readable config.json ({error.strerror}); delete it, or import it again") from None

    @property
    def meta(self) -> dict[str, Any]:
        """What was recorded at the start: versions, commit, device, threads, corpus hash, times."""
        return read_json(self.folder / "meta.json") or {}

    @property
    def label(self) -> dict[str, str]:
        """``name`` and ``note``."""
        return {"name": self.id, "note": ""} | (read_json(self.folder / "label.json") or {})

    @property
    def name(self) -> str:
        """What a person calls it."""
        return self.label["name"]

    @property
    def events(self) -> Path:
        """events.jsonl."""
        return self.folder / "events.jsonl"

    @property
    def checkpoint(self) -> Path:
        """checkpoint.safetensors."""
        return self.folder / "checkpoint.safetensors"

    @property
    def race(self) -> Race:
        """The race it belongs to."""
        return Race(self.folder.parent / ".races" / str(self.meta.get("race", "none")))

    def status(self) -> Status:
        """How the run stands, from its events and the life of its process."""
        try:
            _ = self.config
        except ValueError:
            return "broken"
        last = last_record(self.events)
        kind = last["type"] if last else ""
        if kind == "done":
            assert last is not None
            return "finished" if last.get("learned", True) else "did not learn"
        if kind == "diverged":
            return "diverged"
        worker = self.race.worker()
        if worker is not None and self.id in worker.runs:
            stopping = self.race.wish()[0] == "stop"
            return "stopping" if stopping and worker.phase != "queued" else worker.phase
        if self._just_launched():
            return "starting"
        return "stopped" if kind == "stopped" else "failed" if kind == "failed" else "interrupted"

    def _just_launched(self) -> bool:
        """Created or resumed a moment ago, and nothing has come of it yet: its worker is on the way."""
        launched = float(self.meta.get("launched", 0.0))
        written = self.events.stat().st_mtime if self.events.exists() else 0.0
        return written < launched and time.time() - launched < START_GRACE_S

    def summary(self) -> dict[str, Any]:
        """One line of a list, as plain data."""
        status = self.status()
        if status == "broken":
            return {"id": self.id, "name": self.name, "status": status}
        step, val_loss, loss = 0, None, None
        for record in EventReader(self.events).read():
            step = max(step, record["step"] + (record["type"] == "step"))
            val_loss = record.get("val_loss", val_loss)
            loss = record.get("loss", loss)
        config = self.config
        return {
            "id": self.id,
            "name": self.name,
            "status": status,
            "arm": arm_of(config),
            "corpus": config.corpus,
            "seed": config.seed,
            "learning_rate": config.training.learning_rate,
            "weight_decay": config.training.weight_decay,
            "step": step,
            "steps": config.training.steps,
            "loss": loss,
            "val_loss": val_loss,
            "hash": config.short_hash(),
            "race": self.meta.get("race"),
            "created": self.meta.get("created"),
            "note": self.label["note"],
        }

    def relabel(self, *, name: str | None = None, note: str | None = None) -> None:
        """Change what a person calls it, or says of it. ValueError for a blank name or one over 80 characters."""
        label = self.label
        if name is not None:
            if not name.strip() or len(name) > 80:
                raise ValueError(f"a name of {len(name.strip())} characters won't do; give 1 to 80")
            label["name"] = name.strip()
        if note is not None:
            label["note"] = note
        write_json(self.folder / "label.json", label)

    def curve_csv(self) -> str:
        """Step and evaluation events as CSV."""
        out = io.StringIO()
        fields = ["type", "step", "tokens", "elapsed_s", "loss", "val_loss", "learning_rate", "grad_norm"]
        writer = csv.DictWriter(out, fields, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(r for r in EventReader(self.events).read() if r["type"] in ("step", "evaluation"))
        return out.getvalue()

    def export(self) -> bytes:
        """The run folder as a zip, with the curve as CSV beside it."""
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(self.folder.iterdir()):
                if path.suffix != ".tmp":
                    archive.write(path, f"{self.id}/{path.name}")
            archive.writestr(f"{self.id}/curve.csv", self.curve_csv())
        return out.getvalue()

    def export_to(self, path: Path) -> None:
        """Write :meth:`export` to a file, whole or not at all."""
        write_bytes(path, self.export())


def runs(runs_dir: Path) -> list[Run]:
    """All runs, newest first; folders with a dot before their name are the store's own."""
    if not runs_dir.is_dir():
        return []
    found = (Run(Path(e.path)) for e in os.scandir(runs_dir) if e.is_dir() and not e.name.startswith("."))
    return sorted(found, key=lambda r: r.id, reverse=True)


def find(runs_dir: Path, text: str) -> Run:
    """The run with this id, this name, or an id or name that begins so. ValueError when none or several match."""
    everything = runs(runs_dir)
    for match in (
        [r for r in everything if text in (r.id, r.name)],
        [r for r in everything if r.id.startswith(text) or r.name.startswith(text)],
    ):
        if len(match) == 1:
            return match[0]
        if match:
            raise ValueError(f"{text!r} could be {', '.join(r.id for r in match[:5])}; give the id")
    raise ValueError(f"there is no run {text!r} in {runs_dir}; `nqlab runs list` shows what there is")


def delete(run: Run) -> None:
    """Move a run to the trash, from which :func:`undelete` brings it back. ValueError while it is active."""
    status = run.status()
    if status in ACTIVE:
        raise ValueError(f"run {run.name} is {status}; stop it first")
    trash = run.folder.parent / ".trash"
    trash.mkdir(exist_ok=True)
    run.folder.replace(trash / run.id)


def undelete(runs_dir: Path, run_id: str) -> Run:
    """Bring a deleted run back. ValueError when it is not in the trash."""
    place = runs_dir / ".trash" / run_id
    if run_id not in {p.name for p in place.parent.glob("*")}:
        raise ValueError(f"run {run_id!r} is not in the trash")
    place.replace(runs_dir / run_id)
    return Run(runs_dir / run_id)


def empty_trash(runs_dir: Path) -> int:
    """Delete for good what is in the trash; how many runs that were."""
    gone = list((runs_dir / ".trash").glob("*"))
    for folder in gone:
        shutil.rmtree(folder)
    return len(gone)


def active_races(runs_dir: Path) -> Iterator[Race]:
    """Races whose worker lives, or was started a moment ago."""
    seen = set()
    for run in runs(runs_dir):
        if run.race.id not in seen and run.status() in ACTIVE:
            seen.add(run.race.id)
            yield run.race
