"""The activation slot: elementwise maps without learned numbers."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class GELU(nn.Module):
    """z * Phi(z) with the exact normal distribution function (erf); Hendrycks & Gimpel 2016."""

    def forward(self, z: Tensor) -> Tensor:
        """Elementwise."""
        return F.gelu(z)


class TanhGELU(nn.Module):
    """z/2 * (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))): GELU by its approximation; Hendrycks & Gimpel 2016."""

    def forward(self, z: Tensor) -> Tensor:
        """Elementwise."""
        return F.gelu(z, approximate="tanh")


class ReLU(nn.Module):
    """max(z, 0)."""

    def forward(self, z: Tensor) -> Tensor:
        """Elementwise."""
        return F.relu(z)


class SquaredReLU(nn.Module):
    """max(z, 0)^2; So et al. 2021 (Primer), arXiv:2109.08668."""

    def forward(self, z: Tensor) -> Tensor:
        """Elementwise."""
        return F.relu(z).square()


class SiLU(nn.Module):
    """z / (1 + exp(-z)); Elfwing et al. 2017, arXiv:1702.03118."""

    def forward(self, z: Tensor) -> Tensor:
        """Elementwise."""
        return F.silu(z)


class GEM1(nn.Module):
    """z^(2N+1) / (e + z^(2N)) for z > 0, else 0, with N = 1 and e = 1; Krause 2026, arXiv:2604.21677.

    With t^(2N) = e and r = z/t below t, t/z above, it is z r^(2N) / (1 + r^(2N)) below and z / (1 + r^(2N)) above: no
    power of a large number is taken, and no slope is infinite, not even where ``where`` drops it.
    """

    order: ClassVar[int] = 1
    epsilon: ClassVar[float] = 1.0

    def forward(self, z: Tensor) -> Tensor:
        """Elementwise."""
        turn = self.epsilon ** (1 / (2 * self.order))
        power = (z.clamp(0, turn) / z.clamp(min=turn)).square() ** self.order  # r^(2N)
        return F.relu(z) * torch.where(z > turn, 1.0, power) / (1 + power)


class GEM2(GEM1):
    """GEM with N = 2, which the paper takes for transformers: z^5 / (1 + z^4) for z > 0, else 0."""

    order = 2


class EGEM(GEM2):
    """z^5 / (e + z^4) for z > 0, else 0: GEM with e in the place of 1; the smaller e, the nearer to ReLU.

    A reconstruction: of arXiv:2604.21677 only the abstract was read, which names an "epsilon-parameterized
    generalization" but not its formula. e = 1e-4 is the largest that it recommends for all but small transformers.
    """

    epsilon = 1e-4
