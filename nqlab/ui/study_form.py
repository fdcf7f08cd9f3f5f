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
from nqlab.ui.help_texts import about
from nqlab.words import _, several

FIELDS = ("learning_rate", "weight_decay", "bottleneck")
EMPTY = "*empty*"  # no study can have this name


def define() -> Study | None:
    """Draw the form and what the study would cost; None, with the reason, where it describes none."""
    starts = {EMPTY: None} | {f.study.name: f.study for f in studies.shipped()}
    begin = starts[
        st.selectbox(
            _("Begin with"), list(starts), key="sweep.begin", format_func=lambda name: _("an empty form") if name == EMPTY else name,
            help=_("A shipped study as a start; change what you like."),
        )
    ]  # fmt: skip
    given = begin or Study(name="my-study", grid={"training.learning_rate": (3e-3, 1e-2, 3e-2)})
    key = f"sweep.{given.name}."
    data = _what(given, f"my-{given.name}" if begin else given.name, key)
    data["grid"] = _grid(given, key)
    data |= _how_much(given, key)
    try:
        study = Study.of(data)
    except ValueError as error:
        st.error(str(error))
        return None
    _cost(study)
    return study


def _what(given: Study, name: str, key: str) -> dict[str, Any]:
    """Name, size, question, arms and baseline."""
    left, right = st.columns(2)
    data: dict[str, Any] = {
        "name": left.text_input(_("Name"), name, key=key + "name", help=_("Its folder: a-z, 0-9, -.")),
        "preset": right.selectbox(_("Size"), list(presets.PRESETS), list(presets.PRESETS).index(given.preset), key=key + "preset",
                                  help=_("Where every run starts from.") + " " + about("preset")),
        "question": st.text_input(_("Question"), given.question, key=key + "question", placeholder=_("optional"),
                                  help=_("What it asks, in one sentence.")),
        "arms": tuple(st.multiselect(
            _("Variants"), list(ARMS), list(given.arms), format_func=title_of, key=key + "arms",
            help=_("The first is the baseline that the others are compared with.") + "  \n" + about("arms"),
        )),
    }  # fmt: skip
    data["baseline"] = given.baseline if given.baseline in data["arms"] else next(iter(data["arms"]), "linear")
    return data


def _grid(given: Study, key: str) -> dict[str, tuple[str, ...]]:
    """The values to try of each setting; one that is left empty is not varied. What else the study varies stays as it is."""
    titles = {"learning_rate": _("Learning rates"), "weight_decay": _("Weight decays"), "bottleneck": _("Bottleneck widths R")}
    helps = {
        "learning_rate": _("Peak rates, with commas between them. Each arm is tried at each; at equal tuning the best of them counts."),
        "weight_decay": _("AdamW's; empty: the preset's."),
        "bottleneck": _("Width of f, for variants that have one; empty: C/2. The others are trained once for all widths."),
    }
    empty = {"learning_rate": _("the preset's"), "weight_decay": _("the preset's"), "bottleneck": "C/2"}
    grid = {
        name: column.text_input(
            titles[name], _text(given, name), key=key + name, help=helps[name] + "  \n" + about(name), placeholder=empty[name]
        )
        for column, name in zip(st.columns(len(FIELDS)), FIELDS)
    }
    typed = {name: tuple(part.strip() for part in text.split(",") if part.strip()) for name, text in grid.items() if text.strip()}
    others = {name: values for name, values in given.grid.items() if name.split(".")[-1] not in FIELDS}
    if others:
        fields = "; ".join(f"{name.split('.')[-1]} {', '.join(map(str, values))}" for name, values in others.items())
        st.caption(_("Varied as well: {fields}.").format(fields=fields))
    return others | typed


def _how_much(given: Study, key: str) -> dict[str, Any]:
    """Seeds, and the settings of all runs."""
    left, right = st.columns(2)
    seeds = left.number_input(_("Paired seeds"), 1, 100, len(given.seeds), key=key + "seeds",
                              help=_("Three show little, five show a gap of a few hundredths of a nat."))  # fmt: skip
    steps = right.number_input(_("Steps"), 1, 10_000_000, value=None, placeholder=_("the preset's"), key=key + "steps",
                               help=_("Empty: the preset's.") + " " + about("steps"))  # fmt: skip
    return {"seeds": tuple(range(seeds)), "settings": given.settings | ({"steps": steps} if steps else {})}


def _text(study: Study, field: str) -> str:
    values = study.grid.get(field) or study.grid.get(f"training.{field}") or study.grid.get(f"model.{field}") or ()
    return ", ".join(str(value) for value in values)


def _cost(study: Study) -> None:
    step, cores = speed.measured(shared.runs_dir()), settings.cores()
    count = len(list(study.cells()))
    size = len(corpora.load(study.base.corpus).vocabulary)
    took = _("(being measured)") if step is None else estimate.in_words(cost_s(study, size, step, cores))
    runs = several("{n} run", "{n} runs", count).format(n=count)
    text = _("**{runs}**, {time} with {cores} processes of one thread each. It can be stopped and goes on where it was.")
    st.markdown(text.format(runs=runs, time=took, cores=cores))
