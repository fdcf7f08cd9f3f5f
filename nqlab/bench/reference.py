"""The reference: a GPT step as it is usually written, to measure the lab against.

One linear layer for query, key and value together, separate parameters, torch's AdamW with its defaults (no fused
kernel), scaled_dot_product_attention, ``clip_grad_norm_``, batches stacked from a memory map of 16-bit ids; text from
the whole context, once a character. The same formulas as the lab's baseline, so the same losses from the same weights
and batches, and the same text from the same draws; tests compare them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nqlab.config import RunConfig
from nqlab.model.gpt import GPT
from nqlab.training.batches import TrainingBatches
from nqlab.training.optimizer import learning_rate_at


class ReferenceBlock(nn.Module):
    """Pre-norm attention and MLP, no biases."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        batch, time, width = x.shape
        q, k, v = (z.view(batch, time, self.heads, -1).transpose(1, 2) for z in self.qkv(self.norm_1(x)).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, time, width)
        x = x + self.proj(y)
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class ReferenceGPT(nn.Module):
    """Token and position embeddings, blocks, a final norm, a tied output."""

    def __init__(self, config: RunConfig, vocab_size: int) -> None:
        super().__init__()
        m = config.model
        self.wte, self.wpe = nn.Embedding(vocab_size, m.n_embd), nn.Embedding(m.block_size, m.n_embd)
        self.blocks = nn.ModuleList(ReferenceBlock(m.n_embd, m.n_head) for _ in range(m.n_layer))
        self.norm_f = nn.LayerNorm(m.n_embd, bias=False)

    def _states(self, ids: Tensor) -> Tensor:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.norm_f(x)  # (B, T, C)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of targets (B, T) given ids (B, T)."""
        logits = F.linear(self._states(ids), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))

    @torch.no_grad()
    def write(self, ids: Tensor, count: int, generator: torch.Generator | None = None) -> Tensor:
        """``count`` ids drawn after ids (B, T), as usually written: the whole context through the model for each; (B, T + count)."""
        block = self.wpe.weight.shape[0]
        for _ in range(count):
            logits = F.linear(self._states(ids[:, -block:])[:, -1], self.wte.weight)  # (B, V)
            ids = torch.cat((ids, torch.multinomial(F.softmax(logits, dim=-1), 1, generator=generator)), dim=1)
        return ids

    @torch.no_grad()
    def take(self, model: GPT) -> None:
        """The weights of a lab model with the linear query."""
        theirs = dict(model.named_parameters())
        self.wte.weight.copy_(theirs["wte.weight"])
        self.wpe.weight.copy_(theirs["wpe.weight"])
        self.norm_f.weight.copy_(theirs["norm_f.weight"])
        for i, block in enumerate(self.blocks):
            assert isinstance(block, ReferenceBlock)
            name = f"blocks.{i}."
            block.qkv.weight.copy_(torch.cat([theirs[f"{name}attn.{part}.weight"] for part in ("query.proj", "key", "value")]))
            for mine, other in ((block.proj, "attn.out"), (block.up, "ffn.hidden"), (block.down, "ffn.out")):
                mine.weight.copy_(theirs[f"{name}{other}.weight"])
            block.norm_1.weight.copy_(theirs[f"{name}norm_1.weight"])
            block.norm_2.weight.copy_(theirs[f"{name}norm_2.weight"])


class ReferenceRun:
    """Its training: :meth:`step` makes one update and returns the loss before it."""

    def __init__(self, config: RunConfig, ids: np.ndarray, vocab_size: int, folder: Path) -> None:
        self.config, self.training, self.count = config, config.training.resolved(), 0
        path = folder / "reference.bin"
        ids.astype(np.uint16).tofile(path)
        self.data = np.memmap(path, dtype=np.uint16, mode="r")
        self.windows = TrainingBatches(torch.from_numpy(ids), config.model.block_size, self.training.batch_size, config.seed)
        self.model = ReferenceGPT(config, vocab_size)
        self.model.take(GPT(config.model, vocab_size, config.seed))
        matrices = [p for p in self.model.parameters() if p.dim() >= 2]
        gains = [p for p in self.model.parameters() if p.dim() < 2]
        groups = [{"params": matrices, "weight_decay": self.training.weight_decay}, {"params": gains, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=self.training.learning_rate, betas=self.training.betas)

    def _batch(self) -> tuple[Tensor, Tensor]:
        size = self.config.model.block_size
        starts = self.windows.starts(self.count)  # the lab's windows, so that losses can be compared
        x = torch.stack([torch.from_numpy(self.data[i : i + size].astype(np.int64)) for i in starts])
        y = torch.stack([torch.from_numpy(self.data[i + 1 : i + 1 + size].astype(np.int64)) for i in starts])
        return x, y

    def step(self) -> float:
        """One update, as usually written."""
        rate = learning_rate_at(self.count, self.training)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        x, y = self._batch()
        loss = self.model(x, y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.training.grad_clip)
        self.optimizer.step()
        self.count += 1
        return float(loss.item())
