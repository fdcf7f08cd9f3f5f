"""The compare page: two verdicts side by side, the runs behind them, everything to take away."""

import csv
import io
import json
from pathlib import Path

import pytest

from nqlab.analysis.comparison import compare
from nqlab.analysis.studies import of_folder
from tests.ui.conftest import choose, page_of
from tests.ui.studied import STUDY, filled


def script():
    from nqlab.ui.compare_page import page

    page()


def said(test):
    return " ".join(m.value for m in [*test.markdown, *test.caption, *test.info, *test.warning])


def test_both_verdicts_stand_side_by_side_with_their_pairs_and_costs(own_runs):
    comparison = compare(of_folder(filled(own_runs)))
    test = page_of(script)
    words = said(test)
    assert "Same settings for all" in words
    assert "Equal tuning budget" in words
    assert "3 paired seeds" in words
    assert "best of 3 settings" in words
    assert "parameters" in words
    assert len(test.dataframe[-1].value) == 2  # the setting chosen, and equal tuning
    test.selectbox(key="at").set_value("all").run()
    assert not test.exception
    assert len(test.dataframe[-1].value) == len(comparison.rows) == 4
    assert "0 of 3 runs learnt" in said(test)


def test_against_seconds_the_dearer_one_is_a_bound_and_no_verdict(own_runs):
    filled(own_runs)
    test = page_of(script)
    test.segmented_control(key="x").set_value("seconds").run()
    assert not test.exception
    assert "a bound, no verdict" in said(test)


def test_another_baseline_turns_the_sign(own_runs):
    filled(own_runs)
    test = page_of(script)
    before = test.dataframe[-1].value
    test.selectbox(key="baseline").set_value("nonlinear").run()
    assert not test.exception
    after = test.dataframe[-1].value
    assert set(after["variant"]) == {"linear (baseline)"}
    same = [table[table["budget"] == "same settings"]["difference"].iloc[0] for table in (before, after)]
    assert same[0] == pytest.approx(-same[1])


def test_without_pairs_it_says_what_is_missing(own_runs):
    from nqlab.runs.study import Study
    from nqlab.runs.sweep import save_study

    save_study(own_runs, Study.of(STUDY.model_dump() | {"name": "anew"}))
    test = page_of(script)
    assert "There are no pairs yet" in said(test)


def test_single_runs_can_be_compared_too(own_runs):
    from nqlab import presets
    from nqlab.runs.launch import create
    from nqlab.runs.worker import Worker
    from tests.small import small

    race, runs = create(own_runs, [presets.arm(small(corpus="python-docs", steps=20), name) for name in ("linear", "nonlinear")])
    Worker(race, runs).work()
    test = page_of(script)
    assert test.selectbox(key="source").value == "runs"
    assert "a single pair, which shows no spread" in said(test)


@pytest.mark.browser
def test_in_a_browser_the_table_sorts_and_the_csv_reads_back_equal(app, browser):
    place = filled(app.runs_dir)
    page = browser.new_page(viewport={"width": 1440, "height": 1400})
    page.goto(f"{app.url}/compare?study=class")
    page.get_by_text("Every comparison").wait_for(timeout=60_000)
    choose(page, page.get_by_role("combobox", name="Settings"), page.get_by_role("option", name="all settings"))
    grid = page.get_by_test_id("stDataFrame").last
    grid.locator("table tbody tr").nth(3).wait_for(timeout=30_000, state="attached")
    page.get_by_text("learning rate 10000").first.wait_for(timeout=30_000)
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV", exact=True).click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8"))))
    expected = compare(of_folder(place)).rows
    assert [(r["budget"], float(r["mean"]), float(r["low"]), int(r["n"]), r["verdict"]) for r in rows] == [
        (r["budget"], r["mean"], r["low"], r["n"], r["verdict"]) for r in expected
    ]
    with page.expect_download() as download:
        page.get_by_role("button", name="JSON", exact=True).click()
    assert json.loads(Path(download.value.path()).read_text(encoding="utf-8")) == list(expected)
    with page.expect_download() as download:
        page.get_by_role("button", name="HTML", exact=True).click()
    assert "Plotly" in Path(download.value.path()).read_text(encoding="utf-8")

    grid.scroll_into_view_if_needed()

    def head():
        return grid.locator("table thead th", has_text="difference").first

    column = head().get_attribute("aria-colindex")

    def shown():
        cells = grid.locator(f"table tbody td[aria-colindex='{column}']").all_inner_texts()
        return [float(text.replace("−", "-")) for text in cells]

    assert sorted(shown()) != shown()
    box = grid.bounding_box()
    for x in range(200, int(box["width"]), 40):  # the table is a canvas: its headers have no places in the page
        page.mouse.click(box["x"] + x, box["y"] + 16)
        page.wait_for_timeout(300)
        if "↑" in head().inner_text() or "↓" in head().inner_text():
            break
    assert shown() in (sorted(shown()), sorted(shown(), reverse=True))
    assert len(shown()) == 4
    assert "Traceback" not in app.said()
    page.close()
