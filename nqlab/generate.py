"""Sampling text from a model, with a cache of keys and values.

The context is at most block_size long. When it is full, it starts anew from its last half, so that the cache serves
many steps again; with the cache or without, the context is the same and so is the text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache as cached
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nqlab.model.attention import KeyValueCache
from nqlab.model.gpt import GPT, keyed_generator

M = TypeVar("M", bound=nn.Module)


class NotFiniteError(ValueError):
    """The model's outputs are not finite: it diverged."""


def stream(
    model: GPT, prompt: Tensor, *, temperature: float = 1.0, top_k: int | None = None, seed: int = 0, use_cache: bool = True
) -> Iterator[Tensor]:
    """Yield next ids (B,) without end, given prompt ids (B, T) with T >= 1; a longer prompt is cropped to its end.

    temperature 0 takes the likeliest character; ``top_k`` is clamped to [1, V]. The draws of all B rows come from one
    generator of their own, keyed by ``seed``: global random numbers and the model's training flag are left as they
    were, and a row's text depends on how many rows there are, but at temperature 0.
    ValueError for a temperature that is no number of 0 or more; :class:`NotFiniteError` for a diverged model.
    """
    if not temperature >= 0:
        raise ValueError(f"temperature {temperature} must be 0 or more; 0 takes the likeliest character")
    assert prompt.shape[1] > 0, "an empty prompt must be given its first character by the caller"
    generator = keyed_generator(seed, "sample")
    model = lean(model)
    block = model.config.block_size
    begin, end = 0, min(block, prompt.shape[1])  # the positions to look at next
    context = F.pad(prompt[:, -end:], (0, block + 1 - end))  # (B, block_size + 1), the prompt and room for what follows
    cache: list[KeyValueCache] | None = None
    while True:
        if use_cache and begin == 0:
            cache = [KeyValueCache(block) for _ in model.blocks]
        following = _draw(last_logits(model, context.narrow(1, begin, end - begin), cache), temperature, top_k, generator)
        yield following
        context.select(1, end).copy_(following)
        begin, end = (end if use_cache else 0), end + 1
        if end > block:
            kept = max(1, block // 2)
            context[:, :kept] = context[:, end - kept : end].clone()
            begin, end = 0, kept


def last_logits(model: GPT, ids: Tensor, cache: list[KeyValueCache] | None) -> Tensor:
    """Logits (B, V) after the last of ids (B, T), on the CPU: one step of :func:`stream` but for the draw."""
    with torch.inference_mode():
        return model(ids, cache).select(1, -1).float().cpu()  # (B, V)


def _draw(logits: Tensor, temperature: float, top_k: int | None, generator: torch.Generator) -> Tensor:
    if not all(math.isfinite(end.item()) for end in logits.aminmax()):
        raise NotFiniteError("the model's outputs are not finite (it diverged); sample from an earlier checkpoint or another run")
    if temperature == 0:
        return logits.argmax(dim=-1)
    logits = (logits - logits.amax(dim=-1, keepdim=True)) / max(temperature, 1e-30)  # at most 0: however cold, no NaN
    if top_k is not None:
        least = logits.topk(min(max(1, top_k), logits.shape[-1])).values[:, -1:]
        logits = logits.masked_fill(logits < least, float("-inf"))
    chances = torch.softmax(logits, dim=-1)
    # What torch.multinomial draws, bit for bit, without its checks of chances that come from a softmax.
    return (chances / torch.empty_like(chances).exponential_(generator=generator)).argmax(dim=-1)


def lean(module: M) -> M:
    """A twin of a module in evaluation mode: the same weights and formulas without the bookkeeping of a module's call.

    A call of a module looks for hooks, and every weight and part of it is searched for; with one position of a small
    model, that takes as long as the arithmetic. Calling the twin is calling its ``forward``, and all it uses lies in
    its own dictionary. It has no hooks. Weights that change in place are seen; a weight put in another's place is not.
    """
    parts = {name: lean(part) for name, part in module._modules.items() if part is not None}
    kind: Any = type(module)
    twin: M = object.__new__(_lean_class(kind))
    vars(twin).update(vars(module) | module._parameters | module._buffers | parts | {"_modules": parts, "training": False})
    return twin


@cached
def _lean_class(kind: Any) -> Any:
    return type(kind.__name__, (kind,), {"__call__": kind.forward})
