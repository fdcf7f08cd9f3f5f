"""A run as files to pass on: the whole folder as a zip, its curve as CSV, everything but the weights as JSON, and the
weights alone as safetensors. :mod:`nqlab.runs.importing` takes the zip back.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path

from nqlab.runs.files import write_bytes
from nqlab.runs.log import EventReader
from nqlab.runs.store import Run

CURVE_FIELDS = ("type", "step", "tokens", "elapsed_s", "loss", "val_loss", "learning_rate", "grad_norm")


def curve_csv(run: Run) -> str:
    """Step and evaluation events as CSV."""
    out = io.StringIO()
    writer = csv.DictWriter(out, CURVE_FIELDS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(r for r in EventReader(run.events).read() if r["type"] in ("step", "evaluation"))
    return out.getvalue()


def record_json(run: Run) -> str:
    """Everything but the weights as one JSON object: label, configuration, circumstances, events."""
    data = {"id": run.id, **run.label, "status": run.status(), "hash": run.config.short_hash()}
    data |= {"config": json.loads(run.config.to_json()), "meta": run.meta, "events": EventReader(run.events).read()}
    return json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False)


def archive(run: Run) -> bytes:
    """The run folder as a zip, with the curve as CSV beside it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(run.folder.iterdir()):
            if path.suffix != ".tmp":
                file.write(path, f"{run.id}/{path.name}")
        file.writestr(f"{run.id}/curve.csv", curve_csv(run))
    return out.getvalue()


def write_archive(run: Run, path: Path) -> None:
    """Write :func:`archive` to a file, whole or not at all."""
    write_bytes(path, archive(run))


def weights(run: Run) -> bytes:
    """The model's tensors of the newest checkpoint as safetensors, by their names in :class:`~nqlab.model.gpt.GPT`.

    The file's metadata hold the run's id, the step and the configuration as JSON. ValueError where there is no whole
    checkpoint.
    """
    from safetensors.torch import save

    from nqlab.training.checkpoint import load_state

    state = load_state(run.checkpoint)
    tensors = {key.removeprefix("model."): tensor for key, tensor in state.tensors.items() if key.startswith("model.")}
    return save(tensors, metadata={"run": run.id, "step": str(state.step), "config": run.config.to_json()})
