"""AdamW as the papers group it, and the learning rate of each step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from nqlab.config import TrainingConfig

EPS = 1e-8
ALIGN = 16  # floats: every tensor begins on a cache line, wherever it stands in the buffer


class FlatAdamW:
    """AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101) over two flat buffers: tensors of two or more dimensions,
    which decay, and gains, which don't.

    The model's parameters and their gradients become views of the buffers, so that zeroing, the norm and the update
    are one kernel each instead of one a tensor. The update is torch's own fused kernel, called directly: importing
    ``torch.optim`` brings torch's compiler in, which costs a process a second and seventy megabytes. The gradient's
    norm is rounded differently from torch's in its last bits.
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
        decays = (training.weight_decay, 0.0)
        self.param_groups: list[dict[str, Any]] = [
            {"params": [leaf], "weight_decay": decay, "lr": training.learning_rate, "betas": training.betas, "eps": EPS}
            for leaf, decay in zip(leaves, decays)
        ]
        self.state: dict[Tensor, dict[str, Tensor]] = {leaf: {} for leaf in leaves}
        self._fused = device.type in ("cpu", "cuda")

    @torch.no_grad()
    def step(self) -> None:
        """One update of every parameter from its gradient, at each group's rate ``lr``."""
        for group in self.param_groups:
            (leaf,) = group["params"]
            state = self.state[leaf]
            if not state:
                state |= {"step": torch.zeros((), device=leaf.device if leaf.is_cuda else "cpu")}
                state |= {"exp_avg": torch.zeros_like(leaf), "exp_avg_sq": torch.zeros_like(leaf)}
            state["step"] += 1
            if leaf.numel():
                (self._by_kernel if self._fused else self._by_formula)(leaf, state, group)

    def _by_kernel(self, leaf: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        assert leaf.grad is not None
        beta1, beta2 = group["betas"]
        torch._fused_adamw_(
            [leaf], [leaf.grad], [state["exp_avg"]], [state["exp_avg_sq"]], [], [state["step"]], lr=group["lr"], beta1=beta1,
            beta2=beta2, weight_decay=group["weight_decay"], eps=group["eps"], amsgrad=False, maximize=False,
        )  # fmt: skip

    def _by_formula(self, leaf: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        """theta <- (1 - lr wd) theta - lr m^ / (sqrt(v^) + eps), with m^ and v^ the moments without their bias."""
        assert leaf.grad is not None
        (beta1, beta2), rate, k = group["betas"], group["lr"], state["step"].item()
        leaf.mul_(1 - rate * group["weight_decay"])
        state["exp_avg"].lerp_(leaf.grad, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(leaf.grad, leaf.grad, value=1 - beta2)
        scale = (state["exp_avg_sq"] / (1 - beta2**k)).sqrt_().add_(group["eps"])
        leaf.addcdiv_(state["exp_avg"], scale, value=-rate / (1 - beta1**k))

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
        state = self.state[self.param_groups[group]["params"][0]]
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
