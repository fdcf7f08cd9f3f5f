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
from nqlab.ui import controls, live, past, prompt, questions, share, shared, tour, visit
from nqlab.ui.form import Form, to_address
from nqlab.words import _


def page() -> None:
    """Draw everything; returns at once in every state."""
    if wrong := visit.unknown_view():
        st.warning(wrong)
    if visit.follows():
        _panel(Form())
        return
    shared.keep_a_spare()
    tour.draw()
    st.subheader(_("Does a transformer need a linear query projection?"))
    st.markdown(
        _(
            "Several small language models learn the same text from the same batches. They differ in one thing: "
            "how attention makes its **query**. Press **Start** and watch."
        )
    )
    visit.why_not()
    if not visit.hidden("questions"):
        questions.draw()
    with st.sidebar:
        form = controls.draw()
    _problems()
    if form.error:
        st.error(form.error)
    else:
        _before_start(form)
    _panel(form)
    if not visit.hidden("prompt"):
        prompt.draw()
    if not visit.hidden("past"):
        past.panel()


def _panel(form: Form) -> None:
    ticking, known = live.must_tick(), speed.measured(shared.runs_dir()) is not None
    st.fragment(live.panel, run_every=live.TICK_S if ticking else live.IDLE_S)(form, ticking, known)


def _problems() -> None:
    """What could not be understood in the address, until it is put away."""
    if problems := st.session_state.get("form.problems"):
        st.warning("\n".join(f"- {problem}" for problem in problems))
        st.button(_("Understood"), key="form.understood", on_click=st.session_state.pop, args=["form.problems"])


def _before_start(form: Form) -> None:
    """What is about to be compared, what it costs, and how to take it elsewhere."""
    assert form.corpus is not None
    assert form.experiment is not None
    to_address(form.experiment)
    corpus, configs = form.corpus, form.configs
    size, threads = len(corpus.vocabulary), threads_for(configs[0], len(corpus.vocabulary))
    tiny_step = speed.measured(shared.runs_dir())
    took = _("(being measured)") if tiny_step is None else estimate.in_words(estimate.race_s(configs, size, tiny_step, threads))
    text = _(
        "**{title}**: {characters:,} characters, V = {size}, ln V = {entropy:.3f} nats. "
        "Time for this race on this machine: **{took}**, CPU threads: {threads}."
    )
    st.caption(
        text.format(
            title=_(corpus.title), characters=len(corpus.text), size=size, entropy=corpus.uniform_entropy, took=took, threads=threads
        )
    )
    for note in corpus.notes:
        st.caption(_("About this text: {note}.").format(note=note))
    if carried := st.session_state["form.carried"]:
        st.caption(_("Set by the link: {settings}.").format(settings=", ".join(f"{k.split('.')[-1]} = {v}" for k, v in carried.items())))
    st.markdown(":small[" + _("Parameters: {list}").format(list=" · ".join(_cost(config, size) for config in configs)) + "]")
    with st.container(horizontal=True, vertical_alignment="center"):
        race = {"race": st.query_params["race"]} if "race" in st.query_params else {}
        share.elsewhere(form.experiment.query() | race, form.experiment.command(), form.experiment.cell())
        st.toggle(_("Predict first"), visit.predicts_first(), key="predict.on", on_change=_predict_first,
                  help=_("Curves wait until you have said who wins and by how much. A link shared from here asks "
                         "others the same."))  # fmt: skip
        tour.again()


def _predict_first() -> None:
    st.session_state["visit.predict"] = wanted = "1" if st.session_state["predict.on"] else "0"
    st.query_params["predict"] = wanted


def _cost(config: RunConfig, vocab_size: int) -> str:
    """A variant's parameters, and plainly when they are not the baseline's."""
    extra = surplus(config.model)
    text = f"**{title_of(arm_of(config))}** {parameters(config.model, vocab_size):,}"
    if extra.matched:
        return text + " " + _("(matched)")
    more = _("unmatched: {number:+,} ({percent:+.2f} % of the blocks)").format(number=extra.number, percent=extra.percent)
    return f"{text} :orange[{more}]"
