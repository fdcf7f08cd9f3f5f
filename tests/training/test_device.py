from __future__ import annotations

import pytest
import torch

from nqlab.config import TrainingConfig
from nqlab.corpus import Corpus
from nqlab.training.device import check_dtype, has_bfloat16, resolve_device
from nqlab.training.loop import train
from tests.small import small, step_losses, trained

PRESENT = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
ABSENT = next(name for name, present in PRESENT.items() if not present)  # no machine has both a cuda and an mps device


def test_auto_is_the_best_device_there_is() -> None:
    best = next(name for name in ("cuda", "mps", "cpu") if PRESENT[name])
    assert resolve_device("auto").type == best
    assert resolve_device("cpu").type == "cpu"


def test_a_device_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValueError, match=f"'{ABSENT}' is not available on this machine; available: cpu"):
        resolve_device(ABSENT)


def test_a_run_on_a_device_that_is_not_there_is_refused_before_anything_is_computed(shakespeare: Corpus) -> None:
    with pytest.raises(ValueError, match="is not available on this machine"):
        train(small(device=ABSENT), shakespeare)


def test_bfloat16_is_refused_where_the_device_does_not_compute_in_it() -> None:
    with pytest.raises(ValueError, match="'bfloat16' is not supported by this mps; use float32"):
        check_dtype(TrainingConfig(dtype="bfloat16"), torch.device("mps"))
    check_dtype(TrainingConfig(dtype="float32"), torch.device("mps"))


def test_bfloat16_on_this_cpu_trains_or_is_refused(shakespeare: Corpus) -> None:
    config = small(device="cpu", dtype="bfloat16", steps=3)
    if has_bfloat16(torch.device("cpu")):
        halved, full = (step_losses(trained(c, shakespeare)) for c in (config, small(device="cpu", steps=3)))
        assert halved != full
        assert halved == pytest.approx(full, abs=0.05)
    else:
        with pytest.raises(ValueError, match="'bfloat16' is not supported by this cpu"):
            train(config, shakespeare)
