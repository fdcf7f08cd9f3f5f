"""The command and the cell of the Latency page measure what the page measures."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from nqlab import cli
from nqlab.analysis.elsewhere import latency_cell, latency_command

GIVEN: Any = ("tiny", ["linear", "identity"], [2, 4], 3)


def test_the_command_measures_the_same_variants_and_contexts(runs_dir: Path) -> None:
    done = CliRunner().invoke(cli.app, [*shlex.split(latency_command(*GIVEN))[3:], "--json"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    assert {(row["variant"], row["context"]) for row in rows} == {(arm, n) for arm in GIVEN[1] for n in GIVEN[2]}


def test_the_cell_runs(runs_dir: Path) -> None:
    *lines, last = latency_cell(*GIVEN).splitlines()
    scope: dict[str, Any] = {}
    exec("\n".join([*lines, f"last = {last}"]), scope)
    assert len(scope["last"]) == 4
