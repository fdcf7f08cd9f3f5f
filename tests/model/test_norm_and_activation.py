from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nqlab import slots
from nqlab.config import ModelConfig
from nqlab.model.activation import EGEM, GELU, ReLU, TanhGELU
from nqlab.model.gpt import GPT
from nqlab.model.norm import DyISRU, LayerNorm, RMSNorm

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


# --- the formulas written out, element by element

Numbers = dict[str, list[float]]
Row = list[float]


def rms_of(x: Row) -> float:
    return math.sqrt(sum(v * v for v in x) / len(x) + 1e-5)


def layernorm(x: Row, w: Numbers) -> Row:
    mean = sum(x) / len(x)
    return [g * (v - mean) / rms_of([u - mean for u in x]) for g, v in zip(w["weight"], x)]


NORMS: dict[str, Callable[[Row, Numbers], Row]] = {  # one position of 40 channels
    "layernorm": layernorm,
    "rmsnorm": lambda x, w: [g * v / rms_of(x) for g, v in zip(w["weight"], x)],
    "prmsnorm": lambda x, w: [g * v / rms_of(x[:3]) for g, v in zip(w["weight"], x)],  # 6.25 % of 40 are 2.5
    "dyt": lambda x, w: [g * math.tanh(w["alpha"][0] * v) + b for g, v, b in zip(w["weight"], x, w["bias"])],
    "dyisru": lambda x, w: [math.sqrt(40) * v / math.sqrt(math.exp(w["log_b"][0]) + v * v) for v in x],
    "derf": lambda x, w: [g * math.erf(w["alpha"][0] * v + w["shift"][0]) + b for g, v, b in zip(w["weight"], x, w["bias"])],
    "none": lambda x, w: x,
}
ACTIVATIONS: dict[str, Callable[[float], float]] = {
    "gelu": lambda z: z * (1 + math.erf(z / math.sqrt(2))) / 2,
    "gelu_tanh": lambda z: z / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))),
    "relu": lambda z: max(z, 0.0),
    "relu2": lambda z: max(z, 0.0) ** 2,
    "silu": lambda z: z / (1 + math.exp(-z)),
    "gem1": lambda z: z**3 / (1 + z**2) if z > 0 else 0.0,
    "gem2": lambda z: z**5 / (1 + z**4) if z > 0 else 0.0,
    "egem": lambda z: z**5 / (1e-4 + z**4) if z > 0 else 0.0,
}


@pytest.mark.parametrize("name", slots.NORM)
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e3])
def test_a_norm_is_its_formula(name: str, scale: float) -> None:
    assert name in NORMS, f"write the formula of norm {name!r} out in NORMS"
    generator = torch.Generator().manual_seed(0)
    norm: nn.Module = slots.load("norm", name)(40).double()
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.normal_(0.5, 0.7, generator=generator)
    x = (torch.randn(3, 40, dtype=torch.float64, generator=generator) + 0.3) * scale
    numbers = {n: p.tolist() for n, p in norm.named_parameters()}
    expected = torch.tensor([NORMS[name](row, numbers) for row in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(norm(x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", slots.ACTIVATION)
def test_an_activation_is_its_formula(name: str) -> None:
    assert name in ACTIVATIONS, f"write the formula of activation {name!r} out in ACTIVATIONS"
    z = torch.linspace(-6, 6, 241, dtype=torch.float64)
    expected = torch.tensor([ACTIVATIONS[name](v) for v in z.tolist()], dtype=torch.float64)
    torch.testing.assert_close(slots.load("activation", name)()(z), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", slots.ACTIVATION)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_an_activation_and_its_slope_are_finite_however_small_or_large_the_input(name: str, dtype: torch.dtype) -> None:
    squaring = name in ("relu2", "gelu_tanh")  # the second in torch's kernel; 1e19 squared is beyond float32
    sizes = torch.logspace(-44, 18 if squaring else 38, 400, dtype=torch.float64)
    z = torch.cat((-sizes, torch.zeros(1), sizes)).to(dtype).requires_grad_()
    found = slots.load("activation", name)()(z)
    (slope,) = torch.autograd.grad(found.sum(), z)
    assert found.isfinite().all()
    assert slope.isfinite().all()


@pytest.mark.parametrize("name", slots.ACTIVATION)
def test_an_activations_slope_is_that_of_its_formula(name: str) -> None:
    z = torch.linspace(-3.005, 3.005, 602, dtype=torch.float64).requires_grad_()  # none where a formula changes
    (slope,) = torch.autograd.grad(slots.load("activation", name)()(z).sum(), z)
    h = 1e-6
    expected = torch.tensor([(ACTIVATIONS[name](v + h) - ACTIVATIONS[name](v - h)) / (2 * h) for v in z.tolist()], dtype=torch.float64)
    torch.testing.assert_close(slope, expected, rtol=1e-6, atol=1e-7)


def test_the_two_gelus_differ_and_the_reconstruction_is_nearer_to_relu_than_what_it_generalises() -> None:
    z = torch.linspace(-5, 5, 101, dtype=torch.float64)
    assert 1e-4 < (GELU()(z) - TanhGELU()(z)).abs().max() < 1e-3
    gaps = [(act()(z) - ReLU()(z)).abs().max() for act in (EGEM, slots.load("activation", "gem2"))]
    assert gaps[0] < gaps[1] / 5
    assert "reconstruction" in slots.ACTIVATION["egem"].title


# --- what the norms without statistics keep of a norm


@pytest.mark.parametrize("width", [16, 1024])
def test_dyisru_with_the_sum_of_the_other_squares_as_its_constant_is_rmsnorm_without_eps(width: int) -> None:
    x = torch.randn(width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = x / x.square().mean().sqrt()
    for k in (0, 7, width - 1):
        norm = DyISRU(width).double()
        with torch.no_grad():
            norm.log_b.fill_(math.log(x.square().sum() - x[k] ** 2))
        assert norm(x)[k].item() == pytest.approx(expected[k].item(), rel=1e-12)


def test_dyisru_as_it_starts_tends_to_rmsnorm_at_unit_rms_as_the_width_grows() -> None:
    gaps = []
    for width in (64, 640, 6400):
        x = torch.randn(width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        x = x / x.square().mean().sqrt()
        gap = (DyISRU(width).double()(x) - x / x.square().mean().sqrt()).abs()
        assert (gap <= x.abs() ** 3 / (2 * width) + 1e-6).all()  # x (1 - 1/sqrt(1 + x^2/C)); b is kept in float32
        gaps.append(gap.square().mean().sqrt().item())
    assert gaps[0] > 8 * gaps[1] > 64 * gaps[2]
    assert not torch.allclose(DyISRU(64).double()(3 * X[0, 0, :1].expand(64)), RMSNorm(64).double()(3 * X[0, 0, :1].expand(64)))


def test_the_constant_of_dyisru_starts_at_the_width_and_stays_positive() -> None:
    norm = DyISRU(48)
    assert norm.log_b.exp().item() == pytest.approx(48, rel=1e-6)
    with torch.no_grad():
        norm.log_b.fill_(-60.0)
    assert norm(torch.tensor([0.0, -2.0, 1e-3] * 16)).isfinite().all()


@pytest.mark.parametrize("width", [1, 15, 16, 17, 64])
def test_prmsnorm_looks_at_one_channel_in_sixteen_and_at_least_at_one(width: int) -> None:
    x = torch.ones(width, requires_grad=True)
    norm = slots.load("norm", "prmsnorm")(width)
    jacobian: Any = torch.autograd.functional.jacobian(norm, x)
    looked_at = (jacobian - torch.diag(jacobian.diagonal())).abs().sum(0) > 0 if width > 1 else jacobian.diagonal() < 0.1
    assert looked_at.tolist() == [i < {1: 1, 15: 1, 16: 1, 17: 2, 64: 4}[width] for i in range(width)]


@pytest.mark.parametrize("name", ["dyt", "dyisru", "derf", "none"])
def test_what_squashes_instead_of_norming_leaves_a_small_input_small(name: str) -> None:
    def size(z: Tensor) -> float:
        return z.square().mean().sqrt().item()

    x = 0.02 * torch.randn(64, generator=torch.Generator().manual_seed(0))
    assert size(slots.load("norm", name)(64)(x)) < 0.03
    assert size(LayerNorm(64)(x)) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("name", slots.NORM)
def test_f_of_the_nonlinear_query_keeps_the_papers_norms_whatever_stands_in_the_slot(name: str) -> None:
    query = GPT(ModelConfig(query="nonlinear", norm=name), 7).blocks[0].attn.query
    assert isinstance(query.norm, RMSNorm)
    assert isinstance(query.out_norm, LayerNorm)
