"""A trained model's query under the microscope: its numbers layer by layer, and what its f is worth.

Everything is measured on a copy of a checkpoint, at fixed windows that depend on the text and the context alone, so
that the variants of a race are seen on the same characters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from nqlab.analysis.attention_maps import longest_prompt, uniform_entropy
from nqlab.analysis.probe import LayerProbe, explained, has_f, linear_maps, probe, with_linear_f, without_f
from nqlab.analysis.redundancy.trained import loss_of
from nqlab.corpus import Corpus
from nqlab.model.gpt import GPT
from nqlab.words import _

LOOK_POSITIONS = 2048
FIT_POSITIONS = 16_384
MEASURES = ("f_ratio", "cosine", "entropy", "f_rank", "q_rank", "logit_std")  # fields of LayerProbe
OF_F = ("f_ratio", "f_rank")


def measures() -> dict[str, tuple[str, str]]:
    """The title of each of :data:`MEASURES` and what it says, in the reader's language."""
    return {
        "f_ratio": (_("|f(x)| / |x|"), _("How long the learned part is beside the block input x. Mean over positions.")),
        "cosine": (_("cos(q, x)"), _("1: the query points along x. 0: at right angles. Mean over positions.")),
        "entropy": (
            _("entropy of attention (nats)"),
            _("How widely a position looks about: mean over heads and positions. The dashed line is attention without preferences."),
        ),
        "f_rank": (_("effective rank of f"), _("How many directions f uses, faint ones counted as fractions (Roy & Vetterli 2007).")),
        "q_rank": (_("effective rank of q"), _("How many directions the query uses, counted in the same way.")),
        "logit_std": (_("spread of the logits"), _("Standard deviation of q·k/√D over all pairs that the mask lets through.")),
    }


@dataclass(frozen=True)
class Look:
    """The measures of one checkpoint. ``uniform`` is the entropy of attention without preferences, in nats.

    Without an f (``linear``, ``identity``) the measures of f are not defined, and :meth:`values` has None for them.
    """

    step: int
    layers: tuple[LayerProbe, ...]
    has_f: bool
    uniform: float

    def values(self, measure: str) -> list[float | None]:
        """One number a layer; ValueError names the measures there are."""
        if measure not in MEASURES:
            raise ValueError(f"measure {measure!r} is unknown; choose one of {', '.join(MEASURES)}")
        defined = self.has_f or measure not in OF_F
        return [float(getattr(layer, measure)) if defined else None for layer in self.layers]

    def record(self) -> dict[str, Any]:
        """As plain data."""
        blank = {} if self.has_f else dict.fromkeys(OF_F)
        return {"step": self.step, "uniform_entropy": self.uniform, "layers": [asdict(layer) | blank for layer in self.layers]}


@dataclass(frozen=True)
class WorthOfF:
    """Validation loss, nats per character: as trained, with f = 0, and with f the best linear map; no retraining.

    ``explained`` is the share of f that the map gives back, a number a layer, or None where f is zero. All but ``whole``
    are None without an f; ``lacks_f`` is then the name of the query, and :attr:`why` says why.
    """

    whole: float
    zero: float | None = None
    linear: float | None = None
    explained: tuple[float | None, ...] | None = None
    lacks_f: str = ""

    @property
    def why(self) -> str:
        """Why there is no f, in the reader's language; empty where there is one."""
        if not self.lacks_f:
            return ""
        if self.lacks_f == "identity":
            return _("the query is x times a constant: there is no f to take away")
        return _("the query is all learned, x W_Q with no skip beside it: without it nothing is left")

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return {key: value for key, value in asdict(self).items() if key != "lacks_f"} | {"why": self.why}


def look(model: GPT, corpus: Corpus, step: int = 0) -> Look:
    """Measure every layer on validation windows of 2,048 characters in all, 4 C where that is more. ``step`` is only noted.

    ValueError for weights that are not finite, and when the corpus is not the model's.
    """
    _check_finite(model)
    block = model.config.block_size
    positions = max(LOOK_POSITIONS, 4 * model.config.n_embd)  # a rank of up to C needs more than C of them
    layers = probe(model, corpus, windows=-(-positions // block))
    return Look(step, tuple(layers), has_f(model), uniform_entropy(block))


def worth_of_f(model: GPT, corpus: Corpus, windows: int = 256) -> WorthOfF:
    """What it costs to take f away, or to put the best linear map in its place, judged on ``windows`` validation windows.

    The map is fitted by least squares on **training** windows, so that it is not judged on what it was fitted to. Its
    cost is 0 only where f is linear, as in ``residual_linear``. Not in ``bottleneck_linear``: it has no GELU, but its
    norms divide by lengths that depend on x. ValueError as :func:`look`.
    """
    _check_finite(model)
    whole = loss_of(model, corpus, windows)
    if not has_f(model):
        return WorthOfF(whole, lacks_f=model.config.query)
    maps = linear_maps(model, corpus, windows=max(16, min(256, FIT_POSITIONS // model.config.block_size)))
    return WorthOfF(
        whole=whole,
        zero=loss_of(without_f(model), corpus, windows),
        linear=loss_of(with_linear_f(model, maps), corpus, windows),
        explained=tuple(None if math.isnan(share) else share for share in explained(model, corpus, maps)),
    )


def layer_rows(looks: Mapping[str, Look]) -> list[dict[str, Any]]:
    """The measures as rows for a table, a row a run and layer, the first layer being 1; None where f is not defined."""
    return [{_("variant"): label} | _layer_row(one, i) for label, one in looks.items() for i in range(len(one.layers))]


def _layer_row(one: Look, i: int) -> dict[str, Any]:
    row: dict[str, Any] = {_("layer"): i + 1}
    for name, (title, _caption) in measures().items():
        row[title] = one.values(name)[i]
        if name == "entropy":
            row[_("without preferences")] = one.uniform
    return row


def worth_rows(found: Mapping[str, WorthOfF]) -> list[dict[str, str]]:
    """The losses as rows for a table, in words and to four digits."""
    return [{_("variant"): label} | _worth_row(worth) for label, worth in found.items()]


def _worth_row(worth: WorthOfF) -> dict[str, str]:
    row, explained_ = {_("as trained"): f"{worth.whole:.4f}"}, _("share of f that the map explains, by layer")
    if worth.zero is None or worth.linear is None:
        return row | dict.fromkeys((_("f = 0"), _("f linear"), explained_), _("not defined"))
    shares = ", ".join("–" if share is None else f"{share:.4f}" for share in worth.explained or ())
    costs = {_("f = 0"): worth.zero, _("f linear"): worth.linear}
    return row | {name: _with_cost(loss, worth.whole) for name, loss in costs.items()} | {explained_: shares}


def _with_cost(loss: float, whole: float) -> str:
    return f"{loss:.4f} ({loss - whole:+.4f})".replace("-0.0000", "+0.0000")


def example_prompt(corpus: Corpus, block_size: int, length: int = 24) -> str:
    """The beginning of the first line of the validation text that is long enough; the longest where none is."""
    length = min(length, longest_prompt(block_size))
    lines = corpus.text[corpus.split_at : corpus.split_at + 2000].split("\n")[1:] or [corpus.text[corpus.split_at :]]
    return next((line for line in lines if len(line) >= length), max(lines, key=len))[:length]


def _check_finite(model: GPT) -> None:
    if not all(torch.isfinite(p).all() for p in model.parameters()):
        raise ValueError("this model has diverged: its weights are not finite numbers, so nothing can be measured")
