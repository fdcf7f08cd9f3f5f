"""A run's events as arrays: what charts and tables are made from. Losses in nats per character."""

from __future__ import annotations

import threading
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nqlab.runs.log import EventReader, Record

MAX_POINTS = 1000  # a curve; as many as a wide chart has pixels
Array = NDArray[np.float64]
Load = list[list[float]]


@dataclass
class Curve:
    """The training curve (one entry a logged step) and the validation curve (one an evaluation) of a run.

    ``loads`` has, for models with a mixture of experts alone, each expert's share of the characters of a logged step's
    batch, layer by layer.
    """

    train: dict[str, list[float]] = field(default_factory=lambda: {k: [] for k in ("step", "tokens", "elapsed_s", "loss", "grad_norm")})
    val: dict[str, list[float]] = field(default_factory=lambda: {k: [] for k in ("step", "tokens", "elapsed_s", "val_loss")})
    sample: tuple[int, str] | None = None
    samples: list[tuple[int, str]] = field(default_factory=list)
    loads: list[tuple[int, Load]] = field(default_factory=list)
    end: Record | None = None

    @property
    def step(self) -> int:
        """Updates made."""
        return int(max((self.train["step"] or [-1])[-1] + 1, (self.val["step"] or [0])[-1]))

    @property
    def elapsed_s(self) -> float:
        """Seconds of the run's own optimiser steps."""
        return (self.train["elapsed_s"] or [0.0])[-1]

    def last(self, name: str) -> float | None:
        """The newest ``loss``, ``grad_norm`` or ``val_loss``; None before the first."""
        values = self.val[name] if name == "val_loss" else self.train[name]
        return values[-1] if values else None

    def until(self, step: int) -> Curve:
        """The curve as it was after ``step`` updates; its end is there only from the last of them on."""

        def cut(part: dict[str, list[float]], updates: int) -> dict[str, list[float]]:
            kept = bisect_right(part["step"], step - updates)
            return {name: values[:kept] for name, values in part.items()}

        samples = [sample for sample in self.samples if sample[0] <= step]
        loads = [load for load in self.loads if load[0] < step]
        end = self.end if step >= self.step else None
        return Curve(cut(self.train, 1), cut(self.val, 0), samples[-1] if samples else None, samples, loads, end)

    def load(self, last: int = 20) -> Load:
        """Each expert's share over the ``last`` logged steps, layer by layer; empty for a model without experts."""
        if not self.loads:
            return []
        found: Load = np.mean([load for _step, load in self.loads[-last:]], axis=0).tolist()
        return found

    def tokens_per_second(self) -> float | None:
        """Over the last 50 logged steps; None before the second."""
        tokens, seconds = self.train["tokens"][-50:], self.train["elapsed_s"][-50:]
        if len(tokens) < 2 or seconds[-1] <= seconds[0]:
            return None
        return (tokens[-1] - tokens[0]) / (seconds[-1] - seconds[0])

    def add(self, record: Record) -> None:
        """Take one event in."""
        kind = record["type"]
        part = {"step": self.train, "evaluation": self.val}.get(kind)
        if part is not None:
            for name, values in part.items():
                values.append(record[name])
            if "expert_load" in record:
                self.loads.append((record["step"], record["expert_load"]))
        elif kind == "sample":
            self.samples.append((record["step"], record["text"]))
            self.sample = self.samples[-1]
        self.end = record if kind in ("done", "diverged", "failed", "stopped") else None


def curve_of(records: list[Record]) -> Curve:
    """The curve of some events."""
    curve = Curve()
    for record in records:
        curve.add(record)
    return curve


class CurveCache:
    """Curves of run folders, read on from where the last look ended; one for a process, used by many threads."""

    def __init__(self, size: int = 200) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._entries: dict[Path, tuple[EventReader, Curve, int]] = {}

    def get(self, events: Path) -> Curve:
        """The curve of an events.jsonl as it is now."""
        with self._lock:
            fresh = (EventReader(events), Curve(), 0)
            reader, curve, taken = self._entries.pop(events, fresh)
            generation = reader.generation
            records = reader.read()
            if reader.generation != generation:
                curve, taken = Curve(), 0
            for record in records[taken:]:
                curve.add(record)
            self._entries[events] = (reader, curve, len(records))
            while len(self._entries) > self._size:
                self._entries.pop(next(iter(self._entries)))
            return curve


def smooth(values: Array, factor: float) -> Array:
    """Exponential moving average, debiased: y_k = sum_j f^(k-j) x_j / sum_j f^(k-j); factor 0 changes nothing."""
    if factor <= 0 or len(values) == 0:
        return values
    return pd.Series(values).ewm(alpha=1 - factor, adjust=True).mean().to_numpy()


def decimate(x: Array, y: Array, most: int = MAX_POINTS) -> tuple[Array, Array]:
    """At most ``most`` of the points, chosen so that the picture stays the same (MinMaxLTTB); short curves whole."""
    if len(x) <= most:
        return x, y
    from tsdownsample import MinMaxLTTBDownsampler

    chosen = MinMaxLTTBDownsampler().downsample(np.ascontiguousarray(x), np.ascontiguousarray(y), n_out=most)
    return x[chosen], y[chosen]


def numbers(values: list[Any]) -> Array:
    """As float64."""
    return np.asarray(values, dtype=np.float64)
