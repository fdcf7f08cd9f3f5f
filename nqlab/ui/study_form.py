"""The form that describes a study, and what filling it would take."""

from __future__ import annotations

from typing import Any

import streamlit as st

from nqlab import corpus as corpora
from nqlab import presets, settings
from nqlab.analysis import estimate, studies
from nqlab.analysis.figures import title_of
from nqlab.analysis.progress import cost_s
from nqlab.presets import ARMS
from nqlab.runs import speed
from nqlab.runs.study import Study
from nqlab.ui import shared

FIELDS = {"learning_rate": "Learning rates", "weight_decay": "Weight decays", "bottleneck": "Bottleneck widths R"}
HELP = {
    "learning_rate": "Peak rates, with commas between them. Each arm is tried at each; at equal tuning the best of them counts.",
    "weight_decay": "AdamW's; empty: the preset's.",
    "bottleneck": "Width of f, for variants that have one; empty: C/2. The others are trained once for all widths.",
}


def define() -> Study | None:
    """Draw the form and what the study would cost; None, with the reason, where it describes none."""
    starts = {"an empty form": None} | {f.study.name: f.study for f in studies.shipped()}
    begin = starts[st.selectbox("Begin with", list(starts), key="sweep.begin", help="A shipped study as a start; change what you like.")]
    given = begin or Study(name="my-study", grid={"training.learning_rate": (3e-3, 1e-2, 3e-2)})
    key = f"sweep.{given.name}."
    left, right = st.columns(2)
    data: dict[str, Any] = {
        "name": left.text_input("Name", f"my-{given.name}" if begin else given.name, key=key + "name", help="Its folder: a-z, 0-9, -."),
        "preset": right.selectbox("Size", list(presets.PRESETS), list(presets.PRESETS).index(given.preset), key=key + "preset",
                                  help="Where every run starts from."),
        "question": st.text_input("Question", given.question, key=key + "question", help="What it asks, in one sentence."),
        "arms": tuple(st.multiselect("Variants", list(ARMS), list(given.arms), format_func=title_of, key=key + "arms",
                                     help="The first is the baseline that the others are compared with.")),
    }  # fmt: skip
    data["baseline"] = given.baseline if given.baseline in data["arms"] else next(iter(data["arms"]), "linear")
    columns = st.columns(len(FIELDS))
    grid = {name: column.text_input(title, _text(given, name), key=key + name, help=HELP[name])
            for column, (name, title) in zip(columns, FIELDS.items())}  # fmt: skip
    data["grid"] = {name: tuple(part.strip() for part in text.split(",") if part.strip()) for name, text in grid.items() if text.strip()}
    left, right = st.columns(2)
    data["seeds"] = tuple(range(left.number_input("Paired seeds", 1, 100, len(given.seeds), key=key + "seeds",
                                                  help="Three show little, five show a gap of a few hundredths of a nat.")))  # fmt: skip
    steps = right.number_input(
        "Steps", 1, 10_000_000, value=None, placeholder="the preset's", key=key + "steps", help="Empty: the preset's."
    )
    data["settings"] = given.settings | ({"steps": steps} if steps else {})
    try:
        study = Study.of(data)
    except ValueError as error:
        st.error(str(error))
        return None
    _cost(study)
    return study


def _text(study: Study, field: str) -> str:
    values = study.grid.get(field) or study.grid.get(f"training.{field}") or study.grid.get(f"model.{field}") or ()
    return ", ".join(str(value) for value in values)


def _cost(study: Study) -> None:
    step, cores = speed.measured(shared.runs_dir()), settings.cores()
    count = len(list(study.cells()))
    size = len(corpora.load(study.base.corpus).vocabulary)
    took = "(being measured)" if step is None else estimate.in_words(cost_s(study, size, step, cores))
    st.markdown(f"**{count} runs**, {took} with {cores} processes of one thread each. It can be stopped and goes on where it was.")
