"""The stability map: a mark a setting, failures as failures, the runs behind each mark one click away."""

import pytest

from tests.ui.conftest import page_of
from tests.ui.studied import STUDY, filled


def script():
    from nqlab.ui.stability_page import page

    page()


def said(test):
    return " ".join(m.value for m in [*test.markdown, *test.caption, *test.info, *test.warning])


def test_own_studies_come_first_and_a_setting_can_be_chosen_without_a_mouse(own_runs):
    filled(own_runs)
    test = page_of(script)
    assert test.selectbox(key="source").value == "class"
    assert STUDY.question in said(test)
    names = test.selectbox(key="setting").options
    assert len(names) == 6
    test.selectbox(key="setting").set_value(next(n for n in names if "10000" in n and n.startswith("linear"))).run()
    assert not test.exception
    assert "diverged at step" in said(test)
    runs = test.dataframe[-1].value
    assert list(runs["seed"]) == [0, 1, 2]
    assert set(runs["ended"]) <= {"diverged", "did not learn"}
    assert "diverged" in set(runs["ended"])


def test_where_nothing_is_there_the_reference_shows_marked_as_such(own_runs):
    test = page_of(script)
    assert "reference study" in said(test)


def test_a_wrong_address_says_so_and_falls_back(own_runs):
    from streamlit.testing.v1 import AppTest

    filled(own_runs)
    test = AppTest.from_function(script, default_timeout=60)
    test.query_params["study"] = "nowhere"
    test.run()
    assert not test.exception
    assert "There is no study 'nowhere' here" in said(test)
    assert test.query_params["study"] in ("class", ["class"])


@pytest.mark.browser
def test_a_click_on_a_diverged_mark_shows_its_curves(app, browser):
    filled(app.runs_dir)
    page = browser.new_page(viewport={"width": 1440, "height": 1200})
    page.goto(f"{app.url}/stability?study=class")
    marks = page.locator(".js-plotly-plot .scatterlayer .point")
    marks.nth(5).wait_for(timeout=60_000)
    assert marks.count() == 6
    page.wait_for_timeout(1500)  # the panels beside it take their places
    box = marks.nth(2).bounding_box()  # linear at the rate that breaks; plotly's own layer takes the click
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.get_by_text("diverged at step").first.wait_for(timeout=20_000)
    page.get_by_text("learning rate 10000").first.wait_for(timeout=20_000)
    page.get_by_text("seed 0 (").wait_for(timeout=20_000)
    assert "Traceback" not in app.said()
    page.close()
