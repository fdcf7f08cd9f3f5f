from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from nqlab import slots
from nqlab.config import ModelConfig
from nqlab.model.attention import EXPLICIT_UP_TO, CausalSelfAttention, KeyValueCache, attend, attend_explicitly
from nqlab.model.gpt import GPT


def config_of(query: str = "linear", **options: object) -> ModelConfig:
    return ModelConfig.model_validate({"n_layer": 2, "n_head": 3, "n_embd": 12, "block_size": 10, "query": query, **options})


def attention_of(config: ModelConfig) -> CausalSelfAttention:
    attn = CausalSelfAttention(config).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in attn.parameters():
            parameter.normal_(0.1, 0.4, generator=generator)
    return attn


def inputs(time: int = 10) -> Tensor:
    return torch.randn(2, time, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_with_the_linear_query_it_is_torchs_multihead_attention() -> None:
    attn, x = attention_of(config_of()), inputs()
    authority = nn.MultiheadAttention(12, 3, bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        authority.in_proj_weight.copy_(torch.cat((attn.query.proj.weight, attn.key.weight, attn.value.weight)))
        authority.out_proj.weight.copy_(attn.out.weight)
    ahead = torch.ones(10, 10).triu(1).bool()
    expected, _ = authority(x, x, x, attn_mask=ahead, need_weights=False)
    torch.testing.assert_close(attn(x), expected, rtol=1e-12, atol=1e-12)
    unmasked, _ = authority(x, x, x, need_weights=False)
    assert (attn(x) - unmasked).abs().max() > 0.01


@pytest.mark.parametrize("query", slots.QUERY)
def test_it_is_the_softmax_formula_around_its_query(query: str) -> None:
    attn, x = attention_of(config_of(query)), inputs()
    q, k, v = (t.unflatten(-1, (3, 4)) for t in (attn.query(x), x @ attn.key.weight.T, x @ attn.value.weight.T))  # (B, T, H, D)
    logits = torch.einsum("bthd,bshd->bhts", q, k) / 4**0.5
    logits = logits.masked_fill(torch.ones(10, 10).triu(1).bool(), float("-inf"))
    weights = logits.exp() / logits.exp().sum(-1, keepdim=True)
    expected = torch.einsum("bhts,bshd->bthd", weights, v).flatten(2) @ attn.out.weight.T
    torch.testing.assert_close(attn(x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("query", slots.QUERY)
@pytest.mark.parametrize("first", [1, 4, 9])
def test_the_cache_gives_what_the_whole_text_gives(query: str, first: int) -> None:
    model = GPT(config_of(query), 7, seed=2).double().eval()
    ids = torch.randint(7, (3, 10), generator=torch.Generator().manual_seed(0))
    cache = [KeyValueCache(10) for _ in model.blocks]
    parts = [model(ids[:, :first], cache)] + [model(ids[:, i : i + 1], cache) for i in range(first, 10)]
    torch.testing.assert_close(torch.cat(parts, dim=1), model(ids), rtol=1e-12, atol=1e-12)


def test_the_cache_takes_one_position_at_a_time_after_the_first_call() -> None:
    attn, cache = attention_of(config_of()), KeyValueCache(10)
    attn(inputs(3), cache)
    with pytest.raises(AssertionError, match="one position at a time"):
        attn(inputs(2), cache)


def test_the_cache_holds_as_many_positions_as_it_was_made_for_and_returned_views_stay() -> None:
    cache, parts = KeyValueCache(4), torch.randn(2, 5, 3, 5, 4, generator=torch.Generator().manual_seed(0))  # k and v of (B, H, t, D)
    first = cache.extend(parts[0, :, :, :2], parts[1, :, :, :2])
    before = [t.clone() for t in first]
    for i in (2, 3):
        k, v = cache.extend(parts[0, :, :, i : i + 1], parts[1, :, :, i : i + 1])
        assert torch.equal(k, parts[0, :, :, : i + 1])
        assert torch.equal(v, parts[1, :, :, : i + 1])
    assert all(torch.equal(a, b) for a, b in zip(first, before))
    with pytest.raises(AssertionError, match="5 positions in a cache of 4"):
        cache.extend(parts[0, :, :, 4:], parts[1, :, :, 4:])


def test_dropout_acts_while_training_and_not_in_evaluation() -> None:
    attn, x = attention_of(config_of(dropout=0.5)), inputs()
    torch.manual_seed(0)
    assert not torch.equal(attn(x), attn(x))
    attn.eval()
    assert torch.equal(attn(x), attn(x))
    torch.testing.assert_close(attn(x), attention_of(config_of())(x), rtol=0, atol=0)


# --- the formula written out, for bfloat16 on a CPU


def heads(dtype: torch.dtype, positions: tuple[int, int] = (10, 10)) -> tuple[Tensor, Tensor, Tensor]:
    """q (2, 3, t, 8), k and v (2, 3, T, 8), large enough for a softmax with sharp places."""
    generator = torch.Generator().manual_seed(5)
    shapes = [(2, 3, t, 8) for t in (positions[0], positions[1], positions[1])]
    q, k, v = (torch.randn(shape, dtype=torch.float64, generator=generator) * 2 for shape in shapes)
    return q.to(dtype).requires_grad_(), k.to(dtype).requires_grad_(), v.to(dtype).requires_grad_()


# float64: a few hundred roundings of 1e-16; float32: the same of 6e-8
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 1e-5)])
@pytest.mark.parametrize(("causal", "positions"), [(True, (10, 10)), (True, (1, 1)), (False, (1, 10)), (False, (10, 10))])
def test_the_formula_written_out_is_torchs_kernel_with_its_gradients(
    dtype: torch.dtype, tolerance: float, causal: bool, positions: tuple[int, int]
) -> None:
    inputs = heads(dtype, positions)
    expected = nn.functional.scaled_dot_product_attention(*inputs, is_causal=causal)
    found = attend_explicitly(*inputs, causal)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    direction = torch.randn(found.shape, dtype=dtype, generator=torch.Generator().manual_seed(6))
    for mine, theirs in zip(torch.autograd.grad(found, inputs, direction), torch.autograd.grad(expected, inputs, direction)):
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=10 * tolerance)


def test_with_dropout_the_formula_keeps_each_weight_or_drops_it() -> None:
    q, k, _ = heads(torch.float64)
    v = torch.eye(10, dtype=torch.float64).expand(2, 3, 10, 10)  # the output is the weights
    torch.manual_seed(0)
    weights, dropped = attend_explicitly(q, k, v, True), attend_explicitly(q, k, v, True, dropout=0.25)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], (weights / 0.75)[kept], rtol=1e-12, atol=0)
    assert 0.6 < kept[weights > 0].double().mean() < 0.9


@pytest.mark.parametrize("positions", [10, EXPLICIT_UP_TO + 1])
def test_under_autocast_on_a_cpu_attention_is_that_of_bfloat16(positions: int) -> None:
    q, k, v = heads(torch.float32, (positions, positions))
    exact = attend(q, k, v, True)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = attend(q, k, v, True)
    assert rounded.dtype == torch.bfloat16
    assert not torch.equal(rounded.float(), exact)
    # Scores of up to about 30 carry 8 bits, so a weight is off by up to 30 * 2^-9 of itself, and values reach 8.
    torch.testing.assert_close(rounded.float(), exact, rtol=0.02, atol=0.3)
    assert (rounded.float() - exact).square().mean().sqrt() < 0.02


@pytest.mark.parametrize("query", slots.QUERY)
def test_a_model_under_autocast_computes_what_it_computes_without(query: str) -> None:
    model = GPT(config_of(query), 7, seed=2)
    ids = torch.randint(7, (3, 10), generator=torch.Generator().manual_seed(0))
    exact = torch.autograd.grad(model.loss(ids, ids), list(model.parameters()))
    with torch.autocast("cpu", torch.bfloat16):
        loss = model.loss(ids, ids)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(model.loss(ids, ids).item(), abs=0.01)
    for mine, theirs in zip(torch.autograd.grad(loss, list(model.parameters())), exact):
        assert (mine - theirs).norm() <= 0.05 * theirs.norm() + 1e-4
