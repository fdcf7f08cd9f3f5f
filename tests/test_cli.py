from __future__ import annotations

import json
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from nqlab.cli import app
from nqlab.config import RunConfig
from nqlab.corpus import SOURCES, Corpus
from nqlab.presets import ARMS, PRESETS
from nqlab.runs.log import EventReader, last_record
from nqlab.runs.store import Run, runs
from nqlab.training import loop
from tests.training.test_compiled import Prepared, stand_in
from tests.training.test_device import ABSENT

WaitFor = Callable[[Callable[[], object], str], None]
COMMAND = [sys.executable, "-m", "nqlab"]
SMALL = [
    "--corpus", "python-docs", "--set", "n_embd=16", "--set", "n_layer=1", "--set", "block_size=16", "--set", "batch_size=4",
    "--set", "eval_windows=8", "--set", "eval_interval=3", "--set", "sample_interval=0", "--set", "threads=1",
]  # fmt: skip


def nqlab(*arguments: str) -> Result:
    """The command line in this process; anything but an orderly exit fails the test."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def answer(*arguments: str) -> Any:
    """What a successful command prints as JSON, and nothing else."""
    result = nqlab(*arguments)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def trained(*arguments: str) -> dict[str, Any]:
    """One small run, trained."""
    (row,) = answer("train", "--steps", "4", "--json", *SMALL, *arguments)
    return dict(row)


# --- what there is


def test_presets_as_json_are_whole_configurations() -> None:
    rows = answer("presets", "--json")
    assert [r["preset"] for r in rows] == list(PRESETS)
    for row in rows:
        assert RunConfig.model_validate(row["config"]) == PRESETS[row["preset"]]().resolved()
        assert row["parameters"] > 100_000
        assert row["about"]


def test_presets_for_a_person_name_every_preset_and_arm() -> None:
    shown = nqlab("presets").stdout
    assert all(name in shown for name in (*PRESETS, *ARMS))


def test_corpora_as_json_are_cards_of_those_that_are_here(docs: Corpus) -> None:
    rows = {r["name"]: r for r in answer("corpora", "--json")}
    assert set(rows) == set(SOURCES)
    assert rows["python-docs"]["here"] is True
    assert rows["python-docs"]["sha256"] == docs.sha256
    assert rows["python-docs"]["characters"] == len(docs.text)
    assert rows["shakespeare"]["origin"]


def test_fetching_what_is_here_shows_its_card(shakespeare: Corpus) -> None:
    (card,) = answer("corpora", "fetch", "shakespeare", "--json")
    assert (card["sha256"], card["vocabulary"]) == (shakespeare.sha256, 65)
    assert "shakespeare" in nqlab("corpora", "fetch", "shakespeare").stdout


# --- train


def test_training_prints_json_alone_and_writes_a_whole_run(runs_dir: Path) -> None:
    result = nqlab("train", "--steps", "4", "--seed", "3", "--query", "nonlinear", "--json", *SMALL)
    assert result.exit_code == 0
    (row,) = json.loads(result.stdout)
    assert (row["arm"], row["seed"], row["step"], row["status"]) == ("nonlinear", 3, 4, "did not learn")
    assert "step 3 val_loss" in result.stderr  # progress goes elsewhere
    run = Run(Path(row["folder"]))
    assert run.folder.parent == runs_dir
    assert (run.config.model.query, run.config.training.steps, run.config.seed, run.config.corpus) == ("nonlinear", 4, 3, "python-docs")
    assert run.summary() == {k: v for k, v in row.items() if k != "folder"}


def test_what_keeps_a_race_from_being_compiled_is_said_once(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arms = ["--query", "linear", "--query", "identity", "--set", "compile=true", "--steps", "6", *SMALL]
    monkeypatch.setattr(loop, "Builds", lambda: Prepared(lambda job: "there is no compiler", at=3))
    shown = nqlab("train", *arms).stdout
    assert shown.count("training goes on without compilation: there is no compiler") == 1
    monkeypatch.setattr(loop, "Builds", lambda: Prepared(stand_in, at=3))
    assert nqlab("train", *arms).stdout.count(": compiled in 7 s") == 2


def test_the_events_have_the_fields_that_others_read(runs_dir: Path) -> None:
    run = Run(Path(trained("--set", "sample_interval=2", "--set", "sample_length=3")["folder"]))
    keys: dict[str, set[str]] = {}
    for record in EventReader(run.events).read():
        assert keys.setdefault(record["type"], set(record)) == set(record)
    assert keys == {
        "step": {"type", "step", "loss", "learning_rate", "grad_norm", "tokens", "elapsed_s"},
        "evaluation": {"type", "step", "val_loss", "val_halves", "tokens", "elapsed_s", "cpu_s"},
        "sample": {"type", "step", "text"},
        "checkpoint": {"type", "step"},
        "done": {"type", "step", "val_loss", "learned", "tokens", "elapsed_s", "cpu_s"},
    }


def test_a_race_has_a_run_per_arm(runs_dir: Path) -> None:
    result = nqlab("train", "--steps", "2", "--arm", "linear", "--arm", "wide_mlp", "--query", "identity", *SMALL)
    assert result.exit_code == 0
    assert sorted(r.summary()["arm"] for r in runs(runs_dir)) == ["identity", "linear", "wide_mlp"]
    assert len({r.race for r in runs(runs_dir)}) == 1
    assert all(r.name in result.stdout for r in runs(runs_dir))


def test_a_text_file_is_trained_on_and_what_was_changed_is_said(runs_dir: Path, tmp_path: Path) -> None:
    text = tmp_path / "mine.txt"
    text.write_bytes(b"It was the best of times,\r\nit was the worst of times.\r\n" * 20)
    result = nqlab("train", "--steps", "2", *SMALL, "--corpus", str(text))
    assert result.exit_code == 0
    assert "note: line ends changed" in result.stderr
    (run,) = runs(runs_dir)
    assert run.config.corpus.startswith("text:")
    assert str(tmp_path) not in run.events.read_text(encoding="utf-8")


def test_a_runs_folder_of_ones_own_can_be_named(runs_dir: Path, tmp_path: Path) -> None:
    row = trained("--runs-dir", str(tmp_path / "elsewhere"))
    assert Path(row["folder"]).parent == tmp_path / "elsewhere"
    assert not runs_dir.exists()
    assert [r["id"] for r in answer("runs", "list", "--json", "--runs-dir", str(tmp_path / "elsewhere"))] == [row["id"]]


def test_a_run_that_diverges_ends_in_code_one_with_the_reason(runs_dir: Path) -> None:
    result = nqlab("train", "--steps", "9", *SMALL, "--set", "learning_rate=1e30", "--set", "grad_clip=0", "--set", "eval_interval=99")
    assert result.exit_code == 1
    assert "diverged at step 1: the loss is not finite; the learning rate 1e+30 is probably too high" in result.stdout


@pytest.mark.parametrize(("assignment", "key", "value"), [("seed=3", "seed", 3), ("model.query=identity", "model.query", "identity")])
def test_what_is_set_is_not_undone_by_an_option_left_out(runs_dir: Path, assignment: str, key: str, value: object) -> None:
    assert answer("runs", "show", trained("--set", assignment)["id"], "--json")["config"][key] == value


# --- what is refused


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    contents = {"short": b"to be " * 20, "binary": bytes(range(256)) * 10, "empty": b"", "blank": b" \n" * 50}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return {name: str(tmp_path / name) for name in contents}


BAD = [
    (["--preset", "huge"], "preset 'huge' is unknown; choose one of tiny"),
    (["--query", "cubic"], "query 'cubic' is unknown; choose one of linear"),
    (["--query", "linear", "--query", "cubic"], "query 'cubic' is unknown"),
    (["--corpus", "shakespear"], f"corpus 'shakespear' is neither a name ({', '.join(SOURCES)}) nor a file"),
    (["--corpus", "text:0123456789ab"], "is not kept here"),
    (["--set", "learning_rate"], "--set 'learning_rate' has no '='"),
    (["--set", "lerning_rate=1"], "there is no setting 'lerning_rate'; did you mean"),
    (["--set", "learning_rate=fast"], "training.learning_rate = 'fast'"),
    (["--set", "learning_rate=nan"], "training.learning_rate = 'nan'"),
    (["--set", "learning_rate="], "training.learning_rate = ''"),
    (["--set", "n_embd=100", "--set", "n_head=3"], "99 or 102"),
    (["--set", "model.query=cubic"], "'cubic' is unknown"),
    (["--set", f"device={ABSENT}"], f"device '{ABSENT}' is not available"),
    (["--set", "block_size=60000", "--corpus", "python-docs"], "too short for block_size 60000"),
    (["--set", "sample_prompt=北"], "sample_prompt: the corpus has no '北'"),
    (["--steps", "0"], "training.steps = 0"),
    (["--seed", "-1"], "seed = -1"),
    (["--corpus", "{short}"], "the text is too short for block_size 64: 120 characters split into 108 to train and 12"),
    (["--corpus", "{binary}"], "looks like a binary file"),
    (["--corpus", "{empty}"], "the text is empty"),
    (["--corpus", "{blank}"], "the text is blank"),
]


@pytest.mark.parametrize(("arguments", "said"), BAD, ids=[" ".join(a) for a, _ in BAD])
def test_bad_input_is_answered_in_one_line_with_code_two_and_starts_nothing(
    runs_dir: Path, files: dict[str, str], data_dir: Path, arguments: list[str], said: str
) -> None:
    corpus = [] if "--corpus" in arguments else ["--corpus", "python-docs"]
    result = nqlab("train", *corpus, *(a.format(**files) for a in arguments))
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("nqlab: ")
    assert result.stdout == ""
    assert not runs_dir.exists()
    assert not (data_dir / "texts").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["runs", "show", "zebra"],
        ["runs", "resume", "zebra"],
        ["runs", "stop", "zebra"],
        ["runs", "delete", "zebra"],
        ["runs", "undelete", "zebra"],
        ["runs", "export", "zebra"],
        ["runs", "rename", "zebra", "horse"],
        ["generate", "zebra"],
        ["corpora", "fetch", "zebra"],
    ],
    ids=" ".join,
)
def test_what_does_not_exist_is_answered_in_one_line_with_code_two(runs_dir: Path, arguments: list[str]) -> None:
    result = nqlab(*arguments)
    assert result.exit_code == 2
    assert "'zebra'" in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_module_itself_exits_with_two_and_one_line(runs_dir: Path) -> None:
    done = subprocess.run([*COMMAND, "train", "--set", "n_heads=3"], capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == ["nqlab: there is no setting 'n_heads'; did you mean " + done.stderr.partition("mean ")[2].strip()]
    assert "model.n_head" in done.stderr


# --- runs


def test_a_run_is_listed_shown_renamed_noted_deleted_and_brought_back(runs_dir: Path) -> None:
    assert answer("runs", "list", "--json") == []
    row = trained()
    assert [r["id"] for r in answer("runs", "list", "--json")] == [row["id"]]
    assert row["name"] in nqlab("runs", "list").stdout

    shown = answer("runs", "show", row["name"], "--json")
    assert shown["config"]["model.n_embd"] == 16
    assert shown["meta"]["versions"]["torch"]
    assert "learning_rate" in nqlab("runs", "show", row["id"]).stdout

    assert answer("runs", "rename", row["id"], "grey goose", "--json")["name"] == "grey goose"
    assert answer("runs", "note", "grey", "né 🙂", "--json")["note"] == "né 🙂"
    assert nqlab("runs", "rename", "grey", " ").exit_code == 2
    assert answer("runs", "tag", "grey", "lecture 3", "né", "--json")["tags"] == ["lecture 3", "né"]
    assert "give 1 to 30" in nqlab("runs", "tag", "grey", "x" * 31).stderr
    assert "is tagged b" in nqlab("runs", "tag", "grey", "b").stdout
    assert answer("runs", "tag", "grey", "--json")["tags"] == []

    assert answer("runs", "delete", "grey goose", "--json") == {"id": row["id"], "name": "grey goose", "deleted": True}
    assert answer("runs", "list", "--json") == []
    assert answer("runs", "undelete", row["id"], "--json")["name"] == "grey goose"


def test_a_run_is_exported_where_one_says(runs_dir: Path, tmp_path: Path) -> None:
    row = trained()
    report = answer("runs", "export", row["id"], "--out", str(tmp_path / "out.zip"), "--json")
    assert report["file"] == str(tmp_path / "out.zip")
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        assert f"{row['id']}/curve.csv" in archive.namelist()
    result = nqlab("runs", "export", row["id"], "--out", str(tmp_path / "no such folder" / "out.zip"))
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)


def test_an_exported_and_deleted_run_is_imported_and_said_to_be_here_the_second_time(runs_dir: Path, tmp_path: Path) -> None:
    row = trained()
    file = str(tmp_path / "out.zip")
    answer("runs", "export", row["id"], "--out", file, "--json")
    receipt = answer("runs", "receipt", row["id"], "--json")
    nqlab("runs", "delete", row["id"])
    assert answer("runs", "import", file, "--json")["outcome"] == "imported"
    after = answer("runs", "receipt", row["id"], "--json")
    assert after.pop("imported")
    assert after == receipt
    assert "is already here" in nqlab("runs", "import", file).stdout
    (tmp_path / "none.zip").write_bytes(b"none")
    for wrong in ("none.zip", "missing.zip"):
        result = nqlab("runs", "import", str(tmp_path / wrong))
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert "nqlab runs export" in result.stderr


def test_a_run_trained_again_is_bitwise_equal_and_the_receipt_shows_it(runs_dir: Path) -> None:
    row = trained()
    report = answer("runs", "again", row["id"], "--json")
    assert (report["word"], report["largest"], report["first"], report["circumstances"]) == ("bitwise equal", 0.0, None, {})
    repetition = report["repetition"]
    assert repetition["id"] != row["id"]
    receipts = [answer("runs", "receipt", run, "--json") for run in (row["id"], repetition["id"])]
    assert len({(r["losses_sha256"], r["weights_sha256"], r["configuration"]) for r in receipts}) == 1
    assert receipts[1]["repeats"] == row["id"]
    shown = nqlab("runs", "receipt", row["id"]).stdout
    assert receipts[0]["weights_sha256"] in shown
    assert receipts[0]["versions"]["torch"] in shown
    said = nqlab("runs", "again", repetition["id"])
    assert said.exit_code == 0
    assert f"{repetition['name']} are bitwise equal" in said.stdout


@pytest.mark.parametrize(
    ("command", "said"), [("stop", "there is nothing to stop"), ("resume", "only a stopped or interrupted run can go on")]
)
def test_a_run_that_has_ended_is_neither_stopped_nor_resumed(runs_dir: Path, command: str, said: str) -> None:
    row = trained()
    result = nqlab("runs", command, row["id"])
    assert result.exit_code == 2
    assert said in result.stderr
    assert Run(Path(row["folder"])).status() == "did not learn"


# --- generate


def test_a_run_writes_text_that_depends_on_the_seed_alone(runs_dir: Path) -> None:
    row = trained()
    first = answer("generate", row["id"], "--prompt", "def ", "--length", "30", "--seed", "7", "--json")
    assert (first["prompt"], first["step"], len(first["text"])) == ("def ", 4, 30)
    assert answer("generate", row["id"], "--prompt", "def ", "--length", "30", "--seed", "7", "--json") == first
    assert answer("generate", row["id"], "--prompt", "def ", "--length", "30", "--seed", "8", "--json") != first
    assert nqlab("generate", row["id"], "--prompt", "def ", "--length", "30", "--seed", "7").stdout == "def " + first["text"] + "\n"


def test_an_empty_prompt_and_one_longer_than_the_context_both_work(runs_dir: Path) -> None:
    row = trained()
    for prompt in ("", "x" * 100):
        assert len(answer("generate", row["id"], "--prompt", prompt, "--length", "5", "--temperature", "0", "--json")["text"]) == 5


def test_a_prompt_with_unknown_characters_is_refused_with_them(runs_dir: Path) -> None:
    row = trained()
    result = nqlab("generate", row["id"], "--prompt", "北d鲲")
    assert result.exit_code == 2
    assert "the corpus has no '北' '鲲'; leave them out" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("options", [["--temperature", "nan"], ["--temperature", "-1"], ["--length", "0"]], ids=" ".join)
def test_options_out_of_range_exit_with_two(runs_dir: Path, options: list[str]) -> None:
    row = trained()
    assert nqlab("generate", row["id"], *options).exit_code == 2


# --- what the query does, and what the algebra allows


def test_the_queries_of_runs_are_measured(runs_dir: Path) -> None:
    ids = [trained("--query", query)["id"] for query in ("linear", "nonlinear")]
    linear, nonlinear = answer("microscope", *ids, "--json")
    assert [linear["id"], nonlinear["id"]] == ids
    assert linear["layers"][0]["f_rank"] is None
    assert nonlinear["layers"][0]["f_rank"] > 0
    shown = nqlab("microscope", ids[0]).stdout
    assert all(f"{layer[name]:.4g}" in shown for layer in linear["layers"] for name in ("cosine", "entropy", "q_rank"))
    assert "'zebra'" in nqlab("microscope", "zebra").stderr


def test_one_transformer_is_examined() -> None:
    free = answer("examine", "--skips", "none", "--norm", "none", "--json")
    assert (free["verdict"], free["removable"]) == ("exact", 4)
    assert free["errors"]["as_the_rule_allows"] < 1e-10
    gpt = nqlab("examine", "--positions", "rope").stdout
    assert gpt.startswith("impossible: ")
    assert "not possible here" in gpt
    assert "skips 'some' is unknown" in nqlab("examine", "--skips", "some").stderr


# --- Ctrl-C


def test_ctrl_c_keeps_what_is_done_and_resume_finishes_it(runs_dir: Path, wait_for: WaitFor) -> None:
    long = ["train", "--steps", "400", "--query", "nonlinear", *SMALL, "--set", "eval_interval=40", "--set", "dropout=0.1"]
    with subprocess.Popen([*COMMAND, *long], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8") as process:
        wait_for(lambda: runs(runs_dir) and (last_record(runs(runs_dir)[0].events) or {"step": 0})["step"] > 5, "some steps")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    (run,) = runs(runs_dir)
    assert run.status() == "stopped"
    assert 5 < run.summary()["step"] < 400
    assert f"go on with: python -m nqlab runs resume {run.id}" in err
    assert "Traceback" not in out + err

    (row,) = answer("runs", "resume", run.id, "--json")
    assert (row["status"], row["step"]) == ("did not learn", 400)
    steps = [r["step"] for r in EventReader(run.events).read() if r["type"] == "step"]
    assert steps == list(range(400)), "a step is missing or stands there twice"
