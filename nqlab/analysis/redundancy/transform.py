"""The bookkeeping rule applied to weights: W S for what writes a state, S^-1 W for what reads it.

:func:`apply` follows the rule and changes no output; :func:`apply_anyway` is what a hasty reader does, kept to show
how far off it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from nqlab.analysis.redundancy.architecture import LETTER, Architecture, Projection, check_choice
from nqlab.analysis.redundancy.rule import Analysis, Group, Restriction, analyse
from nqlab.analysis.redundancy.small import Weights
from nqlab.analysis.redundancy.structure import matrices, states_of

Bases = dict[str, Tensor]


@dataclass(frozen=True)
class Transformed:
    """New weights that compute the same outputs, the S of every state, and what the rule said."""

    weights: Weights
    bases: Bases
    analysis: Analysis


def apply(weights: Weights, architecture: Architecture, remove: Projection = "query", layer: int = 0) -> Transformed:
    """Transform the weights as far as the rule allows: the outputs stay, each W_Q that can becomes I or triangular.

    Gains are folded first where there is a norm. ``layer`` is the one served where layers share one S. The new W_Q
    are put in exactly (zeros and ones, not rounded ones), so an error of the outputs is the error of dropping them.
    ValueError as :func:`analyse`; RuntimeError from torch for a W_Q that has no inverse.
    """
    analysis = analyse(architecture, remove, layer)
    folded = fold_gains(weights, architecture)
    bases, forms = _choose(folded, architecture, analysis, remove)
    changed = change_bases(folded, architecture, bases)
    return Transformed(changed | forms, bases, analysis)


def apply_anyway(weights: Weights, architecture: Architecture, scope: Literal["layer", "global"] = "layer", layer: int = 0) -> Weights:
    """Make W_Q the identity against the rule: with an S per layer, or one S = W_Q of ``layer`` for every state.

    With "layer" the state that attention reads carries S = W_Q of that layer, every other state S = I, as would be
    right without skips and norms, and every W_Q becomes I; with "global" only the chosen one does.
    """
    check_choice("scope", scope, ("layer", "global"))
    folded = fold_gains(weights, architecture)
    names = states_of(architecture)
    layers = [layer] * len(names) if scope == "global" else range(architecture.n_layer)
    carried = names if scope == "global" else [f"x{i}" for i in layers]
    bases = _identities(folded, architecture) | {state: folded[f"{i}.Q"] for state, i in zip(carried, layers)}
    eye = torch.eye(architecture.n_embd, dtype=weights["E"].dtype)
    return change_bases(folded, architecture, bases) | {f"{i}.Q": eye for i in set(layers)}


def change_bases(weights: Weights, architecture: Architecture, bases: Bases) -> Weights:
    """Every weight that touches a state, multiplied by that state's S or its inverse; nothing is checked."""
    out = dict(weights)
    for matrix in matrices(architecture):
        s, w = bases[matrix.state], weights[matrix.name]
        out[matrix.name] = w @ s if matrix.writes else torch.linalg.solve(s, w)
    return out


def fold_gains(weights: Weights, architecture: Architecture) -> Weights:
    """diag(g) W for every reader of a normed state, g = 1 after it. A tied output is no reader of its own: its gain stays."""
    if architecture.norm == "none":
        return dict(weights)
    out = dict(weights)
    readers = [m for m in matrices(architecture) if not m.writes]
    for matrix in readers:
        out[matrix.name] = weights[f"gain.{matrix.state}"][:, None] * weights[matrix.name]
    return out | {f"gain.{m.state}": torch.ones_like(weights[f"gain.{m.state}"]) for m in readers}


def _identities(weights: Weights, architecture: Architecture) -> Bases:
    eye = torch.eye(architecture.n_embd, dtype=weights["E"].dtype)
    return dict.fromkeys(states_of(architecture), eye)


def _choose(weights: Weights, a: Architecture, analysis: Analysis, remove: Projection) -> tuple[Bases, Weights]:
    """The S of every state, and what each changed W_Q is then."""
    bases = _identities(weights, a)
    forms: Weights = {}
    for group in analysis.groups:
        if group.changed:
            s, form = factor(weights[f"{group.changed[0]}.{LETTER[remove]}"], group.restriction)  # several are one and the same
            bases |= dict.fromkeys(group.states, s)
            forms |= {f"{layer}.{LETTER[remove]}": form for layer in group.changed}
    if analysis.tie is not None:
        first, last = (analysis.groups[i] for i in analysis.tie)
        if first is not last:
            bases |= dict.fromkeys(last.states, _following(bases[first.states[0]], first))
    return bases, forms


def _following(s: Tensor, group: Group) -> Tensor:
    """S^-T; for an orthogonal S that is S itself."""
    return s if group.restriction else torch.linalg.inv(s).T


def factor(w: Tensor, restriction: Restriction) -> tuple[Tensor, Tensor]:
    """W = S W' with an S that the restriction allows and the simplest W': I, or upper triangular; (C, C) each.

    With LayerNorm W = S W' holds up to a multiple of the all-ones direction in the rows, which LayerNorm never lets through.
    """
    if restriction == Restriction.GENERAL:
        return w, torch.eye(len(w), dtype=w.dtype)
    if restriction == Restriction.ORTHOGONAL:
        s, triangle = torch.linalg.qr(w)
        return s, triangle
    assert restriction == Restriction.FIXES_ONES
    return _factor_fixing_ones(w)


def _factor_fixing_ones(w: Tensor) -> tuple[Tensor, Tensor]:
    """QR within the plane that is orthogonal to ones: S 1 = 1, and W' triangular once its last row is cleared.

    N (C-1, C) has orthonormal rows, orthogonal to ones and upper trapezoidal. With N W = S' R, S = N^T S' N + 1 1^T/C
    is orthogonal and fixes ones, and N^T R is W' up to a multiple of ones in each column: of all those, the one with
    an empty last row solves N W' = R by a triangular N, so it is triangular; the last column needs no clearing.
    """
    width = len(w)
    ones = torch.ones(width, 1, dtype=w.dtype)
    plane = torch.linalg.qr(ones, mode="complete").Q[:, 1:].T  # (C-1, C)
    n = torch.linalg.qr(plane).R  # (C-1, C), trapezoidal
    inner, triangle = torch.linalg.qr(n @ w)  # (C-1, C-1), (C-1, C)
    s = n.T @ inner @ n + ones @ ones.T / width
    form = n.T @ triangle
    form[:, :-1] -= form[-1, :-1].clone()
    return s, form.triu()
