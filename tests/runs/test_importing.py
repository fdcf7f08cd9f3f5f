"""An export taken in: the same run comes out, and nothing else does, whatever the file holds."""

from __future__ import annotations

import io
import json
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from nqlab.corpus import Corpus
from nqlab.runs import exporting
from nqlab.runs.importing import LIMITS, import_run
from nqlab.runs.launch import reopen
from nqlab.runs.store import Run, delete, runs
from nqlab.runs.worker import Worker, generate_text
from nqlab.training.checkpoint import load_state
from tests.runs.test_store import DOCS, created, worked
from tests.small import nth_call, small

Files = dict[str, bytes]
PARTS = ("config.json", "events.jsonl", "checkpoint.safetensors", "label.json")


@pytest.fixture
def exported(runs_dir: Path) -> tuple[Run, bytes]:
    (run,) = created(runs_dir, small(**DOCS, query="nonlinear", steps=6, eval_interval=3, sample_interval=3, sample_length=3))
    worked([run])
    run.relabel(name="blue fox", note="né 🙂", tags=["a", "b"])
    return run, exporting.archive(run)


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory, docs: Corpus) -> tuple[str, bytes]:
    """The id and the archive of a run that is not in the test's own folder."""
    (run,) = created(tmp_path_factory.mktemp("origin"), small(corpus=docs.name, query="nonlinear", steps=6, eval_interval=3))
    worked([run])
    return run.id, exporting.archive(run)


def files_of(data: bytes) -> Files:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(files: Files) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def contents(run: Run) -> Files:
    return {name: (run.folder / name).read_bytes() for name in PARTS}


def everything(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(p), p.stat().st_size if p.is_file() else 0) for p in folder.rglob("*"))


# --- what comes back


def test_an_exported_deleted_and_imported_run_is_the_same(runs_dir: Path, exported: tuple[Run, bytes]) -> None:
    run, data = exported
    before, summary, meta = contents(run), run.summary(), run.meta
    text = generate_text(run, "def ", 20, 1.0, None, 0)
    delete(run)
    assert runs(runs_dir) == []
    imported = import_run(runs_dir, data)
    assert imported.outcome == "imported"
    assert imported.run == run
    assert (contents(run), run.summary()) == (before, summary)
    assert generate_text(run, "def ", 20, 1.0, None, 0) == text
    assert run.meta.pop("imported")[:2] == "20"
    del meta["launched"]
    assert {key: value for key, value in run.meta.items() if key != "imported"} == meta


def test_a_run_that_is_here_is_said_to_be_and_left_as_it_is(runs_dir: Path, exported: tuple[Run, bytes]) -> None:
    run, data = exported
    run.relabel(name="renamed since")
    before = everything(runs_dir)
    imported = import_run(runs_dir, data)
    assert (imported.run, imported.outcome) == (run, "already here")
    assert everything(runs_dir) == before


def test_another_run_under_the_same_id_gets_a_new_one_and_a_race_of_its_own(runs_dir: Path, exported: tuple[Run, bytes]) -> None:
    run, data = exported
    run.events.write_bytes(b"".join(run.events.read_bytes().splitlines(keepends=True)[:-1]))
    imported = import_run(runs_dir, data)
    assert imported.outcome == "imported under a new id"
    assert imported.run.id != run.id
    assert contents(imported.run) == {k.partition("/")[2]: v for k, v in files_of(data).items() if k.partition("/")[2] in PARTS}
    assert imported.run.race.info["runs"] == [imported.run.id]
    assert sorted(r.id for r in runs(runs_dir)) == sorted([run.id, imported.run.id])


@pytest.mark.parametrize("folder", ["run", "..", ".trash", "20260101-000000-abcd-0-1", "a\\b"])
def test_a_folder_of_another_name_only_costs_the_id(runs_dir: Path, exported: tuple[Run, bytes], folder: str) -> None:
    _, data = exported
    files = {f"{folder}/{name.partition('/')[2]}": content for name, content in files_of(data).items()}
    imported = import_run(runs_dir, packed(files))
    assert imported.outcome == "imported under a new id"
    assert imported.run.folder.parent == runs_dir
    assert imported.run.name == "blue fox"


def test_runs_of_a_race_find_together_on_another_machine(runs_dir: Path, tmp_path: Path) -> None:
    both = created(runs_dir, *(small(**DOCS, steps=2, query=query) for query in ("linear", "identity")))
    worked(both)
    elsewhere = tmp_path / "elsewhere"
    for run in reversed(both):
        import_run(elsewhere, exporting.archive(run))
    there = [Run(elsewhere / run.id) for run in both]
    assert [r.status() for r in there] == ["did not learn"] * 2
    assert there[0].race.info["runs"] == [r.id for r in both]
    assert there[0].race.info["name"] == both[0].race.info["name"]


def test_an_imported_run_that_was_stopped_goes_on_as_if_it_had_not_moved(runs_dir: Path, tmp_path: Path) -> None:
    whole, halted = (created(runs_dir, small(**DOCS, steps=8))[0] for _ in range(2))
    worked([whole])
    worker = Worker(halted.race, [halted])
    worker.must_stop = nth_call(4)  # type: ignore[method-assign]
    worker.work()
    there = import_run(tmp_path / "elsewhere", exporting.archive(halted)).run
    assert there.status() == "stopped"
    reopen([there])
    worked([there])
    names = [name for name in load_state(there.checkpoint).tensors if name.startswith("model.")]
    assert names
    assert all(torch.equal(load_state(there.checkpoint).tensors[n], load_state(whole.checkpoint).tensors[n]) for n in names)


def test_a_run_without_events_weights_or_label_can_be_taken_in(runs_dir: Path, tmp_path: Path) -> None:
    (run,) = created(runs_dir)
    (run.folder / "label.json").unlink()
    there = import_run(tmp_path / "elsewhere", exporting.archive(run)).run
    assert (there.status(), there.name) == ("interrupted", run.id)


# --- what is refused


def changed(name: str, change: Callable[[bytes], bytes]) -> Callable[[str, Files], Files]:
    return lambda folder, files: files | {f"{folder}/{name}": change(files[f"{folder}/{name}"])}


def more(name: str, content: bytes = b"x") -> Callable[[str, Files], Files]:
    return lambda folder, files: files | {name.format(folder): content}


def less(name: str) -> Callable[[str, Files], Files]:
    return lambda folder, files: {key: content for key, content in files.items() if key != f"{folder}/{name}"}


def with_value(key: str, value: object) -> Callable[[bytes], bytes]:
    return lambda content: json.dumps(json.loads(content) | {key: value}).encode("utf-8")


def event(line: str) -> Callable[[bytes], bytes]:
    return lambda content: content + line.encode("utf-8") + b"\n"


def tensors(change: Callable[[dict[str, torch.Tensor]], object], **numbers: object) -> Callable[[bytes], bytes]:
    def changing(content: bytes) -> bytes:
        from safetensors.torch import load

        kept = load(content)
        change(kept)
        state = {"step": 6, "evaluated": 6, "sampled": 6, "elapsed_s": 1.0, "cpu_s": 1.0} | numbers
        return save(kept, metadata={"state": json.dumps(state)})

    return changing


WRONG = {
    "a path outside": (more("{}/../../escaped"), "escaped"),
    "an absolute path": (more("/etc/escaped"), "escaped"),
    "an unknown file": (more("{}/run.py"), "run.py"),
    "a deeper folder": (more("{}/more/config.json"), "more/config.json"),
    "a file beside the folder": (more("config.json"), "holds 'config.json'"),
    "a file twice": (more("other/config.json"), "twice"),
    "two folders": (lambda folder, files: less("label.json")(folder, files) | {"other/label.json": b"{}"}, "2 folders"),
    "no configuration": (less("config.json"), "has no config.json"),
    "no circumstances": (less("meta.json"), "has no meta.json"),
    "a torn configuration": (changed("config.json", lambda c: c[:50]), "config.json: "),
    "an invalid setting": (changed("config.json", with_value("seed", -1)), "seed = -1"),
    "circumstances that are a list": (changed("meta.json", lambda c: b"[]"), "meta.json"),
    "threads that are a text": (changed("meta.json", with_value("threads", "2")), "threads"),
    "an entropy that is missing": (changed("meta.json", with_value("entropies", {"unigram": 1.0})), "entropies"),
    "a blank name": (changed("label.json", with_value("name", " ")), "label.json: name"),
    "a tag too long": (changed("label.json", with_value("tags", ["x" * 31])), "31 characters"),
    "a label that is none": (changed("label.json", lambda c: b"\xff"), "label.json"),
    "a line that is no event": (changed("events.jsonl", event("[]")), "events.jsonl, line"),
    "an event without its loss": (changed("events.jsonl", event('{"type": "step", "step": 7}')), "loss"),
    "a step below zero": (changed("events.jsonl", event('{"type": "checkpoint", "step": -1}')), "step"),
    "a loss that is no number": (changed("events.jsonl", lambda c: c.replace(b'"loss": ', b'"loss": 1e999, "x": ', 1)), "JSON compliant"),
    "a step beyond counting": (changed("events.jsonl", event('{"type": "stopped", "step": ' + "9" * 400 + "}")), "is too large"),
    "weights that are none": (changed("checkpoint.safetensors", lambda c: c[:100]), "weights cannot be read"),
    "weights of another shape": (
        changed("checkpoint.safetensors", tensors(lambda t: t.update({"model.wte.weight": torch.zeros(2, 2)}))), "model.wte.weight",
    ),
    "a weight missing": (changed("checkpoint.safetensors", tensors(lambda t: t.pop("model.norm_f.weight"))), "model.norm_f.weight"),
    "a weight of another type": (
        changed("checkpoint.safetensors", tensors(lambda t: t.update({"model.norm_f.weight": torch.zeros(16, dtype=torch.int8)}))),
        "model.norm_f.weight",
    ),
    "a moment missing": (
        changed("checkpoint.safetensors", tensors(lambda t: t.pop("optimizer.norm_f.weight.step"))), "optimizer.norm_f.weight.step",
    ),
    "weights of a step that never was": (changed("checkpoint.safetensors", tensors(lambda t: t, step=5)), "step 5"),
    "weights of another run": (changed("config.json", lambda c: c.replace(b'"query": "nonlinear"', b'"query": "identity"')), "weights"),
}  # fmt: skip


@pytest.mark.parametrize("how", WRONG)
def test_what_is_no_export_is_refused_in_one_line_and_leaves_nothing(
    runs_dir: Path, tmp_path: Path, export: tuple[str, bytes], how: str
) -> None:
    name, data = export
    change, said = WRONG[how]
    runs_dir.mkdir()
    before = everything(tmp_path)
    with pytest.raises(ValueError, match="this is no exported run") as caught:
        import_run(runs_dir, packed(change(name, files_of(data))))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert everything(tmp_path) == before


def test_a_link_in_a_zip_is_refused(runs_dir: Path, export: tuple[str, bytes]) -> None:
    _name, data = export
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files_of(data).items():
            entry = zipfile.ZipInfo(name)
            link = name.endswith("label.json")
            entry.external_attr = ((stat.S_IFLNK if link else stat.S_IFREG) | 0o644) << 16
            archive.writestr(entry, b"/etc/passwd" if link else content)
    with pytest.raises(ValueError, match=r"label\.json"):
        import_run(runs_dir, out.getvalue())


def test_a_file_larger_than_any_is_refused_before_it_is_unpacked(
    runs_dir: Path, export: tuple[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    _name, data = export
    monkeypatch.setitem(LIMITS, "events.jsonl", 1000)
    monkeypatch.setattr("nqlab.runs.importing._copy", lambda *args: pytest.fail("unpacked"))
    with pytest.raises(ValueError, match=r"its events\.jsonl has 0\.0 MB; at most"):
        import_run(runs_dir, data)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"no zip at all" * 100], ids=["empty", "torn", "text"])
def test_what_is_no_zip_is_refused(runs_dir: Path, data: bytes) -> None:
    with pytest.raises(ValueError, match="it is no zip"):
        import_run(runs_dir, data)
    assert runs(runs_dir) == []


def test_a_zip_with_a_flipped_byte_is_refused(runs_dir: Path, export: tuple[str, bytes]) -> None:
    _name, data = export
    place = data.index(b"checkpoint.safetensors") + 3000
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors cannot be unpacked"):
        import_run(runs_dir, data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :])
