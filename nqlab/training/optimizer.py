"""AdamW as the papers group it, and the learning rate of each step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import accumulate

import torch
from torch import Tensor, nn

from nqlab.config import TrainingConfig

ALIGN = 16  # floats: every tensor begins on a cache line, wherever it stands in the buffer


class FlatAdamW(torch.optim.AdamW):
    """AdamW, eps 1e-8, over two flat buffers: tensors of two or more dimensions, which decay, and gains, which don't.

    The model's parameters and their gradients become views of the buffers, so that zeroing, the norm and the update
    are one kernel each instead of one a tensor. The formulas are those of torch's AdamW; the gradient's norm is
    rounded differently in its last bits.
    """

    def __init__(self, model: nn.Module, training: TrainingConfig, device: torch.device) -> None:
        named = dict(model.named_parameters())
        parts = [{n: p for n, p in named.items() if (p.dim() >= 2) == decays} for decays in (True, False)]
        starts = [[0, *accumulate(-(-p.numel() // ALIGN) * ALIGN for p in part.values())] for part in parts]
        weights = torch.zeros(starts[0][-1] + starts[1][-1], device=device, dtype=next(iter(named.values())).dtype)
        self.gradient = torch.zeros_like(weights)
        self.places: dict[str, tuple[int, slice]] = {}
        leaves = []
        for group, (part, begins, offset) in enumerate(zip(parts, starts, (0, starts[0][-1]))):
            for (name, parameter), begin in zip(part.items(), begins):
                place = slice(begin, begin + parameter.numel())
                self.places[name] = group, place
                inside = slice(place.start + offset, place.stop + offset)
                weights[inside] = parameter.detach().view(-1)
                parameter.data = weights[inside].view(parameter.shape)
                parameter.grad = self.gradient[inside].view(parameter.shape)
            leaf = nn.Parameter(weights[offset : offset + begins[-1]])
            leaf.grad = self.gradient[offset : offset + begins[-1]]
            leaves.append(leaf)
        groups = [{"params": [leaf], "weight_decay": decay} for leaf, decay in zip(leaves, (training.weight_decay, 0.0))]
        rate, fused = training.learning_rate, device.type in ("cpu", "cuda")
        super().__init__(groups, lr=rate, betas=training.betas, eps=1e-8, fused=fused)

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Zero the gradients in place; they stay views of the buffer."""
        assert not set_to_none, "a gradient set to None would leave the buffer"
        self.gradient.zero_()

    def clip(self, limit: float) -> Tensor:
        """Scale the gradient to at most this norm (0: leave it); the norm before, a scalar on the device."""
        norm = torch.linalg.vector_norm(self.gradient)
        if limit:
            self.gradient.mul_((limit / (norm + 1e-6)).clamp(max=1.0))
        return norm

    def moments(self, name: str, like: Tensor) -> dict[str, Tensor]:
        """Views of ``step``, ``exp_avg``, ``exp_avg_sq`` of one parameter, shaped ``like`` it; empty before the first update."""
        group, place = self.places[name]
        state = self.state.get(self.param_groups[group]["params"][0], {})
        return {key: value if key == "step" else value[place].view(like.shape) for key, value in state.items()}

    @torch.no_grad()
    def restore(self, name: str, moments: Mapping[str, Tensor]) -> None:
        """Put back what :meth:`moments` gave."""
        group, place = self.places[name]
        leaf = self.param_groups[group]["params"][0]
        state = self.state[leaf]
        for key, value in moments.items():
            if key == "step":
                state[key] = value.clone().to(leaf.device if leaf.is_cuda else "cpu")
            else:
                state.setdefault(key, torch.zeros_like(leaf))[place] = value.to(leaf.device).view(-1)


def learning_rate_at(step: int, training: TrainingConfig) -> float:
    """Linear warm-up to the peak, then a cosine that reaches min_lr at the last update (step = steps - 1)."""
    training = training.resolved()
    peak, least, warmup = training.learning_rate, training.min_lr, training.warmup_steps
    assert least is not None
    assert warmup is not None
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    progress = min(1.0, (step - warmup) / max(1, training.steps - 1 - warmup))
    return least + (peak - least) * (1 + math.cos(math.pi * progress)) / 2
