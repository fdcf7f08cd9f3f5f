"""What a page looks at: a study, the runs trained here, or one of them; chosen on the page and kept in the address."""

from __future__ import annotations

import streamlit as st

from nqlab.analysis import studies
from nqlab.analysis.figures import labels
from nqlab.analysis.studies import OWN, Filled
from nqlab.runs import store
from nqlab.runs.store import Run
from nqlab.runs.study import folder_of
from nqlab.runs.study import studies as study_folders
from nqlab.ui import shared
from nqlab.words import _, several


def choose() -> Filled | None:
    """Draw the choice; the study chosen, with its results so far. None where there is nothing at all.

    ``?study=NAME`` names it in the address; a name that is not there says so and falls back.
    """
    names = _names()
    if not names:
        st.info(_("Nothing to show yet: train a race on the page Train, or start a study on the page Sweep."))
        return None
    wanted = st.query_params.get("study")
    if wanted is not None and wanted not in names:
        text = _("There is no study {name!r} here; this is {other} instead.")
        st.warning(text.format(name=wanted, other=next(iter(names.values()))))
        wanted = None
    keys = list(names)
    chosen = st.selectbox(
        _("What to look at"), keys, index=keys.index(wanted) if wanted else 0, format_func=names.__getitem__, key="source",
        help=_("Studies filled on this machine, the reference study that came with the program, and single runs."),
    )  # fmt: skip
    st.query_params["study"] = chosen
    return _load(chosen)


def _names() -> dict[str, str]:
    """What there is: key in the address -> what people read. A person's own come first."""
    own = {place.folder.name: _("{name} (filled here)").format(name=place.folder.name) for place in study_folders(shared.runs_dir())}
    if any(run.status() in ("finished", "did not learn", "diverged") for run in store.runs(shared.runs_dir())):
        own[OWN] = _("runs trained here, one by one")
    return own | {f.study.name: _("{name} (reference)").format(name=f.study.name) for f in studies.shipped() if f.study.name not in own}


def _load(name: str) -> Filled:
    if name == OWN:
        return studies.of_runs(shared.runs_dir())
    place = folder_of(shared.runs_dir(), name)
    if (place.folder / "study.json").exists():
        return studies.of_folder(place)
    return next(f for f in studies.shipped() if f.study.name == name)


def about(filled: Filled) -> None:
    """One line: what it asks, where it was computed, whether it is whole."""
    ended = sum(r.outcome != "unfinished" for r in filled.results)
    parts = [f"**{filled.study.question}**"] if filled.study.question else []
    if filled.study.name == OWN or filled.complete:
        parts.append(several("{n} run", "{n} runs", ended).format(n=ended))
    else:
        parts.append(_("{n} runs of {all} so far").format(n=ended, all=len(list(filled.study.cells()))))
    if filled.shipped:
        versions = (filled.receipt.get("versions") or [{}])[0]
        hours = filled.receipt.get("processor_hours", "?")
        text = _(":blue[reference study], computed once with torch {version} in {hours} processor hours")
        parts.append(text.format(version=versions.get("torch", "?"), hours=hours))
    st.caption(" · ".join(parts))


# --- one run


def with_checkpoint() -> list[Run]:
    """Runs that can be looked into, newest first: whole, and far enough to have a checkpoint."""
    return [run for run in store.runs(shared.runs_dir()) if run.checkpoint.exists() and run.status() != "broken"]


def choose_run() -> Run | None:
    """Draw the choice of a run with a checkpoint. None, with what to do, where there is none.

    ``?run=ID`` names it in the address; an id that is not there says so and falls back to the newest.
    """
    known = {run.id: run for run in with_checkpoint()}
    if not known:
        st.info(_("There is no run to look into yet: start a race on the page Train. It can be chosen here from its first checkpoint on."))
        return None
    wanted, newest = st.query_params.get("run", st.session_state.get("run")), next(iter(known))
    if wanted is not None and wanted not in known:
        text = _("There is no run {name!r} with a checkpoint here; this is {other} instead.")
        st.warning(text.format(name=wanted, other=known[newest].name))
    st.session_state["run"] = wanted if wanted in known else newest

    def to_address() -> None:
        st.query_params["run"] = st.session_state["run"]

    chosen = st.selectbox(
        _("Run"), list(known), format_func=lambda i: known[i].name, key="run", on_change=to_address,
        help=_("Newest first. What you see is a copy of its newest checkpoint: a race that is running is not disturbed."),
    )  # fmt: skip
    st.query_params["run"] = chosen
    return known[chosen]


def with_its_race(run: Run) -> dict[str, Run]:
    """Draw the choice between a run and all runs of its race that have a checkpoint; those to show, by their labels."""
    able = with_checkpoint()
    race = [one for one in shared.runs_of(run.race) if one in able]
    everything = len(race) > 1 and st.toggle(
        _("All {n} runs of its race").format(n=len(race)), True, key="whole_race", help=_("Side by side, on the same characters.")
    )
    runs = race if everything else [run]
    return dict(zip(labels([one.config for one in runs]), runs))
