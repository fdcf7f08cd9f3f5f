"""The page of times: what it offers, what it shows while and after measuring, and what it warns of."""

import os

import pytest

from nqlab.runs import stopwatch
from tests.ui.conftest import page_of

TABLE = "[data-testid=stTable]"
TRACES = "(document.querySelector('.nqlab-livechart')?._fullData ?? [])"


def script():
    from nqlab.ui.latency_page import page

    page()


def said(test):
    return " ".join(m.value for m in [*test.markdown, *test.caption, *test.warning, *test.error])


def measured(runs_dir, wait_for, arms=("linear", "nonlinear"), contexts=(2, 8)):
    """A measurement, made by the process that the page would start."""
    stopwatch.start(runs_dir, "tiny", arms, contexts, 3)
    wait_for(lambda: stopwatch.process(runs_dir) is None, "the end of the measurement")
    return stopwatch.records(runs_dir)


def test_a_first_visit_offers_everything_and_measures_nothing(own_runs):
    test = page_of(script)
    assert "Nothing has been measured here yet" in said(test)
    assert test.multiselect(key="latency.contexts.tiny").value == [2, 4, 8, 16, 32, 64]
    assert not test.button(key="latency.start").disabled
    assert test.button(key="latency.stop").disabled
    test.selectbox(key="latency.preset").set_value("gpu").run()
    assert test.multiselect(key="latency.contexts.gpu").value[-1] == 256
    test.multiselect(key="latency.arms").set_value([]).run()
    assert test.button(key="latency.start").disabled
    assert not test.exception
    assert stopwatch.records(own_runs) == []


def test_a_press_starts_another_process_with_what_was_chosen_and_another_ends_it(own_runs, wait_for):
    test = page_of(script)
    test.multiselect(key="latency.arms").set_value(["identity", "linear"]).run()
    test.multiselect(key="latency.contexts.tiny").set_value([4, 16]).run()
    test.number_input(key="latency.repeats").set_value(1000).run()
    test.button(key="latency.start").click().run()
    assert not test.exception
    process = stopwatch.process(own_runs)
    assert process is not None
    assert process.pid != os.getpid()
    try:
        assert test.button(key="latency.start").disabled
        wait_for(lambda: len(stopwatch.records(own_runs)) > 20, "readings")
        test.run()
        assert "median over repeats" in said(test)
        assert "Below 1 is faster than identity" in said(test)
        test.button(key="latency.stop").click().run()
    finally:
        stopwatch.stop(own_runs)
    wait_for(lambda: stopwatch.process(own_runs) is None, "the end of the process")
    begin = stopwatch.records(own_runs)[0]
    assert [s["variant"] for s in begin["subjects"]] == ["identity", "linear"]
    assert begin["contexts"] == [4, 16]
    test.run()
    assert not test.exception
    assert not test.button(key="latency.start").disabled


def test_the_table_and_where_its_losses_come_from(own_runs, wait_for):
    measured(own_runs, wait_for, arms=("linear", "reduced_mlp"))
    test = page_of(script)
    table = test.table[0].value
    assert list(table.index) == ["2", "2", "8", "8"]
    assert table["variant"].iloc[0] == "linear (baseline)"
    assert table["ratio per token"].iloc[0].startswith("1.00 (")
    assert table["val. loss"].iloc[1] == "–"
    assert "linear (baseline) (learning rate" in said(test)


def test_a_training_beside_it_is_warned_of_and_what_it_spoilt_is_said(own_runs, wait_for, monkeypatch):
    measured(own_runs, wait_for)
    monkeypatch.setattr("nqlab.ui.latency_page.training_now", lambda folder: ["busy-bee"])
    test = page_of(script)
    assert "**busy-bee** trains on this machine now" in said(test)
    assert not test.button(key="latency.start").disabled
    monkeypatch.setattr("nqlab.ui.latency_page.training_now", lambda folder: [])
    monkeypatch.setattr("nqlab.analysis.latency.disturbed", lambda records: 2)
    assert "2 repeats were measured while something trained" in said(page_of(script))


def test_what_went_wrong_is_said(own_runs, wait_for):
    stopwatch.start(own_runs, "tiny", ["linear"], [65], 3)
    wait_for(lambda: stopwatch.process(own_runs) is None, "the end of the process")
    assert "context 65 is not among" in said(page_of(script))


@pytest.mark.browser
def test_a_press_of_measure_fills_the_table_while_the_page_stays_alive(app, browser):
    page = browser.new_page(viewport={"width": 1440, "height": 1400})
    page.goto(f"{app.url}/latency")
    page.get_by_role("button", name="Measure").wait_for(timeout=60_000)
    page.get_by_test_id("stNumberInputField").fill("10")
    page.get_by_test_id("stNumberInputField").press("Enter")
    page.get_by_role("button", name="Measure").click()
    rows = page.get_by_test_id("stTable").get_by_role("row")
    rows.filter(has_text="nonlinear").filter(has_text="107,136").first.wait_for(timeout=60_000)
    page.get_by_text("complete: 360 of 360 readings").wait_for(timeout=180_000)
    page.wait_for_function(f"document.querySelectorAll('{TABLE} tbody tr').length == 18", timeout=20_000)
    page.wait_for_function(
        f"[...document.querySelectorAll('{TABLE} tbody td')].every(cell => cell.innerText.trim() != '–')", timeout=20_000
    )
    page.wait_for_function(f"{TRACES}.map(trace => trace.y.length).join() == '6,6,6'", timeout=20_000)
    assert "Traceback" not in app.said()
    page.close()
