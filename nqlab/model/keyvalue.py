"""The key slot and the value slot, which have the same entries: what attention compares with, and what it takes along."""

from __future__ import annotations

from torch import nn

from nqlab.config import ModelConfig
from nqlab.model.query import NonlinearQuery


class LinearProjection(nn.Linear):
    """k = x W_K, or v = x W_V: the baseline."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.n_embd, config.n_embd, bias=False)

    @staticmethod
    def count(config: ModelConfig) -> int:
        """C^2."""
        return config.n_embd**2

    @staticmethod
    def flops(config: ModelConfig) -> int:
        """2 C^2."""
        return 2 * config.n_embd**2


class NonlinearProjection(NonlinearQuery):
    """k = (x + f(x))/2, or v: the residual and the f of the nonlinear query, with weights of its own.

    Karbevski 2026 leaves this to future work. R = bottleneck, as in the query; the factor is always 1/2 and the output
    gain starts at 1, since ``query_scale`` and ``query_output_gain`` are the query's.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.model_copy(update={"query": "nonlinear", "query_scale": None, "query_output_gain": None}))
