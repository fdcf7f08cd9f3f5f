"""Charts as tables, for those who can't see them: the same numbers, in words' order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from nqlab.analysis.attention_maps import AttentionMaps
from nqlab.analysis.bands import Band
from nqlab.analysis.figures import title_of
from nqlab.words import _


def curves_table(curves: Mapping[str, tuple[Iterable[float], Iterable[float]]], x: str) -> pd.DataFrame:
    """Curves side by side, a row for every x that any of them has, a column for each name; ``x`` heads the first column."""
    columns = [pd.Series(list(ys), index=pd.Index(list(xs), name=x), name=name) for name, (xs, ys) in curves.items()]
    return pd.concat(columns, axis=1).sort_index().reset_index() if columns else pd.DataFrame()


def bands_table(bands: Mapping[str, Band], x: str) -> pd.DataFrame:
    """Curves over seeds below each other, since one variant's seconds are not another's: mean, least and greatest loss at each x."""
    return pd.DataFrame(
        {_("arm"): title_of(arm), x: band.x[i], _("mean loss"): band.mean[i], _("least"): band.low[i], _("greatest"): band.high[i]}
        for arm, band in bands.items()
        for i in range(len(band.x))
    )


def maps_table(maps: Mapping[str, AttentionMaps], layer: int) -> pd.DataFrame:
    """The attention of all heads of a layer: a row a position that looks, a column a position that is looked at, counted from 1.

    Positions ahead are left empty. A run without this layer is left out.
    """
    rows = []
    for label, one in maps.items():
        if layer >= len(one.weights):
            continue
        places = [f"{i + 1} {character!r}" for i, character in enumerate(one.text)]
        for head, weights in enumerate(one.weights[layer]):
            for i, place in enumerate(places):
                seen: dict[str, float | None] = {p: float(weights[i, j]) if j <= i else None for j, p in enumerate(places)}
                rows.append({_("run"): label, _("head"): head + 1, _("position"): place, **seen})
    return pd.DataFrame(rows)
