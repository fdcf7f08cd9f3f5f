"""Pictures as text: handwritten digits of 8 x 8 pixels, a character a pixel, a line a picture; and back.

A pixel is one of 16 levels of ink, written 0 to f; rows follow each other from the top, and a new line ends a picture.
The data have 17 levels, of which the darkest two become one.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

SIDE = 8
PIXELS = SIDE * SIDE
LEVELS = "0123456789abcdef"


def text_of(files: Iterable[bytes]) -> bytes:
    """The pictures of compressed tables (a row a picture: 64 counts of ink from 0 to 16, then the digit) as text, in UTF-8."""
    rows = [line.split(",")[:PIXELS] for data in files for line in gzip.decompress(data).decode("ascii").split()]
    return "".join("".join(LEVELS[min(int(float(ink)), 15)] for ink in row) + "\n" for row in rows).encode("utf-8")


@dataclass(frozen=True)
class Pictures:
    """What a text shows: ``pictures`` are arrays of shape (8, 8), levels 0 to 15, NaN where nothing was written; of
    those that were ended by a new line, ``malformed`` had not 64 valid pixels."""

    pictures: tuple[np.ndarray, ...]
    ended: int
    malformed: int


def read(text: str) -> Pictures:
    """The pictures in a text that a model wrote. A line is drawn as far as it is valid; empty ones before the first
    picture are no pictures; the last line, unless a new line ends it, was only broken off."""
    *lines, rest = text.lstrip("\n").split("\n")
    malformed = sum(len(line) != PIXELS or not set(line) <= set(LEVELS) for line in lines)
    shown = [*lines, rest] if rest else lines
    return Pictures(tuple(_picture(line) for line in shown), len(lines), malformed)


def _picture(line: str) -> np.ndarray:
    """The pixels up to the first that is none, at most 64."""
    valid = next((i for i, c in enumerate(line) if c not in LEVELS), len(line))
    levels = np.full(PIXELS, np.nan)
    levels[: min(valid, PIXELS)] = [LEVELS.index(c) for c in line[: min(valid, PIXELS)]]
    return levels.reshape(SIDE, SIDE)
