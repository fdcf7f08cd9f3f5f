"""A sweep over seeds: one single-threaded process a core, against reference runs in turn on all cores."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from nqlab import presets, settings
from nqlab.bench.harness import Row, _row, _timed, sizes
from nqlab.bench.reference import ReferenceRun
from nqlab.config import RunConfig, replace
from nqlab.corpus import load

SEEDS = 8
STEPS = {"T": 150, "S": 40, "M": 10, "L": 3}  # of each run here; a whole run would take minutes
WHOLE = {"T": presets.tiny, "S": presets.small, "M": presets.medium, "L": presets.gpu}  # how many steps such a run has

# A process's share of the sweep: configurations on standard input, one a line; it prints the seconds of their updates.
SHARE = """
import sys, torch
from nqlab.config import RunConfig
from nqlab.corpus import load
from nqlab.training.loop import train
torch.set_num_threads(1)
seconds = 0.0
for line in sys.stdin:
    config = RunConfig.from_json(line)
    *_, done = train(config, load(config.corpus))
    seconds += done.elapsed_s
print(seconds)
"""


@dataclass(frozen=True)
class _Round:
    """Seconds of the reference runs in turn, of the sweep, and of the updates alone in its slowest process."""

    reference_s: float
    sweep_s: float
    updates_s: float

    def ratio(self, longer: float = 1.0) -> float:
        """The reference's time over the sweep's, were each run that many times longer: more updates, the same start-up."""
        return longer * self.reference_s / (self.sweep_s + (longer - 1) * self.updates_s)


def sweep_rows(size: str, rounds: int = 3, steps: int | None = None) -> list[Row]:
    """Reference runs in turn over processes side by side: as measured on short runs, and reckoned for whole ones.

    The reference's process runs already; the sweep's processes are started within the measurement.
    """
    steps = steps or STEPS[size]
    config = replace(sizes()[size], {"steps": steps, "checkpoint_interval": steps, "device": "cpu"})
    configs = [replace(config, {"seed": seed}) for seed in range(SEEDS)]
    torch.set_num_threads(settings.cores())
    found = [_round(configs) for _ in range(rounds)]
    whole = WHOLE[size]().training.steps
    figure = f"sweep of {SEEDS} seeds, reference in turn over a process a core"
    return [
        _row(figure, size, f"linear, {steps} steps, start-up included", [r.ratio() for r in found]),
        _row(figure, size, f"linear, reckoned for {whole} steps", [r.ratio(whole / steps) for r in found]),
    ]


def _round(configs: list[RunConfig]) -> _Round:
    reference_s = _timed(lambda: _train_references(configs))
    updates: list[float] = []
    sweep_s = _timed(lambda: updates.extend(_sweep(configs)))
    return _Round(reference_s, sweep_s, max(updates))


def _train_references(configs: list[RunConfig]) -> None:
    corpus = load(configs[0].corpus)
    with tempfile.TemporaryDirectory() as folder:
        for config in configs:
            run = ReferenceRun(config, corpus.ids[: corpus.split_at], len(corpus.vocabulary), Path(folder))
            for _ in range(config.training.steps):
                run.step()


def _sweep(configs: list[RunConfig]) -> list[float]:
    """Train all, dealt out to one process a core; each process's seconds of updates."""
    shares = [configs[i :: settings.cores()] for i in range(min(settings.cores(), len(configs)))]
    processes = [
        subprocess.Popen([sys.executable, "-c", SHARE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
        for _ in shares
    ]
    try:
        for process, share in zip(processes, shares):
            assert process.stdin is not None
            process.stdin.write("".join(c.resolved().model_dump_json() + "\n" for c in share))
            process.stdin.close()
            process.stdin = None  # or communicate would flush it
        seconds = [float(process.communicate()[0] or "nan") for process in processes]
    finally:
        for process in processes:
            process.kill()  # those that an interruption or an error left at work
            process.wait()
    if failed := [process for process in processes if process.returncode]:
        raise OSError(f"{len(failed)} of {len(processes)} processes of the sweep failed; their messages are above")
    return seconds
