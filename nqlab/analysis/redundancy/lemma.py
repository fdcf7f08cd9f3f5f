"""The lemma: attention sees X only through X W_Q, X W_K and X W_V, so X S with S^-1 W_Q, S^-1 W_K, S^-1 W_V is the same to it.

S = W_Q makes W_Q the identity; W_K or W_V can be spent as well, where they are square. The price is numerical: the
error of the inverse grows with the condition number of S. Source: arXiv:2510.23912.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nqlab.analysis.redundancy.architecture import LETTER, PROJECTIONS, Architecture, Projection, check_choice
from nqlab.analysis.redundancy.small import draw, heads, number_format, relative_error
from nqlab.model.gpt import keyed_generator


@dataclass(frozen=True)
class Layer:
    """One attention layer's matrices, W is (in, out): q (C, C), k and v (C, D H_kv), o (C, C)."""

    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor


def multi_head_attention(x: Tensor, layer: Layer, n_head: int, mask: Tensor | None = None, scale: float | None = None) -> Tensor:
    """MHA(X; Q, K, V, O), (B, T, C) -> (B, T, C), with any boolean mask (T, T) and scale; 1/sqrt(D) and no mask by default."""
    q, k, v = (heads(x @ w, layer.q.shape[1] // n_head) for w in (layer.q, layer.k, layer.v))
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=k.shape[1] < n_head)
    return y.transpose(1, 2).flatten(2) @ layer.o  # (B, T, C)


def change_basis(x: Tensor, layer: Layer, s: Tensor) -> tuple[Tensor, Layer]:
    """X S, and the layer that reads it as it read X."""
    q, k, v = (torch.linalg.solve(s, w) for w in (layer.q, layer.k, layer.v))
    return x @ s, Layer(q, k, v, layer.o)


def eliminate(x: Tensor, layer: Layer, remove: Projection = "query") -> tuple[Tensor, Layer]:
    """The basis in which W_Q (or W_K, W_V) is the identity. ValueError when it is not square, as W_K in grouped-query attention."""
    check_choice("remove", remove, PROJECTIONS)
    letter = LETTER[remove].lower()
    s: Tensor = getattr(layer, letter)
    if s.shape[0] != s.shape[1]:
        raise ValueError(f"W_{letter.upper()} is {s.shape[0]} by {s.shape[1]}, not square, so it cannot be S; remove the query")
    moved, new = change_basis(x, layer, s)
    return moved, replace(new, **{letter: torch.eye(len(s), dtype=s.dtype)})


def example(
    architecture: Architecture, seed: int = 0, condition: float = 10.0, dtype: str | torch.dtype = "float64"
) -> tuple[Tensor, Layer]:
    """Normal inputs (4, T, C) and one layer with a W_Q of the given condition number."""
    weights = draw(architecture, seed, condition, dtype)
    size = (4, architecture.block_size, architecture.n_embd)
    x = torch.randn(size, generator=keyed_generator(seed, "redundancy", "x"), dtype=torch.float64)
    return x.to(number_format(dtype)), Layer(*(weights[f"0.{letter}"] for letter in "QKVO"))


def conditioning(
    conditions: Sequence[float] = (10.0, 1e3, 1e6), architecture: Architecture | None = None, seed: int = 0
) -> list[dict[str, Any]]:
    """Rows {condition, dtype, error}: the relative error of one layer with W_Q = I, computed in float32 and in float64.

    The error is against the untransformed layer in float64; the inverse is computed in the row's own precision.
    """
    architecture = architecture or Architecture(n_layer=1)
    rows = []
    for condition in conditions:
        exact, layer = example(architecture, seed, condition)
        expected = multi_head_attention(exact, layer, architecture.n_head)
        for dtype in ("float32", "float64"):
            moved, new = eliminate(*example(architecture, seed, condition, dtype))
            error = relative_error(multi_head_attention(moved, new, architecture.n_head), expected)
            rows.append({"condition": float(condition), "dtype": dtype, "error": error})
    return rows
