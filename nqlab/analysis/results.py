"""Finished runs as plain records, wherever they come from: run folders, a study, or a file that was shipped.

Everything that compares works on :class:`Result`; nothing here judges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np

from nqlab.analysis.curves import Array
from nqlab.config import RunConfig
from nqlab.model.budget import flops_per_token, parameters
from nqlab.presets import arm_of
from nqlab.runs.log import EventReader, FileState, state_of
from nqlab.runs.store import Run
from nqlab.runs.study import StudyFolder

Outcome = Literal["finished", "did not learn", "diverged", "unfinished"]


@dataclass(frozen=True)
class Result:
    """One run and how it ended.

    ``val_loss`` is the final validation loss in nats per character, ``halves`` the same over the even and the odd
    windows; None for a run that diverged or has not come to its last step. ``steps`` and ``losses`` are its
    validation curve. ``cpu_s`` is the processor time of all its updates, None where it was not measured.
    ``vocabulary`` and ``unigram`` (entropy, nats) are the corpus's. ``origin`` says where it was found.
    """

    config: RunConfig
    outcome: Outcome
    step: int
    val_loss: float | None
    halves: tuple[float, float] | None
    steps: tuple[int, ...]
    losses: tuple[float, ...]
    cpu_s: float | None
    vocabulary: int
    unigram: float
    origin: str = ""
    id: str = ""

    @cached_property
    def arm(self) -> str:
        """The arm this run belongs to."""
        return arm_of(self.config)

    @cached_property
    def flat(self) -> dict[str, Any]:
        """The configuration as dotted fields."""
        return self.config.flat()

    @cached_property
    def parameters(self) -> int:
        """Learned numbers."""
        return parameters(self.config.model, self.vocabulary)

    @cached_property
    def step_flops(self) -> float:
        """Matrix FLOPs of one training step: three forward passes."""
        tokens = self.config.training.batch_size * self.config.model.block_size
        return 3.0 * flops_per_token(self.config.model, self.vocabulary) * tokens

    @property
    def step_s(self) -> float | None:
        """Processor seconds of one update; None where unmeasured."""
        return self.cpu_s / self.step if self.cpu_s and self.step else None

    @property
    def counted_loss(self) -> float | None:
        """The loss a comparison counts: the final one; for a diverged run the unigram entropy, or its last loss where
        that is worse (a run that failed predicts no better than letter frequencies). None while unfinished."""
        if self.outcome == "diverged":
            return max([self.unigram, *self.losses[-1:]])
        return self.val_loss

    def counted_half(self, half: int) -> float | None:
        """As :attr:`counted_loss`, over the even (0) or odd (1) validation windows."""
        if self.outcome == "diverged":
            return self.counted_loss
        return None if self.halves is None else self.halves[half]

    def axis(self, name: str) -> Array:
        """The validation curve's x values: ``step``, ``tokens``, ``seconds`` (processor time) or ``flops``."""
        tokens = self.config.training.batch_size * self.config.model.block_size
        unit = {"step": 1.0, "tokens": float(tokens), "flops": self.step_flops, "seconds": self.step_s or float("nan")}[name]
        return np.asarray(self.steps, dtype=np.float64) * unit


def result_of(run: Run, origin: str = "") -> Result:
    """The result of a run folder, read again only when its events have changed. ValueError for a broken configuration."""
    return _read(run, origin, state_of(run.events))


@lru_cache(maxsize=5000)
def _read(run: Run, origin: str, _state: FileState) -> Result:
    """The state of the events file is only the cache's key."""
    config = run.config
    steps: list[int] = []
    losses: list[float] = []
    halves: tuple[float, float] | None = None
    end: dict[str, Any] = {}
    cpu_s: float | None = None
    for record in EventReader(run.events).read():
        if record["type"] == "evaluation":
            steps.append(record["step"])
            losses.append(record["val_loss"])
            halves = (record["val_halves"][0], record["val_halves"][1])
            cpu_s = record.get("cpu_s", cpu_s)
        end = record
    kind = end.get("type")
    outcome: Outcome = "unfinished"
    if kind == "done":
        outcome = "finished" if end.get("learned", True) else "did not learn"
    elif kind == "diverged":
        outcome = "diverged"
    whole = kind == "done"
    meta = run.meta
    return Result(
        config=config,
        outcome=outcome,
        step=int(end.get("step", 0)),
        val_loss=end["val_loss"] if whole else None,
        halves=halves if whole else None,
        steps=tuple(steps),
        losses=tuple(losses),
        cpu_s=cpu_s,
        vocabulary=int(meta.get("vocabulary", 65)),
        unigram=float(meta.get("entropies", {}).get("unigram", np.log(65))),
        origin=origin or run.name,
        id=run.id,
    )


def results_of(runs: Iterable[Run], origin: str = "") -> list[Result]:
    """The results of run folders; broken ones are left out, they say so in the list of runs."""
    return [result_of(run, origin) for run in runs if run.status() != "broken"]


def results_of_study(place: StudyFolder) -> list[Result]:
    """The cells of a study that have begun, in the study's order."""
    name = place.study.name
    return [result_of(run, name) for config in place.configs if (run := place.cell(config)).events.exists()]


def surviving(results: Sequence[Result]) -> tuple[int, int]:
    """How many of the runs that ended learnt, and how many ended."""
    ended = [r for r in results if r.outcome != "unfinished"]
    return sum(r.outcome == "finished" for r in ended), len(ended)
