"""The live chart: a small component that calls Plotly.react on one node.

``st.plotly_chart`` mounts a new chart whenever the data change, which loses the zoom; this one does not.
plotly.min.js is served once, as a file, from the installed plotly package.
"""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import plotly
import streamlit as st

from nqlab.analysis.figures import Spec, as_message

ASSETS = Path(__file__).parent / "assets"


def install_plotly() -> Path:
    """Copy plotly.min.js beside the component's script unless this very version is there; its path."""
    source = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    target = ASSETS / "plotly.min.js"
    if not target.exists() or target.stat().st_size != source.stat().st_size:
        temporary = target.with_suffix(".tmp")
        shutil.copyfile(source, temporary)
        temporary.replace(target)
    return target


@cache
def _component() -> Any:
    install_plotly()
    return st.components.v2.component("nqlab.livechart", js="livechart.js", isolate_styles=False)


class Message(NamedTuple):
    """A chart as it is sent to the page."""

    figure: str
    height: int


def message_of(spec: Spec) -> Message:
    """A chart, packed."""
    return Message(as_message(spec), spec["layout"]["height"])


def live_chart(message: Message, *, key: str, label: str) -> None:
    """Show a chart that will change under the viewer; ``label`` says in words what a screen reader can't see."""
    data = {"figure": message.figure, "label": label, "height": message.height}
    _component()(key=key, data=data, height="content")
