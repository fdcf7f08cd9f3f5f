from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
import torch

from nqlab import corpus as corpora
from nqlab.config import RunConfig
from nqlab.corpus import add_text
from nqlab.runs import store
from nqlab.runs.files import read_json, write_json
from nqlab.runs.launch import create, reopen
from nqlab.runs.log import EventReader
from nqlab.runs.store import Run, delete, empty_trash, find, runs, undelete
from nqlab.runs.worker import Worker, load_model
from nqlab.training.checkpoint import load_state
from tests.small import small

DOCS = {"corpus": "python-docs"}


def created(runs_dir: Path, *configs: RunConfig) -> list[Run]:
    return create(runs_dir, configs or [small(**DOCS)])[1]


def worked(runs: list[Run]) -> int:
    """Train a race in this process, as the command line does; its exit code."""
    return Worker(runs[0].race, runs).work()


def aged(run: Run) -> None:
    """As if the run had been created an hour ago."""
    meta = read_json(run.folder / "meta.json")
    assert meta is not None
    write_json(run.folder / "meta.json", meta | {"launched": time.time() - 3600})


# --- how a run stands, without a living worker (with one: test_worker.py)


def test_a_run_just_created_is_starting_and_long_after_interrupted(runs_dir: Path) -> None:
    (run,) = created(runs_dir)
    assert run.status() == "starting"
    aged(run)
    assert run.status() == "interrupted"


def test_a_run_that_did_not_learn_says_so(runs_dir: Path) -> None:
    (run,) = created(runs_dir, small(**DOCS, steps=3))
    assert worked([run]) == 0
    assert run.status() == "did not learn"
    assert run.summary()["step"] == 3


def test_a_run_that_learned_is_finished(runs_dir: Path) -> None:
    text = add_text("To be, or not to be, that is the question:\n" * 60, "to be")
    (run,) = created(runs_dir, small(corpus=text.name, steps=150, learning_rate=1e-2, n_embd=32))
    assert worked([run]) == 0
    assert run.status() == "finished"
    assert run.summary()["val_loss"] < text.entropies[1]


def test_a_run_that_diverged_says_so_and_its_race_ends_in_an_error_code(runs_dir: Path) -> None:
    both = created(runs_dir, small(**DOCS, learning_rate=1e30, grad_clip=0, checkpoint_interval=1), small(**DOCS))
    assert worked(both) == 1
    assert [r.status() for r in both] == ["diverged", "did not learn"]
    assert load_state(both[0].checkpoint).step in (0, 1)
    with pytest.raises(ValueError, match="is diverged; only a stopped or interrupted run can go on"):
        reopen([both[0]])


def test_a_run_whose_text_has_changed_fails_with_the_reason_and_goes_on_when_it_is_back(runs_dir: Path, data_dir: Path) -> None:
    text = add_text("abcd efgh\n" * 50, "mine")
    (run,) = created(runs_dir, small(corpus=text.name))
    kept = data_dir / "texts" / f"{text.name.removeprefix('text:')}.txt"
    original = kept.read_bytes()
    kept.unlink()
    corpora.load.cache_clear()
    assert worked([run]) == 1
    assert run.status() == "failed"
    assert "is not kept here; give the file again" in EventReader(run.events).read()[-1]["message"]
    kept.write_bytes(original)
    reopen([run])
    assert worked([run]) == 0
    assert run.status() == "did not learn"
    kept.write_bytes(original.replace(b"a", b"z"))
    corpora.load.cache_clear()
    with pytest.raises(ValueError, match="has changed since run"):
        load_model(run)


def test_a_run_whose_checkpoint_is_not_whole_fails_with_the_reason_and_the_list_opens(runs_dir: Path) -> None:
    (run,) = created(runs_dir, small(**DOCS, steps=3))
    run.checkpoint.write_bytes(b"half a checkpoi")
    assert worked([run]) == 1
    assert run.status() == "failed"
    assert "is no checkpoint of this program" in EventReader(run.events).read()[-1]["message"]
    assert [r["status"] for r in (x.summary() for x in runs(runs_dir))] == ["failed"]


def broken(run: Run, how: str) -> None:
    config = run.folder / "config.json"
    match how:
        case "no config":
            config.unlink()
        case "empty config":
            config.write_bytes(b"")
        case "torn config":
            config.write_bytes(config.read_bytes()[:100])
        case "other config":
            config.write_text('{"model": {"n_layers": 2}}', encoding="utf-8")
        case "no text":
            config.write_bytes(b"\xff\xfe\x00")
        case "a folder":
            config.unlink()
            config.mkdir()
        case "empty":
            shutil.rmtree(run.folder)
            run.folder.mkdir()


@pytest.mark.parametrize("how", ["no config", "empty config", "torn config", "other config", "no text", "a folder", "empty"])
def test_a_broken_folder_is_listed_as_broken_beside_the_others(runs_dir: Path, how: str) -> None:
    good, bad = created(runs_dir, small(**DOCS), small(**DOCS))
    broken(bad, how)
    listed = {r.id: r.summary() for r in runs(runs_dir)}
    assert listed[bad.id]["status"] == "broken"
    assert listed[good.id]["status"] == "starting"
    assert find(runs_dir, bad.id).status() == "broken"
    with pytest.raises(ValueError) as caught:
        _ = Run(bad.folder).config
    assert "\n" not in str(caught.value)
    delete(bad)
    assert [r.id for r in runs(runs_dir)] == [good.id]


@pytest.mark.parametrize("name", ["meta.json", "label.json", "events.jsonl"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"type": "step"}\n', b'{"tags": 3, "name": null}'])
def test_a_list_opens_whatever_stands_in_the_other_files(runs_dir: Path, name: str, content: bytes) -> None:
    (run,) = created(runs_dir)
    (run.folder / name).write_bytes(content)
    (listed,) = [r.summary() for r in runs(runs_dir)]
    assert listed["id"] == run.id
    assert listed["status"] in ("starting", "interrupted")


def test_files_and_hidden_folders_beside_the_runs_are_no_runs(runs_dir: Path) -> None:
    assert runs(runs_dir) == []
    (run,) = created(runs_dir)
    (runs_dir / "notes.txt").write_text("mine", encoding="utf-8")
    (runs_dir / ".hidden").mkdir()
    assert runs(runs_dir) == [run]


def test_runs_are_listed_newest_first(runs_dir: Path) -> None:
    (run,) = created(runs_dir)
    for name in ("20200101-000000-aaaa-0", "20990101-000000-aaaa-0"):
        shutil.copytree(run.folder, runs_dir / name)
    assert [r.id for r in runs(runs_dir)] == ["20990101-000000-aaaa-0", run.id, "20200101-000000-aaaa-0"]


# --- what is known of a run


def test_a_summary_holds_what_a_list_shows(runs_dir: Path) -> None:
    (run,) = created(runs_dir, small(**DOCS, query="nonlinear", steps=6, eval_interval=4, seed=3))
    assert (run.summary()["step"], run.summary()["loss"], run.summary()["val_loss"]) == (0, None, None)
    worked([run])
    summary = run.summary()
    records = EventReader(run.events).read()
    assert summary["loss"] == [r for r in records if r["type"] == "step"][-1]["loss"]
    assert summary["val_loss"] == [r for r in records if r["type"] == "evaluation"][-1]["val_loss"]
    assert (summary["arm"], summary["seed"], summary["step"], summary["steps"]) == ("nonlinear", 3, 6, 6)
    assert summary["hash"] == run.config.short_hash()
    assert json.loads(json.dumps(summary)) == summary


def test_the_circumstances_of_a_run_are_written_down(runs_dir: Path) -> None:
    (run,) = created(runs_dir, small(**DOCS, steps=2, device="cpu"))
    worked([run])
    meta = run.meta
    assert meta["versions"]["torch"] == torch.__version__
    assert {"numpy", "nqlab", "pydantic", "safetensors", "python"} <= meta["versions"].keys()
    assert (meta["device"], meta["threads"], meta["schema_version"]) == ("cpu", 1, 1)
    assert len(meta["corpus_sha256"]) == 64
    assert meta["entropies"]["bigram"] < meta["entropies"]["unigram"] < meta["entropies"]["uniform"]
    assert {"created", "launched", "race", "started"} <= meta.keys()


def test_the_best_loss_possible_is_written_down_where_it_is_known(runs_dir: Path) -> None:
    (run,) = created(runs_dir, small(corpus="synthetic", steps=2))
    worked([run])
    assert run.meta["entropies"] == corpora.load("synthetic").levels
    assert run.meta["entropies"]["rate"] < run.meta["entropies"]["bigram"]


def test_a_run_has_exactly_its_five_files(runs_dir: Path) -> None:
    (run,) = created(runs_dir, small(**DOCS, steps=2))
    worked([run])
    assert sorted(p.name for p in run.folder.iterdir()) == [
        "checkpoint.safetensors", "config.json", "events.jsonl", "label.json", "meta.json",
    ]  # fmt: skip


# --- what a person does with it


def test_a_run_is_found_by_id_name_and_beginning(runs_dir: Path) -> None:
    run, other = created(runs_dir, small(**DOCS), small(**DOCS, query="identity"))
    run.relabel(name="blue-fox")
    other.relabel(name="blue-foxes")
    assert find(runs_dir, run.id) == run
    assert find(runs_dir, "blue-fox") == run, "a whole name goes before a beginning"
    assert find(runs_dir, "blue-foxe") == other
    assert find(runs_dir, other.id[:-1] + "1") == other


def test_a_beginning_of_several_runs_is_answered_with_their_ids(runs_dir: Path) -> None:
    both = created(runs_dir, small(**DOCS), small(**DOCS))
    with pytest.raises(ValueError, match="could be") as caught:
        find(runs_dir, both[0].id[:8])
    assert all(r.id in str(caught.value) for r in both)
    for run in both:
        run.relabel(name="twin")
    with pytest.raises(ValueError, match=r"'twin' could be .*; give the id"):
        find(runs_dir, "twin")


def test_an_unknown_run_is_said_to_be_unknown(runs_dir: Path) -> None:
    with pytest.raises(ValueError, match="there is no run 'zebra'"):
        find(runs_dir, "zebra")


def test_a_name_and_a_note_can_be_changed_apart(runs_dir: Path) -> None:
    (run,) = created(runs_dir)
    first = run.name
    run.relabel(note="né 🙂\nsecond line")
    assert (run.name, run.label["note"]) == (first, "né 🙂\nsecond line")
    run.relabel(name="  spaced  ")
    assert (run.name, run.label["note"]) == ("spaced", "né 🙂\nsecond line")
    assert run.summary()["note"] == "né 🙂\nsecond line"


@pytest.mark.parametrize("name", ["", "  \n", "x" * 81])
def test_a_name_that_is_none_is_refused(runs_dir: Path, name: str) -> None:
    (run,) = created(runs_dir)
    before = run.name
    with pytest.raises(ValueError, match="give 1 to 80"):
        run.relabel(name=name)
    assert run.name == before


def test_tags_take_the_place_of_those_before_each_once(runs_dir: Path) -> None:
    (run,) = created(runs_dir)
    assert run.label["tags"] == []
    run.relabel(tags=[" lecture 3 ", "né", "né"])
    run.relabel(note="kept")
    assert run.label["tags"] == run.summary()["tags"] == ["lecture 3", "né"]
    run.relabel(tags=[])
    assert run.label["tags"] == []


@pytest.mark.parametrize(
    ("tags", "said"),
    [(["", "a"], "the tag '' has 0 characters; give 1 to 30"), (["x" * 31], "has 31 characters"), (list(map(str, range(21))), "21 tags")],
)
def test_tags_that_are_none_are_refused(runs_dir: Path, tags: list[str], said: str) -> None:
    (run,) = created(runs_dir)
    run.relabel(tags=["before"])
    with pytest.raises(ValueError, match=said):
        run.relabel(tags=tags)
    assert run.label["tags"] == ["before"]


def test_a_deleted_run_can_be_brought_back_as_it_was(runs_dir: Path) -> None:
    (run,) = created(runs_dir, small(**DOCS, steps=2))
    worked([run])
    before = {p.name: p.read_bytes() for p in run.folder.iterdir()}
    delete(run)
    assert runs(runs_dir) == []
    assert not run.folder.exists()
    assert undelete(runs_dir, run.id) == run
    assert {p.name: p.read_bytes() for p in run.folder.iterdir()} == before
    delete(run)
    assert empty_trash(runs_dir) == 1
    assert empty_trash(runs_dir) == 0
    with pytest.raises(ValueError, match="is not in the trash"):
        undelete(runs_dir, run.id)


def test_a_deleted_run_that_is_here_again_makes_room_in_the_trash_and_is_not_mixed_with_it(runs_dir: Path) -> None:
    (run,) = created(runs_dir)
    aged(run)
    run.relabel(note="first")
    delete(run)
    shutil.copytree(runs_dir / ".trash" / run.id, run.folder)
    with pytest.raises(ValueError, match="is here again"):
        undelete(runs_dir, run.id)
    run.relabel(note="second")
    delete(run)
    with pytest.raises(FileNotFoundError):
        delete(run)
    assert undelete(runs_dir, run.id).label["note"] == "second"


@pytest.mark.parametrize("run_id", ["", ".", "..", "../other", "nonesuch"])
def test_what_is_not_in_the_trash_is_not_moved(runs_dir: Path, run_id: str) -> None:
    created(runs_dir)
    (runs_dir / ".trash").mkdir()
    before = sorted(runs_dir.rglob("*"))
    with pytest.raises(ValueError, match="is not in the trash"):
        undelete(runs_dir, run_id)
    assert sorted(runs_dir.rglob("*")) == before


def test_an_active_run_is_not_deleted(runs_dir: Path) -> None:
    (run,) = created(runs_dir)
    with pytest.raises(ValueError, match="is starting; stop it first"):
        delete(run)
    assert run.folder.exists()


def test_active_races_are_those_with_an_active_run(runs_dir: Path) -> None:
    both = created(runs_dir, small(**DOCS), small(**DOCS))
    (old,) = created(runs_dir)
    aged(old)
    assert list(store.active_races(runs_dir)) == [both[0].race]
