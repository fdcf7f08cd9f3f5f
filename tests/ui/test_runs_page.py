"""The page Runs: without a browser what it shows, and in one what a person does with a run from export to import."""

from __future__ import annotations

import json
import re
import zipfile

import pytest

from nqlab.runs.launch import create
from nqlab.runs.store import Run
from nqlab.runs.worker import Worker
from tests.small import small
from tests.ui.conftest import page_of


def draw():
    from nqlab.ui.runs_page import page

    page()


def trained(runs_dir, **changes):
    race, runs = create(runs_dir, [small(corpus="python-docs", steps=6, query=q, **changes) for q in ("linear", "nonlinear")])
    assert Worker(race, runs).work() == 0
    return runs


def shown(test):
    return test.dataframe[0].value


def words(test):
    return " ".join(e.value for kind in ("markdown", "caption", "info", "warning", "error", "success") for e in getattr(test, kind))


def test_without_runs_it_says_what_to_do(own_runs):
    assert "There is no run yet" in words(page_of(draw))


def test_search_filters_and_groups(own_runs):
    trained(own_runs)
    trained(own_runs, seed=3)
    test = page_of(draw)
    assert len(shown(test)) == 4
    test.text_input(key="runs.search").set_value("seed=3 nonlinear").run()
    assert list(shown(test)["variant"]) == ["nonlinear"]
    test.text_input(key="runs.search").set_value("sed=3").run()
    assert "sed" in " ".join(e.value for e in test.error)
    test.text_input(key="runs.search").set_value("").run()
    test.multiselect(key="runs.only.arm").set_value(["linear"]).run()
    assert len(shown(test)) == 2
    test.selectbox(key="runs.group").set_value("seed").run()
    groups = next(frame.value for frame in test.dataframe if "mean val. loss" in frame.value)
    assert list(groups["runs"]) == [1, 1]
    assert not test.exception


def test_one_run_has_its_receipt_and_two_their_difference(own_runs):
    first, second = trained(own_runs)
    test = page_of(draw)
    test.session_state["runs.chosen"] = [first.id]
    test.run()
    assert not test.exception
    told = {row["what"]: row["value"] for frame in test.dataframe if "what" in frame.value for row in frame.value.to_dict("records")}
    assert told["model.query"] == "linear"
    assert any("sha256" in str(key) or re.fullmatch(r"[0-9a-f]{10,64}", str(value)) for key, value in told.items())
    test.session_state["runs.chosen"] = [first.id, second.id]
    if "run" in test.query_params:
        del test.query_params["run"]
    test.run()
    assert "query linear → nonlinear" in words(test)


def test_a_run_that_is_not_there_says_so(own_runs):
    trained(own_runs)
    test = page_of(draw)
    test.query_params["run"] = "nobody"
    test.run()
    assert "There is no run 'nobody' here" in words(test)


@pytest.mark.browser
def test_export_delete_import_and_run_again_in_a_browser(app, browser, tmp_path):
    (run, other) = trained(app.runs_dir)
    name, curve, weights = run.name, run.events.read_bytes(), run.checkpoint.read_bytes()
    page = browser.new_context(viewport={"width": 1440, "height": 1400}).new_page()
    page.goto(f"{app.url}/runs?run={run.id}")
    with page.expect_download(timeout=60_000) as download:
        page.get_by_role("button", name="Everything (zip)", exact=True).click()
    kept = tmp_path / "run.zip"
    download.value.save_as(kept)
    assert f"{run.id}/config.json" in zipfile.ZipFile(kept).namelist()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("button", name="Undo", exact=True).wait_for(timeout=20_000)
    assert not run.folder.exists()
    page.get_by_text("Import a run").click()
    page.locator("input[type=file]").set_input_files(kept)
    page.get_by_text("run.zip").first.wait_for(timeout=20_000)
    page.get_by_role("button", name="Import", exact=True).click()
    page.get_by_text(f"{name} is imported").wait_for(timeout=20_000)
    again = Run(run.folder)
    assert again.events.read_bytes() == curve
    assert again.checkpoint.read_bytes() == weights
    assert again.config == run.config
    assert "imported" in again.meta
    page.get_by_role("button", name="Run again and compare", exact=True).click()
    page.get_by_text(re.compile("bitwise equal: all .* losses")).wait_for(timeout=90_000)
    repeats = [json.loads(p.read_text(encoding="utf-8")).get("repeats") for p in app.runs_dir.glob("*/meta.json")]
    assert repeats.count(run.id) == 1
    page.get_by_role("textbox", name="Search").fill("nonlinear")
    page.get_by_role("textbox", name="Search").press("Enter")
    page.get_by_text("1 run of 3").wait_for(timeout=20_000)
    assert "Traceback" not in app.said()
    assert other.folder.exists()
    page.context.close()
