"""Tunes in ABC notation: one text made of three old collections, and what can be read of a tune that a model wrote.

A tune is three header lines, ``M:`` (metre), ``L:`` (the unit of length) and ``K:`` (key), in this order, then lines of
music; tunes are separated by a blank line. Nothing here draws. Reading a tune needs music21, which is installed apart.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

HEADER = ("M", "L", "K")
INSTALL = "python -m pip install music21==10.5.1"
_FIELD = re.compile(r"([A-Za-z]):(.*)")
_NOT_MUSIC = re.compile(r'"[^"]*"|![^!]*!|\{[^}]*\}|`|\\')  # words above the staff, decorations, grace notes, spacing, line joins
_ORNAMENTS = re.compile(r"[~.HIJLMOPRSTUVuv]")
_ALLOWED = re.compile(r"[A-Ga-gxz0-9^_=,'/<>|:()\[\]\- \n]+")
_MODES = {"": "", "maj": "", "m": "m", "min": "m", "mix": "mix", "dor": "dor", "lyd": "lyd", "phr": "phr"}
_KEY = re.compile(r"([A-G][#b]?)\s*([A-Za-z]*)")


# --- the corpus: from the collections' files to one text


def text_of(files: Iterable[bytes]) -> bytes:
    """The tunes of some ABC files as one text, in UTF-8: normalised, each once, in an order that mixes the collections.

    Titles, numbers, tempos, credits and comments are left out, as are grace notes, bowing, ornaments and chord names.
    Tunes for several voices and those without one of the three header fields are left out whole. The order is that of
    the tunes' SHA-256, so that the last tenth, which validates, is of the same kind as the rest.
    """
    found = {tune for data in files for piece in _pieces(data.decode("utf-8")) if (tune := normalised(piece))}
    return "\n".join(sorted(found, key=lambda tune: hashlib.sha256(tune.encode("utf-8")).digest())).encode("utf-8")


def _pieces(text: str) -> list[list[str]]:
    """The lines of each tune: from its ``X:`` to the next."""
    pieces: list[list[str]] = []
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if line.startswith("X:"):
            pieces.append([])
        elif pieces:
            pieces[-1].append(line)
    return pieces


def normalised(lines: Sequence[str]) -> str | None:
    """A tune's text with its last newline; None where it is left out."""
    header: dict[str, str] = {}
    music: list[str] = []
    for line in lines:
        line = line.partition("%")[0].strip()
        if field := _FIELD.match(line):
            name, value = field[1], field[2].strip()
            if name == "V" or (name in HEADER and music):
                return None  # several voices, or a change midway
            if name in HEADER:
                header[name] = _key(value) if name == "K" else value
        elif "K" in header and (cleaned := _cleaned(line)):
            music.append(cleaned)
    body = "\n".join(music)
    if not all(header.get(name) for name in HEADER) or not _ALLOWED.fullmatch(body):
        return None
    return "".join(f"{name}:{header[name]}\n" for name in HEADER) + body + "\n"


def _cleaned(line: str) -> str:
    return re.sub(r"\s+", " ", _ORNAMENTS.sub("", _NOT_MUSIC.sub("", line))).strip()


def _key(value: str) -> str:
    """``Am`` for ``A Minor``; empty for a key this does not know."""
    found = _KEY.fullmatch(value)
    mode = found[2].lower() if found else ""
    mode = mode if mode == "m" else mode[:3]
    return found[1] + _MODES[mode] if found and mode in _MODES else ""


# --- what a model wrote


@dataclass(frozen=True)
class Note:
    """A note as written: when it starts and how long it lasts, in quarter notes; its pitch, middle C being 60."""

    start: float
    length: float
    pitch: int


@dataclass(frozen=True)
class Reading:
    """What there is of tunes in a text: how many pieces, the notes of each valid one, and their bars.

    ``bars`` counts the bars of the valid tunes, ``full_bars`` those that have exactly the length that the metre asks
    for; in the collections five of six have, since upbeats and ends are short.
    """

    pieces: int
    tunes: tuple[tuple[Note, ...], ...]
    bars: int
    full_bars: int


@lru_cache(maxsize=64)
def read(text: str) -> Reading:
    """The tunes in a text that a model wrote; pieces are separated by blank lines.

    A piece is a valid tune when it has the three header lines, with a metre, a unit and a key that exist, no length
    has four digits, music21 reads it without complaint, and there is at least one note. The last piece was broken off
    unless a blank line ends it, and is judged up to its last bar line. ImportError says what to install where music21
    is missing.
    """
    try:
        import music21  # noqa: F401
    except ImportError:
        raise ImportError(f"reading tunes needs music21; install it with: {INSTALL}") from None
    pieces = [piece for piece in re.split(r"\n\n+", text.lstrip("\n")) if piece]
    if pieces and not text.endswith("\n\n"):
        pieces[-1] = pieces[-1][: pieces[-1].rfind("|") + 1] or pieces[-1]
    scores = [score for piece in pieces if (score := _score(piece)) is not None]
    bars = [full for _, fullness in scores for full in fullness]
    return Reading(len(pieces), tuple(notes for notes, _ in scores), len(bars), sum(bars))


_LONG_NUMBER = re.compile(r"\d{4}")  # a note of a thousand units would take music21 minutes
_WHOLE_HEADER = re.compile(r"M:(C\|?|[1-9]\d?/(?:2|4|8|16))\nL:1/(?:1|2|4|8|16|32)\nK:(?P<key>[^\n]+)\n")


def _score(piece: str) -> tuple[tuple[Note, ...], list[bool]] | None:
    """A valid tune's notes, and for each bar with notes whether it is full; None for anything else."""
    from music21 import converter, stream

    header = _WHOLE_HEADER.match(piece)
    if header is None or _key(header["key"]) != header["key"] or _LONG_NUMBER.search(piece):
        return None
    try:
        score = converter.parse(piece + "\n", format="abc")
        found = [(float(n.getOffsetInHierarchy(score)), float(n.duration.quarterLength), n.pitches) for n in score.recurse().notes]
        bars = [m for m in score.recurse().getElementsByClass(stream.Measure) if m.recurse().notesAndRests]
        full = [m.duration.quarterLength == m.barDuration.quarterLength for m in bars]
    except Exception:  # whatever music21 trips over (it raises many kinds): this is no tune
        return None
    notes = tuple(Note(start, length, pitch.midi) for start, length, pitches in found for pitch in pitches)
    return (notes, full) if notes else None
