"""How fast this machine trains: one small measurement by a spare worker, kept beside the runs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from nqlab import presets
from nqlab.config import replace
from nqlab.corpus import load
from nqlab.runs.files import read_json, write_json


def measure(runs_dir: Path, threads: int) -> float:
    """Seconds of a step of the tiny preset's linear run, measured now on this thread count, and kept.

    The least of a dozen: what else the machine does meanwhile only adds.
    """
    import torch

    from nqlab.training.events import Step
    from nqlab.training.loop import train

    torch.set_num_threads(threads)
    config = replace(presets.tiny(), {"corpus": "python-docs", "steps": 14, "sample_interval": 0, "eval_windows": 2})
    times = [e.elapsed_s for e in train(config, load("python-docs")) if isinstance(e, Step)]
    least = min(b - a for a, b in pairwise(times[2:]))
    runs_dir.mkdir(parents=True, exist_ok=True)
    write_json(runs_dir / ".speed.json", {"threads": threads, "tiny_step_s": least})
    return least


def measured(runs_dir: Path) -> float | None:
    """The kept measurement; None before the first."""
    data = read_json(runs_dir / ".speed.json")
    return float(data["tiny_step_s"]) if isinstance(data, dict) and "tiny_step_s" in data else None
