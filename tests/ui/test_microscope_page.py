"""The microscope: the runs of a race side by side, maps of a typed text, what f is worth; and every way to be wrong."""

import os
import re
import time

import pytest
from streamlit.testing.v1 import AppTest

from nqlab.config import replace
from nqlab.presets import tiny
from nqlab.runs import launch
from nqlab.runs.worker import Worker
from nqlab.ui import microscope_page
from tests.small import small
from tests.ui.conftest import page_of


def script():
    from nqlab.ui.microscope_page import page

    page()


def said(test):
    parts = [*test.markdown, *test.caption, *test.info, *test.warning, *test.error]
    return " ".join(m.value for m in parts)


def trained(runs_dir, *queries):
    """A race trained in this very process."""
    race, runs = launch.create(runs_dir, [small(corpus="python-docs", steps=8, query=query) for query in queries])
    assert Worker(race, runs).work() == 0
    return runs


def opened(**address):
    test = AppTest.from_function(script, default_timeout=60)
    test.query_params.update(address)
    test.run()
    assert not test.exception
    return test


def typed(test, text):
    (box,) = test.text_input
    box.set_value(text).run()
    assert not test.exception
    return test


def test_without_a_run_it_says_how_to_get_one(own_runs):
    assert "start a race on the page Train" in said(page_of(script))


def test_a_race_stands_side_by_side_and_what_has_no_f_says_so(own_runs):
    runs = trained(own_runs, "linear", "nonlinear", "identity")
    test = opened(run=runs[1].id)
    assert test.selectbox(key="run").value == runs[1].id
    assert "at the checkpoint of step 8" in said(test)
    assert "**No f** in linear (baseline), identity" in said(test)
    rows = test.dataframe[0].value
    assert list(rows["variant"]) == ["linear (baseline)"] * 2 + ["nonlinear"] * 2 + ["identity"] * 2
    assert list(rows["effective rank of f"] == "no f") == [True, True, False, False, True, True]
    charts = len(test.get("plotly_chart"))
    assert charts == 6 + 1 + 3 * 2  # measures, the scale, a map a run and head
    test.toggle(key="whole_race").set_value(False).run()
    assert not test.exception
    assert len(test.get("plotly_chart")) == charts - 2 * 2


def test_what_f_is_worth_waits_for_its_button(own_runs):
    trained(own_runs, "linear", "nonlinear")
    test = opened()
    assert not test.table
    test.button(key="microscope.worth").click().run()
    assert not test.exception
    table = test.table[0].value
    assert table.loc["linear (baseline)", "f = 0"] == "not defined"
    assert re.fullmatch(r"\d\.\d{4} \([+-]\d\.\d{4}\)", table.loc["nonlinear", "f = 0"])
    assert "x W_Q with no skip" in said(test)
    test.segmented_control(key="microscope.layer").set_value(1).run()
    assert test.table, "another layer must not take the table away"


def test_a_wrong_address_says_so_and_falls_back(own_runs):
    (run,) = trained(own_runs, "nonlinear")
    test = opened(run="nowhere")
    assert "There is no run 'nowhere'" in said(test)
    assert test.query_params["run"] in (run.id, [run.id])


def test_the_run_chosen_goes_into_the_address(own_runs):
    (old,), (new,) = trained(own_runs, "nonlinear"), trained(own_runs, "linear")
    test = opened()
    ids = sorted((old.id, new.id), reverse=True)
    assert test.selectbox(key="run").value == ids[0]
    test.selectbox(key="run").set_value(ids[1]).run()
    assert not test.exception
    assert test.query_params["run"] in (ids[1], [ids[1]])
    assert test.selectbox(key="run").value == ids[1]


@pytest.mark.parametrize(("text", "message"), [("a ☃", "the corpus has no '☃'"), ("a" * 17, "at most 16 fit")])
def test_a_text_that_does_not_fit_says_so_and_the_rest_stays(own_runs, text, message):
    trained(own_runs, "nonlinear")
    test = typed(opened(), text)
    assert message in said(test)
    assert len(test.get("plotly_chart")) == 6
    assert test.button(key="microscope.worth")


def test_a_run_that_cannot_be_opened_says_so_beside_the_others(own_runs):
    runs = trained(own_runs, "linear", "nonlinear")
    runs[0].checkpoint.write_bytes(b"torn")
    test = opened(run=runs[0].id)
    assert "is no checkpoint of this program" in said(test)
    assert set(test.dataframe[0].value["variant"]) == {"nonlinear"}


def test_a_checkpoint_is_measured_once_and_a_newer_one_again(own_runs, monkeypatch):
    (run,) = trained(own_runs, "nonlinear")
    calls = []
    look = microscope_page.microscope.look
    monkeypatch.setattr(microscope_page.microscope, "look", lambda *args: calls.append(args) or look(*args))
    test = opened()
    test.run()
    opened()
    assert len(calls) == 1
    os.utime(run.checkpoint, ns=(1, 10**18))
    opened()
    assert len(calls) == 2


@pytest.mark.browser
def test_maps_of_a_typed_text_in_a_browser(app, browser):
    configs = [replace(tiny(), {"query": query, "steps": 40, "sample_interval": 0}) for query in ("linear", "nonlinear")]
    race, runs = launch.start(app.runs_dir, configs)
    for _ in range(900):
        if race.worker() is None and all(run.status() not in ("starting", "running") for run in runs):
            break
        time.sleep(0.1)
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.goto(f"{app.url}/microscope?run={runs[1].id}")
    box = page.get_by_role("textbox", name="Text")
    box.wait_for(timeout=60_000)
    box.fill("ROMEO: I &")
    box.press("Enter")
    page.locator(".heatmaplayer").nth(4).wait_for(timeout=60_000, state="attached")  # the scale, and two heads of two runs
    page.get_by_text("without preferences it would be 1.51").wait_for(timeout=20_000)
    assert "the corpus has no" not in page.inner_text("body")
    row = page.locator(".js-plotly-plot").filter(has=page.locator(".heatmaplayer")).nth(1)
    row.scroll_into_view_if_needed()
    image = row.locator(".heatmaplayer image").bounding_box()
    page.mouse.move(image["x"] + 0.05 * image["width"], image["y"] + 0.95 * image["height"])
    hover = page.locator(".hoverlayer .hovertext").first
    hover.wait_for(timeout=10_000)
    assert re.search(r"position 10 '&' looks at position 1 'R': 0\.\d\d", hover.text_content())
    assert "Traceback" not in app.said()
    page.close()
