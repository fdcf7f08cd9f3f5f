"""Each notebook runs in a fresh kernel in fast mode, and is committed as a reader should find it: outputs, no errors."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import plotly.io as pio
import pytest

from nqlab.analysis import notebook
from nqlab.analysis.redundancy.trained import loss_of
from nqlab.corpus import Corpus
from tests.small import records, small, trained

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
CELL_S, NOTEBOOK_S = 60, 300
LARGEST_BYTES, LARGEST_RSS_GB = 600_000, 1.5
PLOTLY = "application/vnd.plotly.v1+json"
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)

# In a process of its own, as at a person's desk: the warnings of nbconvert, zmq and ipykernel are theirs and end with it.
EXECUTE = f"""
import resource, sys, nbformat
from nbconvert.preprocessors import ExecutePreprocessor
path, folder, out = sys.argv[1:]
book = nbformat.read(path, as_version=4)
ExecutePreprocessor(timeout={CELL_S}, kernel_name="python3").preprocess(book, {{"metadata": {{"path": folder}}}})
nbformat.write(book, out)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9)
"""


def code(book: Any) -> list[Any]:
    return [cell for cell in book.cells if cell.cell_type == "code"]


def outputs(book: Any) -> list[Any]:
    return [output for cell in code(book) for output in cell.outputs]


def committed(path: Path) -> Any:
    return nbformat.read(path, as_version=nbformat.NO_CONVERT)


def execute(path: Path, folder: Path, tmp_path: Path) -> Any:
    """The notebook after a run with ``folder`` as working directory; data and runs folders are the test's own (conftest)."""
    out = tmp_path / path.name
    # this interpreter's "python3" kernel, not one of that name in the person's home, nor their start-up files
    mine = {"NQLAB_FAST": "1", "JUPYTER_PREFER_ENV_PATH": "1", "IPYTHONDIR": str(tmp_path / "ipython")}
    command = [sys.executable, "-c", EXECUTE, str(path), str(folder), str(out)]
    done = subprocess.run(command, env=os.environ | mine, capture_output=True, text=True, timeout=NOTEBOOK_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert float(done.stdout.split()[-1]) < LARGEST_RSS_GB
    return nbformat.read(out, as_version=4)


@pytest.mark.slow
@each
def test_runs_from_its_folder(path: Path, tmp_path: Path) -> None:
    book = execute(path, FOLDER, tmp_path)
    assert all(cell.execution_count for cell in code(book))
    assert not [output for output in outputs(book) if output.output_type == "error"]


@pytest.mark.slow
def test_runs_from_the_repository_root(tmp_path: Path) -> None:
    execute(NOTEBOOKS[0], FOLDER.parent, tmp_path)


@each
def test_is_committed_after_one_run_from_top_to_bottom(path: Path) -> None:
    book = committed(path)
    nbformat.validate(book)
    assert (book.nbformat, book.nbformat_minor) == (4, 5)
    assert book.metadata.kernelspec.name == "python3"
    assert [cell.execution_count for cell in code(book)] == list(range(1, len(code(book)) + 1))
    assert outputs(book)
    assert not [output for output in outputs(book) if output.output_type == "error" or output.get("name") == "stderr"]
    assert path.stat().st_size < LARGEST_BYTES


@each
def test_figures_have_an_image_for_readers_on_a_code_host(path: Path) -> None:
    figures = [output.data for output in outputs(committed(path)) if PLOTLY in output.get("data", {})]
    assert figures
    assert all("image/png" in data or "image/svg+xml" in data for data in figures)


@each
def test_defines_no_class_and_leaves_the_path_alone(path: Path) -> None:
    for cell in code(committed(path)):
        assert not [node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.ClassDef)]
        assert "sys.path" not in cell.source


@each
def test_first_cell_says_how_to_install(path: Path) -> None:
    first = code(committed(path))[0].source
    assert "except ImportError" in first
    assert "pip install -e ." in first


def test_readme_lists_them_all() -> None:
    listed = re.findall(r"\((\w+\.ipynb)\)", (FOLDER / "README.md").read_text(encoding="utf-8"))
    assert listed == [path.name for path in NOTEBOOKS]


@each
def test_links_lead_somewhere(path: Path) -> None:
    text = "\n".join(cell.source for cell in committed(path).cells if cell.cell_type == "markdown")
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        assert target.startswith("https://") or (FOLDER / target).exists(), target


@pytest.mark.parametrize(("value", "fast"), [(None, False), ("", False), ("0", False), ("1", True), ("yes", True)])
def test_fast_mode(monkeypatch: pytest.MonkeyPatch, value: str | None, fast: bool) -> None:
    monkeypatch.delenv("NQLAB_FAST", raising=False)
    if value is not None:
        monkeypatch.setenv("NQLAB_FAST", value)
    assert notebook.fast() is fast
    assert notebook.pick("all", "few") == ("few" if fast else "all")


@pytest.mark.parametrize(
    ("fast", "browser", "renderer"),
    [
        ("0", "/usr/bin/some-browser", "plotly_mimetype+png"),
        ("1", "/usr/bin/some-browser", "plotly_mimetype"),
        ("0", "", "plotly_mimetype"),
    ],
)
def test_renderer_is_explicit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fast: str, browser: str, renderer: str) -> None:
    for name, value in (("NQLAB_FAST", fast), ("BROWSER_PATH", browser), ("PATH", str(tmp_path))):
        monkeypatch.setenv(name, value)
    for shared in (pio.renderers, pio.templates):
        monkeypatch.setattr(shared, "default", shared.default)
    notebook.setup()
    assert pio.renderers.default == renderer
    assert pio.templates.default == "plotly_white"


def test_a_race_gives_each_arm_its_own_curve_and_trained_model(shakespeare: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    arms = {"a": small(), "b": small(query="identity")}
    curves, models = notebook.race(arms, shakespeare)
    events = trained(list(arms.values()), shakespeare)
    for place, label in enumerate(arms):
        losses = [record["val_loss"] for record in records(events, place) if record["type"] == "evaluation"]
        assert curves[label].val["val_loss"] == losses
        assert loss_of(models[label], shakespeare, arms[label].training.eval_windows) == pytest.approx(losses[-1], abs=1e-6)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(curves["a"].val["step"])
    assert lines[-1] == f"after  12 steps  a {curves['a'].last('val_loss'):.3f}   b {curves['b'].last('val_loss'):.3f}"


def test_a_race_with_a_diverging_arm_is_refused(shakespeare: Corpus) -> None:
    with pytest.raises(RuntimeError, match=r"'wild' diverged after 1 steps.*learning rate 1e\+30"):
        notebook.race({"sane": small(), "wild": small(learning_rate=1e30, grad_clip=0, warmup_steps=0)}, shakespeare)
