from __future__ import annotations

import numpy as np
import pytest

from nqlab import digits, tunes
from nqlab.analysis.figures import loss_spec, reference_lines
from nqlab.analysis.pictures import picture_figure, pitch_name, tune_figure
from nqlab.analysis.views import band_figure
from nqlab.corpus import Corpus
from nqlab.tunes import Note

ONE = "0123456789abcdef" * 4


def test_pictures_stand_side_by_side_with_a_free_pixel_between() -> None:
    found = digits.read(f"{ONE}\n{ONE}\n{ONE[:10]}")
    z = np.asarray(picture_figure(found.pictures, across=2).data[0].z)
    assert z.shape == (17, 17)
    for top, left in ((0, 0), (0, 9)):
        assert z[top : top + 8, left : left + 8].tolist() == found.pictures[0].tolist()
    assert z[9].tolist()[:8] == list(range(8))
    assert z[10].tolist()[:2] == [8, 9]
    assert np.isnan(z[10, 2:]).all()
    assert np.isnan(z[:, 8]).all()
    assert np.isnan(z[8]).all()
    assert np.isnan(z[9:, 9:]).all()


def test_a_digit_of_the_corpus_has_its_own_pixels(digits: Corpus) -> None:
    from nqlab.digits import read

    figure = picture_figure(read(digits.text[:65]).pictures)
    assert np.asarray(figure.data[0].z)[0].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
    assert figure.layout.yaxis.autorange == "reversed"  # the first row on top


def test_a_tune_is_a_line_a_note() -> None:
    figure = tune_figure([Note(0.0, 0.5, 62), Note(0.5, 1.5, 74)])
    assert figure.data[0].x == (0.0, 0.5, None, 0.5, 2.0, None)
    assert figure.data[0].y == (62, 62, None, 74, 74, None)
    assert figure.data[0].text[::3] == ("D4", "D5")
    assert "G4" in figure.layout.yaxis.ticktext
    assert tune_figure([Note(0.0, 1.0, 61)]).layout.yaxis.ticktext == ("C♯4",)


def test_what_music21_reads_can_be_drawn() -> None:
    pytest.importorskip("music21", reason=f"music21 is not installed; run: {tunes.INSTALL}")
    (notes,) = tunes.read("M:6/8\nL:1/8\nK:G\nd|BGG AFD|G3 z2||\n\n").tunes
    assert len(tune_figure(notes).data[0].x) == 3 * 8


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(ValueError, match="no picture to draw"):
        picture_figure([])
    with pytest.raises(ValueError, match="no note to draw"):
        tune_figure([])


@pytest.mark.parametrize(("pitch", "name"), [(60, "C4"), (69, "A4"), (59, "B3"), (78, "F♯5")])
def test_pitches_have_their_names(pitch: int, name: str) -> None:
    assert pitch_name(pitch) == name


def test_a_corpuss_levels_have_names_on_a_chart_and_fit_on_an_empty_one() -> None:
    from nqlab import corpus as corpora

    lines = reference_lines(corpora.load("synthetic").levels)
    assert list(lines) == ["ln V", "unigram entropy", "bigram entropy", "entropy rate"]
    layout = loss_spec([], references=lines)["layout"]
    assert len(layout["shapes"]) == len(layout["annotations"]) == 4
    assert layout["yaxis"]["range"][0] < lines["entropy rate"]


def test_curves_over_seeds_have_the_levels_that_are_in_sight() -> None:
    x = np.arange(5.0)
    y = np.array([4.0, 2.0, 1.6, 1.3, 1.2])
    figure = band_figure({"linear": (x, y, y - 0.1, y + 0.1)}, "step", references={"ln V": 3.0, "bigram": 1.94, "rate": 0.5})
    assert [shape.y0 for shape in figure.layout.shapes] == [1.94]
    assert [note.text for note in figure.layout.annotations] == ["bigram 1.94"]
    assert not band_figure({}, "step", references={"ln V": 3.0}).layout.shapes
