"""Who writes and who reads each hidden state of a transformer, and which states the skips join.

Hidden states are named x0, m0, x1, m1, ..., x_L: what attention of layer 0 reads, what its MLP reads, and so on to what
the output reads. Weights are named as in :mod:`nqlab.analysis.redundancy.small`. Nothing here imports torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from nqlab.analysis.redundancy.architecture import Architecture


@dataclass(frozen=True)
class Matrix:
    """A weight that touches a hidden state. Names are those of the weights: ``E``, ``P``, ``0.Q`` ... ``3.B``, ``U``."""

    name: str
    state: str
    writes: bool

    def factor(self, group: int) -> str:
        """What becomes of it when the state carries S_group."""
        return f"{self.name} S{group}" if self.writes else f"S{group}⁻¹ {self.name}"


def states_of(architecture: Architecture) -> tuple[str, ...]:
    """x0, m0, x1, m1, ..., x_L: what attention reads, what the MLP reads, ..., what the output reads."""
    pairs = [name for layer in range(architecture.n_layer) for name in (f"x{layer}", f"m{layer}")]
    return (*pairs, f"x{architecture.n_layer}")


def matrices(architecture: Architecture) -> tuple[Matrix, ...]:
    """Every weight that touches a hidden state, and how. Biases of the writing matrices write too; the others see none."""
    a, last = architecture, f"x{architecture.n_layer}"
    out = [Matrix("E", "x0", True)] + ([Matrix("P", "x0", True)] if a.positions == "learned" else [])
    for layer in range(a.n_layer):
        x, m, following = f"x{layer}", f"m{layer}", f"x{layer + 1}"
        out += [Matrix(f"{layer}.{letter}", x, False) for letter in "QKV"] + [Matrix(f"{layer}.O", m, True)]
        out += [Matrix(f"{layer}.A", m, False), Matrix(f"{layer}.B", following, True)]
        out += [Matrix(f"{layer}.b_O", m, True), Matrix(f"{layer}.b_B", following, True)] if a.biases else []
    return tuple(out) if a.tied else (*out, Matrix("U", last, False))


def skips_of(architecture: Architecture) -> tuple[tuple[str, str], ...]:
    """The pairs of states that an identity skip joins."""
    out: list[tuple[str, str]] = []
    for layer in range(architecture.n_layer):
        out += [(f"x{layer}", f"m{layer}")] if architecture.attention_skip else []
        out += [(f"m{layer}", f"x{layer + 1}")] if architecture.mlp_skip else []
    return tuple(out)


def joined(names: tuple[str, ...], pairs: tuple[tuple[str, str], ...]) -> list[tuple[str, ...]]:
    """Union-find: the classes of ``names`` under ``pairs``, in the order of their first members."""
    parent = {name: name for name in names}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = name = parent[parent[name]]
        return name

    for a, b in pairs:
        parent[root(b)] = root(a)
    classes: dict[str, list[str]] = {}
    for name in names:
        classes.setdefault(root(name), []).append(name)
    return [tuple(members) for members in classes.values()]
