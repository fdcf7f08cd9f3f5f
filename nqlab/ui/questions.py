"""Where to start from, by what one wants to know: each question with its sentence and the time it takes here."""

from __future__ import annotations

import streamlit as st

from nqlab import corpus as corpora
from nqlab import experiment as experiments
from nqlab.analysis import estimate
from nqlab.experiment import Question
from nqlab.runs import speed
from nqlab.runs.worker import threads_for
from nqlab.ui import form, shared
from nqlab.words import _


def draw() -> None:
    """Draw the choice; choosing fills the controls."""
    questions = experiments.questions()

    def chosen() -> None:
        if (name := st.session_state["question"]) is not None:
            form.adopt(questions[name].experiment)

    name = st.pills(
        _("Begin with a question"), list(questions), format_func=lambda n: _label(questions[n]), key="question", on_change=chosen,
        help=_("Fills the controls. Change one of them, and the question is yours."),
    )  # fmt: skip
    if name is not None:
        st.caption(questions[name].about)


def _label(question: Question) -> str:
    took = _took(question)
    return question.title if took is None else f"{question.title} ({estimate.in_words(took)})"


def _took(question: Question) -> float | None:
    """Seconds that its race takes here; None until the machine's speed is known."""
    tiny_step = speed.measured(shared.runs_dir())
    if tiny_step is None:
        return None
    configs = question.experiment.configs
    try:
        size = len(corpora.load(configs[0].corpus).vocabulary)
    except OSError:  # a text that could not be fetched; its race says so
        return None
    return estimate.race_s(configs, size, tiny_step, threads_for(configs[0], size))
