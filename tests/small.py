"""Small configurations and the reading of their events, for tests that train."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace as dataclass_replace
from typing import Any

from nqlab.config import ModelConfig, RunConfig, TrainingConfig, replace
from nqlab.corpus import Corpus
from nqlab.training.checkpoint import State
from nqlab.training.events import Checkpoint, Event
from nqlab.training.loop import train

MODEL = ModelConfig(n_layer=2, n_head=2, n_embd=16, block_size=16)
BASE = RunConfig(
    model=MODEL,
    training=TrainingConfig(
        steps=12, batch_size=4, learning_rate=3e-3, eval_interval=5, eval_windows=8, checkpoint_interval=1000, sample_interval=0, threads=1
    ),
)


def small(**changes: Any) -> RunConfig:
    """A run of a fraction of a second; keywords are bare names of settings."""
    return replace(BASE, changes)


def kept(state: State) -> State:
    """A copy of a checkpoint's state, whose tensors go on being trained."""
    return dataclass_replace(state, tensors={name: t.clone() for name, t in state.tensors.items()})


def trained(configs: RunConfig | Sequence[RunConfig], corpus: Corpus, **options: Any) -> list[Event]:
    """All events, checkpoints copied."""
    return [dataclass_replace(e, state=kept(e.state)) if isinstance(e, Checkpoint) else e for e in train(configs, corpus, **options)]


def timeless(record: dict[str, Any]) -> dict[str, Any]:
    """A record but for the time it took."""
    return {key: value for key, value in record.items() if key not in ("elapsed_s", "cpu_s")}


def records(events: Iterable[Event], run: int = 0, without: tuple[str, ...] = ("checkpoint", "stopped")) -> list[dict[str, Any]]:
    """What one run's events say, but for times, and for where it was saved or stopped."""
    return [timeless(e.record()) for e in events if e.run == run and e.type not in without]


def step_losses(events: Iterable[Event], run: int = 0) -> list[float]:
    """The loss of every logged update."""
    return [r["loss"] for r in records(events, run) if r["type"] == "step"]


def nth_call(n: int) -> Callable[[int], bool]:
    """A ``stop`` that says True at its n-th call, and only then."""
    calls = 0

    def stop(step: int) -> bool:
        nonlocal calls
        calls += 1
        return calls == n

    return stop
