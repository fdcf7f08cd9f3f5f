"""The query slot: five ways to make the query of attention from the normed block input x.

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


def _bottleneck(config: ModelConfig) -> int:
    width = config.resolved().bottleneck
    assert width is not None
    return width
