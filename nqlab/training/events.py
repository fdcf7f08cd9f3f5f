"""What the training loop yields: small typed events. The consumer decides what becomes of them.

``run`` is the run's place in the race. An event at step k describes the model before update k+1: after k updates.
Losses are in nats per character. ``elapsed_s`` counts the run's own optimiser steps, not evaluation, sampling,
saving, pauses, or the other runs of the race; ``cpu_s`` is the processor time of the same, over all threads, which
other work on the machine moves less.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from nqlab.training.checkpoint import State


@dataclass(frozen=True)
class Event:
    """Common to all."""

    type: ClassVar[str]
    run: int
    step: int

    def record(self) -> dict[str, Any]:
        """The event as plain data for one JSON line, without ``run``."""
        data = asdict(self)
        del data["run"]
        return {"type": self.type, **data}


@dataclass(frozen=True)
class Step(Event):
    """One update: the batch's loss before it, the rate and the gradient norm (before clipping) used in it.

    ``expert_load`` has, for each layer with a mixture of experts, each expert's share of the batch; records of models
    without one do not have it. ``loss`` is the cross-entropy alone; the gradient is that of all that is minimised.
    """

    type = "step"
    loss: float
    learning_rate: float
    grad_norm: float
    tokens: int
    elapsed_s: float
    expert_load: tuple[tuple[float, ...], ...] = ()

    def record(self) -> dict[str, Any]:
        """As :meth:`Event.record`."""
        data = super().record()
        if not self.expert_load:
            del data["expert_load"]
        return data


@dataclass(frozen=True)
class Evaluation(Event):
    """Mean loss over the fixed validation windows; ``val_halves``: over those at even and at odd places."""

    type = "evaluation"
    val_loss: float
    val_halves: tuple[float, float]
    tokens: int
    elapsed_s: float
    cpu_s: float


@dataclass(frozen=True)
class Sample(Event):
    """Text after the fixed prompt, drawn with random numbers of its own."""

    type = "sample"
    text: str


@dataclass(frozen=True)
class Checkpoint(Event):
    """Everything needed to go on from here. The tensors are the live ones: save or clone before the next event."""

    type = "checkpoint"
    state: State

    def record(self) -> dict[str, Any]:
        """Without the tensors."""
        return {"type": self.type, "step": self.step}


@dataclass(frozen=True)
class Compiled(Event):
    """The compilation asked for has ended. ``ok``: the updates from here on are compiled ones; else, and before, they
    are not. ``message`` says how it went, or what was missing."""

    type = "compiled"
    ok: bool
    message: str


@dataclass(frozen=True)
class Diverged(Event):
    """``quantity`` (a loss, its gradient, an output, a weight) stopped being finite; the run ends here."""

    type = "diverged"
    quantity: str
    cause: str


@dataclass(frozen=True)
class Stopped(Event):
    """The consumer asked the race to stop; the checkpoint before this event is where it goes on."""

    type = "stopped"


@dataclass(frozen=True)
class Done(Event):
    """All updates made. ``learned``: the final validation loss is at or below the corpus's bigram entropy."""

    type = "done"
    val_loss: float
    learned: bool
    tokens: int
    elapsed_s: float
    cpu_s: float
