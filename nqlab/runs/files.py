"""Small files that another process may read at any moment: whole or not there, never half."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any


def write_json(path: Path, data: Any) -> None:
    """Write through a temporary file and one rename; an existing file is replaced in one move."""
    write_bytes(path, json.dumps(data, ensure_ascii=False, indent=1).encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """As :func:`write_json`, for bytes."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


def read_json(path: Path) -> dict[str, Any] | None:
    """The file's object, or None where it is missing or broken."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None
