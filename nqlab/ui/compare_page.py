"""Compare: the two verdicts of a study, how sure they are, what they cost, and what lies behind them."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from nqlab import corpus as corpora
from nqlab.analysis import report, views
from nqlab.analysis.bands import Axis, at_equal_cost
from nqlab.analysis.comparison import Comparison, compare, cost_words
from nqlab.analysis.figures import reference_lines, title_of
from nqlab.analysis.sentences import sentence
from nqlab.analysis.stability import AXES
from nqlab.analysis.verdict import Row
from nqlab.config import setting_words
from nqlab.ui import sources

X_AXES: dict[Axis, str] = {
    "step": "optimiser step", "tokens": "characters seen", "seconds": "processor seconds of training", "flops": "matrix FLOPs of training",
}  # fmt: skip
QUIET = {"displayModeBar": False}
EVERY = "all settings"


def page() -> None:
    """Draw everything; nothing is trained here."""
    st.subheader("Which is better, and how sure is that?")
    with st.sidebar:
        filled = sources.choose()
        if filled is None:
            return
        baseline = st.selectbox(
            "Baseline", filled.study.arms, index=filled.study.arms.index(filled.study.baseline), format_func=title_of, key="baseline",
            help="The variant that the others are compared with, pair by pair: same seed, same batches, same settings.",
        )  # fmt: skip
        others = [arm for arm in filled.study.arms if arm != baseline]
        arms = st.multiselect(
            "Variants", others, others, format_func=title_of, key=f"compared.{baseline}",
            help="Comparing several at once widens every interval, so that one lucky variant is not taken for a better one.",
        )  # fmt: skip
        size = _size(compare(filled, baseline, arms))
    sources.about(filled)
    if size is None:
        st.info("There are no pairs yet: two variants with the same seed and settings whose runs have both ended.")
        return
    comparison = _verdicts(filled, baseline, arms, size)
    _curves(comparison)
    _behind(comparison)
    _table(comparison)


def _size(everything: Comparison) -> str | None:
    """One size at a time: losses of different sizes or texts say nothing about each other."""
    sizes = list(dict.fromkeys(row["size"] for row in everything.rows))
    if len(sizes) < 2:
        return sizes[0] if sizes else None
    return st.selectbox("Size", sizes, key="size", help="Shape, steps and text; runs of different sizes are never mixed.")


def _verdicts(filled: sources.Filled, baseline: str, arms: Sequence[str], size: str) -> Comparison:
    """The two budgets side by side; the comparison at the settings chosen."""
    everything = compare(filled, baseline, arms).of_size(size)
    same, tuned = st.columns(2, gap="large")
    with same:
        st.markdown("#### Same settings for all")
        names = [*map(setting_words, everything.settings), EVERY]
        name = st.selectbox(
            "Settings", names, everything.usual, key="at",
            help="Choose before you look: at one setting the intervals are corrected for the number of variants, over all settings for "
            "variants and settings together, because whoever searches for a gap will find one.",
        )  # fmt: skip
        at = None if name == EVERY else everything.settings[names.index(name)]
        chosen = compare(filled, baseline, arms, at).of_size(size)
        _side(chosen.same, "same", with_settings=at is None)
    with tuned:
        st.markdown("#### Equal tuning budget")
        st.caption("Each variant at the best of the same settings, chosen on half of the validation windows and judged on the other half.")
        if not chosen.tuned:
            st.info("This needs at least two settings that both have tried, with the same seeds.")
        _side(chosen.tuned, "tuned")
    for row in chosen.refused:
        st.warning(sentence(row))
    return chosen


def _side(rows: Sequence[Row], key: str, with_settings: bool = False) -> None:
    labels = [title_of(r["arm"]) + (f" · {setting_words(r['settings'])}" if with_settings else "") for r in rows]
    if rows:
        st.plotly_chart(views.difference_figure(rows, labels), key=f"difference.{key}", config=QUIET)
        st.caption("Bar: 95 % interval, corrected for all comparisons shown. Grey band: noise floor, the baseline against itself.")
    with st.container(height=320 if len(rows) > 6 else "content", border=False):
        st.markdown("\n".join(f"- {sentence(row)} *{cost_words(row)}*" for row in rows))


def _curves(comparison: Comparison) -> None:
    st.markdown("#### Curves over seeds")
    axis = st.segmented_control("Against", list(X_AXES), default="step", format_func=X_AXES.__getitem__, key="x", required=True,
                                help="A variant that is slower per step must also stand against seconds.")  # fmt: skip
    bands, runs = comparison.bands(axis), comparison.at_setting()
    levels = reference_lines(corpora.levels_here(next((r.config.corpus for found in runs.values() for r in found), "")))
    drawn = {a: (b.x, b.mean, b.low, b.high) for a, b in bands.items()}
    st.plotly_chart(views.band_figure(drawn, X_AXES[axis], references=levels), key="bands", config=QUIET)
    st.caption(f"Mean and range over seeds, at {setting_words(comparison.at or {}) or 'the best settings of each'}.")
    for arm in comparison.arms:
        found = at_equal_cost(runs.get(arm, []), runs.get(comparison.baseline, []), axis) if axis in ("seconds", "flops") else None
        if found is not None:
            st.markdown(
                f"- {title_of(arm)}: {found.surplus_percent:+.1f} % {axis}; {found.mean:+.4f} nats where the cheaper one ends "
                f"({title_of(found.dearer)} is caught before its rate has come down: a bound, no verdict)"
            )


def _behind(comparison: Comparison) -> None:
    """Slices through the settings."""
    st.markdown("#### Behind it")
    slices, contour, parallel = st.tabs(["Slice", "Contour", "Parallel coordinates"])
    found, arms = comparison.cells(), [comparison.baseline, *comparison.arms]
    varied = [axis for axis in AXES if len({cell.value(axis) for cell in found if cell.value(axis)}) > 1]
    with slices:
        axis = st.selectbox("Setting", varied or ["learning_rate"], format_func=AXES.__getitem__, key="slice")
        st.plotly_chart(views.slice_figure(found, arms, axis), key="slice.chart", config=QUIET)
    with contour:
        upwards = next((axis for axis in varied if axis != "learning_rate"), None)
        if upwards is None:
            st.caption("A contour needs a second setting beside the learning rate; this study has only one.")
        else:
            arm = st.selectbox("Variant", arms, format_func=title_of, key="contour")
            st.plotly_chart(views.contour_figure(found, arm, upwards), key="contour.chart", config=QUIET)
    with parallel:
        st.plotly_chart(views.parallel_figure(found, arms), key="parallel.chart", config=QUIET)


def _table(comparison: Comparison) -> None:
    st.markdown("#### Every comparison")
    st.dataframe(report.frame(comparison.rows), hide_index=True, key="rows")
    st.caption(f"The runs differ in: {comparison.difference}.")
    with st.container(horizontal=True):
        st.download_button("CSV", report.csv(comparison.rows), f"{comparison.name}.csv", "text/csv", on_click="ignore")
        st.download_button("JSON", report.json_text(comparison.rows), f"{comparison.name}.json", "application/json", on_click="ignore")
        st.download_button("HTML", comparison.document, f"{comparison.name}.html", "text/html", on_click="ignore")
        if report.drawing_browser() is None:
            st.caption("A picture (PNG) needs Chromium or Chrome on the machine that serves this page.")
        else:
            st.download_button("PNG", comparison.picture, f"{comparison.name}.png", "image/png", on_click="ignore")
