"""The controls: help at each, locked or hidden by the address, and every setting of a run reachable."""

from __future__ import annotations

import pytest

from nqlab.config import RunConfig
from nqlab.ui import form
from nqlab.ui.help_texts import about
from tests.ui.conftest import page_of

# Settings without a control: the query is the variant, the rest goes by --set, a link or a file.
WITHOUT = {"model.query", "training.betas", "training.log_interval", "training.sample_length"}


def draw():
    from nqlab.ui.train_page import page

    page()


def test_every_setting_has_a_control_or_is_known_to_have_none():
    assert set(form.FIELDS) | WITHOUT == set(RunConfig().flat())


@pytest.mark.parametrize("name", [*form.FIELDS, "preset", "arms"])
def test_every_control_has_its_help(name):
    assert len(about(name.split(".")[-1])) > 30


def test_every_widget_of_the_page_says_what_it_is(own_runs):
    test = page_of(draw)
    for kind in ("selectbox", "multiselect", "number_input", "select_slider", "slider", "text_input", "toggle", "checkbox"):
        for widget in getattr(test, kind):
            assert widget.proto.help, (kind, widget.label)


def test_the_address_locks_and_hides(own_runs):
    test = page_of(draw)
    test.session_state["visit.lock"], test.session_state["visit.hide"] = "steps,arms", "seed,advanced,past,questions"
    test.run()
    assert not test.exception
    assert test.number_input(key="form.training.steps").disabled
    assert test.multiselect(key="form.arms").disabled
    assert not test.number_input(key="form.model.bottleneck").disabled
    keys = {w.key for w in test.number_input}
    assert "form.seed" not in keys
    assert "form.model.n_layer" not in keys
    assert not test.button(key="start").disabled


def test_a_wrong_limits_file_stops_every_page(own_runs, monkeypatch):
    def whole():
        from nqlab.ui import visit
        from nqlab.ui.train_page import page

        visit.begin()
        page()

    monkeypatch.setenv("NQLAB_LIMITS", "/no/such/room.toml")
    test = page_of(whole)
    assert "cannot be read" in " ".join(e.value for e in test.error)
    assert not test.button


def test_what_a_link_sets_without_a_control_is_told_and_carried(own_runs):
    from streamlit.testing.v1 import AppTest

    test = AppTest.from_function(draw, default_timeout=60)
    test.query_params["v"] = "1"
    test.query_params["sample_length"] = "17"
    test.run()
    assert not test.exception
    assert "sample_length = 17" in " ".join(c.value for c in test.caption)
    assert test.query_params["sample_length"] in ("17", ["17"])
