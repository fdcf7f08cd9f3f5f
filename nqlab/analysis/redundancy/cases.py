"""The ten cases: five rewritings that are exact, three that look like them and are wrong, and what is left of W_Q = I.

Cases 1 to 5 and 8 are what the rule of :mod:`nqlab.analysis.redundancy.rule` allows; 6, 7 and 9 break it on purpose;
10 is the gauge of a head. Each compares the outputs of random weights before and after. Source: arXiv:2510.23912.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from nqlab.analysis.redundancy.architecture import Architecture
from nqlab.analysis.redundancy.gauge import gauge_weights
from nqlab.analysis.redundancy.rule import analyse
from nqlab.analysis.redundancy.small import CONDITION, Weights, draw, forward, number_format, relative_error, token_ids
from nqlab.analysis.redundancy.transform import apply, apply_anyway

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-3}
LIMITS = {"n_embd": 512, "n_layer": 12}
Way = Literal["rule", "per layer anyway", "one S anyway", "gauge"]


@dataclass(frozen=True)
class Case:
    """A line of the table: which architecture, what is done to it, and what W_Q is afterwards.

    ``condition`` is W_Q's condition number; case 9 takes a mild one, so that no one blames the inverse.
    """

    title: str
    transformed: str
    w_q: str
    way: Way
    architecture: dict[str, Any] = field(default_factory=dict)
    condition: float = CONDITION


_BOTH = {"skips": "both"}
CASES: dict[int, Case] = {
    1: Case("no skips, no norm", "S = W_Q of each layer; E, P or B before it times S; K, V times S⁻¹", "I in every layer", "rule"),
    2: Case("skip around attention only", "case 1, and O times S, A times S⁻¹", "I in every layer", "rule", {"skips": "attention"}),
    3: Case(
        "skip around the MLP only", "case 1, and with the next layer's S: O and B times S, A times S⁻¹", "I in every layer", "rule",
        {"skips": "mlp"},
    ),
    4: Case(
        "both skips, no norm, one S for all", "E, P, O, B times S; Q, K, V, A, U times S⁻¹", "I in the chosen layer only", "rule", _BOTH
    ),
    5: Case("both skips, one W_Q shared by all layers", "case 4", "I in every layer", "rule", _BOTH | {"shared_query": True}),
    6: Case("both skips, a different S per layer", "case 1 applied anyway", "I, at the wrong place", "per layer anyway", _BOTH),
    7: Case("pre-RMSNorm, no skips, S = W_Q", "case 1 applied anyway", "I, at the wrong place", "per layer anyway", {"norm": "rmsnorm"}),
    8: Case(
        "pre-RMSNorm, no skips, S orthogonal", "gains folded; case 1 with the orthogonal QR factor of W_Q", "triangular in every layer",
        "rule", {"norm": "rmsnorm"},
    ),
    9: Case(
        "pre-LayerNorm, both skips, one general S", "case 4 applied anyway", "I, at the wrong place", "one S anyway",
        _BOTH | {"norm": "layernorm"}, condition=5.0,
    ),
    10: Case(
        "pre-LayerNorm, both skips, tied: the gauge of a head", "Q_h M, K_h M⁻ᵀ, V_h M, M⁻¹ O_h; M⁻¹ a D by D block of Q_h, of V_h",
        "a block of each head is I", "gauge", _BOTH | {"norm": "layernorm", "tied": True},
    ),
}  # fmt: skip
GAUGE_WHY = (
    "Scores depend on Q_h K_hᵀ alone and outputs on V_h O_h, so each head has a basis of its own, whatever the norm, the skips or the tie."
)


@dataclass(frozen=True)
class CaseResult:
    """One case computed: the relative error of the outputs, and whether it is only rounding."""

    case: int
    title: str
    transformed: str
    w_q: str
    error: float
    exact: bool
    expected_exact: bool
    parameters_saved: int
    why: str

    def record(self) -> dict[str, Any]:
        """As plain data, one row of a table."""
        return {
            "case": self.case,
            "title": self.title,
            "transformed": self.transformed,
            "w_q": self.w_q,
            "error": self.error,
            "exact": self.exact,
            "expected": self.expected_exact,
            "parameters_saved": self.parameters_saved,
            "why": self.why,
        }


def run_case(
    number: int, n_embd: int = 16, n_head: int = 4, n_layer: int = 4, seed: int = 0, dtype: str | torch.dtype = "float64"
) -> CaseResult:
    """Compute one case on random weights of this size.

    "exact" means a relative error below 1e-10 in float64, 1e-3 in float32. ``parameters_saved`` is 0 where the
    function is not preserved. ValueError for a case, size, seed or number format that is not there.
    """
    if number not in CASES:
        raise ValueError(f"case {number} is not there; choose 1 to {len(CASES)}")
    for name, value in (("n_embd", n_embd), ("n_layer", n_layer)):
        if value > LIMITS[name]:
            raise ValueError(f"{name} {value} is more than this demonstration computes; take at most {LIMITS[name]}")
    case, kind = CASES[number], number_format(dtype)
    architecture = architecture_of(number, n_embd, n_head, n_layer)
    weights, ids = draw(architecture, seed, case.condition, kind), token_ids(architecture, seed)
    new, saved = _transform(case.way, weights, architecture)
    error = relative_error(forward(new, architecture, ids), forward(weights, architecture, ids))
    why = GAUGE_WHY if case.way == "gauge" else analyse(architecture).sentence
    expected = case.way in ("rule", "gauge")
    return CaseResult(number, case.title, case.transformed, case.w_q, error, error < TOLERANCE[kind], expected, saved, why)


def run_cases(n_embd: int = 16, n_head: int = 4, n_layer: int = 4, seed: int = 0, dtype: str | torch.dtype = "float64") -> list[CaseResult]:
    """All ten, in order; as :func:`run_case`."""
    return [run_case(number, n_embd, n_head, n_layer, seed, dtype) for number in CASES]


def architecture_of(number: int, n_embd: int = 16, n_head: int = 4, n_layer: int = 4) -> Architecture:
    """The architecture a case is computed on."""
    return Architecture(n_embd=n_embd, n_head=n_head, n_layer=n_layer, vocab_size=2 * n_embd, **CASES[number].architecture)


def _transform(way: Way, weights: Weights, architecture: Architecture) -> tuple[Weights, int]:
    if way == "gauge":
        return gauge_weights(weights, architecture)
    if way == "rule":
        done = apply(weights, architecture)
        return done.weights, done.analysis.parameters_saved
    return apply_anyway(weights, architecture, "layer" if way == "per layer anyway" else "global"), 0
