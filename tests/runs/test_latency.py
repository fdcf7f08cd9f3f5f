"""Times in use: what is called, in which order, in which process. Nothing here looks at a clock."""

from __future__ import annotations

import itertools
import json
from collections import Counter, namedtuple
from pathlib import Path

import pytest
import torch

from nqlab import presets, slots
from nqlab.config import replace
from nqlab.corpus import Corpus
from nqlab.model.gpt import GPT
from nqlab.runs import latency, launch, stopwatch
from nqlab.runs.latency import Subject, measure, order
from nqlab.runs.worker import Worker
from tests.small import small

Memory = namedtuple("Memory", "total")


def subject(query: str = "linear") -> Subject:
    config = small(query=query)
    return Subject(query, config, GPT(config.model, 11).eval())


@pytest.mark.parametrize("query", slots.QUERY)
def test_what_is_timed_gives_the_models_own_logits(query: str) -> None:
    model = subject(query).model
    used = latency._Used(model, 16, torch.device("cpu"))
    with torch.no_grad():
        whole = model(used.ids)  # (1, 16, V)
    for context in (16, 2, 7, 16):  # the cache is taken up at any length, shorter or longer than the last
        for kind in latency.KINDS:
            torch.testing.assert_close(used.call(kind)(context), whole[:, context - 1], rtol=1e-4, atol=1e-5)


def test_one_more_token_computes_one_position_and_prefill_all(monkeypatch: pytest.MonkeyPatch) -> None:
    used = latency._Used(subject().model, 16, torch.device("cpu"))
    calls = []
    monkeypatch.setattr(latency, "last_logits", lambda model, ids, cache: calls.append((ids.shape[1], cache[0].length)))
    used.token(9)
    used.prefill(9)
    assert calls == [(1, 8), (9, 0)]


def test_every_repeat_measures_everything_once_models_side_by_side_in_an_order_of_its_own() -> None:
    variants, contexts = ["a", "b", "c"], [2, 4]
    entries = list(order(variants, contexts, 5, seed=0))
    assert entries == list(order(variants, contexts, 5, seed=0))
    assert entries != list(order(variants, contexts, 5, seed=1))
    repeats = [[e[1:] for e in entries if e[0] == repeat] for repeat in range(5)]
    everything = set(itertools.product(contexts, latency.KINDS, variants))
    for one in repeats:
        assert len(one) == len(everything)
        assert set(one) == everything
        blocks = [one[i : i + len(variants)] for i in range(0, len(one), len(variants))]
        assert all(len({(context, kind) for context, kind, _ in block}) == 1 for block in blocks)
    assert len({tuple(one) for one in repeats}) == 5
    assert len({one[0][2] for one in repeats}) > 1, "the same model always goes first"


def test_readings_come_one_by_one_and_the_thread_count_is_given_back() -> None:
    before = torch.get_num_threads()
    readings = list(measure([subject(), subject("identity")], [2, 16], 3))
    counts = Counter((r.variant, r.context, r.kind) for r in readings)
    assert set(counts) == set(itertools.product(("linear", "identity"), (2, 16), latency.KINDS))
    assert set(counts.values()) == {3}
    assert all(r.seconds > 0 for r in readings)
    stopped = measure([subject()], [2], 1000)
    next(stopped)
    stopped.close()  # nobody has to wait for the rest
    assert torch.get_num_threads() == before


def test_contexts_are_powers_of_two_up_to_the_block() -> None:
    assert latency.contexts_up_to(64) == (2, 4, 8, 16, 32, 64)
    assert latency.contexts_up_to(100) == (2, 4, 8, 16, 32, 64)
    assert latency.contexts_up_to(1) == ()


@pytest.mark.parametrize(
    ("contexts", "repeats", "threads", "words"),
    [
        ([], 3, 1, "no context length"),
        ([1], 3, 1, "context 1 is not among 2 to 16"),
        ([2, 17], 3, 1, "choose 2, 4, 8, 16"),
        ([2], 2, 1, "repeats 2 give no spread"),
        ([2], 3, 0, "threads 0 is not among"),
        ([2], 3, 10_000, "the cores of this machine"),
    ],
)
def test_what_cannot_be_measured_is_said_before_anything_is(contexts: list[int], repeats: int, threads: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        next(measure([subject()], contexts, repeats, threads=threads))


def test_no_model_an_unknown_one_and_one_twice_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="no variant to measure"):
        next(measure([], [2], 3))
    with pytest.raises(ValueError, match="'cubic' is unknown"):
        latency.of_preset("tiny", ["cubic"])
    with pytest.raises(ValueError, match="name one twice"):
        latency.of_preset("tiny", ["linear", "linear"])
    monkeypatch.setattr(latency.psutil, "virtual_memory", lambda: Memory(1e6))
    with pytest.raises(ValueError, match="take fewer arms"):
        latency.of_preset("gpt2", ["linear"])


def test_a_presets_models_have_their_arms_and_their_own_weights() -> None:
    linear, wide = latency.of_preset("tiny", ["linear", "wide_mlp"])
    assert wide.config == presets.arm(presets.tiny(), "wide_mlp")
    assert wide.record()["arm"] == "wide_mlp"
    assert wide.record()["parameters"] == sum(p.numel() for p in wide.model.parameters()) > linear.record()["parameters"]
    assert linear.record()["val_loss"] is None


def test_a_finished_run_is_measured_as_it_is(docs: Corpus, runs_dir: Path) -> None:
    race, (run,) = launch.create(runs_dir, [replace(small(), {"corpus": "python-docs"})])
    Worker(race, [run]).work()
    (found,) = latency.of_runs([run])
    assert found.variant == run.name
    assert found.record()["val_loss"] == pytest.approx(run.summary()["val_loss"])
    assert found.model.vocab_size == len(docs.vocabulary)
    with pytest.raises(ValueError, match="name one twice"):
        latency.of_runs([run, run])


def test_records_begin_with_what_is_measured_and_say_whether_something_trained(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([["a-race"], [], []])
    monkeypatch.setattr(latency, "training_now", lambda folder: next(answers))
    begin, *readings = latency.records([subject()], [2], 3, threads=1, device="cpu", runs_dir=runs_dir)
    assert begin["type"] == "begin"
    assert [s["variant"] for s in begin["subjects"]] == ["linear"]
    assert [(r["repeat"], r["busy"]) for r in readings] == [(0, True)] * 2 + [(1, False)] * 2 + [(2, False)] * 2
    assert json.loads(json.dumps(readings)) == readings


def test_a_race_that_trains_is_named_and_one_that_waits_is_not(docs: Corpus, runs_dir: Path) -> None:
    race, runs = launch.create(runs_dir, [replace(small(), {"corpus": "python-docs"})])
    assert latency.training_now(runs_dir) == []
    race.announce("running", 3, [run.id for run in runs], 0.0)
    assert latency.training_now(runs_dir) == [race.info["name"]]
    race.announce("paused", 3, [run.id for run in runs], 0.0)
    assert latency.training_now(runs_dir) == []
    race.retire()


# --- in the background


def test_a_measurement_in_the_background_writes_its_readings_and_can_be_stopped(runs_dir: Path, wait_for) -> None:
    assert stopwatch.records(runs_dir) == []
    assert stopwatch.process(runs_dir) is None
    stopwatch.start(runs_dir, "tiny", ["linear", "identity"], [2, 4], 1000)
    try:
        with pytest.raises(ValueError, match="under way already"):
            stopwatch.start(runs_dir, "tiny", ["linear"], [2], 3)
        wait_for(lambda: len(stopwatch.records(runs_dir)) > 20, "readings")
    finally:
        stopwatch.stop(runs_dir)
    wait_for(lambda: stopwatch.process(runs_dir) is None, "the end of the process")
    kept = stopwatch.records(runs_dir)
    assert kept[0]["contexts"] == [2, 4]
    assert {r["variant"] for r in kept[1:]} == {"linear", "identity"}
    stopwatch.stop(runs_dir)  # nothing to stop, nothing happens
    assert stopwatch.complaint(runs_dir) == ""


def test_what_a_measurement_complains_of_can_be_read(runs_dir: Path, wait_for) -> None:
    assert stopwatch.complaint(runs_dir) == ""
    stopwatch.start(runs_dir, "tiny", ["linear"], [65], 3)
    wait_for(lambda: stopwatch.process(runs_dir) is None, "the end of the process")
    assert "context 65 is not among" in stopwatch.complaint(runs_dir)
    assert stopwatch.records(runs_dir) == []
