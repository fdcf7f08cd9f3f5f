"""The one training loop. It yields events; nothing here prints, draws or writes.

Several configurations race: they advance step by step together in one process and share the batch tensors. A run in
a race is bit for bit the run alone, since all its random numbers are functions of its own seed and step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nqlab.config import RunConfig
from nqlab.corpus import Corpus
from nqlab.generate import NotFiniteError, stream
from nqlab.model.gpt import GPT, keyed_generator
from nqlab.training.batches import TrainingBatches, validation_windows
from nqlab.training.checkpoint import State, capture, restore
from nqlab.training.compiled import Builds, Job, LossAndGradient, tried
from nqlab.training.device import check_dtype, resolve_device
from nqlab.training.evaluation import window_losses
from nqlab.training.events import Checkpoint, Compiled, Diverged, Done, Evaluation, Event, Sample, Step, Stopped
from nqlab.training.optimizer import FlatAdamW, learning_rate_at

Stop = Callable[[int], bool]


def train(
    configs: RunConfig | Sequence[RunConfig],
    corpus: Corpus,
    *,
    resume: Sequence[State | None] | None = None,
    stop: Stop = lambda step: False,
) -> Iterator[Event]:
    """Train one configuration, or race several, and yield what happens.

    Args:
        configs: One configuration or several; each is a run, numbered in order.
        corpus: The text for all of them; its name must be the configurations'.
        resume: A state per run to go on from, or None for a run that begins.
        stop: Asked between updates, and between the parts of an evaluation or a sample, with the race's step (that
            of the run furthest back). It may wait, which is a pause. Once it says True, it is not asked again: every
            unfinished run yields a checkpoint and a ``stopped`` event, and the generator ends.

    Raises:
        ValueError: before anything is computed, for a text too short, a device or number format that is not there,
            a corpus that is not the configurations', or a state of another model.
    """
    configs = [configs] if isinstance(configs, RunConfig) else list(configs)
    data = _Data(corpus, configs)
    runs = [_Run(i, c, data, s) for i, (c, s) in enumerate(zip(configs, resume or [None] * len(configs), strict=True))]
    if configs[0].training.threads is not None:
        torch.set_num_threads(configs[0].training.threads)
    torch.set_flush_denormal(True)
    return _with_builds(runs, data, _once_and_for_all(stop))


def _once_and_for_all(stop: Stop) -> Stop:
    """``stop``, but True for good after the first time: a wish taken back during an evaluation would lose that evaluation."""
    said = False

    def asked(step: int) -> bool:
        nonlocal said
        said = said or stop(step)
        return said

    return asked


def _with_builds(runs: list[_Run], data: _Data, stop: Stop) -> Iterator[Event]:
    with Builds() as builds:  # nothing is compiled before a run asks, and none of it outlives the race
        yield from _race(runs, data, builds, stop)


def _race(runs: list[_Run], data: _Data, builds: Builds, stop: Stop) -> Iterator[Event]:
    while active := [run for run in runs if not run.over]:
        step = min(run.step for run in active)
        for run in [run for run in active if run.step == step]:
            yield from run.look(data, partial(stop, step))
            if not run.over and not stop(step):
                yield from run.update(data)
                yield from run.take_up(builds, data)
            if stop(min((r.step for r in runs if not r.over), default=step)):
                for unfinished in (r for r in runs if not r.over):
                    yield from unfinished.keep()
                    if not unfinished.over:
                        yield Stopped(unfinished.index, unfinished.step)
                return


class _Data:
    """The corpus as tensors on each device, and the batch that the runs of a race share."""

    def __init__(self, corpus: Corpus, configs: Sequence[RunConfig]) -> None:
        for config in configs:
            if config.corpus != corpus.name:
                raise ValueError(f"a run is configured for corpus {config.corpus!r} but was given {corpus.name!r}")
            corpus.check(config.model.block_size)
        self.corpus = corpus
        self._ids = torch.from_numpy(corpus.ids)
        self._sources: dict[tuple[Any, ...], TrainingBatches] = {}
        self._current: dict[tuple[Any, ...], tuple[int, tuple[Tensor, Tensor]]] = {}
        self._validation: dict[tuple[Any, ...], tuple[Tensor, Tensor]] = {}

    def batch(self, config: RunConfig, step: int, device: torch.device) -> tuple[Tensor, Tensor]:
        key = (config.model.block_size, config.training.batch_size, config.seed, device)
        if key not in self._sources:
            train = self._ids[: self.corpus.split_at].to(device)
            self._sources[key] = TrainingBatches(train, *key[:3])
        if key not in self._current or self._current[key][0] != step:
            self._current[key] = (step, self._sources[key].at(step))
        return self._current[key][1]

    def validation(self, config: RunConfig, device: torch.device) -> tuple[Tensor, Tensor]:
        key = (config.model.block_size, config.training.eval_windows, device)
        if key not in self._validation:
            self._validation[key] = validation_windows(self._ids[self.corpus.split_at :].to(device), *key[:2])
        return self._validation[key]


class _Run:
    """One run of a race: model, optimiser, and how far it has come."""

    def __init__(self, index: int, config: RunConfig, data: _Data, state: State | None) -> None:
        self.index, self.config, self.training = index, config, config.training.resolved()
        self.device = resolve_device(self.training.device)
        check_dtype(self.training, self.device)
        self.prompt = data.corpus.encode_prompt(self.training.sample_prompt) if self.training.sample_interval else []
        self.model = GPT(config.model, len(data.corpus.vocabulary), config.seed).to(self.device)
        self.parameters = list(self.model.parameters())
        self.optimizer = FlatAdamW(self.model, self.training, self.device)
        self.step, self.evaluated, self.sampled, self.saved = 0, -1, -1, -1
        self.elapsed_s, self.cpu_s = 0.0, 0.0
        if state is not None:
            restore(self.model, self.optimizer, state.tensors)
            self.step, self.saved = state.step, state.step
            self.evaluated, self.sampled = state.evaluated, state.sampled
            self.elapsed_s, self.cpu_s = state.elapsed_s, state.cpu_s
        self.over = False
        self.val_loss = math.nan
        self.waits_for_compiled = self.training.compile
        self.job: Job | None = None
        self.compiled: LossAndGradient | None = None

    @property
    def tokens(self) -> int:
        return self.step * self.training.batch_size * self.config.model.block_size

    def _due(self, interval: int, last: int) -> bool:
        return last < self.step and interval > 0 and (self.step % interval == 0 or self.step == self.training.steps)

    def look(self, data: _Data, stop: Callable[[], bool]) -> Iterator[Event]:
        """What is due before the next update: evaluation, sample, checkpoint, the end."""
        at_end = self.step == self.training.steps
        if self._due(self.training.eval_interval, self.evaluated) or (at_end and math.isnan(self.val_loss)):
            windows = data.validation(self.config, self.device)
            losses = window_losses(self.model, *windows, context=self._autocast, stop=stop)
            if losses is None:
                return
            yield from self._judged(losses)
        if not self.over and self._due(self.training.sample_interval, self.sampled):
            try:
                text = self._sample(data.corpus, stop)
            except NotFiniteError:
                yield self._diverged("output")
                return
            if text is None:
                return
            self.sampled = self.step
            yield Sample(self.index, self.step, text)
        if not self.over and self._due(self.training.checkpoint_interval, self.saved):
            yield from self.keep()
        if not self.over and at_end:
            self.over = True
            learned = self.val_loss <= data.corpus.entropies[1]
            yield Done(self.index, self.step, self.val_loss, learned, self.tokens, self.elapsed_s, self.cpu_s)

    def _judged(self, losses: Tensor) -> Iterator[Event]:
        """The evaluation event of window losses (N,), or the end of the run when they are not finite."""
        self.val_loss = losses.mean().item()
        if not math.isfinite(self.val_loss):
            yield self._diverged("validation loss")
            return
        if self.evaluated < self.step:
            self.evaluated = self.step
            odd = losses[1::2] if len(losses) > 1 else losses
            halves = (losses[::2].mean().item(), odd.mean().item())
            yield Evaluation(self.index, self.step, self.val_loss, halves, self.tokens, self.elapsed_s, self.cpu_s)

    def _sample(self, corpus: Corpus, stop: Callable[[], bool]) -> str | None:
        prompt = torch.tensor([self.prompt], device=self.device)
        ids: list[int] = []
        for following in stream(self.model, prompt, temperature=0.8, top_k=40, seed=self.config.seed):
            ids.append(int(following))
            if len(ids) == self.training.sample_length:
                return corpus.vocabulary.decode(ids)
            if stop():
                break
        return None

    def update(self, data: _Data) -> Iterator[Event]:
        """One optimiser step: forward, backward, clip, AdamW."""
        training, step = self.training, self.step
        x, y = data.batch(self.config, step, self.device)
        self._seed_dropout()
        started, cpu = time.perf_counter(), time.process_time()
        rate = learning_rate_at(step, training)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss = (self.compiled or self._eager)(x, y)
        norm = self.optimizer.clip(training.grad_clip)
        logged = step % training.log_interval == 0 or step == training.steps - 1
        if logged or self.device.type == "cpu":
            numbers = loss.item(), norm.item()
            if not all(map(math.isfinite, numbers)):
                yield self._diverged("loss" if not math.isfinite(numbers[0]) else "gradient")
                return
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.elapsed_s += time.perf_counter() - started
        self.cpu_s += time.process_time() - cpu
        tokens = self.tokens
        self.step += 1
        if logged:
            yield Step(self.index, step, numbers[0], rate, numbers[1], tokens, self.elapsed_s, self.model.expert_load())

    def _eager(self, x: Tensor, y: Tensor) -> Tensor:
        with self._autocast():
            total, loss = self.model.objective(x, y)
        total.backward()
        return loss

    def _seed_dropout(self) -> None:
        if self.config.model.dropout:
            torch.manual_seed(keyed_generator(self.config.seed, "dropout", self.step).initial_seed())

    def take_up(self, builds: Builds, data: _Data) -> Iterator[Event]:
        """Where compilation is asked for: change over to the compiled update once it is there and agrees with the model."""
        if not self.waits_for_compiled or self.over or self.step == self.training.steps:
            return
        self.job = self.job or Job.of(self.config, self.model.vocab_size, self.device)
        made = self.model.no_graph or builds.get(self.job)
        if made is None:
            return
        self.waits_for_compiled = False
        batch = data.batch(self.config, self.step, self.device)
        self.compiled, message = tried(made, self.model, batch, self.training.dtype, self._autocast, self._seed_dropout)
        self.optimizer.zero_grad()
        yield Compiled(self.index, self.step, self.compiled is not None, message)

    def _autocast(self) -> Any:
        bf16 = self.training.dtype == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16) if bf16 else nullcontext()

    def keep(self) -> Iterator[Event]:
        """The state as it is now, or the end of the run when its weights are not finite: the last good state is kept."""
        if not all(bool(p.isfinite().all()) for p in self.parameters):
            yield self._diverged("largest weight")
            return
        self.saved = self.step
        tensors = capture(self.model, self.optimizer)
        yield Checkpoint(self.index, self.step, State(tensors, self.step, self.evaluated, self.sampled, self.elapsed_s, self.cpu_s))

    def _diverged(self, quantity: str) -> Diverged:
        self.over = True
        rate = self.training.learning_rate
        cause = f"the learning rate {rate:g} is probably too high for this size; try {rate / 10:g}"
        if self.training.grad_clip == 0:
            cause += ", or switch gradient clipping on (grad_clip 1)"
        if self.training.dtype == "bfloat16":
            cause += ", or dtype float32"
        return Diverged(self.index, self.step, quantity, cause)
