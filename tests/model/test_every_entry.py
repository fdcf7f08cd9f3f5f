"""One sweep over every entry of every slot: a new line in the registry is swept without a change here, but for its count."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from nqlab import slots
from nqlab.analysis.redundancy import small as algebra
from nqlab.analysis.redundancy.trained import weights_of
from nqlab.config import ModelConfig, RunConfig, TrainingConfig, replace
from nqlab.corpus import Corpus
from nqlab.generate import lean, stream
from nqlab.model import attention
from nqlab.model.budget import block_parameters, flops_per_token, parameters
from nqlab.model.gpt import GPT
from nqlab.training.batches import TrainingBatches
from nqlab.training.compiled import Job, loss_and_gradient
from nqlab.training.optimizer import FlatAdamW

VOCAB = 11
EVERY_ENTRY = [(slot, name) for slot, entries in slots.SLOTS.items() for name in entries]

# Learned numbers of one instance, written out by hand: C width, R bottleneck, m hidden width of the MLP.
FORMULAS: dict[tuple[str, str], Callable[[int, int, int], int]] = {
    ("query", "linear"): lambda C, R, m: C * C,
    ("query", "identity"): lambda C, R, m: 0,
    ("query", "residual_linear"): lambda C, R, m: C * C,
    ("query", "nonlinear"): lambda C, R, m: C + C * R + R * C + C,
    ("query", "bottleneck_linear"): lambda C, R, m: C + C * R + R * C + C,
    ("query", "routed"): lambda C, R, m: C + C * (R - 1) + (R - 1) * C + C + 2 * C,
    ("key", "linear"): lambda C, R, m: C * C,
    ("key", "nonlinear"): lambda C, R, m: C + C * R + R * C + C,
    ("value", "linear"): lambda C, R, m: C * C,
    ("value", "nonlinear"): lambda C, R, m: C + C * R + R * C + C,
    ("position", "learned"): lambda C, R, m: 8 * C,
    ("position", "rope"): lambda C, R, m: 0,
    ("norm", "layernorm"): lambda C, R, m: C,
    ("norm", "rmsnorm"): lambda C, R, m: C,
    ("norm", "prmsnorm"): lambda C, R, m: C,
    ("norm", "dyt"): lambda C, R, m: 2 * C + 1,
    ("norm", "dyisru"): lambda C, R, m: 1,
    ("norm", "derf"): lambda C, R, m: 2 * C + 2,
    ("norm", "none"): lambda C, R, m: 0,
    ("activation", "gelu"): lambda C, R, m: 0,
    ("activation", "gelu_tanh"): lambda C, R, m: 0,
    ("activation", "relu"): lambda C, R, m: 0,
    ("activation", "relu2"): lambda C, R, m: 0,
    ("activation", "silu"): lambda C, R, m: 0,
    ("activation", "gem1"): lambda C, R, m: 0,
    ("activation", "gem2"): lambda C, R, m: 0,
    ("activation", "egem"): lambda C, R, m: 0,
    ("feedforward", "dense"): lambda C, R, m: C * m + m * C,
    ("feedforward", "moe"): lambda C, R, m: 4 * (C * m + m * C) + C * 4,
}

every_entry = pytest.mark.parametrize(("slot", "name"), EVERY_ENTRY, ids=[f"{slot}-{name}" for slot, name in EVERY_ENTRY])


def config_with(slot: str, name: str, **options: object) -> ModelConfig:
    return ModelConfig.model_validate({"n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 8, slot: name, **options})


def ids_of(config: ModelConfig, batch: int = 3) -> Tensor:
    return torch.randint(VOCAB, (batch, config.block_size), generator=torch.Generator().manual_seed(5))


def sensitivity(model: GPT, ids: Tensor) -> Tensor:
    """(T, T): the largest |gradient| of the loss at position t (row) with respect to the embedding at position s (column)."""
    seen: list[Tensor] = []
    model.wte.register_forward_hook(lambda module, args, output: seen.append(output))
    logits = model(ids)
    losses = F.cross_entropy(logits.flatten(0, 1), ids.roll(1, 0).flatten(), reduction="none").view(ids.shape)  # (B, T)
    rows = [torch.autograd.grad(losses[:, t].sum(), seen[0], retain_graph=True)[0].abs().amax(dim=(0, 2)) for t in range(ids.shape[1])]
    return torch.stack(rows)


@every_entry
def test_logits_have_one_number_per_position_and_character(slot: str, name: str) -> None:
    config = config_with(slot, name)
    for time in (1, 5, 8):
        logits = GPT(config, VOCAB)(ids_of(config)[:, :time])
        assert logits.shape == (3, time, VOCAB)
        assert logits.isfinite().all()


@every_entry
def test_the_loss_at_a_position_has_no_gradient_at_later_ones(slot: str, name: str) -> None:
    config = config_with(slot, name)
    found = sensitivity(GPT(config, VOCAB, seed=1).double(), ids_of(config))
    later = torch.ones_like(found).triu(1).bool()
    assert (found[later] == 0).all()
    assert (found[~later] > 0).all(), "a position that depends on nothing before it proves nothing"


def test_the_gradient_test_sees_an_attention_that_looks_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    def looking_ahead(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, dropout_p: float) -> Tensor:
        return F.softmax(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5, dim=-1) @ v

    monkeypatch.setattr(attention.F, "scaled_dot_product_attention", looking_ahead)
    config = config_with("query", "linear")
    found = sensitivity(GPT(config, VOCAB, seed=1).double(), ids_of(config))
    assert (found.triu(1).sum(dim=1)[:-1] > 0).all()


@every_entry
@pytest.mark.parametrize("tied", [True, False])
def test_every_parameter_gets_a_gradient(slot: str, name: str, tied: bool) -> None:
    config = config_with(slot, name, tied=tied)
    model = GPT(config, VOCAB)
    ids = ids_of(config)
    model.loss(ids, ids.roll(-1, 1)).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert (parameter.grad != 0).any(), parameter_name


def test_every_entry_has_its_count_written_out_in_this_test() -> None:
    missing = [entry for entry in EVERY_ENTRY if entry not in FORMULAS]
    assert not missing, f"add to FORMULAS, by hand, how many learned numbers these have: {missing}"


@every_entry
@pytest.mark.parametrize(("width", "bottleneck", "hidden"), [(16, 8, 64), (16, 3, 20), (24, 12, 96)])
@pytest.mark.parametrize("tied", [True, False])
def test_the_count_is_the_formula_and_what_is_there(slot: str, name: str, width: int, bottleneck: int, hidden: int, tied: bool) -> None:
    config = config_with(slot, name, n_embd=width, bottleneck=bottleneck, ffn_hidden=hidden, tied=tied)
    parts = {s: FORMULAS[s, getattr(config, s)](width, bottleneck, hidden) for s in slots.SLOTS}
    matrices = parts["query"] + parts["key"] + parts["value"] + width**2 + parts["feedforward"] + parts["activation"]
    blocks = 2 * (matrices + 2 * parts["norm"])
    total = blocks + VOCAB * width * (1 if tied else 2) + parts["position"] + parts["norm"]
    assert block_parameters(config) == blocks
    assert parameters(config, VOCAB) == total
    model = GPT(config, VOCAB)
    assert sum(p.numel() for p in model.parameters()) == total
    assert sum(p.numel() for p in model.blocks.parameters()) == blocks


@every_entry
def test_flops_are_a_positive_whole_number_that_grows_with_the_width(slot: str, name: str) -> None:
    narrow, wide = (flops_per_token(config_with(slot, name, n_embd=c), VOCAB) for c in (16, 32))
    assert 0 < narrow < wide


@every_entry
def test_a_configuration_with_it_survives_json(slot: str, name: str) -> None:
    config = RunConfig(model=config_with(slot, name))
    again = RunConfig.from_json(config.to_json())
    assert getattr(again.model, slot) == name
    assert again.short_hash() == config.short_hash()
    assert again == config.resolved()


@every_entry
def test_it_says_what_it_is_and_where_it_comes_from(slot: str, name: str) -> None:
    entry = slots.entry(slot, name)
    assert entry.title
    assert entry.formula
    assert entry.source
    assert set(entry.options) <= set(ModelConfig.model_fields)


@every_entry
def test_it_learns_one_batch_by_heart(slot: str, name: str, docs: Corpus) -> None:
    config = config_with(slot, name, n_embd=32, n_layer=1, init_std=0.2)  # what squashes instead of norming needs a larger start
    model = GPT(config, len(docs.vocabulary))
    x, y = TrainingBatches(torch.from_numpy(docs.ids), config.block_size, 4, seed=3).at(0)
    assert len(x[:, 0].unique()) == 4, "windows that begin alike could not be told apart"
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(80):
        loss = model.loss(x, y)
        if loss.item() < 0.05:
            return
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    pytest.fail(f"after 80 updates the loss is still {loss.item():.2f}")


@every_entry
def test_vectors_and_single_numbers_do_not_decay_and_matrices_do(slot: str, name: str) -> None:
    model = GPT(config_with(slot, name), VOCAB)
    optimizer = FlatAdamW(model, TrainingConfig(learning_rate=0.5, weight_decay=0.5), torch.device("cpu"))
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    optimizer.step()  # the gradients are zero, so that only decay moves anything
    for n, parameter in model.named_parameters():
        assert torch.equal(parameter, before[n] * (1 - 0.25) if parameter.dim() >= 2 else before[n]), n


@every_entry
def test_its_text_with_the_cache_is_that_without_beyond_a_full_context(slot: str, name: str) -> None:
    model = GPT(config_with(slot, name, init_std=0.5), VOCAB, seed=1).double()
    prompts = ids_of(model.config, batch=2)[:, :3]
    texts = [torch.stack(list(islice(stream(model, prompts, seed=5, use_cache=c), 18))) for c in (True, False)]
    assert torch.equal(*texts)
    assert len(texts[0].unique()) > 3


@every_entry
def test_its_lean_twin_computes_the_same_bits(slot: str, name: str) -> None:
    model = GPT(config_with(slot, name, dropout=0.5), VOCAB, seed=1)
    ids = ids_of(model.config)
    assert torch.equal(lean(model)(ids), model.eval()(ids))


@every_entry
def test_the_redundancy_algebra_takes_it_or_says_that_it_does_not(slot: str, name: str) -> None:
    model = GPT(config_with(slot, name), VOCAB, seed=1).double()
    try:
        architecture, weights = weights_of(model)
    except ValueError as refusal:
        if repr(name) in str(refusal):
            return
        raise
    ids = ids_of(model.config)
    torch.testing.assert_close(algebra.forward(weights, architecture, ids), model(ids), rtol=1e-10, atol=1e-10)


@every_entry
def test_its_loss_and_gradient_can_be_traced_as_one_graph(slot: str, name: str) -> None:
    config = config_with(slot, name)
    model = GPT(config, VOCAB, seed=1)
    if model.no_graph:
        assert (slot, name) == ("feedforward", "moe"), "it says that it cannot be compiled; if it can't, add it here"
        return
    function, example = loss_and_gradient(Job(config.resolved(), VOCAB, 3, "float32", "cpu", 1))
    graph = make_fx(function, tracing_mode="fake")(*example)
    ids = ids_of(config)
    traced = graph([p.detach() for p in model.parameters()], ids, ids.roll(-1, 1))
    loss = model.loss(ids, ids.roll(-1, 1))
    expected = (loss, *torch.autograd.grad(loss, list(model.parameters())))
    for mine, theirs in zip(traced, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-7)


def test_an_unknown_entry_is_answered_with_the_names() -> None:
    for slot, entries in slots.SLOTS.items():
        with pytest.raises(ValueError, match=f"{slot} 'nonesuch' is unknown; choose one of {', '.join(entries)}"):
            replace(RunConfig(), {slot: "nonesuch"})
