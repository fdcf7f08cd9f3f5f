"""The argument: where W_Q can be absorbed, where not, and what that means for a trained run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from nqlab.analysis.figures import error_figure
from nqlab.analysis.redundancy.architecture import Architecture
from nqlab.analysis.redundancy.diagram import dot, factors
from nqlab.analysis.redundancy.examine import Errors, TrainedExamination, errors_of, examine_model
from nqlab.runs import store
from nqlab.runs.store import Run
from nqlab.runs.worker import load_model
from nqlab.ui import shared

SKIPS = {"none": "none", "attention": "around attention", "mlp": "around the MLP", "both": "both (GPT)"}
NORMS = {"none": "none", "rmsnorm": "RMSNorm", "layernorm": "LayerNorm (GPT)"}
CONDITIONS = [10.0**e for e in range(8)]


def page() -> None:
    """Draw everything; a changed choice is answered at once."""
    st.subheader("Where does W_Q disappear?")
    st.markdown(
        "Attention sees its input only through **X W_Q, X W_K, X W_V**. Multiply X by an invertible S and the three matrices by "
        "S⁻¹: nothing changes. With S = W_Q the query matrix becomes I, **if whoever writes X can absorb S**. "
        "Choose a transformer and see."
    )
    with st.sidebar:
        architecture, condition, dtype = _controls()
    if architecture is None:
        return
    found = errors_of(architecture, condition, dtype)
    _verdict(found)
    st.graphviz_chart(dot(found.analysis), width="stretch")
    st.caption("Each box is a hidden state. Boxes of one colour must share one S; a dashed skip forces that, a norm restricts it.")
    st.plotly_chart(error_figure(_bars(found), found.epsilon), width="stretch", key="errors")
    with st.expander("What absorbs what"):
        st.table(pd.DataFrame(factors(found.analysis)).set_index("state"))
    st.info(
        "In a standard GPT (LayerNorm before each block, both skips) **W_Q = I is a restriction, not a rewriting**. "
        "That it costs little is an empirical finding: the Train page shows it, the algebra does not prove it."
    )
    _trained()


def _controls() -> tuple[Architecture | None, float, str]:
    keep: dict[str, Any] = {"persist_state": "session"}
    skips = st.selectbox(
        "Skips", list(SKIPS), format_func=SKIPS.__getitem__, key="arg.skips", help="x + block(x) joins two states.", **keep
    )
    norm = st.selectbox("Norm before each block", list(NORMS), format_func=NORMS.__getitem__, key="arg.norm", help=NORM_HELP, **keep)
    shared_query = st.toggle("One W_Q shared by all layers", key="arg.shared", **keep)
    tied = st.toggle("Output tied to the embedding", key="arg.tied", help="E is then written and read: S must keep E Eᵀ.", **keep)
    rope = st.toggle("Rotary positions (RoPE)", key="arg.rope", help="They act after X W_Q, so cases 1 to 5 do not notice.", **keep)
    biases = st.toggle("Biases", key="arg.biases", **keep)
    width = st.number_input("Width C", 2, 128, 16, key="arg.width", **keep)
    heads = st.number_input("Heads H", 1, 16, 4, key="arg.heads", **keep)
    layers = st.number_input("Layers", 1, 8, 4, key="arg.layers", **keep)
    dtype = st.segmented_control("Precision", ["float64", "float32"], default="float64", required=True, key="arg.dtype")
    condition = st.select_slider("cond(W_Q)", CONDITIONS, 10.0, format_func=lambda c: f"{c:g}", key="arg.condition", help=COND_HELP, **keep)
    try:
        architecture = Architecture(
            n_embd=int(width), n_head=int(heads), n_layer=int(layers), skips=skips, norm=norm, tied=tied,
            shared_query=shared_query, positions="rope" if rope else "learned", biases=biases,
        )  # fmt: skip
    except ValueError as error:
        st.session_state["arg.error"] = str(error)
        st.error(str(error))
        return None, condition, dtype
    return architecture, condition, dtype


NORM_HELP = "A norm lets only some S pass: RMSNorm the orthogonal ones, LayerNorm those that also fix the all-ones direction."
COND_HELP = "Largest over smallest singular value. S⁻¹ amplifies rounding by about this much."
BADGES = {"exact": ":green-badge[exact]", "orthogonal only": ":orange-badge[orthogonal only]", "impossible": ":red-badge[impossible]"}


def _verdict(found: Errors) -> None:
    analysis = found.analysis
    st.markdown(f"#### Every W_Q = I: {BADGES[analysis.verdict]}")
    st.markdown(
        f"{analysis.sentence} W_Q made I: **{analysis.removable}**, made triangular: **{analysis.triangular}**, "
        f"weights saved: **{analysis.parameters_saved:,}**."
    )


def _bars(found: Errors) -> dict[str, float]:
    bars = {"as the rule allows": found.rule, "W_Q = I anyway": found.anyway}
    return bars if found.gauge is None else bars | {f"gauge per head (saves {found.gauge_saved:,})": found.gauge}


# --- a trained run


@st.cache_data(show_spinner="Computing on the trained run ...", max_entries=20)
def _examined(folder: str, checkpoint_ns: int) -> TrainedExamination:
    """``checkpoint_ns``, the checkpoint's time, is there for the cache: a newer one is another question."""
    assert checkpoint_ns > 0
    model, corpus, _ = load_model(Run(Path(folder)))
    return examine_model(model, corpus)


def _trained() -> None:
    st.subheader("On a trained run")
    linear = [run for run in store.runs(shared.runs_dir()) if run.checkpoint.exists() and run.status() != "broken"]
    linear = [run for run in linear if run.config.model.query == "linear"]
    if not linear:
        st.caption("Train a run with the linear query first (Train page, Start); it can then be chosen here.")
        return
    names = {run.id: f"{run.name} · step {run.summary()['step']:,}" for run in linear}
    chosen = st.selectbox("Run", list(names), index=None, placeholder="Choose a run", format_func=names.__getitem__, key="arg.run")
    run = next((run for run in linear if run.id == chosen), None)
    if run is None:
        return
    try:
        found = _examined(str(run.folder), run.checkpoint.stat().st_mtime_ns)
    except (ValueError, OSError) as error:
        st.error(str(error))
        return
    rows = [("as trained", found.loss, 0.0), ("per-head gauge (exact)", found.gauge_loss, found.gauge_loss - found.loss)]
    rows += [(name, loss, loss - found.loss) for name, loss in found.misuse_losses.items()]
    table = pd.DataFrame(rows, columns=["weights", "validation loss", "costs"]).set_index("weights")
    st.table(table.map(lambda value: f"{value:.4f}".replace("-0.0000", "0.0000")))
    st.markdown(
        f"The gauge saves **{found.gauge_saved:,}** weights and changes no logit by more than **{found.gauge_change:.1e}** (float64). "
        "Overwriting W_Q by I in a trained model, without changing K, V and the writers, is a misuse: it costs what the table says."
    )
