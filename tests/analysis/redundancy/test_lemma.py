from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nqlab.analysis.redundancy.architecture import Architecture
from nqlab.analysis.redundancy.lemma import Layer, change_basis, conditioning, eliminate, example, multi_head_attention
from nqlab.analysis.redundancy.small import conditioned, forward, heads, relative_error, token_ids
from nqlab.analysis.redundancy.trained import weights_of
from nqlab.config import ModelConfig
from nqlab.model.attention import CausalSelfAttention
from nqlab.model.gpt import GPT, keyed_generator
from nqlab.model.position import RotaryPositions

ONE = Architecture(n_layer=1)
CAUSAL = torch.ones(12, 12, dtype=torch.bool).tril()
WINDOW = CAUSAL & torch.ones(12, 12, dtype=torch.bool).triu(-3)


def normal(*size: int) -> Tensor:
    return torch.randn(*size, generator=keyed_generator("lemma", *size), dtype=torch.float64)


@pytest.mark.parametrize("remove", ["query", "key", "value"])
@pytest.mark.parametrize("mask", [None, CAUSAL, WINDOW], ids=["none", "causal", "window"])
@pytest.mark.parametrize("scale", [None, 1.0, 0.05])
def test_the_lemma_for_any_mask_and_scale(remove: str, mask: Tensor | None, scale: float | None) -> None:
    x, layer = example(ONE)
    expected = multi_head_attention(x, layer, 4, mask, scale)
    moved, new = eliminate(x, layer, remove)  # type: ignore[arg-type]
    assert torch.equal(getattr(new, remove[0]), torch.eye(16, dtype=torch.float64))
    assert relative_error(multi_head_attention(moved, new, 4, mask, scale), expected) < 1e-12
    assert relative_error(multi_head_attention(x, new, 4, mask, scale), expected) > 1e-2


def test_any_invertible_s_will_do_and_a_forgotten_factor_will_not() -> None:
    x, layer = example(ONE)
    moved, new = change_basis(x, layer, conditioned(normal(16, 16), 5.0))
    expected = multi_head_attention(x, layer, 4)
    assert relative_error(multi_head_attention(moved, new, 4), expected) < 1e-13
    forgotten = Layer(new.q, layer.k, new.v, new.o)
    assert relative_error(multi_head_attention(moved, forgotten, 4), expected) > 1e-2


def test_with_grouped_queries_only_the_query_can_go() -> None:
    x, layer = example(Architecture(n_layer=1, n_kv_head=2))
    moved, new = eliminate(x, layer)
    assert relative_error(multi_head_attention(moved, new, 4), multi_head_attention(x, layer, 4)) < 1e-12
    with pytest.raises(ValueError, match="W_K is 16 by 8, not square"):
        eliminate(x, layer, "key")
    with pytest.raises(ValueError, match="remove 'output' is unknown"):
        eliminate(x, layer, "output")  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(3))
def test_the_error_grows_with_the_condition_number(seed: int) -> None:
    rows = {(r["condition"], r["dtype"]): r["error"] for r in conditioning(seed=seed)}
    for condition, expected in ((10.0, 1e-6), (1e3, 3e-5), (1e6, 1e-2)):
        assert expected / 10 < rows[condition, "float32"] < expected * 10
        assert rows[condition, "float64"] < rows[condition, "float32"] * 1e-7


# --- the small transformer is the lab's


def test_one_layer_is_the_labs_attention() -> None:
    lab = CausalSelfAttention(ModelConfig(n_embd=16, n_head=4)).double()
    layer = Layer(*(linear.weight.detach().T for linear in (lab.query.proj, lab.key, lab.value, lab.out)))
    x = normal(2, 12, 16)
    with torch.no_grad():
        torch.testing.assert_close(multi_head_attention(x, layer, 4, CAUSAL), lab(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_the_small_transformer_is_the_labs_gpt(norm: str, tied: bool, activation: str) -> None:
    config = ModelConfig(n_embd=12, n_head=3, block_size=8, norm=norm, tied=tied, activation=activation, query_scale=0.7, init_std=0.3)
    model = GPT(config, 20, seed=1).double()
    with torch.no_grad():
        for name, gain in model.named_parameters():
            if gain.dim() == 1:
                gain.copy_(torch.exp(torch.randn(12, generator=keyed_generator("gain", name)) / 4))
        architecture, weights = weights_of(model)
        ids = token_ids(architecture, batch=2)
        torch.testing.assert_close(forward(weights, architecture, ids), model(ids), rtol=1e-11, atol=1e-12)


def test_grouped_queries_share_keys_with_their_neighbours() -> None:
    x, layer = example(Architecture(n_layer=1, n_kv_head=2))
    k, v = (w.unflatten(1, (2, 4)).repeat_interleave(2, dim=1).flatten(1) for w in (layer.k, layer.v))
    full = Layer(layer.q, k, v, layer.o)
    torch.testing.assert_close(multi_head_attention(x, layer, 4), multi_head_attention(x, full, 4), rtol=1e-12, atol=1e-12)


def test_rope_makes_scores_depend_on_the_distance_alone() -> None:
    q, k = (heads(normal(1, 1, 8 + i)[..., :8].expand(1, 10, 8), 8) for i in (0, 1))
    turned = RotaryPositions.turned(q, k, 0)
    scores = turned[0] @ turned[1].transpose(-1, -2)
    torch.testing.assert_close(scores[..., 3:, 3:], scores[..., :-3, :-3], rtol=1e-12, atol=1e-12)
    assert (scores[..., 0, 1:] - scores[..., 0, :-1]).abs().min() > 1e-6
    torch.testing.assert_close(turned[0].norm(dim=-1), q.norm(dim=-1), rtol=1e-12, atol=1e-12)
