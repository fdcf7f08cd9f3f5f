"""The argument page: every choice is answered, by the rule and by numbers."""

import re

import pytest

from tests.runs.test_sweep import wait_for
from tests.ui.conftest import choose, page_of
from tests.ui.test_train_browser import spare_is_ready


@pytest.fixture
def page(own_runs):
    def script():
        from nqlab.ui.argument_page import page

        page()

    return page_of(script)


def said(test):
    return " ".join(m.value for m in test.markdown)


@pytest.mark.parametrize(
    ("skips", "norm", "shared", "verdict"),
    [
        ("none", "none", False, "[exact]"),
        ("attention", "none", False, "[exact]"),
        ("mlp", "none", False, "[exact]"),
        ("both", "none", False, "[impossible]"),
        ("both", "none", True, "[exact]"),
        ("none", "rmsnorm", False, "[orthogonal only]"),
        ("both", "layernorm", False, "[impossible]"),
    ],
)
def test_the_verdict_follows_the_choice(page, skips, norm, shared, verdict):
    page.selectbox(key="arg.skips").set_value(skips)
    page.selectbox(key="arg.norm").set_value(norm)
    page.toggle(key="arg.shared").set_value(shared)
    page.run()
    assert not page.exception
    assert verdict in said(page)


def test_sizes_that_do_not_fit_say_so(page):
    page.number_input(key="arg.heads").set_value(3)
    page.run()
    assert "n_embd 16 is not a multiple of n_head 3" in " ".join(e.value for e in page.error)


def test_without_a_linear_run_it_says_how_to_get_one(page):
    assert "Train a run with the linear query first" in " ".join(c.value for c in page.caption)


@pytest.mark.browser
def test_a_changed_choice_shows_its_diagram_and_a_trained_run_its_losses(app, browser):
    from nqlab.config import replace
    from nqlab.presets import tiny
    from nqlab.runs import launch

    spare_is_ready_after_a_visit(app, browser)
    race, runs = launch.start(app.runs_dir, [replace(tiny(), {"steps": 20, "sample_interval": 0})])
    page = browser.new_page(viewport={"width": 1440, "height": 1100})
    page.goto(f"{app.url}/argument")
    page.get_by_text("Every W_Q = I").wait_for(timeout=60_000)
    page.wait_for_selector("[data-testid=stGraphVizChart] svg", timeout=60_000)
    page.locator("[data-testid=stGraphVizChart] svg .node").nth(10).wait_for(timeout=20_000)
    assert page.locator("[data-testid=stGraphVizChart] svg .node").count() == 11
    choose(page, page.get_by_role("combobox", name=re.compile("Skips")), page.get_by_role("option", name="both (GPT)"))
    page.get_by_text("impossible").wait_for(timeout=20_000)
    wait_for(lambda: race.worker() is None and runs[0].checkpoint.exists())
    page.reload()
    choose(page, page.get_by_role("combobox", name="Run"), page.get_by_role("option").first)
    page.get_by_text("The gauge saves").wait_for(timeout=60_000)
    page.get_by_text("8,192").wait_for(timeout=20_000)
    assert "Traceback" not in app.said()
    page.close()


def spare_is_ready_after_a_visit(app, browser):
    """Let the server's first visit be over before anything is timed or trained."""
    page = browser.new_page()
    page.goto(app.url)
    page.get_by_role("button", name="Start").wait_for(timeout=60_000)
    spare_is_ready(app)
    page.close()
