"""What a class does, with a real server and a real browser: tour, links, teacher and followers, predictions, replay."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import TimeoutError

from nqlab.runs import store
from tests.runs.test_sweep import wait_for
from tests.ui.conftest import choose, serve
from tests.ui.test_train_browser import CHART, LAST_STEP, POINTS, button, headline, wait_state

pytestmark = pytest.mark.browser
# A race of a second or two; a link may hold any setting.
QUICK = "v=1&arms=linear,nonlinear&corpus=python-docs&n_embd=16&n_layer=1&block_size=16&batch_size=4&eval_windows=8&checkpoint_interval=20"


def visit(browser, app, query="", context=None):
    """A fresh browser (no cookies, no session) at an address; or another page of one."""
    page = (context or browser.new_context(viewport={"width": 1440, "height": 1000})).new_page()
    page.goto(f"{app.url}/?{query}")
    page.wait_for_selector(f"{CHART} .main-svg", timeout=60_000)
    return page


def final_losses(app, race):
    found = {}
    for path in sorted(app.runs_dir.glob(f"{race}-*/events.jsonl")):
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        config = json.loads((path.parent / "config.json").read_text(encoding="utf-8"))
        found[config["model"]["query"]] = [r["val_loss"] for r in records if r["type"] == "evaluation"]
    return found


def race_of(page, before="none"):
    page.wait_for_function(f"(new URLSearchParams(location.search).get('race') ?? {before!r}) !== {before!r}", timeout=60_000)
    return re.search(r"race=([^&]+)", page.url).group(1)


def shared_link(page):
    """What Share gives; opened again where the page was drawn anew at that very moment."""
    code = page.get_by_test_id("stPopoverBody").locator("code").first
    for _ in range(5):
        page.get_by_role("button", name="Share", exact=True).click()
        try:
            code.wait_for(timeout=5_000)
        except TimeoutError:
            continue
        return code.inner_text()
    pytest.fail("Share opened nothing in five clicks")


def run_to_the_end(page, app):
    """Start a race; its id once it has ended, on disk too: for a moment the page still shows the race before it, which is finished."""
    before = "".join(re.findall(r"race=([^&]+)", page.url)) or "none"
    button(page, "Start").click()
    race = race_of(page, before)

    def ended():
        runs = [run for run in store.runs(app.runs_dir) if run.id.startswith(f"{race}-")]
        return runs and all(run.status() in ("finished", "did not learn") for run in runs)

    wait_for(ended, 60)
    wait_state(page, "finished")
    return race


def test_the_tour_ends_in_a_running_race_and_is_not_shown_again(app, browser):
    page = visit(browser, app)
    for step in range(1, 5):
        page.get_by_text(re.compile(f"^{step}/5")).wait_for(timeout=20_000)
        page.get_by_role("button", name="Next").click()
    page.get_by_role("button", name="Start the first race").click()
    wait_state(page, "running")
    page.wait_for_function(f"{POINTS} > 0", timeout=60_000)
    button(page, "Stop").click()
    wait_state(page, "stopped")
    assert page.get_by_role("button", name="Skip the tour").count() == 0
    again = visit(browser, app, context=page.context)
    again.get_by_role("button", name="Tour", exact=True).wait_for(timeout=20_000)
    assert again.get_by_role("button", name="Skip the tour").count() == 0
    page.context.close()


def test_a_link_opened_elsewhere_gives_the_same_controls_and_the_same_losses(app, browser):
    page = visit(browser, app, f"{QUICK}&steps=40&seed=3&betas={quote('[0.8, 0.95]')}&learning_rate=0.004&init_std=0.03")
    first = run_to_the_end(page, app)
    link = shared_link(page)
    assert "race=" in link
    page.context.close()
    other = visit(browser, app, link.split("?")[1].split("&race=")[0])
    assert other.get_by_role("spinbutton", name="Seed").input_value() == "3"
    assert other.get_by_role("spinbutton", name="Steps").input_value() == "40"
    other.get_by_text("betas = [0.8, 0.95]").wait_for(timeout=20_000)
    second = run_to_the_end(other, app)
    assert first != second
    assert final_losses(app, first) == final_losses(app, second)
    assert len(final_losses(app, first)["nonlinear"]) == 2
    other.context.close()


def test_what_is_wrong_in_a_link_is_said_and_the_rest_holds(app, browser):
    page = visit(browser, app, "v=1&learning_rate=fast&seed=7&arms=linear,magic&view=sideways")
    for said in ("learning_rate=fast is not understood", "There is no variant magic", "There is no view 'sideways'"):
        page.get_by_text(said).first.wait_for(timeout=20_000)
    assert page.get_by_role("spinbutton", name="Seed").input_value() == "7"
    page.get_by_role("button", name="Understood").click()
    page.get_by_text("is not understood").wait_for(state="detached", timeout=20_000)
    page.context.close()


def test_a_question_fills_the_controls(app, browser):
    page = visit(browser, app, "v=1")
    page.get_by_role("radio", name=re.compile("Make it diverge")).click()
    page.get_by_text("A rate a hundred times too high").wait_for(timeout=20_000)
    page.wait_for_function("location.search.includes('learning_rate=0.1')", timeout=20_000)
    page.context.close()


def test_two_followers_see_the_step_of_the_teachers_race_and_have_no_stop(app, browser):
    teacher = visit(browser, app, f"{QUICK}&steps=100000&eval_interval=1000&view=projector")
    button(teacher, "Start").click()
    wait_state(teacher, "running")
    race = race_of(teacher)
    followers = [visit(browser, app, f"race={race}&view=follow") for _ in range(2)]
    for page in followers:
        page.wait_for_function(f"{LAST_STEP} > 3", timeout=60_000)
    button(teacher, "Pause").click()
    wait_state(teacher, "paused")
    at = headline(teacher).inner_text()
    for page in followers:
        page.get_by_text(at.split(" · ", 1)[1]).wait_for(timeout=20_000)
        assert page.get_by_role("button", name=re.compile("Stop|Start|Pause|Continue")).count() == 0
        assert page.get_by_test_id("stSidebar").count() == 0
    button(teacher, "Stop").click()
    wait_state(teacher, "stopped")
    for page in (teacher, *followers):
        page.context.close()


def test_the_pace_can_be_slowed_while_it_trains(app, browser):
    page = visit(browser, app, f"{QUICK}&steps=100000&eval_interval=1000")
    button(page, "Start").click()
    wait_state(page, "running")
    race = race_of(page)
    choose(page, page.locator(".st-key-pace"), page.get_by_role("option", name="2 steps a second"))
    control = app.runs_dir / ".races" / race / "control.json"
    for _ in range(100):
        if control.exists() and json.loads(control.read_text(encoding="utf-8")).get("pace") == 2:
            break
        time.sleep(0.1)
    time.sleep(0.6)  # a step under way ends, and the next waits
    before = page.evaluate(LAST_STEP)
    time.sleep(3)
    after = json.loads((app.runs_dir / f"{race}-0" / "events.jsonl").read_text(encoding="utf-8").splitlines()[-1])["step"]
    assert after - before < 40, "at full speed these would be thousands"
    button(page, "Stop").click()
    wait_state(page, "stopped")
    page.context.close()


def test_a_prediction_comes_before_the_curves_and_is_scored_after(app, browser):
    page = browser.new_context(viewport={"width": 1440, "height": 1000}).new_page()
    page.goto(f"{app.url}/?{QUICK}&steps=60&predict=1")
    button(page, "Start").wait_for(timeout=60_000)
    page.get_by_text("Time for this race").wait_for(timeout=60_000)
    button(page, "Start").click()
    page.get_by_text("Predict first: who ends").wait_for(timeout=60_000)
    assert page.locator(CHART).count() == 0
    page.get_by_test_id("stRadio").get_by_text("nonlinear", exact=True).click()
    page.get_by_label("Your name, if you like", exact=True).fill("Emmy")
    page.get_by_role("button", name="Predict", exact=True).click()
    page.wait_for_selector(f"{CHART} .main-svg", timeout=60_000)
    page.get_by_text(re.compile(r"[01] of 1 named it")).wait_for(timeout=60_000)
    race = race_of(page)
    losses = {name: found[-1] for name, found in final_losses(app, race).items()}
    winner = min(losses, key=losses.get)
    row = page.get_by_test_id("stTable").filter(has_text="Emmy").inner_text()
    assert ("right" in row) == (winner == "nonlinear")
    margin = abs(losses["nonlinear"] - losses["linear"])
    missed = abs(0.02 - margin) if winner == "nonlinear" else 0.02 + margin
    assert f"{missed:.4f}" in row
    page.get_by_text("single pair").wait_for(timeout=20_000)
    page.context.close()


def test_a_finished_race_can_be_scrubbed_and_played(app, browser):
    page = visit(browser, app, f"{QUICK}&steps=200&arms=linear")
    run_to_the_end(page, app)
    page.wait_for_function(f"{LAST_STEP} >= 199", timeout=60_000)
    page.get_by_text("Replay", exact=True).click()
    page.wait_for_function(f"{LAST_STEP} <= 1", timeout=20_000)
    page.get_by_role("slider", name="Step shown").press("End")
    page.wait_for_function(f"{LAST_STEP} >= 199", timeout=20_000)
    page.get_by_role("button", name="Play", exact=True).click()
    page.wait_for_function(f"{LAST_STEP} > 5 && {LAST_STEP} < 150", timeout=20_000)
    page.get_by_role("button", name="Hold", exact=True).click()
    page.get_by_role("button", name="Play", exact=True).wait_for(timeout=20_000)
    page.get_by_text("Replay", exact=True).click()
    page.wait_for_function(f"{LAST_STEP} >= 199", timeout=20_000)
    page.context.close()


def test_ones_own_words_are_written_on_by_every_variant(app, browser):
    page = visit(browser, app, f"{QUICK}&steps=40")
    run_to_the_end(page, app)
    page.get_by_text("Write on after your own words").click()
    page.get_by_label("Prompt", exact=True).fill("The statement")
    page.get_by_role("button", name="Write").click()
    written = page.locator("code", has_text="The statement")
    written.nth(1).wait_for(timeout=60_000)
    page.wait_for_function(
        "[...document.querySelectorAll('code')]"
        ".filter(c => c.innerText.startsWith('The statement') && c.innerText.length > 280).length === 2",
        timeout=60_000,
    )
    page.context.close()


def test_a_file_is_uploaded_learnt_from_and_deleted(app, browser, tmp_path):
    path = tmp_path / "rhyme.txt"
    path.write_text("one for sorrow, two for joy, three for a girl, four for a boy\n" * 60, encoding="utf-8")
    page = visit(browser, app, QUICK.replace("corpus=python-docs&", "") + "&steps=40")
    page.get_by_text("Your own text").click()
    page.locator("input[type=file]").set_input_files(path)
    page.get_by_text("rhyme.txt").first.wait_for(timeout=20_000)
    page.get_by_role("button", name="Use this text").click()
    page.get_by_text("rhyme.txt: 3,720 characters").wait_for(timeout=20_000)
    race = run_to_the_end(page, app)
    assert len(final_losses(app, race)) == 2
    page.get_by_text("sample at step").first.wait_for(timeout=20_000)
    (kept,) = (p for p in app.runs_dir.parent.glob("data/texts/*.txt") if "sorrow" in p.read_text(encoding="utf-8"))
    page.get_by_role("button", name="Delete this text").click()
    page.get_by_text("tiny-shakespeare: 1,115,394 characters").wait_for(timeout=20_000)
    assert not Path(kept).exists()
    page.context.close()


def test_the_language_is_switched_on_the_page_and_by_the_address(app, browser):
    page = visit(browser, app, "v=1")
    page.get_by_text("繁體中文").click()
    page.get_by_role("button", name="開始").wait_for(timeout=20_000)
    page.wait_for_function("location.search.includes('lang=zh_TW')", timeout=20_000)
    page.reload()
    page.get_by_role("button", name="開始").wait_for(timeout=60_000)
    page.get_by_text("English", exact=True).click()
    button(page, "Start").wait_for(timeout=20_000)
    page.context.close()


def test_only_the_teachers_key_starts_anything_and_the_limits_are_told(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("room")
    (folder / "room.toml").write_text('steps = 50\nteacher = "chalk"\n', encoding="utf-8")
    with serve(folder, NQLAB_LIMITS=str(folder / "room.toml")) as room:
        pupil = visit(browser, room, f"{QUICK}&steps=40")
        pupil.get_by_text("Limits of this server: optimiser steps of a run: 50").wait_for(timeout=20_000)
        assert button(pupil, "Start").is_disabled()
        teacher = visit(browser, room, f"{QUICK}&steps=60&teacher=chalk")
        teacher.get_by_text("steps 60 are more than the 50 that this server trains").wait_for(timeout=20_000)
        steps = teacher.get_by_role("spinbutton", name="Steps")
        steps.fill("40")
        steps.press("Enter")
        teacher.get_by_text("Time for this race").wait_for(timeout=20_000)
        run_to_the_end(teacher, room)
        pupil.get_by_text(re.compile("step 40 of 40")).wait_for(timeout=20_000)
        assert button(pupil, "Start").is_disabled()
        shared_link(teacher)
        assert "chalk" not in teacher.get_by_test_id("stPopoverBody").inner_text()
        assert "Traceback" not in room.said()
        pupil.context.close()
        teacher.context.close()


def test_server_log_has_no_traceback(app):
    assert "Traceback" not in app.said(), app.said()[-4000:]
