"""The same configuration once more, to see whether the same curve comes out.

The repetition is a run and a race of its own, with as many threads as the first had; its meta.json names the run that it
``repeats``. What the two have in common is judged in :mod:`nqlab.analysis.receipt`.
"""

from __future__ import annotations

from nqlab.runs import launch
from nqlab.runs.race import Race
from nqlab.runs.store import MAX_NAME, Run, runs

AGAIN = " again"


def create(run: Run) -> tuple[Race, Run]:
    """The repetition's folders, beside the run; nothing runs yet. ValueError where the configuration can't be trained here."""
    facts = {"repeats": run.id}
    threads = run.meta.get("threads")
    race, (repetition,) = launch.create(run.folder.parent, [run.config], facts if threads is None else facts | {"threads": threads})
    repetition.relabel(name=run.name[: MAX_NAME - len(AGAIN)] + AGAIN)
    return race, repetition


def start(run: Run) -> Run:
    """:func:`create`, and start a worker; it queues when all slots are taken."""
    race, repetition = create(run)
    launch.spawn(race, [repetition])
    return repetition


def repeated(run: Run) -> Run | None:
    """The run that this one repeats, while it is here."""
    name = run.meta.get("repeats")
    return next((one for one in runs(run.folder.parent) if one.id == name), None)


def repetitions(run: Run) -> list[Run]:
    """The runs that repeat this one, newest first."""
    return [one for one in runs(run.folder.parent) if one.meta.get("repeats") == run.id]
