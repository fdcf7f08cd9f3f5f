"""What the runs of a race write after one's own words: the same prompt, temperature and seed for all, as it comes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch

from nqlab.generate import stream
from nqlab.runs.store import Run
from nqlab.runs.worker import load_model

LONGEST = 2000


@dataclass(frozen=True)
class Wish:
    """What to write after. ``temperature`` 0 takes the likeliest character; ``top_k`` None draws from all of them."""

    prompt: str
    length: int = 300
    temperature: float = 0.8
    top_k: int | None = None
    seed: int = 0


def writing(run: Run, wish: Wish) -> Iterator[str]:
    """Characters after the prompt, one after the other, from a copy of the run's newest checkpoint.

    ValueError for a prompt with characters its text never had, a length outside 1 to 2000, no checkpoint yet, or a
    model that diverged; at the latest when the first character is asked for.
    """
    if not 1 <= wish.length <= LONGEST:
        raise ValueError(f"length {wish.length} must be 1 to {LONGEST}")
    model, corpus, _step = load_model(run)
    prompt = torch.tensor([corpus.vocabulary.encode_prompt(wish.prompt)])
    for following in islice(stream(model, prompt, temperature=wish.temperature, top_k=wish.top_k, seed=wish.seed), wish.length):
        yield corpus.vocabulary.decode([int(following)])
