from __future__ import annotations

import math

import pytest
import torch

from nqlab.model.activation import GELU, ReLU
from nqlab.model.norm import LayerNorm, RMSNorm

X = torch.randn(4, 5, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3 + 1


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_layernorm_is_its_formula_with_a_gain_and_no_bias(scale: float) -> None:
    norm, x = LayerNorm(12).double(), X * scale
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 2, 12))
    centred = x - x.mean(-1, keepdim=True)
    expected = norm.weight * centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-5)
    torch.testing.assert_close(norm(x), expected, rtol=1e-12, atol=1e-12)
    assert [name for name, _ in norm.named_parameters()] == ["weight"]


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_rmsnorm_is_its_formula_with_a_gain_and_no_bias(scale: float) -> None:
    norm, x = RMSNorm(12).double(), X * scale
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 2, 12))
    expected = norm.weight * x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-5)
    torch.testing.assert_close(norm(x), expected, rtol=1e-12, atol=1e-12)
    assert [name for name, _ in norm.named_parameters()] == ["weight"]


def test_the_two_norms_agree_on_centred_input_and_on_no_other() -> None:
    centred = X - X.mean(-1, keepdim=True)
    torch.testing.assert_close(LayerNorm(12).double()(centred), RMSNorm(12).double()(centred), rtol=1e-12, atol=1e-12)
    assert (LayerNorm(12).double()(X) - RMSNorm(12).double()(X)).abs().max() > 0.1


def test_gains_start_at_one() -> None:
    assert (LayerNorm(7).weight == 1).all()
    assert (RMSNorm(7).weight == 1).all()


def test_gelu_is_the_erf_form_and_not_the_tanh_one() -> None:
    z = torch.linspace(-5, 5, 101, dtype=torch.float64)
    expected = torch.tensor([v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in z.tolist()], dtype=torch.float64)
    torch.testing.assert_close(GELU()(z), expected, rtol=1e-12, atol=1e-14)
    tanh = 0.5 * z * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
    assert (GELU()(z) - tanh).abs().max() > 1e-4


def test_relu_keeps_the_positive_part() -> None:
    assert ReLU()(torch.tensor([-2.0, 0.0, 3.0])).tolist() == [0.0, 0.0, 3.0]
