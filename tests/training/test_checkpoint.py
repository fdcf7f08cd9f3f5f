from __future__ import annotations

import ast
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save

import nqlab
from nqlab.config import ModelConfig
from nqlab.corpus import Corpus
from nqlab.model.gpt import GPT
from nqlab.training.checkpoint import State, capture, load_state, restore, restore_model, save_state
from nqlab.training.optimizer import FlatAdamW
from tests.small import BASE, small, trained

IDS = torch.randint(9, (2, 16), generator=torch.Generator().manual_seed(0))


def state_of(corpus: Corpus, **settings: object) -> State:
    """The last checkpoint of a run of six steps."""
    return [e for e in trained(small(steps=6, checkpoint_interval=6, **settings), corpus) if e.type == "checkpoint"][-1].state


def test_a_state_comes_back_bit_for_bit(tmp_path: Path, shakespeare: Corpus) -> None:
    state = state_of(shakespeare)
    save_state(tmp_path / "checkpoint.safetensors", state)
    again = load_state(tmp_path / "checkpoint.safetensors")
    assert (again.step, again.evaluated, again.sampled, again.elapsed_s) == (6, 6, -1, state.elapsed_s)
    assert again.tensors.keys() == state.tensors.keys()
    for name, tensor in state.tensors.items():
        assert torch.equal(again.tensors[name], tensor), name
        assert again.tensors[name].dtype == tensor.dtype, name


def test_saving_replaces_the_file_and_leaves_nothing_beside_it(tmp_path: Path, shakespeare: Corpus) -> None:
    path = tmp_path / "run" / "checkpoint.safetensors"
    path.parent.mkdir()
    for seed in (0, 1):
        save_state(path, state_of(shakespeare, seed=seed))
    assert [p.name for p in path.parent.iterdir()] == ["checkpoint.safetensors"]
    assert torch.equal(load_state(path).tensors["model.wte.weight"], state_of(shakespeare, seed=1).tensors["model.wte.weight"])


def test_weights_and_moments_of_every_parameter_are_in_it_and_a_tied_matrix_once(shakespeare: Corpus) -> None:
    names = set(state_of(shakespeare).tensors)
    parameters = {n for n, _ in GPT(BASE.model, 65).named_parameters()}
    assert names == {f"model.{n}" for n in parameters} | {
        f"optimizer.{n}.{key}" for n in parameters for key in ("step", "exp_avg", "exp_avg_sq")
    }


def test_the_file_is_safetensors_with_json_beside_it(tmp_path: Path, shakespeare: Corpus) -> None:
    path = tmp_path / "checkpoint.safetensors"
    save_state(path, state_of(shakespeare))
    with safe_open(path, framework="pt") as file:
        assert json.loads(file.metadata()["state"])["step"] == 6
    assert path.read_bytes()[:2] not in (b"\x80\x02", b"PK")  # a pickle, or torch's zip of one


def test_nothing_in_the_package_pickles() -> None:
    for path in Path(nqlab.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                modules = [a.name for a in node.names] + [getattr(node, "module", None) or ""]
                assert not {"pickle", "joblib", "dill", "cloudpickle", "shelve"} & {m.split(".")[0] for m in modules}, path
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
                assert node.attr not in ("save", "load"), path


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.99, 0.999999])
def test_a_truncated_file_is_refused_by_name(tmp_path: Path, shakespeare: Corpus, share: float) -> None:
    path = tmp_path / "checkpoint.safetensors"
    save_state(path, state_of(shakespeare))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors is no checkpoint of this program"):
        load_state(path)


@pytest.mark.parametrize(
    "content",
    [
        b"not a checkpoint at all",
        b"\x00" * 200,
        save({"w": torch.zeros(2)}),
        save({"w": torch.zeros(2)}, metadata={"state": "{"}),
        save({"w": torch.zeros(2)}, metadata={"state": "{}"}),
        save({"w": torch.zeros(2)}, metadata={"state": "7"}),
    ],
    ids=["text", "zeros", "no metadata", "broken metadata", "empty metadata", "other metadata"],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is no checkpoint of this program"):
        load_state(path)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere\.safetensors is no checkpoint"):
        load_state(tmp_path / "nowhere.safetensors")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"query": "nonlinear"}, "blocks.0.attn.query"),
        ({"query": "identity"}, "blocks.0.attn.query.proj.weight is only in one of them"),
        ({"n_layer": 3}, "blocks.2.* is only in one of them"),
        ({"tied": False}, "lm_head.weight is only in one of them"),
        ({"n_embd": 18}, r"wte.weight is \(65, 16\), not \(65, 18\)"),
        ({"block_size": 17}, r"wpe.weight is \(16, 16\), not \(17, 16\)"),
        ({"ffn_hidden": 65}, r"ffn.hidden.weight is \(64, 16\), not \(65, 16\)"),
    ],
)
def test_the_state_of_another_model_is_refused_with_what_differs(shakespeare: Corpus, other: dict[str, object], said: str) -> None:
    model = GPT(ModelConfig.model_validate(BASE.model.model_dump() | other), 65)
    with pytest.raises(ValueError, match=f"the checkpoint is of another model: .*{said}"):
        restore_model(model, state_of(shakespeare).tensors)


def test_another_vocabulary_is_refused(shakespeare: Corpus) -> None:
    with pytest.raises(ValueError, match=r"wte.weight is \(65, 16\), not \(66, 16\)"):
        restore_model(GPT(BASE.model, 66), state_of(shakespeare).tensors)


def test_a_restored_optimiser_takes_the_step_the_first_one_would_have_taken() -> None:
    def make(seed: int) -> tuple[GPT, FlatAdamW]:
        model = GPT(BASE.model, 9, seed)
        return model, FlatAdamW(model, BASE.training, torch.device("cpu"))

    def update(model: GPT, optimizer: FlatAdamW) -> None:
        model.loss(IDS, IDS.roll(-1, 1)).backward()
        optimizer.step()
        optimizer.zero_grad()

    first, second = make(0), make(1)
    for _ in range(3):
        update(*first)
    restore(*second, {name: t.clone() for name, t in capture(*first).items()})
    update(*first)
    update(*second)
    for (name, a), (_, b) in zip(first[0].named_parameters(), second[0].named_parameters()):
        assert torch.equal(a, b), name


KILLED_WHILE_SAVING = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from nqlab.training.checkpoint import State, load_state, save_state

folder, kills = Path(sys.argv[1]), int(sys.argv[2])
path, luck, steps = folder / "checkpoint.safetensors", random.Random(0), []
first = 0
torch.set_num_threads(1)
for _ in range(kills):
    child = os.fork()  # of a process without threads; each child saves until it is killed
    if child == 0:
        step = first
        while True:
            step += 1
            save_state(path, State({"a": torch.full((300, 300), float(step)), "b": torch.full((40_000,), float(step))}, step, 0, 0, 0.0))
    while not path.exists():
        time.sleep(0.001)
    time.sleep(luck.uniform(0, 0.06))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    state = load_state(path)
    assert all((t == state.step).all() for t in state.tensors.values()), "half of one state and half of another"
    first = state.step
    steps.append(first)
print(len(steps), first)
"""


def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_SAVING, str(tmp_path), "25"], capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
    kills, saves = map(int, done.stdout.split())
    assert kills == 25
    assert saves > 25, "the processes were killed before they saved anything"


def test_a_leftover_temporary_file_does_no_harm(tmp_path: Path, shakespeare: Corpus) -> None:
    path = tmp_path / "checkpoint.safetensors"
    save_state(path, state_of(shakespeare))
    path.with_suffix(".tmp").write_bytes(random.Random(0).randbytes(100))
    assert load_state(path).step == 6
    save_state(path, state_of(shakespeare))
    assert load_state(path).step == 6
