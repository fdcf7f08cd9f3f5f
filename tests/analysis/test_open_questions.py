"""The open questions: each has its study file, and its answer is what the study says."""

from __future__ import annotations

from typing import Any

import pytest

from nqlab.analysis.elsewhere import open_cell
from nqlab.analysis.open_questions import answer, how_to, open_questions, rows_of
from nqlab.analysis.studies import REFERENCE, Filled
from nqlab.runs.study import read_study
from tests.analysis.made import result

QUESTIONS = {question.study: question for question in open_questions()}


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_question_has_a_study_of_three_seeds_and_four_rates(name: str) -> None:
    study = read_study(REFERENCE / f"{name}.json")
    assert len(study.seeds) >= 3
    assert len(study.grid["training.learning_rate"]) >= 4
    assert {"linear", "nonlinear"} <= set(study.arms)
    assert study.question
    assert how_to(QUESTIONS[name]).endswith(f"data/reference/{name}.json")


def test_an_answer_is_the_verdict_of_each_group_at_both_budgets() -> None:
    question = QUESTIONS["query-norm"]
    study = read_study(REFERENCE / "query-norm.json")
    results = tuple(
        result(arm, seed, loss + rate + seed / 100 + (0.001 * seed if arm == "linear" else 0), rate=rate, norm=norm)
        for norm, gap in (("rmsnorm", 0.2), ("none", -0.2))
        for arm, loss in (("linear", 2.0), ("nonlinear", 2.0 + gap))
        for rate in (1e-3, 3e-3)
        for seed in (0, 1, 2)
    )
    rows = rows_of(question, {"query-norm": Filled(study, results, {})})
    found = {(row["size"], row["budget"]): row["verdict"] for row in rows}
    assert len(found) == len(rows) == 4
    assert {size: verdict for (size, budget), verdict in found.items() if budget == "equal tuning"} == {
        "tiny, norm rmsnorm": "worse", "tiny, norm none": "better",
    }  # fmt: skip
    same = [row for row in rows if row["budget"] == "same settings"]
    assert all(row["settings"]["training.learning_rate"] == 1e-3 for row in same)
    assert "norm none" in answer(rows[-1])


def test_a_question_without_results_has_no_answer() -> None:
    assert rows_of(QUESTIONS["query-norm"], {}) == []


def test_the_cell_runs() -> None:
    seen: list[Any] = []
    exec(open_cell(), {"display": lambda *tables: seen.extend(tables)})
    slopes, verdicts = seen
    assert set(slopes.get("study", [])) <= {name for name, question in QUESTIONS.items() if question.ladder}
    assert set(verdicts["question"]) <= {question.title for question in QUESTIONS.values()}
    assert len(verdicts) > 10
