"""The norm slot: each entry maps (..., C) to (..., C). Those with a gain start it at 1; nothing learned here decays.

Three of them look at no other channel and no statistic: a squashing function stands where a norm stood. They do not
bring a small input to unit size, so that a model with one of them starts slowly from embeddings of 0.02.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EPS = 1e-5
PART = 16  # pRMSNorm looks at one channel in so many: 6.25 %


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


class PartialRMSNorm(nn.Module):
    """g * x / sqrt(mean(x_1^2 .. x_k^2) + 1e-5), k = ceil(C/16): the size of a channel in sixteen stands for all.

    pRMSNorm of Zhang & Sennrich 2019 (arXiv:1910.07467) at their 6.25 %. At least one channel is looked at.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.looked_at = math.ceil(width / PART)

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., C)."""
        mean_square = x[..., : self.looked_at].square().mean(-1, keepdim=True)  # (..., 1)
        return self.weight * x * torch.rsqrt(mean_square + EPS)

    @staticmethod
    def count(width: int) -> int:
        """Learned numbers: the gain."""
        return width


class DyT(nn.Module):
    """g * tanh(a x) + b with one number a, 1/2 at first, g = 1 and b = 0 at first; Zhu et al. 2025, arXiv:2503.10622.

    arXiv:2604.23434 finds that it helps mainly where data is scarce, which a corpus of a megabyte is. The scale that
    the paper puts behind the embeddings of a language model is left out here.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.full((1,), 0.5))
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., C)."""
        return self.weight * torch.tanh(self.alpha * x) + self.bias

    @staticmethod
    def count(width: int) -> int:
        """Learned numbers: gain, bias and a."""
        return 2 * width + 1


class DyISRU(nn.Module):
    """sqrt(C) x / sqrt(B + x^2) with one learned B = exp(b), C at first; Stollenwerk 2025, arXiv:2503.21708.

    Of RMSNorm, sqrt(C) x_k / sqrt(x_k^2 + sum of the other squares), it keeps the form and makes the sum a constant. So
    it is RMSNorm (without eps) where B is that sum, and where x has unit RMS and B = C it tends to RMSNorm as C grows:
    it is then x / sqrt(1 + x^2/C). That B is an exponential is ours, and keeps it positive. No gain. The paper trains
    no model with it.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = math.sqrt(width)
        self.log_b = nn.Parameter(torch.full((1,), math.log(width)))

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., C)."""
        return self.scale * x * torch.rsqrt(self.log_b.exp() + x.square())

    @staticmethod
    def count(width: int) -> int:  # noqa: ARG004  (the slot's signature)
        """Learned numbers: b."""
        return 1


class Derf(nn.Module):
    """g * erf(a x + s) + b with numbers a (1/2 at first) and s (0), g = 1 and b = 0 at first; Chen et al. 2025, arXiv:2512.10938."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.full((1,), 0.5))
        self.shift = nn.Parameter(torch.zeros(1))
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., C)."""
        return self.weight * torch.erf(self.alpha * x + self.shift) + self.bias

    @staticmethod
    def count(width: int) -> int:
        """Learned numbers: gain, bias, a and s."""
        return 2 * width + 2


class NoNorm(nn.Module):
    """x itself."""

    def __init__(self, width: int) -> None:  # noqa: ARG002  (the slot's signature)
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., C)."""
        return x

    @staticmethod
    def count(width: int) -> int:  # noqa: ARG004  (the slot's signature)
        """Learned numbers: none."""
        return 0
