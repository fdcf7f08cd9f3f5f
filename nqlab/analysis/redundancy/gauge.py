"""The freedom inside a head, which no norm, skip or tie can take away.

Scores see only Q_h K_h^T and outputs only V_h O_h, so Q_h <- Q_h M, K_h <- K_h M^-T and V_h <- V_h M, O_h <- M^-1 O_h
change nothing for any invertible M (D, D). With M the inverse of D rows of Q_h, those rows become the identity: D^2
numbers saved for each head of keys, C D a layer for QK and again for VO. It needs scores that are the plain product:
RoPE and QK-norm stand between Q_h and K_h, and only VO is left.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nqlab.analysis.redundancy.architecture import Architecture
from nqlab.analysis.redundancy.small import Weights


def pivot_rows(block: Tensor) -> Tensor:
    """Indices of D rows of (n, D) that make a well-conditioned block, by QR with column pivoting of its transpose.

    The greedy choice: the row farthest from the span of those taken. ValueError when the rank is below D.
    """
    rest, largest = block.clone(), float(block.norm(dim=1).max())
    taken: list[int] = []
    for _ in range(block.shape[1]):
        norms = rest.norm(dim=1)
        pivot = int(norms.argmax())
        if not float(norms[pivot]) > largest * block.shape[0] * torch.finfo(block.dtype).eps:
            raise ValueError(f"a head's matrix has rank {len(taken)}, below its {block.shape[1]} columns; no block of it has an inverse")
        direction = rest[pivot] / norms[pivot]
        for _ in range(2):  # a second pass keeps the rest orthogonal to working precision
            rest = rest - (rest @ direction)[:, None] * direction
        taken.append(pivot)
    return torch.tensor(taken)


def gauge(left: Tensor, right: Tensor, kv_heads: int, head_size: int, rows: int | None = None) -> tuple[Tensor, Tensor]:
    """L_h M and R_h M^-T for each head, keeping every L_h R_h^T, with D rows of the first L_h of each group the identity.

    ``left`` and ``right`` are (n, D times heads), heads side by side, with as many heads as ``kv_heads`` or a multiple
    of it. Only the first ``rows`` rows of ``left`` are candidates: a bias may be a row of its own below them.
    """
    shapes = (left.shape[0], kv_heads, -1, head_size), (right.shape[0], kv_heads, -1, head_size)
    new_left, new_right = left.reshape(shapes[0]).clone(), right.reshape(shapes[1]).clone()  # (n, H_kv, heads in group, D)
    for group in range(kv_heads):
        first = new_left[:rows, group, 0]
        chosen = pivot_rows(first)
        inverse = first[chosen].clone()  # M^-1, (D, D)
        new_left[:, group] = torch.linalg.solve(inverse, new_left[:, group], left=False)
        new_right[:, group] = new_right[:, group] @ inverse.T
        new_left[chosen, group, 0] = torch.eye(head_size, dtype=left.dtype)
    return new_left.reshape(left.shape), new_right.reshape(right.shape)


def gauge_layer(q: Tensor, k: Tensor, v: Tensor, o: Tensor, n_head: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Both gauges of one layer without biases: q (C, C), k and v (C, D H_kv), o (C, C), W is (in, out)."""
    size = q.shape[1] // n_head
    kv_heads = k.shape[1] // size
    q, k = gauge(q, k, kv_heads, size)
    v, transposed = gauge(v, o.T, kv_heads, size)
    return q, k, v, transposed.T.contiguous()


def gauge_weights(weights: Weights, architecture: Architecture) -> tuple[Weights, int]:
    """The per-head gauge on all layers, and the numbers saved: H_kv D^2 for QK and for VO, a layer.

    With RoPE or QK-norm the scores are not the plain product, and only VO is changed. Biases of Q, K and V move with
    their matrices; O's is added after the product and stays.
    """
    a, out = architecture, dict(weights)
    plain = a.positions != "rope" and not a.qk_norm
    for layer in range(a.n_layer):
        if plain:
            q, k = gauge(_with_bias(out, layer, "Q"), _with_bias(out, layer, "K"), a.kv_heads, a.head_size, a.n_embd)
            out |= _split(layer, "Q", q) | _split(layer, "K", k)
        v, transposed = gauge(_with_bias(out, layer, "V"), out[f"{layer}.O"].T, a.kv_heads, a.head_size, a.n_embd)
        out |= _split(layer, "V", v) | {f"{layer}.O": transposed.T}
    return out, a.n_layer * (1 + plain) * a.kv_heads * a.head_size**2


def _with_bias(weights: Weights, layer: int, letter: str) -> Tensor:
    """W with its bias as a last row; without a bias a row of zeros."""
    w = weights[f"{layer}.{letter}"]
    bias = weights.get(f"{layer}.b_{letter}")
    return torch.cat((w, torch.zeros_like(w[:1]) if bias is None else bias[None]))


def _split(layer: int, letter: str, rows: Tensor) -> Weights:
    """Inverse of :func:`_with_bias`."""
    bias = rows[-1]
    return {f"{layer}.{letter}": rows[:-1]} | ({f"{layer}.b_{letter}": bias} if bias.any() else {})
