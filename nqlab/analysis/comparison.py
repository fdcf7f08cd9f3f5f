"""A study compared: its verdicts together with the runs behind them, as pages, notebooks and files show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from nqlab import presets
from nqlab.analysis import report, views
from nqlab.analysis.bands import Axis, Band, band
from nqlab.analysis.figures import title_of
from nqlab.analysis.results import Result
from nqlab.analysis.sentences import budget_words, sentence
from nqlab.analysis.stability import Cell, cells
from nqlab.analysis.studies import Filled
from nqlab.analysis.verdict import SAME, TUNED, Row, fields_of, sizes, verdicts
from nqlab.config import setting_words
from nqlab.words import _


@dataclass(frozen=True)
class Comparison:
    """Rows of :func:`nqlab.analysis.verdict.verdicts`, and the runs they are about.

    ``at`` are the settings fixed beforehand, None for all of them.
    """

    name: str
    baseline: str
    arms: tuple[str, ...]
    results: tuple[Result, ...]
    rows: tuple[Row, ...]
    at: Mapping[str, Any] | None = None

    def of_size(self, size: str) -> Comparison:
        """The same for one size alone."""
        mine = tuple(sizes(self.results).get(size, ()))
        return replace(self, results=mine, rows=tuple(row for row in self.rows if row["size"] == size))

    @property
    def same(self) -> list[Row]:
        """At the same settings."""
        return [row for row in self.rows if row["budget"] == SAME]

    @property
    def tuned(self) -> list[Row]:
        """At equal tuning."""
        return [row for row in self.rows if row["budget"] == TUNED]

    @property
    def refused(self) -> list[Row]:
        """Not ranked."""
        return [row for row in self.rows if row["verdict"] == "refused"]

    @cached_property
    def settings(self) -> list[dict[str, Any]]:
        """The settings that an arm shares with the baseline, in order."""
        return [dict(key) for key in dict.fromkeys(tuple(row["baseline_settings"].items()) for row in self.same)]

    @property
    def usual(self) -> int:
        """The place among :attr:`settings` of those that the presets use, untuned; 0 where it was not tried."""
        training = presets.tiny().training
        usual = {"training.learning_rate": training.learning_rate, "training.weight_decay": training.weight_decay}
        return next((i for i, setting in enumerate(self.settings) if usual.items() <= setting.items()), 0)

    def at_setting(self) -> dict[str, list[Result]]:
        """The ended runs of each arm at the settings fixed beforehand; without them, at the best ones of each."""
        best = {row["arm"]: row["settings"] for row in self.tuned} | {row["baseline"]: row["baseline_settings"] for row in self.tuned}
        found: dict[str, list[Result]] = {}
        for arm in (self.baseline, *self.arms):
            wanted = self.at if self.at is not None else best.get(arm)
            if wanted is None:
                continue
            runs = [r for r in self.results if r.arm == arm and r.outcome != "unfinished" and wanted.items() <= fields_of(r).items()]
            if runs:
                found[arm] = runs
        return found

    def bands(self, axis: Axis) -> dict[str, Band]:
        """Curves over seeds of each arm, at those settings."""
        return {arm: band(runs, axis) for arm, runs in self.at_setting().items()}

    def cells(self) -> list[Cell]:
        """Every setting with its seeds."""
        return cells(self.results)

    @property
    def difference(self) -> str:
        """In which fields the runs differ, and the values there, in one line."""
        values: dict[str, dict[str, None]] = {}
        for result in self.results:
            for key, value in fields_of(result).items():
                values.setdefault(key, {})[f"{value:g}" if isinstance(value, float) else "–" if value is None else str(value)] = None
        varied = {key.split(".")[-1].replace("_", " "): ", ".join(seen) for key, seen in values.items() if len(seen) > 1}
        return "; ".join(f"{key} {seen}" for key, seen in varied.items()) or _("nothing")

    def sentences(self) -> list[str]:
        """Every verdict in words."""
        return [f"{budget_words(row['budget'])}: {sentence(row)}" for row in self.rows]

    def document(self) -> str:
        """One HTML page with everything."""
        figures = [difference_chart(rows) for rows in (self.tuned, self.same) if rows]
        figures.append(views.slice_figure(self.cells(), [self.baseline, *self.arms]))
        return report.document(f"nqlab: {self.name}", self.sentences(), figures, report.shown(self.rows))

    def picture(self) -> bytes:
        """The differences as a PNG. ValueError where no browser can draw it."""
        return report.png(difference_chart([*self.tuned, *self.same]))


def difference_chart(rows: Sequence[Row]) -> Any:
    """The differences of some rows with their intervals, each labelled with its arm, budget and settings."""
    labels = [f"{title_of(row['arm'])}, {budget_words(row['budget'])}: {setting_words(row['settings'])}" for row in rows]
    return views.difference_figure(rows, labels)


def compare(
    filled: Filled, baseline: str | None = None, arms: Sequence[str] | None = None, at: Mapping[str, Any] | None = None
) -> Comparison:
    """A study, or some of its arms, against a baseline. ValueError for an arm that the study does not have."""
    study = filled.study
    baseline = baseline or study.baseline
    arms = tuple(a for a in study.arms if a != baseline) if arms is None else tuple(arms)
    if unknown := [a for a in (baseline, *arms) if a not in study.arms]:
        raise ValueError(f"the study {study.name!r} has no arm {unknown[0]!r}; it has {', '.join(study.arms)}")
    results = tuple(r for r in filled.results if r.arm in (baseline, *arms))
    declared = {key if "." in key else f"model.{key}" for key in study.grid}
    return Comparison(study.name, baseline, arms, results, tuple(verdicts(results, baseline, declared=declared, at=at)), at)


def at_both_budgets(filled: Filled, arms: Sequence[str] | None = None) -> dict[str, list[Row]]:
    """The verdicts of each size: at equal tuning, then at the presets' usual settings. A size without pairs is left out.

    ValueError for an arm that the study does not have.
    """
    everything = compare(filled, arms=arms)
    judged: dict[tuple[tuple[str, Any], ...], Comparison] = {}  # sizes mostly share their usual settings
    found: dict[str, list[Row]] = {}
    for size in dict.fromkeys(row["size"] for row in everything.rows):
        mine = everything.of_size(size)
        if not mine.settings:
            continue
        at = mine.settings[mine.usual]
        key = tuple(at.items())
        if key not in judged:
            judged[key] = compare(filled, arms=arms, at=at)
        chosen = judged[key].of_size(size)
        found[size] = [*chosen.tuned, *chosen.same]
    return found


def cost_words(row: Row) -> str:
    """What an arm costs more than the baseline, in words of the reader's language."""
    if row["parameters"] is None:
        return ""
    parts = [
        _("{n:+,} parameters ({percent:+.2f} % of the blocks)").format(n=row["parameters"], percent=row["parameters_percent"]),
        _("{percent:+.1f} % FLOPs").format(percent=row["flops_percent"]),
    ]
    if row["seconds_ratio"] is not None:
        parts.append(_("{ratio:.2f} times the processor time").format(ratio=row["seconds_ratio"]))
    return ", ".join(parts)
