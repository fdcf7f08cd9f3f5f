"""How near a prediction came: the race's own outcome beside it, and beside that the verdict over paired seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nqlab.analysis.results import Result
from nqlab.analysis.sentences import sentence
from nqlab.analysis.verdict import SAME, verdicts
from nqlab.runs.predictions import Prediction


@dataclass(frozen=True)
class Outcome:
    """Who ended lowest, and by how many nats the next one ended higher; 0 where they ended alike or alone."""

    winner: str
    margin: float


@dataclass(frozen=True)
class Scored:
    """A prediction with whether the winner was right, and how many nats its margin missed by.

    Who named another winner missed by both margins together: the one that was and the one that was not.
    """

    prediction: Prediction
    right: bool
    missed_by: float


def outcome(results: Mapping[str, Result]) -> Outcome | None:
    """The outcome of a race: ``results`` by run id. A diverged run counts with its counted loss; None while any is unfinished."""
    losses = {run: r.counted_loss for run, r in results.items()}
    ended = {run: loss for run, loss in losses.items() if loss is not None}
    if not ended or len(ended) < len(losses):
        return None
    order = sorted(ended, key=lambda run: ended[run])
    return Outcome(order[0], ended[order[1]] - ended[order[0]] if len(order) > 1 else 0.0)


def score(predictions: Sequence[Prediction], found: Outcome) -> list[Scored]:
    """Best first: the right winner before a wrong one, then by the miss in nats."""
    scored = []
    for one in predictions:
        right = one.winner == found.winner
        scored.append(Scored(one, right, abs(one.margin - found.margin) if right else one.margin + found.margin))
    return sorted(scored, key=lambda s: (not s.right, s.missed_by))


def over_seeds(results: Sequence[Result], others: Iterable[Result]) -> list[str]:
    """The verdict on what raced, over as many paired seeds as there are: a sentence an arm, against the first that raced.

    Args:
        results: The runs of the race, in order.
        others: Further runs, of studies or single ones; those count that differ from one of the race in the seed alone.
    """
    wanted = {_seedless(r): None for r in results}
    pool = {r.config.short_hash(): r for r in (*others, *results) if _seedless(r) in wanted}
    arms = list(dict.fromkeys(r.arm for r in results))
    rows = [row for row in verdicts(pool.values(), arms[0]) if row["budget"] == SAME or row["verdict"] == "refused"]
    return [sentence(row) for row in rows]


def _seedless(result: Result) -> str:
    return result.config.model_copy(update={"seed": 0}).short_hash()
