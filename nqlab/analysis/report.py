"""What a comparison shows, as files: CSV, JSON, HTML that opens without a network, and PNG where a browser can draw it."""

from __future__ import annotations

import html
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from nqlab.analysis.figures import title_of
from nqlab.analysis.sentences import budget_words, verdict_word
from nqlab.analysis.verdict import Row
from nqlab.words import _


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Rows as a table: settings and other nested values spelled out in columns of their own."""
    return pd.DataFrame([_flat(row) for row in rows])


def _flat(row: Mapping[Any, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            out |= {f"{key}.{k}": v for k, v in _flat(value).items()}
        else:
            out[key] = value if value is None or isinstance(value, (bool, int, float, str)) else json.dumps(value)
    return out


def shown(rows: Sequence[Row]) -> pd.DataFrame:
    """The table as people read it: :func:`frame` in the reader's language, variants by their names.

    The pairs one by one are left to the files.
    """
    words = [
        row
        | {
            "arm": title_of(row["arm"]),
            "baseline": title_of(row["baseline"]),
            "budget": budget_words(row["budget"]),
            "verdict": verdict_word(row["verdict"]),
        }
        for row in rows
    ]
    table = frame(words).drop(columns=["seeds", "differences"], errors="ignore")
    return table.rename(columns={name: _heading(name) for name in table.columns})


def _heading(name: str) -> str:
    """What people read above a column."""
    owner, _dot, field = name.partition(".")
    field = field.rpartition(".")[2].replace("_", " ")
    if owner == "settings":
        return field
    if owner == "baseline_settings":
        return _("baseline's {field}").format(field=field)
    return {
        "size": _("size"), "arm": _("variant"), "baseline": _("baseline"), "budget": _("budget"), "mean": _("difference"),
        "low": _("low"), "high": _("high"), "n": _("pairs"), "verdict": _("verdict"), "p": _("p"),
        "detectable": _("detectable gap"), "more_seeds": _("further seeds"), "corrected_for": _("comparisons"),
        "tried": _("settings tried"), "noise_floor": _("noise floor"), "inside_noise": _("inside the noise"),
        "survived": _("learnt"), "parameters": _("further parameters"), "parameters_percent": _("parameters, %"),
        "flops_percent": _("FLOPs, %"), "seconds_ratio": _("time, ratio"), "losses": _("losses"), "reason": _("reason"),
    }.get(name, name)  # fmt: skip


def csv(rows: Sequence[Row]) -> str:
    """The table as CSV; numbers with all their digits, so that reading it back gives the same ones."""
    return frame(rows).to_csv(index=False, lineterminator="\n")


def document(title: str, sentences: Sequence[str], figures: Sequence[go.Figure], table: pd.DataFrame) -> str:
    """One HTML page with everything in it: sentences, charts, a table such as :func:`shown`. It opens without a network."""
    parts = [f"<h1>{html.escape(title)}</h1>", *(f"<p>{html.escape(s)}</p>" for s in sentences)]
    for i, figure in enumerate(figures):
        parts.append(figure.to_html(full_html=False, include_plotlyjs=i == 0))
    parts.append(table.to_html(index=False, na_rep="", border=0))
    style = "body{font-family:sans-serif;max-width:1100px;margin:2em auto;padding:0 1em}td,th{padding:.2em .6em;text-align:left}"
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{style}</style>'
    return f"<!doctype html><html><head>{head}</head><body>{''.join(parts)}</body></html>"


def drawing_browser() -> str | None:
    """The browser that draws PNGs, or None."""
    named = os.environ.get("BROWSER_PATH")
    if named:
        return shutil.which(named)
    return next((path for name in ("chromium", "chromium-browser", "google-chrome", "chrome") if (path := shutil.which(name))), None)


def png(figure: go.Figure, width: int = 1200, height: int | None = None) -> bytes:
    """A picture of a figure. ValueError says why where there is no browser to draw it."""
    browser = drawing_browser()
    if browser is None:
        raise ValueError("a PNG needs Chromium or Chrome on the machine that serves this page; CSV, JSON and HTML work without")
    os.environ.setdefault("BROWSER_PATH", browser)
    drawn = go.Figure(figure).update_layout(template="plotly_white", width=width, height=height or figure.layout.height)
    return bytes(drawn.to_image("png", scale=2))


def json_text(rows: Sequence[Row]) -> str:
    """The rows as JSON."""
    return json.dumps(list(rows), ensure_ascii=False, indent=1, allow_nan=False)
