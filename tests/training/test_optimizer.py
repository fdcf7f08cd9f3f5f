from __future__ import annotations

import math

import pytest
import torch

from nqlab import slots
from nqlab.config import ModelConfig, TrainingConfig
from nqlab.model.gpt import GPT
from nqlab.training.optimizer import learning_rate_at, make_optimizer


@pytest.mark.parametrize("query", slots.QUERY)
def test_matrices_and_embeddings_decay_and_gains_do_not(query: str) -> None:
    model = GPT(ModelConfig(n_embd=16, query=query), 7)
    optimizer = make_optimizer(model, TrainingConfig(weight_decay=0.3, betas=(0.8, 0.9)), torch.device("cpu"))
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in model.named_parameters():
        assert decay.pop(id(parameter)) == (0.3 if parameter.dim() >= 2 else 0.0), name
    assert not decay, "a tensor is optimised that is no parameter of the model"
    for group in optimizer.param_groups:
        assert (group["betas"], group["eps"]) == ((0.8, 0.9), 1e-8)


def test_weight_decay_shrinks_a_matrix_by_rate_times_decay() -> None:
    model = GPT(ModelConfig(n_embd=16), 7)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    optimizer = make_optimizer(model, TrainingConfig(weight_decay=0.5, learning_rate=0.1), torch.device("cpu"))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), before[name] * (0.95 if parameter.dim() > 1 else 1.0), rtol=1e-6, atol=0)


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
