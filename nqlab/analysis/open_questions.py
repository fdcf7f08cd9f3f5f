"""The open questions: what was tried for each, what its shipped study says, and what remains open.

Every answer is computed from the study's runs; a question whose study has not been computed says how to do that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from nqlab.analysis import views
from nqlab.analysis.comparison import at_both_budgets
from nqlab.analysis.figures import title_of
from nqlab.analysis.sentences import sentence
from nqlab.analysis.studies import Filled
from nqlab.analysis.verdict import TUNED, Row
from nqlab.words import _


@dataclass(frozen=True)
class OpenQuestion:
    """``study`` names the study file that asks it; the texts are in the reader's language. ``ladder``: it runs over sizes."""

    study: str
    title: str
    about: str
    remains: str
    ladder: bool = False


def open_questions() -> list[OpenQuestion]:
    """The questions, in the order in which they are told."""
    return [
        OpenQuestion(
            "small-rates", _("Other scales"),
            _("The preset small: twice the depth, twice the width, twice the steps, five learning rates for each arm."),
            _("Two sizes are no law. The models of the paper are a hundred times larger."),
        ),
        OpenQuestion(
            "query-width", _("A ladder of widths"),
            _("C of 32, 64, 128 and 192 at two layers and two heads, a thousand steps each, the learning rate tuned anew for each width."),
            _("Every size sees the same million characters, so the larger ones are far from trained out."),
            ladder=True,
        ),
        OpenQuestion(
            "query-depth", _("A ladder of depths"),
            _("One, two, four and eight layers at C = 64, a thousand steps each, the learning rate tuned anew for each depth."),
            _("Depth and width together, and longer training."),
            ladder=True,
        ),
        OpenQuestion(
            "query-qknorm", _("Structure or capacity: QK-norm"),
            _("The arms that survive high rates have no unbounded matrix between the normed input and the query. QK-norm bounds "
              "the linear query too: if that is the cause, it should survive as well."),
            _("Whether the norm does in larger models what it does here, and which of the two norms, of q or of k, does it."),
        ),
        OpenQuestion(
            "query-norm", _("Other norms, and none"),
            _("RMSNorm in place of LayerNorm, and no norm at all, everywhere but inside f."),
            _("pRMSNorm, DyISRU and Derf are in the lab and have not been studied."),
        ),
        OpenQuestion(
            "query-dyt", _("DyT in place of every norm"),
            _("Dynamic tanh, with embeddings that start ten times larger (0.2), because it squashes instead of norming. DyT helps "
              "mainly where data are scarce (arXiv:2604.23434), and a text of one megabyte is scarce."),
            _("Its own settings, the initial a among them, were not tuned."),
        ),
        OpenQuestion(
            "query-activation", _("Other activations in the MLP"),
            _("ReLU² and GEM (N = 2) in place of GELU; f keeps its own GELU."),
            _("What the activation inside f does."),
        ),
        OpenQuestion(
            "query-experts", _("Mixture of experts"),
            _("Four experts of which each character sees one, with as many active parameters as the dense MLP."),
            _("Match by total parameters, more experts, and the routed query."),
        ),
        OpenQuestion(
            "query-keyvalue", _("Nonlinear keys and values"),
            _("The same f residual on keys and values, beside the linear and the nonlinear query: the paper's own future work."),
            _("Keys alone and values alone."),
        ),
        OpenQuestion(
            "query-rope", _("Rotary positions"),
            _("RoPE acts after the query is made, so the redundancy argument does not notice it."),
            _("Longer contexts, for which RoPE was made."),
        ),
        OpenQuestion(
            "rope-again", _("Rotary positions, on fresh seeds"),
            _("The study before made a guess likely: with RoPE the nonlinear query is ahead at equal tuning. A guess is not tested on the "
              "runs that suggested it, so these eight seeds were drawn, and the study written down, before any of them ran."),
            _("Larger models and longer contexts."),
        ),
        OpenQuestion(
            "query-corpus", _("Other languages and modalities"),
            _("Python source, tunes in ABC notation, digits as sequences of grey levels, and a synthetic language of known entropy."),
            _("Human languages with large vocabularies: bring your own text."),
        ),
    ]  # fmt: skip


def rows_of(question: OpenQuestion, known: Mapping[str, Filled]) -> list[Row]:
    """Its verdicts: at equal tuning, and at the usual settings of the presets. Empty where its study has no results.

    Args:
        question: One of :func:`open_questions`.
        known: Studies by name.
    """
    filled = known.get(question.study)
    return [] if filled is None else [row for rows in at_both_budgets(filled).values() for row in rows]


def answer(row: Row) -> str:
    """One verdict with what it was found on, as a line of Markdown."""
    return f"**{row['size']}**, {budget(row)}: {sentence(row)}"


def budget(row: Row) -> str:
    """At which of the two budgets a verdict was found: at equal tuning, or at the usual settings of the presets."""
    return _("equal tuning") if row["budget"] == TUNED else _("same settings")


def figure_of(rows: Sequence[Row]) -> go.Figure:
    """The verdicts of a question as differences with their intervals."""
    return views.difference_figure(rows, [f"{title_of(row['arm'])} · {row['size']} · {budget(row)}" for row in rows])


def how_to(question: OpenQuestion) -> str:
    """The command that computes a study."""
    return f"python -m nqlab sweep data/reference/{question.study}.json"
