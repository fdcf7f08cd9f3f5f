"""Predict first: curves wait until a viewer has said who wins and by how much; afterwards what was said is scored."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from nqlab.analysis import prediction as predicting
from nqlab.analysis.results import result_of, results_of
from nqlab.analysis.standing import Standing
from nqlab.analysis.studies import shipped
from nqlab.runs import store
from nqlab.runs.predictions import LONGEST_NAME, predict, predictions
from nqlab.runs.store import Run
from nqlab.ui import shared, visit
from nqlab.words import _, several


def ask(now: Standing) -> bool:
    """Draw the question in place of the curves; whether it stands there. Only for viewers who want to predict first."""
    with st.container():
        if now.race is None or len(now.entries) < 2 or not visit.predicts_first():
            return False
        if now.race.id in st.session_state.setdefault("predict.seen", set()):
            return False
        _question(now)
        return True


def _question(now: Standing) -> None:
    assert now.race is not None
    st.markdown("#### " + _("Predict first: who ends with the lowest validation loss?"))
    names = {run.id: label for label, (run, *_rest) in zip(now.labels, now.entries)}
    with st.form("prediction", border=True):
        st.radio(_("The winner"), list(names), format_func=names.__getitem__, key="predict.winner", help=_("At the last step of the race."))
        st.number_input(
            _("Ahead of the second by (nats per character)"), 0.0, 10.0, 0.02, 0.01, format="%.3f", key="predict.margin",
            help=_("One seed against another of the same variant already differs by about 0.01 to 0.03 here."),
        )  # fmt: skip
        st.text_input(
            _("Your name, if you like"), key="predict.name", max_chars=LONGEST_NAME, help=_("Everybody who looks at this race can read it.")
        )
        with st.container(horizontal=True):
            st.form_submit_button(_("Predict"), type="primary", on_click=_say, args=[now])
            st.form_submit_button(_("Only look"), on_click=_look, args=[now.race.id])
    count = len(predictions(now.race))
    st.caption(several("{n} prediction so far.", "{n} predictions so far.", count).format(n=count))


def _say(now: Standing) -> None:
    race, state = now.race, st.session_state
    assert race is not None

    def write() -> None:
        predict(race, state["predict.winner"], state["predict.margin"], state["predict.name"], now.step)
        _look(race.id)

    shared.attempt(write)


def _look(race_id: str) -> None:
    st.session_state["predict.seen"] = {*st.session_state.get("predict.seen", set()), race_id}


def scores(now: Standing) -> None:
    """Draw what was predicted, and once the race has ended how near it came, beside the verdict over paired seeds."""
    with st.container():
        said = predictions(now.race) if now.race else []
        if not said:
            return
        st.markdown("#### " + _("What was predicted"))
        names = {run.id: label for label, (run, *_rest) in zip(now.labels, now.entries)}
        results = {run.id: result_of(run) for run, *_rest in now.entries}
        found = None if now.active else predicting.outcome(results)
        if found is None:
            st.caption(several("{n} prediction; scored when every run has ended.", "{n} predictions; scored when every run "
                                                                                   "has ended.", len(said))
                       .format(n=len(said)))  # fmt: skip
            return
        scored = predicting.score(said, found)
        right = sum(s.right for s in scored)
        st.markdown(
            _("**{winner}** ended lowest, {margin:.4f} nats ahead of the next. {right} of {n} named it.").format(
                winner=names.get(found.winner, found.winner), margin=found.margin, right=right, n=len(scored)
            )
        )
        st.table(pd.DataFrame([_line(s, names) for s in scored[:20]]).set_index(_("who")))
        st.caption(_("One race is one seed. Over all paired seeds of these settings that are known here:"))
        st.markdown("\n".join(f"- {line}" for line in _verdict(tuple(r.id for r in results.values()), visit.language())))


@st.cache_data(show_spinner=False, max_entries=50, ttl=60)
def _verdict(run_ids: tuple[str, ...], language: str) -> list[str]:
    """The verdict on an ended race; for a minute, because other seeds may end meanwhile. ``language`` is the cache's."""
    assert language
    others = [r for f in shipped() for r in f.results] + results_of(store.runs(shared.runs_dir()))
    return predicting.over_seeds([result_of(Run(shared.runs_dir() / run_id)) for run_id in run_ids], others)


def _line(scored: predicting.Scored, names: dict[str, str]) -> dict[str, str]:
    one = scored.prediction
    return {
        _("who"): one.name or _("someone"),
        _("said"): names.get(one.winner, one.winner),
        _("by"): f"{one.margin:.3f}",
        _("at step"): f"{one.step:,}",
        _("winner"): _("right") if scored.right else _("wrong"),
        _("missed by"): f"{scored.missed_by:.4f}",
    }
