from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from nqlab.config import RunConfig
from nqlab.model.gpt import GPT
from nqlab.runs import exporting
from nqlab.runs.log import EventReader
from nqlab.runs.store import Run
from nqlab.runs.worker import load_model
from tests.runs.test_store import DOCS, created, worked
from tests.small import small


def test_the_curve_as_csv_has_every_step_and_evaluation(runs_dir: Path) -> None:
    (run,) = created(runs_dir, small(**DOCS, steps=6, eval_interval=3, sample_interval=3, sample_length=3))
    worked([run])
    rows = list(csv.DictReader(io.StringIO(exporting.curve_csv(run))))
    records = [r for r in EventReader(run.events).read() if r["type"] in ("step", "evaluation")]
    assert [(r["type"], int(r["step"])) for r in rows] == [(r["type"], r["step"]) for r in records]
    assert [float(r["loss"]) for r in rows if r["loss"]] == [r["loss"] for r in records if r["type"] == "step"]
    assert [float(r["val_loss"]) for r in rows if r["val_loss"]] == [r["val_loss"] for r in records if r["type"] == "evaluation"]


def test_an_archive_is_the_folder_and_its_curve(runs_dir: Path, tmp_path: Path) -> None:
    (run,) = created(runs_dir, small(**DOCS, steps=2))
    worked([run])
    run.relabel(note="né 🙂")
    (run.folder / "checkpoint.tmp").write_bytes(b"left over")
    exporting.write_archive(run, tmp_path / "out.zip")
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        assert archive.testzip() is None
        names = ("checkpoint.safetensors", "config.json", "events.jsonl", "label.json", "meta.json")
        assert set(archive.namelist()) == {f"{run.id}/{name}" for name in (*names, "curve.csv")}
        for name in names:
            assert archive.read(f"{run.id}/{name}") == (run.folder / name).read_bytes()
        assert archive.read(f"{run.id}/curve.csv").decode("utf-8") == exporting.curve_csv(run)
        archive.extractall(tmp_path / "elsewhere")
    again = Run(tmp_path / "elsewhere" / run.id)
    assert again.summary() | {"race": None} == run.summary() | {"race": None}


def test_the_record_as_json_holds_label_configuration_circumstances_and_every_event(runs_dir: Path) -> None:
    (run,) = created(runs_dir, small(**DOCS, steps=3))
    worked([run])
    run.relabel(name="né", tags=["a"])
    data = json.loads(exporting.record_json(run))
    assert (data["id"], data["name"], data["tags"], data["status"]) == (run.id, "né", ["a"], "did not learn")
    assert RunConfig.model_validate(data["config"]) == run.config
    assert data["meta"] == run.meta
    assert data["events"] == EventReader(run.events).read()


def test_weights_are_the_models_tensors_alone_and_make_the_same_model(runs_dir: Path, tmp_path: Path) -> None:
    (run,) = created(runs_dir, small(**DOCS, query="nonlinear", steps=3))
    with pytest.raises(ValueError, match="is no checkpoint"):
        exporting.weights(run)
    worked([run])
    (tmp_path / "weights.safetensors").write_bytes(exporting.weights(run))
    with safe_open(tmp_path / "weights.safetensors", framework="pt") as file:
        told = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
    assert (told["run"], told["step"]) == (run.id, "3")
    assert RunConfig.from_json(told["config"]) == run.config
    kept, corpus, _ = load_model(run)
    model = GPT(run.config.model, len(corpus.vocabulary))
    missing = model.load_state_dict(tensors, strict=False)
    assert (missing.missing_keys, missing.unexpected_keys) == (["lm_head.weight"], []), "a tied matrix stands once"
    ids = torch.arange(8)[None]
    assert torch.equal(model.eval()(ids), kept(ids))
