"""Samples as what they stand for: digits as pictures, tunes as notes; other texts as they are."""

import json

import pytest
from streamlit.testing.v1 import AppTest

from nqlab import tunes

ONE = "0123456789abcdef" * 4
JIG = "M:6/8\nL:1/8\nK:G\n"


def draw(corpus, sample, prompt):
    from nqlab.config import RunConfig, replace
    from nqlab.ui.sampled import picture

    picture(replace(RunConfig(), {"corpus": corpus, "sample_prompt": prompt}), sample, key="one")


def shown(corpus, sample, prompt=""):
    test = AppTest.from_function(draw, args=(corpus, sample, prompt), default_timeout=60).run()
    assert not test.exception
    charts = [json.loads(chart.proto.spec) for chart in test.get("plotly_chart")]
    return " ".join(c.value for c in test.caption), charts


@pytest.fixture
def music21():
    pytest.importorskip("music21", reason=f"music21 is not installed; run: {tunes.INSTALL}")


def test_digits_are_drawn_and_what_is_malformed_is_counted():
    words, (chart,) = shown("digits", f"{ONE}\n{ONE[:5]}x\n{ONE[:9]}")
    assert words == "2 pictures · 1 malformed, drawn as far as valid"
    assert chart["data"][0]["type"] == "heatmap"


def test_the_prompt_is_part_of_the_first_picture():
    words, (_,) = shown("digits", f"{ONE[20:]}\n", prompt=ONE[:20])
    assert words == "1 picture · 0 malformed, drawn as far as valid"


def test_a_sample_without_a_digit_has_its_words_and_no_picture():
    assert shown("digits", "\n\n") == ("0 pictures · 0 malformed, drawn as far as valid", [])


def test_tunes_are_counted_and_the_longest_is_drawn(music21):
    words, (chart,) = shown("abc-tunes", f"{JIG}d2|A3 A3|\n\n|:|\n\n{JIG}ABG ABG|A")
    assert words == "2 of 3 tunes valid · 1 of 2 bars fill their metre"
    assert len(chart["data"][0]["x"]) == 3 * 6


def test_a_sample_without_a_valid_tune_has_its_words_and_no_picture(music21):
    assert shown("abc-tunes", "d2|A3 A3|") == ("0 of 1 tunes valid", [])


def test_without_music21_it_is_said_what_to_install(monkeypatch):
    def missing(text):
        raise ImportError

    monkeypatch.setattr(tunes, "read", missing)
    assert shown("abc-tunes", JIG + "A2|") == (f"To have tunes read and drawn, install music21: `{tunes.INSTALL}`", [])


@pytest.mark.parametrize("corpus", ["shakespeare", "text:0123456789ab", "synthetic"])
def test_other_texts_stay_texts(corpus):
    assert shown(corpus, f"{ONE}\n{JIG}A2|\n\n") == ("", [])
