import base64
import json
import math

import numpy as np
import plotly.graph_objects as go
import pytest

from nqlab.analysis.curves import MAX_POINTS, CurveCache, curve_of, decimate, smooth
from nqlab.analysis.figures import Line, as_message, colour, dash, loss_figure, loss_spec
from nqlab.presets import ARMS


def step(k, loss=3.0):
    return {"type": "step", "step": k, "loss": loss, "learning_rate": 1e-3, "grad_norm": 1.0, "tokens": 10 * k, "elapsed_s": 0.1 * (k + 1)}


def evaluation(k, val_loss=3.1):
    return {"type": "evaluation", "step": k, "val_loss": val_loss, "val_halves": [3.0, 3.2], "tokens": 10 * k, "elapsed_s": 0.1 * k}


def test_a_curve_counts_updates_and_keeps_the_newest_numbers():
    curve = curve_of([evaluation(0, 4.0), step(0), step(1, 2.9), evaluation(2, 3.0), {"type": "sample", "step": 2, "text": "hi"}])
    assert curve.step == 2
    assert curve.last("loss") == 2.9
    assert curve.last("val_loss") == 3.0
    assert curve.sample == (2, "hi")
    assert curve.tokens_per_second() == pytest.approx(100.0)
    assert curve.end is None


def test_a_stopped_run_that_goes_on_has_not_ended():
    records = [step(0), {"type": "stopped", "step": 1}, {"type": "resumed", "step": 1}]
    assert curve_of(records[:2]).end == {"type": "stopped", "step": 1}
    assert curve_of(records).end is None


def test_a_curve_can_be_seen_as_it_was():
    records = [evaluation(0, 4.0), {"type": "sample", "step": 0, "text": "a"}, step(0), step(1, 2.9), evaluation(2, 3.0)]
    records += [{"type": "sample", "step": 2, "text": "b"}, step(2, 2.8), {"type": "done", "step": 3}]
    curve = curve_of(records)
    for k, upto in enumerate((2, 3, 6, 8)):
        then = curve_of(records[:upto])
        assert curve.until(k) == then
    assert curve.until(99) == curve


def test_the_cache_reads_on_and_begins_anew_when_the_file_was_cut_back(tmp_path):
    path, cache = tmp_path / "events.jsonl", CurveCache()
    assert cache.get(path).step == 0
    path.write_text("".join(json.dumps(step(k)) + "\n" for k in range(3)), encoding="utf-8")
    assert cache.get(path).step == 3
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(step(3)) + "\n" + '{"type": "step", "st')
    assert cache.get(path).step == 4
    shorter = tmp_path / "new"
    shorter.write_text(json.dumps(step(0, loss=1.5)) + "\n", encoding="utf-8")
    shorter.replace(path)
    assert cache.get(path).train["loss"] == [1.5]


def test_smoothing_is_the_debiased_moving_average():
    values = np.random.default_rng(0).normal(size=40)
    expected = []
    for k in range(40):
        weights = 0.9 ** np.arange(k, -1, -1)
        expected.append((weights * values[: k + 1]).sum() / weights.sum())
    np.testing.assert_allclose(smooth(values, 0.9), expected, rtol=1e-12)
    np.testing.assert_array_equal(smooth(values, 0.0), values)
    np.testing.assert_allclose(smooth(np.full(5, 2.0), 0.99), 2.0)


def test_decimation_keeps_short_curves_whole_and_long_ones_their_ends_and_extremes():
    x = np.arange(20_000.0)
    y = np.sin(x / 300)
    y[12_345] = 9.0
    px, py = decimate(x, y)
    assert len(px) <= MAX_POINTS
    assert (px[0], px[-1], py.max()) == (0.0, 19_999.0, 9.0)
    np.testing.assert_array_equal(decimate(x[:MAX_POINTS], y[:MAX_POINTS])[1], y[:MAX_POINTS])


def line(arm="linear", **more):
    return Line(f"id-{arm}", ARMS[arm], arm, curve_of([evaluation(0, 4.0), step(0), step(1), evaluation(2, 3.0)]), **more)


def test_every_arm_has_a_colour_and_a_dash_of_its_own():
    assert len({colour(arm) for arm in ARMS}) == len(ARMS)
    assert len({dash(arm) for arm in ARMS}) == len(ARMS)


@pytest.mark.parametrize(("x", "first"), [("step", [0.0, 2.0]), ("tokens", [0.0, 20.0]), ("elapsed_s", [0.0, 0.2])])
def test_the_validation_trace_has_the_numbers_of_the_curve(x, first):
    spec = loss_spec([line()], x=x, show=["val"])
    assert spec["data"][0]["x"] == pytest.approx(first)
    assert spec["data"][0]["y"] == [4.0, 3.0]


def test_a_legend_entry_a_run_and_a_raw_curve_only_when_smoothed():
    plain = loss_spec([line(), line("nonlinear")])["data"]
    assert len(plain) == 4
    assert sum(trace.get("showlegend", True) for trace in plain) == 2
    smoothed = loss_spec([line()], smoothing=0.5)["data"]
    assert [trace["uid"].rsplit("-", 1)[1] for trace in smoothed] == ["raw", "train", "val"]
    assert loss_spec([line()], show=["train"])["data"][0]["showlegend"]


def test_the_empty_chart_has_axes_and_reference_lines():
    spec = loss_spec([], references={"ln V": 4.17})
    assert spec["data"] == []
    assert spec["layout"]["xaxis"]["range"] == [0, 1000]
    assert spec["layout"]["annotations"][0]["text"] == "ln V 4.17"
    low, high = loss_spec([], references={"ln V": 4.17}, log_y=True)["layout"]["yaxis"]["range"]
    assert math.isclose(10**low, 1.5)
    assert 10**high > 4.17


def test_the_spec_is_a_valid_figure():
    figure = loss_figure([line(), line("identity", faint=True)], smoothing=0.3, log_y=True, references={"a": 2.0})
    assert len(figure.data) == 6


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0.0, 65_535.0], "u2"), ([0.0, 65_536.0], "i4"), ([-1.0, 2.0], "i4"), ([2.0**31, 0.0], "f4"), ([0.5, 2.25], "f4"),
        ([2.0, math.nan], "f4"), ([math.inf, 1.0], "f4"),
    ],
)  # fmt: skip
def test_a_message_has_the_figures_numbers_in_the_smallest_type_that_holds_them(values, kind):
    spec = {"data": [{"x": values, "y": [], "name": "a"}], "layout": {"height": 3}}
    message = json.loads(as_message(spec))
    packed = message["data"][0].pop("x")
    assert packed["dtype"] == kind
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(packed["bdata"]), dtype=f"<{kind}"), values)
    assert message == {"data": [{"y": [], "name": "a"}], "layout": {"height": 3}}
    assert spec["data"][0]["x"] is values, "the figure itself is left as it was"


def test_plotly_reads_a_message():
    spec = loss_spec([line(), line("identity")], smoothing=0.5)
    figure = go.Figure(json.loads(as_message(spec)))
    assert len(figure.data) == len(spec["data"])
    assert [trace.uid for trace in figure.data] == [trace["uid"] for trace in spec["data"]]


def test_experts_shares_are_the_mean_of_the_newest_and_cut_with_the_curve():
    curve = curve_of([step(k) | {"expert_load": [load]} for k, load in enumerate([[1.0, 0.0], [0.5, 0.5], [0.25, 0.75]])])
    assert curve.load() == [[pytest.approx(7 / 12), pytest.approx(5 / 12)]]
    assert curve.load(last=1) == [[0.25, 0.75]]
    assert curve.until(2).load(last=1) == [[0.5, 0.5]]
    assert curve_of([step(0)]).load() == []


def test_a_close_up_shows_where_the_curves_have_come_down():
    curve = curve_of([*(step(k, 4.0 if k < 20 else 2.0 + 0.001 * k) for k in range(101)), evaluation(0, 4.2), evaluation(100, 2.5)])
    line = Line("a", "a", "linear", curve)
    low, high = loss_spec([line], close=True)["layout"]["yaxis"]["range"]
    assert 1.9 < low < 2.02
    assert 2.5 < high < 2.6
    assert loss_spec([line], close=True, log_y=True)["layout"]["yaxis"]["range"] == [math.log10(low), math.log10(high)]
    assert "range" not in loss_spec([line])["layout"]["yaxis"]
    assert "range" in loss_spec([], close=True)["layout"]["yaxis"]  # empty axes as ever
