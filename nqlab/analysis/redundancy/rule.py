"""The bookkeeping rule of the redundancy argument, stated once: who writes and reads each hidden state, and what S it may carry.

Every hidden state x may be replaced by x S, if the matrices that write it become W S and those that read it S^-1 W.
Three things take freedom away:

- an identity skip adds one state to another: both carry the same S;
- a norm on the read lets only such S through as it commutes with: RMSNorm orthogonal ones, LayerNorm orthogonal ones
  that fix the all-ones direction (gains are folded into the readers first);
- a tied output reads the last state with E^T while E writes the first: S_last = S_first^-T, so S is orthogonal where
  the skips join the two; a final gain between the two cannot be folded and leaves S = I (for gains in general position).

An S that nothing else needs is spent on a query: S = W_Q makes W_Q the identity, its orthogonal QR factor makes it
triangular. From this :func:`analyse` derives everything else. Source: arXiv:2510.23912; the tie is worked out here.
Nothing here imports torch; :mod:`nqlab.analysis.redundancy.transform` does it to weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal

from nqlab.analysis.redundancy.architecture import LETTER, PROJECTIONS, Architecture, Projection, check_choice
from nqlab.analysis.redundancy.sentence import Facts, sentence
from nqlab.analysis.redundancy.structure import joined, matrices, skips_of, states_of
from nqlab.words import _

Verdict = Literal["exact", "orthogonal only", "impossible"]
Form = Literal["I", "triangular", "unchanged"]


class Restriction(IntEnum):
    """Which S a state may carry; each class holds the next, so several restrictions together are their maximum."""

    GENERAL = 0
    ORTHOGONAL = 1
    FIXES_ONES = 2
    FIXED = 3

    @property
    def title(self) -> str:
        """In words."""
        return (_("any invertible"), _("orthogonal"), _("orthogonal, fixing the all-ones direction"), _("none but I"))[self]


NORM_RESTRICTION = {"none": Restriction.GENERAL, "rmsnorm": Restriction.ORTHOGONAL, "layernorm": Restriction.FIXES_ONES}


@dataclass(frozen=True)
class Group:
    """States that share one S. ``layers``: those whose queries read it; ``changed``: those whose W_Q takes ``form``."""

    index: int
    states: tuple[str, ...]
    layers: tuple[int, ...]
    restriction: Restriction
    changed: tuple[int, ...]
    form: Form
    choice: str


@dataclass(frozen=True)
class State:
    """A hidden state: its group, and the matrices around it with what becomes of them."""

    name: str
    title: str
    group: int
    writers: tuple[tuple[str, str], ...]
    readers: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Analysis:
    """What the rule allows. ``removable`` W_Q can become I together, ``triangular`` more can become triangular.

    The verdict is about all layers at once: "exact", every W_Q becomes I; "orthogonal only", every W_Q becomes I or
    triangular, not all I; "impossible", at least one W_Q has no S of its own. It holds for weights in general position.
    ``parameters_saved`` counts entries of W_Q that become fixed; ``skips`` are pairs of states.
    """

    verdict: Verdict
    sentence: str
    groups: tuple[Group, ...]
    states: tuple[State, ...]
    skips: tuple[tuple[str, str], ...]
    tie: tuple[int, int] | None
    removable: int
    triangular: int
    parameters_saved: int

    def record(self) -> dict[str, Any]:
        """The numbers and words, as plain data."""
        return {
            "verdict": self.verdict,
            "sentence": self.sentence,
            "removable": self.removable,
            "triangular": self.triangular,
            "parameters_saved": self.parameters_saved,
        }


def analyse(architecture: Architecture, remove: Projection = "query", layer: int = 0) -> Analysis:
    """Which W_Q (or W_K, W_V) can go, by which changes of basis, for any combination of switches.

    ``layer`` is the one served where several layers share one S but not their W_Q. ValueError for names or layers
    that do not exist.
    """
    check_choice("remove", remove, PROJECTIONS)
    if not 0 <= layer < architecture.n_layer:
        raise ValueError(f"layer {layer} is not there; take 0 to {architecture.n_layer - 1}")
    groups = _groups(architecture, remove, layer)
    removable, triangular = (sum(len(g.changed) for g in groups if g.form == form) for form in ("I", "triangular"))
    done = removable + triangular == architecture.n_layer
    verdict: Verdict = "impossible" if not done else "exact" if not triangular else "orthogonal only"
    return Analysis(
        verdict,
        sentence(_facts(architecture, remove, groups, removable, triangular)),
        groups,
        _states(architecture, groups),
        skips_of(architecture),
        (0, len(groups) - 1) if architecture.tied else None,
        removable,
        triangular,
        _saved(architecture, remove, removable, triangular),
    )


def same_queries(architecture: Architecture, remove: Projection = "query") -> bool:
    """All layers read with one and the same W_Q; gains of different layers folded into a shared one make it differ."""
    return architecture.shared_query and remove == "query" and (architecture.norm == "none" or architecture.gains == "none")


def square(architecture: Architecture, remove: Projection) -> bool:
    """W_K and W_V of grouped-query attention are not square, so they are no S."""
    return remove == "query" or architecture.kv_heads == architecture.n_head


def _groups(a: Architecture, remove: Projection, layer: int) -> tuple[Group, ...]:
    classes = joined(states_of(a), skips_of(a))
    last = len(classes) - 1  # the states are a chain: x_0 is in the first class, x_L in the last
    out = []
    for index, states in enumerate(classes):
        layers = tuple(i for i in range(a.n_layer) if f"x{i}" in states)
        restriction = max(NORM_RESTRICTION[a.norm], _tie_restriction(a, index in (0, last), last == 0))
        changed = _changed(a, remove, layer, layers) if restriction < Restriction.FIXED else ()
        form: Form = "unchanged" if not changed else "triangular" if restriction else "I"
        follows = a.tied and 0 < index == last and restriction < Restriction.FIXED
        out.append(Group(index, states, layers, restriction, changed, form, _choice(form, LETTER[remove], changed, follows)))
    return tuple(out)


def _tie_restriction(a: Architecture, concerned: bool, one_class: bool) -> Restriction:
    """What a tied output adds for the classes of x_0 and x_L, which may be one."""
    if not (a.tied and concerned):
        return Restriction.GENERAL
    return Restriction.FIXED if a.final_gain else Restriction.ORTHOGONAL if one_class else Restriction.GENERAL


def _changed(a: Architecture, remove: Projection, layer: int, layers: tuple[int, ...]) -> tuple[int, ...]:
    """The layers that one S serves: those with the same W_Q, or the one asked for, or the first."""
    if not layers or not square(a, remove):
        return ()
    return layers if same_queries(a, remove) else (layer if layer in layers else layers[0],)


def _choice(form: Form, letter: str, changed: tuple[int, ...], follows: bool) -> str:
    """What S of a group is, in words."""
    if follows:
        return _("the inverse transpose of S0, as the output is tied")
    if not changed:
        return "I"
    text = _("{name} of layer {n}") if form == "I" else _("the orthogonal factor of {name} of layer {n}")
    return text.format(name=f"W_{letter}", n=changed[0])


def _states(a: Architecture, groups: tuple[Group, ...]) -> tuple[State, ...]:
    group_of = {state: group.index for group in groups for state in group.states}
    touching: dict[tuple[str, bool], list[tuple[str, str]]] = {}
    for matrix in matrices(a):
        touching.setdefault((matrix.state, matrix.writes), []).append((matrix.name, matrix.factor(group_of[matrix.state])))
    if a.tied:
        touching[f"x{a.n_layer}", False] = [("Eᵀ", f"S{groups[-1].index}⁻¹ Eᵀ = (E S0)ᵀ")]
    titles = {f"m{i}": _("into the MLP of layer {n}").format(n=i) for i in range(a.n_layer)}
    titles |= {f"x{i}": _("into attention of layer {n}").format(n=i) for i in range(a.n_layer)}
    titles |= {f"x{a.n_layer}": _("into the output")}
    return tuple(
        State(name, titles[name], group_of[name], tuple(touching.get((name, True), ())), tuple(touching.get((name, False), ())))
        for name in states_of(a)
    )


def _saved(a: Architecture, remove: Projection, removable: int, triangular: int) -> int:
    """Entries of the stored W_Q before, less those after; a shared W_Q is stored once unless the gains make it differ."""
    width, shared = a.n_embd, a.shared_query and remove == "query"
    kept = a.n_layer - removable - triangular
    after = triangular * width * (width + 1) // 2 + kept * width**2
    if shared and same_queries(a, remove):
        after //= a.n_layer
    before = width**2 * (1 if shared else a.n_layer)
    return max(0, before - after)


def _facts(a: Architecture, remove: Projection, groups: tuple[Group, ...], removable: int, triangular: int) -> Facts:
    first = groups[0].restriction
    return Facts(
        letter=LETTER[remove],
        n_layer=a.n_layer,
        removable=removable,
        triangular=triangular,
        square=square(a, remove),
        joined=max(len(group.layers) for group in groups) == a.n_layer,
        same=same_queries(a, remove),
        unshared=a.shared_query and remove == "query" and not same_queries(a, remove),
        norm=a.norm,
        tie="fixed" if first == Restriction.FIXED else "orthogonal" if a.tied and first > NORM_RESTRICTION[a.norm] else None,
    )
