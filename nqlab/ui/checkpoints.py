"""Where a page finds a trained model: a run's folder and the time of its checkpoint, which is what caches ask for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nqlab.corpus import Corpus
from nqlab.model.gpt import GPT
from nqlab.runs.store import Run
from nqlab.runs.worker import load_model

Runs = Mapping[str, Run]
Place = tuple[str, int]  # a run's folder, and the time of its checkpoint in ns


def place_of(run: Run) -> Place:
    """The place of a run's newest checkpoint; a newer one has another time and is another question."""
    return str(run.folder), run.checkpoint.stat().st_mtime_ns


def model_at(place: Place) -> tuple[GPT, Corpus, int]:
    """The model there, its corpus and the step; errors as :func:`nqlab.runs.worker.load_model`."""
    return load_model(Run(Path(place[0])))
