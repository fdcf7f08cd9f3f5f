"""Measurements: ratios inside one process, interleaved, medians over rounds with their spread.

A machine's clock wanders and other work comes and goes, so nothing is compared with a number of another day: the
reference and what is measured take turns, and each round gives one ratio.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from nqlab import presets
from nqlab.bench.reference import ReferenceRun
from nqlab.config import RunConfig, replace
from nqlab.corpus import load
from nqlab.generate import stream
from nqlab.model.gpt import GPT
from nqlab.runs.worker import threads_for
from nqlab.training.events import Event, Step
from nqlab.training.loop import train

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


def training_rows(size: str, rounds: int = 9, seconds_a_turn: float = 0.4) -> list[Row]:
    """The reference's seconds a step over each variant's, and the nonlinear query's over the linear's."""
    config, corpus = sizes()[size], load(CORPUS)
    torch.set_num_threads(threads_for(config, len(corpus.vocabulary)))
    runs = {name: train(presets.arm(config, name), corpus) for name in VARIANTS}
    with tempfile.TemporaryDirectory() as folder:
        reference = ReferenceRun(config, corpus.ids[: corpus.split_at], len(corpus.vocabulary), Path(folder))
        for _ in range(3):
            reference.step()
        for run in runs.values():
            _steps(run, 3)
        count = max(1, round(seconds_a_turn / _timed(reference.step)))
        times: dict[str, list[float]] = {name: [] for name in ("reference", *VARIANTS)}
        for _ in range(rounds):
            times["reference"].append(_timed(lambda: [reference.step() for _ in range(count)]))
            for name, run in runs.items():
                times[name].append(_timed(lambda run=run: _steps(run, count)))  # type: ignore[misc]
    ratios = {name: [r / t for r, t in zip(times["reference"], times[name])] for name in VARIANTS}
    rows = [_row("training step, reference over ours", size, name, ratios[name]) for name in VARIANTS]
    cost = [n / t for n, t in zip(times["nonlinear"], times["linear"])]
    rows.append(_row("training step, over linear", size, "nonlinear", cost))
    rows.append(_row("training step, reference", size, "linear", [1000 * t / count for t in times["reference"]], "ms"))
    return rows


def generation_rows(size: str, rounds: int = 5) -> list[Row]:
    """Seconds without the cache over seconds with it, batch 1, until the context is full."""
    config = sizes()[size]
    torch.set_num_threads(threads_for(config, 65))
    rows = []
    for name in ("linear", "nonlinear", "identity"):
        model = GPT(presets.arm(config, name).model, 65).eval()
        prompt = torch.zeros(1, 1, dtype=torch.long)

        def write(cached: bool, model: GPT = model, prompt: torch.Tensor = prompt) -> None:
            for _ in islice(stream(model, prompt, use_cache=cached), config.model.block_size - 1):
                pass

        write(True)
        ratios = [_timed(lambda: write(False)) / _timed(lambda: write(True)) for _ in range(rounds)]
        rows.append(_row("generation, without cache over with", size, name, ratios))
    return rows


def start_rows(rounds: int = 5) -> list[Row]:
    """Seconds from Start to the first event on disk, with a spare worker waiting and without one."""
    from nqlab.runs import launch

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NQLAB_RUNS_DIR"] = folder
        runs_dir = Path(folder)
        for kind in ("spare", "cold"):
            seconds = []
            for _ in range(rounds):
                if kind == "spare":
                    (runs_dir / ".speed.json").unlink(missing_ok=True)
                    launch.prepare_spare()
                    while not (runs_dir / ".speed.json").exists():
                        time.sleep(0.05)
                    time.sleep(1.0)
                config = replace(presets.tiny(), {"corpus": CORPUS})
                seconds.append(_first_event(runs_dir, config))
            rows.append(_row(f"start to first event, {kind} worker", "T", "linear", seconds, "s"))
    return rows


def _first_event(runs_dir: Path, config: RunConfig) -> float:
    from nqlab.runs import launch

    started = time.perf_counter()
    race, (run,) = launch.start(runs_dir, [config])
    while not (run.events.exists() and run.events.stat().st_size):
        time.sleep(0.005)
    seconds = time.perf_counter() - started
    race.stop()
    while race.worker() is not None:
        time.sleep(0.02)
    return seconds


def tick_rows(rounds: int = 20) -> list[Row]:
    """Server time and bytes of one live tick for 5 runs of 2000 steps."""
    import json

    from nqlab.analysis.curves import curve_of
    from nqlab.analysis.figures import Line, loss_spec

    records = [_fake("step", k, loss=4 - k / 1000, grad_norm=1.0) for k in range(2000)]
    records += [_fake("evaluation", k, val_loss=4 - k / 1000) for k in range(0, 2001, 50)]
    lines = [Line(f"run-{name}", name, name, curve_of(records)) for name in VARIANTS]

    def tick() -> str:
        return json.dumps(loss_spec(lines, smoothing=0.8), separators=(",", ":"))

    size = len(tick())
    seconds = [1000 * _timed(tick) for _ in range(rounds)]
    return [
        _row("live tick, figure", "T", "5 runs of 2000 steps", seconds, "ms"),
        {"figure": "live tick, message", "size": "T", "variant": "5 runs of 2000 steps", "value": size / 1000, "unit": "kB", "spread": 0.0},
    ]


def _fake(kind: str, step: int, **more: float) -> Row:
    return {"type": kind, "step": step, "tokens": 1024 * step, "elapsed_s": 0.02 * step, **more}


def memory_rows(size: str) -> list[Row]:
    """Peak resident memory of a process that trains a few steps of this size."""
    script = (
        "import resource; from nqlab.bench.harness import sizes, _steps, CORPUS; from nqlab.training.loop import train; "
        f"from nqlab.corpus import load; _steps(train(sizes()[{size!r}], load(CORPUS)), 5); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, encoding="utf-8")
    peak = int(done.stdout) / 1024
    return [{"figure": "peak memory", "size": size, "variant": "linear", "value": peak, "unit": "MB", "spread": 0.0}]
