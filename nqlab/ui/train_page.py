"""The first page: choose variants, start a race, watch the curves grow."""

from __future__ import annotations

import streamlit as st

from nqlab.analysis import estimate
from nqlab.analysis.figures import title_of
from nqlab.config import RunConfig
from nqlab.model.budget import parameters, surplus
from nqlab.presets import arm_of
from nqlab.runs import speed
from nqlab.runs.worker import threads_for
from nqlab.ui import form as forms
from nqlab.ui import live, past, shared


def page() -> None:
    """Draw everything; returns at once in every state."""
    shared.keep_a_spare()
    st.subheader("Does a transformer need a linear query projection?")
    st.markdown(
        "Several small language models learn the same text from the same batches. They differ in one thing: "
        "how attention makes its **query**. Press **Start** and watch."
    )
    with st.sidebar:
        form = forms.controls()
    if form.error:
        st.error(form.error)
    else:
        _before_start(form)
    ticking = live.is_active(shared.race_in_view())
    known = speed.measured(shared.runs_dir()) is not None
    st.fragment(live.panel, run_every=live.TICK_S if ticking else live.IDLE_S)(form, ticking, known)
    past.panel()


def _before_start(form: forms.Form) -> None:
    """What is about to be compared, and what it costs."""
    assert form.corpus is not None
    corpus, configs = form.corpus, form.configs
    size = len(corpus.vocabulary)
    threads = threads_for(configs[0], size)
    tiny_step = speed.measured(shared.runs_dir())
    took = "(being measured)" if tiny_step is None else estimate.in_words(estimate.race_s(configs, size, tiny_step, threads))
    st.caption(
        f"**{corpus.title}**: {len(corpus.text):,} characters, V = {size}, ln V = {corpus.uniform_entropy:.3f} nats. "
        f"Time for this race on this machine: **{took}**, {threads} thread{'s' if threads > 1 else ''}."
    )
    for note in corpus.notes:
        st.caption(f"About this text: {note}.")
    st.caption("Parameters: " + " · ".join(_cost(config, size) for config in configs))


def _cost(config: RunConfig, vocab_size: int) -> str:
    """A variant's parameters, and plainly when they are not the baseline's."""
    extra = surplus(config.model)
    text = f"**{title_of(arm_of(config))}** {parameters(config.model, vocab_size):,}"
    return f"{text} (matched)" if extra.matched else f"{text} :orange[unmatched: {extra}]"
