"""What notebooks share: how figures are shown, whether this is a quick look or the full run, and a race with its curves.

``NQLAB_FAST`` set to anything but "" or "0" makes the notebooks short: small sizes, no static images.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Mapping
from typing import TypeVar

import plotly.io as pio

from nqlab.analysis.curves import Curve
from nqlab.config import RunConfig
from nqlab.corpus import Corpus
from nqlab.model.gpt import GPT
from nqlab.training.checkpoint import restore_model
from nqlab.training.events import Checkpoint, Diverged, Evaluation
from nqlab.training.loop import train

IMAGE_WIDTH = 820
T = TypeVar("T")


def setup() -> None:
    """Set plotly's renderer and template for this notebook.

    Figures are plotly JSON, which JupyterLab draws; with kaleido and a Chromium at hand (``BROWSER_PATH`` or on the
    path) also a PNG, which code hosts and exported pages show. Never left to plotly's guess, which differs by editor.
    """
    pio.templates.default = "plotly_white"
    pio.renderers.default = "plotly_mimetype"
    if not fast() and _can_draw_images():
        pio.renderers["png"].width, pio.renderers["png"].height = IMAGE_WIDTH, None  # the height is the figure's own
        pio.renderers.default = "plotly_mimetype+png"


def fast() -> bool:
    """The environment variable NQLAB_FAST asks for a quick look."""
    return os.environ.get("NQLAB_FAST", "") not in ("", "0")


def pick(full: T, quick: T) -> T:
    """``full``, or ``quick`` in fast mode."""
    return quick if fast() else full


def race(arms: Mapping[str, RunConfig], corpus: Corpus) -> tuple[dict[str, Curve], dict[str, GPT]]:
    """Train several configurations side by side with :func:`nqlab.training.loop.train`, printing one line an evaluation.

    Args:
        arms: A configuration for each label; with equal seeds, batch and block sizes they see the same batches.
        corpus: The text for all of them.

    Returns:
        Each label's curve, and each label's trained model (as it was at the last checkpoint, which is at the end).

    Raises:
        ValueError: as ``train``.
        RuntimeError: when a run diverges, for then there is no final loss to compare.
    """
    labels = list(arms)
    curves, models = {label: Curve() for label in labels}, {}
    for event in train(list(arms.values()), corpus):
        label = labels[event.run]
        if isinstance(event, Diverged):
            raise RuntimeError(f"{label!r} diverged after {event.step} steps, its {event.quantity} is not finite: {event.cause}")
        if isinstance(event, Checkpoint):  # its tensors are live ones: copied into a model of their own
            models[label] = GPT(arms[label].model, len(corpus.vocabulary))
            restore_model(models[label], event.state.tensors)
        curves[label].add(event.record())
        if isinstance(event, Evaluation) and event.run == len(labels) - 1:
            print(f"after {event.step:3d} steps  " + "   ".join(f"{a} {c.last('val_loss'):.3f}" for a, c in curves.items()))
    return curves, models


def _can_draw_images() -> bool:
    """Kaleido is installed and there is a browser for it to drive."""
    if importlib.util.find_spec("kaleido") is None:
        return False
    browser = os.environ.get("BROWSER_PATH") or shutil.which("chromium")
    if browser is None:
        return False
    os.environ.setdefault("BROWSER_PATH", browser)
    return True
