"""The position slot: how the model knows where a character stands. Positions count from the window's first, 0.

An entry is called with the token embeddings, and its ``turned`` with each layer's queries and keys; ``past`` is the
number of positions in the cache, before the first of those given.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nqlab.config import ModelConfig

BASE = 10_000.0


class LearnedPositions(nn.Embedding):
    """A learned vector a position, added to the token's; as in GPT-2."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.block_size, config.n_embd)

    def forward(self, x: Tensor, past: int) -> Tensor:  # type: ignore[override]
        """(B, T, C) -> (B, T, C)."""
        return x + self.weight[past : past + x.shape[1]]

    @staticmethod
    def turned(q: Tensor, k: Tensor, past: int) -> tuple[Tensor, Tensor]:  # noqa: ARG004  (the slot's signature)
        """As they are."""
        return q, k

    @staticmethod
    def count(config: ModelConfig) -> int:
        """T C."""
        return config.block_size * config.n_embd


class RotaryPositions(nn.Module):
    """RoPE: queries and keys turned by their position, so that scores know only how far apart two are; Su et al. 2021, arXiv:2104.09864.

    No table, nothing learned. The head size must be even.
    """

    def __init__(self, config: ModelConfig) -> None:  # noqa: ARG002  (the slot's signature)
        super().__init__()

    def forward(self, x: Tensor, past: int) -> Tensor:  # noqa: ARG002  (the slot's signature)
        """(B, T, C), as they are."""
        return x

    @staticmethod
    def turned(q: Tensor, k: Tensor, past: int) -> tuple[Tensor, Tensor]:
        """Both (B, H, T, D), by :func:`rotated`."""
        angles = rotation(q, past)
        return rotated(q, *angles), rotated(k, *angles)

    @staticmethod
    def count(config: ModelConfig) -> int:  # noqa: ARG004  (the slot's signature)
        """0."""
        return 0


def rotation(z: Tensor, past: int = 0) -> tuple[Tensor, Tensor]:
    """Cosines and sines of t 10000^(-2i/D), (T, D/2) each, for the positions t from ``past`` on of z (B, H, T, D).

    In float32 at least: bfloat16 could not tell large positions apart.
    """
    time, size = z.shape[-2:]
    kind = torch.float64 if z.dtype == torch.float64 else torch.float32
    rate = BASE ** (-torch.arange(0, size, 2, dtype=kind, device=z.device) / size)
    angle = torch.arange(past, past + time, dtype=kind, device=z.device)[:, None] * rate
    return angle.cos(), angle.sin()


def rotated(z: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Each pair (2i, 2i+1) of (B, H, T, D) turned by the angle whose cosine and sine are given, (T, D/2)."""
    even, odd = z[..., ::2], z[..., 1::2]
    pairs = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)  # (B, H, T, D/2, 2)
    return pairs.flatten(-2).to(z.dtype)  # (B, H, T, D)
