"""The yardstick is honest: the same losses as the lab's own step."""

import pytest

from nqlab.bench import harness
from nqlab.bench.reference import ReferenceRun
from nqlab.config import replace
from nqlab.corpus import load
from nqlab.training.events import Step
from nqlab.training.loop import train


@pytest.mark.parametrize("size", ["T", "S"])
def test_the_reference_step_has_the_losses_of_the_lab(tmp_path, size):
    config, corpus = replace(harness.sizes()[size], {"warmup_steps": 4, "steps": 20}), load(harness.CORPUS)
    reference = ReferenceRun(config, corpus.ids[: corpus.split_at], len(corpus.vocabulary), tmp_path)
    theirs = [reference.step() for _ in range(20)]
    ours = [event.loss for event in train(config, corpus) if isinstance(event, Step)]
    assert theirs == pytest.approx(ours, abs=2e-4)  # float32, other kernels: rounding grows over 20 updates
    assert theirs[:3] == pytest.approx(ours[:3], abs=2e-6)


def test_a_row_has_what_a_reader_of_the_table_needs():
    rows = harness.tick_rows(rounds=4)
    for row in rows:
        assert {"figure", "size", "variant", "unit", "spread"} <= row.keys()
        assert ("ratio" in row) != ("value" in row)
    assert rows[1]["unit"] == "kB"
    assert 10 < rows[1]["value"] < 1000
