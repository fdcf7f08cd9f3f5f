"""A study on a real dask scheduler with two worker processes on the loopback address."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client

from nqlab.config import RunConfig
from nqlab.corpus import Corpus, add_text
from nqlab.runs.cluster import packed_text, unpacked
from nqlab.runs.log import last_record
from nqlab.runs.study import StudyFolder
from nqlab.runs.sweep import Progress, Sweep, save_study
from tests.runs.test_sweep import SMALL, command, study, table, wait_for

pytestmark = pytest.mark.slow


class Machines:
    """A scheduler and workers, each a process of its own, which see none of this process's files."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.folder, self.log = folder, folder / "dask.log"
        self.environment = os.environ | {"NQLAB_DATA_DIR": str(folder / "nothing"), "NQLAB_RUNS_DIR": str(folder / "none")}
        self.scheduler = self._start("dask_scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard")
        self.workers = [self.hire() for _ in range(2)]

    def _start(self, module: str, *options: str) -> subprocess.Popen[bytes]:
        line = [sys.executable, "-m", f"distributed.cli.{module}", *options]
        with self.log.open("ab") as log:
            return subprocess.Popen(line, cwd=self.folder, env=self.environment, stdout=log, stderr=log)

    def hire(self) -> subprocess.Popen[bytes]:
        return self._start("dask_worker", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--death-timeout", "60")

    def close(self) -> None:
        for process in [*self.workers, self.scheduler]:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    found = Machines(tmp_path_factory.mktemp("dask"))
    yield found
    found.close()


def test_a_text_arrives_with_all_that_is_known_of_it() -> None:
    sent = Corpus("made", "a made text", "abab" * 10, notes=("made",), entropy_rate=0.1, opening="b")
    assert sent.levels["rate"] == 0.1  # computed here, and not sent
    bare, packed = pickle.loads(pickle.dumps(packed_text(sent)))
    assert len(pickle.dumps(bare)) < 500
    assert unpacked(bare, packed) == sent


def cells_in_progress(place: StudyFolder, cells: list[RunConfig]) -> int:
    """Cells of which events have come back, and not yet their end."""
    return sum(last_record(place.cell(c).events) is not None and not place.ended(c) for c in cells)


def test_the_same_losses_as_on_this_machine_with_own_text_and_no_shared_disk(machines: Machines, runs_dir: Path, tmp_path: Path) -> None:
    text = add_text("to be or not to be, that is the question. " * 60)
    ours = study(settings=SMALL | {"corpus": text.name})
    place = save_study(runs_dir, ours)
    heard: list[Progress] = []
    assert Sweep(place, listener=heard.append).run(machines.address) == 0
    assert heard[-1].ended == 4
    straight = save_study(tmp_path / "straight", ours)
    Sweep(straight, 2).run()
    assert table(place) == table(straight)
    assert all(place.cell(c).meta["corpus_sha256"] == text.sha256 for c in ours.cells())


def test_curves_come_back_live_and_a_worker_killed_in_mid_study_costs_nothing(machines: Machines, runs_dir: Path, tmp_path: Path) -> None:
    long = study(name="long", settings=SMALL | {"steps": 2500, "eval_interval": 250, "log_interval": 50})
    path = tmp_path / "long.json"
    path.write_text(long.to_json(), encoding="utf-8")
    with Client(machines.address) as client:
        client.wait_for_workers(2, timeout=120)
    line = command(runs_dir, path, "--scheduler", machines.address)
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8") as process:
        try:
            place, cells = StudyFolder(runs_dir / ".studies" / "long"), list(long.cells())
            wait_for(lambda: cells_in_progress(place, cells) == 2, 120)  # each worker is at one
            machines.workers[0].send_signal(signal.SIGKILL)
            machines.workers[0].wait()
            said, complained = process.communicate(timeout=240)
        finally:
            process.kill()
    assert process.returncode == 0, said + complained
    machines.workers[0] = machines.hire()
    straight = save_study(tmp_path / "straight", long)
    Sweep(straight, 2).run()
    assert table(place) == table(straight)


def test_a_stop_reaches_the_workers_and_the_next_sweep_goes_on(machines: Machines, runs_dir: Path) -> None:
    endless = study(name="endless", settings=SMALL | {"steps": 1_000_000, "log_interval": 1000}, seeds=(0,))
    place = save_study(runs_dir, endless)
    path = place.folder / "study.json"
    process = subprocess.Popen(
        command(runs_dir, path, "--scheduler", machines.address), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_for(lambda: cells_in_progress(place, list(endless.cells())) >= 1, 120)
    place.command("stop")
    assert process.wait(60) == 130
    short = save_study(runs_dir, study(name="short", seeds=(0,)))
    began = time.monotonic()
    assert Sweep(short).run(machines.address) == 0  # the workers are free again
    assert time.monotonic() - began < 120


def test_a_scheduler_that_is_not_there_is_named(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nqlab.runs.cluster.CONNECT_S", 1)
    with pytest.raises(ValueError, match=r"no dask scheduler answers at 'tcp://127\.0\.0\.1:9'"):
        Sweep(save_study(runs_dir, study())).run("tcp://127.0.0.1:9")
