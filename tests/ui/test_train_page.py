"""The Train page without a browser: every bad input gives its message, and nothing starts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nqlab.runs.launch import create
from nqlab.runs.worker import Worker
from tests.small import small
from tests.ui.conftest import page_of

ROOT = Path(__file__).parents[2]


def draw():
    from nqlab.ui.train_page import page

    page()


@pytest.fixture
def page(own_runs):
    return page_of(draw)


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


def test_a_device_that_is_not_there_says_so(page):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has cuda")
    page.selectbox(key="form.training.device").set_value("cuda")
    page.run()
    assert "device 'cuda' is not available" in messages(page)
    assert page.button(key="start").disabled


@pytest.mark.parametrize("there", [True, False])
def test_a_number_format_is_offered_where_the_machine_has_it(own_runs, monkeypatch, there):
    monkeypatch.setattr("nqlab.training.device.has_bfloat16", lambda device: there)
    page = page_of(draw)
    assert page.selectbox(key="form.training.dtype").options == (["float32", "bfloat16"] if there else ["float32"])


def test_switches_reach_the_runs_that_are_started(page, monkeypatch):
    started = []

    def start(folder, configs):
        started.extend(configs)
        raise ValueError("not today")

    assert not page.checkbox(key="form.training.compile").value
    page.checkbox(key="form.training.compile").check()
    page.checkbox(key="form.model.tied").uncheck()
    page.run()
    monkeypatch.setattr("nqlab.runs.launch.start", start)
    page.button(key="start").click()
    page.run()
    assert "not today" in messages(page)
    assert {(c.training.compile, c.model.tied) for c in started} == {(True, False)}


def test_a_race_that_could_not_be_compiled_says_so_once(own_runs):
    from nqlab.config import replace
    from nqlab.presets import tiny

    race, runs = create(own_runs, [replace(tiny(), {"corpus": "python-docs", "query": q}) for q in ("linear", "identity")])
    for run in runs:
        meta = run.meta | {"compiled": False, "compiled_message": "training goes on without compilation: no compiler"}
        (run.folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    page = page_of(draw)
    page.query_params["race"] = race.id
    page.run()
    assert [i.value for i in page.info if "ompilation" in i.value] == ["Training goes on without compilation: no compiler."]


def test_experts_load_stands_below_the_table_of_a_race_with_experts(own_runs):
    configs = [small(corpus="python-docs", steps=5, feedforward=kind) for kind in ("moe", "dense")]
    race, runs = create(own_runs, configs)
    Worker(race, runs).work()
    page = page_of(draw)
    page.query_params["race"] = race.id
    page.run()
    assert not page.exception
    (table,) = (frame.value for frame in page.dataframe if "layer" in frame.value.columns)
    experts = [name for name in table.columns if name.startswith("expert ")]
    assert len(experts) == configs[0].resolved().model.n_experts
    assert len(table) == configs[0].model.n_layer  # the dense run has none
    assert table[experts].sum(axis=1).tolist() == pytest.approx([1.0] * len(table), abs=1e-3)


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
    assert page.number_input(key="form.model.bottleneck").value == 64
    page.number_input(key="form.model.bottleneck").set_value(63)
    page.multiselect(key="form.arms").set_value(["nonlinear"])
    page.run()
    assert "(matched)" in " ".join(m.value for m in page.markdown)


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
    from nqlab.runs.store import delete
    from nqlab.ui import run_actions

    _, (run,) = create(own_runs, [replace(tiny(), {"corpus": "python-docs"})])
    meta = run.meta | {"launched": 0}
    (run.folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    delete(run)
    for action in (lambda: run_actions.relabel(run), lambda: run_actions.delete(run), lambda: run_actions.undelete("not-there")):
        action_says(action, run)


def action_says(action, run):
    import streamlit as st

    st.session_state[f"name.{run.id}"], st.session_state[f"note.{run.id}"] = "a name", ""
    for key in ("problem", "notice"):
        st.session_state.pop(key, None)
    action()
    assert st.session_state.get("problem") or st.session_state.get("notice")
