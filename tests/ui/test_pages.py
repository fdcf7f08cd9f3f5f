"""What holds for all pages: thin files, one entry each in the router, an English and a Chinese title."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

UI = Path(__file__).parents[2] / "nqlab" / "ui"
FILES = sorted(UI.glob("*.py"))
PAGES = sorted(path.stem for path in UI.glob("*_page.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_page_files_stay_thin(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 150


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_pages_compute_nothing_that_a_notebook_could_not_call(path):
    """Numbers are worked out in nqlab.analysis, nqlab.runs or nqlab.model; a page has no array library at hand."""
    source = path.read_text(encoding="utf-8")
    assert "import numpy" not in source
    assert "import torch" not in source
    assert "import scipy" not in source


@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_in_the_router(name):
    source = (UI.parents[1] / "app.py").read_text(encoding="utf-8")
    assert f"st.Page({name}.page" in source


def draw_any(name: str) -> None:
    import importlib

    importlib.import_module(f"nqlab.ui.{name}").page()


KINDS = (
    "selectbox", "multiselect", "number_input", "select_slider", "slider", "text_input", "text_area", "toggle", "checkbox", "radio",
    "button_group",
)  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_every_control_of_every_page_says_what_it_is(own_runs, name):
    test = AppTest.from_function(draw_any, default_timeout=120, args=[name])
    test.run()
    assert not test.exception
    found = [(kind, widget) for kind in KINDS for widget in test.get(kind)]
    assert len(found) >= {"train_page": 30, "argument_page": 10, "compare_page": 3, "latency_page": 4}.get(name, 0)
    for kind, widget in found:
        assert widget.proto.help, (kind, widget.label)
