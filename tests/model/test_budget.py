from __future__ import annotations

import pytest

from nqlab import presets
from nqlab.config import ModelConfig
from nqlab.model.budget import Surplus, baseline_of, block_parameters, flops_per_token, match_parameters, surplus


def model(width: int = 64, **options: object) -> ModelConfig:
    return ModelConfig.model_validate({"n_embd": width, "n_head": 2, **options})


@pytest.mark.parametrize("query", ["nonlinear", "bottleneck_linear"])
@pytest.mark.parametrize("width", [16, 32, 64, 128, 384, 768])
def test_the_bottleneck_that_matches_the_baseline_is_half_the_width_less_one(query: str, width: int) -> None:
    matched = match_parameters(model(width, query=query), "bottleneck")
    assert matched.bottleneck == width // 2 - 1
    assert surplus(matched).matched
    assert str(surplus(matched)) == "matched"
    assert block_parameters(matched) == block_parameters(model(width))


@pytest.mark.parametrize(("width", "percent"), [(32, 6.25), (64, 3.125), (128, 1.5625), (384, 0.5208)])
def test_at_half_the_width_the_two_gains_are_the_surplus_over_w_q(width: int, percent: float) -> None:
    extra = surplus(model(width, query="nonlinear", n_layer=1))
    assert extra.number == 2 * width
    assert 100 * extra.number / width**2 == pytest.approx(percent, abs=1e-4)


def test_the_surplus_is_in_percent_of_the_blocks_as_the_paper_counts_it() -> None:
    wide = presets.arm(presets.gpt2(), "wide_mlp").model
    assert surplus(wide).number == 12 * 3 * 768**2 // 2
    assert surplus(wide).percent == pytest.approx(12.5, abs=0.01)
    assert str(surplus(model(query="identity"))).startswith("-8,192 (-")
    assert not Surplus(1, 0.0).matched


def test_the_identity_is_matched_by_a_wider_mlp() -> None:
    matched = match_parameters(model(64, query="identity"), "ffn_hidden")
    assert matched.ffn_hidden == 64 * 9 // 2
    assert surplus(matched).number == 0


def test_where_no_width_is_exact_the_match_stays_below_the_baseline_by_less_than_one_width() -> None:
    matched = match_parameters(model(6, query="nonlinear", n_head=3, n_layer=1, ffn_hidden=7), "ffn_hidden")
    assert -2 * 6 < surplus(matched).number <= 0


def test_a_baseline_of_ones_own_can_be_matched() -> None:
    wide = model(64, ffn_hidden=304)
    matched = match_parameters(model(64, query="nonlinear"), "bottleneck", wide)
    assert surplus(matched, wide).matched
    assert surplus(matched).number > 0


@pytest.mark.parametrize(
    ("config", "field", "said"),
    [
        (model(query="identity"), "bottleneck", "'identity' has no bottleneck; match by ffn_hidden"),
        (model(query="linear"), "bottleneck", "'linear' has no bottleneck"),
        (model(query="nonlinear"), "n_embd", "cannot match by 'n_embd'; choose bottleneck or ffn_hidden"),
        (model(query="nonlinear", bottleneck=16384), "ffn_hidden", "no ffn_hidden makes 'nonlinear' as small"),
        (model(2, query="nonlinear", n_head=1), "bottleneck", "no bottleneck makes 'nonlinear' as small"),
    ],
)
def test_what_cannot_be_matched_is_said(config: ModelConfig, field: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        match_parameters(config, field)


def test_the_baseline_of_a_variant_is_the_linear_model_of_its_shape() -> None:
    variant = model(64, query="nonlinear", bottleneck=3, ffn_hidden=9, query_scale=0.1, n_layer=3, tied=False)
    assert baseline_of(variant).resolved() == model(64, n_layer=3, tied=False).resolved()


@pytest.mark.parametrize(("query", "per_layer"), [("linear", 24), ("identity", 22), ("residual_linear", 24), ("nonlinear", 24)])
def test_matrix_flops_per_layer_are_the_specifications(query: str, per_layer: int) -> None:
    config, vocab = model(128, query=query, n_layer=3, block_size=32), 65
    attention, head = 4 * 32 * 128, 2 * 128 * vocab
    assert flops_per_token(config, vocab) == 3 * (per_layer * 128**2 + attention) + head
