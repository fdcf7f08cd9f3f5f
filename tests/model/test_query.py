"""The query formulas against references written out here, and the specification's numbers at initialisation."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nqlab import slots
from nqlab.config import ModelConfig
from nqlab.model.budget import block_parameters, match_parameters
from nqlab.model.gpt import GPT
from nqlab.model.query import Query

WITH_F = ["nonlinear", "bottleneck_linear"]
HALVED = [name for name in slots.QUERY if name != "linear"]
Weights = dict[str, Tensor]


def config_of(name: str, width: int = 12, **options: object) -> ModelConfig:
    return ModelConfig.model_validate({"n_layer": 1, "n_head": 3, "n_embd": width, "block_size": 6, "query": name, **options})


def query_of(config: ModelConfig, seed: int = 0) -> Query:
    """A query in float64 with weights large enough for every term to matter."""
    query: Query = slots.load("query", config.query)(config).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in query.parameters():
            parameter.normal_(0.3, 0.5, generator=generator)
    return query


def inputs(width: int = 12, seed: int = 1) -> Tensor:
    return torch.randn(2, 6, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def rms(x: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def standard(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def gelu(z: Tensor) -> Tensor:
    return z * 0.5 * (1 + torch.erf(z / math.sqrt(2)))


def f(x: Tensor, w: Weights, act: Callable[[Tensor], Tensor]) -> Tensor:
    return w["out_norm.weight"] * standard(act((w["norm.weight"] * rms(x)) @ w["down.weight"].T) @ w["up.weight"].T)


def routed(x: Tensor, w: Weights) -> Tensor:
    """Two nonlinear queries at R = 6 and C = 12: five hidden units in all, three and two, weighted by what the router says."""
    scores = (x @ w["router.weight"].T).exp()
    parts = [w | {"down.weight": w["down.weight"][s], "up.weight": w["up.weight"][:, s]} for s in (slice(0, 3), slice(3, 5))]
    return sum(scores[..., i : i + 1] / scores.sum(-1, keepdim=True) * (x + f(x, part, gelu)) / 2 for i, part in enumerate(parts))


REFERENCES: dict[str, Callable[[Tensor, Weights], Tensor]] = {
    "linear": lambda x, w: x @ w["proj.weight"].T,
    "identity": lambda x, w: x / 2,
    "residual_linear": lambda x, w: (x + x @ w["proj.weight"].T) / 2,
    "nonlinear": lambda x, w: (x + f(x, w, gelu)) / 2,
    "bottleneck_linear": lambda x, w: (x + f(x, w, lambda z: z)) / 2,
    "routed": routed,
}


@pytest.mark.parametrize("name", slots.QUERY)
def test_a_query_is_its_formula(name: str) -> None:
    assert name in REFERENCES, f"write the formula of query {name!r} out in REFERENCES"
    query, x = query_of(config_of(name)), inputs()
    torch.testing.assert_close(query(x), REFERENCES[name](x, dict(query.named_parameters())), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", slots.QUERY)
def test_query_scale_is_the_factor_on_the_whole_query(name: str) -> None:
    default = 1.0 if name == "linear" else 0.5
    x = inputs()
    once = query_of(config_of(name))(x)
    twice = query_of(config_of(name, query_scale=2 * default))(x)
    torch.testing.assert_close(twice, 2 * once, rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", HALVED)
def test_the_half_in_the_query_and_the_half_in_the_logit_scale_are_the_same_attention(name: str) -> None:
    x, (k, v) = inputs(), (inputs(seed=2).view(2, 6, 3, 4).transpose(1, 2), inputs(seed=3).view(2, 6, 3, 4).transpose(1, 2))
    ours, theirs = (query_of(config_of(name, **o))(x).view(2, 6, 3, 4).transpose(1, 2) for o in ({}, {"query_scale": 1.0}))
    d = 4
    here = F.scaled_dot_product_attention(ours, k, v, is_causal=True)  # logits scaled by 1/sqrt(D)
    there = F.scaled_dot_product_attention(theirs, k, v, is_causal=True, scale=1 / (2 * math.sqrt(d)))
    torch.testing.assert_close(here, there, rtol=1e-12, atol=1e-12)
    ignoring_the_half = F.scaled_dot_product_attention(theirs, k, v, is_causal=True)
    assert (here - ignoring_the_half).abs().max() > 0.01


# --- the nonlinear query's parts


@pytest.mark.parametrize("name", WITH_F)
@pytest.mark.parametrize("bottleneck", [None, 1, 5])
def test_f_has_two_matrices_through_the_bottleneck_and_two_gains(name: str, bottleneck: int | None) -> None:
    query = slots.load("query", name)(config_of(name, bottleneck=bottleneck))
    r = bottleneck or 6
    assert {n: tuple(p.shape) for n, p in query.named_parameters()} == {
        "norm.weight": (12,),
        "down.weight": (r, 12),
        "up.weight": (12, r),
        "out_norm.weight": (12,),
    }


def test_the_two_queries_with_f_have_identical_tensors() -> None:
    shapes = [
        {n: p.shape for n, p in GPT(config_of(name), 7).named_parameters()}
        for name in WITH_F
    ]  # fmt: skip
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("name", WITH_F)
def test_with_the_output_gain_at_zero_it_starts_exactly_at_the_identity(name: str) -> None:
    started, identity = (GPT(config_of(n, **o), 7, seed=4) for n, o in ((name, {"query_output_gain": 0.0}), ("identity", {})))
    ids = torch.randint(7, (2, 6), generator=torch.Generator().manual_seed(0))
    assert torch.equal(started(ids), identity(ids))
    assert not torch.equal(GPT(config_of(name), 7, seed=4)(ids), identity(ids))


@pytest.mark.parametrize("name", WITH_F)
def test_with_the_output_gain_at_zero_it_can_leave_the_identity(name: str) -> None:
    model = GPT(config_of(name, query_output_gain=0.0), 7)
    ids = torch.randint(7, (2, 6), generator=torch.Generator().manual_seed(0))
    model.loss(ids, ids.roll(-1, 1)).backward()
    gain = model.blocks[0].attn.query.out_norm.weight
    assert (gain.grad != 0).all()


@pytest.mark.parametrize("name", WITH_F)
def test_f_does_not_drop_out(name: str) -> None:
    query = query_of(config_of(name, dropout=0.5)).train()
    assert torch.equal(query(inputs()), query(inputs()))


# --- the mixture of nonlinear queries


@pytest.mark.parametrize("bottleneck", [None, 5])
def test_one_routed_query_is_the_nonlinear_query_bit_for_bit(bottleneck: int | None) -> None:
    one, nonlinear = (
        GPT(config_of(n, bottleneck=bottleneck, **o), 7, seed=4) for n, o in (("routed", {"query_experts": 1}), ("nonlinear", {}))
    )
    assert [(n, p.shape) for n, p in one.named_parameters()] == [(n, p.shape) for n, p in nonlinear.named_parameters()]
    ids = torch.randint(7, (2, 6), generator=torch.Generator().manual_seed(0))
    losses = [model.loss(ids, ids.roll(-1, 1)) for model in (one, nonlinear)]
    assert losses[0].item() == losses[1].item()
    for a, b in zip(*(torch.autograd.grad(loss, list(m.parameters())) for loss, m in zip(losses, (one, nonlinear)))):
        assert torch.equal(a, b)


@pytest.mark.parametrize(("experts", "widths"), [(1, [32]), (2, [16, 15]), (3, [10, 10, 10]), (4, [8, 8, 7, 7]), (6, [5, 5, 5, 5, 5, 4])])
def test_a_routed_query_shares_the_bottleneck_and_is_as_large_as_the_nonlinear_one(experts: int, widths: list[int]) -> None:
    config = config_of("routed", width=64, n_head=4, query_experts=experts)
    query = slots.load("query", "routed")(config)
    assert query.widths == widths
    surplus = block_parameters(config) - block_parameters(config_of("nonlinear", width=64, n_head=4))
    assert surplus == (-64 if experts == 3 else 0)
    assert sum(p.numel() for p in query.parameters()) == type(query).count(config)
    assert type(query).flops(config) == 2 * sum(p.numel() for p in query.parameters() if p.dim() == 2)
    assert match_parameters(config, "bottleneck").bottleneck == 31


def test_a_bottleneck_too_narrow_to_share_is_answered_with_the_least_that_is_not() -> None:
    for experts, least in ((2, 3), (3, 5), (4, 6)):
        with pytest.raises(ValueError, match=f"bottleneck {least - 1} is too narrow .* take bottleneck {least} or more"):
            config_of("routed", query_experts=experts, bottleneck=least - 1)
        slots.load("query", "routed")(config_of("routed", query_experts=experts, bottleneck=least))
    config_of("routed", query_experts=1, bottleneck=1)


# --- at initialisation, as the specification measured it


def normed_input(width: int) -> Tensor:
    """What the query sees: the output of a norm with unit gain, here of random numbers, (4, 64, C)."""
    return F.layer_norm(torch.randn(4, 64, width, generator=torch.Generator().manual_seed(7)), (width,))


def logit_spread(name: str, width: int, heads: int) -> float:
    """Standard deviation of q k^T / sqrt(D) over all pairs of positions, batch and heads, before training."""
    config = ModelConfig(n_layer=1, n_head=heads, n_embd=width, block_size=64, query=name)
    attn = GPT(config, 65, seed=0).blocks[0].attn
    x = normed_input(width)
    with torch.no_grad():
        q, k = (t.view(4, 64, heads, width // heads).transpose(1, 2) for t in (attn.query(x), attn.key(x)))
        return float((q @ k.transpose(-2, -1) / math.sqrt(width // heads)).std())


@pytest.mark.parametrize(
    ("name", "width", "heads", "spread"),
    [
        ("linear", 128, 4, 0.051), ("identity", 128, 4, 0.112), ("residual_linear", 128, 4, 0.114), ("nonlinear", 128, 4, 0.158),
        ("linear", 768, 12, 0.305), ("identity", 768, 12, 0.279), ("residual_linear", 768, 12, 0.315), ("nonlinear", 768, 12, 0.387),
    ],
)  # fmt: skip
def test_the_initial_logit_spread_is_the_specifications_within_a_tenth(name: str, width: int, heads: int, spread: float) -> None:
    assert logit_spread(name, width, heads) == pytest.approx(spread, rel=0.1)


@pytest.mark.parametrize("width", [128, 768])
def test_the_nonlinear_query_starts_half_way_between_the_identity_and_something_new(width: int) -> None:
    config = ModelConfig(n_layer=1, n_head=4, n_embd=width, query="nonlinear")
    query, x = GPT(config, 65, seed=0).blocks[0].attn.query, normed_input(width)
    with torch.no_grad():
        assert F.cosine_similarity(query(x), x, dim=-1).mean().item() == pytest.approx(0.707, abs=0.03)
