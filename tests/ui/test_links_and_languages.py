"""What a link says is what its page shows, and every page speaks the language it was asked for."""

from __future__ import annotations

import re

import pytest
from streamlit.testing.v1 import AppTest

from nqlab import presets, words
from nqlab.analysis.comparison import compare
from nqlab.analysis.studies import of_folder
from nqlab.runs.launch import create
from nqlab.runs.study import folder_of
from nqlab.runs.worker import Worker
from nqlab.ui import visit
from tests.small import small
from tests.ui.studied import filled
from tests.ui.test_pages import PAGES

CHINESE = re.compile(r"[\u4e00-\u9fff]")
ENGLISH = re.compile(r"(?:\b[A-Za-z][a-z']+\b[ ,]+){3}\b[a-z]+")  # four words in a row


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A filled study and two runs of a race."""
    folder = tmp_path_factory.mktemp("full") / "runs"
    filled(folder)
    race, runs = create(folder, [presets.arm(small(corpus="python-docs", steps=20), name) for name in ("linear", "nonlinear")])
    Worker(race, runs).work()
    return folder


@pytest.fixture
def own_runs(full, monkeypatch):
    """No spare process for pages nobody starts a race on; and English again afterwards."""
    monkeypatch.setenv("NQLAB_RUNS_DIR", str(full))
    monkeypatch.setattr("nqlab.ui.shared.prepare_spare", lambda: None)
    yield full
    words.speak_through(lambda: "en")


def draw_in_chinese(name: str) -> None:
    import importlib

    from nqlab.ui import visit

    visit.begin()
    importlib.import_module(f"nqlab.ui.{name}").page()


def words_of(test: AppTest) -> list[str]:
    """Everything that stands on a page, without code, names of texts and addresses."""
    kinds = ("markdown", "caption", "subheader", "info", "warning", "error", "button", "metric", "expander", "tabs")
    found = []
    for kind in kinds:
        for element in test.get(kind):
            found += [str(getattr(element, name)) for name in ("value", "label") if isinstance(getattr(element, name, None), str)]
    for kind in ("selectbox", "multiselect", "number_input", "slider", "select_slider", "text_input", "toggle", "radio"):
        for element in test.get(kind):
            found += [element.label, element.proto.help, *map(str, getattr(element, "options", []))]
    return [re.sub(r"`[^`]*`|https?://\S+|<style>.*?</style>", "", text) for text in found]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_in_chinese_has_no_english_sentence(own_runs, name):
    test = AppTest.from_function(draw_in_chinese, default_timeout=120, args=[name])
    test.session_state["visit.lang"] = "zh_TW"
    test.run()
    assert not test.exception
    found = words_of(test)
    assert sum(bool(CHINESE.search(text)) for text in found) >= 5
    left = [text for text in found if ENGLISH.search(text) and not CHINESE.search(text)]
    assert not left


def compare_script() -> None:
    from nqlab.ui.compare_page import page

    page()


def test_a_comparisons_link_opens_the_same_comparison(own_runs):
    test = AppTest.from_function(compare_script, default_timeout=60)
    asked = {"study": "class", "baseline": "nonlinear", "arms": "linear", "at": "learning_rate=0.003,weight_decay=0.1"}
    for name, value in asked.items():
        test.query_params[name] = value
    test.run()
    assert not test.exception
    assert test.selectbox(key="baseline").value == "nonlinear"
    assert test.multiselect(key="compared.nonlinear").value == ["linear"]
    assert test.selectbox(key="at").value == asked["at"]
    link = next(code.value for code in test.code if "?study=class" in code.value)
    given = dict(part.split("=", 1) for part in link.split("?")[1].split("&"))
    assert {k: v.replace("%3D", "=") for k, v in given.items()} == asked


def test_what_a_comparisons_link_asks_in_vain_falls_back(own_runs):
    test = AppTest.from_function(compare_script, default_timeout=60)
    for name, value in {"study": "class", "baseline": "magic", "arms": "none", "at": "noon"}.items():
        test.query_params[name] = value
    test.run()
    assert not test.exception
    assert test.selectbox(key="baseline").value == "linear"
    assert test.multiselect(key="compared.linear").value == ["nonlinear"]


def argument_script() -> None:
    from nqlab.ui.argument_page import page

    page()


def test_an_arguments_link_sets_its_switches(own_runs):
    test = AppTest.from_function(argument_script, default_timeout=60)
    asked = {"skips": "both", "norm": "layernorm", "rope": "1", "width": "24", "heads": "3", "dtype": "float32", "condition": "100"}
    for name, value in (asked | {"layers": "many"}).items():
        test.query_params[name] = value
    test.run()
    assert not test.exception
    kept = {name: test.session_state[f"arg.{name}"] for name in asked}
    assert kept == asked | {"rope": True, "width": 24, "heads": 3, "condition": 100.0}
    assert test.session_state["arg.layers"] == 4
    link = next(code.value for code in test.code if "skips=both" in code.value and "?" in code.value)
    assert dict(part.split("=") for part in link.split("?")[1].split("&")) == asked


def test_what_is_downloaded_later_is_in_the_language_of_the_page(own_runs, monkeypatch):
    comparison = compare(of_folder(folder_of(own_runs, "class")))
    with monkeypatch.context() as page:
        page.setattr(visit, "language", lambda: "zh_TW")
        make = visit.in_language(comparison.document)
    chinese, english = (re.sub(r"<script.*?</script>", "", text, flags=re.S) for text in (make(), comparison.document()))
    assert CHINESE.search(chinese)
    assert not CHINESE.search(english)
