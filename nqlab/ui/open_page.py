"""Open questions: one after the other, what was tried, the verdict, and what remains open."""

from __future__ import annotations

import streamlit as st

from nqlab.analysis import elsewhere, studies, views
from nqlab.analysis.ladder import LEAST, Against, Ladder, ladder_figure, ladders, slope_sentence
from nqlab.analysis.open_questions import OpenQuestion, answer, figure_of, how_to, open_questions, rows_of
from nqlab.analysis.sentences import budget_words
from nqlab.analysis.studies import Filled
from nqlab.analysis.verdict import Row
from nqlab.ui import share, shared, visit
from nqlab.words import _, several

QUIET = {"displayModeBar": False}
AGAINST: tuple[Against, ...] = ("parameters", "flops")


def page() -> None:
    """Draw everything; nothing is trained here."""
    st.subheader(_("What the paper leaves open"))
    st.markdown(
        _(
            "Does the nonlinear query survive other norms, activations, experts, positions, texts and sizes? Each question has a small "
            "study: the same learning rates for every arm, at least three paired seeds. *Inconclusive* is an answer."
        )
    )
    known = _known(visit.language())
    share.elsewhere({}, elsewhere.open_command(), elsewhere.open_cell())
    st.caption(views.legend_words())
    for question in open_questions():
        _one(question, known)


@st.cache_data(show_spinner=False, ttl=30, max_entries=4)
def _known(language: str) -> dict[str, Filled]:
    """Studies by name, those filled here first. ``language`` is the cache's: verdicts hold words."""
    assert language
    return {f.study.name: f for f in [*studies.shipped(), *studies.here(shared.runs_dir())]}


@st.cache_data(show_spinner=False, max_entries=50)
def _rows(study: str, ended: int, language: str) -> list[Row]:
    """The verdicts of a study, judged anew when more of its runs have ended (``ended``), and in each language."""
    assert ended >= 0
    question = next(q for q in open_questions() if q.study == study)
    return rows_of(question, _known(language))


@st.cache_data(show_spinner=False, max_entries=10)
def _ladders(study: str, ended: int, language: str) -> list[Ladder]:
    """The ladders of a study, made anew as :func:`_rows` are."""
    assert ended >= 0
    return ladders(_known(language)[study])


def _one(question: OpenQuestion, known: dict[str, Filled]) -> None:
    st.markdown(f"#### {question.title}")
    st.markdown(question.about)
    filled = known.get(question.study)
    rows: list[Row] = []
    rungs: list[Ladder] = []
    if filled is not None:
        with st.spinner(_("Comparing ..."), show_time=False):
            key = question.study, sum(r.outcome != "unfinished" for r in filled.results), visit.language()
            rows, rungs = _rows(*key), _ladders(*key) if question.ladder else []
    if not rows:
        st.info(_("Its study has not been computed yet: `{command}`, or on the page Sweep.").format(command=how_to(question)))
    else:
        if question.ladder:
            _ladder(question.study, rungs)
        else:
            st.plotly_chart(figure_of(rows), key=f"open.{question.study}", config=QUIET)
        st.markdown("\n".join(f"- {answer(row)}" for row in rows))
        runs = len(known[question.study].results)
        text = several("{n} run. [Everything about it]({link})", "{n} runs. [Everything about it]({link})", runs)
        st.caption(text.format(n=runs, link=f"compare?study={question.study}"))
    st.caption(_("Still open: {what}").format(what=question.remains))


def _ladder(study: str, found: list[Ladder]) -> None:
    """The difference against size at both budgets, beside each other, with the line through it."""
    against = st.segmented_control(
        _("Size as"), AGAINST, default="parameters", key=f"open.{study}.against", required=True,
        format_func=lambda name: _("parameters") if name == "parameters" else _("training FLOPs"),
        help=_("A line through each seed's differences against log₂ of the size; drawn are their mean and its 95 % interval at each size. "
               "Points have intervals of their own."),
    )  # fmt: skip
    for column, ladder in zip(st.columns(2), found):
        column.markdown(f"**{budget_words(ladder.budget)}**")
        column.plotly_chart(ladder_figure(ladder, against), key=f"open.{study}.{ladder.budget}", config=QUIET)
        if len(ladder.rungs) >= LEAST:
            column.caption(slope_sentence(ladder, against))
