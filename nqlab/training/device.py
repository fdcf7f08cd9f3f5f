"""Which device and number format a run gets; asking for what is not there is an error that says so."""

from __future__ import annotations

import torch

from nqlab.config import TrainingConfig


def resolve_device(name: str) -> torch.device:
    """``auto`` is cuda where there is one, else mps, else cpu. ValueError for a device this machine lacks."""
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device(next(d for d in ("cuda", "mps", "cpu") if present[d]))
    if not present.get(name, False):
        have = ", ".join(d for d, there in present.items() if there)
        raise ValueError(f"device {name!r} is not available on this machine; available: {have} (or auto)")
    return torch.device(name)


def check_dtype(training: TrainingConfig, device: torch.device) -> None:
    """ValueError when bfloat16 is asked for on a device that does not compute in it."""
    if training.dtype == "bfloat16" and not has_bfloat16(device):
        raise ValueError(f"dtype 'bfloat16' is not supported by this {device.type}; use float32")


def formats() -> list[str]:
    """The number formats to offer on this machine: those that ``auto`` or the CPU computes in itself."""
    return ["float32", "bfloat16"] if any(has_bfloat16(resolve_device(name)) for name in ("auto", "cpu")) else ["float32"]


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies in bfloat16 itself; emulating it would only be slower."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    return device.type == "cpu" and bool(torch.cpu._is_avx512_bf16_supported())
