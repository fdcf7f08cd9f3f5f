"""Sampling text from a model, with a cache of keys and values.

The context is at most block_size long. When it is full, it starts anew from its last half, so that the cache serves
many steps again; with the cache or without, the context is the same and so is the text.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from nqlab.model.attention import KeyValueCache
from nqlab.model.gpt import GPT, keyed_generator


class NotFiniteError(ValueError):
    """The model's outputs are not finite: it diverged."""


def stream(
    model: GPT, prompt: Tensor, *, temperature: float = 1.0, top_k: int | None = None, seed: int = 0, use_cache: bool = True
) -> Iterator[Tensor]:
    """Yield next ids (B,) without end, given prompt ids (B, T) with T >= 1; a longer prompt is cropped to its end.

    temperature 0 takes the likeliest character; ``top_k`` is clamped to [1, V]. The draws come from a generator of
    their own, keyed by ``seed``: global random numbers and the model's training flag are left as they were.
    ValueError for a temperature that is no number of 0 or more; :class:`NotFiniteError` for a diverged model.
    """
    if not temperature >= 0:
        raise ValueError(f"temperature {temperature} must be 0 or more; 0 takes the likeliest character")
    assert prompt.shape[1] > 0, "an empty prompt must be given its first character by the caller"
    generator = keyed_generator(seed, "sample")
    block = model.config.block_size
    context = prompt[:, -block:]
    cache: list[KeyValueCache] | None = None
    while True:
        if context.shape[1] > block:
            context, cache = context[:, -max(1, block // 2) :], None
        if use_cache and cache is None:
            cache, fresh = [KeyValueCache() for _ in model.blocks], context
        else:
            fresh = context[:, -1:] if use_cache else context
        logits = _last_logits(model, fresh, cache)
        following = _draw(logits, temperature, top_k, generator)
        yield following
        context = torch.cat((context, following.to(context.device)[:, None]), dim=1)


def _last_logits(model: GPT, ids: Tensor, cache: list[KeyValueCache] | None) -> Tensor:
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            return model(ids, cache)[:, -1].float().cpu()  # (B, V)
    finally:
        model.train(was_training)


def _draw(logits: Tensor, temperature: float, top_k: int | None, generator: torch.Generator) -> Tensor:
    if not torch.isfinite(logits).all():
        raise NotFiniteError("the model's outputs are not finite (it diverged); sample from an earlier checkpoint or another run")
    if temperature == 0:
        return logits.argmax(dim=-1)
    logits = (logits - logits.amax(dim=-1, keepdim=True)) / max(temperature, 1e-30)  # at most 0: however cold, no NaN
    if top_k is not None:
        least = logits.topk(min(max(1, top_k), logits.shape[-1])).values[:, -1:]
        logits = logits.masked_fill(logits < least, float("-inf"))
    return torch.multinomial(torch.softmax(logits, dim=-1), 1, generator=generator)[:, 0]
