"""Filling a study: complete, resumable after kill -9, indifferent to a bad cell, obedient to a stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from nqlab.runs import sweep
from nqlab.runs.log import EventReader
from nqlab.runs.study import Study, StudyFolder, folder_of
from nqlab.runs.sweep import Progress, Sweep, save_study, sweeper
from tests.small import timeless

SMALL = {
    "n_embd": 16, "block_size": 16, "batch_size": 4, "steps": 40, "eval_interval": 10, "eval_windows": 8,
    "checkpoint_interval": 50, "corpus": "python-docs",
}  # fmt: skip


def study(**changes: Any) -> Study:
    data = {"name": "try", "settings": SMALL, "arms": ("linear", "nonlinear"), "grid": {"learning_rate": (1e-3,)}, "seeds": (0, 1)}
    return Study.of(data | changes)


def table(place: StudyFolder) -> dict[str, list[dict[str, Any]]]:
    """Everything that every cell recorded, but for times, checkpoints and resumptions."""
    skip = ("checkpoint", "resumed", "stopped")
    cells = [place.cell(config) for config in place.study.cells()]
    return {run.id: [timeless(r) for r in EventReader(run.events).read() if r["type"] not in skip] for run in cells}


def command(runs_dir: Path, path: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "nqlab", "sweep", str(path), "--runs-dir", str(runs_dir), *options]


def wait_for(true: Callable[[], bool], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "nothing came of it"
        time.sleep(0.02)


def test_a_study_is_filled_and_says_so(runs_dir: Path) -> None:
    place = save_study(runs_dir, study())
    heard: list[Progress] = []
    assert Sweep(place, 2, heard.append).run() == 0
    assert [p.ended for p in heard] == [0, 1, 2, 3, 4]
    assert heard[0].left_s is None
    assert heard[-1].left_s == 0
    assert all(place.ended(c) for c in place.study.cells())
    for config in place.study.cells():
        run = place.cell(config)
        assert run.config == config.resolved()
        assert run.status() in ("finished", "did not learn")
        assert run.meta["threads"] == 1
        assert not run.checkpoint.exists()
    assert sweeper(place) is None


def test_a_full_study_does_nothing_and_more_seeds_do_only_what_is_new(runs_dir: Path) -> None:
    place = save_study(runs_dir, study(seeds=(0,)))
    Sweep(place, 1).run()
    before = table(place)
    heard: list[Progress] = []
    place = save_study(runs_dir, study(seeds=(0, 1)))
    assert Sweep(place, 1, heard.append).run() == 0
    assert [p.ended for p in heard] == [2, 3, 4]
    assert {cell: table(place)[cell] for cell in before} == before


def test_another_study_of_that_name_is_refused(runs_dir: Path) -> None:
    save_study(runs_dir, study())
    with pytest.raises(ValueError, match="another preset or other settings"):
        save_study(runs_dir, study(settings=SMALL | {"steps": 41}))
    with pytest.raises(ValueError, match="block_size 60000"):
        save_study(runs_dir, study(name="long", settings=SMALL | {"block_size": 60_000}))
    assert not folder_of(runs_dir, "long").folder.exists()


def test_a_cell_is_the_run_alone_bit_for_bit(runs_dir: Path) -> None:
    from nqlab.corpus import load
    from tests.small import records, trained

    place = save_study(runs_dir, study(seeds=(1,)))
    Sweep(place, 2).run()
    for config in place.study.cells():
        alone = records(trained(config, load("python-docs")))
        assert table(place)[config.short_hash()] == json.loads(json.dumps(alone))


def test_one_bad_cell_does_not_stop_the_rest_and_is_tried_again(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = save_study(runs_dir, study())
    bad = list(place.study.cells())[1]
    in_the_way = place.cell(bad).folder / "meta.json"
    in_the_way.mkdir(parents=True)  # its worker cannot write here
    heard: list[Progress] = []
    assert Sweep(place, 2, heard.append).run() == 1
    assert sorted(p.end for p in heard) == ["", "done", "done", "done", "failed"]
    assert place.cell(bad).status() == "failed"
    assert "meta.json" in EventReader(place.cell(bad).events).read()[-1]["message"]
    in_the_way.rmdir()
    assert Sweep(place, 2).run() == 0
    assert place.cell(bad).status() in ("finished", "did not learn")


def test_two_sweeps_of_one_study_are_refused(runs_dir: Path) -> None:
    place = save_study(runs_dir, study())
    first = Sweep(place, 1)
    with first._claimed():
        assert sweeper(place) is not None
        with pytest.raises(ValueError, match="being filled by another process"):
            Sweep(place, 1).run()
        with pytest.raises(ValueError, match="being filled already"):
            sweep.start(place)


def test_a_stop_is_obeyed_within_a_cell_and_the_next_sweep_goes_on_the_same(runs_dir: Path, tmp_path: Path) -> None:
    long = {"settings": SMALL | {"steps": 1500, "eval_interval": 500}, "seeds": (0,), "arms": ("linear",)}
    place = save_study(runs_dir, study(**long))
    sweep.start(place)
    (config,) = place.study.cells()
    run = place.cell(config)
    wait_for(lambda: run.events.exists() and len(EventReader(run.events).read()) > 20)
    place.command("stop")
    wait_for(lambda: sweeper(place) is None)
    last = EventReader(run.events).read()[-1]
    assert last["type"] == "stopped"
    assert 0 < last["step"] < 1500
    assert run.checkpoint.exists()
    assert Sweep(place, 1).run() == 0
    straight = save_study(tmp_path / "straight", study(**long))
    Sweep(straight, 1).run()
    assert table(place) == table(straight)


@pytest.mark.slow
def test_24_cells_killed_half_way_end_as_if_undisturbed(runs_dir: Path, tmp_path: Path) -> None:
    wide = study(name="wide", grid={"learning_rate": (1e-3, 3e-3, 1e-2)}, seeds=(0, 1, 2, 3), settings=SMALL | {"steps": 120})
    path = tmp_path / "wide.json"
    path.write_text(wide.to_json(), encoding="utf-8")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command(runs_dir, path), start_new_session=True, **quiet)
    place = folder_of(runs_dir, "wide")
    configs = list(wide.cells())
    assert len(configs) == 24
    wait_for(lambda: sum(place.ended(c) for c in configs) >= 10)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = sum(place.ended(c) for c in configs)
    assert 10 <= done < 24
    assert sweeper(place) is None
    again = subprocess.run(command(runs_dir, path, "--json"), capture_output=True, text=True, encoding="utf-8", check=True)
    assert json.loads(again.stdout)["ended"] == 24
    straight = save_study(tmp_path / "straight", wide)
    Sweep(straight, 2).run()
    assert table(place) == table(straight)
    assert all(len(records) > 20 for records in table(place).values())


def test_workers_end_with_a_sweep_that_is_killed(runs_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "try.json"
    path.write_text(study(settings=SMALL | {"steps": 100_000}).to_json(), encoding="utf-8")
    process = subprocess.Popen(command(runs_dir, path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    place = folder_of(runs_dir, "try")
    wait_for(lambda: len(list(place.folder.glob("cells/*/events.jsonl"))) == 2)
    workers = psutil.Process(process.pid).children()
    assert len(workers) == 2
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive


def test_a_worker_that_is_killed_is_replaced_and_its_cell_trained(runs_dir: Path, tmp_path: Path) -> None:
    place = save_study(runs_dir, study(settings=SMALL | {"steps": 800}, seeds=(0,)))
    sweep.start(place, ["--workers", "1"])
    wait_for(lambda: len(list(place.folder.glob("cells/*/events.jsonl"))) == 1)
    word = sweeper(place)
    assert word is not None
    (worker,) = psutil.Process(word["pid"]).children()
    worker.kill()
    wait_for(lambda: sweeper(place) is None)
    straight = save_study(tmp_path / "straight", place.study)
    Sweep(straight, 1).run()
    assert table(place) == table(straight)


def test_the_command_line_makes_a_study_of_its_options(runs_dir: Path) -> None:
    options = ["--arm", "linear", "--arm", "identity", "--learning-rate", "1e-3,1e-2", "--seeds", "1", "--name", "mine", "--json"]
    settings = [text for key, value in SMALL.items() for text in ("--set", f"{key}={value}")]
    line = [sys.executable, "-m", "nqlab", "sweep", *options, *settings, "--runs-dir", str(runs_dir)]
    done = subprocess.run(line, capture_output=True, text=True, encoding="utf-8", check=True)
    assert json.loads(done.stdout) | {"folder": ""} == {"study": "mine", "ended": 4, "total": 4, "failed": 0, "folder": ""}
    assert folder_of(runs_dir, "mine").study.arms == ("linear", "identity")
    wrong = subprocess.run([*line, "--learning-rate", "fast"], capture_output=True, text=True, encoding="utf-8", check=False)
    assert wrong.returncode == 2
    assert "fast" in wrong.stderr
    assert "Traceback" not in wrong.stderr
