"""The small transformer that the algebra is checked on: a dictionary of explicit weights and a function of them.

Norms, activations and the scaled dot product are the lab's own; what is new is that every matrix lies open and every
skip, norm, bias and tie is a switch. Row vectors: q = x W_Q, W is (in, out). Names: ``E`` (V, C) and ``P`` (T, C)
embeddings; per layer ``0.Q`` (C, C), ``0.K`` and ``0.V`` (C, D H_kv), ``0.O`` (C, C), ``0.A`` (C, 4C), ``0.B``
(4C, C); ``U`` (C, V) unless tied; biases ``0.b_Q`` and so on; gains ``gain.STATE`` of the norm that reads a state.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from nqlab import slots
from nqlab.analysis.redundancy.architecture import Architecture
from nqlab.analysis.redundancy.structure import states_of
from nqlab.model.attention import QK_EPS
from nqlab.model.gpt import keyed_generator
from nqlab.model.position import RotaryPositions

Weights = dict[str, Tensor]
DTYPES = {"float64": torch.float64, "float32": torch.float32}
CONDITION = 200.0
QUERY_SCALE = 2.0


def shapes(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """Name and shape of every weight."""
    a = architecture
    width, narrow = a.n_embd, a.kv_heads * a.head_size
    out: dict[str, tuple[int, ...]] = {"E": (a.vocab_size, width)}
    out |= {"P": (a.block_size, width)} if a.positions == "learned" else {}
    for layer in range(a.n_layer):
        sizes = {"Q": (width, width), "K": (width, narrow), "V": (width, narrow), "O": (width, width)}
        sizes |= {"A": (width, a.hidden), "B": (a.hidden, width)}
        out |= {f"{layer}.{letter}": size for letter, size in sizes.items()}
        out |= {f"{layer}.b_{letter}": size[1:] for letter, size in sizes.items()} if a.biases else {}
    out |= {} if a.tied else {"U": (width, a.vocab_size)}
    return out | ({f"gain.{state}": (width,) for state in states_of(a)} if a.norm != "none" else {})


def draw(architecture: Architecture, seed: int = 0, condition: float = CONDITION, dtype: str | torch.dtype = "float64") -> Weights:
    """Random weights, each from a stream keyed by (seed, name), so that architectures share what they have in common.

    Matrices are N(0, 1/fan-in), those that write across a skip smaller by sqrt(n_layer); W_Q has exactly the given
    condition number. ValueError for a condition number below 1 or a number format other than float32 and float64.
    """
    if not condition >= 1:
        raise ValueError(f"condition {condition} is no condition number; take 1 (orthogonal) or more")
    kind = number_format(dtype)
    return {name: _tensor(architecture, name, shape, seed, condition).to(kind) for name, shape in shapes(architecture).items()}


def number_format(dtype: str | torch.dtype) -> torch.dtype:
    """The torch dtype of a name; ValueError names the allowed ones."""
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise ValueError(f"dtype {name!r} is not for this algebra; choose one of {', '.join(DTYPES)}")
    return DTYPES[name]


def _tensor(a: Architecture, name: str, shape: tuple[int, ...], seed: int, condition: float) -> Tensor:
    letter = name.rsplit(".", 1)[-1]
    generator = keyed_generator(seed, "redundancy", letter if letter == "Q" and a.shared_query else name)
    z = torch.randn(shape, generator=generator, dtype=torch.float64)
    if name.startswith("gain"):
        return torch.ones_like(z) if a.gains == "none" or (a.gains == "inner" and name == f"gain.x{a.n_layer}") else torch.exp(z / 4)
    if letter in ("E", "P"):
        return z
    if letter.startswith("b_"):
        return z / 2
    if letter == "Q":
        return conditioned(z, condition) * QUERY_SCALE
    branches = 1 + (letter == "O" and a.attention_skip) * (a.n_layer - 1) + (letter == "B" and a.mlp_skip) * (a.n_layer - 1)
    if letter == "B":
        z = z - z.mean(dim=0)  # GELU's mean is positive: left in, it makes all positions alike after a few layers without skips
    return z / math.sqrt(shape[0] * branches)


def conditioned(z: Tensor, condition: float) -> Tensor:
    """The square matrix with z's singular vectors and evenly spaced singular values of the given condition number.

    Its Frobenius norm is sqrt(C), that of an orthogonal matrix.
    """
    left, _, right = torch.linalg.svd(z)
    values = torch.linspace(1.0, 1.0 / condition, len(z), dtype=z.dtype)
    return left * (values * math.sqrt(len(z)) / values.norm()) @ right


def token_ids(architecture: Architecture, seed: int = 0, batch: int = 4) -> Tensor:
    """Random ids to compare two sets of weights on, (B, T) with T = block_size."""
    size = (batch, architecture.block_size)
    return torch.randint(architecture.vocab_size, size, generator=keyed_generator(seed, "redundancy", "ids"))


def forward(weights: Weights, architecture: Architecture, ids: Tensor) -> Tensor:
    """Token ids (B, T) -> logits (B, T, V)."""
    a, w = architecture, weights
    x = w["E"][ids]  # (B, T, C)
    if a.positions == "learned":
        x = x + w["P"][: ids.shape[1]]
    for layer in range(a.n_layer):
        y = attention(w, a, layer, normed(w, a, f"x{layer}", x))
        x = x + y if a.attention_skip else y
        y = mlp(w, a, layer, normed(w, a, f"m{layer}", x))
        x = x + y if a.mlp_skip else y
    x = normed(w, a, f"x{a.n_layer}", x)
    return x @ (w["E"].T if a.tied else w["U"])  # (B, T, V)


def normed(weights: Weights, architecture: Architecture, state: str, x: Tensor) -> Tensor:
    """What the readers of a state see: the lab's norm with this state's gain, or the state itself."""
    if architecture.norm == "none":
        return x
    norm = slots.load("norm", architecture.norm)(architecture.n_embd)
    return functional_call(norm, {"weight": weights[f"gain.{state}"]}, (x,))


def mlp(weights: Weights, architecture: Architecture, layer: int, x: Tensor) -> Tensor:
    """act(x A + b_A) B + b_B, (B, T, C) -> (B, T, C)."""
    act = slots.load("activation", architecture.activation)()
    return project(weights, layer, "B", act(project(weights, layer, "A", x)))


def project(weights: Weights, layer: int, letter: str, x: Tensor) -> Tensor:
    """x W, plus the bias if there is one."""
    y = x @ weights[f"{layer}.{letter}"]
    bias = weights.get(f"{layer}.b_{letter}")
    return y if bias is None else y + bias


def attention(weights: Weights, architecture: Architecture, layer: int, x: Tensor) -> Tensor:
    """Causal attention with as many key and value heads as the architecture says, (B, T, C) -> (B, T, C)."""
    q, k, v = (heads(project(weights, layer, letter, x), architecture.head_size) for letter in "QKV")
    if architecture.qk_norm:
        q, k = (F.rms_norm(z, z.shape[-1:], None, QK_EPS) for z in (q, k))
    if architecture.positions == "rope":
        q, k = RotaryPositions.turned(q, k, 0)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=architecture.kv_heads < architecture.n_head)
    return project(weights, layer, "O", y.transpose(1, 2).flatten(2))  # (B, T, C)


def heads(z: Tensor, head_size: int) -> Tensor:
    """(B, T, H D) -> (B, H, T, D)."""
    return z.unflatten(-1, (-1, head_size)).transpose(1, 2)


def relative_error(found: Tensor, expected: Tensor) -> float:
    """||found - expected|| / ||expected||, Frobenius norms, computed in float64."""
    found, expected = found.detach().double(), expected.detach().double()
    return float((found - expected).norm() / expected.norm())
