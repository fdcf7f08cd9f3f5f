"""The commands. Each checks what was typed, calls the package, and says what happened; nothing is computed here."""

from __future__ import annotations

import hashlib
import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from nqlab import corpus as corpora
from nqlab import presets, settings
from nqlab.config import RunConfig, replace

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Does a transformer need a linear query projection?")
corpora_app = typer.Typer(help="The texts to learn from.", invoke_without_command=True)
runs_app = typer.Typer(no_args_is_help=True, help="What has been trained, and what trains now.")
app.add_typer(corpora_app, name="corpora")
app.add_typer(runs_app, name="runs")
studies_app = typer.Typer(no_args_is_help=True, help="Studies filled here, and those shipped.")
app.add_typer(studies_app, name="studies")

JsonFlag = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]
RunsDir = Annotated[Path | None, typer.Option("--runs-dir", help="Folder of run folders (default: $NQLAB_RUNS_DIR or data/runs).")]
RunArgument = Annotated[str, typer.Argument(help="Id or name of a run, or how it begins.")]

PIPE_WIDTH = 160
out = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
err = Console(stderr=True, width=None if sys.stderr.isatty() else PIPE_WIDTH)


def fail(message: str, code: int = 2) -> NoReturn:
    """One line on standard error, and out."""
    err.print(f"nqlab: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(code)


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Errors about what was typed become one line and exit code 2; what the machine refuses, exit code 1."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except ValueError as error:
            fail(str(error))
        except OSError as error:
            fail(str(error), 1)

    return wrapper


def print_json(data: Any) -> None:
    """Plain JSON, as is: no colours, no wrapping."""
    sys.stdout.write(json.dumps(data, ensure_ascii=False, indent=2) + "\n")


def print_table(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> None:
    """Some columns of some rows."""
    table = Table(*columns)
    for row in rows:
        table.add_row(*(_cell(row.get(c)) for c in columns))
    out.print(table)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


@app.command("presets")
@checked
def presets_command(json_: JsonFlag = False) -> None:
    """Show the named configurations and the arms that can race."""
    from nqlab.model.budget import parameters

    vocab = 65
    rows = []
    for name, make in presets.PRESETS.items():
        config = make()
        about = (make.__doc__ or "").splitlines()[0]
        rows.append({"preset": name, "parameters": parameters(config.model, vocab), "about": about, "config": json.loads(config.to_json())})
    if json_:
        print_json(rows)
        return
    print_table(rows, ["preset", "parameters", "about"])
    print_table([{"arm": name, "what": title} for name, title in presets.ARMS.items()], ["arm", "what"])


@corpora_app.callback()
@checked
def corpora_command(context: typer.Context, json_: JsonFlag = False) -> None:
    """Show the named corpora and the own texts kept here."""
    if context.invoked_subcommand:
        return
    rows = []
    for name, title in corpora.available().items():
        source = corpora.SOURCES.get(name)
        here = source is None or source.wheel is None or corpora.corpus_path(name).exists()
        rows.append({"name": name, "title": title, "here": here, "origin": source.origin if source else "your own text"})
        if json_ and here:
            rows[-1] |= corpora.load(name).card()
    print_json(rows) if json_ else print_table(rows, ["name", "title", "here", "origin"])


@corpora_app.command("fetch")
@checked
def corpora_fetch(names: Annotated[list[str], typer.Argument(help="Names of corpora.")], json_: JsonFlag = False) -> None:
    """Bring corpora in, verified by hash; those that are here already are left as they are."""
    for name in names:
        corpora.fetch(name)
    cards = [corpora.load(name).card() for name in names]
    print_json(cards) if json_ else print_table(cards, ["name", "characters", "vocabulary", "ln_vocabulary", "bigram_entropy"])


@app.command()
@checked
def train(
    preset: Annotated[str, typer.Option(help="Where to start from: tiny, small, medium, gpu, gpt2.")] = "tiny",
    query: Annotated[
        list[str] | None, typer.Option("--query", "--arm", help="A variant to race; may be given several times (default: linear).")
    ] = None,
    corpus: Annotated[str | None, typer.Option(help="A corpus name, or the path of a text file (default: shakespeare).")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the start and the batches (default: 0).")] = None,
    steps: Annotated[int | None, typer.Option(help="Optimiser steps.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any setting, as training.learning_rate=3e-3.")] = None,
    runs_dir: RunsDir = None,
    json_: JsonFlag = False,
) -> None:
    """Race one or several query variants; Ctrl-C keeps what is done."""
    base = presets.preset(preset)
    changes: dict[str, Any] = dict(_assignment(text) for text in set_ or [])
    options = {"seed": seed, "training.steps": steps, "corpus": corpus}
    base = replace(base, changes | {key: value for key, value in options.items() if value is not None})
    configs = [presets.arm(base, name) for name in query] if query else [base]
    text = corpora.resolve(base.corpus, base.model.block_size)
    for note in text.notes:
        err.print(f"note: {note}", markup=False, highlight=False)
    configs = [replace(c, {"corpus": text.name}) for c in configs]

    from nqlab.runs.launch import create

    folder = runs_dir.absolute() if runs_dir else settings.runs_dir()
    race, runs = create(folder, configs)
    raise typer.Exit(_work(race, runs, configs, json_))


def _assignment(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign:
        raise ValueError(f"--set {text!r} has no '='; write it as training.learning_rate=3e-3")
    return key.strip(), value.strip()


def _work(race: Any, runs: Sequence[Any], configs: Sequence[RunConfig], json_: bool) -> int:
    """Train in this process and say how it went; the exit code."""
    code = _train_shown(race, runs, configs, json_)
    rows = [run.summary() | {"folder": str(run.folder)} for run in runs]
    print_json(rows) if json_ else print_table(rows, ["name", "status", "arm", "step", "loss", "val_loss"])
    return code


def _train_shown(race: Any, runs: Sequence[Any], configs: Sequence[RunConfig], json_: bool) -> int:
    """Train in this process, with a progress display for a person or plain lines for a pipe; the exit code."""
    from nqlab.runs.worker import Worker

    console = err if json_ else out
    if console.is_terminal:
        columns = (TextColumn("{task.description:<28}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
        with Progress(*columns, TimeRemainingColumn(), TextColumn("{task.fields[loss]}"), console=console) as progress:
            tasks = [progress.add_task(r.name, total=c.training.steps, loss="") for r, c in zip(runs, configs)]
            code, worker = _until_done(Worker(race, runs, _unrepeated(lambda i, record: _advance(progress, tasks[i], record))))
    else:
        code, worker = _until_done(Worker(race, runs, _unrepeated(lambda i, record: _plain(console, runs[i].name, record))))
    if worker.interrupted:
        err.print(f"stopped and kept; go on with: python -m nqlab runs resume {runs[0].id}", markup=False, highlight=False)
        return 130
    return code


def _until_done(worker: Any) -> tuple[int, Any]:
    previous = signal.signal(signal.SIGINT, worker.interrupt), signal.signal(signal.SIGTERM, worker.interrupt)
    try:
        return worker.work(), worker
    finally:
        signal.signal(signal.SIGINT, previous[0])
        signal.signal(signal.SIGTERM, previous[1])


def _unrepeated(show: Callable[[int, dict[str, Any]], None]) -> Callable[[int, dict[str, Any]], None]:
    """``show``, but what keeps one run of a race from being compiled, and so the others, is said once."""
    said: set[str] = set()

    def shown(index: int, record: dict[str, Any]) -> None:
        if record["type"] == "compiled" and not record["ok"]:
            if record["message"] in said:
                return
            said.add(record["message"])
        show(index, record)

    return shown


def _advance(progress: Progress, task: Any, record: dict[str, Any]) -> None:
    if record["type"] == "step":
        progress.update(task, completed=record["step"] + 1)
    elif record["type"] == "evaluation":
        progress.update(task, loss=f"val {record['val_loss']:.4f}")
    elif record["type"] in ("diverged", "failed"):
        progress.update(task, loss=record["type"])
        progress.console.print(_message(record), markup=False, highlight=False)
    elif record["type"] == "compiled":
        progress.console.print(_message(record), markup=False, highlight=False)


def _plain(console: Console, name: str, record: dict[str, Any]) -> None:
    if record["type"] == "evaluation":
        console.print(f"{name} step {record['step']} val_loss {record['val_loss']:.4f}", markup=False, highlight=False, soft_wrap=True)
    elif record["type"] in ("diverged", "failed", "compiled"):
        console.print(f"{name} {_message(record)}", markup=False, highlight=False, soft_wrap=True)


def _message(record: dict[str, Any]) -> str:
    if record["type"] == "compiled":
        return f"step {record['step']}: {record['message']}"
    why = record.get("message") or f"the {record['quantity']} is not finite; {record['cause']}"
    return f"{record['type']} at step {record['step']}: {why}"


@app.command(hidden=True)
def worker(race: Annotated[Path | None, typer.Option()] = None, run: Annotated[list[str] | None, typer.Option()] = None) -> None:
    """Train a race in the background; without one, wait for it on standard input. Started by the explorer."""
    from nqlab.runs import worker as work

    raise typer.Exit(work.main(race, run or []) if race else work.wait())


@app.command(hidden=True)
def cell_worker() -> None:
    """Train cells of a study, named on standard input one a line. Started by a sweep."""
    from nqlab.runs import cells

    raise typer.Exit(cells.serve())


# --- studies

Values = Annotated[str | None, typer.Option(help="Values to try, with commas between them.")]


@app.command()
@checked
def sweep(
    study: Annotated[str | None, typer.Argument(help="A study file, or the name of a study begun here; or none, and the options.")] = None,
    name: Annotated[str | None, typer.Option(help="What to call it (default: from its contents).")] = None,
    preset: Annotated[str, typer.Option(help="Where every cell starts from.")] = "tiny",
    arm: Annotated[list[str] | None, typer.Option("--arm", help="A variant; several times (default: linear and nonlinear).")] = None,
    baseline: Annotated[str | None, typer.Option(help="The arm the others are compared with (default: the first).")] = None,
    learning_rate: Values = None,
    weight_decay: Values = None,
    bottleneck: Values = None,
    grid: Annotated[list[str] | None, typer.Option(help="Any setting: model.n_layer=2,4; several times.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Paired seeds: 0, 1, ...")] = 3,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A setting for all cells, as training.steps=500.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes of one thread each (default: one a core).")] = None,
    scheduler: Annotated[str | None, typer.Option(help="tcp://HOST:PORT of a dask scheduler, to use its workers instead.")] = None,
    runs_dir: RunsDir = None,
    json_: JsonFlag = False,
) -> None:
    """Fill a study: arms x grid x seeds. Ctrl-C keeps what is done; the same command goes on."""
    from nqlab.runs.study import Study, folder_of, read_study
    from nqlab.runs.sweep import Sweep, save_study

    folder = _folder(runs_dir)
    if study is None:
        arms = tuple(arm or ("linear", "nonlinear"))
        axes = {"learning_rate": learning_rate, "weight_decay": weight_decay, "bottleneck": bottleneck}
        axes |= dict(_assignment(text) for text in grid or [])
        data = {
            "preset": preset, "arms": arms, "baseline": baseline or arms[0], "seeds": tuple(range(seeds)),
            "grid": {key: _values(key, text) for key, text in axes.items() if text is not None},
            "settings": dict(_assignment(text) for text in set_ or []),
        }  # fmt: skip
        wanted = Study.of({"name": name or _study_name(data), **data})
    else:
        path = Path(study)
        wanted = read_study(path) if path.suffix == ".json" else folder_of(folder, study).study
    place = save_study(folder, wanted)
    raise typer.Exit(_fill(Sweep(place, workers), scheduler, json_))


def _values(key: str, text: str) -> tuple[Any, ...]:
    values = tuple(part.strip() for part in text.split(",") if part.strip())
    if not values:
        raise ValueError(f"{key} {text!r} holds no value; write them as 1e-3,3e-3")
    return values


def _study_name(data: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode("utf-8")).hexdigest()
    return f"{data['preset']}-{digest[:6]}"


def _fill(filling: Any, scheduler: str | None, json_: bool) -> int:
    """Fill a study with a progress display for a person or plain lines for a pipe; the exit code."""
    from nqlab.analysis.estimate import in_words

    console = err if json_ else out
    previous = signal.signal(signal.SIGINT, filling.interrupt), signal.signal(signal.SIGTERM, filling.interrupt)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} cells  {task.fields[left]}"))
    try:
        with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
            task = bar.add_task(filling.study.name, total=None, left="")

            def show(p: Any) -> None:
                left = "" if p.left_s is None else f"{in_words(p.left_s)} left"
                bar.update(task, total=p.total, completed=p.ended, left=left)
                if not console.is_terminal and p.cell:
                    line = f"{filling.study.name} {p.ended}/{p.total} cell {p.cell} {p.end} {left}"
                    console.print(line, markup=False, highlight=False, soft_wrap=True)

            filling.listener = show
            code: int = filling.run(scheduler)
    finally:
        signal.signal(signal.SIGINT, previous[0])
        signal.signal(signal.SIGTERM, previous[1])
    stands = filling.progress()
    summary = {"study": filling.study.name, "ended": stands.ended, "total": stands.total, "failed": stands.failed}
    summary |= {"folder": str(filling.place.folder)}
    print_json(summary) if json_ else out.print(
        f"{stands.ended} of {stands.total} cells, {stands.failed} failed; see: python -m nqlab compare {filling.study.name}",
        highlight=False,
    )
    return 130 if filling.interrupted else code


@app.command("compare")
@checked
def compare_command(
    target: Annotated[str, typer.Argument(help="The name of a study here or shipped, a study file, packed results, or a folder of those.")],
    baseline: Annotated[str | None, typer.Option(help="The arm to compare with (default: the study's).")] = None,
    arm: Annotated[list[str] | None, typer.Option("--arm", help="Only these; fewer arms, narrower intervals.")] = None,
    at: Annotated[
        list[str] | None, typer.Option("--at", help="A setting fixed beforehand, as learning_rate=1e-3: only there at the same settings.")
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", help="Compare the values of this setting instead of the arms, as training.dtype.")
    ] = None,
    runs_dir: RunsDir = None,
    json_: JsonFlag = False,
) -> None:
    """The verdicts of a study: at the same settings, and at equal tuning; how large, how sure, over how many pairs."""
    from nqlab.analysis import studies
    from nqlab.analysis.comparison import compare, cost_words
    from nqlab.analysis.sentences import sentence

    if by is not None:
        _compare_values(studies.find(target, _folder(runs_dir)), by, json_)
        return
    rows = []
    for filled in studies.find(target, _folder(runs_dir)):
        fixed = _fixed(filled.study.base, at or [])
        rows += [{"study": filled.study.name, **row} for row in compare(filled, baseline, arm or None, fixed).rows]
    if json_:
        print_json(rows)
        return
    for row in rows:
        where = f"{row['study']} · {row['size']} · {row['budget']}: "
        out.print(where + sentence(row), markup=False, highlight=False, soft_wrap=True)
        if costs := cost_words(row):
            out.print(f"    {costs}", style="dim", markup=False, highlight=False, soft_wrap=True)


def _compare_values(found: Sequence[Any], field: str, json_: bool) -> None:
    from nqlab.analysis.verdict import by_field

    rows = []
    for filled in found:
        names = filled.study.base.flat()
        full = field if field in names else next((k for k in names if k.split(".")[-1] == field), None)
        if full is None:
            raise ValueError(f"there is no setting {field!r}; settings are {', '.join(names)}")
        rows += [{"study": filled.study.name, **row} for row in by_field(filled.results, full)]
    if not rows:
        raise ValueError(f"no two runs differ in {field} alone; there is nothing to compare")
    print_json(rows) if json_ else print_table(
        rows, ["study", "arm", "value", "against", "mean", "low", "high", "n", "verdict", "noise_floor"]
    )


def _fixed(base: RunConfig, at: Sequence[str]) -> dict[str, Any] | None:
    """``--at`` as dotted fields with their values, checked like any setting."""
    if not at:
        return None
    changed = replace(base, dict(_assignment(text) for text in at)).flat()
    keys = [key if "." in key else next((k for k in changed if k.split(".")[-1] == key), key) for key, _ in map(_assignment, at)]
    return {key: changed[key] for key in keys}


@app.command("ladder")
@checked
def ladder_command(
    target: Annotated[str, typer.Argument(help="The name of a study of several sizes, here or shipped, a study file, or packed results.")],
    arm: Annotated[str | None, typer.Option(help="The arm to compare with the baseline (default: the study's first).")] = None,
    runs_dir: RunsDir = None,
    json_: JsonFlag = False,
) -> None:
    """How the difference changes with size: nats per doubling of parameters and of compute, with the fits' intervals."""
    from nqlab.analysis import studies
    from nqlab.analysis.ladder import fit_rows, ladder_rows, ladders, slope_sentence

    found = [ladder for filled in studies.find(target, _folder(runs_dir)) for ladder in ladders(filled, arm)]
    if not found:
        raise ValueError(f"{target!r} has no size at which two arms make a pair; a ladder needs a grid over model.n_embd or model.n_layer")
    if json_:
        print_json({"rungs": ladder_rows(found), "fits": fit_rows(found)})
        return
    print_table(ladder_rows(found), ["budget", "size", "baseline_parameters", "mean", "low", "high", "n", "verdict"])
    for ladder in found:
        for against in ("parameters", "flops"):
            out.print(f"{ladder.budget}: {slope_sentence(ladder, against)}", markup=False, highlight=False, soft_wrap=True)


@app.command("stability")
@checked
def stability_command(
    target: Annotated[str, typer.Argument(help="The name of a study here or shipped, a study file, packed results, or a folder of those.")],
    runs_dir: RunsDir = None,
    json_: JsonFlag = False,
) -> None:
    """Where training survives: every setting of a study, how many of its seeds learnt, and their mean final loss."""
    from nqlab.analysis import studies
    from nqlab.analysis.stability import AXES, cells

    found = studies.find(target, _folder(runs_dir))
    rows = [{"study": filled.study.name, **cell.record()} for filled in found for cell in cells(filled.results)]
    print_json(rows) if json_ else print_table(rows, ["study", "arm", *AXES, "mean_loss", "learnt", "of", "diverged_at"])


@studies_app.command("list")
@checked
def studies_list(runs_dir: RunsDir = None, json_: JsonFlag = False) -> None:
    """All studies: what they ask and how far they are."""
    from nqlab.analysis import studies

    rows = studies.sources([*studies.here(_folder(runs_dir)), *studies.shipped()])
    print_json(rows) if json_ else print_table(rows, ["study", "question", "ended", "shipped"])


@studies_app.command("stop")
@checked
def studies_stop(name: str, runs_dir: RunsDir = None, json_: JsonFlag = False) -> None:
    """Stop filling a study; what is done is kept, and `sweep NAME` goes on."""
    from nqlab.runs.study import folder_of
    from nqlab.runs.sweep import sweeper

    place = folder_of(_folder(runs_dir), name)
    if sweeper(place) is None:
        raise ValueError(f"nobody is filling the study {place.study.name!r}; there is nothing to stop")
    place.command("stop")
    print_json({"study": name, "stopping": True}) if json_ else out.print(f"{name} is being stopped", markup=False, highlight=False)


@studies_app.command("pack")
@checked
def studies_pack(
    name: str,
    to: Annotated[Path, typer.Option(help="The folder to write to.")] = Path(),
    runs_dir: RunsDir = None,
    json_: JsonFlag = False,
) -> None:
    """Write a study's results as files to share: the study, a table of runs with their curves, and a receipt."""
    from nqlab.analysis import studies
    from nqlab.runs.study import folder_of

    paths = [str(p) for p in studies.pack(studies.of_folder(folder_of(_folder(runs_dir), name)), to)]
    print_json({"study": name, "files": paths}) if json_ else out.print("\n".join(paths), markup=False, highlight=False, soft_wrap=True)


# --- runs


def _folder(runs_dir: Path | None) -> Path:
    return runs_dir.absolute() if runs_dir else settings.runs_dir()


@runs_app.command("list")
@checked
def runs_list(runs_dir: RunsDir = None, json_: JsonFlag = False) -> None:
    """All runs, newest first."""
    from nqlab.runs import store

    rows = [run.summary() for run in store.runs(_folder(runs_dir))]
    print_json(rows) if json_ else print_table(rows, ["id", "name", "status", "learning_rate", "seed", "step", "val_loss"])


@runs_app.command("show")
@checked
def runs_show(run: RunArgument, runs_dir: RunsDir = None, json_: JsonFlag = False) -> None:
    """One run: how it stands, its configuration, its circumstances."""
    from nqlab.runs import store

    found = store.find(_folder(runs_dir), run)
    data = found.summary() | {"folder": str(found.folder), "config": found.config.flat(), "meta": found.meta}
    if json_:
        print_json(data)
        return
    for key, value in data.items():
        for name, item in value.items() if isinstance(value, dict) else [(key, value)]:
            out.print(f"{name:<28} {_cell(item)}", markup=False, highlight=False, soft_wrap=True)


@runs_app.command("resume")
@checked
def runs_resume(run: RunArgument, runs_dir: RunsDir = None, json_: JsonFlag = False) -> None:
    """Go on with a stopped or interrupted run from its checkpoint, as if it had never stopped."""
    from nqlab.runs import launch, store

    found = store.find(_folder(runs_dir), run)
    race = launch.reopen([found])
    raise typer.Exit(_work(race, [found], [found.config], json_))


@runs_app.command("stop")
@checked
def runs_stop(run: RunArgument, runs_dir: RunsDir = None, json_: JsonFlag = False) -> None:
    """Stop the race this run is in, after the update in progress; everything is kept."""
    from nqlab.runs import store

    found = store.find(_folder(runs_dir), run)
    if found.status() not in store.ACTIVE:
        raise ValueError(f"run {found.name} is {found.status()}; there is nothing to stop")
    found.race.command("stop")
    _report(found, json_, "is being stopped")


@runs_app.command("rename")
@checked
def runs_rename(run: RunArgument, name: str, runs_dir: RunsDir = None, json_: JsonFlag = False) -> None:
    """Give a run another name."""
    from nqlab.runs import store

    found = store.find(_folder(runs_dir), run)
    found.relabel(name=name)
    _report(found, json_, "renamed")


@runs_app.command("note")
@checked
def runs_note(run: RunArgument, note: str, runs_dir: RunsDir = None, json_: JsonFlag = False) -> None:
    """Say something about a run."""
    from nqlab.runs import store

    found = store.find(_folder(runs_dir), run)
    found.relabel(note=note)
    _report(found, json_, "noted")


@runs_app.command("tag")
@checked
def runs_tag(
    run: RunArgument,
    tags: Annotated[list[str] | None, typer.Argument(help="The tags it has from now on; none takes all away.")] = None,
    runs_dir: RunsDir = None,
    json_: JsonFlag = False,
) -> None:
    """File a run under some words, in place of those it has."""
    from nqlab.runs import store

    found = store.find(_folder(runs_dir), run)
    found.relabel(tags=tags or [])
    _report(found, json_, f"is tagged {', '.join(found.label['tags'])}" if tags else "has no tags")


@runs_app.command("again")
@checked
def runs_again(run: RunArgument, runs_dir: RunsDir = None, json_: JsonFlag = False) -> None:
    """Train a run's configuration once more, and say whether the same losses come out. Exit code 1 where they differ."""
    from nqlab.analysis import receipt
    from nqlab.runs import again, store

    found = store.find(_folder(runs_dir), run)
    race, repetition = again.create(found)
    code = _train_shown(race, [repetition], [found.config], json_)
    agreement = receipt.compare(found, repetition)
    print_json({"run": found.id, "repetition": repetition.summary(), **agreement.record()}) if json_ else out.print(
        f"{repetition.name} and {found.name} are {agreement.sentence()}", markup=False, highlight=False, soft_wrap=True
    )
    raise typer.Exit(code if code == 130 else int(agreement.word not in ("bitwise equal", "within tolerance")))


@runs_app.command("receipt")
@checked
def runs_receipt(run: RunArgument, runs_dir: RunsDir = None, json_: JsonFlag = False) -> None:
    """What a run can be recognised and repeated by: hashes, versions, device, threads."""
    from nqlab.analysis import receipt
    from nqlab.runs import store

    told = receipt.receipt(store.find(_folder(runs_dir), run))
    if json_:
        print_json(told)
        return
    for row in receipt.receipt_rows(told):
        out.print(f"{row['what']:<20} {row['value']}", markup=False, highlight=False, soft_wrap=True)


@runs_app.command("delete")
@checked
def runs_delete(run: RunArgument, runs_dir: RunsDir = None, json_: JsonFlag = False) -> None:
    """Move a run to the trash; `runs undelete` brings it back."""
    from nqlab.runs import store

    found = store.find(_folder(runs_dir), run)
    data = {"id": found.id, "name": found.name, "deleted": True}
    store.delete(found)
    print_json(data) if json_ else out.print(
        f"{data['name']} is in the trash; bring it back with: python -m nqlab runs undelete {found.id}"
    )


@runs_app.command("undelete")
@checked
def runs_undelete(run_id: str, runs_dir: RunsDir = None, json_: JsonFlag = False) -> None:
    """Bring a deleted run back from the trash."""
    from nqlab.runs import store

    _report(store.undelete(_folder(runs_dir), run_id), json_, "is back")


@runs_app.command("export")
@checked
def runs_export(
    run: RunArgument,
    to: Annotated[Path | None, typer.Option("--out", help="The zip file to write (default: ID.zip here).")] = None,
    runs_dir: RunsDir = None,
    json_: JsonFlag = False,
) -> None:
    """Write a run as a zip: configuration, circumstances, events, weights, and the curve as CSV."""
    from nqlab.runs import exporting, store

    found = store.find(_folder(runs_dir), run)
    path = to or Path(f"{found.id}.zip")
    exporting.write_archive(found, path)
    _report(found, json_, f"written to {path}", file=str(path))


@runs_app.command("import")
@checked
def runs_import(
    file: Annotated[Path, typer.Argument(help="A zip that `runs export` or the page Runs wrote.")],
    runs_dir: RunsDir = None,
    json_: JsonFlag = False,
) -> None:
    """Take an exported run in; one that is here already is left as it is."""
    from nqlab.runs.importing import import_file

    imported = import_file(_folder(runs_dir), file)
    said = {"imported": "is imported", "already here": "is already here"}
    _report(imported.run, json_, said.get(imported.outcome, f"is imported as {imported.run.id}"), outcome=imported.outcome)


def _report(run: Any, json_: bool, what: str, **more: Any) -> None:
    print_json(run.summary() | more) if json_ else out.print(f"{run.name} {what}", markup=False, highlight=False, soft_wrap=True)


@app.command()
@checked
def generate(
    run: RunArgument,
    prompt: Annotated[str, typer.Option(help="What the text begins with.")] = "",
    length: Annotated[int, typer.Option(min=1, help="Characters to add.")] = 200,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 takes the likeliest character.")] = 0.8,
    top_k: Annotated[int, typer.Option(help="Only the k likeliest characters; clamped to what there is.")] = 40,
    seed: Annotated[int, typer.Option()] = 0,
    runs_dir: RunsDir = None,
    json_: JsonFlag = False,
) -> None:
    """Write text with a run's newest checkpoint; a run that trains is not disturbed."""
    from nqlab.runs import store
    from nqlab.runs.worker import generate_text

    found = store.find(_folder(runs_dir), run)
    text, step = generate_text(found, prompt, length, temperature, top_k, seed)
    if json_:
        print_json({"id": found.id, "step": step, "prompt": prompt, "text": text, "seed": seed})
    else:
        sys.stdout.write(prompt + text + "\n")


@app.command("microscope")
@checked
def microscope_command(
    runs: Annotated[list[str], typer.Argument(help="Ids or names of runs, or how they begin.")],
    runs_dir: RunsDir = None,
    json_: JsonFlag = False,
) -> None:
    """What the query of trained runs does, layer by layer, measured on validation text at their newest checkpoints."""
    from nqlab.analysis import microscope
    from nqlab.runs import store
    from nqlab.runs.worker import load_model

    found = [store.find(_folder(runs_dir), run) for run in runs]
    looks = [microscope.look(*load_model(run)) for run in found]
    if json_:
        print_json([{"id": run.id, "name": run.name, **look.record()} for run, look in zip(found, looks)])
        return
    rows = [row for run, look in zip(found, looks) for row in microscope.layer_rows({run.name: look})]
    print_table(rows, list(rows[0]))


@app.command()
@checked
def examine(
    skips: Annotated[str, typer.Option(help="Identity skips: none, attention, mlp or both.")] = "both",
    norm: Annotated[str, typer.Option(help="The norm before each block: none, rmsnorm or layernorm.")] = "layernorm",
    positions: Annotated[str, typer.Option(help="learned or rope.")] = "learned",
    tied: Annotated[bool, typer.Option("--tied", help="The output is the token embedding.")] = False,
    shared_query: Annotated[bool, typer.Option("--shared-query", help="One W_Q for all layers.")] = False,
    biases: Annotated[bool, typer.Option("--biases", help="Biases in every matrix.")] = False,
    n_embd: Annotated[int, typer.Option(help="Width C.")] = 16,
    n_head: Annotated[int, typer.Option(help="Heads H.")] = 4,
    n_layer: Annotated[int, typer.Option(help="Layers.")] = 4,
    condition: Annotated[float, typer.Option(help="W_Q's condition number.")] = 10.0,
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    json_: JsonFlag = False,
) -> None:
    """Which W_Q one transformer can do without: what the rule says, and the errors of the outputs on random weights."""
    from nqlab.analysis.redundancy.architecture import Architecture
    from nqlab.analysis.redundancy.examine import errors_of

    given: dict[str, Any] = {"skips": skips, "norm": norm, "positions": positions, "tied": tied, "shared_query": shared_query}
    architecture = Architecture(n_embd=n_embd, n_head=n_head, n_layer=n_layer, biases=biases, **given)
    record = errors_of(architecture, condition, dtype).record()
    if json_:
        print_json(record)
        return
    out.print(f"{record['verdict']}: {record['sentence']}", markup=False, highlight=False, soft_wrap=True)
    for name, error in record["errors"].items():
        value = "not possible here" if error is None else f"{error:.1e}"
        out.print(f"{name:<20} {value}", markup=False, highlight=False)


@app.command()
@checked
def redundancy(
    case: Annotated[int | None, typer.Option(help="One of the ten cases; all without it.")] = None,
    n_embd: Annotated[int, typer.Option(help="Width C.")] = 16,
    n_head: Annotated[int, typer.Option(help="Heads H.")] = 4,
    n_layer: Annotated[int, typer.Option(help="Layers.")] = 4,
    seed: Annotated[int, typer.Option()] = 0,
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    json_: JsonFlag = False,
) -> None:
    """Where W_Q can be absorbed exactly, and where not: ten cases, computed. Exit code 1 when one comes out otherwise."""
    from nqlab.analysis.redundancy.cases import run_case, run_cases

    sizes = (n_embd, n_head, n_layer, seed, dtype)
    results = run_cases(*sizes) if case is None else [run_case(case, *sizes)]
    if json_:
        print_json([result.record() for result in results])
    else:
        rows = [result.record() | {"exact": _exactness(result.exact, result.expected_exact)} for result in results]
        for row in rows:
            row["error"] = f"{row['error']:.1e}"
        print_table(rows, ["case", "title", "transformed", "w_q", "error", "exact", "parameters_saved"])
    raise typer.Exit(int(any(result.exact != result.expected_exact for result in results)))


def _exactness(exact: bool, expected: bool) -> str:
    if exact != expected:
        return "exact, UNEXPECTED" if exact else "wrong, UNEXPECTED"
    return "exact" if exact else "wrong, as expected"


@app.command()
@checked
def latency(
    preset: Annotated[str | None, typer.Option(help="The size of the models, with random weights (default: tiny).")] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option("--arm", help="A variant; several times (default: linear, nonlinear, identity). The first is the baseline."),
    ] = None,
    run: Annotated[list[str] | None, typer.Option(help="A trained run instead of a preset and arms; several times.")] = None,
    context: Annotated[list[int] | None, typer.Option(help="Tokens; several times (default: the powers of two up to block_size).")] = None,
    repeats: Annotated[int, typer.Option(help="How often everything is measured.")] = 30,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    runs_dir: RunsDir = None,
    json_: JsonFlag = False,
    lines: Annotated[bool, typer.Option("--json-lines", help="Every single reading as a line of JSON, as it comes.")] = False,
) -> None:
    """Time in use: prefill and one more token, per variant and context; Ctrl-C shows what is known by then."""
    from nqlab.analysis import latency as told
    from nqlab.runs import latency as timing
    from nqlab.runs import store

    if run and (preset or arm):
        raise ValueError("--run and --preset or --arm do not go together: a run has a size and an arm of its own; leave one out")
    folder = _folder(runs_dir)
    if run:
        subjects = timing.of_runs([store.find(folder, text) for text in run])
    else:
        subjects = timing.of_preset(preset or "tiny", arm or ["linear", "nonlinear", "identity"])
    contexts = context or timing.contexts_up_to(min(subject.config.model.block_size for subject in subjects))
    if busy := timing.training_now(folder):
        err.print(f"note: {', '.join(busy)} trains at the same time; these times will be worth little", markup=False, highlight=False)
    coming = timing.records(subjects, contexts, repeats, threads=threads, device=device, runs_dir=folder)
    records, interrupted = _taken(coming, repeats * len(subjects) * len(contexts) * len(timing.KINDS), lines)
    if not lines:
        rows = told.summary(records, told.losses_of(records, told.sources(folder)))
        print_json(rows) if json_ else print_table(told.table(rows), list(told.table(rows)[0]) if rows else [])
    raise typer.Exit(130 if interrupted else 0)


def _taken(coming: Iterator[dict[str, Any]], total: int, lines: bool) -> tuple[list[dict[str, Any]], bool]:
    """All records, shown as they come: as lines of JSON, or as progress for a person; and whether Ctrl-C ended it."""
    records = []
    with Progress(console=err, transient=True, disable=lines or not err.is_terminal) as bar:
        task = bar.add_task("measuring", total=total)
        try:
            for record in coming:
                records.append(record)
                if lines:
                    sys.stdout.write(json.dumps(record) + "\n")
                    sys.stdout.flush()
                bar.update(task, completed=len(records) - 1)
        except KeyboardInterrupt:
            return records, True
    return records, False


@app.command()
@checked
def bench(
    size: Annotated[list[str] | None, typer.Option(help="T, S, M or L; may be given several times (default: T and S).")] = None,
    device: Annotated[str, typer.Option(help="cuda: characters a second of every variant there, and nothing else.")] = "auto",
    pages: Annotated[
        int | None, typer.Option(min=1, help="Only what so many open pages cost a race (30 are part of the whole measurement).")
    ] = None,
    json_: JsonFlag = False,
) -> None:
    """Measure speed as ratios against a plain reference; takes many minutes, on a machine without other work."""
    from nqlab.bench.harness import sizes

    if device != "auto" and size:
        raise ValueError(f"--size {size[0]} and --device {device} do not go together: a device is measured at its own size; leave one out")
    if unknown := [name for name in size or [] if name not in sizes()]:
        raise ValueError(f"size {unknown[0]!r} is unknown; choose {', '.join(sizes())}")
    if pages is not None:
        from nqlab.bench import room

        rows = room.room_rows(pages)
    else:
        rows = _ratios(size or ["T", "S"]) if device == "auto" else _rates(device)
    for row in rows:
        row["measured"] = row.get("absent") or f"{row.get('ratio', row.get('value')):.3g} {row['unit']} (± {row['spread']:.2g})"
    print_json(rows) if json_ else print_table(rows, ["figure", "size", "variant", "measured"])


def _ratios(chosen: Sequence[str]) -> list[dict[str, Any]]:
    from nqlab.bench import compiled, generation, room, serving, sweep, training

    rows = []
    for name in chosen:
        rows += training.training_rows(name) + generation.generation_rows(name) + training.memory_rows(name) + sweep.sweep_rows(name)
        rows += compiled.compiled_rows(name) if name == "S" else []  # a run of size T is over before it could be compiled
    return rows + serving.start_rows() + serving.tick_rows() + room.room_rows()


def _rates(device: str) -> list[dict[str, Any]]:
    from nqlab.bench.device import device_rows

    return device_rows(device)


def main() -> None:
    """Entry point."""
    app()
