"""What buttons do with a run, wherever it is shown: rename, note, tag, delete, bring back. Errors are shown, not raised."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from nqlab.runs import store
from nqlab.runs.store import Run
from nqlab.ui import shared, visit
from nqlab.words import _


def messages() -> None:
    """Show, once, what went wrong or what is worth saying after the last button; and offer the undo."""
    shared.problem()
    with st.container():
        if notice := st.session_state.pop("notice", None):
            st.info(notice)
    undo()


def choose(ids: Sequence[str]) -> None:
    """Make these the runs in view; one alone also stands in the address."""
    st.session_state["runs.chosen"] = list(ids)
    if len(ids) == 1:
        st.query_params["run"] = ids[0]
    elif "run" in st.query_params:
        del st.query_params["run"]


def chosen() -> list[str]:
    """The ids of the runs in view."""
    return list(st.session_state.get("runs.chosen", []))


def undo() -> None:
    """Offer to bring the run back that was deleted last, while it is in the trash and was not imported since."""
    gone, folder = st.session_state.get("deleted"), shared.runs_dir()
    if gone and (folder / ".trash" / gone[0]).exists() and not (folder / gone[0]).exists():
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(_("**{name}** is deleted.").format(name=gone[1]))
            st.button(_("Undo"), key="undo", on_click=undelete, args=[gone[0]], help=_("Bring it back as it was."))


def undelete(run_id: str) -> None:
    """Bring a run back from the trash."""
    try:
        store.undelete(shared.runs_dir(), run_id)
    except ValueError as error:  # brought back by another viewer
        st.session_state["problem"] = str(error)


def name_field(run: Run) -> None:
    """Draw what a run is called, to be changed."""
    st.text_input(
        _("Name"), run.name, max_chars=store.MAX_NAME, key=f"name.{run.id}", on_change=relabel, args=[run],
        disabled=not visit.may_control(), help=_("What it is called in lists and charts; its id stays."),
    )  # fmt: skip


def note_field(run: Run) -> None:
    """Draw what is said of a run, to be changed."""
    st.text_input(
        _("Note"), run.label["note"], key=f"note.{run.id}", on_change=relabel, args=[run],
        disabled=not visit.may_control(), help=_("Whatever you want to remember about it; the search looks here too."),
    )  # fmt: skip


def tags_field(run: Run) -> None:
    """Draw the words a run is filed under, to be changed; those of other runs are offered."""
    tags = run.label["tags"]
    known = {tag for one in store.runs(shared.runs_dir()) for tag in one.label["tags"]}
    st.multiselect(
        _("Tags"), sorted(known | set(tags)), tags, key=f"tags.{run.id}", accept_new_options=True, max_selections=store.MAX_TAGS,
        on_change=relabel, args=[run], disabled=not visit.may_control(), help=_("Type a new one and press Enter. Runs can be filtered "
                                                                                "and grouped by them."),
    )  # fmt: skip


def relabel(run: Run) -> None:
    """Give a run the name, the note and the tags that stand in its fields."""
    typed = {key: st.session_state[f"{key}.{run.id}"] for key in ("name", "note", "tags") if f"{key}.{run.id}" in st.session_state}
    try:
        run.relabel(**typed)
    except ValueError as error:
        st.session_state["problem"] = str(error)
    except FileNotFoundError:  # deleted meanwhile, here or by another viewer
        st.session_state["notice"] = _("{run} is not there any more; nothing was renamed.").format(run=run.id)


def delete_button(run: Run) -> None:
    """Draw the button that moves a run to the trash."""
    st.button(
        _("Delete"), key="delete", on_click=delete, args=[run], icon=":material/delete:", disabled=not visit.may_control(),
        help=_("Moves it to the trash, without asking; Undo brings it back."),
    )  # fmt: skip


def delete(run: Run) -> None:
    """Move a run to the trash, and remember which, for :func:`undo`."""
    name = run.name
    try:
        store.delete(run)
    except (ValueError, FileNotFoundError) as error:
        st.session_state["problem"] = str(error)
    else:
        st.session_state["deleted"] = (run.id, name)
