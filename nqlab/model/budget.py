"""What a model costs: parameters, surplus over the baseline, matrix FLOPs; and widths that match a count."""

from __future__ import annotations

from dataclasses import dataclass

from nqlab import slots
from nqlab.config import ModelConfig

IN_A_BLOCK = ("query", "key", "value", "feedforward")  # slots with matrices


def block_parameters(config: ModelConfig) -> int:
    """Learned numbers in all blocks: per layer query, key, value, C^2 (W_O), the feed-forward and two norms."""
    width = config.n_embd
    parts = sum(slots.load(slot, getattr(config, slot)).count(config) for slot in IN_A_BLOCK)
    return int(config.n_layer * (parts + width**2 + 2 * slots.load("norm", config.norm).count(width)))


def parameters(config: ModelConfig, vocab_size: int) -> int:
    """All learned numbers: blocks, token embeddings, positions, final norm, and the output matrix if untied."""
    width = config.n_embd
    final = slots.load("norm", config.norm).count(width)
    embeddings = vocab_size * (1 if config.tied else 2) * width + slots.load("position", config.position).count(config)
    return int(block_parameters(config) + embeddings + final)


def flops_per_token(config: ModelConfig, vocab_size: int) -> int:
    """Matrix FLOPs of one forward pass per token, a multiply-add counted as two; attention at full context.

    A training step costs about three times this. Norms, activations and softmax are left out, as is usual.
    """
    width = config.n_embd
    parts = sum(slots.load(slot, getattr(config, slot)).flops(config) for slot in IN_A_BLOCK)
    attention = 2 * 2 * config.block_size * width
    layer = parts + 2 * width**2 + attention
    return int(config.n_layer * layer + 2 * width * vocab_size)


def training_bytes(config: ModelConfig, vocab_size: int, batch_size: int) -> int:
    """Memory a training step needs, about: weights, gradient and two moments, and float32 activations for the
    backward pass (per position about 16 C and 3 m a layer, and the logits three times). No T x T matrix is kept."""
    hidden = config.resolved().ffn_hidden or 4 * config.n_embd
    per_position = config.n_layer * (16 * config.n_embd + 3 * hidden) + 3 * vocab_size
    return 16 * parameters(config, vocab_size) + 4 * batch_size * config.block_size * per_position


def baseline_of(config: ModelConfig) -> ModelConfig:
    """The model of the same shape with linear query, key and value and the default MLP: what a surplus is counted against."""
    return config.model_copy(update={"query": "linear", "key": "linear", "value": "linear", "query_scale": None, "ffn_hidden": None})


@dataclass(frozen=True)
class Surplus:
    """Learned numbers more (or fewer) than the baseline has in its blocks."""

    number: int
    percent: float

    @property
    def matched(self) -> bool:
        """Exactly as many as the baseline."""
        return self.number == 0

    def __str__(self) -> str:
        return "matched" if self.matched else f"{self.number:+,} ({self.percent:+.2f} % of the blocks)"


def surplus(config: ModelConfig, baseline: ModelConfig | None = None) -> Surplus:
    """How many learned numbers ``config`` has more than the baseline, in number and percent of the baseline's blocks.

    The paper counts the same way: its wide MLP of 4.75C is "+12.5 %" of block parameters.
    """
    reference = block_parameters(baseline or baseline_of(config))
    extra = block_parameters(config) - reference
    return Surplus(extra, 100 * extra / reference)


def match_parameters(config: ModelConfig, field: str, baseline: ModelConfig | None = None) -> ModelConfig:
    """``config`` with the ``bottleneck`` or ``ffn_hidden`` that makes its block parameters equal the baseline's.

    Where no width is exact, the largest that does not exceed it: an advantage is never given away unseen. ValueError
    if the model does not read the field, or no width of at least 1 fits.
    """
    if field not in ("bottleneck", "ffn_hidden"):
        raise ValueError(f"cannot match by {field!r}; choose bottleneck or ffn_hidden")
    if getattr(config.resolved(), field) is None:
        raise ValueError(f"query {config.query!r} has no {field}; match by ffn_hidden instead")
    target = block_parameters(baseline or baseline_of(config))
    unit = (config.resolved().top_k or 1) if field == "ffn_hidden" else 1  # experts share a hidden width evenly
    one, two = (block_parameters(config.model_copy(update={field: width})) for width in (unit, 2 * unit))
    width = unit + unit * ((target - one) // (two - one))
    if width < 1:
        raise ValueError(f"no {field} makes {config.query!r} as small as the baseline; match by the other width")
    return config.model_copy(update={field: width})
