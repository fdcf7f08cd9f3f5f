"""Measurements: ratios inside one process, interleaved, medians over rounds with their spread.

A machine's clock wanders and other work comes and goes, so nothing is compared with a number of another day: the
reference and what is measured take turns, and each round gives one ratio.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from nqlab import presets
from nqlab.config import RunConfig, replace
from nqlab.training.events import Event, Step

Row = dict[str, Any]
CORPUS = "python-docs"
VARIANTS = ("linear", "nonlinear", "identity", "residual_linear", "bottleneck_linear")


def sizes() -> dict[str, RunConfig]:
    """T, S, M: the presets tiny, small, medium; L: 6 layers, C 384, context 256, batch 8."""
    large = replace(presets.gpu(), {"batch_size": 8, "dropout": 0.0})
    named = {"T": presets.tiny(), "S": presets.small(), "M": presets.medium(), "L": large}
    quiet = {"corpus": CORPUS, "steps": 1_000_000, "eval_interval": 1_000_000, "eval_windows": 2, "sample_interval": 0}
    return {name: replace(config, quiet | {"checkpoint_interval": 1_000_000}) for name, config in named.items()}


def _spread(values: Sequence[float]) -> float:
    """Half the distance between the quartiles."""
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / 2


def _row(figure: str, size: str, variant: str, values: Sequence[float], unit: str = "ratio") -> Row:
    name = "ratio" if unit == "ratio" else "value"
    return {"figure": figure, "size": size, "variant": variant, name: statistics.median(values), "unit": unit, "spread": _spread(values)}


def _steps(events: Iterator[Event], count: int) -> None:
    for _ in islice((e for e in events if isinstance(e, Step)), count):
        pass


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started
