"""The feed-forward slot: (B, T, C) -> (B, T, C), applied to each position on its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from nqlab import slots
from nqlab.config import ModelConfig


class Feedforward(nn.Module, ABC):
    """What every entry of the feed-forward slot has.

    A forward in training may leave two things: ``auxiliary``, a loss of its own, which the training loop adds to the
    model's and does not report; and ``load``, (n,), the share of the work that each of n experts got. ``no_graph`` is why
    an update with the entry cannot be compiled, if it can't.
    """

    auxiliary: Tensor | None = None
    load: Tensor | None = None
    no_graph: ClassVar[str] = ""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""

    @staticmethod
    @abstractmethod
    def count(config: ModelConfig) -> int:
        """Learned numbers."""

    @staticmethod
    @abstractmethod
    def flops(config: ModelConfig) -> int:
        """Matrix FLOPs per token, forward."""


class Dense(Feedforward):
    """act(x W_in) W_out with hidden width m = ffn_hidden, no biases."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden = _hidden(config)
        self.hidden = nn.Linear(config.n_embd, hidden, bias=False)
        self.act = slots.load("activation", config.activation)()
        self.out = nn.Linear(hidden, config.n_embd, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        return self.out(self.act(self.hidden(x)))

    @staticmethod
    def count(config: ModelConfig) -> int:
        """2 C m."""
        return 2 * config.n_embd * _hidden(config)

    @staticmethod
    def flops(config: ModelConfig) -> int:
        """Matrix FLOPs per token, forward."""
        return 2 * Dense.count(config)


def _hidden(config: ModelConfig) -> int:
    hidden = config.resolved().ffn_hidden
    assert hidden is not None
    return hidden
