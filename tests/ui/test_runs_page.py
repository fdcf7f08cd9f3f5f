"""The page Runs without a browser: what it shows of none, one, two and broken runs, and what its controls do."""

import json

import pytest
from streamlit.testing.v1 import AppTest

from nqlab.runs import again, exporting, launch
from nqlab.runs.store import delete, runs
from nqlab.runs.worker import Worker
from tests.small import small
from tests.ui.conftest import page_of


def script():
    from nqlab.ui.runs_page import page

    page()


def said(test):
    parts = [*test.markdown, *test.caption, *test.info, *test.warning, *test.error, *test.success]
    return " ".join(m.value for m in parts)


def trained(runs_dir, *queries, **changes):
    """A race trained in this very process."""
    race, found = launch.create(runs_dir, [small(corpus="python-docs", steps=4, query=query, **changes) for query in queries])
    assert Worker(race, found).work() == 0
    return found


def opened(*chosen, **address):
    test = AppTest.from_function(script, default_timeout=60)
    test.query_params.update(address)
    test.session_state["runs.chosen"] = [run.id for run in chosen]
    return ran(test)


def ran(test):
    test.run()
    assert not test.exception
    return test


def test_without_a_run_it_says_how_to_get_one(own_runs):
    assert "start a race on the page Train" in said(page_of(script))


def test_every_control_says_what_it_does(own_runs):
    (run,) = trained(own_runs, "linear")
    test = opened(run)
    controls = [*test.button, *test.text_input, *test.multiselect, *test.selectbox]
    assert len(controls) > 8
    assert [c.key for c in controls if not c.help] == []
    for kind in ("download_button", "link_button", "file_uploader"):
        assert test.get(kind)
        assert [c for c in test.get(kind) if not c.proto.help] == []


def test_a_search_and_filters_narrow_the_list_and_a_wrong_field_says_so(own_runs):
    linear, identity = trained(own_runs, "linear", "identity")
    linear.relabel(name="blue fox", tags=["lecture"])
    test = opened()
    assert "2 runs of 2" in said(test)
    test.text_input(key="runs.search").set_value("fox")
    assert "1 run of 2" in said(ran(test))
    assert list(test.dataframe[0].value["name"]) == ["blue fox"]
    test.text_input(key="runs.search").set_value("query=identity")
    assert list(ran(test).dataframe[0].value["name"]) == [identity.name]
    test.text_input(key="runs.search").set_value("quer=identity")
    assert "did you mean" in said(ran(test))
    assert "2 runs of 2" in said(test)
    test.text_input(key="runs.search").set_value("")
    test.multiselect(key="runs.only.tags").set_value(["lecture"])
    assert list(ran(test).dataframe[0].value["name"]) == ["blue fox"]
    test.multiselect(key="runs.only.arm").set_value(["identity"])
    assert "0 runs of 2" in said(ran(test))


def test_runs_are_grouped_by_a_setting(own_runs):
    trained(own_runs, "linear", "linear", learning_rate=0.01)
    trained(own_runs, "linear", learning_rate=0.1)
    test = opened()
    test.selectbox(key="runs.group").set_value("training.learning_rate")
    ran(test)
    groups = test.dataframe[0].value
    assert list(groups["learning rate"]) == ["0.01", "0.1"]
    assert list(groups["runs"]) == [2, 1]
    assert groups["best val. loss"][0] <= groups["mean val. loss"][0]


def test_the_run_in_the_address_is_opened_renamed_noted_and_tagged(own_runs):
    (run,) = trained(own_runs, "nonlinear")
    test = opened(run=run.id)
    assert f"`{run.id}`" in said(test)
    test.text_input(key=f"name.{run.id}").set_value("grey goose")
    test.text_input(key=f"note.{run.id}").set_value("né")
    test.multiselect(key=f"tags.{run.id}").set_value(["lecture 3"])
    ran(test)
    assert run.label == {"name": "grey goose", "note": "né", "tags": ["lecture 3"]}
    assert "**grey goose**" in said(test)
    test.text_input(key=f"name.{run.id}").set_value(" ")
    assert "give 1 to 80" in said(ran(test))
    links = [link.proto.url for link in test.get("link_button")]
    assert links == [f"microscope?run={run.id}", f"./?race={run.race.id}"]


@pytest.mark.parametrize("wanted", ["nowhere", "..", ".races"])
def test_a_wrong_address_says_so_and_the_page_goes_on(own_runs, wanted):
    trained(own_runs, "linear")
    test = opened(run=wanted)
    assert f"There is no run {wanted!r} here" in said(test)
    assert "Choose a row" in said(test)
    assert "run" not in test.query_params


def test_a_deleted_run_leaves_the_list_and_comes_back(own_runs):
    run, _ = trained(own_runs, "linear", "identity")
    test = opened(run=run.id)
    test.button(key="delete").click()
    ran(test)
    assert "is deleted" in said(test)
    assert "1 run of 1" in said(test)
    assert not test.warning
    test.button(key="undo").click()
    assert "2 runs of 2" in said(ran(test))


def test_two_runs_show_in_one_line_what_differs(own_runs):
    both = trained(own_runs, "linear", "identity", learning_rate=0.01)
    other = trained(own_runs, "linear", learning_rate=0.1)[0]
    test = opened(both[0], other)
    assert f"**{both[0].name}** → **{other.name}**: learning_rate 0.01 → 0.1, min_lr 0.001 → 0.01" in said(test)
    assert len(test.get("plotly_chart")) == 1


def test_a_broken_folder_is_listed_and_can_only_be_deleted(own_runs):
    (run,) = trained(own_runs, "linear")
    (run.folder / "config.json").write_text("{", encoding="utf-8")
    test = opened(run=run.id)
    assert "can only be deleted" in said(test)
    test.button(key="delete").click()
    ran(test)
    assert runs(own_runs) == []


def test_a_run_trained_again_is_compared(own_runs, monkeypatch):
    (run,) = trained(own_runs, "linear")
    monkeypatch.setattr("nqlab.runs.launch.spawn", lambda race, found: None)
    test = opened(run=run.id)
    assert "has not been repeated" in said(test)
    test.button(key="again").click()
    ran(test)
    (repetition,) = again.repetitions(run)
    assert repetition.status() == "starting"
    assert Worker(repetition.race, [repetition]).work() == 0
    test = opened(run=run.id)
    assert "bitwise equal: all 6 losses up to step 4 are the same numbers" in said(test)
    assert "Versions, device, threads and text were the same." in said(test)
    events = repetition.events.read_text(encoding="utf-8")
    repetition.events.write_text(events.replace('"loss": 4', '"loss": 5', 1), encoding="utf-8")
    (repetition.folder / "meta.json").write_text(json.dumps(repetition.meta | {"threads": 2}), encoding="utf-8")
    test = opened(run=repetition.id)
    assert "different: from step 0 on" in said(test)
    assert "threads 1 → 2" in said(test)
    delete(run)
    assert "has not been repeated" in said(opened(run=repetition.id))


def test_a_file_that_is_no_run_says_so_and_an_export_becomes_the_run_in_view(own_runs):
    (run,) = trained(own_runs, "linear")
    data = exporting.archive(run)
    test = opened(run=run.id)
    test.button(key="delete").click()
    assert "is deleted" in said(ran(test))
    for content, words in ((None, "No file was chosen"), (b"no zip", "this is no exported run"), (data, "is imported.")):
        if content is not None:
            test.file_uploader(key="runs.upload").upload("run.zip", content)
        test.button(key="runs.take").click()
        assert words in said(ran(test))
    assert [one.id for one in runs(own_runs)] == [run.id]
    assert f"`{run.id}`" in said(test)
    assert "imported on 20" in said(test)
    assert "is deleted" not in said(test)
    test.file_uploader(key="runs.upload").upload("run.zip", data)
    test.button(key="runs.take").click()
    assert "is already here" in said(ran(test))


def test_a_list_of_many_runs_reads_each_file_once(own_runs, monkeypatch):
    trained(own_runs, "linear", "identity")
    opened()
    monkeypatch.setattr("nqlab.runs.store.EventReader", lambda path: pytest.fail("read again"))
    opened()
