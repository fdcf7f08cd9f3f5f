"""Ordinary least squares as one linear attention layer (arXiv:2604.13656), and the same change of basis on it.

With X^T X = V L V^T (eigenvalues L), W_Q = W_K = W_V = W = V L^(-1/2) and the readout P = W^T X^T Y, attention without
softmax, (X W_Q)(X W_K)^T (X W_V) P, returns X (X^T X)^-1 X^T Y. W is square and invertible, so S = W turns W_Q (here
W_K and W_V too) into I and X into X W, whose columns are orthonormal: the lemma's change of basis is whitening.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class LinearAttention:
    """Queries, keys and values from one input: w_q, w_k, w_v (C, C), readout (C, outputs)."""

    w_q: Tensor
    w_k: Tensor
    w_v: Tensor
    readout: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """(X W_Q)(X W_K)^T (X W_V) P, (n, C) -> (n, outputs); summed from the right, so never n by n."""
        return (x @ self.w_q) @ ((x @ self.w_k).T @ (x @ self.w_v) @ self.readout)

    def in_basis(self, s: Tensor) -> LinearAttention:
        """The layer that reads X S as this one reads X."""
        w_q, w_k, w_v = (torch.linalg.solve(s, w) for w in (self.w_q, self.w_k, self.w_v))
        return replace(self, w_q=w_q, w_k=w_k, w_v=w_v)


def least_squares_attention(x: Tensor, y: Tensor) -> LinearAttention:
    """The layer whose output on x (n, C) is the least-squares fit of y (n, outputs).

    ValueError when X^T X has no inverse in this precision: fewer samples than columns, or columns that depend on
    each other.
    """
    values, vectors = torch.linalg.eigh(x.T @ x)
    if len(x) < x.shape[1] or float(values[0]) <= float(values[-1]) * x.shape[1] * torch.finfo(x.dtype).eps:
        raise ValueError(f"the {x.shape[1]} columns of x depend on each other in its {len(x)} rows; drop columns or add rows")
    w = vectors / values.sqrt()  # (C, C)
    return LinearAttention(w, w, w, w.T @ x.T @ y)


def whitened(x: Tensor, layer: LinearAttention) -> tuple[Tensor, LinearAttention]:
    """X W_Q and the layer on it, whose W_Q is put in exactly as I."""
    eye = torch.eye(x.shape[1], dtype=x.dtype)
    return x @ layer.w_q, replace(layer.in_basis(layer.w_q), w_q=eye)
