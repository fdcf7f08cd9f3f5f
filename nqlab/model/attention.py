"""Causal multi-head attention around its slots, and the cache of keys and values for generation."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nqlab import slots
from nqlab.config import ModelConfig


class KeyValueCache:
    """Keys and values of one layer for the ``length`` positions seen so far, in buffers of ``capacity`` positions."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.length = capacity, 0
        self._keys: Tensor | None = None  # (B, H, capacity, D), made when the first keys tell its shape
        self._values: Tensor | None = None

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append (B, H, t, D) keys and values; return all of them, (B, H, T, D): views, which later ones leave as they are."""
        if self._keys is None or self._values is None:
            shape = (*k.shape[:2], self.capacity, k.shape[3])
            self._keys, self._values = k.new_empty(shape), v.new_empty(shape)
        begin, time = self.length, k.shape[2]
        end = self.length = begin + time
        assert end <= self.capacity, f"{end} positions in a cache of {self.capacity}"
        self._keys.narrow(2, begin, time).copy_(k)
        self._values.narrow(2, begin, time).copy_(v)
        return self._keys.narrow(2, 0, end), self._values.narrow(2, 0, end)


EXPLICIT_UP_TO = 512  # positions
QK_EPS = 1e-6


def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool, dropout: float = 0.0) -> Tensor:
    """softmax(q k^T / sqrt(D)) v: (B, H, t, D) and twice (B, H, T, D) -> (B, H, t, D); ``causal`` needs t = T.

    By torch's fused kernel. In bfloat16 on a CPU that one is slower than the formula written out (2 to 5 times at 64
    positions, 1.4 times at 256, equal at 512, and faster beyond), which is then used instead.
    """
    if q.device.type == "cpu" and torch.is_autocast_enabled("cpu") and k.shape[2] <= EXPLICIT_UP_TO:
        return attend_explicitly(q, k, v, causal, dropout)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, dropout_p=dropout)


def attend_explicitly(q: Tensor, k: Tensor, v: Tensor, causal: bool, dropout: float = 0.0) -> Tensor:
    """:func:`attend` as its formula, in the format that its products come in (bfloat16 under autocast)."""
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1)  # (B, H, t, T)
    if causal:
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill_(ahead, float("-inf"))
    weights = scores.softmax(-1)
    return (F.dropout(weights, dropout) if dropout else weights) @ v


class CausalSelfAttention(nn.Module):
    """softmax(q k^T / sqrt(D)) v with a causal mask; query, key and value are slots, no biases.

    With ``qk_norm`` each head's q and k are divided by their RMS (eps 1e-6, no gain) before they are turned by their
    position, where the position slot turns them.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.n_embd
        self.n_head, self.head_size, self.dropout = config.n_head, config.head_size, config.dropout
        self.query, self.key, self.value = (slots.load(s, getattr(config, s))(config) for s in ("query", "key", "value"))
        self.qk_norm, self.turned = config.qk_norm, slots.load("position", config.position).turned
        self.out = nn.Linear(width, width, bias=False)

    def _heads(self, x: Tensor) -> Tensor:
        batch, time, _ = x.shape
        if time == 1:
            return x.view(batch, self.n_head, 1, self.head_size)  # (B, H, 1, D), the same with one operation less
        return x.view(batch, time, self.n_head, self.head_size).transpose(1, 2)  # (B, H, T, D)

    def compared(self, q: Tensor, k: Tensor, past: int = 0) -> tuple[Tensor, Tensor]:
        """What the scores compare of queries and keys (B, H, T, D), whose first stands at position ``past``."""
        if self.qk_norm:
            q, k = (F.rms_norm(z, z.shape[-1:], None, QK_EPS) for z in (q, k))
        return self.turned(q, k, past)

    def forward(self, x: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """(B, T, C) -> (B, T, C). With a cache, x holds only the new positions: all at first, then one at a time."""
        q, k, v = self._heads(self.query(x)), self._heads(self.key(x)), self._heads(self.value(x))
        q, k = self.compared(q, k, 0 if cache is None else cache.length)
        causal = True
        if cache is not None:
            causal = cache.length == 0
            assert causal or x.shape[1] == 1, "after the first call the cache takes one position at a time"
            k, v = cache.extend(k, v)
        y = attend(q, k, v, causal, self.dropout if self.training else 0.0)
        y = self.out(y.transpose(1, 2).reshape(x.shape))  # (B, T, C)
        return F.dropout(y, self.dropout, self.training) if self.dropout else y
