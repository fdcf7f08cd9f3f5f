"""The registry: what may stand in each slot of the transformer, one line an entry.

Nothing here imports torch, so that configurations can be read and checked at once; :func:`load` brings the
class in when a model is built. An entry declares the options it reads (fields of ``ModelConfig``) together with
their defaults as functions of C = n_embd: a field that no chosen entry declares is not part of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

Default = Callable[[int], Any]
Check = Callable[[Any], str | None]  # a resolved ModelConfig -> what does not fit, in words


@dataclass(frozen=True)
class Entry:
    """One registry line.

    ``target`` is ``"module:Class"``; ``title`` is what people read; ``formula`` is in the notation of the papers;
    ``source`` is the publication (or "nqlab" where the entry is ours); ``options`` maps each field of
    ``ModelConfig`` that the class reads to its default, a function of C; ``check`` says what of a configuration does not
    go with the entry, if anything.
    """

    target: str
    title: str
    formula: str
    source: str
    options: Mapping[str, Default] = field(default_factory=dict)
    check: Check = lambda config: None


_P26 = "Karbevski 2026, arXiv:2603.13381"
_P25 = "Karbevski & Mijoski 2025, arXiv:2510.23912"
_ZS19 = "Zhang & Sennrich 2019, arXiv:1910.07467"
_GEM = "Krause 2026, arXiv:2604.21677"
_HALF: Mapping[str, Default] = {"query_scale": lambda _: 0.5}
_BOTTLENECK: dict[str, Default] = {
    "query_scale": lambda _: 0.5,
    "bottleneck": lambda c: c // 2,
    "query_output_gain": lambda _: 1.0,
}


def _wide_enough(config: Any) -> str | None:
    n = config.query_experts
    least = n + (n + 1) // 2 if n > 1 else 1  # a hidden unit each, and what pays for the router
    if config.bottleneck >= least:
        return None
    return f"bottleneck {config.bottleneck} is too narrow for query_experts {n}, which share it; take bottleneck {least} or more"


QUERY: dict[str, Entry] = {
    "linear": Entry(
        "nqlab.model.query:LinearQuery",
        "linear (baseline)",
        "q = x W_Q",
        "Vaswani et al. 2017, arXiv:1706.03762",
        {"query_scale": lambda _: 1.0},
    ),
    "nonlinear": Entry(
        "nqlab.model.query:NonlinearQuery", "nonlinear", "q = (x + f(x))/2, f(x) = LN(GELU(RMSNorm(x) W_1) W_2)", _P26, _BOTTLENECK
    ),
    "identity": Entry("nqlab.model.query:IdentityQuery", "identity", "q = x/2", _P25, _HALF),
    "residual_linear": Entry("nqlab.model.query:ResidualLinearQuery", "residual linear", "q = (x + x W_Q)/2", _P26, _HALF),
    "bottleneck_linear": Entry(
        "nqlab.model.query:BottleneckLinearQuery",
        "bottleneck linear (no GELU)",
        "q = (x + g(x))/2, g = f without the GELU",
        "nqlab: the control that isolates the nonlinearity",
        _BOTTLENECK,
    ),
    "routed": Entry(
        "nqlab.model.query:RoutedQuery",
        "routed (mixture of nonlinear)",
        "q = (x + sum_i p_i f_i(x))/2, p = softmax(x W_r), the f_i together as large as f",
        f"nqlab, after {_P26} and Switch's router, arXiv:2101.03961",
        _BOTTLENECK | {"query_experts": lambda _: 2},
        _wide_enough,
    ),
}

NORM: dict[str, Entry] = {
    "layernorm": Entry("nqlab.model.norm:LayerNorm", "LayerNorm", "g (x - mean x)/sqrt(var x + eps)", "Ba et al. 2016, arXiv:1607.06450"),
    "rmsnorm": Entry("nqlab.model.norm:RMSNorm", "RMSNorm", "g x/sqrt(mean x^2 + eps)", _ZS19),
    "prmsnorm": Entry("nqlab.model.norm:PartialRMSNorm", "pRMSNorm (6.25 %)", "g x/sqrt(mean x_i^2 + eps), the mean over i <= C/16", _ZS19),
    "dyt": Entry("nqlab.model.norm:DyT", "DyT", "g tanh(a x) + b", "Zhu et al. 2025, arXiv:2503.10622"),
    "dyisru": Entry("nqlab.model.norm:DyISRU", "DyISRU", "sqrt(C) x/sqrt(B + x^2)", "Stollenwerk 2025, arXiv:2503.21708"),
    "derf": Entry("nqlab.model.norm:Derf", "Derf", "g erf(a x + s) + b", "Chen et al. 2025, arXiv:2512.10938"),
    "none": Entry("nqlab.model.norm:NoNorm", "no norm", "x", "nqlab: what the norms are worth"),
}

ACTIVATION: dict[str, Entry] = {
    "gelu": Entry("nqlab.model.activation:GELU", "GELU (erf)", "z Phi(z)", "Hendrycks & Gimpel 2016, arXiv:1606.08415"),
    "gelu_tanh": Entry(
        "nqlab.model.activation:TanhGELU",
        "GELU (tanh)",
        "z/2 (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3)))",
        "Hendrycks & Gimpel 2016, arXiv:1606.08415",
    ),
    "relu": Entry("nqlab.model.activation:ReLU", "ReLU", "max(z, 0)", "Nair & Hinton 2010"),
    "relu2": Entry("nqlab.model.activation:SquaredReLU", "ReLU^2", "max(z, 0)^2", "So et al. 2021, arXiv:2109.08668"),
    "silu": Entry("nqlab.model.activation:SiLU", "SiLU", "z/(1 + exp(-z))", "Elfwing et al. 2017, arXiv:1702.03118"),
    "gem1": Entry("nqlab.model.activation:GEM1", "GEM (N = 1)", "z^3/(1 + z^2) for z > 0, else 0", _GEM),
    "gem2": Entry("nqlab.model.activation:GEM2", "GEM (N = 2)", "z^5/(1 + z^4) for z > 0, else 0", _GEM),
    "egem": Entry(
        "nqlab.model.activation:EGEM", "E-GEM (reconstruction)", "z^5/(e + z^4) for z > 0, else 0; e = 1e-4", f"{_GEM}: from its abstract"
    ),
}


def _experts(config: Any) -> str | None:
    if config.top_k > config.n_experts:
        return f"top_k {config.top_k} experts cannot be chosen among n_experts {config.n_experts}; take top_k {config.n_experts} or fewer"
    if rest := config.ffn_hidden % config.top_k:
        below = config.ffn_hidden - rest
        widths = " or ".join(str(m) for m in (below, below + config.top_k) if m)
        return f"ffn_hidden {config.ffn_hidden} is not a multiple of top_k {config.top_k}, which share it; take {widths}"
    return None


FEEDFORWARD: dict[str, Entry] = {
    "dense": Entry(
        "nqlab.model.feedforward:Dense",
        "dense MLP",
        "act(x W_in) W_out",
        "Vaswani et al. 2017, arXiv:1706.03762",
        {"ffn_hidden": lambda c: 4 * c},
    ),
    "moe": Entry(
        "nqlab.model.experts:MixtureOfExperts",
        "mixture of experts (active parameters as the dense MLP)",
        "sum of p_i E_i(x) over the k largest p_i of n, p = softmax(x W_r), E_i(x) = act(x W_in) W_out",
        "Fedus et al. 2021, arXiv:2101.03961; z-loss: Zoph et al. 2022, arXiv:2202.08906",
        {"ffn_hidden": lambda c: 4 * c, "n_experts": lambda _: 4, "top_k": lambda _: 1},
        _experts,
    ),
}


def _projection(letter: str, what: str) -> dict[str, Entry]:
    """The entries of the key slot, or of the value slot."""
    return {
        "linear": Entry(
            "nqlab.model.keyvalue:LinearProjection",
            f"linear {what}",
            f"{letter} = x W_{letter.upper()}",
            "Vaswani et al. 2017, arXiv:1706.03762",
        ),
        "nonlinear": Entry(
            "nqlab.model.keyvalue:NonlinearProjection",
            f"nonlinear {what}",
            f"{letter} = (x + f(x))/2, f as in the nonlinear query",
            f"nqlab, after {_P26}, which leaves it to future work",
            {"bottleneck": _BOTTLENECK["bottleneck"]},
        ),
    }


KEY, VALUE = _projection("k", "key"), _projection("v", "value")


def _even_heads(config: Any) -> str | None:
    if config.head_size % 2 == 0:
        return None
    pair = 2 * config.n_head
    below = config.n_embd // pair * pair
    widths = " or ".join(str(c) for c in (below, below + pair) if c)
    sizes = f"n_embd {config.n_embd} over n_head {config.n_head} is {config.head_size}"
    return f"position 'rope' turns pairs of channels, but {sizes}, which is odd; take n_embd {widths}, or position 'learned'"


POSITION: dict[str, Entry] = {
    "learned": Entry("nqlab.model.position:LearnedPositions", "learned positions", "x = E[id] + P[t]", "Radford et al. 2019 (GPT-2)"),
    "rope": Entry(
        "nqlab.model.position:RotaryPositions",
        "rotary positions (RoPE)",
        "pair i of q and k turned by t 10000^(-2i/D)",
        "Su et al. 2021, arXiv:2104.09864",
        check=_even_heads,
    ),
}

SLOTS: dict[str, dict[str, Entry]] = {
    "query": QUERY,
    "key": KEY,
    "value": VALUE,
    "position": POSITION,
    "norm": NORM,
    "activation": ACTIVATION,
    "feedforward": FEEDFORWARD,
}


def entry(slot: str, name: str) -> Entry:
    """The registry line of ``name`` in ``slot``; ValueError names what is allowed."""
    entries = SLOTS[slot]
    if name not in entries:
        raise ValueError(f"{slot} {name!r} is unknown; choose one of {', '.join(entries)}")
    return entries[name]


def load(slot: str, name: str) -> Any:
    """The class behind an entry (imports torch)."""
    module, _, cls = entry(slot, name).target.partition(":")
    return getattr(import_module(module), cls)
