from __future__ import annotations

import pytest

from nqlab import presets, slots
from nqlab.config import difference, replace
from nqlab.model.budget import block_parameters, parameters

# n_layer, n_head, n_embd, block_size, dropout | steps, batch_size, learning_rate, warm-up, betas
TABLE = {
    "tiny": (2, 2, 64, 64, 0.0, 1000, 16, 1e-3, 100, (0.9, 0.99)),
    "small": (4, 4, 128, 64, 0.0, 2000, 12, 1e-3, 100, (0.9, 0.99)),
    "medium": (4, 4, 128, 128, 0.0, 2000, 32, 1e-3, 100, (0.9, 0.99)),
    "gpu": (6, 6, 384, 256, 0.2, 5000, 64, 1e-3, 100, (0.9, 0.99)),
    "gpt2": (12, 12, 768, 1024, 0.0, 60_002, 480, 6e-4, 2000, (0.9, 0.95)),
}


def test_every_preset_is_in_the_table_of_this_test() -> None:
    assert set(presets.PRESETS) == set(TABLE)


@pytest.mark.parametrize("name", presets.PRESETS)
def test_a_preset_has_the_values_it_is_known_by(name: str) -> None:
    config = presets.preset(name).resolved()
    model, training = config.model, config.training
    assert (
        model.n_layer, model.n_head, model.n_embd, model.block_size, model.dropout,
        training.steps, training.batch_size, training.learning_rate, training.warmup_steps, training.betas,
    ) == TABLE[name]  # fmt: skip
    assert (model.query, model.norm, model.activation, model.tied, model.init_std) == ("linear", "layernorm", "gelu", True, 0.02)
    assert (training.weight_decay, training.grad_clip) == (0.1, 1.0)
    assert training.min_lr == pytest.approx(training.learning_rate / 10)
    assert (config.corpus, config.seed) == ("shakespeare", 0)


def test_an_unknown_preset_is_answered_with_the_names() -> None:
    with pytest.raises(ValueError, match=r"'huge' is unknown; choose one of tiny, small, medium, gpu, gpt2$"):
        presets.preset("huge")


# --- arms


def test_every_query_and_every_control_is_an_arm() -> None:
    assert set(presets.ARMS) == set(slots.QUERY) | {"wide_mlp", "reduced_mlp"}
    assert all(presets.ARMS.values())


@pytest.mark.parametrize("preset", presets.PRESETS)
@pytest.mark.parametrize("name", presets.ARMS)
def test_an_arm_is_recognised_again(preset: str, name: str) -> None:
    assert presets.arm_of(presets.arm(presets.preset(preset), name)) == name


@pytest.mark.parametrize("name", slots.QUERY)
def test_a_query_arm_differs_from_the_baseline_in_nothing_but_its_query(name: str) -> None:
    base = presets.tiny()
    changed = set(difference(base, presets.arm(base, name)))
    assert changed <= {"model.query", *(f"model.{option}" for entry in slots.QUERY.values() for option in entry.options)}
    assert ("model.query" in changed) == (name != "linear")


@pytest.mark.parametrize(("name", "hidden"), [("wide_mlp", 608), ("reduced_mlp", 448)])
def test_a_control_differs_from_the_baseline_in_its_mlp_alone(name: str, hidden: int) -> None:
    base = presets.small()
    assert difference(base, presets.arm(base, name)) == {"model.ffn_hidden": (512, hidden)}


def test_an_arm_keeps_the_size_of_f_that_the_configuration_has() -> None:
    base = replace(presets.tiny(), {"bottleneck": 31})
    assert presets.arm(base, "nonlinear").model.bottleneck == 31
    assert presets.arm(base, "linear").short_hash() == presets.tiny().short_hash()


def test_the_wide_mlp_is_only_a_control_of_the_linear_query() -> None:
    assert presets.arm_of(replace(presets.tiny(), {"query": "identity", "ffn_hidden": 304})) == "identity"


def test_an_unknown_arm_is_answered_with_the_names() -> None:
    with pytest.raises(ValueError, match="'cubic' is unknown; choose one of linear, nonlinear, identity") as caught:
        presets.arm(presets.tiny(), "cubic")
    assert all(name in str(caught.value) for name in presets.ARMS)


# --- the papers' sizes, as given in the specification


@pytest.mark.parametrize(
    ("name", "blocks", "total"),
    [
        ("linear", 84_953_088, 124_373_760),
        ("nonlinear", 84_971_520, 124_392_192),
        ("bottleneck_linear", 84_971_520, 124_392_192),
        ("residual_linear", 84_953_088, 124_373_760),
        ("identity", 77_875_200, 117_295_872),
        ("wide_mlp", 95_569_920, 134_990_592),
    ],
)
def test_parameters_at_gpt2_size_are_the_papers(name: str, blocks: int, total: int) -> None:
    model = presets.arm(presets.gpt2(), name).model
    assert block_parameters(model) == blocks
    assert parameters(model, 50304) == total


@pytest.mark.parametrize("preset", presets.PRESETS)
def test_linear_with_a_reduced_mlp_is_as_large_as_identity(preset: str) -> None:
    base = presets.preset(preset)
    reduced, identity = presets.arm(base, "reduced_mlp").model, presets.arm(base, "identity").model
    assert block_parameters(reduced) == block_parameters(identity)


@pytest.mark.parametrize("preset", presets.PRESETS)
def test_identity_with_an_mlp_of_four_and_a_half_is_as_large_as_the_baseline(preset: str) -> None:
    base = presets.preset(preset)
    wider = replace(presets.arm(base, "identity"), {"ffn_hidden": base.model.n_embd * 9 // 2}).model
    assert block_parameters(wider) == block_parameters(base.model)
