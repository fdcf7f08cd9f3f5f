"""A study: which runs make a comparison. A JSON file; every run of it follows from the file.

Its folder, ``RUNS/.studies/NAME``, holds ``study.json`` and one folder a cell, ``cells/HASH``: a run folder whose
name is the hash of its configuration. A cell is finished when its events say so; nothing else is kept about it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from nqlab import presets
from nqlab.config import RunConfig, explain, replace
from nqlab.runs.files import read_json, write_json
from nqlab.runs.log import last_record
from nqlab.runs.store import Run

MAX_CELLS = 5000
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
ENDS = ("done", "diverged")


class Study(BaseModel):
    """Arms x grids x seeds over one base. ``baseline`` is the arm that the others are compared with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(description="lower-case letters, digits, - and _; the folder's name")
    question: str = Field("", description="what it asks, in one sentence")
    preset: str = "tiny"
    settings: dict[str, Any] = Field(default_factory=dict, description="what differs from the preset, dotted or bare")
    arms: tuple[str, ...] = ("linear", "nonlinear")
    baseline: str = "linear"
    grid: dict[str, tuple[Any, ...]] = Field(default_factory=dict, description="setting -> the values to try")
    seeds: tuple[int, ...] = (0, 1, 2)

    @field_validator("name")
    @classmethod
    def _speakable(cls, name: str) -> str:
        if not NAME.fullmatch(name):
            raise ValueError(f"the name {name!r} won't do for a folder; take lower-case letters, digits, '.', '-' and '_', at most 64")
        return name

    @model_validator(mode="after")
    def _whole(self) -> Study:
        if not self.arms or not self.seeds or not all(self.grid.values()):
            empty = "arms" if not self.arms else "seeds" if not self.seeds else next(k for k, v in self.grid.items() if not v)
            raise ValueError(f"the study has no {empty}; give at least one")
        for what, values in {"arms": self.arms, "seeds": self.seeds, **self.grid}.items():
            if len(set(map(str, values))) < len(values):
                raise ValueError(f"{what} {list(values)} names something twice; each value once")
        if self.baseline not in self.arms:
            raise ValueError(f"the baseline {self.baseline!r} is not among the arms {', '.join(self.arms)}; add it or choose another")
        if self.size > MAX_CELLS:
            raise ValueError(f"{self.size} cells are more than a study may have ({MAX_CELLS}); take fewer values or seeds")
        for _ in self.cells():
            pass  # every cell is a valid configuration, or this says which value is not
        return self

    @property
    def size(self) -> int:
        """Cells before equal ones are merged: an arm that does not read a setting ignores its grid."""
        count = len(self.arms) * len(self.seeds)
        for values in self.grid.values():
            count *= len(values)
        return count

    @property
    def base(self) -> RunConfig:
        """The configuration that all cells start from. A study evaluates at its preset's pace, writes every tenth
        step down, and samples nothing: none of that moves a loss."""
        quiet = {"log_interval": 10, "sample_interval": 0, "device": "cpu", "threads": 1}
        return replace(presets.preset(self.preset), quiet | self.settings)

    def cells(self) -> Iterator[RunConfig]:
        """The runs, seeds outermost, so that a study stopped early has its comparisons whole for some seeds; equal ones once."""
        seen: set[str] = set()
        base = self.base
        for seed, *values in itertools.product(self.seeds, *self.grid.values()):
            point = replace(base, dict(zip(self.grid, values)) | {"seed": seed})
            for arm in self.arms:
                config = presets.arm(point, arm)
                if config.short_hash() not in seen:
                    seen.add(config.short_hash())
                    yield config

    def to_json(self) -> str:
        """The study as indented JSON."""
        return self.model_dump_json(indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Study:
        """Inverse of :meth:`to_json`; ValueError says in one line what does not fit."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise ValueError(explain(error)) from None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Study:
        """A study from plain data; ValueError as :meth:`from_json`."""
        try:
            return cls.model_validate(dict(data))
        except ValidationError as error:
            raise ValueError(explain(error)) from None


class StudyFolder:
    """A study on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def study(self) -> Study:
        """ValueError names a file that is missing or no study."""
        return self._read()[0]

    @property
    def configs(self) -> tuple[RunConfig, ...]:
        """The study's cells."""
        return self._read()[1]

    def _read(self) -> tuple[Study, tuple[RunConfig, ...]]:
        path = self.folder / "study.json"
        try:
            stat = path.stat()
        except FileNotFoundError:
            raise ValueError(f"there is no study in {self.folder}") from None
        return _parsed(path, (stat.st_ino, stat.st_size, stat.st_mtime_ns))

    def command(self, wish: Literal["run", "stop"]) -> None:
        """Ask whoever fills this study to go on, or to stop."""
        write_json(self.folder / "control.json", {"command": wish})

    def wish(self) -> str:
        """What was asked last."""
        return str((read_json(self.folder / "control.json") or {}).get("command", "run"))

    def cell(self, config: RunConfig) -> Run:
        """The run folder of a cell, whether it is there or not."""
        return Run(self.folder / "cells" / config.short_hash())

    def ended(self, config: RunConfig) -> bool:
        """Whether the cell needs no more work: all its steps made, or diverged. One that failed is tried again."""
        last = last_record(self.cell(config).events)
        return last is not None and last["type"] in ENDS


@lru_cache(maxsize=64)
def _parsed(path: Path, _state: tuple[int, int, int]) -> tuple[Study, tuple[RunConfig, ...]]:
    """A study file and its cells, which take a while to check; the state of the file is only the cache's key."""
    study = read_study(path)
    return study, tuple(study.cells())


def studies(runs_dir: Path) -> list[StudyFolder]:
    """All studies here, by name."""
    return [StudyFolder(path.parent) for path in sorted((runs_dir / ".studies").glob("*/study.json"))]


def folder_of(runs_dir: Path, name: str) -> StudyFolder:
    """Where the study of this name is, or would be."""
    return StudyFolder(runs_dir / ".studies" / name)


def read_study(path: Path) -> Study:
    """A study file. ValueError names the file and what does not fit."""
    try:
        return Study.from_json(path.read_bytes())
    except FileNotFoundError:
        raise ValueError(f"there is no study file {path}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
