"""Does the gain pay in use? Prefill and per-token times of variants, with spread, beside parameters, FLOPs and loss.

Works on the records of :mod:`nqlab.runs.latency`, as far as they have come. A time is the median over repeats, its
spread goes from quartile to quartile. A ratio to the baseline (the first variant) is the median over repeats of
the ratio within a repeat, where both were measured right after each other, with the same spread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from nqlab.analysis import studies
from nqlab.analysis.figures import Spec, colour, dash, title_of
from nqlab.analysis.results import Result, results_of
from nqlab.analysis.studies import Filled
from nqlab.analysis.verdict import QUIET, TUNABLE
from nqlab.config import RunConfig, setting_words, validated
from nqlab.model.budget import flops_per_token
from nqlab.runs import store
from nqlab.runs.latency import KINDS
from nqlab.runs.study import Study
from nqlab.words import _, several

Row = dict[str, Any]
Record = Mapping[str, Any]
QUARTILES = (25, 50, 75)
UNKNOWN: Row = {"val_loss": None, "val_loss_at": None}
ENOUGH_SEEDS = 3
NO_LOSS_IN = QUIET | {"seed", "training.min_lr", "training.threads", "training.device", "training.compile"}  # beside what is tuned


def summary(records: Sequence[Record], losses: Mapping[str, Row] | None = None) -> list[Row]:
    """A row for each context and variant: ``variant``, ``arm``, ``context``, ``repeats`` (whole ones), ``parameters``,
    ``flops`` (matrix FLOPs of a token that looks at ``context`` positions), what :func:`losses_of` knows of it, and for
    prefill and token ``_s``, ``_low_s``, ``_high_s`` (seconds), ``_ratio``, ``_ratio_low``, ``_ratio_high``. What has
    not been measured yet is None."""
    begin = beginning(records)
    if begin is None:
        return []
    times: dict[tuple[str, int, str], dict[int, float]] = defaultdict(dict)
    for r in records:
        if r["type"] == "reading":
            times[r["variant"], r["context"], r["kind"]][r["repeat"]] = r["seconds"]
    baseline = begin["subjects"][0]["variant"]
    rows = []
    for context in sorted(begin["contexts"]):
        for subject in begin["subjects"]:
            variant = subject["variant"]
            row = _costs(subject, context) | (losses or {}).get(variant, UNKNOWN)
            for kind in KINDS:
                row |= _numbers(kind, times[variant, context, kind], times[baseline, context, kind])
            rows.append(row | {"repeats": min(len(times[variant, context, kind]) for kind in KINDS)})
    return rows


def beginning(records: Sequence[Record]) -> Record | None:
    """The record of what is measured and on what; None before it has come."""
    return next((r for r in records if r["type"] == "begin"), None)


def _costs(subject: Record, context: int) -> Row:
    model = validated(subject["config"]).model.model_copy(update={"block_size": context})
    row = {name: subject[name] for name in ("variant", "arm", "parameters")}
    return row | {"context": context, "flops": flops_per_token(model, subject["vocabulary"])}


def _numbers(kind: str, mine: Mapping[int, float], theirs: Mapping[int, float]) -> Row:
    """Quartiles of a variant's times, and of its ratios to the baseline's in the same repeat."""
    names = [f"{kind}_low_s", f"{kind}_s", f"{kind}_high_s"]
    ratio_names = [f"{kind}_ratio_low", f"{kind}_ratio", f"{kind}_ratio_high"]
    ratios = [mine[repeat] / theirs[repeat] for repeat in mine if repeat in theirs]
    return _quartiles(names, list(mine.values())) | _quartiles(ratio_names, ratios)


def _quartiles(names: Sequence[str], values: Sequence[float]) -> Row:
    if not values:
        return dict.fromkeys(names)
    return dict(zip(names, map(float, np.percentile(values, QUARTILES))))


# --- what it reached


def losses_of(records: Sequence[Record], filled: Iterable[Filled]) -> dict[str, Row]:
    """Variant -> ``val_loss`` (nats per character) and ``val_loss_at`` (where that comes from), both None where unknown:
    a run's own loss, and for a preset's arm :func:`known_loss` in these studies."""
    begin, known, found = beginning(records), list(filled), {}
    for subject in begin["subjects"] if begin else ():
        own = {"val_loss": subject["val_loss"], "val_loss_at": "the run's own"}
        found[subject["variant"]] = known_loss(validated(subject["config"]), known) if subject["val_loss"] is None else own
    return found


def sources(runs_dir: Path) -> list[Filled]:
    """Where a loss may be known from: studies filled here, those shipped, and single runs."""
    single = Filled(Study(name="runs"), tuple(results_of(store.runs(runs_dir))), {})
    return [*studies.here(runs_dir), *studies.shipped(), single]


def known_loss(config: RunConfig, filled: Iterable[Filled]) -> Row:
    """The mean final validation loss of a configuration over seeds, at the best learning rate and weight decay that any
    of these studies tried: chosen on the even validation windows, told from the odd ones. Only runs that agree with it
    in everything else that moves a loss count, and settings of few seeds only where there are no others."""
    wanted = _loss_fields(config)
    groups: dict[tuple[Any, ...], dict[int, Result]] = defaultdict(dict)
    for result in (r for one in filled for r in one.results):
        if result.outcome != "unfinished" and result.counted_half(0) is not None and _loss_fields(result.config) == wanted:
            groups[tuple(result.flat[key] for key in TUNABLE)].setdefault(result.config.seed, result)
    if not groups:
        return UNKNOWN
    enough = {setting: runs for setting, runs in groups.items() if len(runs) >= ENOUGH_SEEDS} or groups
    best = min(enough, key=lambda setting: _mean_half(enough[setting], 0))
    count = len(enough[best])
    words = f"{setting_words(dict(zip(TUNABLE, best)))}, {count} {'seed' if count == 1 else 'seeds'}, best of {len(enough)}"
    return {"val_loss": _mean_half(enough[best], 1), "val_loss_at": words}


def _mean_half(runs: Mapping[int, Result], half: int) -> float:
    return fmean(loss for r in runs.values() if (loss := r.counted_half(half)) is not None)


def _loss_fields(config: RunConfig) -> dict[str, Any]:
    return {key: value for key, value in config.flat().items() if key not in NO_LOSS_IN and key not in TUNABLE}


# --- for people


def progress(records: Sequence[Record]) -> tuple[int, int]:
    """Readings so far, and in all; (0, 0) before it is known."""
    begin = beginning(records)
    if begin is None:
        return 0, 0
    total = begin["repeats"] * len(begin["subjects"]) * len(begin["contexts"]) * len(KINDS)
    return sum(r["type"] == "reading" for r in records), total


def disturbed(records: Sequence[Record]) -> int:
    """How many repeats were measured while something trained on the same machine."""
    return len({r["repeat"] for r in records if r["type"] == "reading" and r["busy"]})


def circumstances(records: Sequence[Record]) -> str:
    """On what it was measured, in a line; empty before it is known."""
    begin = beginning(records)
    if begin is None:
        return ""
    threads = several("{n} thread", "{n} threads", begin["threads"]).format(n=begin["threads"])
    return f"{begin['device']} ({begin['machine']}), {threads}, torch {begin['torch']}"


def table(rows: Iterable[Row]) -> list[dict[str, str]]:
    """The rows as people read them: milliseconds, and in brackets the spread."""
    return [
        {
            _("context"): str(row["context"]),
            _("variant"): title_of(row["variant"]),
            _("prefill, ms"): _with_spread(row, "prefill", "_s", 1000),
            _("ratio of prefill"): _with_spread(row, "prefill", "_ratio"),
            _("per token, ms"): _with_spread(row, "token", "_s", 1000),
            _("ratio per token"): _with_spread(row, "token", "_ratio"),
            _("parameters"): f"{row['parameters']:,}",
            _("FLOPs per token"): f"{row['flops']:,}",
            _("val. loss"): "–" if row["val_loss"] is None else f"{row['val_loss']:.4f}",
        }
        for row in rows
    ]


def _with_spread(row: Row, kind: str, what: str, unit: float = 1) -> str:
    ends = ("_s", "_low_s", "_high_s") if what == "_s" else ("_ratio", "_ratio_low", "_ratio_high")
    if row[kind + ends[0]] is None:
        return "–"
    middle, low, high = (unit * row[kind + end] for end in ends)
    return f"{_digits(middle)} ({_digits(low)}–{_digits(high)})"


def _digits(value: float) -> str:
    """Three digits that count."""
    return f"{value:#.3g}".removesuffix(".")


def ratio_spec(rows: Sequence[Row], kind: str = "token", height: int = 380) -> Spec:
    """A kind's ratios to the baseline against context, with their spread as bars, as plain data in Plotly's own form.

    Variants stand a little beside each other, so that their bars can be told apart.
    """
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    data = []
    for i, variant in enumerate(variants):
        mine = [row for row in rows if row["variant"] == variant and row[f"{kind}_ratio"] is not None]
        tint = colour(mine[0]["arm"]) if mine else None
        ratios = [row[f"{kind}_ratio"] for row in mine]
        data.append({
            "type": "scatter", "mode": "lines+markers", "uid": f"v{i}", "name": title_of(variant),
            "x": [row["context"] * 1.02 ** (i - (len(variants) - 1) / 2) for row in mine], "y": ratios,
            "line": {"color": tint, "dash": dash(mine[0]["arm"]) if mine else "solid"},
            "error_y": {
                "type": "data", "symmetric": False, "thickness": 1,
                "array": [row[f"{kind}_ratio_high"] - y for row, y in zip(mine, ratios)],
                "arrayminus": [y - row[f"{kind}_ratio_low"] for row, y in zip(mine, ratios)],
            },
            "text": [_with_spread(row, kind, "_ratio") for row in mine], "hovertemplate": "%{text}",
        })  # fmt: skip
    contexts = sorted({row["context"] for row in rows})
    what = _("time per token, ratio to {baseline}") if kind == "token" else _("time of prefill, ratio to {baseline}")
    title = what.format(baseline=title_of(variants[0]) if variants else "")
    layout = {
        "height": height, "margin": {"l": 60, "r": 10, "t": 20, "b": 50}, "uirevision": kind,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "xaxis": {
            "type": "log", "tickvals": contexts, "ticktext": [str(c) for c in contexts], "title": {"text": _("context (characters)")},
        },
        "yaxis": {"title": {"text": title}},
    }  # fmt: skip
    return {"data": data, "layout": layout}
