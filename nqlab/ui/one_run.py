"""One run on the page Runs: label, links, curve, exports, configuration and receipt, and the same once more."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from nqlab.analysis.receipt import receipt, receipt_rows
from nqlab.analysis.run_document import curves_figure, curves_table, document, settings_rows
from nqlab.analysis.standing import state_word
from nqlab.runs import exporting
from nqlab.runs.store import Run
from nqlab.ui import repeat, run_actions, shared, visit
from nqlab.words import _


def details(run: Run) -> None:
    """Draw everything about a run, and what can be done with it."""
    with st.container(border=True):
        _headline(run)
        if run.status() == "broken":
            st.warning(_("Its configuration cannot be read; it can only be deleted."))
            run_actions.delete_button(run)
            return
        _label(run)
        _links(run)
        st.plotly_chart(curves_figure([run], shared.curves().get), key=f"curve.{run.id}", config={"displayModeBar": False})
        shared.as_table(curves_table([run], shared.curves().get))
        _exports(run)
        repeat.panel(run)
        with st.expander(_("Configuration")):
            st.dataframe(settings_rows(run), hide_index=True, key=f"settings.{run.id}")
        with st.expander(_("Receipt: hashes, versions, device, threads")):
            st.dataframe(receipt_rows(receipt(run)), hide_index=True, key=f"receipt.{run.id}")
            st.caption(_("Runs with the same hash of losses have the same losses, digit for digit; so with weights."))


def _headline(run: Run) -> None:
    parts = [f"**{run.name}**", f"`{run.id}`", state_word(run.status())]
    if when := run.meta.get("imported"):
        parts.append(_("imported on {date}").format(date=str(when)[:10]))
    if first := run.meta.get("repeats"):
        parts.append(_("repeats `{run}`").format(run=first))
    st.markdown(" · ".join(parts))


def _label(run: Run) -> None:
    name, note, tags = st.columns([2, 3, 3])
    with name:
        run_actions.name_field(run)
    with note:
        run_actions.note_field(run)
    with tags:
        run_actions.tags_field(run)


def _links(run: Run) -> None:
    with st.container(horizontal=True):
        st.link_button(
            _("Microscope"), f"microscope?run={run.id}", icon=":material/biotech:", disabled=not run.checkpoint.exists(),
            help=_("What its query does, layer by layer. Needs a checkpoint."),
        )  # fmt: skip
        st.link_button(
            _("Its race"), f"./?race={run.race.id}", icon=":material/play_circle:", disabled=not run.race.info,
            help=_("All runs that were trained together with it, on the page Train."),
        )  # fmt: skip
        run_actions.delete_button(run)


def _exports(run: Run) -> None:
    """Download buttons; what takes time is made when one is pressed."""
    files: list[tuple[str, Callable[[], str | bytes], str, str, str]] = [
        (_("Everything (zip)"), partial(exporting.archive, run), "zip", "application/zip", _("The whole folder; import takes it back.")),
        (_("Curve (CSV)"), partial(exporting.curve_csv, run), "csv", "text/csv", _("Losses at every logged step and evaluation.")),
        (_("Record (JSON)"), partial(exporting.record_json, run), "json", "application/json", _("Everything but the weights.")),
        (_("Page (HTML)"), visit.in_language(partial(document, run)), "html", "text/html",
         _("Curve, configuration and receipt; opens without a network.")),
        (_("Configuration"), run.config.to_json, "config.json", "application/json", _("All settings, as a run folder has them.")),
    ]  # fmt: skip
    with st.container(horizontal=True):
        for label, make, ending, kind, about in files:
            shared.download(label, make, f"{run.id}.{ending}", kind, key=f"export.{ending}", about=about)
        shared.download(
            _("Weights (safetensors)"), partial(exporting.weights, run), f"{run.id}.safetensors", "application/octet-stream",
            key="export.weights", disabled=not run.checkpoint.exists(),
            about=_("The model's tensors at its newest checkpoint, without the optimiser's."),
        )  # fmt: skip
