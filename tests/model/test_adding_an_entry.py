"""CONTRIBUTING.md says how to add an entry; here its example is added, from that page, and swept like all the others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nqlab import presets, slots
from nqlab.config import replace
from nqlab.corpus import Corpus
from nqlab.model import query as queries
from nqlab.training.events import Done
from nqlab.training.loop import train
from tests.model import test_every_entry as sweep
from tests.small import small

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The page's class in the module of queries, and its line in the registry; gone after the test."""
    class_, line = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    scope: dict[str, Any] = dict(vars(queries))
    exec("from __future__ import annotations\n" + class_, scope)
    monkeypatch.setattr(queries, "GainQuery", scope["GainQuery"], raising=False)
    monkeypatch.setitem(sweep.FORMULAS, ("query", "gain"), lambda C, R, m: C)
    exec(line, dict(vars(slots)))
    yield "gain"
    del slots.QUERY["gain"]


def test_the_example_passes_the_whole_sweep(added: str, docs: Corpus) -> None:
    sweep.test_logits_have_one_number_per_position_and_character("query", added)
    sweep.test_the_loss_at_a_position_has_no_gradient_at_later_ones("query", added)
    sweep.test_every_parameter_gets_a_gradient("query", added, True)
    sweep.test_the_count_is_the_formula_and_what_is_there("query", added, 16, 8, 64, True)
    sweep.test_a_configuration_with_it_survives_json("query", added)
    sweep.test_it_says_what_it_is_and_where_it_comes_from("query", added)
    sweep.test_it_learns_one_batch_by_heart("query", added, docs)
    sweep.test_vectors_and_single_numbers_do_not_decay_and_matrices_do("query", added)
    sweep.test_its_text_with_the_cache_is_that_without_beyond_a_full_context("query", added)


def test_it_trains_without_a_change_anywhere_else(added: str, docs: Corpus) -> None:
    config = replace(small(corpus="python-docs", steps=3), {"model.query": added})
    assert presets.arm_of(config) == added
    assert isinstance(list(train(config, docs))[-1], Done)


def test_a_wrong_count_is_found(added: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sweep.FORMULAS, ("query", added), lambda C, R, m: C + 1)
    with pytest.raises(AssertionError):
        sweep.test_the_count_is_the_formula_and_what_is_there("query", added, 16, 8, 64, True)
