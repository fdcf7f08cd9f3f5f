"""Tables say what the charts beside them show."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nqlab.analysis.attention_maps import AttentionMaps
from nqlab.analysis.bands import Band
from nqlab.analysis.tables import bands_table, curves_table, maps_table


def test_curves_with_other_steps_stand_side_by_side() -> None:
    found = curves_table({"a": ([0, 10, 20], [3.0, 2.0, 1.5]), "b": ([0, 20], [3.1, 1.4])}, "step")
    assert list(found.columns) == ["step", "a", "b"]
    assert found["step"].tolist() == [0, 10, 20]
    assert found["a"].tolist() == [3.0, 2.0, 1.5]
    assert found["b"].tolist()[::2] == [3.1, 1.4]
    assert pd.isna(found["b"][1])
    assert curves_table({}, "step").empty


def test_bands_have_a_row_for_each_variant_and_place() -> None:
    xs = np.array([0.0, 5.0])
    one = Band(xs, np.array([3.0, 2.0]), np.array([2.9, 1.9]), np.array([3.1, 2.2]))
    found = bands_table({"linear": one, "nonlinear": Band(2 * xs, one.mean - 1, one.low - 1, one.high - 1)}, "seconds")
    assert found["seconds"].tolist() == [0, 5, 0, 10]
    assert found.iloc[3].tolist()[1:] == [10, 1.0, 0.8999999999999999, 1.2000000000000002]
    assert found["arm"].nunique() == 2


def test_maps_are_told_position_by_position_and_later_ones_are_empty() -> None:
    weights = np.array([[[[1.0, 0.0], [0.25, 0.75]]]], dtype=np.float32)  # a layer, a head
    found = maps_table({"one": AttentionMaps("a ", weights), "none": AttentionMaps("a ", weights[:0])}, 0)
    assert found.columns.tolist() == ["run", "head", "position", "1 'a'", "2 ' '"]
    assert found["1 'a'"].tolist() == [1.0, 0.25]
    assert pd.isna(found["2 ' '"][0])
    assert found["2 ' '"][1] == 0.75
    assert set(found["run"]) == {"one"}
