from __future__ import annotations

import gzip

import numpy as np
import pytest

from nqlab import digits as pictures
from nqlab.corpus import Corpus

ONE = "0123456789abcdef" * 4


def test_the_digits_are_the_pictures_they_are_known_as(digits: Corpus) -> None:
    assert digits.sha256 == "6904374c5cd961910cd1c41319623da90c20afb124230ff59ce5ff171f404737"
    lines = digits.text.splitlines()
    assert (len(lines), {len(line) for line in lines}) == (1797, {64})
    assert digits.vocabulary.characters == "\n0123456789abcdef"
    assert lines[0][:16] == "005d910000dfaf50"
    found = pictures.read(digits.text)
    assert (len(found.pictures), found.ended, found.malformed) == (1797, 1797, 0)
    mean = np.mean(found.pictures, axis=0)
    assert mean[:, 3:5].mean() > 5 * mean[:, [0, 7]].mean()  # ink is in the middle


def test_a_table_becomes_a_line_a_picture_without_the_label() -> None:
    rows = [",".join(["0", "15", "16", "7.000"] * 16) + ",9", ",".join(["1"] * 64) + ",0.0"]
    text = pictures.text_of([gzip.compress("\n".join(rows).encode("ascii"))])
    assert text == b"0ff7" * 16 + b"\n" + b"1" * 64 + b"\n"


def test_a_line_is_a_picture_row_by_row_from_the_top() -> None:
    found = pictures.read("\n" + ONE + "\n")
    assert (len(found.pictures), found.ended, found.malformed) == (1, 1, 0)
    assert found.pictures[0].tolist() == [list(range(8)), list(range(8, 16))] * 4


@pytest.mark.parametrize(
    ("line", "drawn"),
    [("", 0), ("0", 1), (ONE[:-1], 63), (ONE + "0", 64), (ONE[:20] + "x" + ONE[21:], 20), ("F" + ONE[1:], 0), ("³" * 64, 0)],
)
def test_a_malformed_picture_is_counted_and_drawn_as_far_as_it_is_valid(line: str, drawn: int) -> None:
    found = pictures.read(f"{ONE}\n{line}\n{ONE}\n")
    assert (len(found.pictures), found.ended, found.malformed) == (3, 3, 1)
    assert np.isnan(found.pictures[1]).sum() == 64 - drawn
    assert np.nan_to_num(found.pictures[1]).ravel()[:drawn].tolist() == [pictures.LEVELS.index(c) for c in line[:drawn]]


def test_a_picture_that_was_broken_off_is_drawn_and_not_counted() -> None:
    found = pictures.read(f"{ONE}\n{ONE[:10]}")
    assert (len(found.pictures), found.ended, found.malformed) == (2, 1, 0)
    assert np.isnan(found.pictures[1]).sum() == 54


@pytest.mark.parametrize("text", ["", "\n", "\n\n\n"])
def test_nothing_is_no_picture(text: str) -> None:
    assert pictures.read(text) == pictures.Pictures((), 0, 0)
