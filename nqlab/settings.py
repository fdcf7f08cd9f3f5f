"""Where things are kept and how much may run at once: environment variables, read when asked for.

NQLAB_DATA_DIR  corpora and own texts (default: data/ beside the package)
NQLAB_RUNS_DIR  run folders (default: runs/ in the data folder)
NQLAB_SLOTS     races that train at the same time; others queue (default: as the limits file says, else 1)
NQLAB_LIMITS    a file of limits for a server that many use (:mod:`nqlab.limits`; default: none)
"""

from __future__ import annotations

import os
from pathlib import Path

from nqlab import limits


def data_dir() -> Path:
    """The data folder, absolute."""
    return Path(os.environ.get("NQLAB_DATA_DIR") or Path(__file__).parent.parent / "data").absolute()


def runs_dir() -> Path:
    """The folder of run folders, absolute."""
    return Path(os.environ.get("NQLAB_RUNS_DIR") or data_dir() / "runs").absolute()


def slots() -> int:
    """How many races may train at once. ValueError if the variable holds no whole number of at least 1, or the limits file is wrong."""
    text = os.environ.get("NQLAB_SLOTS") or str(limits.current().slots)
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"NQLAB_SLOTS is {text!r}; set it to a whole number of at least 1")
    return int(text)


def threads_per_race() -> int:
    """The cores this process may use, shared between the slots; at least 1."""
    return max(1, cores() // slots())


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
