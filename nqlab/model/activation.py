"""The activation slot: elementwise maps without learned numbers."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class GELU(nn.Module):
    """z * Phi(z) with the exact normal distribution function (erf); Hendrycks & Gimpel 2016."""

    def forward(self, z: Tensor) -> Tensor:
        """Elementwise."""
        return F.gelu(z)


class ReLU(nn.Module):
    """max(z, 0)."""

    def forward(self, z: Tensor) -> Tensor:
        """Elementwise."""
        return F.relu(z)
