"""Sweep: define a study, see what it costs, watch it fill; stop, go on."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from nqlab.analysis import elsewhere, estimate
from nqlab.analysis.figures import Line, loss_spec, reference_lines, title_of
from nqlab.analysis.progress import Standing, overview, standing
from nqlab.presets import arm_of
from nqlab.runs import sweep
from nqlab.runs.store import Run
from nqlab.runs.study import Study, StudyFolder
from nqlab.runs.study import studies as study_folders
from nqlab.ui import share, shared, study_form, visit
from nqlab.ui.chart import live_chart, message_of
from nqlab.words import _

TICK_S, IDLE_S = 1.5, 5.0
NEW = "*new*"  # no study can have this name


def page() -> None:
    """Draw everything; returns at once in every state."""
    shared.keep_a_spare()
    st.subheader(_("A fair comparison: every variant, every setting, several seeds"))
    st.caption(_("Every variant is trained at every setting with every seed. What that takes stands below before anything starts."))
    visit.why_not()
    known = {place.folder.name: place for place in study_folders(shared.runs_dir())}
    wanted = st.query_params.get("study")
    if wanted and wanted not in known:
        st.warning(_("There is no study {name!r} here; define it anew, or choose another.").format(name=wanted))
        wanted = None
    if st.session_state.get("sweep.study") not in (NEW, *known):
        st.session_state["sweep.study"] = wanted or NEW
    chosen = st.selectbox(
        _("Study"), [NEW, *known], key="sweep.study", format_func=lambda name: _("a new study") if name == NEW else name,
        help=_("Those begun on this machine, or a new one."),
    )  # fmt: skip
    if chosen == NEW:
        st.query_params.clear()
        study = study_form.define()
        if study is not None:
            _offer(study)
        return
    st.query_params["study"] = chosen
    place = known[chosen]
    filling = sweep.sweeper(place) is not None
    st.fragment(_panel, run_every=TICK_S if filling else IDLE_S)(place, filling)


# --- a new one


def _offer(study: Study) -> None:
    shared.problem()
    with st.container(horizontal=True):
        st.button(
            _("Start"), type="primary", icon=":material/play_arrow:", key="sweep.start", on_click=_start, args=[study],
            disabled=not visit.may_control(),
            help=_("Every run of it, on all cores of this machine. It goes on when you leave, and can be stopped."),
        )  # fmt: skip
        _file(study)
        share.elsewhere({}, elsewhere.sweep_command(study, here=False), elsewhere.sweep_cell(study))


def _start(study: Study) -> None:
    def begin() -> None:
        sweep.start(sweep.save_study(shared.runs_dir(), study))
        st.session_state["sweep.study"] = st.query_params["study"] = study.name

    shared.attempt(begin)


def _file(study: Study) -> None:
    about = _("The study without its results: python -m nqlab sweep FILE fills it anywhere.")
    shared.download(_("Study file (JSON)"), study.to_json(), f"{study.name}.json", "application/json", key="sweep.file", about=about)


# --- one that is here


def _panel(place: StudyFolder, was_filling: bool) -> None:
    """Drawn anew every tick, the same elements in order."""
    now = standing(place)
    if now.filling != was_filling:
        st.rerun()
    study = place.study
    shared.problem()
    text = _("**{name}** · {state} · {ended} of {total} runs").format(name=study.name, state=now.word, ended=now.ended, total=now.total)
    if now.left_s is not None and not now.complete:
        text += " · " + _("{time} left").format(time=estimate.in_words(now.left_s))
    st.progress(now.ended / now.total, text)
    _buttons(place, now)
    if study.question:
        st.caption(study.question)
    for run, message in now.failed:
        text = _("{variant}, seed {seed}: {message}")
        st.warning(text.format(variant=title_of(arm_of(run.config)), seed=run.config.seed, message=message))
    _in_training(study, now)
    st.caption(_("Mean final loss · seeds ended; where not all learnt, how many did."))
    st.dataframe(pd.DataFrame(overview(place)), hide_index=True, key="sweep.table")


def _in_training(study: Study, now: Standing) -> None:
    names = [_named(run) for run, _step in now.running]
    steps = [_("{name}, step {step:,}").format(name=name, step=step) for name, (_run, step) in zip(names, now.running)]
    told = _("Training now: {runs}").format(runs="; ".join(steps))
    st.caption(told if steps else _("Nothing is being trained at the moment."))
    runs = [run for run, _step in now.running]
    lines = [Line(f"c{run.id}", name, arm_of(run.config), shared.curves().get(run.events)) for name, run in zip(names, runs)]
    levels = reference_lines(next((run.meta["entropies"] for run in runs if "entropies" in run.meta), {}))
    spec = loss_spec(lines, show=("val",), height=300, references=levels, revision=study.name)
    live_chart(message_of(spec), key="sweep.chart", label=_("validation loss of the runs in training"))


def _named(run: Run) -> str:
    rate = f"{run.config.training.learning_rate:g}"
    return _("{variant} at {rate}, seed {seed}").format(variant=title_of(arm_of(run.config)), rate=rate, seed=run.config.seed)


def _buttons(place: StudyFolder, now: Standing) -> None:
    study, allowed = place.study, visit.may_control()
    with st.container(horizontal=True):
        st.button(
            _("Stop"), key="sweep.stop", icon=":material/stop:", disabled=not now.filling or now.stopping or not allowed,
            on_click=place.command, args=["stop"],
            help=_("After the update in progress; what has ended is kept, and what is under way goes on from here."),
        )  # fmt: skip
        st.button(
            _("Go on"), key="sweep.resume", icon=":material/resume:", disabled=now.filling or now.complete or not allowed,
            on_click=_resume, args=[place], help=_("The runs that have not ended, each from its last checkpoint."),
        )  # fmt: skip
        _file(study)
        with st.popover(_("Delete"), icon=":material/delete:", disabled=now.filling or not allowed):
            st.markdown(_("All {n} results of **{name}** go to the trash beside the runs.").format(n=now.ended, name=study.name))
            st.button(_("Delete the study"), key="sweep.delete", on_click=_delete, args=[place], disabled=not allowed)
        share.elsewhere({"study": study.name}, elsewhere.sweep_command(study, here=True), elsewhere.sweep_cell(study))
    st.markdown(_("[Compare](compare?study={name}) · [Stability](stability?study={name})").format(name=study.name))


def _resume(place: StudyFolder) -> None:
    shared.attempt(lambda: sweep.start(place))


def _delete(place: StudyFolder) -> None:
    shared.attempt(lambda: sweep.discard(place))
