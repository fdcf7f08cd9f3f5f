from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from nqlab import slots
from nqlab.config import ModelConfig
from nqlab.model.attention import CausalSelfAttention, KeyValueCache
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
    cache = [KeyValueCache() for _ in model.blocks]
    parts = [model(ids[:, :first], cache)] + [model(ids[:, i : i + 1], cache) for i in range(first, 10)]
    torch.testing.assert_close(torch.cat(parts, dim=1), model(ids), rtol=1e-12, atol=1e-12)


def test_the_cache_takes_one_position_at_a_time_after_the_first_call() -> None:
    attn, cache = attention_of(config_of()), KeyValueCache()
    attn(inputs(3), cache)
    with pytest.raises(AssertionError, match="one position at a time"):
        attn(inputs(2), cache)


def test_dropout_acts_while_training_and_not_in_evaluation() -> None:
    attn, x = attention_of(config_of(dropout=0.5)), inputs()
    torch.manual_seed(0)
    assert not torch.equal(attn(x), attn(x))
    attn.eval()
    assert torch.equal(attn(x), attn(x))
    torch.testing.assert_close(attn(x), attention_of(config_of())(x), rtol=0, atol=0)
