"""The command line and the notebook cell that give what a page shows: plain text, for whoever wants it elsewhere."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from nqlab.analysis.comparison import Comparison
from nqlab.analysis.open_questions import open_questions
from nqlab.analysis.redundancy.architecture import Architecture
from nqlab.runs.study import Study

PROGRAM = ("python", "-m", "nqlab")
SWITCHES = ("tied", "shared_query", "biases")  # of an architecture, as they are called on the command line with dashes


def _line(*parts: object) -> str:
    return shlex.join([*PROGRAM, *map(str, parts)])


def _typed(value: Any) -> str:
    """A setting's value as it is typed after ``--set``."""
    return "none" if value is None else json.dumps(value) if isinstance(value, (list, tuple)) else str(value)


# --- a study


def sweep_command(study: Study, here: bool) -> str:
    """The command that fills a study. One that is here has a name; another is spelled out, or is its downloaded file
    where options can't say it (a question, seeds that are not 0, 1, ..., a value with a comma)."""
    if here:
        return _line("sweep", study.name)
    values = {key: [_typed(value) for value in given] for key, given in study.grid.items()}
    if study.question or study.seeds != tuple(range(len(study.seeds))) or any("," in text for found in values.values() for text in found):
        return _line("sweep", f"{study.name}.json")
    parts = ["sweep", "--name", study.name, "--preset", study.preset]
    for arm in study.arms:
        parts += ["--arm", arm]
    parts += ["--baseline", study.baseline, "--seeds", str(len(study.seeds))]
    for key, found in values.items():
        parts += ["--grid", f"{key}={','.join(found)}"]
    for key, value in study.settings.items():
        parts += ["--set", f"{key}={_typed(value)}"]
    return _line(*parts)


def sweep_cell(study: Study) -> str:
    """A notebook cell that fills a study (what is there already is not computed again) and shows its means."""
    return "\n".join(
        [
            "import pandas as pd",
            "from nqlab import settings",
            "from nqlab.analysis.progress import overview",
            "from nqlab.runs.study import Study",
            "from nqlab.runs.sweep import Sweep, save_study",
            "",
            f"study = Study.of({study.model_dump(exclude_defaults=True)!r})",
            "place = save_study(settings.runs_dir(), study)",
            "Sweep(place).run()",
            "pd.DataFrame(overview(place))",
        ]
    )


# --- a comparison


def at_words(at: Mapping[str, Any]) -> str:
    """Settings as an address holds them and the command line takes them, in every language: ``learning_rate=0.001``."""
    return ",".join(f"{key.split('.')[-1]}={_typed(value)}" for key, value in at.items())


def compare_command(comparison: Comparison) -> str:
    """The command that gives the same verdicts."""
    parts = ["compare", comparison.name, "--baseline", comparison.baseline]
    for arm in comparison.arms:
        parts += ["--arm", arm]
    for key, value in (comparison.at or {}).items():
        parts += ["--at", f"{key.split('.')[-1]}={_typed(value)}"]
    return _line(*parts)


def compare_cell(comparison: Comparison, size: str) -> str:
    """A notebook cell with the same verdicts, and a chart of them."""
    at = None if comparison.at is None else dict(comparison.at)
    return "\n".join(
        [
            "from nqlab import settings",
            "from nqlab.analysis import studies",
            "from nqlab.analysis.comparison import compare, difference_chart",
            "",
            f"(filled,) = studies.find({comparison.name!r}, settings.runs_dir())",
            f"comparison = compare(filled, {comparison.baseline!r}, {list(comparison.arms)!r}, {at!r}).of_size({size!r})",
            r'print("\n".join(comparison.sentences()))',
            "difference_chart(comparison.rows)",
        ]
    )


# --- where training survives


def stability_command(study: str) -> str:
    """The command that lists every setting of a study and how many of its seeds learnt."""
    return _line("stability", study)


def stability_cell(study: str, upwards: str) -> str:
    """A notebook cell with the map of a study; ``upwards`` is its vertical axis."""
    return "\n".join(
        [
            "from nqlab import settings",
            "from nqlab.analysis import studies",
            "from nqlab.analysis.stability import cells, stability_map, table",
            "",
            f"(filled,) = studies.find({study!r}, settings.runs_dir())",
            "found = cells(filled.results)",
            f"stability_map(found, [arm for arm in filled.study.arms if any(cell.arm == arm for cell in found)], {upwards!r})",
        ]
    )


# --- a trained run


def microscope_command(runs: Sequence[str]) -> str:
    """The command that measures the queries of some runs, given by their ids."""
    return _line("microscope", *runs)


def microscope_cell(runs: Mapping[str, str]) -> str:
    """A notebook cell that measures the same runs (label -> id)."""
    return "\n".join(
        [
            "import pandas as pd",
            "from nqlab import settings",
            "from nqlab.analysis import microscope",
            "from nqlab.runs import store",
            "from nqlab.runs.worker import load_model",
            "",
            f"runs = {dict(runs)!r}",
            "found = {label: store.find(settings.runs_dir(), run) for label, run in runs.items()}",
            "looks = {label: microscope.look(*load_model(run)) for label, run in found.items()}",
            "pd.DataFrame(microscope.layer_rows(looks))",
        ]
    )


# --- the open questions


def open_command() -> str:
    """The commands that give the verdict of every shipped study, and the slopes of the ladders."""
    return "\n".join([_line("compare", "data/reference"), *(_line("ladder", q.study) for q in open_questions() if q.ladder)])


def open_cell() -> str:
    """A notebook cell with the verdicts of all open questions."""
    return "\n".join(
        [
            "import pandas as pd",
            "from nqlab.analysis import studies",
            "from nqlab.analysis.ladder import fit_rows, ladders",
            "from nqlab.analysis.open_questions import open_questions, rows_of",
            "",
            "known = {filled.study.name: filled for filled in studies.shipped()}",
            "sizes = [q.study for q in open_questions() if q.ladder and q.study in known]",
            "slopes = pd.DataFrame([{'study': name, **row} for name in sizes for row in fit_rows(ladders(known[name]))])",
            "verdicts = pd.DataFrame([{'question': q.title, **row} for q in open_questions() for row in rows_of(q, known)])",
            "display(slopes, verdicts)",
        ]
    )


# --- the list of runs


def runs_command(chosen: Sequence[str]) -> str:
    """The command that lists all runs, or gives the receipt of the one chosen."""
    return _line("runs", "receipt", chosen[0]) if len(chosen) == 1 else _line("runs", "list")


def runs_cell(chosen: Sequence[str]) -> str:
    """A notebook cell with the table of all runs, or of those chosen, and their settings."""
    rows = f"[store.find(settings.runs_dir(), run) for run in {list(chosen)!r}]" if chosen else "store.runs(settings.runs_dir())"
    return "\n".join(
        [
            "import pandas as pd",
            "from nqlab import settings",
            "from nqlab.analysis import runs_table",
            "from nqlab.runs import store",
            "",
            f"pd.DataFrame(runs_table.rows({rows}))",
        ]
    )


# --- time in use


def latency_command(preset: str, arms: Sequence[str], contexts: Sequence[int], repeats: int) -> str:
    """The command that measures the same."""
    parts = ["latency", "--preset", preset]
    for arm in arms:
        parts += ["--arm", arm]
    for context in contexts:
        parts += ["--context", str(context)]
    return _line(*parts, "--repeats", str(repeats))


def latency_cell(preset: str, arms: Sequence[str], contexts: Sequence[int], repeats: int) -> str:
    """A notebook cell that measures the same and shows it as a table."""
    return "\n".join(
        [
            "import pandas as pd",
            "from nqlab import settings",
            "from nqlab.analysis import latency",
            "from nqlab.runs import latency as timing",
            "",
            f"subjects = timing.of_preset({preset!r}, {list(arms)!r})",
            f"asked = {{'contexts': {list(contexts)!r}, 'repeats': {repeats}, 'threads': 1, 'device': 'auto'}}",
            "records = list(timing.records(subjects, **asked, runs_dir=settings.runs_dir()))",
            "pd.DataFrame(latency.table(latency.summary(records)))",
        ]
    )


# --- the argument


def examine_command(architecture: Architecture, condition: float, dtype: str) -> str:
    """The command that says what the rule allows and measures it."""
    a = architecture
    parts = ["examine", "--skips", a.skips, "--norm", a.norm, "--positions", a.positions]
    parts += [f"--{name.replace('_', '-')}" for name in SWITCHES if getattr(a, name)]
    parts += ["--n-embd", str(a.n_embd), "--n-head", str(a.n_head), "--n-layer", str(a.n_layer)]
    return _line(*parts, "--condition", f"{condition:g}", "--dtype", dtype)


def examine_cell(architecture: Architecture, condition: float, dtype: str) -> str:
    """A notebook cell that does the same, and lists what absorbs what."""
    told = {f.name: value for f in fields(architecture) if (value := getattr(architecture, f.name)) != f.default}
    return "\n".join(
        [
            "import pandas as pd",
            "from nqlab.analysis.redundancy.architecture import Architecture",
            "from nqlab.analysis.redundancy.diagram import factors",
            "from nqlab.analysis.redundancy.examine import errors_of",
            "",
            f"architecture = Architecture({', '.join(f'{name}={value!r}' for name, value in told.items())})",
            f"found = errors_of(architecture, condition={condition!r}, dtype={dtype!r})",
            "print(found.analysis.sentence, found.record()['errors'])",
            "pd.DataFrame(factors(found.analysis))",
        ]
    )
