"""An experiment as an address, a command line and a notebook cell."""

from __future__ import annotations

import shlex

import pytest

from nqlab import experiment as experiments
from nqlab import presets
from nqlab.config import replace
from nqlab.experiment import DEFAULT_ARMS, Experiment


def test_an_address_holds_only_what_differs() -> None:
    assert Experiment().query() == {"v": "1"}
    one = experiments.of("small", ["linear", "wide_mlp"], {"training.learning_rate": 3e-3, "training.steps": 2000, "model.bottleneck": 64})
    assert one.query() == {"v": "1", "preset": "small", "arms": "linear,wide_mlp", "learning_rate": "0.003"}


def test_what_follows_from_another_setting_is_left_out() -> None:
    wide = experiments.of("tiny", DEFAULT_ARMS, {"n_embd": 128, "bottleneck": 64, "ffn_hidden": 512, "learning_rate": 1e-3, "min_lr": 1e-4})
    assert wide.changes == {"model.n_embd": 128}
    assert experiments.of("tiny", ["linear"], {"bottleneck": 5}).changes == {}  # the linear query has none


@pytest.mark.parametrize("name", experiments.questions())
def test_every_question_goes_through_an_address_and_back(name: str) -> None:
    one = experiments.questions()[name].experiment
    again, problems = experiments.read(one.query())
    assert not problems
    assert again == one
    assert [c.resolved() for c in again.configs] == [c.resolved() for c in one.configs]


def test_texts_prompts_and_lists_go_through_an_address() -> None:
    one = experiments.of(
        "tiny", ["linear"], {"sample_prompt": "a=b&c\n", "betas": [0.9, 0.95], "corpus": "text:abc", "tied": False, "norm": "rmsnorm"}
    )
    again, problems = experiments.read(one.query())
    assert (again, problems) == (one, [])


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"v": "1", "learning_rate": "fast"}, "learning_rate=fast"),
        ({"v": "1", "n_head": "3"}, "n_head 1, 2, 4, 8"),
        ({"v": "1", "arms": "linear,magic"}, "magic"),
        ({"v": "1", "arms": "magic"}, "magic"),
        ({"preset": "huge"}, "There is no preset 'huge'"),
        ({"v": "9"}, "another version (9)"),
        ({"v": "1", "lerning_rate": "0.1"}, "did you mean"),
    ],
)
def test_what_is_wrong_in_an_address_is_said_and_left_out(parameters: dict[str, str], said: str) -> None:
    one, problems = experiments.read(parameters)
    assert said in " ".join(problems)
    assert one.changes == {}
    assert one.preset == "tiny"
    assert one.configs


def test_one_wrong_value_does_not_spoil_the_others() -> None:
    one, problems = experiments.read({"v": "1", "learning_rate": "0.003", "n_head": "3", "n_embd": "96", "race": "x", "lang": "zh_TW"})
    assert one.changes == {"model.n_head": 3, "model.n_embd": 96, "training.learning_rate": 0.003} or len(problems) == 1
    assert one.changes["training.learning_rate"] == 0.003


def test_the_experiment_behind_a_race() -> None:
    made = Experiment("small", ("linear", "nonlinear", "wide_mlp"), {"model.bottleneck": 8, "training.learning_rate": 0.004})
    assert experiments.of_runs(made.configs) == made
    mixed = [presets.tiny(), replace(presets.arm(presets.tiny(), "nonlinear"), {"steps": 7})]
    assert experiments.of_runs(mixed) is None


def test_the_command_line_trains_the_very_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from nqlab import cli

    one = experiments.of(
        "tiny", ["linear", "nonlinear"], {"corpus": "python-docs", "sample_prompt": "it's", "steps": 30, "min_lr": 1e-5, "seed": 4}
    )
    seen = []
    monkeypatch.setattr("nqlab.runs.launch.create", lambda folder, configs: seen.extend(configs) or (None, []))
    monkeypatch.setattr(cli, "_work", lambda *_: 0)
    done = CliRunner().invoke(cli.app, shlex.split(one.command())[3:])
    assert done.exit_code == 0, done.output
    assert [c.resolved() for c in seen] == [c.resolved() for c in one.configs]


def test_the_cell_runs_and_draws() -> None:
    one = experiments.of(
        "tiny", ["linear", "nonlinear"], {"corpus": "python-docs-short", "steps": 4, "eval_interval": 2, "n_embd": 16, "block_size": 8}
    )
    code = one.cell().splitlines()
    scope: dict[str, object] = {}
    exec("\n".join([*code[:-1], f"figure = {code[-1]}"]), scope)
    assert scope["curves"]["nonlinear"].step == 4  # type: ignore[index]
    assert scope["figure"].data  # type: ignore[attr-defined]
