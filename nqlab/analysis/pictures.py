"""What a model wrote, drawn: digits as pictures, tunes as notes on a roll. Nothing here knows a run or a page.

Engraving a score needs programs that nothing here can install, so a tune is drawn as its notes in time and pitch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from nqlab.analysis.figures import GREY
from nqlab.digits import SIDE
from nqlab.tunes import Note
from nqlab.words import _

ACROSS = 8  # pictures in a row
_NAMES = ("C", "C♯", "D", "E♭", "E", "F", "F♯", "G", "G♯", "A", "B♭", "B")


def picture_figure(pictures: Sequence[np.ndarray], across: int = ACROSS) -> go.Figure:
    """Pictures of shape (8, 8), levels 0 to 15, side by side and in rows; what is NaN stays empty. ValueError for none."""
    if not pictures:
        raise ValueError("there is no picture to draw; give at least one")
    columns, step = min(across, len(pictures)), SIDE + 1  # a free pixel between two
    rows = -(-len(pictures) // columns)
    canvas = np.full((rows * step - 1, columns * step - 1), np.nan)
    for i, picture in enumerate(pictures):
        top, left = i // columns * step, i % columns * step
        canvas[top : top + SIDE, left : left + SIDE] = picture
    figure = go.Figure(go.Heatmap(z=canvas, zmin=0, zmax=15, colorscale=[[0, "#f2f2f2"], [1, "#000000"]], showscale=False))
    figure.update_traces(hovertemplate=_("ink %{z} of 15") + "<extra></extra>", hoverongaps=False)
    figure.update_layout(height=20 + 90 * rows, margin={"l": 4, "r": 4, "t": 4, "b": 4})
    figure.update_layout(plot_bgcolor="rgba(0,0,0,0)", paper_bgcolor="rgba(0,0,0,0)")
    figure.update_xaxes(visible=False, constrain="domain")
    figure.update_yaxes(visible=False, autorange="reversed", scaleanchor="x", constrain="domain")
    return figure


def tune_figure(notes: Sequence[Note]) -> go.Figure:
    """A tune's notes, each a line as long as it sounds: quarter notes to the right, pitch upwards. ValueError for none."""
    if not notes:
        raise ValueError("there is no note to draw; give at least one")
    times = [t for note in notes for t in (note.start, note.start + note.length, None)]
    heights = [p for note in notes for p in (note.pitch, note.pitch, None)]
    said = [name for note in notes for name in (pitch_name(note.pitch), pitch_name(note.pitch), None)]
    figure = go.Figure(go.Scatter(x=times, y=heights, mode="lines", line={"color": GREY, "width": 6}, text=said))
    figure.update_traces(hovertemplate="%{text} · %{x:g}<extra></extra>")
    figure.update_layout(height=180, margin={"l": 4, "r": 4, "t": 4, "b": 36}, showlegend=False)
    figure.update_xaxes(title_text=_("quarter notes"), automargin=True)
    low, high = min(note.pitch for note in notes), max(note.pitch for note in notes)
    ticks = sorted({low, high, *(pitch for pitch in range(low + 2, high - 1) if pitch % 12 in (2, 7))})  # and each D and G
    figure.update_yaxes(tickvals=ticks, ticktext=[pitch_name(pitch) for pitch in ticks], range=[low - 1.5, high + 1.5], automargin=True)
    return figure


def pitch_name(pitch: int) -> str:
    """``D4`` for 62, the D above middle C, which is C4."""
    return f"{_NAMES[pitch % 12]}{pitch // 12 - 1}"
