from __future__ import annotations

import builtins
from collections.abc import Iterator

import pytest

from nqlab import tunes
from nqlab.corpus import Corpus
from nqlab.tunes import Note

JIG = "M:6/8\nL:1/8\nK:G\n"
TUNE = JIG + "d|BGG AFD|[GB]3 z2||\n"

FILE = b"""% a collection
X: 1
T: A Tune
M: 6/8 % as printed
L:1/8
R:jig
Z:somebody
K:G Minor % two flats
"Gm"vd|{c}BGG  ~A`F.D| !trill!TG3 z2 :|\\
P:B
 (3ABc d2e |
N: a note

X:2
M:C|
L:1/8
K: A mixolydian
A4|
X:3
T: no unit
M:C
K:D
A4|
X:4
M:C
L:1/8
K:D
V:1
A4|
X:5
M:C
L:1/8
K:D
A4|
M:3/4
A4|
X:6
M:C
L:1/8
K:Hp
A4|
X:7
M:C
L:1/8
K:D
A4 ? B|
"""


@pytest.fixture(scope="module")
def music21() -> None:
    pytest.importorskip("music21", reason=f"music21 is not installed; run: {tunes.INSTALL}")


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    yield
    tunes.read.cache_clear()


# --- the corpus


def test_the_tunes_are_the_text_they_are_known_as(abc_tunes: Corpus) -> None:
    assert abc_tunes.sha256 == "3eef605059836e47e7b84fd93f40b17869e40d0729ab9e8f31b421a0a99736e9"
    assert len(abc_tunes.text) == 889_852
    pieces = abc_tunes.text.split("\n\n")
    assert len(pieces) == len(set(pieces)) == 3901
    for piece in pieces:
        metre, unit, key, *music = piece.split("\n")
        assert (metre[:2], unit[:4], key[:2]) == ("M:", "L:1/", "K:")
        assert music
    assert abc_tunes.text.startswith("M:")
    assert not set('"!%{}\\~TuvX') & set(abc_tunes.text)


def test_a_files_tunes_are_normalised_and_those_that_do_not_fit_left_out() -> None:
    first = "M:6/8\nL:1/8\nK:Gm\nd|BGG AFD| G3 z2 :|\n(3ABc d2e |\n"
    second = "M:C|\nL:1/8\nK:Amix\nA4|\n"
    text = tunes.text_of([FILE]).decode("utf-8")
    assert sorted(text.removesuffix("\n").split("\n\n")) == sorted(tune.removesuffix("\n") for tune in (first, second))


def test_the_same_tune_in_two_files_is_there_once_and_the_order_is_the_tunes_own() -> None:
    other = FILE.replace(b"\n", b"\r\n").replace(b"A Tune", b"Another name")
    assert tunes.text_of([FILE, other]) == tunes.text_of([other]) == tunes.text_of([FILE])


@pytest.mark.parametrize(
    ("written", "key"),
    [("Am", "Am"), ("A Minor", "Am"), ("AMin", "Am"), ("G", "G"), ("G major", "G"), ("F#m", "F#m"), ("Bb", "Bb"), ("Ddor", "Ddor"),
     ("E Mixolydian", "Emix"), ("Hp", ""), ("Bn", ""), ("H", ""), ("", ""), ("Aminx9", "")],
)  # fmt: skip
def test_keys_are_written_one_way(written: str, key: str) -> None:
    lines = ["M:C", "L:1/8", f"K:{written}", "A4|"]
    assert tunes.normalised(lines) == (f"M:C\nL:1/8\nK:{key}\nA4|\n" if key else None)


# --- what a model wrote


def test_a_valid_tune_is_read_note_by_note(music21: None) -> None:
    found = tunes.read("\n\n" + TUNE + "\n")
    assert found.pieces == 1
    (notes,) = found.tunes
    assert notes[0] == Note(0.0, 0.5, 74)
    assert [note.pitch for note in notes] == [74, 71, 67, 67, 69, 66, 62, 67, 71]  # K:G sharpens F
    assert notes[-2:] == (Note(3.5, 1.5, 67), Note(3.5, 1.5, 71))
    assert (found.bars, found.full_bars) == (3, 1)  # an upbeat, a full bar, five eighths


@pytest.mark.parametrize(
    "piece",
    ["A2 B2|", "M:6/8\nK:G\nA2|", "L:1/8\nM:6/8\nK:G\nA2|", "M:6/0\nL:1/8\nK:G\nA2|", "M:6/8\nL:1/7\nK:G\nA2|", "M:6/8\nL:1/8\nK:H\nA2|",
     JIG, JIG + "z6|", JIG + "|||:", JIG + "A[B|", JIG + "A///////|", JIG + "A1234|"],
)  # fmt: skip
def test_what_is_no_tune_is_counted_as_a_piece(piece: str, music21: None) -> None:
    found = tunes.read(f"{TUNE}\n{piece}\n\n{TUNE}\n")
    assert (found.pieces, len(found.tunes)) == (3, 2)


def test_a_tune_that_was_broken_off_is_judged_up_to_its_last_bar(music21: None) -> None:
    for end in ("", "A[B", "^", "(3", "A///////"):
        found = tunes.read(TUNE + "\n" + JIG + "d|BGG AFD|" + end)
        assert (found.pieces, [len(notes) for notes in found.tunes]) == (2, [9, 7])
    assert len(tunes.read(TUNE + "\n" + JIG + "d|BGG A[B|\n\n").tunes) == 1  # ended, so judged whole


@pytest.mark.parametrize("text", ["", "\n", "\n\n\n"])
def test_nothing_is_no_tune(text: str, music21: None) -> None:
    assert tunes.read(text) == tunes.Reading(0, (), 0, 0)


def test_every_tune_of_the_corpus_that_is_looked_at_is_valid(abc_tunes: Corpus, music21: None) -> None:
    pieces = abc_tunes.text.split("\n\n")[::200]
    found = tunes.read("\n\n".join(pieces) + "\n\n")
    assert (found.pieces, len(found.tunes)) == (20, 20)
    assert 0.75 < found.full_bars / found.bars < 0.95


def test_without_music21_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *args: object, **kwargs: object) -> object:
        if name.partition(".")[0] == "music21":
            raise ImportError(name)
        return imported(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"^reading tunes needs music21; install it with: python -m pip install music21=="):
        tunes.read(TUNE)
