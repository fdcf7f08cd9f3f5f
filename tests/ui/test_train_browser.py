"""The Train page as a person meets it: a real server, a real browser, a real worker."""

import json
import os
import re
import time
from itertools import pairwise
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser
START_DISABLED = "document.querySelector('.st-key-start button')?.disabled ?? false"
CHART = ".nqlab-livechart"
POINTS = f"Math.max(0, ...(document.querySelector('{CHART}')?._fullData ?? []).map(t => (t.x ?? []).length))"
LAST_STEP = f"Math.max(-1, ...(document.querySelector('{CHART}')?._fullData ?? []).flatMap(t => Array.from(t.x ?? [])))"


def open_page(browser, url):
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.goto(url)
    page.get_by_role("button", name="Start").wait_for(timeout=60_000)
    page.wait_for_selector(f"{CHART} .main-svg", timeout=60_000)
    return page


def button(page, name):
    return page.get_by_test_id("stMainBlockContainer").get_by_role("button", name=name)


def headline(page):
    return page.get_by_text(re.compile(r"step [\d,]+ of [\d,]+"))


def wait_state(page, word, timeout=60_000):
    page.get_by_text(re.compile(rf"· {word} · step")).wait_for(timeout=timeout)


def spare_is_ready(app):
    """The server's spare worker has measured the machine's speed: its imports are behind it."""
    for _ in range(600):
        if (app.runs_dir / ".speed.json").exists():
            time.sleep(1)
            return
        time.sleep(0.1)
    pytest.fail("no spare worker came up within a minute")


def steps_on_disk(app):
    counts = []
    for path in app.runs_dir.glob("*/events.jsonl"):
        lines = path.read_text(encoding="utf-8").splitlines()
        counts.append(sum(json.loads(line)["type"] == "step" for line in lines))
    return counts


@pytest.fixture(scope="module")
def race(app, browser):
    """A page on which Start was just pressed, with the seconds until the first point."""
    page = open_page(browser, app.url)
    spare_is_ready(app)
    assert page.evaluate(POINTS) == 0, "a first visit must show an empty chart"
    load = os.getloadavg()[0]
    clicked = time.monotonic()
    button(page, "Start").click()
    page.wait_for_function(f"{POINTS} > 0", timeout=60_000)
    yield page, (time.monotonic() - clicked, load)
    page.close()


def test_first_visit_shows_a_chart_with_reference_lines_and_a_start_that_works(race):
    page, _ = race
    text = page.inner_text("body")
    assert "ln V = 4.174" in text
    assert "unmatched: +256" in text
    assert "matched" in text
    labels = page.eval_on_selector_all(f"{CHART} .annotation-text", "nodes => nodes.map(n => n.textContent)")
    assert labels == ["ln V 4.17", "unigram entropy 3.31", "bigram entropy 2.45"]


def test_first_point_comes_within_three_seconds_of_the_click(race):
    _, (seconds, load) = race
    print(f"first point after {seconds:.2f} s, load before {load:.2f}")
    if seconds >= 3.0 and load >= 0.5 * (os.cpu_count() or 1):
        pytest.skip(f"the machine is busy with other work (load {load:.1f}): the first point took {seconds:.1f} s")
    assert seconds < 3.0


def test_chart_grows_in_place_and_keeps_zoom_and_hidden_traces(race):
    page, _ = race
    page.evaluate(f"document.querySelector('{CHART}').tag = 'same node'")
    page.locator(f"{CHART} .legendtoggle").first.click()
    page.wait_for_function(f"document.querySelector('{CHART}')._fullData[0].visible === 'legendonly'", timeout=10_000)
    box = page.locator(f"{CHART} .nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + 50, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 150, steps=5)
    page.mouse.up()
    page.wait_for_function(f"document.querySelector('{CHART}')._fullLayout.yaxis.autorange === false", timeout=10_000)
    zoomed = page.evaluate(f"document.querySelector('{CHART}')._fullLayout.yaxis.range")
    before = page.evaluate(f"Number(document.querySelector('{CHART}').dataset.draws)")
    sizes = [page.evaluate(POINTS)]
    page.wait_for_function(f"Number(document.querySelector('{CHART}').dataset.draws) >= {before + 5}", timeout=60_000)
    sizes.append(page.evaluate(POINTS))
    page.wait_for_function(f"Number(document.querySelector('{CHART}').dataset.draws) >= {before + 10}", timeout=60_000)
    sizes.append(page.evaluate(POINTS))
    assert all(b > a for a, b in pairwise(sizes)), sizes
    node = page.evaluate(f"(n => [n.tag, n._fullLayout.yaxis.range, n._fullData[0].visible])(document.querySelector('{CHART}'))")
    assert node == ["same node", zoomed, "legendonly"]


def test_page_answers_while_the_race_trains(race):
    page, _ = race
    page.get_by_text("log loss").click()
    page.wait_for_function(f"document.querySelector('{CHART}').layout.yaxis.type === 'log'", timeout=5_000)
    page.get_by_text("log loss").click()
    page.wait_for_function(f"document.querySelector('{CHART}').layout.yaxis.type === 'linear'", timeout=5_000)


def test_reload_shows_the_same_race_at_a_later_step(race):
    page, _ = race
    address, step = page.url, page.evaluate(LAST_STEP)
    assert "race=" in address
    page.reload()
    page.wait_for_function(f"{LAST_STEP} > {step}", timeout=60_000)
    assert page.url == address


def test_a_second_browser_finds_the_race_and_sees_the_same(race, app, browser):
    page, _ = race
    other = browser.new_context().new_page()
    other.goto(app.url)
    other.wait_for_function(f"{LAST_STEP} > 0", timeout=60_000)
    name = headline(page).inner_text().split(" · ")[0]
    assert headline(other).inner_text().split(" · ")[0] == name
    other.context.close()


def test_pause_step_and_continue(race, app):
    page, _ = race
    button(page, "Pause").click()
    wait_state(page, "paused")
    time.sleep(0.5)
    paused_at = steps_on_disk(app)
    time.sleep(1.0)
    assert steps_on_disk(app) == paused_at
    assert len(set(paused_at)) == 1 or max(paused_at) - min(paused_at) == 1
    button(page, "Step").click()
    target = min(paused_at) + 1
    for _ in range(100):
        if min(steps_on_disk(app)) == target:
            break
        time.sleep(0.1)
    time.sleep(1.0)
    assert steps_on_disk(app) == [target] * len(paused_at)
    button(page, "Continue").click()
    wait_state(page, "running")


def test_moving_a_control_while_training_starts_nothing(race, app):
    page, _ = race
    folders = len(list(app.runs_dir.glob("*/config.json")))
    seed = page.get_by_role("spinbutton", name="Seed")
    seed.fill("5")
    seed.press("Enter")
    step = page.evaluate(LAST_STEP)
    page.wait_for_function(f"{LAST_STEP} > {step}", timeout=60_000)
    assert len(list(app.runs_dir.glob("*/config.json"))) == folders


def test_stop_ends_within_one_step_and_going_on_continues(race, app):
    page, _ = race
    button(page, "Stop").click()
    wait_state(page, "stopped")
    for path in app.runs_dir.glob("*/events.jsonl"):
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        assert [r["type"] for r in records[-2:]] == ["checkpoint", "stopped"]
    stopped_at = steps_on_disk(app)
    assert max(stopped_at) - min(stopped_at) <= 1
    button(page, "Go on").click()
    wait_state(page, "running")
    page.wait_for_function(f"{LAST_STEP} > {max(stopped_at) + 2}", timeout=60_000)
    button(page, "Stop").click()
    wait_state(page, "stopped")


def test_past_runs_can_be_laid_behind_the_chart_renamed_deleted_and_brought_back(race, app):
    page, _ = race
    grid = page.get_by_test_id("stDataFrame").first
    grid.scroll_into_view_if_needed()
    box = grid.bounding_box()
    page.mouse.click(box["x"] + 20, box["y"] + 52)  # the box before the first row
    page.get_by_role("button", name="Everything (zip)").wait_for(timeout=20_000)
    newest = max(app.runs_dir.glob("*/label.json"))
    with page.expect_download() as download:
        page.get_by_role("button", name="Curve (CSV)").click()
    rows = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    assert rows[0].startswith("type,step,tokens")
    assert len(rows) > 10
    name = page.get_by_label("Name", exact=True)
    name.fill("my favourite")
    name.press("Enter")
    page.get_by_text("my favourite").first.wait_for(timeout=20_000, state="attached")
    assert json.loads(newest.read_text(encoding="utf-8"))["name"] == "my favourite"
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Undo").wait_for(timeout=20_000)
    assert not newest.exists()
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("button", name="Undo").wait_for(state="detached", timeout=20_000)
    assert newest.exists()


def test_bad_input_shows_its_message_and_starts_nothing(race, app):
    page, _ = race
    folders = len(list(app.runs_dir.glob("*/config.json")))
    page.get_by_text("Advanced").click()
    for name, value, message in (
        ("n_head", "3", "n_embd 64 is not a multiple of n_head 3; take n_embd 63 or 66"),
        ("n_head", "2", None),
        ("block_size", "200000", "block_size"),
        ("block_size", "64", None),
    ):
        page.get_by_label(name, exact=True).fill(value)
        page.get_by_label(name, exact=True).press("Enter")
        if message:
            page.get_by_text(message).first.wait_for(timeout=20_000)
            page.wait_for_function(START_DISABLED, timeout=20_000)
        else:
            page.wait_for_function(f"!({START_DISABLED})", timeout=20_000)
    assert len(list(app.runs_dir.glob("*/config.json"))) == folders


def test_own_text_is_checked_then_trained_on(race, app, browser):
    page = open_page(browser, app.url)
    folders = len(list(app.runs_dir.glob("*/config.json")))
    page.get_by_text("Your own text").click()
    for text, answer in (
        ("aaaa", "one distinct character"),
        ("to be or not to be", "the text is too short for block_size 64: 18 characters split into 16 to train and 2 to validate"),
        ("to be or not to be, that is the question. " * 60, "2,520 characters"),
    ):
        page.get_by_label("or paste one", exact=True).fill(text)
        page.get_by_role("button", name="Use this text").click()
        page.get_by_text(answer).first.wait_for(timeout=20_000)
    assert len(list(app.runs_dir.glob("*/config.json"))) == folders
    button(page, "Start").click()
    for _ in range(200):
        corpora = [json.loads(p.read_text(encoding="utf-8"))["corpus"] for p in app.runs_dir.glob("*/config.json")]
        if sum(name.startswith("text:") for name in corpora) == 3:
            break
        page.wait_for_timeout(100)
    assert len(corpora) == folders + 3, corpora
    wait_state(page, "running")
    page.get_by_text("sample at step 0").first.wait_for(timeout=60_000)
    button(page, "Stop").click()
    wait_state(page, "stopped")
    page.close()


def test_server_log_has_no_traceback(race, app):
    assert "Traceback" not in app.said(), app.said()[-4000:]
