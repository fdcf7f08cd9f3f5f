"""Texts that come with the running Python and need no network; both differ between Python versions. PSF licence."""

from __future__ import annotations

import sysconfig
from pathlib import Path

# About a megabyte of the standard library in prose-like code: single files, no tests, no tables, there since Python 3.11.
MODULES = (
    "ast", "base64", "bdb", "bisect", "calendar", "cmd", "codecs", "configparser", "contextlib", "copy", "csv",
    "dataclasses", "difflib", "enum", "fileinput", "fractions", "functools", "gettext", "gzip", "heapq", "linecache",
    "operator", "pprint", "queue", "random", "shelve", "shutil", "socketserver", "statistics", "tempfile", "textwrap",
    "threading", "timeit", "traceback", "uuid", "weakref", "zipapp",
)  # fmt: skip


def documentation() -> str:
    """The topics of Python's ``help()``, in alphabetical order."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[key].strip() for key in sorted(topics)) + "\n"


def source() -> str:
    """The source of :data:`MODULES`, one after the other; those that this Python lacks are left out.

    ValueError where there is no source at all, as in a Python packed into one file.
    """
    folder = Path(sysconfig.get_path("stdlib"))
    files = [file for name in MODULES if (file := folder / f"{name}.py").is_file()]
    if not files:
        raise ValueError(f"this Python has no source of its library in {folder}; choose another corpus, such as python-docs")
    return "\n\n".join(file.read_text(encoding="utf-8").strip() for file in files) + "\n"
