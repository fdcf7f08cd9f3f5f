from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nqlab import presets
from nqlab.config import LATER, ModelConfig, RunConfig, TrainingConfig, difference, difference_line, replace, validated
from nqlab.runs.study import read_study

REFERENCE = Path(__file__).parents[1] / "data" / "reference"
NONLINEAR = replace(RunConfig(), {"query": "nonlinear"})

# One other value for every field: a changed field must change the hash, and a new field must be added here.
OTHER_VALUES: dict[str, Any] = {
    "model.n_layer": 3,
    "model.n_head": 4,
    "model.n_embd": 66,
    "model.block_size": 63,
    "model.query": "bottleneck_linear",
    "model.key": "nonlinear",
    "model.value": "nonlinear",
    "model.position": "rope",
    "model.qk_norm": True,
    "model.norm": "rmsnorm",
    "model.activation": "relu",
    "model.bottleneck": 31,
    "model.query_scale": 0.25,
    "model.query_output_gain": 0.0,
    "model.ffn_hidden": 255,
    "model.feedforward": "moe",
    "model.tied": False,
    "model.dropout": 0.1,
    "model.init_std": 0.03,
    "training.steps": 999,
    "training.batch_size": 15,
    "training.learning_rate": 2e-3,
    "training.min_lr": 0.0,
    "training.warmup_steps": 7,
    "training.weight_decay": 0.0,
    "training.betas": [0.9, 0.95],
    "training.grad_clip": 0.5,
    "training.eval_interval": 51,
    "training.eval_windows": 255,
    "training.log_interval": 2,
    "training.checkpoint_interval": 101,
    "training.sample_interval": 0,
    "training.sample_prompt": "A",
    "training.sample_length": 199,
    "training.device": "cpu",
    "training.dtype": "bfloat16",
    "training.threads": 1,
    "training.compile": True,
    "corpus": "python-docs",
    "seed": 1,
}
# Options of other entries than those of the run that is changed: what to change with them.
OTHER_ENTRIES = {
    "model.n_experts": ({"feedforward": "moe"}, 2),
    "model.top_k": ({"feedforward": "moe"}, 2),
    "model.query_experts": ({"query": "routed"}, 3),
}


def message_of(changes: dict[str, Any]) -> str:
    """What a refused change says; always one line."""
    with pytest.raises(ValueError) as caught:
        replace(RunConfig(), changes)
    message = str(caught.value)
    assert message
    assert "\n" not in message
    return message


# --- JSON


@pytest.mark.parametrize("config", [RunConfig(), NONLINEAR, replace(NONLINEAR, {"corpus": "text:0a1b", "sample_prompt": "né 🙂\n"})])
def test_json_gives_the_resolved_configuration_back(config: RunConfig) -> None:
    assert RunConfig.from_json(config.to_json()) == config.resolved()
    assert RunConfig.from_json(config.to_json().encode("utf-8")).to_json() == config.to_json()


def test_resolving_twice_changes_nothing() -> None:
    assert NONLINEAR.resolved().resolved() == NONLINEAR.resolved()


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"sede": 1}, "sede"),
        ({"model": {"n_layers": 2}}, "model.n_layers"),
        ({"training": {"lr": 1e-3}}, "training.lr"),
        ({"model": {"query": "cubic"}}, "'cubic'"),
        ({"training": {"steps": "many"}}, "training.steps = 'many'"),
        ({"seed": -1}, "seed = -1"),
        ({"training": 3}, "training = 3"),
    ],
)
def test_json_with_something_unknown_is_refused_in_one_line_that_names_it(data: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError) as caught:
        RunConfig.from_json(json.dumps(data))
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"seed": NaN}', b"\xff\xfe"])
def test_what_is_no_json_object_is_refused_in_one_line(text: str | bytes) -> None:
    with pytest.raises(ValueError) as caught:
        RunConfig.from_json(text)
    assert "\n" not in str(caught.value)


def test_a_configuration_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValueError, match="frozen"):
        RunConfig().model.n_layer = 3  # type: ignore[misc]


# --- hash and difference


def test_the_hash_of_the_default_run_is_what_it_always_was() -> None:
    assert RunConfig().short_hash() == "501b7daba5"


# Of the arms linear, nonlinear and wide_mlp, written down when LATER held one field.
HASHES = {
    "tiny": ("501b7daba5", "301aa8936a", "cf73a207d3"),
    "small": ("a396ad57dc", "45daced707", "3ddd2b136c"),
    "medium": ("4f291fabe3", "9d996b845b", "a95c2ed343"),
    "gpu": ("f069959194", "908f1862de", "ce452ff242"),
    "gpt2": ("95e1b75e54", "02792d9a58", "5fd2ce3bf2"),
}


@pytest.mark.parametrize("name", presets.PRESETS)
def test_the_presets_keep_the_hashes_they_had_before_later_settings_came(name: str) -> None:
    found = [presets.arm(presets.preset(name), arm).short_hash() for arm in ("linear", "nonlinear", "wide_mlp")]
    assert tuple(found) == HASHES[name]


@pytest.mark.parametrize("table", sorted(REFERENCE.glob("*.parquet")), ids=lambda path: path.stem)
def test_the_runs_of_the_shipped_studies_keep_their_names(table: Path) -> None:
    rows = pd.read_parquet(table, columns=["id", "config"]).to_dict("records")
    assert rows
    assert [RunConfig.from_json(row["config"]).short_hash() for row in rows] == [row["id"] for row in rows]
    cells = {config.short_hash() for config in read_study(table.with_suffix(".json")).cells()}
    assert {row["id"] for row in rows} <= cells


def test_at_its_later_default_a_setting_is_out_of_the_hash_and_at_no_other_value() -> None:
    flat = RunConfig().flat()
    assert {key: flat[key] for key in LATER} == LATER


def test_a_default_spelled_out_and_a_default_left_out_are_the_same_run() -> None:
    spelled = replace(
        NONLINEAR,
        {"bottleneck": 32, "query_scale": 0.5, "query_output_gain": 1, "ffn_hidden": 256, "min_lr": 1e-4, "warmup_steps": 100},
    )
    assert spelled != NONLINEAR
    assert spelled.short_hash() == NONLINEAR.short_hash()
    assert difference(spelled, NONLINEAR) == {}
    assert difference_line(spelled, NONLINEAR) == "no difference"


def test_an_option_that_no_slot_reads_is_not_part_of_the_run() -> None:
    ignoring = replace(RunConfig(), {"query": "identity"})
    assert replace(ignoring, {"bottleneck": 5, "query_output_gain": 0.5}).short_hash() == ignoring.short_hash()
    assert replace(NONLINEAR, {"bottleneck": 5}).short_hash() != NONLINEAR.short_hash()


def test_every_field_changes_the_hash() -> None:
    assert set(NONLINEAR.flat()) == OTHER_VALUES.keys() | OTHER_ENTRIES.keys(), "add another value for each new field"
    changed = {field: replace(NONLINEAR, {field: value}) for field, value in OTHER_VALUES.items()}
    changed |= {field: replace(NONLINEAR, entries | {field: value}) for field, (entries, value) in OTHER_ENTRIES.items()}
    hashes = {config.short_hash() for config in changed.values()} | {NONLINEAR.short_hash()}
    assert len(hashes) == len(changed) + 1
    for field, config in changed.items():
        assert field in difference(NONLINEAR, config)


def test_the_difference_line_names_what_differs_and_nothing_else() -> None:
    linear = RunConfig()
    assert difference_line(linear, replace(linear, {"learning_rate": 3e-3, "min_lr": 1e-4, "seed": 2})) == (
        "learning_rate 0.001 → 0.003, seed 0 → 2"
    )
    line = difference_line(linear, NONLINEAR)
    assert line == "query linear → nonlinear, bottleneck – → 32, query_scale 1 → 0.5, query_output_gain – → 1"


# --- replace


def test_dotted_and_bare_keys_mean_the_same() -> None:
    assert replace(RunConfig(), {"training.learning_rate": 3e-3, "model.n_embd": 32, "seed": 4}) == replace(
        RunConfig(), {"learning_rate": 3e-3, "n_embd": 32, "seed": 4}
    )


@pytest.mark.parametrize(
    ("key", "typed", "value"),
    [
        ("learning_rate", "3e-3", 3e-3),
        ("n_layer", " 4", 4),
        ("tied", "false", False),
        ("betas", "[0.9, 0.95]", (0.9, 0.95)),
        ("min_lr", "none", None),
        ("bottleneck", "Default", None),
        ("norm", "none", "none"),
        ("sample_prompt", "ROMEO:", "ROMEO:"),
        ("sample_prompt", "[stage", "[stage"),
        ("device", "cpu", "cpu"),
    ],
)
def test_text_as_typed_gets_the_type_of_its_field(key: str, typed: str, value: Any) -> None:
    config = replace(replace(RunConfig(), {"min_lr": 1e-5, "bottleneck": 3}), {key: typed})
    found = getattr(config.training if hasattr(config.training, key) else config.model, key)
    assert found == value
    assert type(found) is type(value)


def test_replace_leaves_the_original_and_the_other_fields_alone() -> None:
    before = RunConfig()
    after = replace(before, {"n_embd": 32})
    assert before == RunConfig()
    assert after.training == before.training
    assert after.model.model_copy(update={"n_embd": 64}) == before.model


@pytest.mark.parametrize(
    ("key", "near"),
    [("learningrate", "learning_rate"), ("training.learing_rate", "training.learning_rate"), ("model.n_heads", "model.n_head")],
)
def test_a_misspelt_key_is_answered_with_its_near_miss(key: str, near: str) -> None:
    message = message_of({key: 1})
    assert repr(key) in message
    assert "did you mean" in message
    assert near in message


@pytest.mark.parametrize("key", ["zzz", "model", "training", "training.", "training.n_embd", "model.model.n_embd", "", "seed.x"])
def test_a_key_that_is_like_none_is_refused(key: str) -> None:
    assert repr(key) in message_of({key: 1})


def test_every_setting_is_listed_when_a_key_is_like_none() -> None:
    message = message_of({"zzz": 1})
    assert all(field in message for field in RunConfig().flat())


def test_a_width_that_the_heads_do_not_divide_is_answered_with_the_nearest_that_do() -> None:
    message = message_of({"n_embd": 100, "n_head": 3})
    assert "n_embd 100 is not a multiple of n_head 3" in message
    assert "99 or 102" in message
    offered = message.split("n_head ")[-1]
    assert [int(h) for h in offered.split(", ")] == [1, 2, 4, 5]
    for change in ({"n_embd": 99, "n_head": 3}, {"n_embd": 102, "n_head": 3}, {"n_embd": 100, "n_head": 4}):
        replace(RunConfig(), change)


def test_more_heads_than_width_is_answered_without_offering_width_zero() -> None:
    assert "take n_embd 3, or n_head 1, 2" in message_of({"n_embd": 2, "n_head": 3})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "nan", "inf", "-inf", "1e999"])
@pytest.mark.parametrize("key", ["learning_rate", "weight_decay", "grad_clip", "init_std", "query_scale", "min_lr", "dropout"])
def test_numbers_that_are_not_finite_are_refused(key: str, value: Any) -> None:
    assert key in message_of({key: value})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"min_lr": 2e-3}, "min_lr 0.002 is above learning_rate 0.001"),
        ({"betas": [0.9, 1.0]}, "betas (0.9, 1.0)"),
        ({"betas": [0.9]}, "betas"),
        ({"betas": "[nan, 0.9]"}, "betas"),
        ({"dropout": 1}, "dropout = 1"),
        ({"steps": 0}, "steps = 0"),
        ({"steps": "2.5"}, "steps = '2.5'"),
        ({"n_layer": 0}, "n_layer = 0"),
        ({"bottleneck": 0}, "bottleneck = 0"),
        ({"query_output_gain": -1}, "query_output_gain = -1"),
        ({"query": "cubic"}, "'cubic' is unknown; choose one of linear, nonlinear, identity"),
        ({"norm": "batchnorm"}, "'batchnorm' is unknown; choose one of layernorm"),
        ({"device": "tpu"}, "device = 'tpu'"),
        ({"corpus": ""}, "corpus = ''"),
        ({"seed": 2**63}, "seed"),
        ({"tied": "perhaps"}, "tied = 'perhaps'"),
        ({"steps": 0, "n_layer": 0}, "n_layer = 0"),
    ],
)
def test_a_value_outside_what_is_allowed_is_named(changes: dict[str, Any], said: str) -> None:
    assert said in message_of(changes)


def test_two_wrong_values_are_both_named() -> None:
    message = message_of({"steps": 0, "n_layer": 0})
    assert "training.steps = 0" in message
    assert "model.n_layer = 0" in message


def test_plain_data_is_validated_like_json() -> None:
    assert validated({"model": {"n_embd": 32}, "seed": 3}) == RunConfig(model=ModelConfig(n_embd=32), seed=3)
    with pytest.raises(ValueError, match="is not a setting"):
        validated({"modle": {}})


# --- resolving


def test_warmup_and_final_rate_follow_from_steps_and_peak() -> None:
    resolved = TrainingConfig(steps=500, learning_rate=2e-3).resolved()
    assert (resolved.warmup_steps, resolved.min_lr) == (50, 2e-4)
    assert TrainingConfig(steps=100_000).resolved().warmup_steps == 100
    assert TrainingConfig(steps=5, warmup_steps=50).resolved().warmup_steps == 5


def test_the_head_size_is_the_width_over_the_heads() -> None:
    assert ModelConfig(n_embd=96, n_head=4).head_size == 24
