"""The switches of the argument's transformer, in the sidebar; the address may set them (``?skips=both&norm=layernorm``)."""

from __future__ import annotations

from typing import Any

import streamlit as st

from nqlab.analysis.redundancy.architecture import Architecture
from nqlab.words import _

USUAL: dict[str, Any] = {
    "skips": "none", "norm": "none", "shared": False, "tied": False, "rope": False, "biases": False,
    "width": 16, "heads": 4, "layers": 4, "dtype": "float64", "condition": 10.0,
}  # fmt: skip
CONDITIONS = [10.0**e for e in range(8)]
BOUNDS = {"width": (2, 128), "heads": (1, 16), "layers": (1, 8)}
CHOICES = {"skips": ("none", "attention", "mlp", "both"), "norm": ("none", "rmsnorm", "layernorm"), "dtype": ("float64", "float32")}


def _begin() -> None:
    """What the address asks for, at the first visit; what can't be understood is left as usual."""
    for name, usual in USUAL.items():
        text = st.query_params.get(name)
        if f"arg.{name}" not in st.session_state:
            st.session_state[f"arg.{name}"] = usual if text is None else _understood(name, text)


def _understood(name: str, text: str) -> Any:
    usual = USUAL[name]
    if name in CHOICES:
        return text if text in CHOICES[name] else usual
    if name in BOUNDS:
        low, high = BOUNDS[name]
        return int(text) if text.isdecimal() and low <= int(text) <= high else usual
    if name == "condition":
        return next((c for c in CONDITIONS if f"{c:g}" == text), usual)
    return text == "1"


def address() -> dict[str, str]:
    """What differs from the usual, as parameters of an address."""
    chosen = {name: st.session_state[f"arg.{name}"] for name in USUAL}
    return {
        name: str(int(value)) if isinstance(value, (bool, int)) else f"{value:g}" if isinstance(value, float) else str(value)
        for name, value in chosen.items()
        if value != USUAL[name]
    }


def draw() -> tuple[Architecture | None, float, str]:
    """Draw them: the architecture, None with the reason where its sizes do not fit; W_Q's condition number; the precision."""
    _begin()
    skips, norm = _choices()
    shared_query = st.toggle(_("One W_Q shared by all layers"), **_keep("shared"), help=_(
        "Then one S = W_Q serves all layers, and both skips do no harm: with no norm every W_Q becomes I. (arXiv:2510.23912)"))  # fmt: skip
    tied = st.toggle(_("Output tied to the embedding"), help=_("E is then written and read: S must keep E Eᵀ."), **_keep("tied"))
    rope = st.toggle(_("Rotary positions (RoPE)"), help=_("They act after X W_Q, so cases 1 to 5 do not notice."), **_keep("rope"))
    biases = st.toggle(_("Biases"), **_keep("biases"), help=_(
        "A bias is added after the product: those of O and B write a state and are multiplied by its S; the others stay."))  # fmt: skip
    width, heads, layers = _sizes()
    dtype = st.segmented_control(_("Precision"), CHOICES["dtype"], required=True, **_keep("dtype"), help=_(
        "Near 1, numbers are 2·10⁻¹⁶ apart in float64, 10⁻⁷ in float32: an exact rewriting errs by that times cond(W_Q)."))  # fmt: skip
    condition = st.select_slider("cond(W_Q)", CONDITIONS, format_func=lambda c: f"{c:g}", **_keep("condition"), help=_(
        "Largest over smallest singular value. S⁻¹ amplifies rounding by about this much."))  # fmt: skip
    try:
        architecture = Architecture(
            n_embd=int(width), n_head=int(heads), n_layer=int(layers), skips=skips, norm=norm, tied=tied,
            shared_query=shared_query, positions="rope" if rope else "learned", biases=biases,
        )  # fmt: skip
    except ValueError as error:
        st.error(str(error))
        return None, condition, dtype
    return architecture, condition, dtype


def _keep(name: str) -> dict[str, Any]:
    return {"key": f"arg.{name}", "persist_state": "session"}


def _choices() -> tuple[Any, Any]:
    skips = {"none": _("none"), "attention": _("around attention"), "mlp": _("around the MLP"), "both": _("both (GPT)")}
    norms = {"none": _("none"), "rmsnorm": "RMSNorm", "layernorm": _("LayerNorm (GPT)")}
    return (
        st.selectbox(_("Skips"), CHOICES["skips"], format_func=skips.__getitem__, **_keep("skips"), help=_(
            "x + block(x) joins two states: both must carry the same S. (arXiv:2510.23912)")),
        st.selectbox(_("Norm before each block"), CHOICES["norm"], format_func=norms.__getitem__, **_keep("norm"), help=_(
            "A norm lets only some S pass: RMSNorm the orthogonal ones, LayerNorm those that also fix the all-ones direction.")),
    )  # fmt: skip


def _sizes() -> tuple[int, int, int]:
    helps = {
        "width": _("Numbers in a hidden state; W_Q has C². A multiple of H."),
        "heads": _("Each has D = C/H dimensions of its own. The gauge per head makes a D by D block of it I."),
        "layers": _("Blocks of attention and MLP. Without skips each layer has an S of its own; joined by skips they share one."),
    }
    labels = {"width": _("Width C"), "heads": _("Heads H"), "layers": _("Layers")}
    width, heads, layers = (st.number_input(labels[name], *BOUNDS[name], help=helps[name], **_keep(name)) for name in BOUNDS)
    return width, heads, layers
