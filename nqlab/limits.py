"""What one server lends to a room: a TOML file of limits, named by ``NQLAB_LIMITS``; without one, a person's own machine.

Every limit has a sentence for whoever meets it. The file is read anew when it changes; a file that is wrong stops
whatever asks, so that a typing error never opens what was to be limited.
"""

from __future__ import annotations

import os
import tomllib
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class Limits(BaseModel):
    """What is allowed; None is no limit of ours."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slots: int = Field(1, ge=1, le=64, description="races that train at the same time; others wait in line")
    queue: int | None = Field(None, ge=0, description="races that may wait in line")
    parameters: int | None = Field(None, ge=1, description="learned numbers of the largest model")
    steps: int | None = Field(None, ge=1, description="optimiser steps of a run")
    runs_in_a_race: int = Field(12, ge=1, le=12, description="variants that may race together")
    runs_in_a_study: int | None = Field(None, ge=1, description="runs of the largest study")
    upload_bytes: int = Field(10_000_000, ge=1, le=10_000_000, description="bytes of a person's own text")
    teacher: str | None = Field(
        None, min_length=4, description="the key that an address needs (?teacher=KEY) to start, stop or delete anything"
    )


def current() -> Limits:
    """The limits that hold now. ValueError names the file and what is wrong in it."""
    name = os.environ.get("NQLAB_LIMITS")
    if not name:
        return Limits()
    path = Path(name)
    try:
        changed = path.stat().st_mtime_ns
    except OSError as error:
        raise ValueError(f"NQLAB_LIMITS names {name!r}, which cannot be read ({error.strerror}); correct the path or unset it") from None
    return _read(path, changed)


@lru_cache(maxsize=4)
def _read(path: Path, _changed: int) -> Limits:
    """The time of its last change is only the cache's key."""
    try:
        return Limits.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no TOML file ({error}); write lines such as steps = 2000") from None
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))} = {e['input']!r}: {e['msg']}" for e in error.errors(include_url=False))
        raise ValueError(f"{path}: {wrong}; limits are {', '.join(Limits.model_fields)}") from None


def check_run(parameters: int, steps: int) -> None:
    """ValueError for a model or a run that is larger than this server lends."""
    limits = current()
    if limits.parameters is not None and parameters > limits.parameters:
        raise ValueError(
            f"this model has {parameters:,} parameters and this server trains at most {limits.parameters:,}; take a smaller size or width"
        )
    if limits.steps is not None and steps > limits.steps:
        raise ValueError(f"steps {steps:,} are more than the {limits.steps:,} that this server trains; take fewer")


def check_race(runs: int) -> None:
    """ValueError for a race of more runs than may stand in one."""
    if runs > (most := current().runs_in_a_race):
        raise ValueError(f"{runs} runs are too many for one race; at most {most}")


def check_queue(waiting: int) -> None:
    """ValueError where as many races wait already as may."""
    most = current().queue
    if most is not None and waiting > most:
        raise ValueError(f"{waiting - 1} races wait in line already, which is as many as may here; wait until one has ended")


def check_study(runs: int) -> None:
    """ValueError for a study of more runs than this server lends."""
    most = current().runs_in_a_study
    if most is not None and runs > most:
        raise ValueError(f"this study has {runs:,} runs and this server fills studies of at most {most:,}; take fewer values or seeds")


def words() -> list[str]:
    """The limits that were set, one line each; nothing on a person's own machine. The teacher's key is not told."""
    limits = current()
    set_here = limits.model_dump(exclude_unset=True, exclude={"teacher"})
    return [f"{Limits.model_fields[name].description}: {value:,}" for name, value in set_here.items()]
