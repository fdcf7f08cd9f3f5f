"""A mixture of experts for the feed-forward slot: of n MLPs each token sees k, chosen by a router."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nqlab.config import ModelConfig
from nqlab.model.feedforward import Dense, Feedforward

BALANCE = 1e-2  # a of the balance loss
STEADINESS = 1e-3  # of the router's z-loss


class MixtureOfExperts(Feedforward):
    """sum over the k largest p_i of p_i E_i(x), p = softmax(x W_r), E_i a dense MLP; after Fedus et al. 2021 (Switch), arXiv:2101.03961.

    n = n_experts, k = top_k. Each expert's hidden width is m/k with m = ffn_hidden, so that the numbers a token meets are
    those of a dense MLP with the same m (active parameters; the router's C n come on top). All experts together have n/k
    times as many: m = 4 C k/n makes the total that of the dense MLP instead. The p_i are not rescaled after the choice,
    so that the router learns from the loss at k = 1 too. No token is dropped.

    In training it adds a n sum_i f_i P_i, a = 1e-2, with f_i the share of all choices that fell on expert i and P_i its
    mean p_i, which is least where both are even; and 1e-3 times the mean of logsumexp(x W_r)^2 over tokens, which keeps
    the router's numbers small (Zoph et al. 2022, arXiv:2202.08906). ``load`` is f.
    """

    no_graph = "which expert sees which token is decided by each batch, so the update has no fixed graph"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        n_experts, self.top_k, hidden = _sizes(config)
        self.router = nn.Linear(config.n_embd, n_experts, bias=False)
        one = config.model_copy(update={"feedforward": "dense", "ffn_hidden": hidden})
        self.experts = nn.ModuleList(Dense(one) for _ in range(n_experts))

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        tokens = x.reshape(-1, x.shape[-1])  # (N, C)
        logits = self.router(tokens)  # (N, n)
        logits = logits if logits.dtype == torch.float64 else logits.float()  # rounded to bfloat16, near ones could not be told apart
        chances = logits.softmax(-1)
        weights, chosen = chances.topk(self.top_k)  # (N, k) each
        y = torch.zeros_like(tokens)
        for i, expert in enumerate(self.experts):
            rows, places = (chosen == i).nonzero(as_tuple=True)
            y.index_add_(0, rows, (expert(tokens[rows]) * weights[rows, places, None]).to(y.dtype))
        self.auxiliary, self.load = self._accounts(logits, chances, chosen) if self.training else (None, None)
        return y.view(x.shape)

    @staticmethod
    def _accounts(logits: Tensor, chances: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """The auxiliary loss, and the share of the choices that fell on each expert, (n,)."""
        n_experts = chances.shape[1]
        load = chosen.flatten().bincount(minlength=n_experts) / chosen.numel()
        balance = n_experts * (load * chances.mean(0)).sum()
        return BALANCE * balance + STEADINESS * logits.logsumexp(-1).square().mean(), load

    @staticmethod
    def count(config: ModelConfig) -> int:
        """n (2 C m/k + C): all experts and the router."""
        n_experts, _, hidden = _sizes(config)
        return n_experts * config.n_embd * (2 * hidden + 1)

    @staticmethod
    def flops(config: ModelConfig) -> int:
        """4 C m + 2 C n: what a token meets."""
        n_experts, top_k, hidden = _sizes(config)
        return 2 * config.n_embd * (2 * top_k * hidden + n_experts)


def _sizes(config: ModelConfig) -> tuple[int, int, int]:
    """n, k, and the hidden width of one expert."""
    resolved = config.resolved()
    n_experts, top_k, hidden = resolved.n_experts, resolved.top_k, resolved.ffn_hidden
    assert n_experts is not None
    assert top_k is not None
    assert hidden is not None
    return n_experts, top_k, hidden // top_k
