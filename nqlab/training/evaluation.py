"""The loss of a model on fixed windows: what training reports, and what any later examination must agree with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

CHUNK_TOKENS = 4096


@torch.no_grad()
def window_losses(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    *,
    context: Callable[[], Any] = nullcontext,
    stop: Callable[[], bool] = lambda: False,
) -> Tensor | None:
    """Mean loss in nats per character of each window, (N,) in float64 on the CPU; None when told to stop on the way.

    Inputs and targets are (N, T). ``context`` wraps the forward pass (autocast). Cross-entropy is taken in float32 at
    least. Dropout is off meanwhile; the model's training flag is left as it was.
    """
    chunk = max(1, CHUNK_TOKENS // inputs.shape[1])
    losses: list[Tensor] = []
    was_training = model.training
    model.eval()
    try:
        for x, y in zip(inputs.split(chunk), targets.split(chunk)):
            if losses and stop():
                return None
            with context():
                logits = model(x)  # (b, T, V)
            logits = logits if logits.dtype == torch.float64 else logits.float()
            nll = cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view(y.shape)  # (b, T)
            losses.append(nll.cpu().double().mean(dim=1))
    finally:
        model.train(was_training)
    return torch.cat(losses)
