"""Whether a folder that came from outside is a run: configuration, circumstances, label, events and weights that can be
read, fit each other, and hold no value that a page or a resume would stumble over.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, NoReturn

import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from nqlab.config import RunConfig, explain
from nqlab.model.gpt import GPT
from nqlab.runs.log import Record
from nqlab.runs.store import checked_name, checked_tags
from nqlab.training.checkpoint import load_state
from nqlab.training.events import Compiled, Diverged, Done, Evaluation, Sample, Step

MAX_DIGITS = 18  # of a whole number: what 64 bits hold
MAX_NUMBER = 10.0**MAX_DIGITS


def refuse(why: str) -> NoReturn:
    """ValueError about a file that is no export."""
    raise ValueError(f"this is no exported run: {why}; give the zip that `nqlab runs export` or the page Runs wrote")


class _Entropies(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False, strict=True)

    uniform: float
    unigram: float = Field(gt=0)
    bigram: float


class _Meta(BaseModel):
    """What is read again of meta.json; more may stand there."""

    model_config = ConfigDict(extra="allow", strict=True)

    created: str | None = None
    started: str | None = None
    versions: dict[str, str] = {}
    commit: str | None = None
    machine: str = ""
    cpu: str = ""
    device: str = ""
    threads: int | None = Field(None, ge=1, le=1024)
    corpus_sha256: str | None = None
    vocabulary: int | None = Field(None, ge=1, le=1_114_112)
    entropies: _Entropies = _Entropies(uniform=1, unigram=1, bigram=1)
    compiled: bool = False
    compiled_message: str = ""
    repeats: str | None = None


class _Label(BaseModel):
    model_config = ConfigDict(strict=True)

    name: Annotated[str, AfterValidator(checked_name)]
    note: str = ""
    tags: Annotated[list[str], AfterValidator(checked_tags)] = []


class _Event(BaseModel):
    """What every line has."""

    model_config = ConfigDict(extra="allow", strict=True)

    type: str
    step: Annotated[int, Field(ge=0)]


_EVENTS: dict[str, TypeAdapter[Any]] = {e.type: TypeAdapter(e) for e in (Step, Evaluation, Sample, Compiled, Diverged, Done)}
_NOT_WRITTEN = {"run": 0, "cpu_s": 0.0}  # the place in the race; a time that earlier versions did not measure


def check_folder(folder: Path) -> None:
    """ValueError unless config.json and meta.json, and label, events and weights where they are, belong to one run."""
    try:
        config = RunConfig.from_json((folder / "config.json").read_bytes())
    except ValueError as error:
        refuse(f"config.json: {error}")
    try:
        meta = _Meta.model_validate_json((folder / "meta.json").read_bytes())
    except ValidationError as error:
        refuse(f"meta.json: {explain(error)}")
    if (folder / "label.json").exists():
        _check_label(folder / "label.json")
    records = _records(folder / "events.jsonl") if (folder / "events.jsonl").exists() else []
    if (folder / "checkpoint.safetensors").exists():
        if meta.vocabulary is None:
            refuse("there are weights, but meta.json does not say for how many characters (vocabulary)")
        _check_weights(config, meta.vocabulary, records, folder / "checkpoint.safetensors")


def _check_label(path: Path) -> None:
    try:
        _Label.model_validate_json(path.read_bytes())
    except ValidationError as error:
        refuse(f"label.json: {explain(error)}")


def _records(path: Path) -> list[Record]:
    """The events. A last line without its end was being written when the run was exported, and is no event yet."""
    records = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            records.append(_record(line))
        except ValidationError as error:
            refuse(f"events.jsonl, line {number}: {explain(error)}")
        except ValueError as error:
            refuse(f"events.jsonl, line {number}: {error}")
    return records


def _record(line: bytes) -> Record:
    """One line as an event; ValueError where it is none, or holds a number that is not finite or beyond 64 bits."""
    record: Record = _Event.model_validate(json.loads(line, parse_int=_whole)).model_dump()
    if record["type"] in _EVENTS:
        _EVENTS[record["type"]].validate_json(json.dumps(_NOT_WRITTEN | record, allow_nan=False), strict=True)
    return record


def _whole(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"the number {digits[:30]} is too large")
    return int(digits)


def _check_weights(config: RunConfig, vocabulary: int, records: list[Record], path: Path) -> None:
    """The tensors are those of the model, with moments for all or for none, from a step that the events know."""
    try:
        state = load_state(path)
    except ValueError:
        refuse("its weights cannot be read")
    with torch.device("meta"):  # shapes without numbers
        parameters = dict(GPT(config.model, vocabulary).named_parameters())
    weights = {f"model.{name}": tuple(p.shape) for name, p in parameters.items()}
    moments = {f"optimizer.{name}.{key}": tuple(p.shape) for name, p in parameters.items() for key in ("exp_avg", "exp_avg_sq")}
    moments |= {f"optimizer.{name}.step": () for name in parameters}
    found = {name: tuple(tensor.shape) for name, tensor in state.tensors.items() if tensor.dtype == torch.float32}
    if len(found) != len(state.tensors) or found not in (weights, weights | moments):
        odd = {name for name, _shape in found.items() ^ (weights | moments).items()} | state.tensors.keys() - found.keys()
        refuse(f"its weights are not those of its configuration (see {min(odd)})")
    saved = {record["step"] for record in records if record["type"] == "checkpoint"}
    numbers = (state.step, state.evaluated, state.sampled, state.elapsed_s, state.cpu_s)
    if state.step not in saved or not all(isinstance(n, (int, float)) and abs(n) < MAX_NUMBER for n in numbers):
        refuse(f"its weights are from step {state.step!r}, where its events know no checkpoint")
