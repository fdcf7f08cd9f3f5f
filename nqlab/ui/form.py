"""The controls: from widgets to validated configurations, or one line that says what does not fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from nqlab import corpus as corpora
from nqlab import presets, slots
from nqlab.config import ModelConfig, RunConfig, TrainingConfig, replace
from nqlab.runs import launch
from nqlab.training.device import formats

SHOWN_PRESETS = ("tiny", "small", "medium", "gpu")
RATES = [m * 10.0**e for e in range(-4, 0) for m in (1, 2, 3, 5, 7)] + [1.0]
DECAYS = [0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]
DEFAULT_ARMS = ["linear", "nonlinear", "identity"]
INTEGERS = (
    "model.n_layer", "model.n_head", "model.n_embd", "model.block_size", "training.batch_size",
    "training.eval_interval", "training.eval_windows", "training.sample_interval", "training.checkpoint_interval",
)  # fmt: skip
FLOATS = ("model.dropout", "training.grad_clip", "model.init_std")
OPTIONAL = (
    "training.min_lr",
    "training.warmup_steps",
    "model.query_scale",
    "model.query_output_gain",
    "model.ffn_hidden",
    "training.threads",
)
SWITCHES = ("model.tied", "training.compile")
CHOICES = {
    "model.norm": list(slots.NORM),
    "model.activation": list(slots.ACTIVATION),
    "training.device": ["auto", "cpu", "cuda", "mps"],
    "training.dtype": ["float32"],
}


@dataclass(frozen=True)
class Form:
    """What the controls describe: configurations to race, or the reason why there are none."""

    configs: list[RunConfig] = field(default_factory=list)
    corpus: corpora.Corpus | None = None
    error: str | None = None


def _key(name: str) -> str:
    return f"form.{name}"


def _adopt_preset() -> None:
    """Put the chosen preset's values into the widgets."""
    config = presets.preset(st.session_state.get(_key("preset"), "tiny"))
    flat = config.flat()
    state = st.session_state
    state[_key("learning_rate")] = min(RATES, key=lambda r: abs(r - config.training.learning_rate))
    state[_key("weight_decay")] = config.training.weight_decay
    state[_key("steps")] = config.training.steps
    state[_key("bottleneck")] = config.model.n_embd // 2
    for name in (*INTEGERS, *FLOATS, *CHOICES):
        state[_key(name)] = flat[name]
    for name in OPTIONAL:
        state[_key(name)] = None
    for name in SWITCHES:
        state[_key(name)] = flat[name]
    state[_key("training.sample_prompt")] = config.training.sample_prompt.replace("\n", "\\n")


def _halve_bottleneck() -> None:
    st.session_state[_key("bottleneck")] = max(1, int(st.session_state[_key("model.n_embd")] or 2) // 2)


def _help(name: str) -> str | None:
    section, _, short = name.partition(".")
    model = ModelConfig if section == "model" else TrainingConfig
    return model.model_fields[short].description


def controls() -> Form:
    """Draw the sidebar and read it."""
    state = st.session_state
    if _key("learning_rate") not in state:
        _adopt_preset()
    keep: dict[str, Any] = {"persist_state": "session"}
    st.selectbox(
        "Size", SHOWN_PRESETS, key=_key("preset"), on_change=_adopt_preset, **keep,
        format_func=lambda n: f"{n} — {(presets.PRESETS[n].__doc__ or '').split(':')[0]}",
        help="Where all settings start from. tiny takes seconds a run; gpu is for a GPU.",
    )  # fmt: skip
    _corpus_choice(keep)
    st.multiselect(
        "Variants", list(presets.ARMS), default=DEFAULT_ARMS, key=_key("arms"), format_func=presets.ARMS.__getitem__, **keep,
        help="  \n".join(f"**{e.title}**: {e.formula} ({e.source})" for e in slots.QUERY.values()),
    )  # fmt: skip
    st.number_input(
        "Bottleneck width R", 1, key=_key("bottleneck"), **keep,
        help="Width of f in the nonlinear query. C/2 has the size of W_Q but for two gains; C/2 − 1 matches it exactly.",
    )  # fmt: skip
    st.select_slider(
        "Learning rate", RATES, key=_key("learning_rate"), format_func=lambda r: f"{r:g}", **keep,
        help="The peak, reached after warm-up. The answer depends on it: try three times as much.",
    )  # fmt: skip
    st.select_slider(
        "Weight decay", DECAYS, key=_key("weight_decay"), format_func=lambda r: f"{r:g}", **keep,
        help="AdamW's, on every tensor of two or more dimensions.",
    )  # fmt: skip
    left, right = st.columns(2)
    left.number_input("Seed", 0, key=_key("seed"), value=0, help="Same seed, same start and same batches for all variants.", **keep)
    right.number_input("Steps", 1, 10_000_000, key=_key("steps"), step=100, help="Optimiser steps; the schedule ends with them.", **keep)
    with st.expander("Advanced"):
        _advanced(keep)
    return _read()


def _corpus_choice(keep: dict[str, Any]) -> None:
    names = corpora.available()
    if chosen := st.session_state.pop("form.new_corpus", None):
        st.session_state[_key("corpus")] = chosen
    if st.session_state.get(_key("corpus")) not in names:
        st.session_state.pop(_key("corpus"), None)
    st.selectbox("Text", list(names), key=_key("corpus"), format_func=names.__getitem__, help="What the models learn to write.", **keep)
    with st.expander("Your own text"), st.form("own_text", border=False):
        file = st.file_uploader("A text file", max_upload_size=corpora.MAX_TEXT_BYTES // 1_000_000, key=_key("upload"))
        pasted = st.text_area("or paste one", key=_key("pasted"), height=100)
        if st.form_submit_button("Use this text"):
            _take_text(file.getvalue() if file else pasted, file.name if file else "pasted text")


def _take_text(raw: bytes | str, title: str) -> None:
    block_size = int(st.session_state.get(_key("model.block_size"), 64))
    try:
        corpus = corpora.add_text(raw, title, block_size)
    except ValueError as error:
        st.error(str(error))
        return
    st.session_state["form.new_corpus"] = corpus.name
    st.rerun()


def _advanced(keep: dict[str, Any]) -> None:
    for name in INTEGERS:
        change: dict[str, Any] = {"on_change": _halve_bottleneck} if name == "model.n_embd" else {}
        st.number_input(name.split(".")[1], 0, key=_key(name), help=_help(name), **change, **keep)
    for name in FLOATS:
        st.number_input(name.split(".")[1], 0.0, key=_key(name), step=0.01, format="%.4g", help=_help(name), **keep)
    for name in OPTIONAL:
        whole = name.endswith(("steps", "hidden", "threads"))
        bounds: dict[str, Any] = {"min_value": 0} if whole else {"min_value": 0.0, "step": 0.0001, "format": "%.4g"}
        st.number_input(name.split(".")[1], key=_key(name), value=None, placeholder="default", help=_help(name), **bounds, **keep)
    for name, options in (CHOICES | {"training.dtype": formats()}).items():
        st.selectbox(name.split(".")[1], options, key=_key(name), help=_help(name), **keep)
    for name in SWITCHES:
        st.checkbox(name.split(".")[1], key=_key(name), help=_help(name), **keep)
    st.text_input("sample_prompt", key=_key("training.sample_prompt"), help=_help("training.sample_prompt"), **keep)


def _read() -> Form:
    state = st.session_state
    changes: dict[str, Any] = {
        "corpus": state[_key("corpus")],
        "seed": state[_key("seed")],
        "training.steps": state[_key("steps")],
        "training.learning_rate": state[_key("learning_rate")],
        "training.weight_decay": state[_key("weight_decay")],
        "model.bottleneck": state[_key("bottleneck")],
        "training.sample_prompt": str(state[_key("training.sample_prompt")]).replace("\\n", "\n"),
    }
    changes |= {name: state[_key(name)] for name in (*INTEGERS, *FLOATS, *OPTIONAL, *CHOICES, *SWITCHES)}
    try:
        base = replace(presets.preset(state[_key("preset")]), changes)
        corpus = corpora.load(base.corpus)
        corpus.check(base.model.block_size)
        arms = state[_key("arms")]
        if not arms:
            raise ValueError("no variant is chosen; choose at least one")
        configs = [presets.arm(base, name) for name in arms]
        launch.check(configs)
        return Form(configs, corpus)
    except (ValueError, OSError) as error:
        return Form(error=str(error))
