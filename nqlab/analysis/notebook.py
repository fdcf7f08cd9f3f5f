"""What every notebook does first: choose how figures are shown, and whether this is a quick look or the full run.

``NQLAB_FAST`` set to anything but "" or "0" makes the notebooks short: small sizes, no static images. Nothing here
computes anything.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from typing import TypeVar

import plotly.io as pio

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


def _can_draw_images() -> bool:
    """Kaleido is installed and there is a browser for it to drive."""
    if importlib.util.find_spec("kaleido") is None:
        return False
    browser = os.environ.get("BROWSER_PATH") or shutil.which("chromium")
    if browser is None:
        return False
    os.environ.setdefault("BROWSER_PATH", browser)
    return True
