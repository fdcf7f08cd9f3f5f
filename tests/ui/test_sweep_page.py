"""The sweep page: a study defined, priced, started, watched, stopped and gone on with."""

import json
import time

import pytest
from streamlit.testing.v1 import AppTest

from nqlab.runs import sweep
from nqlab.runs.study import Study, folder_of
from nqlab.runs.sweep import save_study, sweeper
from nqlab.ui import sweep_page
from tests.ui.conftest import page_of
from tests.ui.studied import STUDY, filled
from tests.ui.test_train_browser import POINTS, button


def script():
    from nqlab.ui.sweep_page import page

    page()


def said(test):
    return " ".join(m.value for m in [*test.markdown, *test.caption, *test.info, *test.warning, *test.error])


def test_a_study_is_described_and_priced_before_anything_starts(own_runs):
    own_runs.mkdir(parents=True)
    (own_runs / ".speed.json").write_text(json.dumps({"threads": 1, "tiny_step_s": 0.02}), encoding="utf-8")
    test = page_of(script)
    assert "**18 runs**, about 3" in said(test)
    test.text_input(key="sweep.my-study.learning_rate").set_value("1e-3").run()
    assert "**6 runs**, about" in said(test)
    assert not list(own_runs.glob(".studies/*"))


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("learning_rate", "fast", "learning_rate = 'fast'"),
        ("name", "../up", "won't do for a folder"),
        ("bottleneck", "0", "bottleneck = '0'"),
        ("weight_decay", "0.1, 0.1", "names something twice"),
    ],
)
def test_what_does_not_fit_is_named_and_cannot_be_started(own_runs, field, value, words):
    test = page_of(script)
    test.text_input(key=f"sweep.my-study.{field}").set_value(value).run()
    assert words in said(test)
    assert not [b for b in test.button if b.key == "sweep.start"]


def test_a_shipped_study_is_a_start(own_runs):
    test = page_of(script)
    names = test.selectbox(key="sweep.begin").options
    assert "tiny-rates" in names
    test.selectbox(key="sweep.begin").set_value("tiny-rates").run()
    assert "**210 runs**" in said(test)
    assert test.text_input(key="sweep.tiny-rates.name").value == "my-tiny-rates"


def test_buttons_follow_from_how_the_study_stands(own_runs):
    place = filled(own_runs)
    test = page_of(script)
    test.selectbox(key="sweep.study").set_value("class").run()
    assert not test.exception
    buttons = {b.key: b.disabled for b in test.button if b.key}
    assert buttons["sweep.stop"]
    assert buttons["sweep.resume"]  # complete: nothing to go on with
    assert len(test.dataframe[-1].value) == 3
    assert "diverged at step" in test.dataframe[-1].value.to_string()
    wider = Study.of(STUDY.model_dump() | {"seeds": (0, 1, 2, 3)})
    (place.folder / "study.json").write_text(wider.to_json(), encoding="utf-8")
    test.run()
    assert not next(b for b in test.button if b.key == "sweep.resume").disabled
    test.button(key="sweep.delete").click().run()
    assert not place.folder.exists()
    assert (own_runs / ".trash" / "study-class").is_dir()
    assert test.selectbox(key="sweep.study").value == sweep_page.NEW


def test_a_wrong_address_says_so(own_runs):
    from streamlit.testing.v1 import AppTest

    test = AppTest.from_function(script, default_timeout=60)
    test.query_params["study"] = "nowhere"
    test.run()
    assert not test.exception
    assert "There is no study 'nowhere' here" in said(test)


def test_progress_counts_what_ended_runs_and_failed(own_runs):
    from nqlab.analysis.progress import standing
    from nqlab.runs.log import EventWriter

    place = filled(own_runs)
    now = standing(place)
    assert (now.total, now.ended, now.word, now.complete) == (18, 18, "complete", True)
    run = place.cell(place.configs[0])
    writer = EventWriter(run.events)
    writer.write({"type": "failed", "step": 3, "message": "no memory"})
    writer.close()
    now = standing(place)
    assert (now.ended, now.word) == (17, "stopped")
    assert [(r.id, m) for r, m in now.failed] == [(run.id, "no memory")]
    word = {"pid": 1, "created": 0}
    (place.folder / "sweep.json").write_text(json.dumps(word), encoding="utf-8")
    assert sweeper(place) is None  # another process that has this number is not it


def test_a_study_that_is_being_filled_is_not_discarded(own_runs):
    place = save_study(own_runs, STUDY)
    with sweep.Sweep(place)._claimed(), pytest.raises(ValueError, match="stop it first"):
        sweep.discard(place)
    assert place.folder.exists()


@pytest.mark.browser
def test_in_a_browser_a_study_is_defined_filled_stopped_and_gone_on_with(app, browser):
    page = browser.new_page(viewport={"width": 1440, "height": 1200})
    page.goto(f"{app.url}/sweep")
    rates = page.get_by_label("Learning rates", exact=True)
    rates.wait_for(timeout=60_000)
    rates.fill("1e-3, 1e-2")
    rates.press("Enter")
    page.get_by_text("12 runs").wait_for(timeout=20_000)
    steps = page.get_by_label("Steps", exact=True)
    steps.fill("300")
    steps.press("Enter")
    page.wait_for_timeout(500)
    button(page, "Start").click()
    page.get_by_text("being filled").wait_for(timeout=60_000)
    page.get_by_text("Training now: ").wait_for(timeout=120_000)
    page.wait_for_function(f"{POINTS} > 0", timeout=60_000)
    button(page, "Stop").click()
    page.get_by_text("· stopped ·").wait_for(timeout=150_000)
    place = folder_of(app.runs_dir, "my-study")
    assert place.study.settings == {"steps": 300}
    assert not all(place.ended(c) for c in place.configs)
    page.reload()
    page.get_by_text("· stopped ·").wait_for(timeout=150_000)
    button(page, "Go on").click()
    page.get_by_text("being filled").wait_for(timeout=60_000)
    before = sum(place.ended(c) for c in place.configs)
    for _ in range(1500):
        if sum(place.ended(c) for c in place.configs) > before:
            break
        time.sleep(0.1)
    assert sum(place.ended(c) for c in place.configs) > before
    place.command("stop")
    page.get_by_text("· stopped ·").wait_for(timeout=150_000)
    assert "Traceback" not in app.said()
    page.close()


def test_what_else_a_shipped_study_varies_is_kept_and_named(own_runs):
    test = page_of(script)
    test.selectbox(key="sweep.begin").set_value("query-norm").run()
    assert "**48 runs**" in said(test)
    assert "Varied as well: norm rmsnorm, none." in said(test)


@pytest.fixture
def room(own_runs, tmp_path, monkeypatch):
    """A server whose buttons need a key, and which lends no study of more than ten runs."""
    path = tmp_path / "room.toml"
    path.write_text('teacher = "chalk"\nruns_in_a_study = 10\n', encoding="utf-8")
    monkeypatch.setenv("NQLAB_LIMITS", str(path))
    return own_runs


def test_without_the_teachers_key_a_study_can_be_looked_at_and_no_more(room, monkeypatch):
    test = page_of(script)
    assert test.button(key="sweep.start").disabled
    with monkeypatch.context() as before:
        before.delenv("NQLAB_LIMITS")
        filled(room)
    test.run()  # which sees it
    test.selectbox(key="sweep.study").set_value("class").run()
    assert "18 of 18 runs" in " ".join([said(test), *(p.text for p in test.get("progress"))])
    assert all(test.button(key=f"sweep.{name}").disabled for name in ("stop", "resume", "delete"))


def test_with_the_key_a_study_larger_than_the_room_lends_is_refused(room):
    test = AppTest.from_function(script, default_timeout=60)
    test.session_state["visit.teacher"] = "chalk"
    test.run()
    assert not test.button(key="sweep.start").disabled
    test.button(key="sweep.start").click().run()
    assert not test.exception
    assert "this study has 18 runs and this server fills studies of at most 10" in said(test)
    assert not list(room.glob(".studies/*"))
