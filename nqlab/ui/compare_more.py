"""What lies behind the verdicts of a comparison: curves over seeds, slices through the settings, every row to take away."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from nqlab import corpus as corpora
from nqlab.analysis import report, stability, tables, views
from nqlab.analysis.bands import Axis, at_equal_cost
from nqlab.analysis.comparison import Comparison
from nqlab.analysis.figures import reference_lines, title_of
from nqlab.analysis.stability import AXES, axis_title
from nqlab.config import setting_words
from nqlab.ui import shared, visit
from nqlab.ui.shared import as_table
from nqlab.words import _

X_AXES: tuple[Axis, ...] = ("step", "tokens", "seconds", "flops")
QUIET = {"displayModeBar": False}


def _x_title(axis: Axis) -> str:
    return {
        "step": _("optimiser step"),
        "tokens": _("characters seen"),
        "seconds": _("processor seconds of training"),
        "flops": _("matrix FLOPs of training"),
    }[axis]


def curves(comparison: Comparison) -> None:
    """Draw the curves as mean and range over seeds, against an axis to be chosen."""
    st.markdown(_("#### Curves over seeds"))
    axis = st.segmented_control(
        _("Against"), X_AXES, default="step", format_func=_x_title, key="x", required=True,
        help=_("A variant that is slower per step must also stand against seconds. FLOPs count the matrix products of a step alone, "
               "2 · rows · columns each, three times a forward pass: norms and GELU cost time that they do not show."),
    )  # fmt: skip
    bands, runs = comparison.bands(axis), comparison.at_setting()
    levels = reference_lines(corpora.levels_here(next((r.config.corpus for found in runs.values() for r in found), "")))
    figure = views.band_figure({a: (b.x, b.mean, b.low, b.high) for a, b in bands.items()}, _x_title(axis), references=levels)
    st.plotly_chart(figure, key="bands", config=QUIET)
    as_table(tables.bands_table(bands, _x_title(axis)))
    where = setting_words(comparison.at or {}) or _("the best settings of each")
    st.caption(_("Mean and range over seeds, at {settings}. The steep beginning is cut off.").format(settings=where))
    if axis not in ("seconds", "flops"):
        return
    unit = {"seconds": _("seconds"), "flops": _("flops")}[axis]
    for arm in comparison.arms:
        found = at_equal_cost(runs.get(arm, []), runs.get(comparison.baseline, []), axis)
        if found is not None:
            text = _(
                "- {arm}: {surplus:+.1f} % {unit}; {mean:+.4f} nats where the cheaper one ends "
                "({dearer} is caught before its rate has come down: a bound, no verdict)"
            )
            cost = {"surplus": found.surplus_percent, "unit": unit, "mean": found.mean}
            st.markdown(text.format(arm=title_of(arm), dearer=title_of(found.dearer), **cost))


def behind(comparison: Comparison) -> None:
    """Draw slices through the settings."""
    st.markdown(_("#### Behind the verdicts"))
    slices, contour, parallel = st.tabs([_("Slice"), _("Contour"), _("Parallel coordinates")])
    found, arms = comparison.cells(), [comparison.baseline, *comparison.arms]
    varied = [axis for axis in AXES if len({cell.value(axis) for cell in found if cell.value(axis)}) > 1]
    with slices:
        axis = st.selectbox(
            _("Setting"), varied or ["learning_rate"], format_func=axis_title, key="slice",
            help=_("What the chart goes along; the other settings are the best at each of its values. A variant that is better at one "
                   "learning rate need not be better at its own best rate."),
        )  # fmt: skip
        st.plotly_chart(views.slice_figure(found, arms, axis), key="slice.chart", config=QUIET)
    with contour:
        upwards = next((axis for axis in varied if axis != "learning_rate"), None)
        if upwards is None:
            st.caption(_("A contour needs a second setting beside the learning rate; this study has only one."))
        else:
            about = _("Whose mean final loss is drawn over two settings. Flat around its best point: easy to tune.")
            arm = st.selectbox(_("Variant"), arms, format_func=title_of, key="contour", help=about)
            st.plotly_chart(views.contour_figure(found, arm, upwards), key="contour.chart", config=QUIET)
    with parallel:
        st.plotly_chart(views.parallel_figure(found, arms), key="parallel.chart", config=QUIET)
    as_table(pd.DataFrame(stability.table(found)))


def table(comparison: Comparison) -> None:
    """Draw every comparison as a table, and offer it as files."""
    st.markdown(_("#### Every comparison"))
    st.dataframe(report.shown(comparison.rows), hide_index=True, key="rows")
    st.caption(_("The runs differ in: {fields}.").format(fields=comparison.difference))
    rows, name = comparison.rows, comparison.name
    html, png = visit.in_language(comparison.document), visit.in_language(comparison.picture)
    with st.container(horizontal=True):
        shared.download("CSV", report.csv(rows), f"{name}.csv", "text/csv", key="csv", about=_("The table, all digits."))
        shared.download("JSON", report.json_text(rows), f"{name}.json", "application/json", key="json",
                        about=_("The rows as the command line prints them with --json."))  # fmt: skip
        shared.download("HTML", html, f"{name}.html", "text/html", key="html",
                        about=_("One page with sentences, charts and table; it opens without a network."))  # fmt: skip
        if report.drawing_browser() is None:
            st.caption(_("A picture (PNG) needs Chromium or Chrome on the machine that serves this page."))
        else:
            shared.download(
                "PNG", png, f"{name}.png", "image/png", key="png", about=_("The differences with their intervals, as a picture.")
            )
