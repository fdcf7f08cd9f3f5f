"""How a race stands, in words and numbers: what its page shows at every tick."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from nqlab.analysis.curves import Curve
from nqlab.analysis.figures import labels
from nqlab.runs.race import Race
from nqlab.runs.store import ACTIVE, RESUMABLE, Run, Status
from nqlab.words import _

Kind = Literal["info", "warning", "error"]


@dataclass(frozen=True)
class Standing:
    """A race with its runs, how each stands, and its curve as it is to be shown. No race: all empty."""

    race: Race | None
    entries: tuple[tuple[Run, Status, Curve], ...] = ()

    @property
    def statuses(self) -> set[Status]:
        """How its runs stand."""
        return {status for _run, status, _curve in self.entries}

    @property
    def active(self) -> bool:
        """Whether any of its runs trains or is about to."""
        return bool(self.statuses & ACTIVE)

    @property
    def halted(self) -> list[Run]:
        """Runs that can go on."""
        return [run for run, status, _curve in self.entries if status in RESUMABLE]

    @property
    def labels(self) -> list[str]:
        """A word for each run."""
        return labels([run.config for run, *_rest in self.entries])

    @property
    def step(self) -> int:
        """The step of the slowest that trains; of the farthest where none does."""
        training = [curve.step for _run, status, curve in self.entries if status in ACTIVE]
        return min(training) if training else max((curve.step for *_rest, curve in self.entries), default=0)

    @property
    def steps(self) -> int:
        """Where it ends."""
        return max((run.config.training.steps for run, *_rest in self.entries), default=0)

    def until(self, step: int) -> Standing:
        """As it was after ``step`` updates of each run."""
        return Standing(self.race, tuple((run, status, curve.until(step)) for run, status, curve in self.entries))


def headline(now: Standing) -> str:
    """One line: which race, how it stands, at which step."""
    if now.race is None:
        return _("No race yet: press **Start**.")
    order: tuple[Status, ...] = ("queued", "starting", "running", "paused", "stopping")
    word: Status = next((s for s in order if s in now.statuses), "finished")
    if word == "finished" and not now.statuses <= {"finished", "did not learn", "diverged"}:
        word = min(now.statuses)
    name = now.race.info.get("name", now.race.id)
    return _("**{name}** · {state} · step {step:,} of {steps:,}").format(name=name, state=state_word(word), step=now.step, steps=now.steps)


def state_word(status: Status) -> str:
    """A status in the reader's language."""
    return {
        "queued": _("queued"), "starting": _("starting"), "running": _("running"), "paused": _("paused"), "stopping": _("stopping"),
        "stopped": _("stopped"), "interrupted": _("interrupted"), "diverged": _("diverged"), "failed": _("failed"),
        "did not learn": _("did not learn"), "finished": _("finished"), "broken": _("broken"),
    }[status]  # fmt: skip


def rows(now: Standing) -> list[dict[str, str]]:
    """The table below the chart: a line a run, the newest numbers. Losses in nats per character."""
    return [_row(label, *entry) for label, entry in zip(now.labels, now.entries)]


def _row(label: str, run: Run, status: Status, curve: Curve) -> dict[str, str]:
    left = run.config.training.steps - curve.step
    eta = left * curve.elapsed_s / curve.step if curve.step and status in ACTIVE else None
    val = curve.last("val_loss")
    return {
        _("variant"): label,
        _("state"): state_word(status),
        _("step"): f"{curve.step:,}",
        _("train loss"): _number(curve.last("loss"), ".4f"),
        _("val. loss"): _number(val, ".4f"),
        _("bits/char"): _number(None if val is None else val / math.log(2), ".3f"),
        _("grad. norm"): _number(curve.last("grad_norm"), ".3f"),
        _("chars/s"): _number(curve.tokens_per_second(), ",.0f"),
        _("own time left"): _number(eta, ".0f", " s"),
    }


def loads(now: Standing) -> list[dict[str, object]]:
    """A line a run and layer with a mixture of experts: the share of characters that each expert sees, 0 to 1."""
    return [
        {_("variant"): label, _("layer"): str(layer + 1), **{_("expert {n}").format(n=k + 1): share for k, share in enumerate(shares)}}
        for label, (_run, _status, curve) in zip(now.labels, now.entries)
        for layer, shares in enumerate(curve.load())
    ]


def _number(value: float | None, spec: str, unit: str = "") -> str:
    return "–" if value is None else format(value, spec) + unit


def messages(now: Standing) -> list[tuple[Kind, str]]:
    """What there is to say about runs that did not go as they should."""
    metas = [run.meta for run, status, _curve in now.entries if status in ACTIVE]
    compiled = dict.fromkeys(meta["compiled_message"] for meta in metas if not meta.get("compiled", True))
    said: list[tuple[Kind, str]] = [("info", message[:1].upper() + message[1:] + ".") for message in compiled]
    for run, status, curve in now.entries:
        end = curve.end or {}
        if status == "diverged" and end:
            text = _("**{name}** diverged at step {step:,}: the {quantity} is no longer finite. Likely cause: {cause}.")
            said.append(("warning", text.format(name=run.name, step=end["step"], quantity=end["quantity"], cause=end["cause"])))
        elif status == "failed":
            text = _("**{name}** failed: {why}. Its last checkpoint is kept.")
            said.append(("error", text.format(name=run.name, why=end.get("message", _("see its log")))))
        elif status == "did not learn" and end:
            bigram = run.meta.get("entropies", {}).get("bigram", math.nan)
            text = _("**{name}** did not learn: it ended at {loss:.3f}, above the bigram entropy {bigram:.3f} of its text.")
            said.append(("info", text.format(name=run.name, loss=end["val_loss"], bigram=bigram)))
        elif status == "interrupted":
            text = _("**{name}** was interrupted (its process is gone); **Go on** continues from its last checkpoint.")
            said.append(("info", text.format(name=run.name)))
    return said


def levels(now: Standing) -> Mapping[str, float]:
    """The levels of the text that was learnt from, as its first run recorded them; empty before that."""
    return next((run.meta["entropies"] for run, *_rest in now.entries if "entropies" in run.meta), {})
