"""AdamW as the papers group it, and the learning rate of each step."""

from __future__ import annotations

import math

import torch
from torch import nn

from nqlab.config import TrainingConfig


def make_optimizer(model: nn.Module, training: TrainingConfig, device: torch.device) -> torch.optim.AdamW:
    """AdamW, eps 1e-8; weight decay on tensors of two or more dimensions (embeddings included), none on gains."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": training.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=training.learning_rate, betas=training.betas, eps=1e-8, fused=device.type in ("cpu", "cuda"))


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
