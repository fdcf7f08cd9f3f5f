"""Run folders: what is there, how a run stands, and what a person may do with it.

A run folder holds config.json (complete), meta.json (what and where), events.jsonl, checkpoint.safetensors, and
label.json (name, note and tags, the only part a person edits). How a run stands is worked out from the events and from
whether its worker's process lives; no file's word is taken for it.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

from nqlab.config import RunConfig
from nqlab.presets import arm_of
from nqlab.runs.files import read_json, write_json
from nqlab.runs.log import EventReader, FileState, last_record, state_of
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
MAX_NAME = 80
MAX_TAGS, MAX_TAG = 20, 30


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
    def label(self) -> dict[str, Any]:
        """``name``, ``note`` and ``tags`` (a list), whatever stands in the file."""
        kept = read_json(self.folder / "label.json") or {}
        tags = kept.get("tags")
        words = {"name": str(kept.get("name", self.id)), "note": str(kept.get("note", ""))}
        return words | {"tags": [str(tag) for tag in tags] if isinstance(tags, list) else []}

    @property
    def name(self) -> str:
        """What a person calls it."""
        return str(self.label["name"])

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
        step, loss, val_loss = _newest(self.events, state_of(self.events))
        config, label = self.config, self.label
        return {
            "id": self.id,
            "name": label["name"],
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
            "note": label["note"],
            "tags": label["tags"],
        }

    def relabel(self, *, name: str | None = None, note: str | None = None, tags: Iterable[str] | None = None) -> None:
        """Change what a person calls it, says of it, or files it under; ``tags`` take the place of those it has.

        ValueError for a blank name or one over 80 characters, for more than 20 tags, and for a tag that is blank or over
        30 characters.
        """
        label = self.label
        if name is not None:
            label["name"] = checked_name(name)
        if note is not None:
            label["note"] = note
        if tags is not None:
            label["tags"] = checked_tags(tags)
        write_json(self.folder / "label.json", label)


@lru_cache(maxsize=5000)
def _newest(events: Path, _state: FileState) -> tuple[int, float | None, float | None]:
    """Updates made, newest training loss, newest validation loss; the state of the file is only the cache's key."""
    step, loss, val_loss = 0, None, None
    for record in EventReader(events).read():
        step = max(step, record["step"] + (record["type"] == "step"))
        loss = record.get("loss", loss)
        val_loss = record.get("val_loss", val_loss)
    return step, loss, val_loss


def checked_name(name: str) -> str:
    """The name without blanks around it; ValueError says what a name must be."""
    if not name.strip() or len(name) > MAX_NAME:
        raise ValueError(f"a name of {len(name.strip())} characters won't do; give 1 to {MAX_NAME}")
    return name.strip()


def checked_tags(tags: Iterable[str]) -> list[str]:
    """The tags without blanks around them, each once; ValueError says what tags must be."""
    kept = list(dict.fromkeys(tag.strip() for tag in tags))
    for tag in kept:
        if not 1 <= len(tag) <= MAX_TAG:
            raise ValueError(f"the tag {tag!r} has {len(tag)} characters; give 1 to {MAX_TAG}")
    if len(kept) > MAX_TAGS:
        raise ValueError(f"{len(kept)} tags are too many for one run; give at most {MAX_TAGS}")
    return kept


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
    """Move a run to the trash, from which :func:`undelete` brings it back. ValueError while it is active.

    A run of the same id that lies there already, deleted before this one was imported, makes room.
    """
    status = run.status()
    if status in ACTIVE:
        raise ValueError(f"run {run.name} is {status}; stop it first")
    trash = run.folder.parent / ".trash"
    trash.mkdir(exist_ok=True)
    if run.folder.exists() and (trash / run.id).exists():
        shutil.rmtree(trash / run.id)
    run.folder.replace(trash / run.id)


def undelete(runs_dir: Path, run_id: str) -> Run:
    """Bring a deleted run back. ValueError when it is not in the trash, or has been imported again meanwhile."""
    place = runs_dir / ".trash" / run_id
    if run_id not in {p.name for p in place.parent.glob("*")}:
        raise ValueError(f"run {run_id!r} is not in the trash")
    if (runs_dir / run_id).exists():
        raise ValueError(f"run {run_id!r} is here again, imported; delete it first to bring the one in the trash back")
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
