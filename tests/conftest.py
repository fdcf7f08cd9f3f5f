"""What every test gets: a data folder and a runs folder of its own, one thread, nothing cached from the test before."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import torch

from nqlab import corpus as corpora
from nqlab import settings
from nqlab.corpus import Corpus
from nqlab.runs.race import races

FETCHED = {  # of the real data folder, read before any test has a folder of its own
    name: path for name, source in corpora.SOURCES.items() if source.wheel and (path := corpora.corpus_path(name)).exists()
}
PATIENCE_S = 90.0


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, in which the corpora fetched before can be read but not changed."""
    folder = tmp_path / "data"
    (folder / "corpora").mkdir(parents=True)
    for path in FETCHED.values():
        (folder / "corpora" / path.name).symlink_to(path)  # a fetch would replace the link, never what it points to
    monkeypatch.setenv("NQLAB_DATA_DIR", str(folder))
    monkeypatch.setenv("NQLAB_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.delenv("NQLAB_SLOTS", raising=False)
    monkeypatch.delenv("NQLAB_LIMITS", raising=False)
    corpora.load.cache_clear()
    torch.set_num_threads(1)
    return folder


@pytest.fixture
def runs_dir(data_dir: Path) -> Iterator[Path]:
    """The test's runs folder; workers still alive at its end are ended, each by the id it wrote there."""
    folder = settings.runs_dir()
    yield folder
    for race in races(folder):
        if (worker := race.worker()) and worker.pid != os.getpid():
            process = psutil.Process(worker.pid)
            process.kill()
            psutil.wait_procs([process], timeout=10)


def fetched(name: str) -> Corpus:
    """A corpus of the real data folder; skips with the reason where it was never fetched."""
    if name not in FETCHED:
        pytest.skip(f"{name} is not here; run: python -m nqlab corpora fetch {name}")
    corpora.load.cache_clear()
    return corpora.load(name)


@pytest.fixture(scope="session")
def shakespeare() -> Corpus:
    """tiny-shakespeare, as fetched at set-up."""
    return fetched("shakespeare")


@pytest.fixture(scope="session")
def digits() -> Corpus:
    """Handwritten digits, if they were fetched."""
    return fetched("digits")


@pytest.fixture(scope="session")
def abc_tunes() -> Corpus:
    """Tunes in ABC notation, if they were fetched."""
    return fetched("abc-tunes")


@pytest.fixture(scope="session")
def docs() -> Corpus:
    """The documentation of the running Python: a real text that needs no network."""
    return corpora.load("python-docs")


@pytest.fixture
def wait_for() -> Callable[[Callable[[], object], str], None]:
    """Wait until something another process does has happened; fail with what was waited for."""

    def wait(happened: Callable[[], object], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not happened():
            assert time.monotonic() < end, f"{what}: not within {PATIENCE_S:g} s"
            time.sleep(0.02)

    return wait
