"""The mixture of experts, token by token; its two losses; and what training reports of it."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from nqlab.config import ModelConfig, RunConfig, replace
from nqlab.corpus import Corpus
from nqlab.model import experts
from nqlab.model.budget import block_parameters, flops_per_token, match_parameters, surplus
from nqlab.model.experts import MixtureOfExperts
from nqlab.model.feedforward import Dense
from nqlab.model.gpt import GPT
from nqlab.training.events import Compiled, Evaluation, Step
from nqlab.training.loop import train
from tests.small import records, small, step_losses, trained

MOE: dict[str, Any] = {"feedforward": "moe"}


def config_of(**options: object) -> ModelConfig:
    return ModelConfig.model_validate({"n_layer": 2, "n_head": 2, "n_embd": 12, "block_size": 6, **options})


def moe_of(**options: object) -> MixtureOfExperts:
    """In float64, with weights large enough for the router to have an opinion."""
    module = MixtureOfExperts(config_of(**MOE, **options)).double()
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            parameter.normal_(0.1, 0.4, generator=torch.Generator().manual_seed(i))
    return module


def inputs() -> Tensor:
    return torch.randn(3, 6, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(9))


def chances_of(module: MixtureOfExperts, x: Tensor) -> list[list[float]]:
    """softmax(x W_r) by hand, a row a token."""
    rows = []
    for token in x.reshape(-1, 12).tolist():
        scores = [math.exp(sum(a * b for a, b in zip(token, weight))) for weight in module.router.weight.tolist()]
        rows.append([s / sum(scores) for s in scores])
    return rows


@pytest.mark.parametrize(("n_experts", "top_k"), [(4, 1), (4, 2), (3, 3), (2, 1)])
def test_every_token_gets_its_k_likeliest_experts_by_their_chances(n_experts: int, top_k: int) -> None:
    module, x = moe_of(n_experts=n_experts, top_k=top_k), inputs()
    expected = []
    for token, chances in zip(x.reshape(-1, 12), chances_of(module, x)):
        best = sorted(range(n_experts), key=lambda i: -chances[i])[:top_k]
        expected.append(sum(chances[i] * module.experts[i](token) for i in best))
    torch.testing.assert_close(module(x), torch.stack(expected).view(3, 6, 12), rtol=1e-12, atol=1e-12)
    assert len({max(range(n_experts), key=row.__getitem__) for row in chances_of(module, x)}) > 1, "one expert for all proves little"


def test_one_expert_is_the_dense_mlp_bit_for_bit_with_its_gradient() -> None:
    one = MixtureOfExperts(config_of(**MOE, n_experts=1))
    dense = Dense(config_of())
    dense.load_state_dict(one.experts[0].state_dict())
    x = inputs().float()
    assert torch.equal(one(x), dense(x))
    for module in (one.experts[0], dense):
        module.zero_grad()
    one(x).square().sum().backward()
    dense(x).square().sum().backward()
    for mine, theirs in zip(one.experts[0].parameters(), dense.parameters()):
        assert torch.equal(mine.grad, theirs.grad)


def test_a_model_with_one_expert_has_the_loss_of_the_dense_one() -> None:
    one, dense = GPT(config_of(**MOE, n_experts=1), 7, seed=2), GPT(config_of(), 7, seed=2)
    for a, b in zip(one.blocks, dense.blocks):
        b.ffn.load_state_dict(a.ffn.experts[0].state_dict())
    ids = torch.randint(7, (3, 6), generator=torch.Generator().manual_seed(0))
    assert one.loss(ids, ids.roll(-1, 1)).item() == dense.loss(ids, ids.roll(-1, 1)).item()


def test_equal_experts_chosen_together_are_one() -> None:
    module, x = moe_of(n_experts=3, top_k=3, ffn_hidden=48), inputs()
    for expert in module.experts:
        expert.load_state_dict(module.experts[0].state_dict())
    torch.testing.assert_close(module(x), module.experts[0](x), rtol=1e-12, atol=1e-12)


def test_an_expert_that_no_token_sees_is_no_trouble_and_learns_nothing() -> None:
    module, x = moe_of(n_experts=2), inputs().abs()
    with torch.no_grad():
        module.router.weight[0], module.router.weight[1] = 1.0, -1.0
    module(x).sum().backward()
    assert module.load.tolist() == [1.0, 0.0]
    assert all((p.grad == 0).all() for p in module.experts[1].parameters())


# --- sizes


@pytest.mark.parametrize("top_k", [1, 2, 4])
def test_what_a_token_meets_is_a_dense_mlp_and_the_router(top_k: int) -> None:
    config = config_of(**MOE, top_k=top_k)
    hidden = MixtureOfExperts(config).experts[0].hidden.out_features
    assert top_k * hidden == 48
    assert MixtureOfExperts.flops(config) == Dense.flops(config_of()) + 2 * 12 * 4
    assert MixtureOfExperts.count(config) == 4 * 2 * 12 * hidden + 4 * 12
    assert flops_per_token(config, 7) == flops_per_token(config_of(), 7) + 2 * 2 * 12 * 4


@pytest.mark.parametrize(("top_k", "width"), [(1, 11), (2, 22), (3, 33)])
def test_the_hidden_width_can_match_the_total_instead(top_k: int, width: int) -> None:
    dense = config_of()
    matched = match_parameters(config_of(**MOE, top_k=top_k), "ffn_hidden", dense)
    assert matched.ffn_hidden == width
    found = sum(p.numel() for p in GPT(matched, 7).blocks.parameters())
    assert found == block_parameters(matched)
    assert -2 * 2 * 12 * 4 < surplus(matched, dense).number <= 0
    assert surplus(config_of(**MOE)).matched, "by itself it is compared with the linear query that has the same experts"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"top_k": 5}, "top_k 5 experts cannot be chosen among n_experts 4; take top_k 4 or fewer"),
        ({"top_k": 2, "n_experts": 1}, "top_k 2 experts cannot be chosen among n_experts 1"),
        ({"top_k": 3, "ffn_hidden": 100}, "ffn_hidden 100 is not a multiple of top_k 3, which share it; take 99 or 102"),
        ({"top_k": 3, "ffn_hidden": 2}, "take 3$"),
        ({"n_experts": 0}, "n_experts = 0"),
    ],
)
def test_what_does_not_go_together_is_said(options: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(RunConfig(), MOE | options)
    if options != {"n_experts": 0}:
        assert replace(RunConfig(), options), "only where there are experts"


# --- the two losses


def test_the_auxiliary_loss_is_the_balance_and_the_z_loss() -> None:
    module, x = moe_of(n_experts=4, top_k=2), inputs()
    module(x)
    chances = chances_of(module, x)
    chosen = [sorted(range(4), key=lambda i, row=row: -row[i])[:2] for row in chances]
    share = [sum(i in pair for pair in chosen) / 36 for i in range(4)]
    mean = [sum(row[i] for row in chances) / 18 for i in range(4)]
    scores = [[sum(a * b for a, b in zip(t, w)) for w in module.router.weight.tolist()] for t in x.reshape(-1, 12).tolist()]
    z = sum(math.log(sum(map(math.exp, row))) ** 2 for row in scores) / 18
    expected = 1e-2 * 4 * sum(f * p for f, p in zip(share, mean)) + 1e-3 * z
    assert module.auxiliary.item() == pytest.approx(expected, rel=1e-6)  # the shares are kept in float32
    assert module.load.tolist() == pytest.approx(share)


def test_the_balance_loss_is_least_where_the_router_is_even() -> None:
    lopsided, even = torch.tensor([[3.0, 0, 0, 0]] * 8), torch.eye(4).repeat(2, 1) * 3
    losses = [
        MixtureOfExperts._accounts(logits, logits.softmax(-1), logits.argmax(-1, keepdim=True))[0].item() for logits in (lopsided, even)
    ]
    z = 1e-3 * math.log(math.exp(3) + 3) ** 2
    assert losses[1] == pytest.approx(1e-2 + z, rel=1e-5)
    assert losses[0] > 2 * losses[1]


def test_there_is_no_auxiliary_loss_outside_training() -> None:
    module = moe_of()
    module(inputs())
    module.eval()(inputs())
    assert module.auxiliary is None
    assert module.load is None


def test_without_experts_what_is_minimised_is_the_loss_itself() -> None:
    model, ids = GPT(config_of(), 7), torch.zeros(1, 6, dtype=torch.long)
    total, loss = model.objective(ids, ids)
    assert total is loss
    assert model.expert_load() == ()


def test_with_experts_the_auxiliary_losses_of_all_layers_are_added_once() -> None:
    model = GPT(config_of(**MOE), 7, seed=1)
    ids = torch.randint(7, (3, 6), generator=torch.Generator().manual_seed(0))
    assert model.loss(ids, ids).item() == model.objective(ids, ids)[1].item()
    model.loss(ids, ids)
    parts = [block.ffn.auxiliary.item() for block in model.blocks]
    for _ in range(2):
        total, loss = model.objective(ids, ids)
        assert (total - loss).item() == pytest.approx(sum(parts), rel=1e-4)
    copy.deepcopy(model)  # nothing of the graph is left behind


# --- training


def test_the_reported_loss_is_cross_entropy_and_the_gradient_is_of_all(shakespeare: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    with_both = trained(small(**MOE, steps=4, eval_interval=2), shakespeare)
    monkeypatch.setattr(experts, "BALANCE", 0.0)
    monkeypatch.setattr(experts, "STEADINESS", 0.0)
    without = trained(small(**MOE, steps=4, eval_interval=2), shakespeare)
    a, b = ([e for e in events if isinstance(e, Step)] for events in (with_both, without))
    assert a[0].loss == b[0].loss == pytest.approx(math.log(65), abs=0.05)
    assert a[0].grad_norm != b[0].grad_norm
    assert a[3].loss != b[3].loss
    evaluations = [next(e for e in events if isinstance(e, Evaluation)) for events in (with_both, without)]
    assert evaluations[0].val_loss == evaluations[1].val_loss


def test_steps_record_each_experts_share_and_only_where_there_are_experts(shakespeare: Corpus) -> None:
    events = trained([small(**MOE, n_experts=3, steps=3), small(steps=3)], shakespeare)
    for record in (r for r in records(events) if r["type"] == "step"):
        assert [len(layer) for layer in record["expert_load"]] == [3, 3]
        assert all(sum(layer) == pytest.approx(1, abs=3e-4) for layer in record["expert_load"])
    assert not any("expert_load" in r for r in records(events, 1))


def test_a_run_with_experts_learns_and_repeats_bit_for_bit(shakespeare: Corpus) -> None:
    config = small(**MOE, steps=120, learning_rate=1e-2, n_embd=32, eval_interval=60)
    first = trained(config, shakespeare)
    assert [e.val_loss for e in first if isinstance(e, Evaluation)][-1] < shakespeare.entropies[0]
    assert step_losses(first) == step_losses(trained(config, shakespeare))


def test_a_compilation_asked_for_is_answered_and_training_goes_on_without(shakespeare: Corpus) -> None:
    events = list(train(small(**MOE, compile=True, device="cpu", steps=3), shakespeare))
    (news,) = [e for e in events if isinstance(e, Compiled)]
    assert not news.ok
    assert news.message == (
        "training goes on without compilation: which expert sees which token is decided by each batch, so the update has no fixed graph"
    )
    assert step_losses(events) == step_losses(trained(small(**MOE, device="cpu", steps=3), shakespeare))


@pytest.mark.parametrize("top_k", [1, 2])
def test_under_autocast_the_router_decides_in_float32(top_k: int) -> None:
    model = GPT(config_of(**MOE, top_k=top_k), 7, seed=2)
    ids = torch.randint(7, (3, 6), generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        total, loss = model.objective(ids, ids)
    assert (total.dtype, loss.dtype) == (torch.float32, torch.float32)
    assert loss.item() == pytest.approx(model.loss(ids, ids).item(), abs=0.01)
    total.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
