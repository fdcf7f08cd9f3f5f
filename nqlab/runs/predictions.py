"""What people said beforehand about a race: who will end with the lowest validation loss, and by how much.

``predictions.jsonl`` in the race's folder, a line each; written once and never changed.
"""

from __future__ import annotations

import datetime
import json
from dataclasses import asdict, dataclass

from nqlab.runs.race import Race

LONGEST_NAME = 40


@dataclass(frozen=True)
class Prediction:
    """``winner`` is a run's id, ``margin`` nats by which the second will end higher, ``step`` the race's when it was said."""

    winner: str
    margin: float
    name: str = ""
    step: int = 0
    said: str = ""


def predict(race: Race, winner: str, margin: float, name: str = "", step: int = 0) -> Prediction:
    """Write a prediction down. ValueError for a run that does not race, a negative margin, or a name too long."""
    if winner not in race.info.get("runs", []):
        raise ValueError(f"{winner!r} does not run in this race; choose one of {', '.join(race.info.get('runs', []))}")
    if not 0 <= margin < 100:
        raise ValueError(f"a margin of {margin} nats won't do; give 0 to 100")
    if len(name.strip()) > LONGEST_NAME:
        raise ValueError(f"a name of {len(name.strip())} characters won't do; give at most {LONGEST_NAME}, or none")
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    prediction = Prediction(winner, float(margin), name.strip(), step, now)
    with (race.folder / "predictions.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(prediction), ensure_ascii=False) + "\n")  # one write: lines of several people don't mix
    return prediction


def predictions(race: Race) -> list[Prediction]:
    """What was said, in order; lines that are torn or no prediction are left out."""
    path = race.folder / "predictions.jsonl"
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            found.append(Prediction(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found
