"""A box for one's own prompt: every variant of a race writes on after it, at once, without being disturbed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import streamlit as st

from nqlab.analysis.sampling import Wish, writing
from nqlab.analysis.standing import Standing
from nqlab.runs.race import Race
from nqlab.runs.store import Run
from nqlab.ui import shared
from nqlab.words import _


def draw() -> None:
    """Draw the box for the race in view; nothing where there is none."""
    race = shared.race_in_view()
    if race is not None:
        st.fragment(_box)(race)


def _box(race: Race) -> None:
    """Its own fragment: writing does not stop the curves, and the ticks do not stop the writing."""
    with st.expander(_("Write on after your own words")):
        with st.form("prompt", border=False):
            st.text_area(_("Prompt"), "", key="prompt.text", height=68,
                         help=_("Only characters that the text has. Empty: a new line. The same prompt and seed for "
                                "every variant."))  # fmt: skip
            columns = st.columns(4)
            columns[0].slider(_("Temperature"), 0.0, 2.0, 0.8, 0.1, key="prompt.temperature",
                              help=_("Logits are divided by it: low is timid, high is wild; 0 takes the likeliest character."))  # fmt: skip
            columns[1].number_input(_("Top-k (0: all)"), 0, 1000, 0, key="prompt.top_k",
                                    help=_("Draw only from the k likeliest characters."))  # fmt: skip
            columns[2].number_input(_("Characters"), 1, 2000, 300, key="prompt.length", help=_("How many are written."))
            columns[3].number_input(_("Seed"), 0, key="prompt.seed", help=_("Another seed, another text."))
            asked = st.form_submit_button(_("Write"), type="primary", icon=":material/edit:")
        if asked:
            runs = [run for run in shared.runs_of(race) if run.checkpoint.exists()]
            _write(runs) if runs else st.info(_("There is no checkpoint to write from yet; a race keeps the first one after a moment."))


def _write(runs: Sequence[Run]) -> None:
    """All variants side by side, a few characters at a time."""
    state = st.session_state
    top_k = int(state["prompt.top_k"]) or None
    wish = Wish(state["prompt.text"], int(state["prompt.length"]), float(state["prompt.temperature"]), top_k, int(state["prompt.seed"]))
    labels = Standing(None, tuple((run, run.status(), shared.curves().get(run.events)) for run in runs)).labels
    places = []
    for column, label in zip(st.columns(len(runs)), labels):
        column.caption(f"**{label}**")
        places.append(column.empty())
    texts = [wish.prompt] * len(runs)
    try:
        for count, letters in enumerate(zip_longest(*(writing(run, wish) for run in runs), fillvalue="")):
            texts = [text + letter for text, letter in zip(texts, letters)]
            if count % 8 == 7:
                _show(places, texts)
        _show(places, texts)
    except (ValueError, OSError) as error:
        st.error(str(error))


def _show(places: Sequence[st.delta_generator.DeltaGenerator], texts: Sequence[str]) -> None:
    for place, text in zip(places, texts):
        place.code(text, language=None, wrap_lines=True, height=220)
