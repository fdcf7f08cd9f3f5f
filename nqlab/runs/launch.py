"""Create the folders of a race and start its worker: a fresh process, never a fork, that outlives who started it."""

from __future__ import annotations

import datetime
import json
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import coolname
import psutil

from nqlab import corpus as corpora
from nqlab import limits, settings
from nqlab.config import RunConfig
from nqlab.presets import arm_of
from nqlab.runs.files import write_json
from nqlab.runs.race import Race
from nqlab.runs.store import RESUMABLE, Run, active_races

SCHEMA_VERSION = 1
MEMORY_SHARE = 0.8


def check(configs: Sequence[RunConfig]) -> None:
    """ValueError, before anything is created, for a race that could not run: corpus, text length, device, memory, prompt."""
    from nqlab.model.budget import parameters, training_bytes
    from nqlab.training.device import check_dtype, resolve_device

    if not configs:
        raise ValueError("a race needs at least one variant; choose one")
    limits.check_race(len(configs))
    for config in configs:
        corpus = corpora.load(config.corpus)
        corpus.check(config.model.block_size)
        device = resolve_device(config.training.device)
        check_dtype(config.training, device)
        limits.check_run(parameters(config.model, len(corpus.vocabulary)), config.training.steps)
        needed = training_bytes(config.model, len(corpus.vocabulary), config.training.batch_size)
        if device.type == "cpu" and needed > MEMORY_SHARE * psutil.virtual_memory().total:
            raise ValueError(
                f"this run needs about {needed / 1e9:,.0f} GB of memory and the machine has {psutil.virtual_memory().total / 1e9:,.0f}; "
                "take a smaller n_embd, n_layer, block_size or batch_size"
            )
        if config.training.sample_interval:
            try:
                corpus.vocabulary.encode(config.training.sample_prompt)
            except ValueError as error:
                raise ValueError(f"sample_prompt: {error}") from None


def create(runs_dir: Path, configs: Sequence[RunConfig], facts: Mapping[str, Any] | None = None) -> tuple[Race, list[Run]]:
    """Make the folders of a race, complete or not at all; nothing runs yet. ``facts`` are written into each meta.json, where
    the worker finds ``threads`` when they are settled. ValueError as :func:`check`."""
    check(configs)
    now = datetime.datetime.now(datetime.UTC)
    race_id = new_race_id(now)
    name = _spoken_name()
    runs = [Run(runs_dir / f"{race_id}-{i}") for i in range(len(configs))]
    race = Race(runs_dir / ".races" / race_id)
    drafts = [run.folder.with_name(f".new-{run.id}") for run in runs]  # the store does not list these
    try:
        for draft, config, label in zip(drafts, configs, _labels(configs)):
            draft.mkdir(parents=True)
            (draft / "config.json").write_text(config.to_json(), encoding="utf-8")
            meta = {
                "schema_version": SCHEMA_VERSION,
                "race": race_id,
                "created": now.isoformat(timespec="seconds"),
                "launched": time.time(),
                **(facts or {}),
            }
            write_json(draft / "meta.json", meta)
            write_json(draft / "label.json", {"name": f"{name}-{label}", "note": ""})
        race.folder.mkdir(parents=True)
        info = {"name": name, "created": now.isoformat(timespec="seconds"), "runs": [r.id for r in runs]}
        write_json(race.folder / "race.json", info)
        for draft, run in zip(drafts, runs):
            draft.replace(run.folder)
    except OSError:
        for folder in [*drafts, *(r.folder for r in runs), race.folder]:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return race, runs


def new_race_id(now: datetime.datetime | None = None) -> str:
    """The second, and four hexadecimal digits against two races in one."""
    return f"{now or datetime.datetime.now(datetime.UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def _spoken_name() -> str:
    """Two words, short enough to say."""
    return min((coolname.generate_slug(2) for _ in range(5)), key=len)


def _labels(configs: Sequence[RunConfig]) -> list[str]:
    """A short word per run: its arm, numbered where an arm stands several times."""
    arms = [arm_of(c) for c in configs]
    return [a if arms.count(a) == 1 else f"{a}-{arms[: i + 1].count(a)}" for i, a in enumerate(arms)]


def spawn(race: Race, runs: Sequence[Run]) -> None:
    """Start the worker of a race for these runs: the spare where one waits, else a new process.

    It runs in a session of its own and goes on when this process ends.
    """
    with _spare_lock:
        spare, _spares[:] = (_spares[0] if _spares else None), []
    if spare is None or not _hand_over(spare, race, runs):
        command = [*_COMMAND, "--race", str(race.folder), *[a for r in runs for a in ("--run", r.id)]]
        with race.log.open("ab") as log:
            _children.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True))
    _children[:] = [child for child in _children if child.poll() is None]


def wait_for_children() -> None:
    """Wait until the workers that this process started have ended; for who asked them to stop and goes on."""
    while _children:
        _children.pop().wait()


# --- a spare worker that has its imports behind it, so that a page need not wait for them

_COMMAND = [sys.executable, "-m", "nqlab", "worker"]
_spare_lock = threading.Lock()
_spares: list[subprocess.Popen[bytes]] = []
_children: list[subprocess.Popen[bytes]] = []


def prepare_spare() -> None:
    """Start a spare worker unless one waits. It holds its imports and the default corpus, reads its race from
    standard input, and ends when this process does. Safe to call often and from many threads."""
    with _spare_lock:
        _spares[:] = [spare for spare in _spares if spare.poll() is None]
        if not _spares:
            quiet = subprocess.DEVNULL
            _spares.append(subprocess.Popen(_COMMAND, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True))


def _hand_over(spare: subprocess.Popen[bytes], race: Race, runs: Sequence[Run]) -> bool:
    """Give the spare its race; False when it has died meanwhile."""
    assert spare.stdin is not None
    try:
        spare.stdin.write(json.dumps({"race": str(race.folder), "runs": [r.id for r in runs]}).encode("utf-8") + b"\n")
        spare.stdin.close()
    except OSError:
        return False
    _children.append(spare)
    return spare.poll() is None


_start_lock = threading.Lock()


def start(runs_dir: Path, configs: Sequence[RunConfig]) -> tuple[Race, list[Run]]:
    """Create a race and start its worker. It queues when all slots are taken. ValueError as :func:`check`, and when
    the queue is full."""
    with _start_lock:  # a class that presses Start at once finds the queue as long as it is
        limits.check_queue(len(list(active_races(runs_dir))) - settings.slots() + 1)
        race, runs = create(runs_dir, configs)
    spawn(race, runs)
    return race, runs


_reopen_lock = threading.Lock()


def reopen(runs: Sequence[Run]) -> Race:
    """Make stopped, interrupted or failed runs of one race ready to go on. ValueError says what forbids it.

    From here on they are "starting", so that a second call is refused.
    """
    race_ids = {run.race.id for run in runs}
    if len(race_ids) != 1:
        raise ValueError(f"{len(race_ids)} races at once cannot go on together; resume one race after the other")
    check([run.config for run in runs])
    race = runs[0].race
    with _reopen_lock:
        for run in runs:
            status = run.status()
            if status not in RESUMABLE:
                raise ValueError(f"run {run.name} is {status}; only a stopped or interrupted run can go on")
        if race.worker() is not None:
            raise ValueError(f"race {race.id} is still being trained; stop it first, then resume")
        race.folder.mkdir(parents=True, exist_ok=True)
        if not race.info:
            write_json(race.folder / "race.json", {"name": race.id, "created": runs[0].meta.get("created"), "runs": [r.id for r in runs]})
        race.command("run")
        for run in runs:
            write_json(run.folder / "meta.json", run.meta | {"launched": time.time()})
    return race


def resume(runs: Sequence[Run]) -> Race:
    """:func:`reopen`, and start a worker."""
    race = reopen(runs)
    spawn(race, runs)
    return race
