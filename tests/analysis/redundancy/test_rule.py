from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from nqlab.analysis.redundancy.architecture import CHOICES, Architecture, of_config
from nqlab.analysis.redundancy.rule import Restriction, analyse
from nqlab.analysis.redundancy.small import conditioned, draw, forward, relative_error, shapes, token_ids
from nqlab.analysis.redundancy.structure import joined, matrices, skips_of, states_of
from nqlab.analysis.redundancy.transform import Bases, apply, apply_anyway, change_bases, factor, fold_gains
from nqlab.config import ModelConfig
from nqlab.model.gpt import keyed_generator

NORMS = [("none", "all"), *itertools.product(("rmsnorm", "layernorm"), CHOICES["gains"])]  # without a norm there is no gain
SWITCHES = [(s, *n, *rest) for s, n, *rest in itertools.product(CHOICES["skips"], NORMS, (False, True), (False, True), (1, 3))]


def small(**changes: object) -> Architecture:
    return Architecture(**{"n_embd": 12, "n_head": 2, "n_layer": 3} | changes)  # type: ignore[arg-type]


def error_of(architecture: Architecture, **options: object) -> float:
    weights, ids = draw(architecture), token_ids(architecture)
    new = apply(weights, architecture, **options).weights  # type: ignore[arg-type]
    return relative_error(forward(new, architecture, ids), forward(weights, architecture, ids))


def moved(architecture: Architecture, bases: Bases) -> float:
    """The error of any change of bases, after folding the gains."""
    weights, ids = draw(architecture), token_ids(architecture)
    new = change_bases(fold_gains(weights, architecture), architecture, bases)
    return relative_error(forward(new, architecture, ids), forward(weights, architecture, ids))


def random_matrix(name: str, width: int = 12) -> Tensor:
    z = torch.randn(width, width, generator=keyed_generator("test", name), dtype=torch.float64)
    return conditioned(z, 10.0)


def random_orthogonal(name: str, width: int = 12, fixing_ones: bool = False) -> Tensor:
    return factor(random_matrix(name, width), Restriction.FIXES_ONES if fixing_ones else Restriction.ORTHOGONAL)[0]


@pytest.mark.parametrize(("skips", "norm", "gains", "tied", "shared", "n_layer"), SWITCHES)
def test_what_the_rule_allows_changes_nothing_and_what_it_forbids_does(
    skips: str, norm: str, gains: str, tied: bool, shared: bool, n_layer: int
) -> None:
    architecture = small(skips=skips, norm=norm, gains=gains, tied=tied, shared_query=shared, n_layer=n_layer)
    weights, ids = draw(architecture), token_ids(architecture)
    expected = forward(weights, architecture, ids)
    done = apply(weights, architecture)
    assert relative_error(forward(done.weights, architecture, ids), expected) < 1e-9

    analysis, eye = done.analysis, torch.eye(12, dtype=torch.float64)
    queries = [done.weights[f"{layer}.Q"] for layer in range(n_layer)]
    assert sum(torch.equal(q, eye) for q in queries) == analysis.removable
    assert sum(not torch.equal(q, eye) and not q.tril(-1).any() for q in queries) == analysis.triangular
    if analysis.verdict == "exact":
        assert analysis.removable == n_layer
        return
    assert analysis.removable < n_layer
    assert (analysis.verdict == "orthogonal only") == (analysis.removable + analysis.triangular == n_layer)
    naive = apply_anyway(weights, architecture)
    assert all(torch.equal(naive[f"{layer}.Q"], eye) for layer in range(n_layer))
    assert relative_error(forward(naive, architecture, ids), expected) > 1e-3


@pytest.mark.parametrize("remove", ["query", "key", "value"])
@pytest.mark.parametrize("skips", ["none", "both"])
@pytest.mark.parametrize("norm", ["none", "rmsnorm", "layernorm"])
def test_keys_or_values_can_go_instead_of_queries(remove: str, skips: str, norm: str) -> None:
    architecture = small(skips=skips, norm=norm)
    assert error_of(architecture, remove=remove) < 1e-9
    one, other = analyse(architecture), analyse(architecture, remove)  # type: ignore[arg-type]
    assert (one.verdict, one.removable, one.triangular) == (other.verdict, other.removable, other.triangular)
    assert f"W_{remove[0].upper()}" in other.sentence


@pytest.mark.parametrize("skips", CHOICES["skips"])
@pytest.mark.parametrize("norm", CHOICES["norm"])
@pytest.mark.parametrize(
    "extra", [{"positions": "rope"}, {"biases": True}, {"qk_norm": True}, {"n_kv_head": 1}, {"activation": "relu"}], ids=str
)
def test_rope_biases_qk_norm_grouped_queries_and_activation_change_no_verdict(skips: str, norm: str, extra: dict[str, object]) -> None:
    plain, other = small(skips=skips, norm=norm), small(skips=skips, norm=norm, **extra)
    assert error_of(other) < 1e-9
    assert analyse(plain).record() == analyse(other).record()


def test_everything_at_once_is_exact() -> None:
    both = small(skips="both", norm="layernorm", gains="inner", tied=True, biases=True, positions="rope", qk_norm=True, n_kv_head=1)
    assert analyse(both).triangular == 1
    assert error_of(both) < 1e-9


def test_biases_of_writers_move_with_them_and_those_of_readers_stay() -> None:
    architecture = small(biases=True)
    weights, ids = draw(architecture), token_ids(architecture)
    done = apply(weights, architecture)
    for name in ("0.b_Q", "0.b_K", "0.b_V", "1.b_A"):
        assert torch.equal(done.weights[name], weights[name])
    torch.testing.assert_close(done.weights["0.b_B"], weights["0.b_B"] @ weights["1.Q"])
    forgotten = done.weights | {"0.b_B": weights["0.b_B"]}
    assert relative_error(forward(forgotten, architecture, ids), forward(weights, architecture, ids)) > 1e-3


def test_learned_positions_move_with_the_embedding() -> None:
    architecture = small()
    weights, ids = draw(architecture), token_ids(architecture)
    new = apply(weights, architecture).weights
    torch.testing.assert_close(new["P"], weights["P"] @ weights["0.Q"])
    assert relative_error(forward(new | {"P": weights["P"]}, architecture, ids), forward(weights, architecture, ids)) > 1e-2


def test_grouped_queries_leave_only_the_query() -> None:
    grouped = small(n_kv_head=1)
    assert analyse(grouped).verdict == "exact"
    for remove in ("key", "value"):
        analysis = analyse(grouped, remove)  # type: ignore[arg-type]
        assert (analysis.verdict, analysis.removable, analysis.triangular, analysis.parameters_saved) == ("impossible", 0, 0, 0)
        assert "not square" in analysis.sentence


# --- each restriction is needed: what just breaks it fails, what just meets it does not


@pytest.mark.parametrize("norm", ["none", "rmsnorm", "layernorm"])
def test_each_norm_passes_its_own_class_and_no_larger_one(norm: str) -> None:
    architecture = small(skips="both", norm=norm)
    general, orthogonal, fixing = random_matrix("g"), random_orthogonal("o"), random_orthogonal("f", fixing_ones=True)
    errors = [moved(architecture, dict.fromkeys(states_of(architecture), s)) for s in (general, orthogonal, fixing)]
    allowed = {"none": 3, "rmsnorm": 2, "layernorm": 1}[norm]
    assert all(error < 1e-10 for error in errors[3 - allowed :])
    assert all(error > 1e-2 for error in errors[: 3 - allowed])


@pytest.mark.parametrize("skips", ["attention", "mlp", "both"])
def test_a_skip_forces_its_two_states_to_share_one_s(skips: str) -> None:
    architecture = small(skips=skips)
    per_class = {s: random_matrix(c[0]) for c in joined(states_of(architecture), skips_of(architecture)) for s in c}
    assert moved(architecture, per_class) < 1e-10
    assert moved(architecture, {state: random_matrix(state) for state in states_of(architecture)}) > 1e-2


def test_a_tied_output_breaks_under_a_general_s_and_survives_an_orthogonal_one_without_final_gain() -> None:
    tied = {"skips": "both", "tied": True}
    general, orthogonal = random_matrix("g"), random_orthogonal("o")
    names = states_of(small())
    assert 0.3 < moved(small(**tied), dict.fromkeys(names, general)) < 1.5
    assert moved(small(**tied), dict.fromkeys(names, orthogonal)) < 1e-10
    assert moved(small(norm="rmsnorm", gains="inner", **tied), dict.fromkeys(names, orthogonal)) < 1e-10
    assert moved(small(norm="rmsnorm", gains="all", **tied), dict.fromkeys(names, orthogonal)) > 1e-2


def test_without_skips_a_tied_output_carries_the_inverse_transpose() -> None:
    architecture = small(tied=True)
    done = apply(draw(architecture), architecture)
    assert done.analysis.verdict == "exact"
    assert "inverse transpose" in done.analysis.groups[-1].choice
    torch.testing.assert_close(done.bases["x3"].T @ done.bases["x0"], torch.eye(12, dtype=torch.float64), rtol=0, atol=1e-10)
    assert moved(architecture, done.bases | {"x3": torch.eye(12, dtype=torch.float64)}) > 1e-2


def test_the_layernorm_factor_fixes_ones_and_is_triangular() -> None:
    w = random_matrix("w", 7)
    s, form = factor(w, Restriction.FIXES_ONES)
    eye, ones = torch.eye(7, dtype=torch.float64), torch.ones(7, dtype=torch.float64)
    torch.testing.assert_close(s @ s.T, eye, rtol=0, atol=1e-13)
    torch.testing.assert_close(s @ ones, ones, rtol=0, atol=1e-13)
    assert torch.equal(form, form.triu())
    unseen = s @ form - w  # a multiple of ones in each column
    torch.testing.assert_close(unseen, unseen.mean(dim=0).expand(7, 7), rtol=0, atol=1e-12)


# --- what the page reads


def test_headlines() -> None:
    gpt = of_config(ModelConfig(n_embd=16, n_head=2), 65)
    assert (gpt.skips, gpt.norm, gpt.tied) == ("both", "layernorm", True)
    analysis = analyse(gpt)
    assert (analysis.verdict, analysis.removable, analysis.triangular, analysis.parameters_saved) == ("impossible", 0, 0, 0)
    assert "restriction, not a rewriting" in analysis.sentence
    assert analyse(small()).verdict == "exact"
    assert analyse(small(norm="rmsnorm")).verdict == "orthogonal only"
    assert analyse(small(skips="both")).verdict == "impossible"
    assert analyse(small(skips="both", shared_query=True)).verdict == "exact"
    assert analyse(small(skips="both", n_layer=1)).verdict == "exact"


@pytest.mark.parametrize("skips", CHOICES["skips"])
def test_the_diagram_lists_every_matrix_once_and_every_state_in_one_group(skips: str) -> None:
    architecture = small(skips=skips, biases=True)
    analysis = analyse(architecture)
    touched = [name for state in analysis.states for name, _ in state.writers + state.readers]
    assert sorted(touched) == sorted(m.name for m in matrices(architecture))
    unmoved = {f"{layer}.b_{letter}" for layer in range(3) for letter in "QKVA"}
    assert set(touched) | unmoved == set(shapes(architecture))
    assert [state.name for state in analysis.states] == list(states_of(architecture))
    assert sorted(s for group in analysis.groups for s in group.states) == sorted(states_of(architecture))
    assert len(analysis.groups) == {"none": 7, "attention": 4, "mlp": 4, "both": 1}[skips]
    assert all(text in (f"{name} S{s.group}", f"S{s.group}⁻¹ {name}") for s in analysis.states for name, text in s.writers + s.readers)


def test_the_tied_diagram_reads_with_the_transpose() -> None:
    last = analyse(small(tied=True)).states[-1]
    assert last.title == "into the output"
    assert last.readers == (("Eᵀ", "S6⁻¹ Eᵀ = (E S0)ᵀ"),)


@pytest.mark.parametrize(("skips", "norm", "gains", "tied", "shared", "n_layer"), SWITCHES[::5])
def test_a_sentence_is_one_sentence(skips: str, norm: str, gains: str, tied: bool, shared: bool, n_layer: int) -> None:
    analysis = analyse(small(skips=skips, norm=norm, gains=gains, tied=tied, shared_query=shared, n_layer=n_layer))
    text = analysis.sentence
    assert text[0].isupper()
    assert text.endswith(".")
    assert text.count(":") == 1
    assert len(text) < 420
    assert Restriction.GENERAL.title == "any invertible"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"skips": "all"}, "skips 'all' is unknown; choose one of none, attention, mlp, both"),
        ({"norm": "dyt"}, "norm 'dyt'"),
        ({"gains": "some"}, "gains 'some'"),
        ({"positions": "alibi"}, "positions 'alibi'"),
        ({"activation": "tanh"}, "activation 'tanh'"),
        ({"n_embd": 10, "n_head": 4}, "n_embd 10 is not a multiple of n_head 4; take n_embd 8 or 12"),
        ({"n_kv_head": 4, "n_head": 6}, "n_kv_head 4 does not divide n_head 6; take one of 1, 2, 3, 6"),
        ({"n_embd": 6, "n_head": 2, "positions": "rope"}, "head size 3 is odd"),
        ({"vocab_size": 0}, "vocab_size 0"),
    ],
)
def test_an_architecture_that_is_none_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        small(**changes)


def test_unknown_projections_layers_scopes_and_conditions_are_refused() -> None:
    with pytest.raises(ValueError, match="remove 'output' is unknown; choose one of query, key, value"):
        analyse(small(), "output")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="layer 3 is not there; take 0 to 2"):
        analyse(small(), layer=3)
    with pytest.raises(ValueError, match="scope 'some'"):
        apply_anyway(draw(small()), small(), "some")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"condition 0\.5"):
        draw(small(), condition=0.5)


def test_the_rule_needs_no_torch_and_the_package_no_page() -> None:
    code = (
        "import sys, nqlab.analysis.redundancy.rule; assert 'torch' not in sys.modules;"
        "import nqlab.analysis.redundancy.cases, nqlab.analysis.redundancy.trained, nqlab.analysis.redundancy.lemma;"
        "import nqlab.analysis.redundancy.absorption, nqlab.analysis.redundancy.least_squares;"
        "assert not {'streamlit', 'pandas', 'plotly'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
