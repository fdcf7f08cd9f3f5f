from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nqlab import slots
from nqlab.config import ModelConfig, TrainingConfig
from nqlab.model.gpt import GPT
from nqlab.training.optimizer import FlatAdamW, learning_rate_at

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("query", slots.QUERY)
def test_matrices_and_embeddings_decay_and_gains_do_not(query: str) -> None:
    model = GPT(ModelConfig(n_embd=16, query=query), 7)
    optimizer = FlatAdamW(model, TrainingConfig(weight_decay=0.3, betas=(0.8, 0.9)), CPU)
    for name, parameter in model.named_parameters():
        group, _ = optimizer.places[name]
        assert optimizer.param_groups[group]["weight_decay"] == (0.3 if parameter.dim() >= 2 else 0.0), name
    assert optimizer.places.keys() == dict(model.named_parameters()).keys()
    for group in optimizer.param_groups:
        assert (group["betas"], group["eps"]) == ((0.8, 0.9), 1e-8)


def test_weight_decay_shrinks_a_matrix_by_rate_times_decay() -> None:
    model = GPT(ModelConfig(n_embd=16), 7)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    optimizer = FlatAdamW(model, TrainingConfig(weight_decay=0.5, learning_rate=0.1), CPU)
    optimizer.step()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), before[name] * (0.95 if parameter.dim() > 1 else 1.0), rtol=1e-6, atol=0)


@pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "formula"])
@pytest.mark.parametrize("query", ["linear", "nonlinear"])
def test_the_flat_optimiser_takes_the_steps_of_torchs_over_separate_tensors(query: str, kernel: bool) -> None:
    config = ModelConfig(n_embd=16, block_size=8, query=query)
    training = TrainingConfig(learning_rate=1e-2, grad_clip=0.1)
    ids = torch.randint(7, (4, 8), generator=torch.Generator().manual_seed(0))
    flat, plain = GPT(config, 7).double(), GPT(config, 7).double()
    mine = FlatAdamW(flat, training, CPU)
    mine._fused = kernel  # the formula is for devices that torch has no kernel for
    matrices, gains = ([p for p in plain.parameters() if (p.dim() >= 2) == wanted] for wanted in (True, False))
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": gains, "weight_decay": 0.0}]
    theirs = torch.optim.AdamW(groups, lr=1e-2, betas=training.betas, eps=1e-8)
    for _ in range(20):
        losses = flat.loss(ids, ids.roll(-1, 1)), plain.loss(ids, ids.roll(-1, 1))
        for loss in losses:
            loss.backward()
        assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-10)
        norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
        assert mine.clip(0.1).item() == pytest.approx(norm.item(), rel=1e-9)
        for optimizer in (mine, theirs):
            optimizer.step()
            optimizer.zero_grad()


def test_gradients_stay_views_of_the_one_buffer() -> None:
    model = GPT(ModelConfig(n_embd=16, block_size=8), 7)
    optimizer = FlatAdamW(model, TrainingConfig(), CPU)
    ids = torch.zeros(1, 8, dtype=torch.long)
    for _ in range(2):
        model.loss(ids, ids).backward()
        assert optimizer.gradient.norm() > 0
        optimizer.zero_grad()
        assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


def rates(**settings: float) -> list[float]:
    training = TrainingConfig.model_validate(settings)
    return [learning_rate_at(step, training) for step in range(training.steps)]


def test_the_rate_rises_in_a_line_and_falls_in_a_cosine_to_its_least() -> None:
    found = rates(steps=101, learning_rate=1.0, min_lr=0.1, warmup_steps=20)
    assert found[:20] == pytest.approx([(i + 1) / 21 for i in range(20)])
    assert found[20] == 1.0
    assert found[60] == pytest.approx(0.55)  # half way down: the middle of peak and least
    assert found[40] == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi / 4)) / 2)
    assert found[-1] == pytest.approx(0.1, abs=1e-15)
    assert found[20:] == sorted(found[20:], reverse=True)
    assert max(found) == 1.0


def test_without_warm_up_the_first_update_is_at_the_peak() -> None:
    found = rates(steps=10, learning_rate=0.5, warmup_steps=0)
    assert found[0] == 0.5
    assert found[-1] == pytest.approx(0.05)


@pytest.mark.parametrize(("steps", "warmup"), [(1, 0), (1, 1), (2, 1), (2, 2), (5, 5)])
def test_the_shortest_runs_have_positive_finite_rates(steps: int, warmup: int) -> None:
    assert all(0 < rate <= 1 for rate in rates(steps=steps, learning_rate=1.0, warmup_steps=warmup))


def test_a_least_rate_of_zero_is_reached() -> None:
    assert rates(steps=10, min_lr=0.0)[-1] == pytest.approx(0.0, abs=1e-18)


def test_a_training_process_does_not_import_torchs_compiler() -> None:
    code = (
        "import sys; from nqlab.training.loop import train; from nqlab.corpus import load; from tests.small import small\n"
        "events = train(small(corpus='python-docs'), load('python-docs'))\n"
        "while next(events).step < 2: pass\n"
        "print([m for m in ('torch._dynamo', 'torch._inductor', 'sympy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=True)
    assert done.stdout.strip() == "[]"
