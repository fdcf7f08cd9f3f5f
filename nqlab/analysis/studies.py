"""Studies to look at: those filled here, and those shipped as files.

A packed study is three files side by side: ``NAME.json`` (the study), ``NAME.parquet`` (a row a run: configuration,
outcome, losses, validation curve; no weights) and ``NAME.receipt.json`` (versions, machine, time).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from nqlab.analysis.results import Result, results_of, results_of_study
from nqlab.config import RunConfig
from nqlab.runs.files import read_json, write_bytes, write_json
from nqlab.runs.store import Run, runs
from nqlab.runs.study import Study, StudyFolder, folder_of, read_study, studies

REFERENCE = Path(__file__).parents[2] / "data" / "reference"
OWN = "runs"  # what the runs trained one by one are called, as if they were a study
FIELDS = ("outcome", "step", "val_loss", "cpu_s", "vocabulary", "unigram", "id")


@dataclass(frozen=True)
class Filled:
    """A study with its results so far. ``shipped`` marks one that came with the program."""

    study: Study
    results: tuple[Result, ...]
    receipt: dict[str, Any]
    shipped: bool = False

    @property
    def complete(self) -> bool:
        """Whether every cell has ended."""
        ended = {r.config.short_hash() for r in self.results if r.outcome != "unfinished"}
        return all(config.short_hash() in ended for config in self.study.cells())


def here(runs_dir: Path) -> list[Filled]:
    """The studies filled on this machine."""
    return [of_folder(place) for place in studies(runs_dir)]


def shipped(folder: Path = REFERENCE) -> list[Filled]:
    """The packed studies in a folder, by name."""
    return [unpack(path) for path in sorted(folder.glob("*.parquet"))]


def find(target: str, runs_dir: Path) -> list[Filled]:
    """What a person means by ``target``: the name of a study here, a study file, packed results, or a folder of those.

    ``runs`` are the runs trained one by one, unless a study has that name. ValueError says where was looked.
    """
    path = Path(target)
    if target == OWN and not (folder_of(runs_dir, OWN).folder / "study.json").exists():
        return [of_runs(runs_dir)]
    if path.is_dir():
        found = shipped(path)
        if not found:
            raise ValueError(f"there are no packed studies (*.parquet) in {path}")
        return found
    if path.with_suffix(".parquet").is_file():
        return [unpack(path.with_suffix(".parquet"))]
    if path.suffix == ".json":
        study = read_study(path)
        place = folder_of(runs_dir, study.name)
        if not (place.folder / "study.json").exists():
            raise ValueError(f"the study {study.name!r} has not been filled here; run: python -m nqlab sweep {target}")
        return [of_folder(place)]
    if (folder_of(runs_dir, target).folder / "study.json").exists():
        return [of_folder(folder_of(runs_dir, target))]
    if (REFERENCE / f"{target}.parquet").is_file():
        return [unpack(REFERENCE / f"{target}.parquet")]
    names = [place.folder.name for place in studies(runs_dir)] + [p.stem for p in sorted(REFERENCE.glob("*.parquet"))]
    raise ValueError(f"there is no study {target!r}, here or as a file; there are: {', '.join(names) or 'none yet'}")


def of_folder(place: StudyFolder) -> Filled:
    """A study of the run store."""
    return Filled(place.study, tuple(results_of_study(place)), receipt(place))


def of_runs(runs_dir: Path) -> Filled:
    """The runs trained one by one, as a study of all their arms."""
    results = tuple(results_of(runs(runs_dir)))
    arms = tuple(dict.fromkeys(["linear", *(r.arm for r in results)]))
    return Filled(Study(name=OWN, arms=arms), results, {})


def receipt(place: StudyFolder) -> dict[str, Any]:
    """On what the cells were computed: every distinct value of what was recorded, and the processor hours."""
    metas = [Run(p.parent).meta for p in sorted(place.folder.glob("cells/*/meta.json"))]
    one: dict[str, Any] = {}
    for key in ("versions", "commit", "machine", "cpu", "device", "threads", "corpus_sha256"):
        values = {json.dumps(meta.get(key), sort_keys=True) for meta in metas}
        one[key] = [json.loads(value) for value in sorted(values)]
    started = sorted(meta["started"] for meta in metas if "started" in meta)
    return one | {"cells": len(metas), "first_started": started[:1], "last_started": started[-1:]}


def pack(filled: Filled, folder: Path) -> list[Path]:
    """Write a study and its ended runs as files; the paths. Curves are those of the evaluations, whole."""
    folder.mkdir(parents=True, exist_ok=True)
    name = filled.study.name
    ended = [r for r in filled.results if r.outcome != "unfinished"]
    if not ended:
        raise ValueError(f"no run of the study {name!r} has ended yet; there is nothing to pack")
    paths = [folder / f"{name}{suffix}" for suffix in (".json", ".parquet", ".receipt.json")]
    write_bytes(paths[0], filled.study.to_json().encode("utf-8"))
    write_bytes(paths[1], pd.DataFrame([_row(r) for r in ended]).to_parquet(index=False, compression="zstd"))
    cpu_h = sum(r.cpu_s or 0.0 for r in ended) / 3600
    write_json(paths[2], filled.receipt | {"cells": len(ended), "processor_hours": round(cpu_h, 2)})
    return paths


def _row(result: Result) -> dict[str, Any]:
    row = {name: getattr(result, name) for name in FIELDS} | {"config": result.config.resolved().model_dump_json()}
    even, odd = result.halves or (None, None)
    return row | {"even": even, "odd": odd, "steps": list(result.steps), "losses": list(result.losses)}


def unpack(path: Path) -> Filled:
    """Inverse of :func:`pack`. ValueError names a file that is not whole."""
    study = read_study(path.with_suffix(".json"))
    try:
        table = pd.read_parquet(path)
        results = tuple(_result(row, study.name) for row in table.to_dict("records"))
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is no packed study of this program ({error})") from None
    return Filled(study, results, read_json(path.with_suffix(".receipt.json")) or {}, shipped=path.parent == REFERENCE)


def _result(row: Mapping[Any, Any], origin: str) -> Result:
    values: dict[str, Any] = {name: None if pd.api.types.is_scalar(row[name]) and pd.isna(row[name]) else row[name] for name in FIELDS}
    values["halves"] = None if pd.isna(row["even"]) else (float(row["even"]), float(row["odd"]))
    values["steps"] = tuple(int(k) for k in row["steps"])
    values["losses"] = tuple(float(v) for v in row["losses"])
    return Result(config=RunConfig.from_json(row["config"]), origin=origin, **values)


def sources(filled: Sequence[Filled]) -> list[dict[str, Any]]:
    """A line a study, for a list: name, question, cells ended and in all, whether it was shipped."""
    lines = []
    for one in filled:
        ended = sum(r.outcome != "unfinished" for r in one.results)
        lines.append({"study": one.study.name, "question": one.study.question, "ended": ended, "shipped": one.shipped})
    return lines
