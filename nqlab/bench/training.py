"""The lab's training step against the reference's, variant by variant, and the memory that training takes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from nqlab import presets
from nqlab.bench.harness import CORPUS, VARIANTS, Row, _row, _steps, _timed, sizes
from nqlab.bench.reference import ReferenceRun
from nqlab.corpus import load
from nqlab.runs.worker import threads_for
from nqlab.training.loop import train

# A process with what training needs and nothing else; its configuration comes on standard input. It prints its peak
# in kB. Linux's ru_maxrss won't do: it begins with what the parent had, which the child is for a moment.
ALONE = """
import pathlib, resource, sys
from nqlab.config import RunConfig
from nqlab.corpus import load
from nqlab.training.loop import train
config = RunConfig.from_json(sys.stdin.read())
for event in train(config, load(config.corpus)):
    if event.type == "step" and event.step == 4:
        break
status = pathlib.Path("/proc/self/status")
words = status.read_text(encoding="ascii", errors="replace").split() if status.exists() else []
peak = int(words[words.index("VmHWM:") + 1]) if words else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(peak // 1024 if sys.platform == "darwin" else peak)
"""


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


def memory_rows(size: str) -> list[Row]:
    """Peak resident memory of a process that makes five updates of this size and has loaded nothing else."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE], input=sizes()[size].to_json(), check=True, capture_output=True, text=True, encoding="utf-8"
    )
    peak = int(done.stdout) / 1024
    return [{"figure": "peak memory", "size": size, "variant": "linear", "value": peak, "unit": "MB", "spread": 0.0}]
