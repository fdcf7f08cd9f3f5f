from __future__ import annotations

import json
import math

import pytest
import torch

from nqlab.analysis.redundancy.architecture import Architecture
from nqlab.analysis.redundancy.cases import CASES, architecture_of, run_case, run_cases
from nqlab.analysis.redundancy.small import draw, forward, relative_error, token_ids
from nqlab.analysis.redundancy.transform import apply, apply_anyway

EXACT = (1, 2, 3, 4, 5, 8, 10)
WRONG = (6, 7, 9)
SIZES = [(16, 4, 4), (8, 2, 2), (24, 3, 5), (32, 4, 6), (6, 1, 1)]


@pytest.mark.parametrize(("n_embd", "n_head", "n_layer"), SIZES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_case_comes_out_as_the_argument_says(n_embd: int, n_head: int, n_layer: int, seed: int) -> None:
    results = {r.case: r for r in run_cases(n_embd, n_head, n_layer, seed)}
    assert sorted(results) == list(range(1, 11))
    for number in EXACT:
        assert results[number].error < 1e-10, number
        assert results[number].exact
        assert results[number].expected_exact
        assert results[number].parameters_saved > 0
    for number in WRONG:
        assert 1e-2 < results[number].error < math.inf, number
        assert not results[number].exact
        assert not results[number].expected_exact
        assert results[number].parameters_saved == 0


def test_the_errors_have_the_sizes_of_the_table() -> None:
    errors = {number: sorted(run_case(number, seed=seed).error for seed in range(5))[2] for number in CASES}
    for number in (1, 2, 3, 4, 5):
        assert errors[number] < 1e-13
    assert errors[8] < 3e-14
    assert errors[10] < 3e-15
    assert 30 < errors[6] < 3000
    assert 0.05 < errors[7] < 1.5
    assert 0.2 < errors[9] < 0.8


def test_parameters_saved_are_counted() -> None:
    width, size, n = 16, 4, 4
    saved = [r.parameters_saved for r in run_cases()]
    square, triangle = width**2, width * (width - 1) // 2
    assert saved == [n * square, n * square, n * square, square, square, 0, 0, n * triangle, 0, 2 * n * width * size]


@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_after_the_exact_cases_every_query_is_the_identity(number: int) -> None:
    architecture = architecture_of(number)
    new = apply(draw(architecture, 1), architecture).weights
    assert all(torch.equal(new[f"{layer}.Q"], torch.eye(16, dtype=torch.float64)) for layer in range(4))


@pytest.mark.parametrize("layer", range(4))
def test_in_case_4_only_the_chosen_query_is_the_identity(layer: int) -> None:
    architecture = architecture_of(4)
    weights, ids = draw(architecture), token_ids(architecture)
    new = apply(weights, architecture, layer=layer).weights
    assert relative_error(forward(new, architecture, ids), forward(weights, architecture, ids)) < 1e-10
    eye = torch.eye(16, dtype=torch.float64)
    assert [torch.equal(new[f"{i}.Q"], eye) for i in range(4)] == [i == layer for i in range(4)]


def test_in_case_8_every_query_is_triangular_and_every_basis_orthogonal() -> None:
    architecture = architecture_of(8)
    done = apply(draw(architecture), architecture)
    for layer in range(4):
        assert torch.equal(done.weights[f"{layer}.Q"].tril(-1), torch.zeros(16, 16, dtype=torch.float64))
        assert (done.weights[f"{layer}.Q"].diagonal() != 0).all()
        s = done.bases[f"x{layer}"]
        torch.testing.assert_close(s @ s.T, torch.eye(16, dtype=torch.float64), rtol=0, atol=1e-13)
        assert (s - torch.eye(16)).norm() > 1


def test_case_8_fails_when_the_gains_are_not_folded() -> None:
    plain = Architecture(norm="rmsnorm", gains="none")
    gained = Architecture(norm="rmsnorm")
    weights, ids = draw(gained), token_ids(gained)
    bases_of_the_unfolded = apply(weights, plain).weights
    kept = bases_of_the_unfolded | {name: w for name, w in weights.items() if name.startswith("gain")}
    assert relative_error(forward(kept, gained, ids), forward(weights, gained, ids)) > 1e-2


def test_the_wrong_cases_are_wrong_for_a_perfectly_conditioned_query() -> None:
    for number, scope in ((6, "layer"), (9, "global")):
        architecture = architecture_of(number)
        weights, ids = draw(architecture, condition=2.0), token_ids(architecture)
        new = apply_anyway(weights, architecture, scope)  # type: ignore[arg-type]
        assert relative_error(forward(new, architecture, ids), forward(weights, architecture, ids)) > 0.1


def test_float32_is_near_but_not_as_near() -> None:
    for number in EXACT:
        assert 1e-9 < run_case(number, dtype="float32").error < 1e-3
    assert run_case(1, dtype=torch.float32) == run_case(1, dtype="float32")


def test_a_case_is_the_same_each_time_and_another_with_another_seed() -> None:
    assert run_case(3, seed=5) == run_case(3, seed=5)
    assert run_case(3, seed=5).error != run_case(3, seed=6).error


def test_a_record_is_plain_data() -> None:
    rows = [json.loads(json.dumps(r.record(), allow_nan=False)) for r in run_cases()]
    for row in rows:
        assert {"case", "title", "transformed", "error", "exact", "expected", "parameters_saved"} <= row.keys()
        assert row["exact"] is row["expected"]
        assert row["why"].endswith(".")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"number": 0}, "case 0 is not there; choose 1 to 10"),
        ({"number": 11}, "case 11"),
        ({"number": 1, "n_embd": 100, "n_head": 3}, "take n_embd 99 or 102, or n_head"),
        ({"number": 1, "n_embd": 1024}, "n_embd 1024 is more than .* at most 512"),
        ({"number": 1, "n_layer": 100}, "n_layer 100 .* at most 12"),
        ({"number": 1, "n_layer": 0}, "n_layer"),
        ({"number": 1, "dtype": "float16"}, "dtype 'float16' .* float64, float32"),
    ],
)
def test_what_cannot_be_computed_is_refused_with_a_remedy(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        run_case(**arguments)  # type: ignore[arg-type]
