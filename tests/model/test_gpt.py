from __future__ import annotations

import math
from itertools import combinations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nqlab import slots
from nqlab.config import ModelConfig
from nqlab.model.attention import KeyValueCache
from nqlab.model.gpt import GPT, keyed_generator

VOCAB = 13


def config_of(query: str = "linear", **options: object) -> ModelConfig:
    return ModelConfig.model_validate({"n_layer": 3, "n_head": 2, "n_embd": 32, "block_size": 9, "query": query, **options})


def ids(time: int = 9, batch: int = 2) -> Tensor:
    return torch.randint(VOCAB, (batch, time), generator=torch.Generator().manual_seed(0))


def tensors(config: ModelConfig, seed: int = 0) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in GPT(config, VOCAB, seed).named_parameters()}


# --- the backbone against torch's own layers


def authority(model: GPT, text: Tensor) -> Tensor:
    """GPT-2 in pre-norm form out of torch's encoder layers, which share no line with ours; float64 logits."""
    config = model.config
    w = dict(model.named_parameters())
    x = w["wte.weight"][text] + w["wpe.weight"][: text.shape[1]]
    mask = nn.Transformer.generate_square_subsequent_mask(text.shape[1], dtype=torch.float64)
    for i in range(config.n_layer):
        layer = nn.TransformerEncoderLayer(
            config.n_embd, config.n_head, 4 * config.n_embd, 0.0, "gelu", batch_first=True, norm_first=True, bias=False, dtype=torch.float64
        )
        p = f"blocks.{i}."
        weights = {
            "self_attn.in_proj_weight": torch.cat([w[p + "attn." + n] for n in ("query.proj.weight", "key.weight", "value.weight")]),
            "self_attn.out_proj.weight": w[p + "attn.out.weight"],
            "linear1.weight": w[p + "ffn.hidden.weight"],
            "linear2.weight": w[p + "ffn.out.weight"],
            "norm1.weight": w[p + "norm_1.weight"],
            "norm2.weight": w[p + "norm_2.weight"],
        }
        layer.load_state_dict(weights)
        x = layer(x, src_mask=mask)
    return F.layer_norm(x, (config.n_embd,), w["norm_f.weight"]) @ w["lm_head.weight" if "lm_head.weight" in w else "wte.weight"].T


@pytest.mark.parametrize("tied", [True, False])
def test_with_the_linear_query_it_is_torchs_pre_norm_transformer(tied: bool) -> None:
    model = GPT(config_of(tied=tied), VOCAB, seed=3).double()
    with torch.no_grad():
        for i, parameter in enumerate(model.parameters()):  # far from initialisation, where all logits are alike
            parameter.add_(torch.randn(parameter.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(i)), alpha=0.2)
    torch.testing.assert_close(model(ids()), authority(model, ids()), rtol=1e-10, atol=1e-10)


def test_the_loss_is_the_mean_negative_log_probability_in_nats() -> None:
    model = GPT(config_of(), VOCAB).double()
    targets = ids().roll(-1, 1)
    probabilities = model(ids()).exp() / model(ids()).exp().sum(-1, keepdim=True)
    expected = -probabilities.gather(-1, targets[..., None]).log().mean()
    assert model.loss(ids(), targets).item() == pytest.approx(expected.item(), rel=1e-12)


def test_positions_matter() -> None:
    same = torch.zeros(1, 9, dtype=torch.long)
    logits = GPT(config_of(), VOCAB)(same)[0]
    assert (logits[0] - logits[1]).abs().max() > 1e-3


# --- initialisation


def test_every_tensor_that_two_variants_share_starts_identical() -> None:
    started = {query: tensors(config_of(query), seed=5) for query in slots.QUERY}
    for a, b in combinations(started, 2):
        shared = {n for n in started[a].keys() & started[b].keys() if started[a][n].shape == started[b][n].shape}
        backbone = {n for n in started[a] if ".query." not in n}
        assert backbone <= shared
        for name in shared:
            assert torch.equal(started[a][name], started[b][name]), name


def test_the_rest_of_the_model_starts_the_same_whatever_the_mlp_is() -> None:
    narrow, wide = tensors(config_of()), tensors(config_of(ffn_hidden=200))
    assert all(torch.equal(narrow[n], wide[n]) for n in narrow if ".ffn." not in n)


def test_seeds_and_names_give_different_numbers() -> None:
    a, b = tensors(config_of(), 0), tensors(config_of(), 1)
    matrices = [n for n in a if a[n].dim() >= 2]
    assert not any(torch.equal(a[n], b[n]) for n in matrices)
    assert not any(torch.equal(a[m].flatten()[:99], a[n].flatten()[:99]) for m, n in combinations(matrices, 2))


def test_the_same_seed_gives_the_same_model_whatever_the_global_generator() -> None:
    torch.manual_seed(1)
    a = tensors(config_of("nonlinear"))
    torch.manual_seed(2)
    GPT(config_of("identity"), VOCAB)
    b = tensors(config_of("nonlinear"))
    assert all(torch.equal(a[n], b[n]) for n in a)


@pytest.mark.parametrize("query", slots.QUERY)
def test_matrices_start_with_the_stated_spread_and_gains_at_one(query: str) -> None:
    config = ModelConfig(n_layer=3, n_head=2, n_embd=128, block_size=128, query=query, tied=False)
    model = GPT(config, 128, seed=1)
    residual = {f"blocks.{i}.{part}.out.weight" for i in range(3) for part in ("attn", "ffn")}
    assert residual <= {n for n, _ in model.named_parameters()}
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            assert (parameter == 1).all(), name
        else:
            std = 0.02 / math.sqrt(6) if name in residual else 0.02
            wide = max(0.03, 4 / math.sqrt(2 * parameter.numel()))  # four standard errors of a small matrix's spread
            assert parameter.std().item() == pytest.approx(std, rel=wide), name
            assert abs(parameter.mean().item()) < 6 * std / math.sqrt(parameter.numel()), name


def test_init_std_scales_every_matrix() -> None:
    once, twice = tensors(config_of()), tensors(config_of(init_std=0.04))
    for name in once:
        torch.testing.assert_close(twice[name], once[name] * (2 if once[name].dim() > 1 else 1), rtol=1e-6, atol=0)


def test_a_tied_output_matrix_is_the_embedding_itself() -> None:
    tied, untied = GPT(config_of(), VOCAB), GPT(config_of(tied=False), VOCAB)
    assert tied.lm_head.weight is tied.wte.weight
    assert untied.lm_head.weight is not untied.wte.weight
    assert not torch.equal(untied.lm_head.weight, untied.wte.weight)
    assert sum(p.numel() for p in untied.parameters()) - sum(p.numel() for p in tied.parameters()) == VOCAB * 32
    tied.loss(ids(), ids()).backward()
    assert "lm_head.weight" not in dict(tied.named_parameters())


def test_no_module_has_a_bias() -> None:
    assert not [n for q in slots.QUERY for n, _ in GPT(config_of(q), VOCAB).named_parameters() if "bias" in n]


def test_keyed_generators_depend_on_every_part_of_the_key() -> None:
    def draw(*key: object) -> list[float]:
        return torch.rand(3, generator=keyed_generator(*key)).tolist()

    assert draw(1, "a") == draw(1, "a")
    assert len({tuple(draw(*k)) for k in ((1, "a"), (2, "a"), (1, "b"), (1, "a", 0), (1, "a", 1))}) == 5


# --- what is refused


@pytest.mark.parametrize("past", [0, 4])
def test_more_positions_than_the_context_are_refused(past: int) -> None:
    model = GPT(config_of(), VOCAB)
    cache = [KeyValueCache(model.config.block_size) for _ in model.blocks]
    if past:
        model(ids(9), cache)
    with pytest.raises(ValueError, match="10 positions are more than block_size 9"):
        model(ids(1) if past else ids(10), cache)


def test_an_empty_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match="vocab_size 0 must be at least 1"):
        GPT(config_of(), 0)


# --- dropout


def test_dropout_changes_training_and_not_evaluation() -> None:
    dropping, plain = GPT(config_of(dropout=0.3), VOCAB), GPT(config_of(), VOCAB)
    torch.manual_seed(0)
    assert not torch.equal(dropping(ids()), dropping(ids()))
    assert torch.equal(dropping.eval()(ids()), plain(ids()))
