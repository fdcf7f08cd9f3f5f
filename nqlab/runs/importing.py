"""An exported run taken in: a zip as :func:`nqlab.runs.exporting.archive` writes it, from here or from another machine.

Nothing in the file is believed. Names are known ones or refused, sizes are bounded before anything is unpacked,
:mod:`nqlab.runs.checking` reads every part as what it claims to be, and the folder appears whole, by one rename, or not
at all.
"""

from __future__ import annotations

import datetime
import io
import re
import secrets
import shutil
import stat
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nqlab.presets import arm_of
from nqlab.runs.checking import check_folder, refuse
from nqlab.runs.files import read_json, write_json
from nqlab.runs.launch import new_race_id
from nqlab.runs.race import Race
from nqlab.runs.store import Run

MB = 1_000_000
LIMITS = {  # the files of an export, and the largest size of each
    "config.json": MB, "meta.json": MB, "label.json": MB, "events.jsonl": 500 * MB, "curve.csv": 500 * MB,
    "checkpoint.safetensors": 4000 * MB,
}  # fmt: skip
NEEDED = ("config.json", "meta.json")
KEPT = tuple(name for name in LIMITS if name != "curve.csv")  # the curve is in the events
RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}-\d{1,2}")
UNPACKING = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError)  # RuntimeError: a password

Outcome = Literal["imported", "imported under a new id", "already here"]


@dataclass(frozen=True)
class Imported:
    """The run as it is here now, and what happened to get it there."""

    run: Run
    outcome: Outcome


def import_run(runs_dir: Path, data: bytes) -> Imported:
    """Take an exported run in. One that is here already with the same contents is left as it is; another one under the
    same id gets a new id. ValueError says what is wrong with the file; nothing of it is kept then."""
    draft = runs_dir / f".new-{secrets.token_hex(8)}"  # the store does not list it
    draft.mkdir(parents=True)
    try:
        name = _unpack(data, draft)
        check_folder(draft)
        wanted = runs_dir / name if RUN_ID.fullmatch(name) else None
        if wanted is None or (wanted.exists() and not _same(wanted, draft)):
            return Imported(_place(draft, runs_dir / f"{new_race_id()}-0"), "imported under a new id")
        if wanted.exists():
            return Imported(Run(wanted), "already here")
        return Imported(_place(draft, wanted), "imported")
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def import_file(runs_dir: Path, path: Path) -> Imported:
    """:func:`import_run` of a file; ValueError also where there is none to read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}); give the zip that `nqlab runs export` wrote") from None
    return import_run(runs_dir, data)


# --- out of the zip


def _unpack(data: bytes, draft: Path) -> str:
    """Unpack the known files of a zip into ``draft``; the name of the folder they stood in."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except UNPACKING as error:
        refuse(f"it is no zip ({error})")
    with archive:
        folder, entries = _entries(archive)
        for name in KEPT:
            if name in entries:
                _copy(archive, entries[name], draft / name)
    return folder


def _copy(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path) -> None:
    try:
        with archive.open(entry) as source, target.open("wb") as out:
            shutil.copyfileobj(source, out, MB)  # at most entry.file_size bytes, whatever is packed, and never all in memory
    except UNPACKING as error:
        refuse(f"{target.name} cannot be unpacked ({error})")


def _entries(archive: zipfile.ZipFile) -> tuple[str, dict[str, zipfile.ZipInfo]]:
    """The folder in a zip and its files by name; ValueError for anything that an export does not hold."""
    folders: set[str] = set()
    entries: dict[str, zipfile.ZipInfo] = {}
    for entry in archive.infolist():
        folder, slash, name = entry.filename.partition("/")
        folders.add(folder)
        if slash and not name:
            continue  # the folder itself
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if name not in LIMITS or kind not in (0, stat.S_IFREG):
            refuse(f"it holds {entry.filename[:100]!r}; known are the files {', '.join(LIMITS)} in one folder")
        if name in entries:
            refuse(f"it holds {name} twice")
        if entry.file_size > LIMITS[name]:
            refuse(f"its {name} has {entry.file_size / MB:,.1f} MB; at most {LIMITS[name] // MB} MB are taken")
        entries[name] = entry
    if len(folders) > 1:
        refuse(f"it holds {len(folders)} folders, not one")
    if missing := [name for name in NEEDED if name not in entries]:
        refuse(f"it has no {missing[0]}")
    return folders.pop(), entries


# --- into the store


def _same(one: Path, other: Path) -> bool:
    """Whether two run folders hold the same run: configuration, events, weights. A label may differ."""

    def contents(folder: Path) -> list[bytes | None]:
        names = ("config.json", "events.jsonl", "checkpoint.safetensors")
        return [path.read_bytes() if (path := folder / name).is_file() else None for name in names]

    return contents(one) == contents(other)


def _place(draft: Path, folder: Path) -> Run:
    """Mark a checked draft as imported, give it its race, and make it a run."""
    run, race_id = Run(folder), folder.name.rpartition("-")[0]
    meta = dict(read_json(draft / "meta.json") or {})
    meta.pop("launched", None)  # by the clock of another machine
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    write_json(draft / "meta.json", meta | {"race": race_id, "imported": now})
    if not (draft / "label.json").exists():
        write_json(draft / "label.json", {"name": run.id, "note": ""})
    _join(Race(folder.parent / ".races" / race_id), run, Run(draft))
    draft.replace(folder)
    return run


def _join(race: Race, run: Run, draft: Run) -> None:
    """Put the run into its race; a race that is not here is made, so that runs exported together are together again."""
    info = race.info or {"name": draft.name.removesuffix(f"-{arm_of(draft.config)}"), "created": draft.meta.get("created")}
    known = info.get("runs", [])
    if run.id not in known:
        race.folder.mkdir(parents=True, exist_ok=True)
        in_order = sorted([*known, run.id], key=lambda run_id: (len(run_id), run_id))
        write_json(race.folder / "race.json", info | {"runs": in_order})
