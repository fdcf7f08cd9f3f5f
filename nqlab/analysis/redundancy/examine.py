"""Two questions at once, for a page or a notebook: a combination of switches, and a trained model.

What the rule says of an architecture beside what the numbers say; what the gauge and the misuse do to a trained run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from nqlab.analysis.redundancy.architecture import Architecture
from nqlab.analysis.redundancy.gauge import gauge_weights
from nqlab.analysis.redundancy.rule import Analysis
from nqlab.analysis.redundancy.small import draw, forward, number_format, relative_error, token_ids
from nqlab.analysis.redundancy.trained import identity_misuse, loss_of, per_head_gauge
from nqlab.analysis.redundancy.transform import apply, apply_anyway
from nqlab.corpus import Corpus
from nqlab.model.gpt import GPT
from nqlab.words import _


@dataclass(frozen=True)
class Errors:
    """Relative errors of the outputs after three ways to simplify the weights, and the precision they stand against.

    ``rule``: as far as the rule allows; ``anyway``: every W_Q made I with an S of its own; ``gauge``: a D by D block
    of each head made I, None where positions or norms act between W_Q and the scores. ``saved`` and ``gauge_saved``
    count weights. ``epsilon`` is the spacing of numbers near 1.
    """

    analysis: Analysis
    rule: float
    anyway: float
    gauge: float | None
    gauge_saved: int
    epsilon: float

    def record(self) -> dict[str, Any]:
        """As plain data: the rule's words and counts, and the errors."""
        errors = {"as_the_rule_allows": self.rule, "identity_anyway": self.anyway, "gauge": self.gauge}
        return self.analysis.record() | {"errors": errors, "gauge_saved": self.gauge_saved, "epsilon": self.epsilon}


def errors_of(architecture: Architecture, condition: float = 10.0, dtype: str = "float64", seed: int = 0) -> Errors:
    """Transform random weights of this architecture, W_Q of this condition number, and measure.

    All is computed in ``dtype``, the reference included. ValueError as :func:`draw`.
    """
    weights, ids = draw(architecture, seed, condition, dtype), token_ids(architecture, seed)
    expected = forward(weights, architecture, ids)
    ruled = apply(weights, architecture)
    anyway = apply_anyway(weights, architecture)
    gauge, saved = None, 0
    if architecture.positions == "learned" and not architecture.qk_norm and architecture.kv_heads == architecture.n_head:
        gauged, saved = gauge_weights(weights, architecture)
        gauge = relative_error(forward(gauged, architecture, ids), expected)
    return Errors(
        ruled.analysis,
        relative_error(forward(ruled.weights, architecture, ids), expected),
        relative_error(forward(anyway, architecture, ids), expected),
        gauge,
        saved,
        torch.finfo(number_format(dtype)).eps,
    )


@dataclass(frozen=True)
class TrainedExamination:
    """What two treatments do to a trained model. Losses in nats per character over the fixed validation windows.

    ``gauge_loss`` is the gauged model's, ``gauge_change`` the largest change of a logit in float64; ``misuse_losses``
    maps a description to the loss after every W_Q was overwritten so (:func:`misuse_title` has it in the reader's language).
    """

    loss: float
    gauge_loss: float
    gauge_change: float
    gauge_saved: int
    misuse_losses: dict[str, float]


def misuse_title(name: str) -> str:
    """A key of ``misuse_losses`` in the reader's language."""
    return {
        "W_Q = I, q = x": _("W_Q = I, q = x"),
        "W_Q = I/2, q = x/2": _("W_Q = I/2, q = x/2"),
        "W_Q = I at the size of the old W_Q": _("W_Q = I at the size of the old W_Q"),
    }[name]


@torch.no_grad()
def examine_model(model: GPT, corpus: Corpus, windows: int = 256) -> TrainedExamination:
    """Apply the per-head gauge and the misuse to a model with the linear query. ValueError for another query."""
    gauged, saved = per_head_gauge(model)
    ids = torch.from_numpy(corpus.ids[: 4 * model.config.block_size]).view(4, -1)
    reference = GPT(model.config, model.vocab_size).double()
    reference.load_state_dict(model.state_dict())
    change = (gauged.eval()(ids) - reference.eval()(ids)).abs().max().item()
    ways = {"W_Q = I, q = x": 1.0, "W_Q = I/2, q = x/2": 0.5, "W_Q = I at the size of the old W_Q": None}
    losses = {name: loss_of(identity_misuse(model, scale=scale), corpus, windows) for name, scale in ways.items()}
    return TrainedExamination(loss_of(model, corpus, windows), loss_of(gauged, corpus, windows), change, saved, losses)
