"""The query slot: six ways to make the query of attention from the normed block input x.

Every class owns its whole formula, the factor 1/2 included; attention always scales by 1/sqrt(D). (The authors'
code keeps the 1/2 in the attention scale instead, so that q = x goes with 1/(2 sqrt(D)). The logits are the same.)
``query_scale`` replaces the factor: 1 for ``linear``, 1/2 for the others.

Each class maps (B, T, C) to (B, T, C), and says how many learned numbers (``count``) and matrix FLOPs per token
(``flops``) it has. Sources: Karbevski 2026, arXiv:2603.13381; Karbevski & Mijoski 2025, arXiv:2510.23912.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nqlab.config import ModelConfig
from nqlab.model.norm import LayerNorm, RMSNorm


class Query(nn.Module, ABC):
    """What every entry of the query slot has. Row vectors: q = x W, ``nn.Linear.weight`` stores the transpose."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        scale = config.resolved().query_scale
        assert scale is not None
        self.scale = scale

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""

    @staticmethod
    @abstractmethod
    def count(config: ModelConfig) -> int:
        """Learned numbers."""

    @staticmethod
    @abstractmethod
    def flops(config: ModelConfig) -> int:
        """Matrix FLOPs per token, forward."""


class LinearQuery(Query):
    """q = x W_Q: the baseline."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.proj = nn.Linear(config.n_embd, config.n_embd, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        q = self.proj(x)
        return q if self.scale == 1.0 else q * self.scale

    @staticmethod
    def count(config: ModelConfig) -> int:
        """C^2."""
        return config.n_embd**2

    @staticmethod
    def flops(config: ModelConfig) -> int:
        """2 C^2."""
        return 2 * config.n_embd**2


class IdentityQuery(Query):
    """q = x/2: no learned query at all."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        return x * self.scale

    @staticmethod
    def count(config: ModelConfig) -> int:
        """0."""
        return 0

    @staticmethod
    def flops(config: ModelConfig) -> int:
        """0: no matrix."""
        return 0


class ResidualLinearQuery(LinearQuery):
    """q = (x + x W_Q)/2: the residual without the nonlinearity, at the baseline's size."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        return (x + self.proj(x)) * self.scale


class NonlinearQuery(Query):
    """q = (x + f(x))/2, f(x) = LN(GELU(RMSNorm(x) W_1) W_2): the paper's query.

    W_1 is (C, R), W_2 (R, C), R = bottleneck; erf GELU, both norms with gain, eps 1e-5, no bias, no dropout inside.
    ``query_output_gain`` (ours) is the initial gain of the last norm: 1 in the paper, 0 starts at the identity.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        resolved = config.resolved()
        assert resolved.bottleneck is not None
        assert resolved.query_output_gain is not None
        self.norm = RMSNorm(config.n_embd)
        self.down = nn.Linear(config.n_embd, resolved.bottleneck, bias=False)
        self.up = nn.Linear(resolved.bottleneck, config.n_embd, bias=False)
        self.out_norm = LayerNorm(config.n_embd)
        with torch.no_grad():
            self.out_norm.weight.fill_(resolved.query_output_gain)

    def f(self, x: Tensor) -> Tensor:
        """The learned part, (B, T, C) -> (B, T, C)."""
        z = self.down(self.norm(x))  # (B, T, R)
        return self.out_norm(self.up(self.act(z)))  # (B, T, C)

    def act(self, z: Tensor) -> Tensor:
        """What stands between W_1 and W_2."""
        return F.gelu(z)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        return (x + self.f(x)) * self.scale

    @staticmethod
    def count(config: ModelConfig) -> int:
        """2 C R + 2 C: two matrices, two gains."""
        return 2 * config.n_embd * (_bottleneck(config) + 1)

    @staticmethod
    def flops(config: ModelConfig) -> int:
        """4 C R; the two norms and the GELU cost time that this number does not show."""
        return 4 * config.n_embd * _bottleneck(config)


class BottleneckLinearQuery(NonlinearQuery):
    """The nonlinear query with the GELU removed: same learned tensors, same norms. Ours: isolates the nonlinearity."""

    def act(self, z: Tensor) -> Tensor:
        """Nothing."""
        return z


class RoutedQuery(NonlinearQuery):
    """q = (x + sum_i p_i f_i(x))/2, p = softmax(x W_r): a soft mixture of n nonlinear queries. Ours.

    f_i(x) = LN(GELU(RMSNorm(x) W_1i) W_2i), n = query_experts, the gains of the norms shared. The bottleneck is divided,
    and pays for the router's C n numbers: the widths of the f_i differ by at most 1 and sum to R - n/2 (rounded down), so
    that all is as large as the nonlinear query with bottleneck R for even n, and C numbers smaller for odd n. With n = 1
    there is no router, and it is that query.
    """

    def __init__(self, config: ModelConfig) -> None:
        widths = _widths(config)
        super().__init__(config.model_copy(update={"bottleneck": sum(widths)}))
        self.widths = widths
        self.router = nn.Linear(config.n_embd, len(widths), bias=False) if len(widths) > 1 else None

    def f(self, x: Tensor) -> Tensor:
        """The mixture of the f_i, (B, T, C) -> (B, T, C)."""
        hidden = self.act(self.down(self.norm(x))).split(self.widths, dim=-1)  # n times (B, T, R_i)
        parts = [self.out_norm(F.linear(h, w)) for h, w in zip(hidden, self.up.weight.split(self.widths, dim=1))]
        if self.router is None:
            return parts[0]  # (B, T, C)
        shares = self.router(x).softmax(-1).unbind(-1)  # n times (B, T)
        return torch.stack([share[..., None] * part for share, part in zip(shares, parts)]).sum(0)  # (B, T, C)

    @staticmethod
    def count(config: ModelConfig) -> int:
        """2 C (R' + 1) + C n, R' the sum of the widths; 2 C (R + 1) for n = 1."""
        return config.n_embd * (2 * _routed_width(config) + 2 + _router_rows(config))

    @staticmethod
    def flops(config: ModelConfig) -> int:
        """4 C R' + 2 C n."""
        return config.n_embd * (4 * _routed_width(config) + 2 * _router_rows(config))


def _router_rows(config: ModelConfig) -> int:
    """n, or 0 where there is nothing to choose among."""
    n = config.resolved().query_experts
    assert n is not None
    return n if n > 1 else 0


def _routed_width(config: ModelConfig) -> int:
    """R less half the router's rows, rounded up: what is left for the f_i."""
    return _bottleneck(config) - (_router_rows(config) + 1) // 2


def _widths(config: ModelConfig) -> list[int]:
    """The bottleneck of each f_i."""
    total, n = _routed_width(config), max(1, _router_rows(config))
    return [total // n + (i < total % n) for i in range(n)]


def _bottleneck(config: ModelConfig) -> int:
    width = config.resolved().bottleneck
    assert width is not None
    return width
