"""The rows about compilation, with a stand-in for the compiled function."""

import pytest

from nqlab.bench.compiled import FORMATS, compiled_rows
from nqlab.training import compiled as compilation
from nqlab.training import loop
from tests.training.test_compiled import Prepared, stand_in


def rows(monkeypatch, make, native):
    monkeypatch.setattr("nqlab.training.device.has_bfloat16", lambda device: native)
    monkeypatch.setitem(compilation.TOLERANCE, "bfloat16", (1.0, 1.0))
    monkeypatch.setattr(loop, "Builds", lambda: Prepared(make, at=2))
    return compiled_rows("T", rounds=3, seconds_a_turn=0.01)


def test_every_format_and_both_builds_have_their_row(monkeypatch):
    found = rows(monkeypatch, stand_in, native=True)
    assert [r["variant"] for r in found] == ["cold", "warm", *(f"linear, {name}" for name in FORMATS)]
    assert all(r["ratio"] > 0.1 for r in found if r["unit"] == "ratio")
    assert all(0 < r["value"] < 5 for r in found if r["unit"] == "s")


@pytest.mark.parametrize("native", [True, False])
def test_what_the_machine_lacks_has_its_reason(monkeypatch, native):
    found = {r["variant"]: r for r in rows(monkeypatch, lambda job: "there is no compiler", native)}
    for name in ("cold", "warm", "linear, float32, compiled"):
        assert found[name]["absent"] == "training goes on without compilation: there is no compiler"
    assert ("ratio" in found["linear, bfloat16"]) == native
    assert native or "not supported by this cpu" in found["linear, bfloat16"]["absent"]
    assert "absent" in found["linear, bfloat16, compiled"]
