"""Can an MLP absorb its own skip connection: x + B(x) = B'(x) for all x, with the same width? arXiv:2604.23705.

B(x) = act(x W_up) W_down, no biases, W_up (C, m), W_down (m, C), row vectors. For ReLU and GELU (and
SiLU), whose act(z) - act(-z) = z, it is so (generically: only so) if a set S of at least C hidden units has
W_up[:, S] W_down[S, :] = -I: flipping the sign of W_up[:, S] then adds x, exactly. For random weights no S does.

It is never so where the block is homogeneous of a degree k other than 1 (ReLU^2, ReGLU: k = 2), as then
B'(cx) = c^k B'(x) while x + B(x) is not of that kind; nor for gates with g(0) = 0 (SwiGLU, GeGLU), where B' has
derivative 0 at x = 0 and x + B(x) has derivative I.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

Activation = Callable[[Tensor], Tensor]
LARGEST_WIDTH = 16


@dataclass(frozen=True)
class Subset:
    """Hidden units and how far they are from the condition: the Frobenius norm of W_up[:, S] W_down[S, :] + I."""

    units: tuple[int, ...]
    distance: float


def mlp(x: Tensor, w_up: Tensor, w_down: Tensor, activation: Activation) -> Tensor:
    """B(x), (..., C) -> (..., C)."""
    return activation(x @ w_up) @ w_down


def distance(w_up: Tensor, w_down: Tensor, units: Sequence[int]) -> float:
    """||W_up[:, S] W_down[S, :] + I||, Frobenius; 0 is the condition, sqrt(C) that of the empty set."""
    chosen = list(units)
    product = w_up[:, chosen] @ w_down[chosen]
    return float((product + torch.eye(len(w_up), dtype=w_up.dtype)).norm())


def subsets(w_up: Tensor, w_down: Tensor, smallest: int = 0) -> Iterator[Subset]:
    """All 2^m sets of hidden units of at least ``smallest`` members. ValueError for a width above 16."""
    width = w_up.shape[1]
    if width > LARGEST_WIDTH:
        raise ValueError(f"hidden width {width} has 2^{width} subsets, too many to try; take at most {LARGEST_WIDTH}")
    for size in range(smallest, width + 1):
        for units in combinations(range(width), size):
            yield Subset(units, distance(w_up, w_down, units))


def best_subset(w_up: Tensor, w_down: Tensor, smallest: int = 0) -> Subset:
    """The set nearest to the condition, by exhaustive search. With ``smallest`` = C only sets large enough to meet it."""
    return min(subsets(w_up, w_down, smallest), key=lambda subset: subset.distance)


def absorb(w_up: Tensor, units: Sequence[int]) -> Tensor:
    """W_up with the sign of W_up[:, S] flipped; with W_down as it is, that is B' where S meets the condition."""
    sign = torch.ones(w_up.shape[1], dtype=w_up.dtype)
    sign[list(units)] = -1
    return w_up * sign


def absorbable(width: int, hidden: int, units: Sequence[int], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random W_up (C, m) and a W_down (m, C) for which S meets the condition, float64.

    ValueError when S has fewer than C members: the product's rank would be below that of I.
    """
    chosen = list(units)
    if len(chosen) < width:
        raise ValueError(f"{len(chosen)} hidden units cannot make up I of rank {width}; take at least {width}")
    w_up, w_down = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((width, hidden), (hidden, width)))
    inverse = torch.linalg.pinv(w_up[:, chosen])  # (|S|, C), U U^+ = I
    w_down[chosen] -= inverse @ (w_up[:, chosen] @ w_down[chosen] + torch.eye(width, dtype=torch.float64))
    return w_up, w_down


def absorption_error(x: Tensor, w_up: Tensor, w_down: Tensor, units: Sequence[int], activation: Activation) -> float:
    """||B'(x) - x - B(x)|| / ||x + B(x)|| for the sign flip of S."""
    expected = x + mlp(x, w_up, w_down, activation)
    return float((mlp(x, absorb(w_up, units), w_down, activation) - expected).norm() / expected.norm())


def degree_gap(block: Callable[[Tensor], Tensor], x: Tensor, degree: float) -> float:
    """||f(2x) - 2^k f(x)|| / ||f(2x)||: 0 for every block homogeneous of degree k, so a target with another value is none."""
    doubled = block(2 * x)
    return float((doubled - 2**degree * block(x)).norm() / doubled.norm())


def slope_at_zero(block: Callable[[Tensor], Tensor], width: int) -> Tensor:
    """The derivative at x = 0, (C, C): zero for every gated block with g(0) = 0, I for x plus such a block."""
    jacobian = torch.func.jacrev(block)(torch.zeros(width, dtype=torch.float64))
    assert isinstance(jacobian, Tensor)
    return jacobian
