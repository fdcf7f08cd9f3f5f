"""Where training survives: every setting of a study, how many of its seeds learnt, and how well.

A run survives when it makes all its steps and ends at or below the bigram entropy of its text. At these sizes a run
that fails seldom becomes infinite: it stays near the unigram entropy, predicting letters by their frequency.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from nqlab.analysis.figures import GREY, colour, title_of
from nqlab.analysis.results import Outcome, Result
from nqlab.words import _, several

AXES = ("learning_rate", "weight_decay", "bottleneck")
COLOURS = "Viridis"
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


def axis_title(axis: str) -> str:
    """What people read for one of :data:`AXES`."""
    return {"learning_rate": _("learning rate"), "weight_decay": _("weight decay"), "bottleneck": _("bottleneck width R")}[axis]


@dataclass(frozen=True)
class Cell:
    """The runs of one arm at one setting, which differ in their seed alone."""

    arm: str
    setting: tuple[tuple[str, float], ...]
    results: tuple[Result, ...]

    @property
    def n(self) -> int:
        """Runs that ended."""
        return len(self.results)

    @property
    def survived(self) -> int:
        """Runs that learnt."""
        return sum(r.outcome == "finished" for r in self.results)

    @property
    def mean(self) -> float:
        """Mean of the losses that a comparison counts, nats per character."""
        return fmean(r.counted_loss for r in self.results if r.counted_loss is not None)

    @property
    def diverged_at(self) -> int | None:
        """The first step at which one of them stopped being finite."""
        return min((r.step for r in self.results if r.outcome == "diverged"), default=None)

    def value(self, axis: str) -> float:
        """Its value on one axis."""
        return dict(self.setting)[axis]

    @property
    def key(self) -> str:
        """The arm and the setting as a short name that is the same in every language."""
        return " ".join([self.arm, *(f"{axis}={value:g}" for axis, value in self.setting)])

    @property
    def title(self) -> str:
        """The arm and the setting, in words."""
        parts = [f"{axis_title(axis)} {value:g}" for axis, value in self.setting if axis != "bottleneck" or value]
        return f"{title_of(self.arm)}, {', '.join(parts)}"

    def rows(self) -> list[dict[str, object]]:
        """A line a run."""
        return [
            {
                _("seed"): r.config.seed,
                _("ended"): outcome_word(r.outcome),
                _("step"): r.step,
                _("val. loss"): r.val_loss,
                _("counted as"): r.counted_loss,
            }
            for r in self.results
        ]

    def curves(self) -> dict[str, tuple[tuple[int, ...], tuple[float, ...]]]:
        """Steps and validation losses of each run, by its seed; runs that share one (of another text, say) also by their id."""
        seeds = [r.config.seed for r in self.results]
        names = [_("seed {seed}").format(seed=s) + (f" ({r.id})" if seeds.count(s) > 1 else "") for s, r in zip(seeds, self.results)]
        return {name: (r.steps, r.losses) for name, r in zip(names, self.results)}

    @property
    def words(self) -> str:
        """How it ended, in words."""
        if self.survived == self.n:
            return several("all {n} learnt", "all {n} learnt", self.n).format(n=self.n)
        failed = [_("{k} of {n} learnt").format(k=self.survived, n=self.n)]
        if self.diverged_at is not None:
            failed.append(_("diverged at step {step}").format(step=self.diverged_at))
        return ", ".join(failed)

    def record(self) -> dict[str, object]:
        """As plain data; ``bottleneck`` is None for an arm without one, the loss in nats per character."""
        setting = {axis: value if value or axis != "bottleneck" else None for axis, value in self.setting}
        counts = {"mean_loss": self.mean, "learnt": self.survived, "of": self.n, "diverged_at": self.diverged_at}
        return {"arm": self.arm, **setting, **counts}


def outcome_word(outcome: Outcome) -> str:
    """How a run ended, in the reader's language."""
    return {
        "finished": _("finished"), "did not learn": _("did not learn"), "diverged": _("diverged"), "unfinished": _("unfinished"),
    }[outcome]  # fmt: skip


def setting_of(result: Result) -> tuple[tuple[str, float], ...]:
    """Learning rate, weight decay and bottleneck width (0 for an arm without one)."""
    training, model = result.config.training, result.config.model.resolved()
    return (
        ("learning_rate", training.learning_rate),
        ("weight_decay", training.weight_decay),
        ("bottleneck", float(model.bottleneck or 0)),
    )


def cells(results: Iterable[Result]) -> list[Cell]:
    """The settings of some runs, those under way left out; arms and settings in order."""
    groups: dict[tuple[str, tuple[tuple[str, float], ...]], dict[int, Result]] = defaultdict(dict)
    for result in results:
        if result.outcome != "unfinished":
            groups[result.arm, setting_of(result)].setdefault(result.config.seed, result)  # a run that is in two studies counts once
    return [Cell(arm, setting, tuple(by_seed.values())) for (arm, setting), by_seed in sorted(groups.items())]


def table(found: Sequence[Cell]) -> list[dict[str, object]]:
    """The same as rows, for a table beside the map."""
    return [
        {
            _("arm"): title_of(c.arm), **{axis_title(k): v for k, v in c.setting},
            _("mean loss"): c.mean, _("learnt"): c.survived, _("of"): c.n, _("how"): c.words,
        }
        for c in found
    ]  # fmt: skip


def stability_map(found: Sequence[Cell], arms: Sequence[str], y: str = "weight_decay", columns: int = 3) -> go.Figure:
    """A panel an arm: learning rate across, ``y`` upwards, colour the mean final loss, the same scale for all.

    A setting whose runs did not all learn is a cross, with how many did; each point's customdata is its place in ``found``.
    """
    columns = min(columns, len(arms))
    rows = -(-len(arms) // columns)
    figure = make_subplots(
        rows=rows, cols=columns, subplot_titles=[title_of(a) for a in arms], shared_xaxes="all", shared_yaxes="all",
        horizontal_spacing=0.02, vertical_spacing=0.22 / rows,
    )  # fmt: skip
    for i, arm in enumerate(arms):
        places = [k for k, cell in enumerate(found) if cell.arm == arm]
        figure.add_trace(_panel(found, places, arm, y), row=i // columns + 1, col=i % columns + 1)
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=_values(found, "learning_rate"), tickangle=-45)
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=_values(found, y))
    figure.update_xaxes(title_text=axis_title("learning_rate"), row=rows)
    figure.update_yaxes(title_text=axis_title(y), col=1)
    figure.update_layout(
        height=rows * (110 + 50 * len(_values(found, y))) + 70, margin={"l": 60, "r": 10, "t": 40, "b": 70}, showlegend=False,
        coloraxis={"colorscale": COLOURS, "reversescale": True, "colorbar": {"title": {"text": _("loss")}, "thickness": 12}},
    )  # fmt: skip
    return figure


def panel_figure(found: Sequence[Cell], arm: str, y: str = "weight_decay") -> go.Figure:
    """One panel of :func:`stability_map` on its own, on the same axes and colours: pages put them side by side."""
    figure = stability_map([c for c in found if c.arm == arm], [arm], y)
    means = [cell.mean for cell in found]
    figure.update_layout(coloraxis={"cmin": min(means), "cmax": max(means), "showscale": False}, margin={"l": 50, "t": 30, "b": 60})
    figure.update_xaxes(categoryarray=_values(found, "learning_rate"))
    figure.update_yaxes(categoryarray=_values(found, y))
    figure.data[0].customdata = [k for k, cell in enumerate(found) if cell.arm == arm]
    return figure


def seeds_figure(cell: Cell, references: Mapping[str, float] | None = None, height: int = 320) -> go.Figure:
    """The validation curves of a setting's runs, with level lines: ``references``, or the unigram entropy, where failed runs stay."""
    figure = go.Figure()
    for i, r in enumerate(cell.results):
        figure.add_trace(
            go.Scatter(
                x=list(r.steps), y=list(r.losses), mode="lines+markers",
                name=_("seed {seed} ({outcome})").format(seed=r.config.seed, outcome=outcome_word(r.outcome)),
                line={"color": colour(cell.arm), "dash": DASHES[i % len(DASHES)]}, marker={"size": 4, "symbol": i},
            )
        )  # fmt: skip
        if r.outcome == "diverged" and r.steps:
            mark = {"symbol": "x", "size": 12, "color": "#D55E00"}
            figure.add_trace(
                go.Scatter(
                    x=[r.step], y=[r.losses[-1]], mode="markers+text",
                    text=[_("diverged at step {step}").format(step=r.step)],
                    textposition="top center", marker=mark, showlegend=False,
                )
            )  # fmt: skip
    for name, level in (references or {_("unigram entropy"): cell.results[0].unigram}).items():
        words = {"text": f"{name} {level:.2f}", "font": {"size": 11, "color": GREY}}
        figure.add_hline(y=level, line={"dash": "dot", "color": GREY, "width": 1}, annotation=words)
    figure.update_layout(height=height, margin={"l": 60, "r": 10, "t": 10, "b": 40}, xaxis_title=_("optimiser step"))
    figure.update_yaxes(title_text=_("validation loss (nats per character)"))
    return figure


def _values(found: Sequence[Cell], axis: str) -> list[str]:
    return [f"{v:g}" for v in sorted({cell.value(axis) for cell in found})]


def _panel(found: Sequence[Cell], places: Sequence[int], arm: str, y: str) -> go.Scatter:
    panel = [found[i] for i in places]
    whole, loss_word = [cell.survived == cell.n for cell in panel], _("mean loss")
    return go.Scatter(
        x=[f"{cell.value('learning_rate'):g}" for cell in panel],
        y=[f"{cell.value(y):g}" for cell in panel],
        mode="markers+text",
        text=[f"{cell.mean:.2f}" if ok else f"{cell.survived}/{cell.n}" for cell, ok in zip(panel, whole)],
        textposition="bottom center",
        textfont={"size": 11},
        marker={
            "symbol": ["square" if ok else "x" for ok in whole],
            "size": [24 if ok else 16 for ok in whole],
            "color": [cell.mean for cell in panel],
            "coloraxis": "coloraxis",
            "line": {"width": 1, "color": "#808080"},
            "opacity": 1.0,
        },
        unselected={"marker": {"opacity": 0.6}},
        customdata=places,
        hovertext=[f"{title_of(arm)}<br>{loss_word} {cell.mean:.4f}<br>{cell.words}" for cell in panel],
        hoverinfo="text",
    )
