"""What a viewer waits for: a run's first event, and a tick of the live chart."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np

from nqlab import presets
from nqlab.bench.harness import CORPUS, VARIANTS, Row, _row, _timed
from nqlab.config import RunConfig, replace


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
    """Server time and bytes of one live tick for 5 runs of 2000 steps, smoothed, whose losses waver as real ones do."""
    from nqlab.analysis.curves import curve_of
    from nqlab.analysis.figures import Line, as_message, loss_spec

    noise = np.random.default_rng(0).normal(scale=0.1, size=(len(VARIANTS), 2000))
    lines = [Line(f"run-{name}", name, name, curve_of(_records(waver))) for name, waver in zip(VARIANTS, noise)]

    def tick() -> str:
        return as_message(loss_spec(lines, smoothing=0.8))

    size = len(tick())
    seconds = [1000 * _timed(tick) for _ in range(rounds)]
    return [
        _row("live tick, figure", "T", "5 runs of 2000 steps", seconds, "ms"),
        {"figure": "live tick, message", "size": "T", "variant": "5 runs of 2000 steps", "value": size / 1000, "unit": "kB", "spread": 0.0},
    ]


def _records(waver: np.ndarray) -> list[Row]:
    steps = [_fake("step", k, loss=4 - k / 1000 + float(off), grad_norm=1.0) for k, off in enumerate(waver)]
    return steps + [_fake("evaluation", k, val_loss=4 - k / 1000) for k in range(0, len(waver) + 1, 50)]


def _fake(kind: str, step: int, **more: float) -> Row:
    return {"type": kind, "step": step, "tokens": 1024 * step, "elapsed_s": 0.02 * step, **more}
