"""Results made up for tests of what judges them."""

from __future__ import annotations

from nqlab import presets
from nqlab.analysis.results import Outcome, Result
from nqlab.config import replace

UNIGRAM = 3.31


def result(
    arm: str = "linear",
    seed: int = 0,
    loss: float | None = 2.0,
    outcome: Outcome = "finished",
    *,
    halves: tuple[float, float] | None = None,
    rate: float = 1e-3,
    cpu_s: float | None = 10.0,
    **settings: object,
) -> Result:
    """A run of the tiny preset that ended so; a diverged one at step 312, an unfinished one at step 400."""
    base = replace(presets.tiny(), {"learning_rate": rate, "seed": seed, **settings})
    config = presets.arm(base, arm).resolved()
    end = {"diverged": 312, "unfinished": 400}.get(outcome, config.training.steps)
    if outcome in ("diverged", "unfinished"):
        loss, halves = None, None
    elif loss is not None and halves is None:
        halves = (loss, loss)
    losses = (4.2, 3.0 if loss is None else loss)
    return Result(config, outcome, end, loss, halves, (0, end), losses, cpu_s, 65, UNIGRAM)
