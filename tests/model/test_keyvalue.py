"""Nonlinear keys and values: the query's f, with weights of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nqlab import slots
from nqlab.config import ModelConfig
from nqlab.model.attention import CausalSelfAttention
from nqlab.model.budget import baseline_of, block_parameters, flops_per_token, surplus
from nqlab.model.gpt import GPT
from tests.model.test_query import f, gelu

SLOTS = pytest.mark.parametrize("slot", ["key", "value"])


def config_of(**options: object) -> ModelConfig:
    return ModelConfig.model_validate({"n_layer": 1, "n_head": 3, "n_embd": 12, "block_size": 6, **options})


@SLOTS
@pytest.mark.parametrize("query", ["linear", "nonlinear"])
def test_it_is_the_residual_and_the_f_of_the_nonlinear_query_whatever_the_query_is(slot: str, query: str) -> None:
    options: dict[str, Any] = {slot: "nonlinear", "query": query, "query_scale": 0.3, "query_output_gain": 0.0, "bottleneck": 5}
    module = getattr(CausalSelfAttention(config_of(**options)).double(), slot)
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            parameter.normal_(0.3, 0.5, generator=torch.Generator().manual_seed(i))
    x = torch.randn(2, 6, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    torch.testing.assert_close(module(x), (x + f(x, dict(module.named_parameters()), gelu)) / 2, rtol=1e-12, atol=1e-12)
    assert module.down.weight.shape == (5, 12)


@SLOTS
def test_the_querys_own_options_stay_the_querys(slot: str) -> None:
    gain = getattr(CausalSelfAttention(config_of(query="nonlinear", query_output_gain=0.0, **{slot: "nonlinear"})), slot).out_norm.weight
    assert (gain == 1).all()
    assert config_of(**{slot: "nonlinear"}).resolved().query_scale == 1.0


@SLOTS
def test_the_bottleneck_is_read_where_something_has_one(slot: str) -> None:
    assert config_of(bottleneck=5).resolved().bottleneck is None
    assert config_of(bottleneck=5, **{slot: "nonlinear"}).resolved().bottleneck == 5
    assert config_of(**{slot: "nonlinear"}).resolved().bottleneck == 6


@SLOTS
def test_all_else_starts_as_it_does_with_the_linear_one(slot: str) -> None:
    plain, other = (dict(GPT(config_of(**o), 7, seed=3).named_parameters()) for o in ({}, {slot: "nonlinear"}))
    shared = plain.keys() & other.keys()
    assert {n for n in plain if f".{slot}." not in n} == shared
    assert all(torch.equal(plain[n], other[n]) for n in shared)


@SLOTS
def test_its_surplus_is_counted_against_linear_projections(slot: str) -> None:
    config = config_of(**{slot: "nonlinear"})
    assert baseline_of(config).resolved() == config_of().resolved()
    assert surplus(config).number == 2 * 12
    assert block_parameters(config_of(bottleneck=5, **{slot: "nonlinear"})) == block_parameters(config_of())
    assert flops_per_token(config, 7) == flops_per_token(config_of(), 7)


def test_the_key_and_the_value_slot_have_the_same_entries() -> None:
    assert {n: e.target for n, e in slots.KEY.items()} == {n: e.target for n, e in slots.VALUE.items()}
    assert slots.KEY["linear"].formula == "k = x W_K"
