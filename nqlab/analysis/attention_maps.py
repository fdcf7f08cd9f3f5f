"""Which position looks at which, and how strongly: the attention weights of a model on a text.

Attention itself runs in torch's fused kernel, which keeps no weights; here they are computed again from the query and
the key that hooks see on each block. Nothing in the model changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nqlab.corpus import Vocabulary
from nqlab.model.attention import CausalSelfAttention
from nqlab.model.gpt import GPT, Block

MAX_CHARACTERS = 64  # more cells than that can't be told apart on a page


@dataclass(frozen=True)
class AttentionMaps:
    """What every head of every layer does on one text.

    ``weights``, (L, H, T, T), has at [l, h, i, j] how much position i looks at position j: rows sum to 1, and j > i is
    exactly 0.
    """

    text: str
    weights: NDArray[np.float32]

    def entropy(self, layer: int, head: int) -> float:
        """Mean over positions of the entropy of a position's weights, in nats."""
        return float(entropies(torch.from_numpy(self.weights[layer, head])).mean())

    def record(self) -> dict[str, Any]:
        """As plain data: the characters, and the weights as lists, [layer][head][from][to]."""
        return {"characters": list(self.text), "weights": self.weights.tolist()}


def attention_weights(q: Tensor, k: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(D)) over the positions that the causal mask lets through: two (..., T, D) -> (..., T, T)."""
    logits = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    ahead = torch.ones(logits.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return logits.masked_fill(ahead, -math.inf).softmax(-1)


def entropies(weights: Tensor) -> Tensor:
    """-sum_j w_j ln w_j of each row, in nats, 0 ln 0 being 0: (..., T, T) -> (..., T)."""
    return torch.special.entr(weights).sum(-1)


def uniform_entropy(length: int) -> float:
    """The mean entropy of causal attention without preferences, nats: the mean of ln(i + 1) over i = 0 .. length - 1."""
    return math.lgamma(length + 1) / length


@torch.no_grad()
def weights_of(model: GPT, ids: Tensor) -> list[Tensor]:
    """Each layer's attention weights on ids (N, T): L times (N, H, T, T), on the model's device and in its precision."""
    attentions = [cast(Block, block).attn for block in model.blocks]
    seen: dict[nn.Module, Tensor] = {}
    handles = [m.register_forward_hook(lambda m, _, out: seen.update({m: out})) for a in attentions for m in (a.query, a.key)]
    was_training = model.training
    model.eval()
    try:
        model(ids)
    finally:
        model.train(was_training)
        for handle in handles:
            handle.remove()
    return [attention_weights(*a.compared(_by_head(seen[a.query], a), _by_head(seen[a.key], a))) for a in attentions]


def attention_maps(model: GPT, vocabulary: Vocabulary, prompt: str) -> AttentionMaps:
    """The maps of all layers and heads for a prompt; an empty one is a newline, as in generation.

    ValueError for characters the corpus never had, and for more characters than ``block_size`` or ``MAX_CHARACTERS``.
    """
    ids = vocabulary.encode_prompt(prompt)
    most = longest_prompt(model.config.block_size)
    if len(ids) > most:
        raise ValueError(f"the prompt has {len(ids)} characters; at most {most} fit here, so shorten it")
    device = next(model.parameters()).device
    found = torch.cat(weights_of(model, torch.tensor([ids], device=device)))  # (L, H, T, T)
    return AttentionMaps(vocabulary.decode(ids), found.float().cpu().numpy())


def longest_prompt(block_size: int) -> int:
    """Characters that :func:`attention_maps` takes."""
    return min(block_size, MAX_CHARACTERS)


def _by_head(x: Tensor, attn: CausalSelfAttention) -> Tensor:
    return x.view(*x.shape[:2], attn.n_head, attn.head_size).transpose(1, 2)  # (N, H, T, D)
