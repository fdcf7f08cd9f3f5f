"""Generation: with the cache against without it and against the reference, for one text and for a batch of them."""

from __future__ import annotations

from itertools import islice

import torch

from nqlab import presets
from nqlab.bench.harness import Row, _row, _timed, sizes
from nqlab.bench.reference import ReferenceGPT
from nqlab.generate import stream
from nqlab.model.gpt import GPT
from nqlab.runs.worker import threads_for

VOCAB, BATCH = 65, 16


def generation_rows(size: str, rounds: int = 7) -> list[Row]:
    """Seconds without the cache over seconds with it, and the reference's over ours, from one character to a full context."""
    torch.set_num_threads(threads_for(sizes()[size], VOCAB))
    rows = [_cache_row(size, name, 1, rounds) for name in ("linear", "nonlinear", "identity")]
    return [*rows, _cache_row(size, "linear", BATCH, rounds), _reference_row(size, rounds)]


def _cache_row(size: str, variant: str, batch: int, rounds: int) -> Row:
    model = GPT(presets.arm(sizes()[size], variant).model, VOCAB).eval()
    _write(model, batch, cached=True)
    ratios = [_timed(lambda: _write(model, batch, cached=False)) / _timed(lambda: _write(model, batch, cached=True)) for _ in range(rounds)]
    name = variant if batch == 1 else f"{variant}, batch {batch}"
    return _row("generation, without cache over with", size, name, ratios)


def _reference_row(size: str, rounds: int) -> Row:
    config = sizes()[size]
    model = GPT(config.model, VOCAB).eval()
    reference = ReferenceGPT(config, VOCAB).eval()
    reference.take(model)
    count = config.model.block_size - 1
    _write(model, 1, cached=True)
    ratios = [_timed(lambda: reference.write(_prompt(1), count)) / _timed(lambda: _write(model, 1, cached=True)) for _ in range(rounds)]
    return _row("generation, reference over ours", size, "linear", ratios)


def _prompt(batch: int) -> torch.Tensor:
    return torch.zeros(batch, 1, dtype=torch.long)


def _write(model: GPT, batch: int, cached: bool) -> None:
    for _ in islice(stream(model, _prompt(batch), use_cache=cached), model.config.block_size - 1):
        pass
