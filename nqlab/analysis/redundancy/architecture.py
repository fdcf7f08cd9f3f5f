"""The switches of a small transformer that decide which changes of basis it allows. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import ValidationError

from nqlab import slots
from nqlab.config import ModelConfig, explain

Skips = Literal["none", "attention", "mlp", "both"]
Norm = Literal["none", "rmsnorm", "layernorm"]
Projection = Literal["query", "key", "value"]

CHOICES: dict[str, tuple[str, ...]] = {
    "skips": ("none", "attention", "mlp", "both"),
    "norm": ("none", "rmsnorm", "layernorm"),
    "gains": ("all", "inner", "none"),
    "positions": ("learned", "rope"),
    "activation": tuple(slots.ACTIVATION),
}
PROJECTIONS: tuple[Projection, ...] = ("query", "key", "value")
LETTER: dict[Projection, str] = {"query": "Q", "key": "K", "value": "V"}


@dataclass(frozen=True)
class Architecture:
    """A decoder-only transformer, described as far as the algebra needs it. C = n_embd, H = n_head, D = C/H.

    ``skips`` are the identity skips, around attention, around the MLP, or both. ``norm`` stands before each block
    and before the output (pre-norm). ``gains``: which norms have a learned gain, "inner" meaning all but the final
    one. ``shared_query``: one W_Q for all layers. ``n_kv_head`` below ``n_head`` is grouped-query attention.

    Raises:
        ValueError: a value outside its choices, or sizes that do not fit, with the nearest ones that do.
    """

    n_embd: int = 16
    n_head: int = 4
    n_layer: int = 4
    n_kv_head: int | None = None
    vocab_size: int = 32
    block_size: int = 12
    skips: Skips = "none"
    norm: Norm = "none"
    gains: Literal["all", "inner", "none"] = "all"
    tied: bool = False
    shared_query: bool = False
    positions: Literal["learned", "rope"] = "learned"
    biases: bool = False
    qk_norm: bool = False
    activation: str = "gelu"

    def __post_init__(self) -> None:
        for field, allowed in CHOICES.items():
            check_choice(field, getattr(self, field), allowed)
        try:
            ModelConfig(n_layer=self.n_layer, n_head=self.n_head, n_embd=self.n_embd, block_size=self.block_size)
        except ValidationError as error:
            raise ValueError(explain(error)) from None
        if self.vocab_size < 1:
            raise ValueError(f"vocab_size {self.vocab_size} must be at least 1")
        if self.kv_heads < 1 or self.n_head % self.kv_heads:
            divisors = ", ".join(str(h) for h in range(1, self.n_head + 1) if self.n_head % h == 0)
            raise ValueError(f"n_kv_head {self.kv_heads} does not divide n_head {self.n_head}; take one of {divisors}")
        if self.positions == "rope" and self.head_size % 2:
            raise ValueError(f"rope turns pairs, but the head size {self.head_size} is odd; take positions 'learned' or an even head size")

    @property
    def head_size(self) -> int:
        """D = C/H."""
        return self.n_embd // self.n_head

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.n_head if self.n_kv_head is None else self.n_kv_head

    @property
    def hidden(self) -> int:
        """Hidden width of the MLP, 4C."""
        return 4 * self.n_embd

    @property
    def attention_skip(self) -> bool:
        """An identity skip around attention."""
        return self.skips in ("attention", "both")

    @property
    def mlp_skip(self) -> bool:
        """An identity skip around the MLP."""
        return self.skips in ("mlp", "both")

    @property
    def final_gain(self) -> bool:
        """The norm before the output has a learned gain."""
        return self.norm != "none" and self.gains == "all"


def of_config(config: ModelConfig, vocab_size: int) -> Architecture:
    """The architecture of one of the lab's own models: pre-norm, both skips, no biases.

    ValueError for a norm, feed-forward, key or value that the rule does not know.
    """
    check_choice("norm", config.norm, CHOICES["norm"])
    check_choice("feedforward", config.feedforward, ("dense",))
    for projection in ("key", "value"):
        check_choice(projection, getattr(config, projection), ("linear",))
    return Architecture(
        n_embd=config.n_embd,
        n_head=config.n_head,
        n_layer=config.n_layer,
        vocab_size=vocab_size,
        block_size=config.block_size,
        skips="both",
        norm=config.norm,  # type: ignore[arg-type]  # checked above
        tied=config.tied,
        positions=config.position,  # type: ignore[arg-type]  # the same names
        qk_norm=config.qk_norm,
        activation=config.activation,
    )


def check_choice(field: str, value: object, allowed: tuple[object, ...]) -> None:
    """ValueError that lists what is allowed."""
    if value not in allowed:
        raise ValueError(f"{field} {value!r} is unknown; choose one of {', '.join(map(str, allowed))}")
