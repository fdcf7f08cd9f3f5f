"""The page Runs as a person meets it: export, delete, import, search, run again, in a real browser."""

import hashlib
import re
from pathlib import Path

import pytest

from nqlab.runs import again, launch
from nqlab.runs.store import Run
from tests.small import small

pytestmark = pytest.mark.browser
PATIENCE = 60_000


@pytest.fixture(scope="module")
def trained(app):
    """Two runs of one race, trained in a process of their own."""
    configs = [small(corpus="python-docs", steps=40, query=query, threads="none") for query in ("linear", "nonlinear")]
    _, runs = launch.start(app.runs_dir, configs)
    launch._children[-1].wait(PATIENCE / 1000)
    assert [run.status() for run in runs] == ["did not learn"] * 2
    runs[0].relabel(name="blue fox", tags=["lecture"])
    runs[1].relabel(name="grey goose")
    return runs


def opened(browser, app, run=None):
    page = browser.new_page(viewport={"width": 1440, "height": 1400})
    page.goto(f"{app.url}/runs" + (f"?run={run.id}" if run else ""))
    page.get_by_text(re.compile(r"\d runs? of \d")).wait_for(timeout=PATIENCE)
    return page


def choose(page, row):
    """Click the box before a row of the list, once the page around it has come to rest."""
    place, before = page.get_by_test_id("stDataFrame").first.bounding_box(), None
    while place != before:
        page.wait_for_timeout(500)
        place, before = page.get_by_test_id("stDataFrame").first.bounding_box(), place
    page.mouse.click(place["x"] + 20, place["y"] + 52 + 35 * row)


def contents(run):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in run.folder.iterdir() if p.name != "meta.json"}


def test_a_run_exported_deleted_and_imported_is_the_same(app, browser, trained, tmp_path):
    run = trained[0]
    before, meta = contents(run), run.meta
    page = opened(browser, app, run)
    with page.expect_download(timeout=PATIENCE) as download:
        page.get_by_role("button", name="Everything (zip)").click()
    file = tmp_path / "run.zip"  # a short name is shown whole
    download.value.save_as(file)
    page.get_by_role("button", name="Delete").click()
    page.get_by_text("blue fox is deleted.").wait_for(timeout=PATIENCE)
    page.get_by_text("1 run of 1").wait_for(timeout=PATIENCE)
    assert not run.folder.exists()
    page.get_by_text("Import a run").click()
    page.get_by_test_id("stFileUploaderDropzoneInput").set_input_files(file)
    page.get_by_text(file.name).wait_for(timeout=PATIENCE)
    page.get_by_role("button", name="Import", exact=True).click()
    page.get_by_text("blue fox is imported.").wait_for(timeout=PATIENCE)
    page.get_by_text("2 runs of 2").wait_for(timeout=PATIENCE)
    page.get_by_text(re.compile("imported on 20")).wait_for(timeout=PATIENCE)
    assert contents(run) == before
    assert {k: v for k, v in run.meta.items() if k != "imported"} == {k: v for k, v in meta.items() if k != "launched"}
    page.close()


@pytest.mark.parametrize(
    ("button", "ending", "start"),
    [
        ("Curve (CSV)", ".csv", b"type,step"), ("Record (JSON)", ".json", b"{"), ("Page (HTML)", ".html", b"<!doctype html>"),
        ("Configuration", ".config.json", b"{"), ("Weights (safetensors)", ".safetensors", b""),
    ],
)  # fmt: skip
def test_every_export_is_downloaded(app, browser, trained, button, ending, start):
    page = opened(browser, app, trained[1])
    with page.expect_download(timeout=PATIENCE) as download:
        page.get_by_test_id("stDownloadButton").get_by_role("button", name=button).click()
    assert download.value.suggested_filename == f"{trained[1].id}{ending}"
    data = Path(download.value.path()).read_bytes()
    assert len(data) > 100
    assert data.startswith(start)
    page.close()


def test_a_search_filters_the_list_and_a_click_opens_the_run(app, browser, trained):
    page = opened(browser, app)
    box = page.get_by_role("textbox", name="Search")
    box.fill("query=nonlinear")
    box.press("Enter")
    page.get_by_text(re.compile(r"1 run of \d")).wait_for(timeout=PATIENCE)
    choose(page, 0)
    page.get_by_role("button", name="Run again and compare").wait_for(timeout=PATIENCE)
    assert f"run={trained[1].id}" in page.url
    page.locator(".js-plotly-plot .scatterlayer .trace").first.wait_for(timeout=PATIENCE)
    page.close()


def test_two_rows_show_what_differs(app, browser, trained):
    page = opened(browser, app)
    choose(page, 0)
    page.get_by_role("button", name="Run again and compare").wait_for(timeout=PATIENCE)
    choose(page, 1)
    page.get_by_text(re.compile("query (linear → nonlinear|nonlinear → linear)")).wait_for(timeout=PATIENCE)
    page.close()


def test_a_run_trained_again_is_bitwise_equal(app, browser, trained):
    page = opened(browser, app, trained[0])
    page.get_by_role("button", name="Run again and compare").click()
    page.get_by_text(re.compile("bitwise equal: all 49 losses up to step 40")).wait_for(timeout=PATIENCE)
    page.get_by_text("Versions, device, threads and text were the same.").wait_for(timeout=PATIENCE)
    (repetition,) = again.repetitions(Run(trained[0].folder))
    assert repetition.name == "blue fox again"
    page.get_by_text(re.compile(r"3 runs of 3")).wait_for(timeout=PATIENCE)
    link = page.get_by_role("link", name="Its race").get_attribute("href")
    page.goto(f"{app.url}/runs/../{link.removeprefix('./')}")
    page.get_by_role("button", name="Start").wait_for(timeout=PATIENCE)
    page.get_by_text(trained[0].race.info["name"]).first.wait_for(timeout=PATIENCE)
    assert "Traceback" not in app.said()
    page.close()
