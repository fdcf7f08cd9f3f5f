"""An experiment as people pass it on: a preset, the arms that race, and what differs from the preset.

The same few words make an address, a command line and a notebook cell, and an address gives the experiment back.
An address holds only what differs, and a version; what can't be understood is named and left at the preset's value.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from nqlab import presets
from nqlab.config import RunConfig, difference, replace
from nqlab.words import _

VERSION = "1"
DEFAULT_ARMS = ("linear", "nonlinear", "identity")


@dataclass(frozen=True)
class Experiment:
    """``changes``: dotted fields of :class:`~nqlab.config.RunConfig` and their values, where they are not the preset's."""

    preset: str = "tiny"
    arms: tuple[str, ...] = DEFAULT_ARMS
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def base(self) -> RunConfig:
        """The configuration before an arm is put in. ValueError names what does not fit."""
        return replace(presets.preset(self.preset), self.changes)

    @property
    def configs(self) -> list[RunConfig]:
        """One configuration an arm. ValueError names what does not fit."""
        base = self.base
        return [presets.arm(base, name) for name in self.arms]

    # --- as an address

    def query(self) -> dict[str, str]:
        """As the parameters of an address; the preset tiny with the usual arms is ``v`` alone."""
        out = {"v": VERSION}
        if self.preset != "tiny":
            out["preset"] = self.preset
        if self.arms != DEFAULT_ARMS:
            out["arms"] = ",".join(self.arms)
        return out | {_short(key): _text(value) for key, value in self.changes.items()}

    # --- as a command and as a cell of a notebook

    def command(self) -> str:
        """The command line that races the same."""
        parts = ["python", "-m", "nqlab", "train", "--preset", self.preset]
        for arm in self.arms:
            parts += ["--arm", arm]
        for key, value in self.changes.items():
            parts += ["--corpus", value] if key == "corpus" else ["--set", f"{_short(key)}={_text(value)}"]
        return shlex.join(parts)

    def cell(self) -> str:
        """A notebook cell that trains the same and draws it."""
        changes = {_short(key): value for key, value in self.changes.items()}
        return "\n".join(
            [
                "from nqlab import corpus as corpora",
                "from nqlab.analysis import figures, notebook",
                "from nqlab.experiment import Experiment",
                "",
                "notebook.setup()",
                f"experiment = Experiment({self.preset!r}, {self.arms!r}, {changes!r})",
                "arms = dict(zip(experiment.arms, experiment.configs))",
                "text = corpora.load(experiment.base.corpus)",
                "curves, models = notebook.race(arms, text)",
                "lines = [figures.Line(arm, arm, arm, curve) for arm, curve in curves.items()]",
                "figures.loss_figure(lines, references=figures.reference_lines(text.levels))",
            ]
        )


def of(preset: str, arms: Sequence[str], changes: Mapping[str, Any]) -> Experiment:
    """An experiment that keeps of ``changes`` only what makes a difference to one of its arms. ValueError as ``replace``."""
    start = presets.preset(preset)
    given = replace(start, changes)
    wanted = [presets.arm(given, arm).resolved() for arm in arms]
    flat, before = unresolved(given), unresolved(start)
    kept = {key: value for key, value in flat.items() if value != before[key]}
    for key in list(kept):
        fewer = {k: v for k, v in kept.items() if k != key}
        with suppress(ValueError):  # some settings are right only together
            if [presets.arm(replace(start, fewer), arm).resolved() for arm in arms] == wanted:
                kept = fewer
    return Experiment(preset, tuple(arms), kept)


def of_runs(configs: Sequence[RunConfig]) -> Experiment | None:
    """The shortest experiment behind the configurations of a race; None where they differ in more than their arm."""
    arms = [presets.arm_of(config) for config in configs]
    found = []
    for name, make in presets.PRESETS.items():
        changes: dict[str, Any] = {}
        for arm, config in zip(arms, configs):
            changes |= {key: value for key, (_before, value) in difference(presets.arm(make(), arm), config).items()}
        with suppress(ValueError):
            one = of(name, arms, changes)
            if [c.resolved() for c in one.configs] == [c.resolved() for c in configs]:
                found.append(one)
    return min(found, key=lambda one: len(one.changes), default=None)


def unresolved(config: RunConfig) -> dict[str, Any]:
    """The configuration as dotted fields, defaults left at None."""
    out: dict[str, Any] = {}
    for key, value in config.model_dump(mode="json").items():
        out |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
    return out


def read(parameters: Mapping[str, str]) -> tuple[Experiment, list[str]]:
    """The experiment in an address, and a sentence for each part that could not be understood.

    What does not fit is left at the preset's value, so that there is always an experiment;
    :data:`OTHER` are no settings and are passed over.
    """
    problems = []
    version = parameters.get("v", VERSION)
    if version != VERSION:
        problems.append(
            _("This link was made by another version ({version}) of the program; what it understands is used.").format(version=version)
        )
    preset = parameters.get("preset", "tiny")
    if preset not in presets.PRESETS:
        problems.append(
            _("There is no preset {name!r}; tiny is used. Presets are {known}.").format(name=preset, known=", ".join(presets.PRESETS))
        )
        preset = "tiny"
    arms = tuple(dict.fromkeys(a for a in parameters.get("arms", ",".join(DEFAULT_ARMS)).split(",") if a))
    if unknown := [a for a in arms if a not in presets.ARMS]:
        problems.append(
            _("There is no variant {names}; left out. Variants are {known}.").format(
                names=", ".join(unknown), known=", ".join(presets.ARMS)
            )
        )
    arms = tuple(a for a in arms if a in presets.ARMS) or DEFAULT_ARMS
    changes: dict[str, Any] = {}
    for key, value in parameters.items():
        if key in OTHER or key in ("v", "preset", "arms"):
            continue
        try:
            replace(presets.preset(preset), changes | {key: value})
            changes[key] = value
        except ValueError as error:
            problems.append(
                _("In the link, {key}={value} is not understood and left out: {error}.").format(key=key, value=value, error=error)
            )
    return of(preset, arms, changes), problems


OTHER = frozenset(("race", "run", "study", "lang", "view", "hide", "lock", "predict", "teacher"))  # an address's other business


def _short(key: str) -> str:
    return key.rsplit(".", 1)[-1]


def _text(value: Any) -> str:
    return "none" if value is None else json.dumps(value) if isinstance(value, list) else str(value)


# --- questions


@dataclass(frozen=True)
class Question:
    """An experiment worth a look, with what it asks and one sentence on it."""

    title: str
    about: str
    experiment: Experiment


def questions() -> dict[str, Question]:
    """Where to start from, by what one wants to know; titles and sentences in the reader's language."""
    rate = presets.tiny().training.learning_rate
    usual = DEFAULT_ARMS
    return {
        "paper": Question(
            _("The paper's comparison"),
            _("Linear, nonlinear and identity query at one low learning rate for all: here the paper's order appears."),
            Experiment("tiny", usual),
        ),
        "rate": Question(
            _("Three times the learning rate"),
            _("The same race with a higher rate for all: watch what becomes of the order."),
            Experiment("tiny", usual, {"training.learning_rate": 3 * rate}),
        ),
        "diverge": Question(
            _("Make it diverge"),
            _("A rate a hundred times too high: some variants learn on, others sit at the letter frequencies."),
            Experiment("tiny", ("linear", "nonlinear", "bottleneck_linear", "identity"), {"training.learning_rate": 100 * rate}),
        ),
        "identity": Question(
            _("Identity only"),
            _("No query projection at all, q = x/2, against the linear one: how much is lost without W_Q?"),
            Experiment("tiny", ("linear", "identity")),
        ),
        "narrow": Question(
            _("Too narrow a bottleneck"),
            _("f with two hidden units instead of half the width: is there anything left of its gain?"),
            Experiment("tiny", ("linear", "nonlinear", "bottleneck_linear"), {"model.bottleneck": 2}),
        ),
        "overfit": Question(
            _("Overfit a short text"),
            _("Ten thousand characters of Python's documentation, learnt by heart: training loss falls, validation loss turns up."),
            Experiment("tiny", ("linear", "nonlinear"), {"corpus": "python-docs-short", "training.learning_rate": 3 * rate}),
        ),
    }
