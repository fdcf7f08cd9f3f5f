"""Windows of a text: training batches as a pure function of (seed, step), and fixed validation windows.

No state is kept between batches: step k's windows are the same whatever the variant, the intervals, a pause or a
resume, because they are drawn from a counter-based generator keyed by (seed, k).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class TrainingBatches:
    """Random windows of the training ids (1-D, int64), ``batch_size`` a step, uniform over all starts."""

    def __init__(self, ids: Tensor, block_size: int, batch_size: int, seed: int) -> None:
        if len(ids) < block_size + 1:
            raise ValueError(
                f"{len(ids)} characters hold no window of block_size {block_size} and its target; at least {block_size + 1} are needed"
            )
        self._windows = ids.unfold(0, block_size + 1, 1)  # (starts, T+1), a view
        self._batch_size, self._seed = batch_size, seed

    def starts(self, step: int) -> np.ndarray:
        """First positions of step ``step``'s windows, (B,)."""
        return np.random.Generator(np.random.Philox(key=[self._seed, step])).integers(0, len(self._windows), self._batch_size)

    def at(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets, both (B, T); targets are the inputs moved on by one."""
        starts, device = torch.from_numpy(self.starts(step)), self._windows.device
        if device.type == "cuda":
            starts = starts.pin_memory()  # else the copy would wait for the device
        windows = self._windows[starts.to(device, non_blocking=True)]  # (B, T+1)
        return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


def validation_windows(ids: Tensor, block_size: int, count: int) -> tuple[Tensor, Tensor]:
    """At most ``count`` windows that do not overlap, spread evenly over the validation ids: inputs, targets (N, T).

    They depend on the corpus, the block size and the count alone, so every run is judged on the same text.
    """
    available = (len(ids) - 1) // block_size
    if available < 1:
        raise ValueError(f"{len(ids)} characters hold no validation window of block_size {block_size}")
    chosen = np.unique(np.linspace(0, available - 1, min(count, available)).round().astype(np.int64)) * block_size
    windows = ids.unfold(0, block_size + 1, 1)[torch.from_numpy(chosen).to(ids.device)]
    return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
