"""Commands and cells that give elsewhere what a page shows: each is run, and its numbers are compared with the page's."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from nqlab import cli
from nqlab.analysis import elsewhere, studies
from nqlab.analysis.comparison import compare
from nqlab.analysis.microscope import layer_rows, look
from nqlab.analysis.redundancy.architecture import Architecture
from nqlab.analysis.redundancy.examine import errors_of
from nqlab.analysis.stability import cells
from nqlab.runs import launch
from nqlab.runs.study import Study, folder_of
from nqlab.runs.worker import Worker, load_model
from tests.small import small
from tests.ui.studied import STUDY, filled


def run(command: str, *more: str) -> Any:
    """What a command line prints as JSON."""
    words = shlex.split(command)
    assert words[:3] == ["python", "-m", "nqlab"]
    done = CliRunner().invoke(cli.app, [*words[3:], *more, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def execute(cell: str) -> dict[str, Any]:
    """The names that a cell leaves; ``last`` is what its last line gives."""
    *lines, last = cell.splitlines()
    scope: dict[str, Any] = {}
    exec("\n".join([*lines, f"last = {last}"]), scope)
    return scope


BARE = STUDY.model_copy(update={"question": "", "grid": {"learning_rate": ("3e-3", "1e-2")}})


@pytest.mark.parametrize(
    "study",
    [
        BARE,
        Study(name="one", preset="small", arms=("nonlinear", "linear"), baseline="nonlinear", seeds=(0,)),
        Study.of({
            "name": "x", "grid": {"model.bottleneck": (4, 8), "weight_decay": (0.0,)}, "settings": {"betas": [0.9, 0.95], "min_lr": None},
        }),
    ],
    ids=lambda study: study.name,
)  # fmt: skip
def test_a_sweeps_command_describes_the_very_same_cells(study: Study, runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(cli, "_fill", lambda filling, *_: seen.append(filling.study) or 0)
    command = elsewhere.sweep_command(study, here=False)
    assert CliRunner().invoke(cli.app, shlex.split(command)[3:]).exit_code == 0
    assert [c.resolved() for c in seen[0].cells()] == [c.resolved() for c in study.cells()]
    assert (seen[0].name, seen[0].baseline, seen[0].arms) == (study.name, study.baseline, study.arms)


def test_a_study_that_options_cannot_say_is_its_file(runs_dir: Path) -> None:
    for odd in (STUDY, BARE.model_copy(update={"seeds": (3, 5)}), BARE.model_copy(update={"grid": {"betas": ([0.9, 0.95], [0.9, 0.99])}})):
        assert elsewhere.sweep_command(odd, here=False) == "python -m nqlab sweep class.json"
    filled(runs_dir)
    assert run(elsewhere.sweep_command(STUDY, here=True))["ended"] == 18


def test_a_sweeps_cell_fills_the_study(runs_dir: Path) -> None:
    one = Study.of(STUDY.model_dump() | {"name": "one", "grid": {}, "seeds": (0,), "settings": STUDY.settings | {"steps": 10}})
    shown = execute(elsewhere.sweep_cell(one))["last"]
    assert folder_of(runs_dir, "one").study == one
    assert shown.shape[0] == 1
    assert "1/1" in shown.to_string()


@pytest.mark.parametrize("at", [None, {"training.learning_rate": 1e-2, "training.weight_decay": 0.1}], ids=["all", "at one"])
def test_a_comparison_elsewhere_has_the_same_rows(runs_dir: Path, at: dict[str, float] | None) -> None:
    comparison = compare(studies.of_folder(filled(runs_dir)), "nonlinear", ["linear"], at)
    rows = run(elsewhere.compare_command(comparison))
    assert rows == [{"study": "class", **row} for row in comparison.rows]
    size = rows[0]["size"]
    found = execute(elsewhere.compare_cell(comparison, size))
    assert found["comparison"].rows == comparison.rows
    assert len(found["last"].data) >= len(rows)


def test_single_runs_are_compared_elsewhere_too(runs_dir: Path) -> None:
    race, runs = launch.create(runs_dir, [small(corpus="python-docs", steps=20, query=query) for query in ("linear", "nonlinear")])
    Worker(race, runs).work()
    comparison = compare(studies.of_runs(runs_dir))
    (row,) = run(elsewhere.compare_command(comparison))
    assert (row["study"], row["arm"], row["n"]) == ("runs", "nonlinear", 1)
    assert row["mean"] == comparison.rows[0]["mean"]


def test_where_training_survives_elsewhere(runs_dir: Path) -> None:
    found = cells(studies.of_folder(filled(runs_dir)).results)
    rows = run(elsewhere.stability_command("class"))
    assert rows == [{"study": "class", **cell.record()} for cell in found]
    assert {(row["learnt"], row["of"]) for row in rows if row["learning_rate"] == 1e4} == {(0, 3)}
    scope = execute(elsewhere.stability_cell("class", "weight_decay"))
    assert [cell.mean for cell in scope["found"]] == [cell.mean for cell in found]
    assert len(scope["last"].data) == 2


def test_a_run_is_measured_elsewhere_as_on_the_page(runs_dir: Path) -> None:
    race, runs = launch.create(runs_dir, [small(corpus="python-docs", steps=4, query=query) for query in ("linear", "nonlinear")])
    Worker(race, runs).work()
    looks = {one.name: look(*load_model(one)) for one in runs}
    rows = run(elsewhere.microscope_command([one.id for one in runs]))
    assert rows == [{"id": one.id, "name": one.name, **json.loads(json.dumps(looks[one.name].record()))} for one in runs]
    shown = execute(elsewhere.microscope_cell({one.name: one.id for one in runs}))["last"]
    pd.testing.assert_frame_equal(shown, pd.DataFrame(layer_rows(looks)))


@pytest.mark.parametrize(
    ("architecture", "condition", "dtype"),
    [
        (Architecture(), 10.0, "float64"),
        (Architecture(skips="both", norm="layernorm", tied=True, biases=True, n_layer=2), 1000.0, "float32"),
        (Architecture(skips="both", shared_query=True, positions="rope", n_embd=8, n_head=2), 1.0, "float64"),
    ],
)
def test_a_transformer_is_examined_elsewhere_with_the_same_result(architecture: Architecture, condition: float, dtype: str) -> None:
    expected = errors_of(architecture, condition, dtype).record()
    assert run(elsewhere.examine_command(architecture, condition, dtype)) == expected
    scope = execute(elsewhere.examine_cell(architecture, condition, dtype))
    assert scope["architecture"] == architecture
    assert scope["found"].record() == expected
    assert next(iter(scope["last"].columns)) == "state"
