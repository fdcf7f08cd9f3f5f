"""What a run can be recognised and repeated by, and whether two runs of one configuration gave the same losses.

Equal means equal: every loss that both have written down is the same number, bit for bit. *Within tolerance* means that
the largest relative difference is at most :data:`TOLERANCE`, as with other versions, threads or devices, whose sums are
rounded in another order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from nqlab.config import difference_line
from nqlab.runs.log import EventReader, FileState, state_of
from nqlab.runs.store import Run

TOLERANCE = 1e-3
CIRCUMSTANCES = ("device", "threads", "machine", "cpu", "commit", "corpus_sha256", "compiled_from_step")
Losses = dict[tuple[int, str], float]
Word = Literal["bitwise equal", "within tolerance", "different", "nothing to compare"]


@dataclass(frozen=True)
class Agreement:
    """Whether two runs agree. ``compared`` losses, training and validation, up to step ``last``, which both have written down;
    ``first`` is the first step at which they are not the same number, ``largest`` the largest relative difference.
    ``configuration`` and ``circumstances`` say in what the runs differ beside."""

    word: Word
    compared: int
    last: int | None
    first: int | None
    largest: float
    configuration: str
    circumstances: dict[str, tuple[Any, Any]]

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self) | {"tolerance": TOLERANCE}

    def sentence(self) -> str:
        """In one line, for the command line."""
        if self.word == "nothing to compare":
            return "nothing to compare: the runs have no loss of the same step"
        text = f"{self.word}: {self.compared:,} losses up to step {self.last:,}"
        if self.first is not None:
            text += f"; the first that differs is at step {self.first:,}, the largest relative difference is {self.largest:.1e}"
        if self.configuration != "no difference":
            text += f"; configurations differ: {self.configuration}"
        changed = [f"{key} {a} → {b}" for key, (a, b) in self.circumstances.items()]
        return text + (f"; circumstances differ: {', '.join(changed)}" if changed else "; the circumstances are the same")


def compare(one: Run, other: Run) -> Agreement:
    """How far two runs agree, loss by loss at the steps that both have; ValueError for a broken configuration.

    A run that ended where the other went on (it diverged) is different from there on.
    """
    a, b = losses(one), losses(other)
    common = sorted(a.keys() & b.keys())
    differing = [key for key in common if a[key] != b[key]]
    largest = max((abs(a[key] - b[key]) / max(abs(a[key]), abs(b[key])) for key in differing), default=0.0)
    ends = _ends(one), _ends(other)
    parted = min(step for step, _ in ends) if all(kind for _, kind in ends) and ends[0] != ends[1] else None
    first = differing[0][0] if differing else parted
    same: Word = "bitwise equal" if first is None else "within tolerance" if largest <= TOLERANCE and parted is None else "different"
    return Agreement(
        same if common else "nothing to compare", len(common), common[-1][0] if common else None, first, largest,
        difference_line(one.config, other.config), _circumstances(one, other),
    )  # fmt: skip


def losses(run: Run) -> Losses:
    """Every loss that a run has written down, by step and kind."""
    return _losses(run.events, state_of(run.events))


@lru_cache(maxsize=100)
def _losses(events: Path, _state: FileState) -> Losses:
    """The state of the file is only the cache's key."""
    found: Losses = {}
    for record in EventReader(events).read():
        if record["type"] in ("step", "evaluation"):
            name = "loss" if record["type"] == "step" else "val_loss"
            found[record["step"], name] = record[name]
    return found


def _ends(run: Run) -> tuple[int, str]:
    """The step and the kind of a run's end; no kind where it has not ended."""
    last = (EventReader(run.events).read() or [{"type": "", "step": 0}])[-1]
    return (last["step"], last["type"]) if last["type"] in ("done", "diverged") else (last["step"], "")


def _circumstances(one: Run, other: Run) -> dict[str, tuple[Any, Any]]:
    a, b = (_told(run.meta) for run in (one, other))
    return {key: (a.get(key), b.get(key)) for key in [*a, *(k for k in b if k not in a)] if a.get(key) != b.get(key)}


def _told(meta: dict[str, Any]) -> dict[str, Any]:
    return dict(meta.get("versions", {})) | {key: meta.get(key) for key in CIRCUMSTANCES}


# --- the receipt


def receipt(run: Run) -> dict[str, Any]:
    """Hashes, versions, device, threads and times of a run; ValueError for a broken configuration.

    ``losses_sha256`` is over every loss with all its digits, ``weights_sha256`` over the model's tensors of the newest
    checkpoint (None without one): two runs with the same hashes have the same losses, and the same weights.
    """
    meta = run.meta
    told = {"run": run.id, "name": run.name, "created": meta.get("created"), "started": meta.get("started")}
    told |= {key: meta[key] for key in ("imported", "repeats") if key in meta}
    told |= {"configuration": run.config.short_hash(), "losses_sha256": _hash(_lines(losses(run))) if losses(run) else None}
    told |= {"weights_sha256": weights_hash(run)}
    return told | {key: meta.get(key) for key in CIRCUMSTANCES} | {"versions": meta.get("versions", {})}


def receipt_rows(told: dict[str, Any]) -> list[dict[str, str]]:
    """A receipt as a table of two columns."""
    flat = {key: value for key, value in told.items() if key != "versions"} | told["versions"]
    return [{"what": key, "value": "–" if value is None else str(value)} for key, value in flat.items()]


def weights_hash(run: Run) -> str | None:
    """SHA-256 over names and numbers of the model's tensors; None where there is no whole checkpoint."""
    return _weights_hash(run.checkpoint, state_of(run.checkpoint)) if run.checkpoint.exists() else None


@lru_cache(maxsize=500)
def _weights_hash(checkpoint: Path, _state: FileState) -> str | None:
    from nqlab.training.checkpoint import load_state

    try:
        tensors = load_state(checkpoint).tensors
    except ValueError:
        return None
    weights = sorted((key, tensor) for key, tensor in tensors.items() if key.startswith("model."))
    return _hash(part for key, tensor in weights for part in (key.encode("utf-8"), tensor.contiguous().numpy().tobytes()))


def _lines(found: Losses) -> Iterable[bytes]:
    return (json.dumps([*key, value]).encode("utf-8") for key, value in sorted(found.items()))


def _hash(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
