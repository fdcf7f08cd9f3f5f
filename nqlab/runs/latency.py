"""How long models take in use: prefill and the time of one more token, measured in turns, one reading after the other.

*Prefill* at context L is one forward pass over L tokens that fills the cache of keys and values; *token* is one further
token with that cache, which then looks at L positions in all. Both go the sampler's way (:mod:`nqlab.generate`) and end
with the logits on the CPU. Nothing here judges; :mod:`nqlab.analysis.latency` has medians and ratios.
"""

from __future__ import annotations

import math
import platform
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import psutil
import torch
from torch import Tensor

from nqlab import presets, settings
from nqlab.config import RunConfig
from nqlab.generate import last_logits, lean
from nqlab.model.attention import KeyValueCache
from nqlab.model.budget import parameters
from nqlab.model.gpt import GPT, keyed_generator
from nqlab.runs.store import Run, active_races
from nqlab.runs.study import studies
from nqlab.runs.sweep import sweeper
from nqlab.training.device import resolve_device

Kind = Literal["prefill", "token"]
KINDS: tuple[Kind, ...] = ("prefill", "token")
VOCABULARY = 65  # of tiny-shakespeare; a preset's model is measured with as many characters
REPEATS = 30
LEAST_REPEATS = 3
WARM_UPS = 2  # untimed calls of each kind before the first reading
BURST_S = 0.004  # a reading repeats a shorter call until it has lasted about so long: the clock's own cost is then nothing
MEMORY_SHARE = 0.8


@dataclass(frozen=True)
class Subject:
    """A model to measure, what it is called, and where it comes from. Times do not depend on its weights.

    ``val_loss`` is a run's own newest validation loss, nats per character; None for a model with random weights.
    """

    variant: str
    config: RunConfig
    model: GPT
    val_loss: float | None = None

    def record(self) -> dict[str, Any]:
        """What a reader of the readings needs to know of it, as plain data."""
        size = self.model.vocab_size
        return {
            "variant": self.variant, "arm": presets.arm_of(self.config), "vocabulary": size, "val_loss": self.val_loss,
            "parameters": parameters(self.config.model, size), "config": self.config.resolved().model_dump(mode="json"),
        }  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """Seconds of one call: the mean over a short burst of calls of the same kind by the same model."""

    repeat: int
    variant: str
    context: int
    kind: Kind
    seconds: float


def of_preset(preset: str, arms: Sequence[str]) -> list[Subject]:
    """A model an arm at a preset's size, with seeded random weights. ValueError for an unknown name, an arm that stands
    twice, or models that do not fit into memory together."""
    base = presets.preset(preset)
    if len(set(arms)) < len(arms):
        raise ValueError(f"arms {', '.join(arms)} name one twice; each is measured once")
    configs = [presets.arm(base, arm) for arm in arms]
    needed = 4 * sum(parameters(config.model, VOCABULARY) for config in configs)
    if needed > MEMORY_SHARE * psutil.virtual_memory().total:
        raise ValueError(f"{len(arms)} models of preset {preset!r} need {needed / 1e9:,.0f} GB of memory together; take fewer arms")
    return [Subject(arm, config, GPT(config.model, VOCABULARY).eval()) for arm, config in zip(arms, configs)]


def of_runs(runs: Sequence[Run]) -> list[Subject]:
    """The models of runs at their newest checkpoints. ValueError where one has none, or a run stands twice."""
    from nqlab.runs.worker import load_model

    if len({run.id for run in runs}) < len(runs):
        raise ValueError(f"runs {', '.join(run.name for run in runs)} name one twice; each is measured once")
    names = [run.name for run in runs]
    words = [name if names.count(name) == 1 else run.id for name, run in zip(names, runs)]
    return [Subject(word, run.config, load_model(run)[0], run.summary()["val_loss"]) for word, run in zip(words, runs)]


def contexts_up_to(block_size: int) -> tuple[int, ...]:
    """The powers of two from 2 to block_size."""
    return tuple(2**k for k in range(1, block_size.bit_length()) if 2**k <= block_size)


def check(subjects: Sequence[Subject], contexts: Sequence[int], repeats: int, threads: int) -> None:
    """ValueError for a measurement that could not be made or would say nothing."""
    if not subjects:
        raise ValueError("there is no variant to measure; choose one")
    if not contexts:
        raise ValueError("there is no context length to measure at; choose a power of two up to block_size")
    most = min(subject.config.model.block_size for subject in subjects)
    offered = ", ".join(map(str, contexts_up_to(most))) or "a longer block_size"
    for context in contexts:
        if not 2 <= context <= most:
            raise ValueError(f"context {context} is not among 2 to {most}, the shortest block_size here; choose {offered}")
    if repeats < LEAST_REPEATS:
        raise ValueError(f"repeats {repeats} give no spread; take at least {LEAST_REPEATS}")
    if not 1 <= threads <= settings.cores():
        raise ValueError(f"threads {threads} is not among 1 to {settings.cores()}, the cores of this machine")


def measure(
    subjects: Sequence[Subject], contexts: Sequence[int], repeats: int = REPEATS, *, threads: int = 1, device: str = "cpu", seed: int = 0
) -> Iterator[Reading]:
    """Readings as they come; stop whenever enough is known. ValueError as :func:`check`, or for a device not here.

    Every repeat takes all contexts and kinds in an order of its own, drawn by ``seed``, and at each all models right
    after each other, again in an order of its own: what drifts or disturbs hits all alike, and a repeat's times at
    one context and kind are a fair pair. The thread count is this generator's while it runs.
    """
    check(subjects, contexts, repeats, threads)
    place, before = resolve_device(device), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        used = {subject.variant: _Used(subject.model, max(contexts), place) for subject in subjects}
        counts = _warm_up(used, contexts)
        for repeat, context, kind, variant in order(list(used), contexts, repeats, seed):
            seconds = _seconds(used[variant].call(kind), context, counts[context, kind])
            yield Reading(repeat, variant, context, kind, seconds)
    finally:
        torch.set_num_threads(before)


def order(variants: Sequence[str], contexts: Sequence[int], repeats: int, seed: int) -> Iterator[tuple[int, int, Kind, str]]:
    """(repeat, context, kind, variant) in the order of measurement."""
    draw = random.Random(seed)
    for repeat in range(repeats):
        places = [(context, kind) for context in contexts for kind in KINDS]
        for context, kind in draw.sample(places, len(places)):
            for variant in draw.sample(variants, len(variants)):
                yield repeat, context, kind, variant


class _Used:
    """A model in use: some text, and a cache that holds it, to be taken up at any length."""

    def __init__(self, model: GPT, longest: int, device: torch.device) -> None:
        self.model = lean(model.to(device))
        self.ids = torch.randint(model.vocab_size, (1, longest), generator=keyed_generator("latency")).to(device)
        self.cache = self._empty()
        last_logits(self.model, self.ids, self.cache)

    def _empty(self) -> list[KeyValueCache]:
        return [KeyValueCache(self.model.config.block_size) for _ in self.model.blocks]

    def prefill(self, context: int) -> Tensor:
        """Logits (1, V) after the first ``context`` tokens, into a new cache."""
        return last_logits(self.model, self.ids.narrow(1, 0, context), self._empty())

    def token(self, context: int) -> Tensor:
        """The same logits from the last of those tokens alone, with the others in the cache."""
        for layer in self.cache:
            layer.length = context - 1
        return last_logits(self.model, self.ids.narrow(1, context - 1, 1), self.cache)

    def call(self, kind: Kind) -> Callable[[int], Tensor]:
        """What one call of a kind does."""
        return self.prefill if kind == "prefill" else self.token


def _warm_up(used: dict[str, _Used], contexts: Sequence[int]) -> dict[tuple[int, Kind], int]:
    """Call everything, untimed; how many calls make a reading at each context and kind, the same for all models."""
    counts: dict[tuple[int, Kind], int] = {}
    for context in contexts:
        for kind in KINDS:
            slowest = 0.0
            for one in used.values():
                _seconds(one.call(kind), context, WARM_UPS)
                slowest = max(slowest, _seconds(one.call(kind), context, 1))
            counts[context, kind] = max(1, math.ceil(BURST_S / max(slowest, 1e-6)))
    return counts


def _seconds(call: Callable[[int], Tensor], context: int, count: int) -> float:
    """Of one call, over so many."""
    started = time.perf_counter()
    for _ in range(count):
        call(context)
    return (time.perf_counter() - started) / count


# --- as records, for a file that a page reads while it grows


def records(
    subjects: Sequence[Subject], contexts: Sequence[int], repeats: int, *, threads: int, device: str, runs_dir: Path
) -> Iterator[dict[str, Any]]:
    """:func:`measure` as plain data: first what is measured and on what, then the readings. ``busy`` says whether
    something trained here at the same time, looked up once a repeat."""
    check(subjects, contexts, repeats, threads)
    where = resolve_device(device)
    name = torch.cuda.get_device_name(where) if where.type == "cuda" else f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
    yield {
        "type": "begin", "step": 0, "subjects": [subject.record() for subject in subjects], "contexts": list(contexts),
        "repeats": repeats, "threads": threads, "device": where.type, "machine": name, "torch": torch.__version__,
    }  # fmt: skip
    repeat, busy = -1, False
    for reading in measure(subjects, contexts, repeats, threads=threads, device=device):
        if reading.repeat != repeat:
            repeat, busy = reading.repeat, bool(training_now(runs_dir))
        yield {"type": "reading", "step": repeat, "busy": busy, **asdict(reading)}


def training_now(runs_dir: Path) -> list[str]:
    """The names of races and studies that use the processor at this moment."""
    racing = [race for race in active_races(runs_dir) if (worker := race.worker()) and worker.phase in ("starting", "running")]
    return [race.info.get("name", race.id) for race in racing] + [p.study.name for p in studies(runs_dir) if sweeper(p) is not None]
