"""Skip absorption and least squares."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nqlab.analysis.redundancy.absorption import (
    absorb,
    absorbable,
    absorption_error,
    best_subset,
    degree_gap,
    distance,
    mlp,
    slope_at_zero,
    subsets,
)
from nqlab.analysis.redundancy.least_squares import least_squares_attention, whitened
from nqlab.analysis.redundancy.small import relative_error
from nqlab.model.activation import GELU, ReLU
from nqlab.model.gpt import keyed_generator

LINEAR_ODD_PART = {"relu": ReLU(), "gelu": GELU(), "silu": F.silu}


def normal(*key: object, size: tuple[int, ...]) -> Tensor:
    return torch.randn(size, generator=keyed_generator(*key), dtype=torch.float64)


def relu_squared(z: Tensor) -> Tensor:
    return F.relu(z) ** 2


@pytest.mark.parametrize("name", LINEAR_ODD_PART)
@pytest.mark.parametrize("units", [(0, 1, 2), (0, 2, 3, 5), (0, 1, 2, 3, 4, 5)])
def test_where_the_condition_holds_a_flip_of_signs_absorbs_the_skip(name: str, units: tuple[int, ...]) -> None:
    act = LINEAR_ODD_PART[name]
    w_up, w_down = absorbable(3, 6, units, keyed_generator("absorb"))
    assert distance(w_up, w_down, units) < 1e-13
    assert best_subset(w_up, w_down, smallest=3).units == units
    x = normal("x", size=(50, 3))
    assert absorption_error(x, w_up, w_down, units, act) < 1e-13
    assert absorption_error(x, w_up, w_down, units[1:], act) > 1e-2
    z = normal("z", size=(40,))
    torch.testing.assert_close(act(z) - act(-z), z, rtol=0, atol=1e-14)


@pytest.mark.parametrize("seed", range(6))
def test_for_random_weights_no_subset_of_all_64_comes_near(seed: int) -> None:
    w_up, w_down = normal(seed, "up", size=(3, 6)), normal(seed, "down", size=(6, 3))
    assert len(list(subsets(w_up, w_down))) == 64
    best, large = best_subset(w_up, w_down), best_subset(w_up, w_down, smallest=3)
    assert 0.5 < best.distance <= 3**0.5 + 1e-12  # that of the empty set
    assert large.distance >= best.distance
    assert len(large.units) >= 3
    x = normal(seed, "x", size=(100, 3))
    assert min(absorption_error(x, w_up, w_down, s.units, F.gelu) for s in subsets(w_up, w_down)) > 0.05


def test_the_empty_set_is_as_far_off_as_the_identity_is_long() -> None:
    assert distance(normal("u", size=(3, 6)), normal("d", size=(6, 3)), ()) == pytest.approx(3**0.5)


def test_no_homogeneous_block_of_another_degree_absorbs_its_skip() -> None:
    units = (0, 1, 2, 4)
    w_up, w_down = absorbable(3, 6, units, keyed_generator("squared"))
    x = normal("x", size=(50, 3))
    assert absorption_error(x, w_up, w_down, units, relu_squared) > 0.1  # though the condition holds
    gate = normal("gate", size=(3, 6))
    blocks = (lambda t: mlp(t, w_up, w_down, relu_squared), lambda t: (F.relu(t @ gate) * (t @ w_up)) @ w_down)
    for block in blocks:
        assert degree_gap(block, x, 2) < 1e-14
        assert degree_gap(lambda t, block=block: t + block(t), 0.1 * x, 2) > 0.1
    flipped = absorb(w_up, units)
    assert degree_gap(lambda t: t + mlp(t, w_up, w_down, F.relu), x, 1) < 1e-14
    assert degree_gap(lambda t: mlp(t, flipped, w_down, F.relu), x, 1) < 1e-14


@pytest.mark.parametrize("g", [F.silu, F.gelu])
def test_no_gate_that_vanishes_at_zero_absorbs_its_skip(g: object) -> None:
    gate, w_up, w_down = normal("g", size=(3, 6)), normal("u", size=(3, 6)), normal("d", size=(6, 3))

    def block(t: Tensor) -> Tensor:
        return (g(t @ gate) * (t @ w_up)) @ w_down  # type: ignore[operator]

    assert slope_at_zero(block, 3).abs().max() == 0
    assert torch.equal(slope_at_zero(lambda t: t + block(t), 3), torch.eye(3, dtype=torch.float64))


def test_absorption_says_what_it_cannot_do() -> None:
    with pytest.raises(ValueError, match="2 hidden units cannot make up I of rank 3"):
        absorbable(3, 6, (0, 1), keyed_generator("few"))
    with pytest.raises(ValueError, match="hidden width 20 has 2\\^20 subsets"):
        best_subset(normal("u", size=(3, 20)), normal("d", size=(20, 3)))


# --- least squares


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("rows", "width", "outputs"), [(50, 6, 2), (40, 8, 1), (200, 12, 5)])
def test_linear_attention_is_least_squares_and_whitening_is_the_change_of_basis(seed: int, rows: int, width: int, outputs: int) -> None:
    x, y = normal(seed, "x", rows, size=(rows, width)), normal(seed, "y", rows, size=(rows, outputs))
    expected = x @ torch.linalg.lstsq(x, y).solution
    layer = least_squares_attention(x, y)
    assert relative_error(layer(x), expected) < 2e-14

    white, new = whitened(x, layer)
    eye = torch.eye(width, dtype=torch.float64)
    torch.testing.assert_close(white.T @ white, eye, rtol=0, atol=1e-13)
    assert torch.equal(new.w_q, eye)
    torch.testing.assert_close(new.w_k, eye, rtol=0, atol=1e-13)
    torch.testing.assert_close(new.w_v, eye, rtol=0, atol=1e-13)
    assert relative_error(new(white), expected) < 2e-14
    assert relative_error(new(x), expected) > 0.1


def test_the_closed_form_is_the_product_it_says() -> None:
    x, y = normal("x", size=(30, 4)), normal("y", size=(30, 2))
    layer = least_squares_attention(x, y)
    q, k, v = x @ layer.w_q, x @ layer.w_k, x @ layer.w_v
    torch.testing.assert_close(layer(x), (q @ k.T) @ v @ layer.readout, rtol=1e-12, atol=1e-12)


def test_columns_that_depend_on_each_other_are_refused() -> None:
    x, y = normal("x", size=(30, 4)), normal("y", size=(30, 2))
    x[:, 3] = x[:, 0] + x[:, 1]
    for bad in (x, x[:3]):
        with pytest.raises(ValueError, match="depend on each other"):
            least_squares_attention(bad, y[: len(bad)])
