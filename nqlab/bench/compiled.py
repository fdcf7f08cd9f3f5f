"""What compiling the update gains over the reference step, and how long it takes to be ready beside a run."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from nqlab.bench.harness import CORPUS, Row, _row, _steps, _timed, sizes
from nqlab.bench.reference import ReferenceRun
from nqlab.config import RunConfig, replace
from nqlab.corpus import load
from nqlab.runs.worker import threads_for
from nqlab.training.device import check_dtype, resolve_device
from nqlab.training.events import Compiled, Event, Step
from nqlab.training.loop import train

FIGURE = "training step, reference over ours"
FORMATS = {"float32, compiled": ("float32", True), "bfloat16": ("bfloat16", False), "bfloat16, compiled": ("bfloat16", True)}


def compiled_rows(size: str, rounds: int = 9, seconds_a_turn: float = 0.4) -> list[Row]:
    """The reference's seconds a step over ours, compiled and in bfloat16, and the seconds until a run is compiled.

    Cold is with an empty cache of torch's compiler, warm with what the build before left there. What this machine
    cannot do is a row with the reason, ``absent``, in place of a number.
    """
    config = replace(sizes()[size], {"device": "cpu"})
    torch.set_num_threads(threads_for(config, len(load(CORPUS).vocabulary)))
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        try:
            return _build_rows(size, config) + _step_rows(size, config, Path(folder), rounds, seconds_a_turn)
        finally:
            del os.environ["TORCHINDUCTOR_CACHE_DIR"]
            if before is not None:
                os.environ["TORCHINDUCTOR_CACHE_DIR"] = before


def _build_rows(size: str, config: RunConfig) -> list[Row]:
    """Seconds from a run's first update until it is compiled, while it trains."""
    rows = []
    for kind in ("cold", "warm"):
        try:
            _, seconds = _compiled(config)
            rows.append({"figure": "training until compiled", "size": size, "variant": kind, "value": seconds, "unit": "s", "spread": 0.0})
        except ValueError as error:
            rows.append(_absent("training until compiled", size, kind, str(error), "s"))
    return rows


def _compiled(config: RunConfig) -> tuple[Iterator[Event], float]:
    """A run that is compiled from here on, and the seconds that took; ValueError when it does not come to that."""
    events = train(replace(config, {"compile": True}), load(CORPUS))
    next(e for e in events if isinstance(e, Step))
    started = time.perf_counter()
    news = next(e for e in events if isinstance(e, Compiled))
    if not news.ok:
        raise ValueError(news.message)
    return events, time.perf_counter() - started


def _step_rows(size: str, config: RunConfig, folder: Path, rounds: int, seconds_a_turn: float) -> list[Row]:
    corpus = load(CORPUS)
    runs: dict[str, Iterator[Event]] = {}
    absent = []
    for name, (dtype, compiled) in FORMATS.items():
        wanted = replace(config, {"dtype": dtype})
        try:
            check_dtype(wanted.training, resolve_device("cpu"))
            runs[name] = _compiled(wanted)[0] if compiled else train(wanted, corpus)
        except ValueError as error:
            absent.append(_absent(FIGURE, size, f"linear, {name}", str(error), "ratio"))
    reference = ReferenceRun(config, corpus.ids[: corpus.split_at], len(corpus.vocabulary), folder)
    for _ in range(3):
        reference.step()
    for run in runs.values():
        _steps(run, 3)
    count = max(1, round(seconds_a_turn / _timed(reference.step)))
    ratios: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        theirs = _timed(lambda: [reference.step() for _ in range(count)])
        for name, run in runs.items():
            ratios[name].append(theirs / _timed(lambda run=run: _steps(run, count)))  # type: ignore[misc]
    return [_row(FIGURE, size, f"linear, {name}", values) for name, values in ratios.items()] + absent


def _absent(figure: str, size: str, variant: str, why: str, unit: str) -> Row:
    return {"figure": figure, "size": size, "variant": variant, "absent": why, "unit": unit}
