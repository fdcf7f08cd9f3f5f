"""Sweep: define a study, see what it costs, watch it fill; stop, go on."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from nqlab.analysis import estimate
from nqlab.analysis.figures import Line, loss_spec, reference_lines, title_of
from nqlab.analysis.progress import Standing, overview, standing
from nqlab.presets import arm_of
from nqlab.runs import sweep
from nqlab.runs.study import Study, StudyFolder
from nqlab.runs.study import studies as study_folders
from nqlab.ui import shared, study_form
from nqlab.ui.chart import live_chart, message_of

TICK_S, IDLE_S = 1.5, 5.0
NEW = "a new study"


def page() -> None:
    """Draw everything; returns at once in every state."""
    shared.keep_a_spare()
    st.subheader("A fair comparison: every variant, every setting, several seeds")
    known = {place.folder.name: place for place in study_folders(shared.runs_dir())}
    wanted = st.query_params.get("study")
    if wanted and wanted not in known:
        st.warning(f"There is no study {wanted!r} here; define it anew, or choose another.")
        wanted = None
    if st.session_state.get("sweep.study") not in (NEW, *known):
        st.session_state["sweep.study"] = wanted or NEW
    chosen = st.selectbox("Study", [NEW, *known], key="sweep.study", help="Those begun on this machine, or a new one.")
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
        st.button("Start", type="primary", icon=":material/play_arrow:", key="sweep.start", on_click=_start, args=[study])
        st.download_button("Study file (JSON)", study.to_json(), f"{study.name}.json", "application/json", on_click="ignore")


def _start(study: Study) -> None:
    def begin() -> None:
        sweep.start(sweep.save_study(shared.runs_dir(), study))
        st.session_state["sweep.study"] = st.query_params["study"] = study.name

    shared.attempt(begin)


# --- one that is here


def _panel(place: StudyFolder, was_filling: bool) -> None:
    """Drawn anew every tick, the same elements in order."""
    now = standing(place)
    if now.filling != was_filling:
        st.rerun()
    study = place.study
    shared.problem()
    left = "" if now.left_s is None or now.complete else f" · {estimate.in_words(now.left_s)} left"
    st.progress(now.ended / now.total, f"**{study.name}** · {now.word} · {now.ended} of {now.total} runs{left}")
    _buttons(place, now)
    if study.question:
        st.caption(study.question)
    for run, message in now.failed:
        st.warning(f"{title_of(arm_of(run.config))}, seed {run.config.seed}: {message}")
    running = [f"{title_of(arm_of(run.config))} at {run.config.training.learning_rate:g}, seed {run.config.seed}" for run, _ in now.running]
    steps = [f"{name}, step {step:,}" for name, (_, step) in zip(running, now.running)]
    st.caption(f"Training now: {'; '.join(steps)}" if steps else "Nothing is being trained at the moment.")
    lines = [Line(f"c{run.id}", name, arm_of(run.config), shared.curves().get(run.events)) for name, (run, _) in zip(running, now.running)]
    levels = reference_lines(next((run.meta["entropies"] for run, _ in now.running if "entropies" in run.meta), {}))
    spec = loss_spec(lines, show=("val",), height=300, references=levels, revision=study.name)
    live_chart(message_of(spec), key="sweep.chart", label="validation loss of the runs in training")
    st.caption("Mean final loss · seeds ended; where not all learnt, how many did.")
    st.dataframe(pd.DataFrame(overview(place)), hide_index=True, key="sweep.table")


def _buttons(place: StudyFolder, now: Standing) -> None:
    with st.container(horizontal=True):
        st.button(
            "Stop",
            key="sweep.stop",
            icon=":material/stop:",
            disabled=not now.filling or now.stopping,
            on_click=place.command,
            args=["stop"],
            help="After the update in progress; what has ended is kept, and what is under way goes on from here.",
        )
        st.button(
            "Go on", key="sweep.resume", icon=":material/resume:", disabled=now.filling or now.complete, on_click=_resume, args=[place]
        )
        st.download_button("Study file (JSON)", place.study.to_json(), f"{place.study.name}.json", "application/json", on_click="ignore")
        with st.popover("Delete", icon=":material/delete:", disabled=now.filling):
            st.markdown(f"All {now.ended} results of **{place.study.name}** go to the trash beside the runs.")
            st.button("Delete the study", key="sweep.delete", on_click=_delete, args=[place])
    st.markdown(f"[Compare](compare?study={place.study.name}) · [Stability](stability?study={place.study.name})")


def _resume(place: StudyFolder) -> None:
    shared.attempt(lambda: sweep.start(place))


def _delete(place: StudyFolder) -> None:
    shared.attempt(lambda: sweep.discard(place))
