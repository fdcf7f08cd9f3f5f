"""The norm slot. Each entry maps (..., C) to (..., C) and has a gain, no bias."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EPS = 1e-5


class LayerNorm(nn.Module):
    """g * (x - mean(x)) / sqrt(var(x) + 1e-5) over the last axis; Ba et al. 2016. No bias, as in nanoGPT."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., C)."""
        return F.layer_norm(x, self.weight.shape, self.weight, None, EPS)

    @staticmethod
    def count(width: int) -> int:
        """Learned numbers: the gain."""
        return width


class RMSNorm(nn.Module):
    """g * x / sqrt(mean(x^2) + 1e-5) over the last axis; Zhang & Sennrich 2019."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., C)."""
        return F.rms_norm(x, self.weight.shape, self.weight, EPS)

    @staticmethod
    def count(width: int) -> int:
        """Learned numbers: the gain."""
        return width
