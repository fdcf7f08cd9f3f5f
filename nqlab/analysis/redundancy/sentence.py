"""One sentence on why a W_Q can go or not, from the facts that the rule found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NORM = {
    "none": "",
    "rmsnorm": "RMSNorm passes only an orthogonal S",
    "layernorm": "LayerNorm passes only an orthogonal S that fixes the all-ones direction",
}
TIE = {"fixed": "the final gain between E and its transpose pins S to I", "orthogonal": "the tied output needs S to be orthogonal"}


@dataclass(frozen=True)
class Facts:
    """What decides. ``joined``: the skips join all layers; ``same``: all layers read with one W_Q; ``unshared``: they
    would, but for their gains; ``tie``: what the tie adds to the norm's restriction."""

    letter: str
    n_layer: int
    removable: int
    triangular: int
    square: bool
    joined: bool
    same: bool
    unshared: bool
    norm: str
    tie: Literal["fixed", "orthogonal"] | None


def sentence(facts: Facts) -> str:
    """Cause and outcome, "cause, and cause: outcome."."""
    if not facts.square:
        return f"With grouped queries W_{facts.letter} is not square, so it has no inverse and cannot be S: only W_Q can go."
    causes = [_sharing(facts), NORM[facts.norm] if facts.tie != "fixed" or not facts.joined else "", _tied(facts), _gains(facts)]
    text = ", and ".join(cause for cause in causes if cause)
    return f"{text[:1].upper()}{text[1:]}: {_outcome(facts)}."


def _sharing(facts: Facts) -> str:
    if facts.n_layer == 1:
        return "one layer needs one S"
    if not facts.joined:
        return "no unbroken path of skips joins two layers, so each has an S of its own"
    one = "the two skips join all layers, so they share one S"
    return f"{one}, but they also share one W_{facts.letter}" if facts.same else one


def _tied(facts: Facts) -> str:
    if facts.tie is None:
        return ""
    return TIE[facts.tie] + (" in the first layer" if facts.tie == "fixed" and not facts.joined and facts.n_layer > 1 else "")


def _gains(facts: Facts) -> str:
    return f"each layer's gain, folded in, makes the shared W_{facts.letter} another" if facts.unshared and facts.n_layer > 1 else ""


def _outcome(facts: Facts) -> str:
    name, n = f"W_{facts.letter}", facts.n_layer
    all_of = name if n == 1 or facts.same else f"all {n} {name}"
    if facts.removable == n:
        return f"{all_of} can become I, exactly"
    if facts.removable:
        return f"only {facts.removable} of {n} {name} can become I"
    if facts.triangular == n:
        return f"{all_of} can become triangular, exactly, but {name} = I would change the function"
    if facts.triangular:
        return f"only {facts.triangular} of {n} {name} can become triangular, and {name} = I is a restriction, not a rewriting"
    return f"{name} = I is a restriction, not a rewriting"
