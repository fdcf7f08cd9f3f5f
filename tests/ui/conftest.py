"""A served app and a real browser."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

ROOT = Path(__file__).parents[2]
CHROMIUM_ARGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


def chromium() -> str:
    """The browser's path; skips with the reason where there is none, fails where one is required."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        reason = "no Chromium found: install the package chromium to run the browser tests"
        if os.environ.get("NQLAB_REQUIRE_BROWSER"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def page_of(script: Callable[[], None]) -> AppTest:
    """A page run once without a browser; it must not raise."""
    test = AppTest.from_function(script, default_timeout=60)
    test.run()
    assert not test.exception
    return test


@pytest.fixture
def own_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of its own for a page; and no spare process for a page nobody starts a race on."""
    monkeypatch.setenv("NQLAB_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setattr("nqlab.ui.shared.prepare_spare", lambda: None)
    return tmp_path / "runs"


@dataclass
class App:
    url: str
    runs_dir: Path
    log: Path

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """`streamlit run app.py` on a free port, with runs of its own."""
    chromium()
    with serve(tmp_path_factory.mktemp("app")) as served:
        yield served


@contextmanager
def serve(folder: Path, **variables: str) -> Iterator[App]:
    """The app with its data and runs in ``folder``, and these environment variables."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / "server.log"
    data = folder / "data"
    shutil.copytree(ROOT / "data" / "corpora", data / "corpora")
    environment = os.environ | {"NQLAB_DATA_DIR": str(data), "NQLAB_RUNS_DIR": str(folder / "runs"), **variables}
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    with log.open("wb") as out:
        server = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out)
    url = f"http://localhost:{port}"
    for _ in range(300):
        try:
            urllib.request.urlopen(f"{url}/_stcore/health", timeout=1).close()
            break
        except OSError:
            time.sleep(0.1)
    yield App(url, folder / "runs", log)
    server.terminate()
    server.wait(20)
    for race in (folder / "runs" / ".races").glob("*"):
        (race / "control.json").write_text('{"command": "stop"}', encoding="utf-8")


def choose(page: Any, box: Any, option: Any) -> None:
    """Open a choice and take one of its options; opened again where the page was drawn anew at that very moment."""
    from playwright.sync_api import TimeoutError as Late

    for _ in range(6):
        box.click(timeout=60_000)
        try:
            option.click(timeout=5_000)
        except Late:
            page.keyboard.press("Escape")
            continue
        return
    pytest.fail("the choice closed six times before anything could be chosen")


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """Debian's Chromium, headless, driven by Playwright."""
    from playwright.sync_api import sync_playwright

    path = chromium()
    with sync_playwright() as play:
        instance = play.chromium.launch(executable_path=path, args=CHROMIUM_ARGS)
        yield instance
        instance.close()
