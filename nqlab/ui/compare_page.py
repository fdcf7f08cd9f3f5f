"""Compare: the two verdicts of a study, how sure they are, what they cost, and what lies behind them."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from nqlab.analysis import elsewhere, views
from nqlab.analysis.comparison import Comparison, compare, cost_words
from nqlab.analysis.elsewhere import at_words
from nqlab.analysis.figures import title_of
from nqlab.analysis.sentences import sentence
from nqlab.analysis.verdict import Row
from nqlab.config import setting_words
from nqlab.ui import compare_more, share, sources
from nqlab.words import _

QUIET = {"displayModeBar": False}
EVERY = "all"


def page() -> None:
    """Draw everything; nothing is trained here."""
    st.subheader(_("Which is better, and how sure is that?"))
    with st.sidebar:
        filled = sources.choose()
        if filled is None:
            return
        baseline, arms = _who(filled)
        size = _size(compare(filled, baseline, arms))
    sources.about(filled)
    if size is None:
        st.info(_("There are no pairs yet: two variants with the same seed and settings whose runs have both ended."))
        return
    comparison = _verdicts(filled, baseline, arms, size)
    compare_more.curves(comparison)
    compare_more.behind(comparison)
    compare_more.table(comparison)
    address = {"study": filled.study.name, "baseline": baseline, "arms": ",".join(arms)}
    address["at"] = EVERY if comparison.at is None else at_words(comparison.at)
    share.elsewhere(address, elsewhere.compare_command(comparison), elsewhere.compare_cell(comparison, size))


def _who(filled: sources.Filled) -> tuple[str, list[str]]:
    """The baseline and the variants compared with it; the address may name them (``?baseline=``, ``?arms=``)."""
    all_arms, wanted = filled.study.arms, st.query_params.get("baseline", filled.study.baseline)
    baseline = st.selectbox(
        _("Baseline"), all_arms, index=all_arms.index(wanted if wanted in all_arms else filled.study.baseline), format_func=title_of,
        key="baseline", help=_("The variant that the others are compared with, pair by pair: same seed, same batches, same settings."),
    )  # fmt: skip
    others = [arm for arm in all_arms if arm != baseline]
    named = [arm for arm in st.query_params.get("arms", "").split(",") if arm in others]
    arms = st.multiselect(
        _("Variants"), others, named or others, format_func=title_of, key=f"compared.{baseline}",
        help=_("Comparing several at once widens every interval, so that one lucky variant is not taken for a better one: "
               "each interval has the level 1 − 0.05/m for m comparisons (Bonferroni)."),
    )  # fmt: skip
    return baseline, arms


def _size(everything: Comparison) -> str | None:
    """One size at a time: losses of different sizes or texts say nothing about each other."""
    sizes = list(dict.fromkeys(row["size"] for row in everything.rows))
    if len(sizes) < 2:
        return sizes[0] if sizes else None
    about = _("Shape, steps and text; runs of different sizes are never mixed.")
    return st.selectbox(_("Size"), sizes, key="size", help=about)


def _verdicts(filled: sources.Filled, baseline: str, arms: Sequence[str], size: str) -> Comparison:
    """The two budgets side by side; the comparison at the settings chosen."""
    everything = compare(filled, baseline, arms).of_size(size)
    same, tuned = st.columns(2, gap="large")
    with same:
        st.markdown(_("#### Same settings for all"))
        chosen = compare(filled, baseline, arms, _at(everything)).of_size(size)
        _side(chosen.same, "same", with_settings=chosen.at is None)
    with tuned:
        st.markdown(_("#### Equal tuning budget"))
        st.caption(
            _("Each variant at the best of the same settings, chosen on half of the validation windows and judged on the other half.")
        )
        if not chosen.tuned:
            st.info(_("This needs at least two settings that both have tried, with the same seeds."))
        _side(chosen.tuned, "tuned")
    for row in chosen.refused:
        st.warning(sentence(row))
    return chosen


def _at(everything: Comparison) -> dict[str, object] | None:
    """The setting fixed beforehand, or None for all; the address may name it (``?at=``)."""
    known = {at_words(setting): setting for setting in everything.settings}
    options = [*known, EVERY]
    wanted = st.query_params.get("at")
    name = st.selectbox(
        _("Settings"), options, options.index(wanted) if wanted in options else everything.usual, key="at",
        format_func=lambda option: setting_words(known[option]) if option in known else _("all settings"),
        help=_(
            "Choose before you look: at one setting the intervals are corrected for the number of variants, over all settings for "
            "variants and settings together, because whoever searches for a gap will find one."
        ),
    )  # fmt: skip
    return known.get(name)


def _side(rows: Sequence[Row], key: str, with_settings: bool = False) -> None:
    labels = [title_of(r["arm"]) + (f" · {setting_words(r['settings'])}" if with_settings else "") for r in rows]
    if rows:
        st.plotly_chart(views.difference_figure(rows, labels), key=f"difference.{key}", config=QUIET)
        st.caption(views.legend_words())
    with st.container(height=320 if len(rows) > 6 else "content", border=False):
        st.markdown("\n".join(f"- {sentence(row)} *{cost_words(row)}*" for row in rows))
