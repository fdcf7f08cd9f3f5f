"""A small study, filled, for pages of results: two variants, three rates, one of which diverges."""

from __future__ import annotations

from pathlib import Path

from nqlab.runs.study import Study, StudyFolder
from nqlab.runs.sweep import Sweep, save_study

STUDY = Study.of({
    "name": "class", "question": "Which is better in forty steps?", "arms": ("linear", "nonlinear"),
    "grid": {"learning_rate": (3e-3, 1e-2, 1e4)}, "seeds": (0, 1, 2),
    "settings": {
        "n_embd": 16, "block_size": 16, "batch_size": 8, "steps": 40, "eval_interval": 10, "eval_windows": 16, "grad_clip": 0,
        "corpus": "python-docs",
    },
})  # fmt: skip


def filled(runs_dir: Path) -> StudyFolder:
    """The study in this folder, computed now unless it is there."""
    place = save_study(runs_dir, STUDY)
    if not all(place.ended(c) for c in STUDY.cells()):
        Sweep(place, 2).run()
    return place
