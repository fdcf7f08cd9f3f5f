"""The stability map and the slices: every setting shown, failures as failures, no number made up."""

from __future__ import annotations

from dataclasses import replace as changed

import pytest

from nqlab import presets
from nqlab.analysis import views
from nqlab.analysis.results import Outcome, Result
from nqlab.analysis.stability import cells, panel_figure, seeds_figure, stability_map, table
from nqlab.config import replace

ARMS = ["linear", "nonlinear"]


def result(
    arm: str, seed: int, rate: float, loss: float | None, outcome: Outcome = "finished", decay: float = 0.1, **more: object
) -> Result:
    base = replace(presets.tiny(), {"learning_rate": rate, "weight_decay": decay, "seed": seed, **more})
    losses = (4.2, 3.0 if loss is None else loss)
    end = 312 if outcome == "diverged" else 1000
    return Result(
        presets.arm(base, arm).resolved(), outcome, end, loss, None if loss is None else (loss, loss), (0, end), losses, 10.0, 65, 3.31
    )


@pytest.fixture
def results() -> list[Result]:
    found = [result(arm, seed, rate, 2.0 + seed / 100 + rate) for arm in ARMS for seed in (0, 1) for rate in (1e-3, 1e-2)]
    found += [result("linear", 0, 0.3, 3.3, "did not learn"), result("linear", 1, 0.3, None, "diverged")]
    found += [result("nonlinear", 0, 0.3, 2.7), result("nonlinear", 1, 0.3, None, "unfinished")]
    return found


def test_cells_hold_the_seeds_of_a_setting_and_leave_out_what_is_under_way(results: list[Result]) -> None:
    found = cells(results)
    assert [(c.arm, c.value("learning_rate"), c.n, c.survived) for c in found] == [
        ("linear", 1e-3, 2, 2), ("linear", 1e-2, 2, 2), ("linear", 0.3, 2, 0),
        ("nonlinear", 1e-3, 2, 2), ("nonlinear", 1e-2, 2, 2), ("nonlinear", 0.3, 1, 1),
    ]  # fmt: skip
    assert found[0].mean == pytest.approx(2.006)
    assert found[2].mean == pytest.approx((3.3 + 3.31) / 2)  # a diverged run counts as the unigram entropy
    assert found[2].diverged_at == 312
    assert found[2].words == "0 of 2 learnt, diverged at step 312"
    assert found[0].words == "all 2 learnt"
    assert found[2].title == "linear (baseline), learning rate 0.3, weight decay 0.1"
    assert len(table(found)) == 6


def test_a_run_that_is_in_two_studies_counts_once(results: list[Result]) -> None:
    assert [c.n for c in cells(results + [changed(r, origin="again") for r in results])] == [c.n for c in cells(results)]


def test_failures_are_crosses_with_their_share_and_every_mark_leads_to_its_cell(results: list[Result]) -> None:
    found = cells(results)
    for i, trace in enumerate(stability_map(found, ARMS).data):
        mine = [c for c in found if c.arm == ARMS[i]]
        assert list(trace.marker.symbol) == ["square" if c.survived == c.n else "x" for c in mine]
        assert [found[k] for k in trace.customdata] == mine
    linear = panel_figure(found, "linear")
    assert list(linear.data[0].text) == ["2.01", "2.01", "0/2"]
    nonlinear = panel_figure(found, "nonlinear")
    assert [found[k].arm for k in nonlinear.data[0].customdata] == ["nonlinear"] * 3
    for figure in (linear, nonlinear):  # the same colours and axes in every panel
        assert figure.layout.coloraxis.cmax == pytest.approx(found[2].mean)
        assert list(figure.layout.xaxis.categoryarray) == ["0.001", "0.01", "0.3"]


def test_the_curves_of_a_diverged_setting_say_where(results: list[Result]) -> None:
    figure = seeds_figure(cells(results)[2])
    assert [t.name for t in figure.data if t.name] == ["seed 0 (did not learn)", "seed 1 (diverged)"]
    assert [list(t.text) for t in figure.data if t.text] == [["diverged at step 312"]]
    assert figure.layout.shapes[0].y0 == 3.31


def test_the_slice_takes_the_best_over_the_other_settings(results: list[Result]) -> None:
    better = [result("linear", seed, 1e-3, 1.5, decay=0.01) for seed in (0, 1)]
    figure = views.slice_figure(cells(results + better), ARMS)
    linear = figure.data[0]
    assert list(linear.x) == [1e-3, 1e-2, 0.3]
    assert list(linear.y) == pytest.approx([1.5, 2.015, 3.305])
    assert list(linear.error_y.array) == pytest.approx([0, 0.005, 0.005])
    assert figure.layout.xaxis.type == "log"


def test_contour_and_parallel_show_every_setting(results: list[Result]) -> None:
    found = cells(results + [result("linear", seed, 1e-3, 1.5, decay=0.01) for seed in (0, 1)])
    contour = views.contour_figure(found, "linear")
    assert list(contour.data[0].z[0]) == [1.5, None, None]
    assert len(contour.data[1].x) == 4
    parallel = views.parallel_figure(found, ARMS).data[0]
    labels = [d.label for d in parallel.dimensions]
    assert labels == ["variant", "learning rate", "weight decay", "bottleneck width R", "share that learnt", "mean final loss"]
    assert all(len(d["values"]) == 7 for d in parallel.dimensions)


def test_differences_inside_the_noise_are_grey_and_hollow_and_refusals_are_no_points() -> None:
    row = {"arm": "nonlinear", "mean": -0.04, "low": -0.05, "high": -0.03, "n": 5, "verdict": "better", "noise_floor": 0.01}
    rows = [
        row | {"inside_noise": False},
        row | {"inside_noise": True, "noise_floor": 0.1},
        row | {"mean": None, "low": None, "high": None, "inside_noise": None},
        row | {"low": None, "high": None, "n": 1, "noise_floor": None, "inside_noise": False},
    ]
    figure = views.difference_figure(rows, ["a", "b", "c", "d"])
    points = [t for t in figure.data if t.mode == "markers"]
    assert [p.y[0] for p in points] == ["a", "b", "d"]
    assert points[1].marker.color == "#808080"
    assert points[1].marker.symbol == "diamond-open"
    assert points[0].error_x.array[0] == pytest.approx(0.01)
    assert not points[2].error_x.visible
    assert "no interval from one pair" in points[2].hovertemplate
