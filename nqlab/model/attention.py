"""Causal multi-head attention around a query slot, and the cache of keys and values for generation."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nqlab import slots
from nqlab.config import ModelConfig


class KeyValueCache:
    """Keys and values of one layer for the positions seen so far, at most ``block_size`` of them."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append (B, H, t, D) keys and values; return all of them, (B, H, T, D)."""
        if self.keys is not None and self.values is not None:
            k, v = torch.cat((self.keys, k), dim=2), torch.cat((self.values, v), dim=2)
        self.keys, self.values = k, v
        return k, v


class CausalSelfAttention(nn.Module):
    """softmax(q k^T / sqrt(D)) v with a causal mask; q from the query slot, k = x W_K, v = x W_V, no biases."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.n_embd
        self.n_head, self.head_size, self.dropout = config.n_head, config.head_size, config.dropout
        self.query = slots.load("query", config.query)(config)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def _heads(self, x: Tensor) -> Tensor:
        batch, time, _ = x.shape
        return x.view(batch, time, self.n_head, self.head_size).transpose(1, 2)  # (B, H, T, D)

    def forward(self, x: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """(B, T, C) -> (B, T, C). With a cache, x holds only the new positions: all at first, then one at a time."""
        q, k, v = self._heads(self.query(x)), self._heads(self.key(x)), self._heads(self.value(x))
        causal = True
        if cache is not None:
            causal = cache.keys is None
            assert causal or x.shape[1] == 1, "after the first call the cache takes one position at a time"
            k, v = cache.extend(k, v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, dropout_p=self.dropout if self.training else 0.0)
        y = self.out(y.transpose(1, 2).reshape(x.shape))  # (B, T, C)
        return F.dropout(y, self.dropout, self.training) if self.dropout else y
