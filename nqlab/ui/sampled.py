"""A sample as what it stands for: digits as pictures, tunes as notes, with how much of it was well formed."""

from __future__ import annotations

import streamlit as st

from nqlab import corpus as corpora
from nqlab import digits, tunes
from nqlab.analysis.pictures import picture_figure, tune_figure
from nqlab.config import RunConfig
from nqlab.words import _, several

MOST_PICTURES = 32


def picture(config: RunConfig, sample: str, key: str) -> None:
    """Draw a run's sample below its text where its corpus is one of pictures or of tunes; else nothing.

    ``key`` tells this picture from the others of the page.
    """
    draw = {"digits": _digits, "abc-tunes": _tunes}.get(config.corpus)
    if draw is not None:
        with st.container():
            draw((config.training.sample_prompt or corpora.SOURCES[config.corpus].opening) + sample, key)


def _digits(text: str, key: str) -> None:
    found = digits.read(text)
    words = several("{n} picture", "{n} pictures", found.ended).format(n=found.ended)
    st.caption(words + " · " + _("{n} malformed, drawn as far as valid").format(n=found.malformed))
    if found.pictures:
        st.plotly_chart(picture_figure(found.pictures[:MOST_PICTURES]), key=key, config={"displayModeBar": False})


def _tunes(text: str, key: str) -> None:
    try:
        found = tunes.read(text)
    except ImportError:
        st.caption(_("To have tunes read and drawn, install music21: `{command}`").format(command=tunes.INSTALL))
        return
    words = _("{valid} of {pieces} tunes valid").format(valid=len(found.tunes), pieces=found.pieces)
    if found.bars:
        words += " · " + _("{full} of {bars} bars fill their metre").format(full=found.full_bars, bars=found.bars)
    st.caption(words)
    if found.tunes:
        st.plotly_chart(tune_figure(max(found.tunes, key=len)), key=key, config={"displayModeBar": False})
