"""Who may import whom, and what must stand nowhere in the package: read from the source, and seen in fresh interpreters."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nqlab
from nqlab import slots

PACKAGE = Path(nqlab.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
APP = PACKAGE.parent / "app.py"

# A module may import those of lower rank, and those of its own part. The command line and the pages are on top.
RANKS = {
    "wheels": 0, "python_text": 0, "synthetic": 0, "digits": 0, "tunes": 0,
    "slots": 0, "limits": 0, "words": 0, "settings": 1, "config": 1, "presets": 2, "corpus": 2, "experiment": 3,
    "model": 4, "generate": 5, "training": 6, "runs": 7, "analysis": 8, "ui": 9, "bench": 9, "cli": 10, "__main__": 11,
}  # fmt: skip
PAGES = ("streamlit", "pandas", "plotly")


def part(module: str) -> str:
    """``training`` of ``nqlab.training.loop``; empty for the package itself."""
    return module.split(".")[1] if "." in module else ""


def module_of(path: Path) -> str:
    names = ("nqlab", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def loaded_by(*modules: str) -> set[str]:
    """The top-level packages that a fresh interpreter has loaded after importing these modules."""
    program = f"import importlib, json, sys\nfor m in {modules!r}: importlib.import_module(m)\n"
    program += "print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, encoding="utf-8", check=True)
    return set(json.loads(done.stdout))


def test_configurations_presets_slots_and_corpora_load_no_torch() -> None:
    loaded = loaded_by("nqlab", "nqlab.config", "nqlab.presets", "nqlab.slots", "nqlab.settings", "nqlab.corpus")
    assert "nqlab" in loaded
    assert not loaded & {"torch", *PAGES}


def test_the_command_line_loads_no_torch_before_it_is_needed() -> None:
    assert not loaded_by("nqlab.cli") & {"torch", *PAGES}


def test_model_training_and_runs_load_nothing_of_a_page() -> None:
    core = [module_of(p) for p in FILES if part(module_of(p)) in ("model", "training", "runs", "generate")]
    assert {"nqlab.model.gpt", "nqlab.training.loop", "nqlab.runs.worker", "nqlab.runs.store"} <= set(core)
    loaded = loaded_by(*core)
    assert "torch" in loaded
    assert not loaded & set(PAGES)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_imports_point_one_way(path: Path) -> None:
    here = part(module_of(path))
    assert here == "" or here in RANKS, f"give {here} a rank in this test"
    for module in imported(path):
        if module.split(".")[0] == "nqlab" and (there := part(module)) in RANKS and there != here:
            assert RANKS[there] < RANKS[here], f"{path}: {here} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_the_core_imports_nothing_of_a_page_even_inside_a_function(path: Path) -> None:
    if part(module_of(path)) not in ("ui", "analysis", "bench"):  # the last measures what serves the pages
        assert not {m.split(".")[0] for m in imported(path)} & set(PAGES)


@pytest.mark.parametrize("name", ["gpt.py", "attention.py"])
def test_the_backbone_contains_no_variants_name(name: str) -> None:
    text = (PACKAGE / "model" / name).read_text(encoding="utf-8")
    words = set(re.findall(r"\w+", text))
    entries = {entry for entries in slots.SLOTS.values() for entry in entries}
    classes = {e.target.partition(":")[2] for entries in slots.SLOTS.values() for e in entries.values()}
    assert not words & (entries | classes)


@pytest.mark.parametrize("path", [*FILES, APP], ids=lambda p: p.relative_to(PACKAGE.parent).as_posix())
def test_nothing_outdated_of_streamlit_is_used(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for outdated in ("use_container_width", "st.experimental_", "st.cache(", "@st.cache\n", ".add_rows(", "FigureWidget"):
        assert outdated not in text


def opens_text(node: ast.Call) -> bool:
    """Whether a call opens or reads a file as text."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in ("read_text", "write_text") and isinstance(node.func, ast.Attribute):
        return True
    modes = [a.value for a in [*node.args, *(k.value for k in node.keywords)] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return name in ("open", "fdopen") and not any(re.fullmatch(r"[rwax+]*b[rwax+]*", mode) for mode in modes)


def is_os_open(node: ast.Call) -> bool:
    """``os.open`` and the like give numbers, the members of an archive bytes, not text."""
    of = node.func.value if isinstance(node.func, ast.Attribute) else None
    return isinstance(of, ast.Name) and of.id in ("os", "zipfile", "archive")


@pytest.mark.parametrize("path", [*FILES, APP], ids=lambda p: p.relative_to(PACKAGE.parent).as_posix())
def test_every_file_is_opened_with_its_encoding(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            keywords = {k.arg for k in node.keywords}
            where = f"{path}:{node.lineno}"
            if opens_text(node) and not is_os_open(node):
                assert "encoding" in keywords, where
            if "text" in keywords and "capture_output" in keywords:
                assert "encoding" in keywords, where


def test_the_encoding_test_sees_what_it_looks_for() -> None:
    def found(code: str) -> bool:
        call = next(n for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Call))
        return opens_text(call) and not is_os_open(call)

    assert all(found(code) for code in ("open('a')", "p.open()", "p.open('w')", "p.read_text()", "open(f, mode='a')"))
    assert not any(found(code) for code in ("p.open('rb')", "open(f, mode='wb')", "p.read_bytes()", "os.open(f, 0)", "urlopen(u)"))
