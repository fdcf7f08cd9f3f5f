from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nqlab.analysis import runs_table
from nqlab.config import RunConfig
from nqlab.runs.files import write_json
from nqlab.runs.log import as_lines
from nqlab.runs.store import Run, runs
from tests.small import small


def made(folder: Path, config: RunConfig, val_loss: float | None = 2.0, end: dict[str, Any] | None = None, **label: object) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(config.to_json(), encoding="utf-8")
    write_json(folder / "meta.json", {"created": "2026-01-01T00:00:00+00:00"})
    write_json(folder / "label.json", {"name": folder.name} | label)
    events = [] if val_loss is None else [{"type": "evaluation", "step": 12, "val_loss": val_loss}]
    (folder / "events.jsonl").write_bytes(as_lines([*events, end or {"type": "done", "step": 12}]))


@pytest.fixture
def found(runs_dir: Path) -> list[runs_table.Row]:
    made(runs_dir / "a", small(learning_rate=0.01, seed=1), 2.0, name="grey goose", tags=["Lecture 3", "good"])
    made(runs_dir / "b", small(learning_rate=0.01, query="nonlinear"), 3.0, name="blue fox", note="né 🙂 lr=3", tags=["good"])
    made(runs_dir / "c", small(learning_rate=0.1, query="identity"), 9.0, {"type": "diverged", "step": 3}, name="red hen")
    (runs_dir / "d").mkdir()
    return runs_table.rows(runs(runs_dir))


def ids(rows: list[runs_table.Row]) -> str:
    return "".join(sorted(row["id"] for row in rows))


@pytest.mark.parametrize(
    ("text", "which"),
    [
        ("", "abcd"), ("  ", "abcd"), ("GOOSE", "a"), ("né", "b"), ("lecture", "a"), ("good", "ab"), ("good fox", "b"),
        ("good hen", ""), ("learning_rate=0.01", "ab"), ("learning_rate=1e-2", "ab"), ("training.learning_rate=0.01", "ab"),
        ("learning_rate>0.01", "c"), ("learning_rate>=0.01 seed!=1", "bc"), ("val_loss<2.5", "a"), ("val_loss<=3", "ab"),
        ("query=nonlinear", "b"), ("arm=IDENTITY", "c"), ("variant=linear", "a"), ("tag=good", "ab"), ('"Lecture 3"', "a"),
        ("tag!=good", "cd"), ("status=diverged", "c"), ("state=broken", "d"), ('"lr=3"', "b"), ("0.1", "abc"), ("tied=true", "abc"),
        ("seed=one", ""), ("bottleneck=none", "ac"), ("note>x", ""), ("(baseline)", "a"),
    ],
)  # fmt: skip
def test_a_search_finds_runs_by_all_of_its_words_in_any_field(found: list[runs_table.Row], text: str, which: str) -> None:
    assert ids(runs_table.search(found, text)) == which


@pytest.mark.parametrize(("text", "said"), [("lr=3", "runs have no field 'lr'"), ("learning_rat=1", "did you mean learning_rate")])
def test_a_field_that_no_run_has_is_answered_with_near_ones(found: list[runs_table.Row], text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        runs_table.search(found, text)


def test_a_search_in_nothing_finds_nothing() -> None:
    assert runs_table.search([], "seed=1 fox") == []
    assert runs_table.table([]).empty
    assert runs_table.grouped([], "arm") == []


def test_filters_take_any_of_the_values_in_every_field(found: list[runs_table.Row]) -> None:
    assert ids(runs_table.filtered(found, {"arm": ["linear", "identity"], "tags": []})) == "ac"
    assert ids(runs_table.filtered(found, {"arm": ["linear", "nonlinear"], "tags": ["Lecture 3", "none such"]})) == "a"
    assert ids(runs_table.filtered(found, {})) == "abcd"
    assert runs_table.values_of(found, "tags") == ["Lecture 3", "good"]
    assert runs_table.values_of(found, "status") == ["broken", "diverged", "finished"]


def test_groups_count_and_average_those_that_came_to_their_end(found: list[runs_table.Row]) -> None:
    by_rate = runs_table.grouped(found, "training.learning_rate")
    assert by_rate[0] == {"value": "0.01", "runs": 2, "ended": 2, "mean": 2.5, "best": 2.0}
    assert by_rate[1] == {"value": "0.1", "runs": 1, "ended": 0, "mean": None, "best": None}
    assert by_rate[2]["value"] == "–"
    by_tag = {group["value"]: group["runs"] for group in runs_table.grouped(found, "tags")}
    assert by_tag == {"Lecture 3": 1, "good": 2, "–": 2}
    assert runs_table.group_table(found, "training.learning_rate").columns[0] == "learning rate"


def test_runs_can_be_grouped_by_what_they_differ_in(found: list[runs_table.Row]) -> None:
    fields = runs_table.fields(found)
    assert {"arm", "tags", "training.learning_rate", "seed", "model.query"} <= set(fields)
    assert not {"training.steps", "corpus"} & set(fields)


def test_the_list_has_titles_for_variants_and_a_row_for_a_broken_folder(found: list[runs_table.Row]) -> None:
    table = runs_table.table(found)
    assert list(table.columns) == list(runs_table.columns().values())
    assert dict(zip(table["name"], table["variant"]))["grey goose"] == "linear (baseline)"
    assert list(table["state"]) == ["broken", "diverged", "finished", "finished"]


def test_rows_follow_a_run_that_goes_on(tmp_path: Path) -> None:
    made(tmp_path / "a", small(), 2.0)
    run = Run(tmp_path / "a")
    assert runs_table.rows([run])[0]["val_loss"] == 2.0
    run.events.write_bytes(run.events.read_bytes() + as_lines([{"type": "evaluation", "step": 13, "val_loss": 1.0}]))
    assert runs_table.rows([run])[0]["val_loss"] == 1.0
