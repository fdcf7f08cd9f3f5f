"""Characters a second on a device, variant by variant: what a GPU is worth, without a reference to compare with."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch

from nqlab import presets
from nqlab.bench.harness import CORPUS, VARIANTS, Row, _row
from nqlab.config import RunConfig, replace
from nqlab.corpus import load
from nqlab.training.device import has_bfloat16, resolve_device
from nqlab.training.events import Event, Step
from nqlab.training.loop import train

WARM_UP = 2  # logged steps of each variant before its clock runs


def device_rows(name: str, rounds: int = 5, seconds_a_turn: float | None = None) -> list[Row]:
    """Train every variant of the ``gpu`` preset in bfloat16, in turns of fixed time: characters a second, and over linear's.

    On a CPU the ``tiny`` preset stands in, in turns of half a second, and float32 where the CPU lacks bfloat16.
    ValueError for a device that is not there. On a GPU it takes five variants times five turns of six seconds, and the start.
    """
    device = resolve_device(name)
    config = _config_for(device)
    seconds = seconds_a_turn or (0.5 if device.type == "cpu" else 6.0)
    runs = {variant: train(presets.arm(config, variant), load(CORPUS)) for variant in VARIANTS}
    for run in runs.values():
        _tokens(run, logged=WARM_UP)
    rates: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for _ in range(rounds):
        for variant, run in runs.items():
            rates[variant].append(_rate(run, seconds))
    figure, size = f"training on {device.type}, {config.training.dtype}", "tiny" if device.type == "cpu" else "gpu"
    rows = [_row(f"{figure}, characters a second", size, variant, rates[variant], "1/s") for variant in VARIANTS]
    over = {variant: [r / base for r, base in zip(rates[variant], rates["linear"])] for variant in VARIANTS[1:]}
    return rows + [_row(f"{figure}, over linear", size, variant, over[variant]) for variant in VARIANTS[1:]]


def _config_for(device: torch.device) -> RunConfig:
    preset = presets.tiny() if device.type == "cpu" else presets.gpu()
    dtype = "bfloat16" if has_bfloat16(device) else "float32"
    endless = {"steps": 1_000_000, "eval_interval": 1_000_000, "checkpoint_interval": 1_000_000, "sample_interval": 0}
    return replace(preset, endless | {"corpus": CORPUS, "eval_windows": 2, "device": device.type, "dtype": dtype})


def _tokens(run: Iterator[Event], logged: int) -> int:
    """Characters seen at the last of so many logged steps. Their loss is a number by then, so the device has done them."""
    for _ in range(logged):
        step = next(e for e in run if isinstance(e, Step))
    return step.tokens


def _rate(run: Iterator[Event], seconds: float) -> float:
    """Characters a second over a turn of at least that long, from one logged step to another."""
    first = _tokens(run, logged=1)
    started = time.perf_counter()
    while True:
        last, now = _tokens(run, logged=1), time.perf_counter()
        if now - started >= seconds:
            return (last - first) / (now - started)
