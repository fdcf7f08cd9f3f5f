"""The controls of an experiment, in the sidebar. Each can be hidden or locked by the address, and each has its help."""

from __future__ import annotations

from functools import partial
from typing import Any

import streamlit as st

from nqlab import corpus as corpora
from nqlab import presets, slots
from nqlab.analysis.figures import title_of
from nqlab.training.device import formats
from nqlab.ui import form, own_text, visit
from nqlab.ui.form import CHOICES, FLOATS, INTEGERS, OPTIONAL, PROMPT, SWITCHES, Form, key
from nqlab.ui.help_texts import about
from nqlab.words import _

SHOWN_PRESETS = ("tiny", "small", "medium", "gpu")
RATES = [m * 10.0**e for e in range(-4, 0) for m in (1, 2, 3, 5, 7)] + [1.0]
DECAYS = [0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]


def draw() -> Form:
    """Draw them and read them."""
    form.begin()
    with st.container(key="controls"):
        _front()
        if not visit.hidden("advanced"):
            with st.expander(_("Advanced")):
                _advanced()
    return form.read()


def _keep(name: str) -> dict[str, Any]:
    short = name.rsplit(".", maxsplit=1)[-1]
    return {"key": key(name), "help": about(short), "disabled": visit.locked(short), "persist_state": "session"}


def _with_present(values: list[float], name: str) -> list[float]:
    """The values of a slider, and the present one where it is none of them: links may hold any."""
    return sorted({*values, st.session_state[key(name)]})


def _front() -> None:
    sizes = list(dict.fromkeys([*SHOWN_PRESETS, st.session_state[key("preset")]]))
    if not visit.hidden("preset"):
        st.selectbox(_("Size"), sizes, format_func=_size, on_change=form.adopt_preset, **_keep("preset"))
    if not visit.hidden("corpus"):
        _corpus()
    if not visit.hidden("arms"):
        st.multiselect(_("Variants"), list(presets.ARMS), format_func=title_of, **_keep("arms"))
    if not visit.hidden("bottleneck"):
        st.number_input(_("Bottleneck width R"), 1, **_keep("model.bottleneck"))
    for name, title, values in (
        ("training.learning_rate", _("Learning rate"), RATES),
        ("training.weight_decay", _("Weight decay"), DECAYS),
    ):
        if not visit.hidden(name.split(".")[-1]):
            st.select_slider(title, _with_present(values, name), format_func=lambda r: f"{r:g}", **_keep(name))
    left, right = st.columns(2)
    if not visit.hidden("seed"):
        left.number_input(_("Seed"), 0, **_keep("seed"))
    if not visit.hidden("steps"):
        right.number_input(_("Steps"), 1, 10_000_000, step=100, **_keep("training.steps"))


def _size(name: str) -> str:
    """A preset's name and shape."""
    model = presets.preset(name).model
    return name + _(": {layers} layers, C {width}").format(layers=model.n_layer, width=model.n_embd)


def _corpus() -> None:
    names = corpora.available()
    if st.session_state[key("corpus")] not in names:
        names = {st.session_state[key("corpus")]: _("a text that is not here")} | names
    st.selectbox(_("Text"), list(names), format_func=lambda name: _(names[name]), **_keep("corpus"))
    if not visit.hidden("own_text") and not visit.locked("corpus"):
        own_text.draw()


def _entry(slot: str, name: str) -> str:
    """What people read for a choice: an entry's title, which also says where it is a reconstruction."""
    return _(slots.SLOTS[slot][name].title) if name in slots.SLOTS.get(slot, {}) else name


def _advanced() -> None:
    for name in INTEGERS:
        change: dict[str, Any] = {"on_change": form.halve_bottleneck} if name == "model.n_embd" else {}
        st.number_input(name.split(".")[1], 0, **change, **_keep(name))
    for name in FLOATS:
        st.number_input(name.split(".")[1], 0.0, step=0.01, format="%.4g", **_keep(name))
    for name in OPTIONAL:
        whole = name.endswith(("steps", "hidden", "threads", "experts", "top_k"))
        bounds: dict[str, Any] = {"min_value": 0} if whole else {"min_value": 0.0, "step": 0.0001, "format": "%.4g"}
        st.number_input(name.split(".")[1], value=None, placeholder=_("default"), **bounds, **_keep(name))
    options = {"device": ["auto", "cpu", "cuda", "mps"], "dtype": formats()}
    for name in CHOICES:
        short = name.split(".")[1]
        offered = options.get(short) or list(slots.SLOTS[short])
        st.selectbox(short, list(dict.fromkeys([*offered, st.session_state[key(name)]])), format_func=partial(_entry, short), **_keep(name))
    for name in SWITCHES:
        st.checkbox(name.split(".")[1], **_keep(name))
    st.text_input(PROMPT.split(".")[1], **_keep(PROMPT))
