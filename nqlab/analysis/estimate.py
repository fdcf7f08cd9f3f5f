"""How long a race will take on this machine, before it starts: one measured step, scaled by FLOPs."""

from __future__ import annotations

from collections.abc import Sequence

from nqlab import presets
from nqlab.config import RunConfig
from nqlab.model.budget import flops_per_token
from nqlab.words import _

LAYER_S = 1.2e-3  # a layer's step costs at least this, however small its matrices


def step_s(config: RunConfig, vocab_size: int, tiny_step_s: float, threads: int) -> float:
    """Seconds of one optimiser step, given those of the tiny preset's linear step on one thread; a floor per layer.

    Further threads are counted at seven tenths.
    """
    work, unit = (flops_per_token(c.model, vocab_size) * c.training.batch_size * c.model.block_size for c in (config, presets.tiny()))
    return max(tiny_step_s * work / unit / (1 + 0.7 * (threads - 1)), LAYER_S * config.model.n_layer)


def race_s(configs: Sequence[RunConfig], vocab_size: int, tiny_step_s: float, threads: int) -> float:
    """Seconds of a whole race: updates, and evaluations (a forward pass costs a third of a step)."""
    total = 0.0
    for config in configs:
        training = config.training
        passes = (training.steps // training.eval_interval + 1) * training.eval_windows / training.batch_size / 3
        total += step_s(config, vocab_size, tiny_step_s, threads) * (training.steps + passes)
    return total


def in_words(seconds: float) -> str:
    """About how long, as a person says it."""
    for limit, text, size in ((100, _("about {n} s"), 1), (5400, _("about {n} min"), 60), (172800, _("about {n} h"), 3600)):
        if seconds < limit:
            value = seconds / size
            return text.format(n=f"{value:.0f}" if value >= 10 or size == 1 else f"{value:.1f}")
    return _("about {n} days").format(n=f"{seconds / 86400:.0f}")
