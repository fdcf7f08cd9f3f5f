"""A verdict in plain words, in the reader's language: how large, how sure, over how many pairs, at which settings."""

from __future__ import annotations

from nqlab.analysis.figures import title_of
from nqlab.analysis.verdict import SAME, TUNED, Row
from nqlab.config import setting_words
from nqlab.words import _, several


def sentence(row: Row) -> str:
    """One verdict of :func:`nqlab.analysis.verdict.verdicts`. Losses are nats per character."""
    arm, baseline = title_of(row["arm"]), title_of(row["baseline"])
    if row["verdict"] == "refused":
        return _("{arm} is not ranked: {reason}.").format(arm=arm, reason=row["reason"])
    where = _("at {settings}").format(settings=setting_words(row["settings"]))
    if row["budget"] == TUNED:
        mine, theirs = row["tried"]
        each, other = _("at the best of {n} settings"), _("at the best of {n} settings against the best of {m}")
        tried = (each if mine == theirs else other).format(n=mine, m=theirs)
        where = _("{tried} ({settings}; baseline {baseline_settings})").format(
            tried=tried, settings=setting_words(row["settings"]), baseline_settings=setting_words(row["baseline_settings"])
        )
    return f"{_gap(row, arm, baseline)} {where}{_failures(row)}."


def verdict_word(verdict: str) -> str:
    """A row's ``verdict`` in the reader's language."""
    return {
        "better": _("better"), "worse": _("worse"), "inconclusive": _("inconclusive"), "refused": _("refused"),
    }[verdict]  # fmt: skip


def budget_words(budget: str) -> str:
    """A row's ``budget`` in the reader's language."""
    return {SAME: _("same settings"), TUNED: _("equal tuning"), "none": _("none")}[budget]


def _gap(row: Row, arm: str, baseline: str) -> str:
    mean = f"{row['mean']:+.4f}"
    if row["low"] is None:
        return _("{arm} against {baseline}: {mean} nats in a single pair, which shows no spread: inconclusive,").format(
            arm=arm, baseline=baseline, mean=mean
        )
    interval = _("{level} % interval {low} to {high}, {n} paired seeds").format(
        level=f"{100 * (1 - 0.05 / row['corrected_for']):.4g}", low=f"{row['low']:+.4f}", high=f"{row['high']:+.4f}", n=row["n"]
    )
    if row["verdict"] == "inconclusive":
        return _("{arm} against {baseline}: inconclusive, {mean} nats ({interval}; {need} would settle a gap of this size)").format(
            arm=arm, baseline=baseline, mean=mean, interval=interval, need=_need(row["more_seeds"])
        )
    small = _("; smaller than the noise floor of {floor}").format(floor=f"{row['noise_floor']:.4f}") if row["inside_noise"] else ""
    better, worse = _("{arm} is {size} nats better than {baseline}"), _("{arm} is {size} nats worse than {baseline}")
    text = better if row["verdict"] == "better" else worse
    return text.format(arm=arm, size=f"{abs(row['mean']):.4f}", baseline=baseline) + f" ({interval}{small})"


def _need(more: int | None) -> str:
    if more is None:
        return _("more than a thousand seeds")
    return several("about {n} more seed", "about {n} more seeds", more).format(n=more)


def _failures(row: Row) -> str:
    mine, n, theirs, of = row["survived"]
    if mine == n and theirs == of:
        return ""
    return _("; {mine} of {n} runs learnt, of the baseline's {theirs} of {of}").format(mine=mine, n=n, theirs=theirs, of=of)
