"""A GPT-2 backbone in pre-norm form whose projections, positions, norm, activation and feed-forward are slots.

No variant's name stands here. Nothing trains, samples or reads files here either.
"""

from __future__ import annotations

import hashlib
import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nqlab import slots
from nqlab.config import ModelConfig
from nqlab.model.attention import CausalSelfAttention, KeyValueCache
from nqlab.model.feedforward import Feedforward


class Block(nn.Module):
    """x + attn(norm_1(x)), then x + ffn(norm_2(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        norm = slots.load("norm", config.norm)
        self.norm_1 = norm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.norm_2 = norm(config.n_embd)
        self.ffn: Feedforward = slots.load("feedforward", config.feedforward)(config)
        self.dropout = config.dropout

    def forward(self, x: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        x = x + self.attn(self.norm_1(x), cache)
        y = self.ffn(self.norm_2(x))
        return x + (F.dropout(y, self.dropout, self.training) if self.dropout else y)


class GPT(nn.Module):
    """Token embeddings with positions, blocks, a final norm, and the output matrix, tied to the embedding by default.

    Every tensor of two dimensions starts as N(0, init_std), the two residual outputs of a block as
    N(0, init_std / sqrt(2 n_layer)), each drawn from a generator keyed by (seed, tensor name): tensors that two
    variants share start identical. Vectors are gains and start where their module puts them.
    """

    def __init__(self, config: ModelConfig, vocab_size: int, seed: int = 0) -> None:
        super().__init__()
        if vocab_size < 1:
            raise ValueError(f"vocab_size {vocab_size} must be at least 1")
        self.config, self.vocab_size = config, vocab_size
        self.wte = nn.Embedding(vocab_size, config.n_embd)
        self.wpe = slots.load("position", config.position)(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm_f = slots.load("norm", config.norm)(config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, vocab_size, bias=False)
        if config.tied:
            self.lm_head.weight = self.wte.weight
        if self.wte.weight.device.type != "meta":
            self._initialise(seed)

    @torch.no_grad()
    def _initialise(self, seed: int) -> None:
        for name, tensor in self.named_parameters():
            if tensor.dim() < 2:
                continue
            residual_output = name.endswith(".out.weight")
            std = self.config.init_std / (math.sqrt(2 * self.config.n_layer) if residual_output else 1.0)
            tensor.normal_(0.0, std, generator=keyed_generator(seed, name))

    def forward(self, ids: Tensor, cache: list[KeyValueCache] | None = None) -> Tensor:
        """Token ids (B, T) -> logits (B, T, V). With a cache (one per layer), ids are the positions after those in it.

        ValueError when more than ``block_size`` positions would be seen.
        """
        past = 0 if cache is None else cache[0].length
        time = ids.shape[1]
        if past + time > self.config.block_size:
            raise ValueError(f"{past + time} positions are more than block_size {self.config.block_size}; crop the text to its end")
        x = self.wpe(self.wte(ids), past)  # (B, T, C)
        if self.config.dropout:
            x = F.dropout(x, self.config.dropout, self.training)
        for i, block in enumerate(self.blocks):
            x = block(x, None if cache is None else cache[i])
        return self.lm_head(self.norm_f(x))  # (B, T, V)

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy in nats per character of targets (B, T) given ids (B, T)."""
        logits = self(ids)
        return F.cross_entropy(logits.view(-1, self.vocab_size), targets.reshape(-1))

    def objective(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """What training minimises, and :meth:`loss`, which it reports: one tensor, unless a feed-forward adds a loss of its own."""
        total = loss = self.loss(ids, targets)
        for ffn in self._feedforwards():
            if ffn.auxiliary is not None:
                total, ffn.auxiliary = total + ffn.auxiliary, None
        return total, loss

    def expert_load(self) -> tuple[tuple[float, ...], ...]:
        """For each layer with experts, each one's share of the choices in the last forward in training; to four digits."""
        loads = [ffn.load for ffn in self._feedforwards() if ffn.load is not None]
        return tuple(tuple(round(share, 4) for share in load.tolist()) for load in loads)

    @property
    def no_graph(self) -> str:
        """Why an update of this model cannot be compiled; empty if it can."""
        return next((ffn.no_graph for ffn in self._feedforwards() if ffn.no_graph), "")

    def _feedforwards(self) -> list[Feedforward]:
        return [cast(Block, block).ffn for block in self.blocks]


def keyed_generator(*key: object) -> torch.Generator:
    """A CPU generator seeded by the SHA-256 of the key's parts: a stream of its own for each purpose."""
    digest = hashlib.sha256("/".join(map(str, key)).encode("utf-8")).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
