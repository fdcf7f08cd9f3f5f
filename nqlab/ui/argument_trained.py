"""What the argument means for a trained run: the gauge that keeps its function, and the misuse that does not."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from nqlab.analysis.redundancy.examine import TrainedExamination, examine_model, misuse_title
from nqlab.ui import sources
from nqlab.ui.checkpoints import Place, model_at, place_of
from nqlab.words import _


@st.cache_data(show_spinner=False, max_entries=20)
def _examined(place: Place) -> TrainedExamination:
    model, corpus, _step = model_at(place)
    return examine_model(model, corpus)


def draw() -> None:
    """Draw the choice of a run with the linear query, and its losses as trained, gauged and overwritten."""
    st.subheader(_("On a trained run"))
    linear = [run for run in sources.with_checkpoint() if run.config.model.query == "linear"]
    if not linear:
        st.caption(_("Train a run with the linear query first (Train page, Start); it can then be chosen here."))
        return
    names = {run.id: _("{name} · step {step:,}").format(name=run.name, step=run.summary()["step"]) for run in linear}
    chosen = st.selectbox(
        _("Run"), list(names), index=None, placeholder=_("Choose a run"), format_func=names.__getitem__, key="arg.run",
        help=_("One with the linear query and a checkpoint. It is copied, never changed."),
    )  # fmt: skip
    run = next((run for run in linear if run.id == chosen), None)
    if run is None:
        return
    try:
        with st.spinner(_("Computing on the trained run ...")):
            found = _examined(place_of(run))
    except (ValueError, OSError) as error:
        st.error(str(error))
        return
    _losses(found)


def _losses(found: TrainedExamination) -> None:
    rows = [(_("as trained"), found.loss, 0.0), (_("per-head gauge (exact)"), found.gauge_loss, found.gauge_loss - found.loss)]
    rows += [(misuse_title(name), loss, loss - found.loss) for name, loss in found.misuse_losses.items()]
    table = pd.DataFrame(rows, columns=[_("weights"), _("validation loss"), _("costs")]).set_index(_("weights"))
    st.table(table.map(lambda value: f"{value:.4f}".replace("-0.0000", "0.0000")))
    text = _(
        "The gauge saves **{saved:,}** weights and changes no logit by more than **{change:.1e}** (float64). "
        "Overwriting W_Q by I in a trained model, without changing K, V and the writers, is a misuse: it costs what the table says."
    )
    st.markdown(text.format(saved=found.gauge_saved, change=found.gauge_change))
