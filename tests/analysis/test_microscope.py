"""What a model's f is worth, its measures as rows, and the charts of both."""

import json
import math

import pytest
import torch

from nqlab import slots
from nqlab.analysis.attention_maps import attention_maps, uniform_entropy
from nqlab.analysis.figures import labels, pattern
from nqlab.analysis.microscope import MEASURES, Look, WorthOfF, example_prompt, layer_rows, look, worth_of_f, worth_rows
from nqlab.analysis.microscope_figures import layer_figure, map_figure, scale_figure
from nqlab.analysis.probe import LayerProbe
from nqlab.corpus import Corpus
from nqlab.presets import ARMS
from tests.analysis.test_probe import model_of
from tests.small import small

WITHOUT_F = ("linear", "identity")


# --- the measures


@pytest.mark.parametrize("query", slots.QUERY)
def test_every_variant_is_measured_and_what_it_lacks_is_not_defined(docs, query):
    found = look(model_of(docs, query), docs, step=7)
    assert found.step == 7
    assert found.has_f == (query not in WITHOUT_F)
    assert found.uniform == uniform_entropy(16)
    for measure in MEASURES:
        values = found.values(measure)
        assert len(values) == 2
        if query in WITHOUT_F and measure in ("f_ratio", "f_rank"):
            assert values == [None, None]
        else:
            assert all(math.isfinite(value) for value in values)
    assert all(0 < value < found.uniform for value in found.values("entropy"))
    record = json.loads(json.dumps(found.record(), allow_nan=False))
    assert record["layers"][1]["f_rank"] == found.values("f_rank")[1]


def test_an_unknown_measure_names_those_there_are(docs):
    with pytest.raises(ValueError, match="'speed' is unknown; choose one of f_ratio"):
        look(model_of(docs), docs).values("speed")


def test_a_diverged_model_says_so(docs):
    model = model_of(docs)
    with torch.no_grad():
        model.wte.weight[0, 0] = math.nan
    for measured in (look, worth_of_f):
        with pytest.raises(ValueError, match="has diverged"):
            measured(model, docs)


def test_rows_have_a_line_a_run_and_layer(docs):
    rows = layer_rows({"one": look(model_of(docs), docs), "two": look(model_of(docs, "linear"), docs)})
    assert [(row["variant"], row["layer"]) for row in rows] == [("one", 1), ("one", 2), ("two", 1), ("two", 2)]
    assert rows[2]["effective rank of f"] is None
    assert rows[0]["effective rank of f"] > 1
    assert rows[3]["without preferences"] == uniform_entropy(16)


# --- what f is worth


def test_an_f_that_is_linear_costs_nothing_to_replace_by_its_map(docs):
    worth = worth_of_f(model_of(docs, "residual_linear").double(), docs, windows=16)
    assert worth.linear == pytest.approx(worth.whole, abs=1e-9)
    assert worth.explained == pytest.approx((1, 1))
    assert abs(worth.zero - worth.whole) > 1e-4


def test_without_gelu_f_is_still_not_linear_because_its_norms_divide_by_lengths(docs):
    worth = worth_of_f(model_of(docs, "bottleneck_linear"), docs, windows=16)
    assert all(0.5 < share < 0.9999 for share in worth.explained)
    assert worth.linear != pytest.approx(worth.whole, abs=1e-6)


@pytest.mark.parametrize("query", WITHOUT_F)
def test_without_an_f_its_worth_is_not_defined_and_says_why(docs, query):
    worth = worth_of_f(model_of(docs, query), docs, windows=16)
    assert (worth.zero, worth.linear, worth.explained) == (None, None, None)
    assert worth.why
    assert math.isfinite(worth.whole)
    assert worth_rows({"it": worth})[0]["f = 0"] == "not defined"


def test_an_f_of_zero_costs_nothing_and_has_no_share(docs):
    worth = worth_of_f(model_of(docs, query_output_gain=0.0), docs, windows=16)
    assert worth.zero == pytest.approx(worth.whole, abs=1e-7)
    assert worth.explained == (None, None)
    json.dumps(worth.record(), allow_nan=False)


def test_losses_stand_in_the_table_to_four_digits():
    (row,) = worth_rows({"it": WorthOfF(2.5, 2.6, 2.49999, (0.98765, None))})
    assert list(row.values()) == ["it", "2.5000", "2.6000 (+0.1000)", "2.5000 (+0.0000)", "0.9877, –"]


def test_the_example_is_of_the_validation_text_and_fits(docs):
    assert len(example_prompt(docs, 16)) == 16
    assert example_prompt(docs, 64) in docs.text[docs.split_at :]
    short = Corpus("short", "short", "ab\n" * 20)
    assert example_prompt(short, 16) == "ab"


# --- charts


def looks_by_hand():
    layer = LayerProbe(0, f_ratio=0.5, cosine=-0.25, f_rank=3, q_rank=4, logit_std=1, entropy=2)
    return {"with": Look(1, (layer,), True, 3.0), "without": Look(1, (layer,), False, 3.0)}


def test_a_run_without_f_has_no_bar_and_each_arm_its_own_pattern():
    arms = {"with": "nonlinear", "without": "identity"}
    ratio = layer_figure("f_ratio", looks_by_hand(), arms)
    assert [list(bar.y) for bar in ratio.data] == [[0.5], [None]]
    cosine = layer_figure("cosine", looks_by_hand(), arms)
    assert cosine.layout.yaxis.range[0] < -0.25
    assert cosine.data[0].marker.pattern.shape != cosine.data[1].marker.pattern.shape
    entropy = layer_figure("entropy", looks_by_hand(), arms)
    assert [shape.y0 for shape in entropy.layout.shapes] == [3.0]
    assert entropy.layout.yaxis.range[1] > 3
    assert len({pattern(arm) for arm in ARMS}) == len(ARMS)


def test_a_measure_that_no_run_has_says_so():
    alone = {"without": looks_by_hand()["without"]}
    figure = layer_figure("f_rank", alone, {"without": "identity"})
    assert [note.text for note in figure.layout.annotations] == ["not defined: without an f"]


def test_a_map_names_both_characters_and_keeps_the_future_blank(docs):
    maps = attention_maps(model_of(docs), docs.vocabulary, "a <b>")
    figure = json.loads(map_figure(maps, 1, 0, "t").to_json())
    (trace,) = figure["data"]
    assert trace["x"] == trace["y"] == ["1 'a'", "2 '␣'", "3 '&lt;'", "4 'b'", "5 '&gt;'"]
    assert trace["hovertemplate"] == "position %{y} looks at position %{x}: %{z:.2f}<extra></extra>"
    assert (trace["zmin"], trace["zmax"]) == (0, 1)
    assert figure["layout"]["xaxis"]["ticktext"] == ["a", "␣", "&lt;", "b", "&gt;"]
    z = map_figure(maps, 1, 0).data[0].z
    assert z[0][0] == 1
    assert math.isnan(z[0][1])
    assert z[4].sum() == pytest.approx(1)


def test_all_maps_share_the_colours_of_the_scale(docs):
    maps = attention_maps(model_of(docs), docs.vocabulary, "an")
    assert map_figure(maps, 0, 1).data[0].colorscale == scale_figure().data[0].colorscale


def test_labels_of_a_race_are_never_alike():
    configs = [small(query="linear"), small(query="nonlinear"), small(query="linear", seed=2), small(query="nonlinear")]
    found = labels(configs)
    assert found[0] == "linear (baseline)"
    assert "seed" in found[2]
    assert len(set(found)) == 4
