from __future__ import annotations

import pytest
import torch

from nqlab.analysis.redundancy.architecture import Architecture
from nqlab.analysis.redundancy.gauge import gauge, gauge_weights, pivot_rows
from nqlab.analysis.redundancy.rule import analyse
from nqlab.analysis.redundancy.small import draw, forward, relative_error, token_ids
from nqlab.analysis.redundancy.trained import identity_misuse, loss_of, per_head_gauge, weights_of
from nqlab.analysis.redundancy.transform import apply
from nqlab.config import ModelConfig, RunConfig
from nqlab.corpus import Corpus
from nqlab.model.gpt import GPT, keyed_generator
from nqlab.training.batches import validation_windows
from nqlab.training.checkpoint import restore_model
from nqlab.training.events import Checkpoint, Evaluation
from tests.small import small, trained

CONFIG = small(
    corpus="python-docs", n_embd=32, n_head=4, block_size=32, steps=200, batch_size=8, eval_interval=200, learning_rate=1e-2
)  # enough for attention to have learned something, which after 30 steps it has not


@pytest.fixture(scope="module")
def run(docs: Corpus) -> tuple[GPT, float]:
    """A GPT after 200 steps, and its validation loss as training measured it."""
    return _train(CONFIG, docs)


def _train(config: RunConfig, docs: Corpus) -> tuple[GPT, float]:
    events = trained(config, docs)
    state = next(e.state for e in reversed(events) if isinstance(e, Checkpoint))
    loss = next(e.val_loss for e in reversed(events) if isinstance(e, Evaluation))
    model = GPT(config.model, len(docs.vocabulary))
    restore_model(model, state.tensors)
    return model.eval(), loss


def windows(model: GPT, docs: Corpus) -> torch.Tensor:
    return validation_windows(torch.from_numpy(docs.ids[docs.split_at :]), model.config.block_size, 16)[0]


# --- the gauge


def test_the_gauge_keeps_a_trained_models_logits(run: tuple[GPT, float], docs: Corpus) -> None:
    model, _ = run
    before = {name: p.clone() for name, p in model.named_parameters()}
    new, saved = per_head_gauge(model)
    ids = windows(model, docs)
    with torch.no_grad():
        difference = (new(ids) - weights_and_forward(model, ids)).abs().max()
        assert difference < 1e-10
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert next(model.parameters()).dtype == torch.float32
    assert next(new.parameters()).dtype == torch.float64
    assert new.lm_head.weight is new.wte.weight
    n_layer, width, size = 2, 32, 8
    assert saved == 2 * n_layer * width * size
    assert fixed_numbers(new) == saved


def weights_and_forward(model: GPT, ids: torch.Tensor) -> torch.Tensor:
    architecture, weights = weights_of(model)
    return forward(weights, architecture, ids)


def fixed_numbers(model: GPT) -> int:
    """Entries of D by D identity blocks, found by looking for the rows of I in every head of Q and V."""
    found = 0
    for block in model.blocks:
        for linear in (block.attn.query.proj, block.attn.value):
            for head in linear.weight.T.split(block.attn.head_size, dim=1):  # (C, D)
                size = head.shape[1]
                eye = torch.eye(size, dtype=head.dtype)
                assert all((head == row).all(dim=1).any() for row in eye)
                found += size**2
    return found


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("n_head", [1, 2, 16])
def test_the_gauge_for_any_norm_and_number_of_heads(norm: str, n_head: int) -> None:
    model = GPT(ModelConfig(n_embd=16, n_head=n_head, block_size=8, norm=norm, init_std=0.3, query_scale=0.5), 20, seed=2)
    ids = torch.randint(20, (2, 8), generator=keyed_generator("ids"))
    new, _ = per_head_gauge(model)
    with torch.no_grad():
        assert (new(ids) - model.double()(ids)).abs().max() < 1e-11


@pytest.mark.parametrize("skips", ["none", "both"])
@pytest.mark.parametrize("extra", [{}, {"biases": True}, {"n_kv_head": 2}, {"n_kv_head": 1, "biases": True, "tied": True}], ids=str)
def test_the_gauge_with_biases_and_grouped_queries(skips: str, extra: dict[str, object]) -> None:
    architecture = Architecture(skips=skips, norm="layernorm", **extra)  # type: ignore[arg-type]
    weights, ids = draw(architecture), token_ids(architecture)
    new, saved = gauge_weights(weights, architecture)
    assert relative_error(forward(new, architecture, ids), forward(weights, architecture, ids)) < 1e-12
    assert saved == 4 * 2 * architecture.kv_heads * 16
    assert new.keys() == weights.keys()


@pytest.mark.parametrize("extra", [{"positions": "rope"}, {"qk_norm": True}], ids=str)
def test_the_gauge_of_scores_needs_the_plain_product(extra: dict[str, object]) -> None:
    architecture = Architecture(**extra)  # type: ignore[arg-type]
    weights, ids = draw(architecture), token_ids(architecture)
    new, saved = gauge_weights(weights, architecture)
    expected = forward(weights, architecture, ids)
    assert relative_error(forward(new, architecture, ids), expected) < 1e-12
    assert saved == 4 * 16 * 4
    q, k = gauge(weights["0.Q"], weights["0.K"], 4, 4)
    assert relative_error(forward(weights | {"0.Q": q, "0.K": k}, architecture, ids), expected) > 1e-2


def test_pivoting_chooses_a_block_that_is_well_conditioned() -> None:
    block = torch.randn(64, 8, generator=keyed_generator("block"), dtype=torch.float64)
    block[:8] = block[0] + 1e-9 * block[:8]  # the first rows are all but one
    chosen = pivot_rows(block)
    assert len(set(chosen.tolist())) == 8
    assert torch.linalg.cond(block[chosen]) < 30
    assert torch.linalg.cond(block[:8]) > 1e8
    triangle = torch.linalg.qr(block[chosen].T).R.diagonal().abs()
    assert (triangle[1:] <= triangle[:-1] * (1 + 1e-12)).all()


def test_a_head_without_full_rank_is_refused() -> None:
    w = torch.ones(8, 4, dtype=torch.float64)
    with pytest.raises(ValueError, match="rank 1, below its 4 columns"):
        pivot_rows(w)
    with pytest.raises(ValueError, match="rank 0"):
        pivot_rows(torch.zeros(8, 4, dtype=torch.float64))


# --- the misuse


def test_overwriting_the_query_is_another_model_and_a_worse_one(run: tuple[GPT, float], docs: Corpus) -> None:
    model, loss = run
    ids = windows(model, docs)
    kept = loss_of(model, docs, 8)
    assert kept == pytest.approx(loss, abs=1e-6)
    for scale in (1.0, 0.5, None):
        wrong = identity_misuse(model, scale=scale)
        with torch.no_grad():
            assert relative_error(wrong(ids), model(ids)) > 1e-3
        assert loss_of(wrong, docs) > loss_of(model, docs) + 0.02
        changed = [name for (name, a), b in zip(wrong.named_parameters(), model.parameters()) if not torch.equal(a, b)]
        assert changed == [f"blocks.{layer}.attn.query.proj.weight" for layer in range(2)]


def test_misuse_in_some_layers_and_its_scale(run: tuple[GPT, float]) -> None:
    model, _ = run
    wrong = identity_misuse(model, layers=[1])
    ours, theirs = ([block.attn.query.proj.weight for block in m.blocks] for m in (model, wrong))
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(theirs[1], torch.eye(32))
    matched = identity_misuse(model, scale=None).blocks[0].attn.query.proj.weight.detach()
    torch.testing.assert_close(matched.norm(), ours[0].detach().norm())
    assert matched.count_nonzero() == 32
    assert all(p.requires_grad for p in wrong.parameters())


def test_half_the_identity_is_what_the_identity_variant_computes() -> None:
    linear, identity = (GPT(ModelConfig(n_embd=16, n_head=2, block_size=8, query=query), 20) for query in ("linear", "identity"))
    ids = torch.randint(20, (2, 8), generator=keyed_generator("ids"))
    with torch.no_grad():
        torch.testing.assert_close(identity_misuse(linear, scale=0.5)(ids), identity(ids))


def test_an_untrained_models_attention_is_too_flat_to_miss_its_query(docs: Corpus) -> None:
    """At the start the misuse costs nothing, though the function is another: a loss alone proves no equivalence."""
    model = GPT(CONFIG.model, len(docs.vocabulary))
    wrong, ids = identity_misuse(model), windows(model, docs)
    with torch.no_grad():
        assert relative_error(wrong(ids), model(ids)) > 1e-3
    assert loss_of(wrong, docs) == pytest.approx(loss_of(model, docs), abs=1e-2)


def test_what_the_rule_allows_a_tied_gpt_is_to_stay_as_it_is(run: tuple[GPT, float], docs: Corpus) -> None:
    model, _ = run
    architecture, weights = weights_of(model)
    assert analyse(architecture).removable == 0
    ids = windows(model, docs)
    new = apply(weights, architecture).weights
    assert relative_error(forward(new, architecture, ids), forward(weights, architecture, ids)) < 1e-12


def test_an_untied_trained_model_lets_one_query_become_triangular(docs: Corpus) -> None:
    config = small(corpus="python-docs", tied=False, steps=5, eval_interval=5)
    model, _ = _train(config, docs)
    architecture, weights = weights_of(model)
    done = apply(weights, architecture, layer=1)
    ids = windows(model, docs)
    assert done.analysis.triangular == 1
    assert not done.weights["1.Q"].tril(-1).any()
    assert relative_error(forward(done.weights, architecture, ids), forward(weights, architecture, ids)) < 1e-12


def test_loss_leaves_the_training_flag_as_it_was(run: tuple[GPT, float], docs: Corpus) -> None:
    model, _ = run
    for flag in (True, False):
        model.train(flag)
        loss_of(model, docs, 4)
        assert model.training is flag


def test_other_queries_layers_and_norms_are_refused() -> None:
    identity = GPT(ModelConfig(n_embd=16, n_head=2, query="identity"), 20)
    for function in (per_head_gauge, identity_misuse, weights_of):
        with pytest.raises(ValueError, match="query 'identity' has no W_Q"):
            function(identity)
    with pytest.raises(ValueError, match="query 'residual_linear'"):
        per_head_gauge(GPT(ModelConfig(n_embd=16, n_head=2, query="residual_linear"), 20))
    with pytest.raises(ValueError, match="layer 2 is not there; take 0 to 1"):
        identity_misuse(GPT(ModelConfig(n_embd=16, n_head=2), 20), layers=[2])
