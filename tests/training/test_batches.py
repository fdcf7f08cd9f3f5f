from __future__ import annotations

import numpy as np
import pytest
import torch

from nqlab.corpus import Corpus
from nqlab.training.batches import TrainingBatches, validation_windows

IDS = torch.arange(100)  # every id is its own position


def test_a_text_of_one_window_always_gives_that_window() -> None:
    batches = TrainingBatches(torch.arange(9), block_size=8, batch_size=3, seed=0)
    for step in range(1000):
        x, y = batches.at(step)
        assert x.tolist() == [list(range(8))] * 3
        assert y.tolist() == [list(range(1, 9))] * 3


def test_a_text_shorter_than_a_window_and_its_target_is_refused() -> None:
    with pytest.raises(ValueError, match="8 characters hold no window of block_size 8 and its target; at least 9"):
        TrainingBatches(torch.arange(8), block_size=8, batch_size=3, seed=0)


def test_targets_are_the_inputs_moved_on_by_one() -> None:
    batches = TrainingBatches(IDS, block_size=8, batch_size=5, seed=0)
    for step in range(50):
        x, y = batches.at(step)
        assert x.shape == y.shape == (5, 8)
        assert torch.equal(y, x + 1)
        assert x.is_contiguous()
        assert y.is_contiguous()


def test_windows_of_a_real_text_are_that_text(docs: Corpus) -> None:
    batches = TrainingBatches(torch.from_numpy(docs.ids), block_size=20, batch_size=4, seed=1)
    x, y = batches.at(7)
    for start, inputs, targets in zip(batches.starts(7), x, y):
        assert docs.vocabulary.decode(inputs.tolist()) == docs.text[start : start + 20]
        assert docs.vocabulary.decode(targets.tolist()) == docs.text[start + 1 : start + 21]


def test_every_start_occurs_and_about_equally_often() -> None:
    batches = TrainingBatches(IDS, block_size=8, batch_size=20, seed=0)
    counts = np.bincount(np.concatenate([batches.starts(step) for step in range(460)]), minlength=92)
    assert len(counts) == 92  # the last start is 91: its target is the last character
    assert counts.min() > 60
    assert counts.max() < 140


def test_a_batch_is_a_function_of_seed_and_step_alone() -> None:
    forwards, backwards = (TrainingBatches(IDS, 8, 5, seed=3) for _ in range(2))
    a = [forwards.at(step)[0] for step in range(20)]
    torch.manual_seed(99)
    np.random.default_rng().random()
    b = [backwards.at(step)[0] for step in reversed(range(20))]
    assert all(torch.equal(x, y) for x, y in zip(a, reversed(b)))


def test_other_seeds_and_other_steps_give_other_batches() -> None:
    seen = {tuple(TrainingBatches(IDS, 8, 8, seed).starts(step)) for seed in (0, 1, 2**63 - 1) for step in range(30)}
    assert len(seen) == 90


def test_the_first_windows_of_a_larger_batch_are_those_of_the_smaller_one() -> None:
    small, large = (TrainingBatches(IDS, 8, size, seed=0).starts(4) for size in (3, 9))
    assert large[:3].tolist() == small.tolist()


# --- validation


@pytest.mark.parametrize(("length", "count"), [(100, 4), (100, 12), (100, 500), (17, 2), (9, 3)])
def test_validation_windows_do_not_overlap_and_lie_within_the_text(length: int, count: int) -> None:
    x, y = validation_windows(torch.arange(length), 8, count)
    assert len(x) == min(count, (length - 1) // 8)
    assert torch.equal(y, x + 1)
    starts = x[:, 0]
    assert (starts.diff() >= 8).all()
    assert int(y.max()) < length


def test_validation_windows_are_spread_from_the_beginning_to_the_end() -> None:
    x, _ = validation_windows(torch.arange(10_000), 8, 50)
    starts = x[:, 0].double()
    assert starts[0] == 0
    assert starts[-1] >= 10_000 - 2 * 8 - 1
    gaps = starts.diff()
    assert (gaps.max() - gaps.min()) <= 8


def test_validation_windows_are_always_the_same() -> None:
    torch.manual_seed(1)
    a = validation_windows(IDS, 8, 5)
    torch.manual_seed(2)
    b = validation_windows(IDS, 8, 5)
    assert torch.equal(a[0], b[0])
    assert torch.equal(a[1], b[1])


def test_a_validation_part_shorter_than_a_window_is_refused() -> None:
    with pytest.raises(ValueError, match="8 characters hold no validation window of block_size 8"):
        validation_windows(torch.arange(8), 8, 5)
