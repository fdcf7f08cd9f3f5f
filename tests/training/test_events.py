from __future__ import annotations

import json

from nqlab.corpus import Corpus
from nqlab.training.events import Event
from tests.small import small, trained


def test_every_event_of_a_run_is_one_json_line_with_its_type_and_step(shakespeare: Corpus) -> None:
    config = small(steps=4, eval_interval=2, sample_interval=2, sample_length=3, checkpoint_interval=2)
    events = trained(config, shakespeare)
    for event in events:
        record = event.record()
        assert json.loads(json.dumps(record, allow_nan=False)) == json.loads(json.dumps(record))
        assert (record["type"], record["step"]) == (event.type, event.step)
        assert "run" not in record
    assert {e.type for e in events} == {"step", "evaluation", "sample", "checkpoint", "done"}


def test_a_checkpoints_record_holds_no_tensors(shakespeare: Corpus) -> None:
    checkpoint = next(e for e in trained(small(checkpoint_interval=4), shakespeare) if e.type == "checkpoint")
    assert checkpoint.record() == {"type": "checkpoint", "step": 0}


def test_every_kind_of_event_has_a_type_of_its_own() -> None:
    types = [kind.type for kind in Event.__subclasses__()]
    assert len(set(types)) == len(types) == 8
