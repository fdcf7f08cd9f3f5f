"""What all viewers of this server share, and which race a viewer looks at."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from nqlab import settings
from nqlab.analysis.curves import CurveCache
from nqlab.analysis.figures import Line
from nqlab.runs import store
from nqlab.runs.launch import prepare_spare
from nqlab.runs.race import Race, races
from nqlab.runs.store import Run
from nqlab.ui import visit
from nqlab.ui.chart import Message
from nqlab.words import _

_lock = threading.Lock()
_caches: dict[str, CurveCache] = {}


def curves() -> CurveCache:
    """The curves of all run folders, read once for everybody."""
    with _lock:
        return _caches.setdefault("curves", CurveCache())


_drawn: dict[tuple[object, ...], Message] = {}
MOST_DRAWN = 50


def drawn(lines: Sequence[Line], options: Mapping[str, Any], draw: Callable[[], Message]) -> Message:
    """A live chart as it is sent, made once for all viewers who see the same curves in the same way and language."""
    curves_ = [(line.id, line.label, line.faint, line.curve.step, line.curve.last("loss"), len(line.curve.val["step"])) for line in lines]
    key = (visit.language(), *curves_, *(str(value) for value in options.values()))
    with _lock:
        message = _drawn.get(key)
    if message is None:
        message = draw()
        with _lock:
            _drawn[key] = message
            while len(_drawn) > MOST_DRAWN:
                _drawn.pop(next(iter(_drawn)))
    return message


def keep_a_spare() -> None:
    """Have a worker ready, so that Start need not wait for imports; not while one trains, which it would slow down."""
    if next(store.active_races(runs_dir()), None) is None:
        prepare_spare()


def runs_dir() -> Path:
    """Where runs are kept."""
    return settings.runs_dir()


def runs_of(race: Race) -> list[Run]:
    """The runs of a race that are still there, in order."""
    return [run for run_id in race.info.get("runs", []) if (run := Run(runs_dir() / run_id)).folder.is_dir()]


def race_in_view() -> Race | None:
    """The race in the address, else one that trains, else the newest. A wrong address says so and falls back."""
    wanted = st.query_params.get("race")
    known = [race for race in races(runs_dir()) if runs_of(race)]
    if wanted:
        found = next((race for race in known if race.id == wanted), None)
        if found is not None:
            return found
        text = _("There is no race {name!r} here any more; this is the newest instead.")
        st.session_state["notice"] = text.format(name=wanted)
        del st.query_params["race"]
    return next(iter(store.active_races(runs_dir())), known[0] if known else None)


def look_at(race: Race) -> None:
    """Make this the race in view, and in the address."""
    st.query_params["race"] = race.id


def download(
    label: str, data: Callable[[], str | bytes] | str, file: str, kind: str, *, key: str, about: str | None = None, disabled: bool = False
) -> None:
    """A button that saves a file; what takes time is given as a function and made when the button is pressed."""
    st.download_button(
        label, data, file, kind, key=key, help=about, disabled=disabled, on_click="ignore", icon=":material/download:"
    )  # fmt: skip


def as_table(table: pd.DataFrame) -> None:
    """The numbers of the chart above, folded away, for those who can't see it."""
    with st.expander(_("The same as a table")):
        st.dataframe(table, hide_index=True)


def attempt(action: Callable[[], object]) -> None:
    """Do what a button asks for; an error about it is shown by :func:`problem` in the next run of the page."""
    try:
        action()
    except (ValueError, OSError) as error:
        st.session_state["problem"] = str(error)


def problem() -> None:
    """Show, once, what went wrong with the last button; always draws one element."""
    with st.container():
        if message := st.session_state.pop("problem", None):
            st.error(message)
