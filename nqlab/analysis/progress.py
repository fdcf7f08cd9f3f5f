"""How far a study is: what has ended, what is under way, what failed, and how long the rest will take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from nqlab.analysis.estimate import race_s
from nqlab.analysis.figures import title_of
from nqlab.analysis.results import results_of_study
from nqlab.analysis.stability import Cell, axis_title, cells
from nqlab.config import RunConfig
from nqlab.runs.log import last_record
from nqlab.runs.store import Run
from nqlab.runs.study import ENDS, Study, StudyFolder
from nqlab.runs.sweep import sweeper, work
from nqlab.words import _


@dataclass(frozen=True)
class Standing:
    """A study at one moment. ``left_s`` is None before a cell of this sweep has ended, and while nobody fills it."""

    total: int
    ended: int
    filling: bool
    stopping: bool
    begun: bool
    running: tuple[tuple[Run, int], ...]
    failed: tuple[tuple[Run, str], ...]
    left_s: float | None

    @property
    def complete(self) -> bool:
        """Every cell has ended."""
        return self.ended == self.total

    @property
    def word(self) -> str:
        """How it stands, in a word of the reader's language."""
        if self.filling:
            return _("stopping") if self.stopping else _("being filled")
        return _("complete") if self.complete else _("stopped") if self.begun else _("not begun")


def standing(place: StudyFolder) -> Standing:
    """Work it out from the cells' events and from whether the sweep's process lives."""
    word = sweeper(place)
    ended: list[tuple[RunConfig, Run]] = []
    running, failed = [], []
    begun = False
    for config in place.configs:
        run = place.cell(config)
        last = last_record(run.events)
        if last is None:
            continue
        begun = True
        if last["type"] in ENDS:
            ended.append((config, run))
        elif last["type"] == "failed":
            failed.append((run, str(last.get("message", ""))))
        elif word is not None and last["type"] != "stopped":
            running.append((run, int(last["step"])))
    left = None if word is None else _left_s(place, ended, float(word["since"]))
    stopping = place.wish() == "stop"
    return Standing(len(place.configs), len(ended), word is not None, stopping, begun, tuple(running), tuple(failed), left)


def _left_s(place: StudyFolder, ended: Sequence[tuple[RunConfig, Run]], since: float) -> float | None:
    """The work that is left, at the rate of this sweep so far."""
    fresh = sum(work(config) for config, run in ended if run.events.stat().st_mtime > since)
    rest = sum(map(work, place.configs)) - sum(work(config) for config, _run in ended)
    return rest / fresh * (time.time() - since) if fresh else None


def cost_s(study: Study, vocab_size: int, tiny_step_s: float, workers: int) -> float:
    """About how long filling a study takes with so many processes of one thread, in seconds."""
    return race_s(list(study.cells()), vocab_size, tiny_step_s, 1) / workers


def overview(place: StudyFolder) -> list[dict[str, str]]:
    """A row a setting, a column an arm: seeds that have ended, their mean loss, and in words what failed."""
    found = cells(results_of_study(place))
    seeds = len(place.study.seeds)
    rows: dict[tuple[tuple[str, float], ...], dict[str, str]] = {}
    for cell in sorted(found, key=_shared):
        row = rows.setdefault(_shared(cell), {axis_title(axis): f"{value:g}" for axis, value in _shared(cell)})
        name = title_of(cell.arm)
        own = cell.value("bottleneck")
        row[f"{name} (R {own:g})" if "bottleneck" in "".join(place.study.grid) and own else name] = _words(cell, seeds)
    return list(rows.values())


def _shared(cell: Cell) -> tuple[tuple[str, float], ...]:
    return tuple((axis, value) for axis, value in cell.setting if axis != "bottleneck")


def _words(cell: Cell, seeds: int) -> str:
    text = f"{cell.mean:.3f} · {cell.n}/{seeds}"
    return text if cell.survived == cell.n else f"{text} · {cell.words}"
