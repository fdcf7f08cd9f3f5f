"""Compilation beside the run. Most tests put a stand-in for the compiled function in; the slow ones compile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import Tensor

from nqlab import presets, slots
from nqlab.config import RunConfig, replace
from nqlab.corpus import Corpus
from nqlab.model.gpt import GPT
from nqlab.training import compiled, loop
from nqlab.training.compiled import Builds, CompiledLoss, Failure, Job, loss_and_gradient, tried
from nqlab.training.events import Compiled, Evaluation, Event
from nqlab.training.loop import train
from nqlab.training.optimizer import FlatAdamW
from tests.small import nth_call, records, small, step_losses, trained

CPU = torch.device("cpu")
Change = Callable[[Sequence[Tensor]], Sequence[Tensor]]


def compiling(**changes: Any) -> RunConfig:
    return small(device="cpu", compile=True, **changes)


def job_of(config: RunConfig, vocab_size: int = 65) -> Job:
    return Job.of(config, vocab_size, CPU)


def stand_in(job: Job, change: Change = lambda found: found) -> CompiledLoss:
    """The function before it is compiled; ``change`` spoils what it returns."""
    function, _ = loss_and_gradient(job)
    return CompiledLoss(lambda weights, x, y: change(function(weights, x, y)), seconds=7.0)


class Prepared(Builds):
    """Gives what ``make`` makes of a job at the n-th time of asking; starts no process."""

    def __init__(self, make: Callable[[Job], CompiledLoss | Failure], at: int = 1) -> None:
        super().__init__()
        self.make, self.at = make, at
        self.asked: list[Job] = []

    def get(self, job: Job) -> CompiledLoss | Failure | None:
        self.asked.append(job)
        return self.make(job) if len(self.asked) >= self.at else None


@pytest.fixture
def prepare(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Prepared]:
    """Put a :class:`Prepared` into the training loop."""

    def put(make: Callable[[Job], CompiledLoss | Failure] = stand_in, at: int = 1) -> Prepared:
        prepared = Prepared(make, at)
        monkeypatch.setattr(loop, "Builds", lambda: prepared)
        return prepared

    return put


def changes_over(events: Sequence[Event]) -> list[Compiled]:
    return [e for e in events if isinstance(e, Compiled)]


# --- the function that is compiled


@pytest.mark.parametrize("changes", [*({"query": q} for q in slots.QUERY), {"tied": False}], ids=str)
def test_the_function_is_the_models_loss_with_its_gradient(changes: dict[str, Any]) -> None:
    config = small(**changes)
    model = GPT(config.model, 65, seed=3)
    ids = torch.randint(65, (4, 16), generator=torch.Generator().manual_seed(0))
    loss = model.loss(ids, ids.roll(-1, 1))
    function, (weights, x, y) = loss_and_gradient(job_of(config))
    assert [w.shape for w in weights] == [p.shape for p in model.parameters()]
    assert x.shape == y.shape == ids.shape
    value, *gradients = function([p.detach() for p in model.parameters()], ids, ids.roll(-1, 1))
    assert value.item() == loss.item()
    assert not value.requires_grad
    for mine, theirs in zip(gradients, torch.autograd.grad(loss, list(model.parameters())), strict=True):
        assert torch.equal(mine, theirs)


def test_a_job_is_what_decides_the_code_and_survives_json() -> None:
    job = job_of(compiling(query="nonlinear", dropout=0.1))
    assert Job.from_json(job.to_json()) == job
    assert hash(Job.from_json(job.to_json())) == hash(job)
    assert job == job_of(compiling(query="nonlinear", dropout=0.1, seed=5, learning_rate=1e-2, steps=7))
    others = [{"query": "linear"}, {"batch_size": 5}, {"dtype": "bfloat16"}, {"n_embd": 32}, {"block_size": 8}, {"bottleneck": 3}]
    assert len({job, *(job_of(compiling(**{"query": "nonlinear", "dropout": 0.1} | other)) for other in others)}) == 7


# --- the change-over


def test_without_compile_nothing_is_asked_for(shakespeare: Corpus, prepare: Callable[..., Prepared]) -> None:
    prepared = prepare()
    assert not changes_over(trained(small(), shakespeare))
    assert not prepared.asked


def test_the_record_says_from_which_step_and_the_losses_go_on(shakespeare: Corpus, prepare: Callable[..., Prepared]) -> None:
    plain = trained(small(device="cpu"), shakespeare)
    prepare(at=4)
    events = trained(compiling(), shakespeare)
    (news,) = changes_over(events)
    assert (news.step, news.ok) == (4, True)
    assert news.record()["type"] == "compiled"
    assert news.message.startswith("compiled in 7 s; its loss is 0e+00 off, its gradient 0e+00")
    place = events.index(news)
    assert (events[place - 1].type, events[place - 1].step) == ("step", 3)
    assert records(events, without=("checkpoint", "compiled")) == records(plain)  # the stand-in rounds as the model does


def test_the_first_evaluation_and_the_first_update_come_before_anything_is_asked_for(
    shakespeare: Corpus, prepare: Callable[..., Prepared]
) -> None:
    prepared = prepare()
    events = train(compiling(), shakespeare)
    seen = []
    for event in events:
        seen.append(event.type)
        if event.type == "step":
            break
        assert not prepared.asked
    assert seen == ["evaluation", "checkpoint", "step"]
    assert not prepared.asked
    assert next(events).type == "compiled"


def test_dropouts_masks_stay_those_of_the_seed_and_the_step(shakespeare: Corpus, prepare: Callable[..., Prepared]) -> None:
    plain = trained(small(device="cpu", dropout=0.3), shakespeare)
    prepare(at=3)
    events = trained(compiling(dropout=0.3), shakespeare)
    assert changes_over(events)[0].ok
    assert step_losses(events) == step_losses(plain)


def test_every_run_of_a_race_changes_over_and_equal_ones_share(shakespeare: Corpus, prepare: Callable[..., Prepared]) -> None:
    prepared = prepare(at=3)
    race = [compiling(), compiling(query="identity"), compiling(seed=1)]
    events = trained(race, shakespeare)
    assert {e.run: e.step for e in changes_over(events)} == {2: 1, 0: 2, 1: 2}
    assert len(set(prepared.asked)) == 2
    for index, config in enumerate(race):
        assert step_losses(events, index) == step_losses(trained(replace(config, {"compile": False}), shakespeare))


def test_a_resumed_run_changes_over_again(shakespeare: Corpus, prepare: Callable[..., Prepared]) -> None:
    prepare(at=2)
    events = trained(compiling(), shakespeare, stop=nth_call(12))
    state = next(e.state for e in reversed(events) if e.type == "checkpoint")  # type: ignore[attr-defined]
    assert 0 < state.step < 12
    prepare(at=2)
    (news,) = changes_over(trained(compiling(), shakespeare, resume=[state]))
    assert (news.ok, news.step) == (True, state.step + 2)


def test_at_the_end_nothing_is_asked_for(shakespeare: Corpus, prepare: Callable[..., Prepared]) -> None:
    prepared = prepare(at=12)
    assert not changes_over(trained(compiling(steps=12), shakespeare))
    assert len(prepared.asked) == 11


# --- where it does not come to that


def shifted(found: Sequence[Tensor]) -> Sequence[Tensor]:
    return [found[0] + 1e-3, *found[1:]]


def steeper(found: Sequence[Tensor]) -> Sequence[Tensor]:
    return [found[0], *(1.01 * g for g in found[1:])]


def broken(found: Sequence[Tensor]) -> Sequence[Tensor]:
    raise RuntimeError("a library of another torch\nwith more lines")


def not_a_number(found: Sequence[Tensor]) -> Sequence[Tensor]:
    return [found[0] * float("nan"), *found[1:]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (shifted, "its loss is 1e-03 off, its gradient 0e+00 of its norm, more than 1e-05 and 1e-03"),
        (steeper, "its loss is 0e+00 off, its gradient 1e-02 of its norm, more than"),
        (not_a_number, "its loss is nan off"),
        (broken, "the compiled update failed (a library of another torch)"),
    ],
)
def test_a_compiled_update_that_does_otherwise_is_not_taken(
    shakespeare: Corpus, prepare: Callable[..., Prepared], change: Change, message: str
) -> None:
    prepare(lambda job: stand_in(job, change), at=3)
    events = trained(compiling(), shakespeare)
    (news,) = changes_over(events)
    assert not news.ok
    assert news.message.startswith("training goes on without compilation: ")
    assert message in news.message
    assert "\n" not in news.message
    assert step_losses(events) == step_losses(trained(small(device="cpu"), shakespeare))


def test_a_failure_is_told_once_and_changes_no_loss(shakespeare: Corpus, prepare: Callable[..., Prepared]) -> None:
    prepared = prepare(lambda job: "there is no compiler", at=2)
    events = trained(compiling(), shakespeare)
    assert [(e.ok, e.step, e.message) for e in changes_over(events)] == [
        (False, 2, "training goes on without compilation: there is no compiler")
    ]
    assert len(prepared.asked) == 2
    assert step_losses(events) == step_losses(trained(small(device="cpu"), shakespeare))


def until_made(builds: Builds, job: Job) -> CompiledLoss | Failure:
    end = time.monotonic() + 400
    while (made := builds.get(job)) is None:
        assert time.monotonic() < end, "nothing was made"
        time.sleep(0.05)
    return made


def test_without_a_compiler_the_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nonexistent")
    with Builds() as builds:
        assert until_made(builds, job_of(small())) == ("there is no working C++ compiler (/nonexistent); install g++, or name one in CXX")


@pytest.mark.parametrize(
    ("program", "message"), [("/nonexistent/python", "could not be started"), ("/bin/false", "the compiler's process ended with code 1")]
)
def test_a_process_that_does_not_start_or_dies_is_a_failure(monkeypatch: pytest.MonkeyPatch, program: str, message: str) -> None:
    monkeypatch.setattr(sys, "executable", program)
    with Builds() as builds:
        made = until_made(builds, job_of(small()))
        assert isinstance(made, Failure)
        assert message in made


# --- the process ends with the run


def test_the_process_ends_with_the_training(shakespeare: Corpus) -> None:
    events = train(compiling(), shakespeare)
    while next(events).step < 2:
        pass
    living = [c for c in psutil.Process().children() if c.status() != psutil.STATUS_ZOMBIE]
    (child,) = [c for c in living if "nqlab.training.compiled" in c.cmdline()]
    events.close()  # type: ignore[attr-defined]
    assert not child.is_running()


ENDING = """
import json, os, signal, sys
import psutil
from nqlab.corpus import load
from nqlab.training.loop import train
from tests.small import small

events = train(small(compile=True, device="cpu", corpus="python-docs"), load("python-docs"))
while next(events).step < 2:
    pass
print(json.dumps([p.pid for p in psutil.Process().children()]), flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("end", ["killed", "returned"])
def test_the_process_ends_with_its_owner_however_that_ends(end: str, wait_for: Callable[..., None], tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore::ResourceWarning", "-c", ENDING, end]
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = os.environ | {"TMPDIR": str(scratch)}
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=90)
    assert (done.returncode, done.stderr) == (-9 if end == "killed" else 0, "")
    (child,) = json.loads(done.stdout)
    wait_for(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE, "the child's end")
    assert not list(scratch.glob("nqlab-compile-*"))


# --- compiled

FLOAT32 = 2e-4  # rounding grows over 20 updates, as it does in the reference step's test
# A compilation takes a quarter of a minute; the other queries are made of the parts of these, and run traced above.
ARMS = [{"query": q} for q in ("linear", "nonlinear", "routed")]


@pytest.mark.slow
@pytest.mark.parametrize("changes", [*ARMS, {"query": "nonlinear", "dropout": 0.2}, {"norm": "rmsnorm", "activation": "relu"}], ids=str)
def test_compiled_losses_are_the_models_to_rounding(shakespeare: Corpus, prepare: Callable[..., Prepared], changes: dict[str, Any]) -> None:
    config = replace(presets.tiny(), {"steps": 20, "warmup_steps": 4, "sample_interval": 0, "device": "cpu", **changes})
    with Builds() as builds:
        made = until_made(builds, job_of(config))
    prepare(lambda job: made)
    events = trained(replace(config, {"compile": True}), shakespeare)
    (news,) = changes_over(events)
    assert (news.ok, news.step) == (True, 1), news.message
    expected = trained(config, shakespeare)
    assert step_losses(events) == pytest.approx(step_losses(expected), abs=FLOAT32)
    assert step_losses(events)[:4] == pytest.approx(step_losses(expected)[:4], abs=2e-6)
    assert step_losses(events) != step_losses(expected)  # it is another rounding, so it was another function
    again = trained(replace(config, {"compile": True}), shakespeare)
    assert step_losses(again) == step_losses(events)  # from the same step on, the same bits
    assert [e.val_loss for e in events if isinstance(e, Evaluation)][-1] == pytest.approx(
        [e.val_loss for e in expected if isinstance(e, Evaluation)][-1], abs=FLOAT32
    )


@pytest.mark.slow
def test_a_compiled_update_in_bfloat16_is_the_models() -> None:
    config = replace(presets.tiny(), {"dtype": "bfloat16"})
    with Builds() as builds:
        made = until_made(builds, job_of(config))
    model = GPT(config.model, 65, seed=1)
    FlatAdamW(model, config.training, CPU)
    batch = torch.randint(65, (2, 16, 64), generator=torch.Generator().manual_seed(0))
    function, message = tried(made, model, (batch[0], batch[1]), "bfloat16", lambda: torch.autocast("cpu", torch.bfloat16))
    assert function is not None, message
    assert tried(made, model, (batch[0], batch[1]), "float32")[0] is None  # bfloat16 is not float32 to rounding


@pytest.mark.slow
def test_a_race_begins_at_once_and_changes_over_while_it_runs(shakespeare: Corpus) -> None:
    race = [compiling(seed=seed, steps=1_000_000, eval_interval=1_000_000) for seed in (0, 1)]
    news: list[Compiled] = []
    started = time.monotonic()
    events = train(race, shakespeare, stop=lambda step: len(news) == 2)
    for count, event in enumerate(events):
        if isinstance(event, Compiled):
            news.append(event)
        if count == 10:
            assert time.monotonic() - started < 3, "the first events waited for the compiler"
            assert not news
    assert sorted((e.run, e.ok) for e in news) == [(0, True), (1, True)]
    assert all(e.step > 10 for e in news)
    assert not [c for c in psutil.Process().children() if c.status() != psutil.STATUS_ZOMBIE]


def test_nothing_of_a_race_that_does_not_compile_starts_a_process(shakespeare: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_Child", None)
    assert step_losses(trained(small(), shakespeare))
