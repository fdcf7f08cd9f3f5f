"""The state of a run between two updates, and its file: safetensors, replaced in one move, nothing pickled.

Batches and dropout masks are pure functions of (seed, step), so no generator state has to be kept.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from nqlab.training.optimizer import FlatAdamW


@dataclass(frozen=True)
class State:
    """Weights, optimiser moments, and how far the run has come.

    ``evaluated`` and ``sampled`` are the last steps whose evaluation and sample have been yielded (-1: none).
    """

    tensors: dict[str, Tensor]
    step: int
    evaluated: int
    sampled: int
    elapsed_s: float
    cpu_s: float = 0.0


def save_state(path: Path, state: State) -> None:
    """Write to a temporary file, sync, replace: a kill at any moment leaves the old file or the new one, whole."""
    numbers: dict[str, float] = {"step": state.step, "evaluated": state.evaluated, "sampled": state.sampled}
    numbers |= {"elapsed_s": state.elapsed_s, "cpu_s": state.cpu_s}
    data = save({k: t.clone() for k, t in state.tensors.items()}, metadata={"state": json.dumps(numbers)})
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def load_state(path: Path, device: str = "cpu") -> State:
    """Inverse of :func:`save_state`. ValueError names a file that is missing or not a whole checkpoint."""
    try:
        with safe_open(path, framework="pt", device=device) as file:
            numbers = json.loads(file.metadata()["state"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  (not a dict)
            return State(tensors, **numbers)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no checkpoint of this program ({error}); the run cannot go on from it") from None


def capture(model: torch.nn.Module, optimizer: FlatAdamW) -> dict[str, Tensor]:
    """Live tensors of both, by name: ``model.NAME`` and ``optimizer.NAME.KEY``; a tied matrix stands once."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        tensors[f"model.{name}"] = parameter.detach()
        for key, value in optimizer.moments(name, parameter).items():
            tensors[f"optimizer.{name}.{key}"] = value
    return tensors


@torch.no_grad()
def restore_model(model: torch.nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put captured weights back. ValueError when they belong to another model, with the first name that differs."""
    mine = dict(model.named_parameters())
    theirs = {key.removeprefix("model.") for key in tensors if key.startswith("model.")}
    if odd := sorted(theirs ^ mine.keys()):
        raise ValueError(f"the checkpoint is of another model: {odd[0]} is only in one of them")
    for name, parameter in mine.items():
        value = tensors[f"model.{name}"]
        if value.shape != parameter.shape:
            raise ValueError(f"the checkpoint is of another model: {name} is {tuple(value.shape)}, not {tuple(parameter.shape)}")
        parameter.copy_(value)


def restore(model: torch.nn.Module, optimizer: FlatAdamW, tensors: dict[str, Tensor]) -> None:
    """Put captured weights and moments back; ValueError as :func:`restore_model`."""
    restore_model(model, tensors)
    for name, _ in model.named_parameters():
        prefix = f"optimizer.{name}."
        moments = {key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)}
        optimizer.restore(name, moments)
