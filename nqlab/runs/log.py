"""events.jsonl: one JSON object a line. Written by one process, read by many, a torn last line tolerated.

Lines are only ever appended. The exception is a resume: what lies beyond the checkpoint will be computed again, the
same, so the file is first replaced by its part up to there (a new file, by which readers notice).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

from nqlab.runs.files import write_bytes

Record = dict[str, Any]
FileState = tuple[int, int, int]


class EventReader:
    """Reads what has come since the last time; begins anew when the file was replaced."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: list[Record] = []
        self.generation = 0  # grows whenever the file was replaced and ``records`` began anew
        self._offset, self._inode = 0, -1

    def read(self) -> list[Record]:
        """All records so far. A line without its newline is left for the next time; an unreadable one is skipped."""
        try:
            with self.path.open("rb") as file:
                stat = os.fstat(file.fileno())
                if stat.st_ino != self._inode or stat.st_size < self._offset:
                    self.records, self._offset, self._inode = [], 0, stat.st_ino
                    self.generation += 1
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return self.records
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        self.records.extend(r for line in whole.splitlines() if (r := _parse(line)) is not None)
        return self.records


def state_of(path: Path) -> FileState:
    """Something that is another whenever the file is; zeros where there is none. What was read from it can be kept by this."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return (0, 0, 0)
    return (stat.st_ino, stat.st_size, stat.st_mtime_ns)


def last_record(path: Path) -> Record | None:
    """The newest whole record, reading only the file's end."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 65536))
            data = file.read()
    except FileNotFoundError:
        return None
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    return next((r for line in reversed(lines) if (r := _parse(line)) is not None), None)


def _parse(line: bytes) -> Record | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and "type" in record and isinstance(record.get("step"), int) else None


class EventWriter:
    """Appends records, each flushed as one whole line."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("a", encoding="utf-8")
        if not _ends_whole(path):
            self._file.write("\n")  # a torn last line must not swallow the next one

    def write(self, record: Record) -> None:
        """Append one line."""
        self._file.write(_line(record))
        self._file.flush()

    def close(self) -> None:
        """No more."""
        self._file.close()


def _line(record: Record) -> str:
    return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"


def as_lines(records: Iterable[Record]) -> bytes:
    """What a file of these records holds."""
    return "".join(map(_line, records)).encode("utf-8")


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        return file.read(1) in (b"", b"\n")


def cut_back(path: Path, step: int | None) -> None:
    """Keep the records up to the last checkpoint event at ``step`` (None: keep nothing), drop the rest."""
    if not path.exists():
        return
    kept: list[bytes] = []
    if step is not None:
        lines = path.read_bytes().splitlines(keepends=True)
        for i, line in enumerate(lines):
            record = _parse(line)
            if record is not None and record["type"] == "checkpoint" and record["step"] == step:
                kept = lines[: i + 1]
    write_bytes(path, b"".join(kept))
