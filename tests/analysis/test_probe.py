import math

import pytest
import torch

from nqlab import slots
from nqlab.analysis.probe import effective_rank, explained, has_f, linear_maps, probe, with_linear_f, without_f
from nqlab.analysis.redundancy.trained import loss_of
from nqlab.config import ModelConfig
from nqlab.corpus import Corpus
from nqlab.model.gpt import GPT

WITH_SKIP = [name for name in slots.QUERY if name != "linear"]


def model_of(corpus: Corpus, query: str = "nonlinear", **changes) -> GPT:
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 16, "init_std": 0.2} | changes
    return GPT(ModelConfig(query=query, **shape), len(corpus.vocabulary), seed=3)


def ids_of(corpus: Corpus, model: GPT) -> torch.Tensor:
    return torch.from_numpy(corpus.ids[: 4 * model.config.block_size]).view(4, -1)


# --- effective rank


def test_effective_rank_counts_equal_singular_values():
    matrix = torch.zeros(7, 5)
    matrix[0, 0] = matrix[1, 1] = -3.0
    matrix[4, 2] = 3.0
    assert effective_rank(matrix) == pytest.approx(3)
    assert effective_rank(torch.ones(4, 6)) == pytest.approx(1)


def test_effective_rank_is_the_exponential_of_the_entropy():
    p = [0.5, 0.25, 0.25]
    expected = math.exp(-sum(x * math.log(x) for x in p))
    assert effective_rank(torch.diag(torch.tensor([4.0, 2.0, 2.0, 0.0]))) == pytest.approx(expected)


def test_effective_rank_of_zero_and_of_what_is_no_matrix():
    assert effective_rank(torch.zeros(3, 3)) == 0
    with pytest.raises(ValueError, match="3; flatten"):
        effective_rank(torch.zeros(2, 3, 4))


# --- probe


def test_identity_points_along_x_and_has_no_f(docs):
    for layer in probe(model_of(docs, "identity"), docs, windows=4):
        assert layer.cosine == pytest.approx(1, abs=1e-6)
        assert layer.f_ratio == 0
        assert layer.f_rank == 0


def test_output_gain_zero_is_the_identity(docs):
    start = probe(model_of(docs, query_output_gain=0.0), docs, windows=4)
    identity = probe(model_of(docs, "identity"), docs, windows=4)
    for a, b in zip(start, identity):
        assert a.f_ratio == pytest.approx(0, abs=1e-6)
        assert a.logit_std == pytest.approx(b.logit_std, rel=1e-6)


def test_nonlinear_starts_at_equal_norms_and_right_angles(shakespeare):
    for layer in probe(model_of(shakespeare, n_embd=128, n_head=4, block_size=64, init_std=0.02), shakespeare, windows=16):
        assert layer.f_ratio == pytest.approx(1, abs=0.02)  # a little less than 1: the norm's eps
        assert layer.cosine == pytest.approx(0.707, abs=0.03)


@pytest.mark.parametrize("query", ["linear", "residual_linear"])
def test_f_of_a_linear_query_is_x_w_q(docs, query):
    model = model_of(docs, query)
    seen = {}
    attn = model.blocks[1].attn
    attn.query.register_forward_hook(lambda module, args, out: seen.update(x=args[0], f=args[0] @ module.proj.weight.T, q=out))
    layer = probe(model, docs, windows=4)[1]
    x, f, q = (seen[name].flatten(0, 1) for name in ("x", "f", "q"))
    assert layer.f_ratio == pytest.approx(float((f.norm(dim=-1) / x.norm(dim=-1)).mean()), rel=1e-5)
    assert layer.cosine == pytest.approx(float(((q * x).sum(-1) / q.norm(dim=-1) / x.norm(dim=-1)).mean()), abs=1e-5)
    assert layer.f_rank == pytest.approx(effective_rank(f), rel=1e-4)


@pytest.mark.parametrize(("query", "expected"), [("linear", 0.051), ("identity", 0.112), ("residual_linear", 0.114), ("nonlinear", 0.158)])
def test_logit_spread_at_initialisation(shakespeare, query, expected):
    model = model_of(shakespeare, query, n_embd=128, n_head=4, block_size=64, init_std=0.02)
    for layer in probe(model, shakespeare, windows=16):
        assert layer.logit_std == pytest.approx(expected, rel=0.1)


def test_logit_spread_is_over_the_pairs_the_mask_lets_through(docs):
    model = model_of(docs, n_layer=1)
    attn = model.blocks[0].attn
    seen = {}
    attn.query.register_forward_hook(lambda module, args, out: seen.update(q=out))
    attn.key.register_forward_hook(lambda module, args, out: seen.update(k=out))
    got = probe(model, docs, windows=3)[0].logit_std
    size = attn.head_size
    logits = [
        float(seen["q"][n, i, h * size : (h + 1) * size] @ seen["k"][n, j, h * size : (h + 1) * size]) / size**0.5
        for n in range(3) for h in range(2) for i in range(16) for j in range(i + 1)
    ]  # fmt: skip
    assert got == pytest.approx(float(torch.tensor(logits).std(correction=0)), rel=1e-4)


def test_attention_without_keys_has_the_entropy_of_no_preferences(docs):
    model = model_of(docs)
    for block in model.blocks:
        torch.nn.init.zeros_(block.attn.key.weight)
    for layer in probe(model, docs, windows=3):
        assert layer.entropy == pytest.approx(sum(math.log(i + 1) for i in range(16)) / 16, abs=1e-6)


def test_query_rank_is_that_of_the_query_and_identity_keeps_that_of_x(docs):
    model, seen = model_of(docs, "identity"), {}
    model.blocks[0].attn.query.register_forward_hook(lambda module, args, out: seen.update(x=args[0], q=out))
    layer = probe(model, docs, windows=4)[0]
    assert layer.q_rank == pytest.approx(effective_rank(seen["x"].flatten(0, 1)), rel=1e-6)


def test_which_queries_have_an_f(docs):
    assert {name for name in slots.QUERY if not has_f(model_of(docs, name))} == {"linear", "identity"}


def test_probing_leaves_the_model_as_it_was(docs):
    model = model_of(docs)
    model.train()
    probe(model, docs, windows=2)
    assert model.training
    assert not model.blocks[0].attn.query._forward_hooks
    assert all(p.grad is None for p in model.parameters())


# --- copies


@pytest.mark.parametrize("query", WITH_SKIP)
def test_without_f_is_the_identity_query_with_the_same_other_weights(docs, query):
    model = model_of(docs, query, query_scale=0.3)
    ids = ids_of(docs, model)
    bare = without_f(model)
    identity = model_of(docs, "identity", query_scale=0.3)
    shared = {name: t for name, t in model.state_dict().items() if ".query." not in name}
    identity.load_state_dict(shared)
    assert torch.equal(bare(ids), identity(ids))
    assert bare.config.resolved() == identity.config.resolved()
    assert (query == "identity") == torch.allclose(model(ids), bare(ids))  # the original keeps its f


def test_f_taken_away_leaves_exactly_half_of_x(docs):
    bare, seen = without_f(model_of(docs)), {}
    bare.blocks[1].attn.query.register_forward_hook(lambda module, args, out: seen.update(x=args[0], q=out))
    bare(ids_of(docs, bare))
    assert torch.equal(seen["q"], seen["x"] / 2)


def test_linear_f_of_a_linear_f_changes_nothing(docs):
    model = model_of(docs, "residual_linear").double()
    maps = linear_maps(model, docs, windows=64)
    ids = ids_of(docs, model)
    same = with_linear_f(model, maps)
    assert explained(model, docs, maps, windows=4) == pytest.approx([1, 1])
    assert torch.allclose(model(ids), same(ids), atol=1e-9)
    assert loss_of(same, docs, windows=4) == pytest.approx(loss_of(model, docs, windows=4))


def test_linear_f_of_the_nonlinear_query_is_only_near(docs):
    model = model_of(docs)
    maps = linear_maps(model, docs, windows=64)
    near = with_linear_f(model, maps)
    assert near.config.query == "residual_linear"
    assert not torch.allclose(model(ids_of(docs, model)), near(ids_of(docs, model)), atol=1e-4)
    assert all(0 < share < 0.999 for share in explained(model, docs, maps, windows=8))


def test_the_fit_is_the_best_on_its_own_windows(docs):
    model = model_of(docs)
    (a, _), seen = linear_maps(model, docs, windows=8), {}
    model.blocks[0].attn.query.register_forward_hook(lambda module, args, out: seen.update(x=args[0], f=module.f(args[0])))
    linear_maps(model, docs, windows=8)  # the same windows, seen by the hook
    x, f = seen["x"].flatten(0, 1).double(), seen["f"].flatten(0, 1).double()
    assert torch.allclose(x.T @ (x @ a - f), torch.zeros(16, 16, dtype=torch.double), atol=1e-3)  # the normal equations


def test_f_zero_is_explained_as_nan(docs):
    model = model_of(docs, "identity")
    maps = linear_maps(model, docs, windows=4)
    assert all(torch.count_nonzero(a) == 0 for a in maps)
    assert all(map(math.isnan, explained(model, docs, maps, windows=4)))


# --- what is refused


def test_linear_has_no_f_to_take_away(docs):
    model = model_of(docs, "linear")
    maps = [torch.eye(16)] * 2
    for refused in (lambda: without_f(model), lambda: linear_maps(model, docs), lambda: with_linear_f(model, maps)):
        with pytest.raises(ValueError, match="'linear' has no skip"):
            refused()


def test_maps_must_be_one_a_layer(docs):
    with pytest.raises(ValueError, match="1 maps for 2 layers"):
        with_linear_f(model_of(docs), [torch.eye(16)])


def test_another_corpus_is_refused(docs):
    model = GPT(ModelConfig(n_embd=16), 5)
    with pytest.raises(ValueError, match="the model knows 5; take the corpus"):
        probe(model, docs)
