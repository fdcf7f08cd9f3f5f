"""Some runs as a chart, and one run as a page to pass on: its curve, its configuration, its receipt; opens without a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go

from nqlab.analysis import report, tables
from nqlab.analysis.curves import Curve, curve_of
from nqlab.analysis.figures import Line, loss_figure, reference_lines, title_of
from nqlab.analysis.receipt import receipt, receipt_rows
from nqlab.analysis.standing import state_word
from nqlab.config import shown
from nqlab.presets import arm_of
from nqlab.runs.log import EventReader
from nqlab.runs.store import Run
from nqlab.words import _


def read_curve(events: Path) -> Curve:
    """The curve of an events.jsonl."""
    return curve_of(EventReader(events).read())


def curves_figure(runs: Sequence[Run], curve: Callable[[Path], Curve] = read_curve, height: int = 380) -> go.Figure:
    """The curves of some runs by their names, with the level lines of the first one's text. ValueError for a broken one."""
    lines = [Line(run.id, run.name, arm_of(run.config), curve(run.events)) for run in runs]
    levels = reference_lines(runs[0].meta.get("entropies", {}))
    return loss_figure(lines, smoothing=0.8, references=levels, height=height)


def curves_table(runs: Sequence[Run], curve: Callable[[Path], Curve] = read_curve) -> pd.DataFrame:
    """The same runs' validation losses as a table, a row an evaluation and a column a run."""
    names = [run.name for run in runs]
    found = {n if names.count(n) == 1 else f"{n} ({run.id})": curve(run.events).val for n, run in zip(names, runs)}
    return tables.curves_table({name: (val["step"], val["val_loss"]) for name, val in found.items()}, _("optimiser step"))


def settings_rows(run: Run) -> list[dict[str, str]]:
    """The configuration as a table of two columns."""
    return [{"what": key, "value": shown(value)} for key, value in run.config.flat().items()]


def document(run: Run) -> str:
    """The run as one HTML page with everything in it."""
    summary, label = run.summary(), run.label
    where = {"step": f"{summary['step']:,}", "steps": f"{summary['steps']:,}"}
    text = _("{arm}, {state}, at step {step} of {steps}.")
    sentences = [text.format(arm=title_of(summary["arm"]), state=state_word(summary["status"]), **where)]
    if summary["val_loss"] is not None:
        sentences.append(_("Validation loss: {loss:.4f} nats per character.").format(loss=summary["val_loss"]))
    sentences += [_("Tags: {tags}.").format(tags=", ".join(label["tags"]))] if label["tags"] else []
    sentences += [label["note"]] if label["note"] else []
    return report.document(run.name, sentences, [curves_figure([run])], pd.DataFrame([*receipt_rows(receipt(run)), *settings_rows(run)]))
