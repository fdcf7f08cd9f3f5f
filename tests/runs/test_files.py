from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nqlab.runs.files import read_json, write_bytes, write_json


def test_what_is_written_is_read_with_every_character(tmp_path: Path) -> None:
    data = {"name": "né 🙂 北\u2028", "number": 0.1, "none": None, "list": [1, {"a": True}]}
    write_json(tmp_path / "a.json", data)
    assert read_json(tmp_path / "a.json") == data
    assert "🙂" in (tmp_path / "a.json").read_text(encoding="utf-8")


def test_writing_replaces_in_one_move_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "a.json"
    path.parent.mkdir()
    write_json(path, {"a": 1})
    with path.open(encoding="utf-8") as earlier:
        write_json(path, {"a": 2})
        assert earlier.read() == '{\n "a": 1\n}'  # who had it open still has the old one, whole
    assert read_json(path) == {"a": 2}
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]


@pytest.mark.parametrize("content", [None, b"", b'{"a": 1', b"\xff\xfe", b"[1, 2]", b"3", b"null"])
def test_a_missing_or_broken_file_is_none(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    assert read_json(path) is None


def test_a_folder_in_the_place_of_a_file_is_none(tmp_path: Path) -> None:
    assert read_json(tmp_path) is None


def test_a_reader_never_sees_half_a_file_of_another_process(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"n": -1, "same": -1})
    program = (
        "import sys; from pathlib import Path; from nqlab.runs.files import write_json\n"
        f"for n in range(400): write_json(Path({str(path)!r}), {{'n': n, 'pad': 'x' * (n * 50 % 20000), 'same': n}})"
    )
    seen = set()
    with subprocess.Popen([sys.executable, "-c", program]) as writer:
        while writer.poll() is None:
            data = read_json(path)
            assert data is not None
            assert data["n"] == data["same"]
            seen.add(data["n"])
    assert writer.returncode == 0
    assert len(seen) > 3


def test_bytes_are_written_as_they_are(tmp_path: Path) -> None:
    write_bytes(tmp_path / "b", b"\r\n\x00\xff")
    assert (tmp_path / "b").read_bytes() == b"\r\n\x00\xff"
