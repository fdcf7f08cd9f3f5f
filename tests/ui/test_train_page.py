"""The Train page without a browser: every bad input gives its message, and nothing starts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ui.conftest import page_of

ROOT = Path(__file__).parents[2]


@pytest.fixture
def page(own_runs):
    def script():
        from nqlab.ui.train_page import page

        page()

    return page_of(script)


def messages(test):
    return " ".join(e.value for e in test.error)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("form.model.n_head", 3, "n_embd 64 is not a multiple of n_head 3; take n_embd 63 or 66, or n_head 1, 2, 4, 8"),
        ("form.model.n_embd", 100_000, "n_embd"),
        ("form.model.block_size", 0, "block_size = 0"),
        ("form.training.batch_size", 60_000, "memory"),
        ("form.training.min_lr", 0.5, "min_lr 0.5 is above learning_rate 0.001"),
    ],
)
def test_a_bad_number_says_so_and_start_is_off(page, key, value, message):
    if key.endswith("batch_size"):
        page.number_input(key="form.model.n_layer").set_value(60)
    page.number_input(key=key).set_value(value)
    page.run()
    assert not page.exception
    assert message in messages(page)
    assert page.button(key="start").disabled


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [("form.training.device", "cuda", "device 'cuda' is not available"), ("form.training.dtype", "bfloat16", "bfloat16")],
)
def test_a_device_or_format_that_is_not_there_says_so(page, key, value, message):
    import torch

    from nqlab.training.device import has_bfloat16

    if (value == "cuda" and torch.cuda.is_available()) or (value == "bfloat16" and has_bfloat16(torch.device("cpu"))):
        pytest.skip(f"this machine has {value}")
    page.selectbox(key=key).set_value(value)
    page.run()
    assert message in messages(page)
    assert page.button(key="start").disabled


def test_no_variant_and_an_unknown_prompt_character_say_so(page):
    page.multiselect(key="form.arms").set_value([])
    page.run()
    assert "no variant is chosen" in messages(page)
    page.multiselect(key="form.arms").set_value(["identity"])
    page.text_input(key="form.training.sample_prompt").set_value("¿d?")
    page.run()
    assert "the corpus has no '¿'" in messages(page)


def test_a_preset_fills_the_controls_and_unmatched_is_marked(page):
    page.selectbox(key="form.preset").set_value("small")
    page.run()
    assert page.number_input(key="form.model.n_embd").value == 128
    assert page.number_input(key="form.bottleneck").value == 64
    page.number_input(key="form.bottleneck").set_value(63)
    page.multiselect(key="form.arms").set_value(["nonlinear"])
    page.run()
    assert "(matched)" in " ".join(c.value for c in page.caption)


def test_a_wrong_race_in_the_address_says_so_and_the_page_goes_on(tmp_path, monkeypatch, page):
    page.query_params["race"] = "no-such-race"
    page.run()
    assert not page.exception
    assert "There is no race 'no-such-race'" in " ".join(w.value for w in page.warning)


def test_started_with_python_it_says_how_to_start_it():
    done = subprocess.run([sys.executable, "app.py"], check=False, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", timeout=60)
    assert done.returncode != 0
    assert "streamlit run app.py" in done.stderr


def test_renaming_deleting_or_restoring_a_run_that_is_gone_says_so(page, own_runs):
    from nqlab.config import replace
    from nqlab.presets import tiny
    from nqlab.runs.launch import create
    from nqlab.runs.store import delete
    from nqlab.ui import past

    _, (run,) = create(own_runs, [replace(tiny(), {"corpus": "python-docs"})])
    meta = run.meta | {"launched": 0}
    (run.folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    delete(run)
    for action in (lambda: past._relabel(run), lambda: past._delete(run), lambda: past._undelete("not-there")):
        action_says(action, run)


def action_says(action, run):
    import streamlit as st

    st.session_state[f"name.{run.id}"], st.session_state[f"note.{run.id}"] = "a name", ""
    for key in ("problem", "notice"):
        st.session_state.pop(key, None)
    action()
    assert st.session_state.get("problem") or st.session_state.get("notice")
