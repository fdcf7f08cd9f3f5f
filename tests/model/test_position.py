"""Positions, and the norm of queries and keys: formulas written out, and what scores may depend on."""

from __future__ import annotations

import cmath
import math
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor

from nqlab.analysis.attention_maps import weights_of
from nqlab.analysis.redundancy.trained import per_head_gauge
from nqlab.config import ModelConfig, RunConfig, replace
from nqlab.generate import stream
from nqlab.model.attention import CausalSelfAttention
from nqlab.model.gpt import GPT
from nqlab.model.position import RotaryPositions

ROPE: dict[str, Any] = {"position": "rope"}


def config_of(**options: object) -> ModelConfig:
    return ModelConfig.model_validate({"n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 8, **options})


def model_of(**options: object) -> GPT:
    """A model in float64, far from initialisation."""
    model = GPT(config_of(**options), 11, seed=1).double()
    with torch.no_grad():
        for i, parameter in enumerate(model.parameters()):
            parameter.add_(torch.randn(parameter.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(i)), alpha=0.3)
    return model


def heads(time: int, seed: int = 0, size: int = 8) -> Tensor:
    return torch.randn(2, 3, time, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def turned_by_hand(row: list[float], position: int) -> list[float]:
    """Each pair as a complex number, times e^(i t 10000^(-2i/D))."""
    out: list[float] = []
    for i in range(0, len(row), 2):
        z = complex(row[i], row[i + 1]) * cmath.exp(1j * position * 10_000 ** (-i / len(row)))
        out += [z.real, z.imag]
    return out


@pytest.mark.parametrize("past", [0, 5])
def test_rope_multiplies_pairs_by_a_complex_number_of_length_one(past: int) -> None:
    q, k = heads(4), heads(4, seed=1)
    for given, found in zip((q, k), RotaryPositions.turned(q, k, past)):
        expected = [[[turned_by_hand(row, past + t) for t, row in enumerate(head)] for head in batch] for batch in given.tolist()]
        torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)


def test_with_rope_scores_depend_on_how_far_apart_two_positions_are_and_on_nothing_else() -> None:
    q, k = heads(10)[:, :, :1].expand(2, 3, 10, 8), heads(10, seed=1)[:, :, :1].expand(2, 3, 10, 8)
    scores, later = (turned[0] @ turned[1].transpose(-1, -2) for turned in (RotaryPositions.turned(q, k, past) for past in (0, 37)))
    torch.testing.assert_close(later, scores, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(scores[..., 1:, 1:], scores[..., :-1, :-1], rtol=1e-12, atol=1e-12)
    assert (scores[..., 0, 1:] - scores[..., 0, :-1]).abs().min() > 1e-6


def test_rope_has_no_table_and_still_tells_orders_apart() -> None:
    model = model_of(position="rope")
    assert not [name for name, _ in model.named_parameters() if "wpe" in name]
    ids = torch.tensor([[1, 2, 3, 4], [2, 1, 3, 4]])
    logits = model(ids)[:, -1]
    assert (logits[0] - logits[1]).abs().max() > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rope_is_turned_in_float32_at_least_and_keeps_the_format(dtype: torch.dtype) -> None:
    q = heads(3).to(dtype)
    found, _ = RotaryPositions.turned(q, q, 40_000)
    exact, _ = RotaryPositions.turned(q.double(), q.double(), 40_000)
    assert found.dtype == dtype
    assert (found.double() - exact).abs().max() < 0.03  # angles of 4e4 carry 2e-3 in float32; bfloat16 would be lost


@pytest.mark.parametrize("options", [ROPE, {"qk_norm": True}, ROPE | {"qk_norm": True}], ids=str)
@pytest.mark.parametrize("prompt_length", [1, 3, 8, 20])
def test_the_text_is_the_same_with_the_cache_and_without_when_the_window_moves_on(options: dict[str, Any], prompt_length: int) -> None:
    model = model_of(**options)
    prompt = torch.randint(11, (3, prompt_length), generator=torch.Generator().manual_seed(0))
    cached, uncached = (torch.stack(list(islice(stream(model, prompt, use_cache=c, seed=5), 30))) for c in (True, False))
    assert torch.equal(cached, uncached)


@pytest.mark.parametrize(
    ("sizes", "offered"),
    [
        ({"n_embd": 66, "n_head": 2}, "n_embd 64 or 68"),
        ({"n_embd": 9, "n_head": 3}, "n_embd 6 or 12"),
        ({"n_embd": 3, "n_head": 3}, "n_embd 6,"),
    ],
)
def test_rope_needs_an_even_head_size_and_says_which_width_has_one(sizes: dict[str, int], offered: str) -> None:
    with pytest.raises(
        ValueError, match=r"position 'rope' turns pairs of channels, but n_embd \d+ over n_head \d is \d+, which is odd"
    ) as said:
        replace(RunConfig(), sizes | ROPE)
    assert offered in str(said.value)
    replace(RunConfig(), sizes)


# --- queries and keys of length one


def test_qk_norm_divides_each_head_by_its_rms() -> None:
    attn = CausalSelfAttention(config_of(qk_norm=True)).double()
    q, k = heads(4), heads(4, seed=1) * 1e-3
    for given, found in zip((q, k), attn.compared(q, k)):
        for a, b in zip(given.flatten(0, 2).tolist(), found.flatten(0, 2).tolist()):
            rms = math.sqrt(sum(v * v for v in a) / 8 + 1e-6)
            assert b == pytest.approx([v / rms for v in a], rel=1e-12)


def test_with_qk_norm_no_score_is_larger_than_the_root_of_the_head_size() -> None:
    attn = CausalSelfAttention(config_of(qk_norm=True)).double()
    q, k = attn.compared(heads(6) * 1000, heads(6, seed=1) * 1000)
    assert (q @ k.transpose(-1, -2) / math.sqrt(8)).abs().max() <= math.sqrt(8) + 1e-9


def test_qk_norm_has_no_learned_numbers_and_changes_what_the_model_says() -> None:
    plain, normed = model_of(), model_of(qk_norm=True)
    assert [n for n, _ in plain.named_parameters()] == [n for n, _ in normed.named_parameters()]
    ids = torch.arange(8)[None]
    assert (plain(ids) - normed(ids)).abs().max() > 1e-3


# --- what looks at trained models from outside


@pytest.mark.parametrize("options", [ROPE, {"qk_norm": True}, ROPE | {"qk_norm": True, "key": "nonlinear", "value": "nonlinear"}], ids=str)
def test_attention_maps_are_those_of_what_is_compared(options: dict[str, Any]) -> None:
    model, seen = model_of(**options), {}
    for i, block in enumerate(model.blocks):
        block.attn.register_forward_hook(lambda module, args, out, i=i: seen.update({i: (args[0], out)}))
    for i, weights in enumerate(weights_of(model, torch.arange(8)[None])):
        (x, out), attn = seen[i], model.blocks[i].attn
        v = attn.value(x).view(1, 8, 2, 8).transpose(1, 2)  # (B, H, T, D)
        torch.testing.assert_close(attn.out((weights @ v).transpose(1, 2).flatten(2)), out, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("options", "said"), [(ROPE, "position 'rope' stands"), ({"qk_norm": True}, "qk_norm"), ({"key": "nonlinear"}, "key 'nonlinear'")]
)
def test_the_gauge_of_a_head_is_refused_where_it_would_change_the_model(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        per_head_gauge(model_of(**options))
