"""One sentence, in the reader's language, on why a W_Q can go or not, from the facts that the rule found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nqlab.words import _


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
        text = _("With grouped queries {name} is not square, so it has no inverse and cannot be S: only W_Q can go.")
        return text.format(name=_name(facts))
    causes = [_sharing(facts), _normed(facts) if facts.tie != "fixed" or not facts.joined else "", _tied(facts), _gains(facts)]
    text = _(", and ").join(cause for cause in causes if cause)
    return _("{causes}: {outcome}.").format(causes=text[:1].upper() + text[1:], outcome=_outcome(facts))


def _name(facts: Facts) -> str:
    return f"W_{facts.letter}"


def _normed(facts: Facts) -> str:
    return {
        "none": "",
        "rmsnorm": _("RMSNorm passes only an orthogonal S"),
        "layernorm": _("LayerNorm passes only an orthogonal S that fixes the all-ones direction"),
    }[facts.norm]


def _sharing(facts: Facts) -> str:
    if facts.n_layer == 1:
        return _("one layer needs one S")
    if not facts.joined:
        return _("no unbroken path of skips joins two layers, so each has an S of its own")
    if facts.same:
        return _("the two skips join all layers, so they share one S, but they also share one {name}").format(name=_name(facts))
    return _("the two skips join all layers, so they share one S")


def _tied(facts: Facts) -> str:
    if facts.tie is None:
        return ""
    if facts.tie == "orthogonal":
        return _("the tied output needs S to be orthogonal")
    if not facts.joined and facts.n_layer > 1:
        return _("the final gain between E and its transpose pins S to I in the first layer")
    return _("the final gain between E and its transpose pins S to I")


def _gains(facts: Facts) -> str:
    if not facts.unshared or facts.n_layer == 1:
        return ""
    return _("each layer's gain, folded in, makes the shared {name} another").format(name=_name(facts))


def _outcome(facts: Facts) -> str:
    name, n = _name(facts), facts.n_layer
    all_of = name if n == 1 or facts.same else _("all {n} {name}").format(n=n, name=name)
    if facts.removable == n:
        text = _("{all} can become I, exactly")
    elif facts.removable:
        text = _("only {removable} of {n} {name} can become I")
    elif facts.triangular == n:
        text = _("{all} can become triangular, exactly, but {name} = I would change the function")
    elif facts.triangular:
        text = _("only {triangular} of {n} {name} can become triangular, and {name} = I is a restriction, not a rewriting")
    else:
        text = _("{name} = I is a restriction, not a rewriting")
    return text.format(all=all_of, n=n, name=name, removable=facts.removable, triangular=facts.triangular)
