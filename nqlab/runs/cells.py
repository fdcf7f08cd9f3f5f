"""One cell of a study: trained here into its folder, or elsewhere with its events sent back.

A cell begun on this machine goes on from its checkpoint; one begun elsewhere begins anew. Either way its losses are
the same bits, on the same machine.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from nqlab import corpus as corpora
from nqlab.config import RunConfig
from nqlab.runs.files import write_json
from nqlab.runs.log import EventWriter, Record, cut_back
from nqlab.runs.store import Run
from nqlab.runs.worker import circumstances
from nqlab.training.checkpoint import State, load_state, save_state
from nqlab.training.events import Checkpoint
from nqlab.training.loop import train

NICENESS = 10  # a study gives way to a race that somebody watches


def prepare(run: Run, config: RunConfig) -> None:
    """The cell's folder with its configuration, whole, before anything is computed."""
    run.folder.mkdir(parents=True, exist_ok=True)
    temporary = run.folder / "config.json.tmp"
    temporary.write_text(config.to_json(), encoding="utf-8")
    temporary.replace(run.folder / "config.json")


def train_here(run: Run, stop: Callable[[], bool]) -> str:
    """Train a prepared cell from its checkpoint, or from the start, to its end or until told to stop; how it ended.

    The checkpoint goes when the cell has ended: a study keeps curves, no weights. ValueError, OSError and torch's
    RuntimeError pass through, nothing recorded.
    """
    config = run.config
    corpus = corpora.load(config.corpus)
    state = _state_of(run)
    write_json(run.folder / "meta.json", run.meta | circumstances(config, corpus, config.training.threads or 1))
    events = train(config, corpus, resume=[state], stop=lambda step: stop())
    cut_back(run.events, None if state is None else state.step)
    writer = EventWriter(run.events)
    kind = ""
    try:
        for event in events:
            kind = event.type
            writer.write(event.record())
            if isinstance(event, Checkpoint):
                save_state(run.checkpoint, event.state)
    finally:
        writer.close()
    if kind in ("done", "diverged"):
        run.checkpoint.unlink(missing_ok=True)
    return kind


def _state_of(run: Run) -> State | None:
    """The state to go on from; a missing or broken checkpoint only means to begin anew."""
    try:
        return load_state(run.checkpoint)
    except ValueError:
        return None


def records_of(config: RunConfig, corpus: corpora.Corpus, stop: Callable[[], bool]) -> Iterator[tuple[Record, dict[str, Any]]]:
    """The events of a cell as plain records, without checkpoints, and the circumstances: for another machine."""
    torch.set_num_threads(config.training.threads or 1)
    meta = circumstances(config, corpus, config.training.threads or 1)
    for event in train(config, corpus, stop=lambda step: stop()):
        if not isinstance(event, Checkpoint):
            yield event.record(), meta


class _Told:
    """Whether this worker has been told to stop: by a signal, or by the end of the process that feeds it."""

    def __init__(self) -> None:
        self.signalled, self.parent = False, os.getppid()
        signal.signal(signal.SIGTERM, self.note)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the feeder decides

    def note(self, *_: object) -> None:
        self.signalled = True

    def __call__(self) -> bool:
        return self.signalled or os.getppid() != self.parent


def serve() -> int:
    """A worker of a sweep: reads cell folders, one JSON line each, trains them in turn, answers each with a line."""
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    told = _Told()
    torch.set_num_threads(1)
    answers, sys.stdout = sys.stdout, sys.stderr  # what torch prints must not look like an answer
    for line in sys.stdin:
        run = Run(Path(json.loads(line)["cell"]))
        try:
            answer = {"end": train_here(run, told), "message": ""}
        except (ValueError, OSError, RuntimeError) as error:
            answer = {"end": "failed", "message": (str(error).strip().splitlines() or [type(error).__name__])[0]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if told():
            break
    return 0
