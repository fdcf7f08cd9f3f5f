import pytest
import torch

from nqlab import corpus as corpora
from nqlab.analysis.figures import error_figure
from nqlab.analysis.redundancy.architecture import Architecture
from nqlab.analysis.redundancy.diagram import dot, factors
from nqlab.analysis.redundancy.examine import errors_of, examine_model
from nqlab.analysis.redundancy.rule import analyse
from nqlab.config import ModelConfig
from nqlab.model.gpt import GPT


def test_a_standard_gpt_allows_nothing_and_w_q_as_identity_is_wrong():
    found = errors_of(Architecture(skips="both", norm="layernorm", tied=True))
    assert found.analysis.verdict == "impossible"
    assert found.rule < 1e-10
    assert found.anyway > 1e-2
    assert found.gauge is not None
    assert found.gauge < 1e-10
    assert found.gauge_saved == 2 * 4 * 16 * 4


def test_without_skips_and_norms_the_identity_is_only_rounding_away_and_rope_forbids_the_gauge():
    found = errors_of(Architecture(positions="rope"))
    assert found.analysis.verdict == "exact"
    assert found.anyway < 1e-10
    assert found.gauge is None


def test_float32_and_a_bad_condition_number_cost_precision():
    good, bad = (errors_of(Architecture(), condition, "float32") for condition in (10.0, 1e6))
    assert good.epsilon == torch.finfo(torch.float32).eps
    assert bad.rule > 100 * good.rule


def test_the_diagram_has_a_node_for_each_state_and_an_edge_for_each_skip():
    analysis = analyse(Architecture(n_layer=3, skips="attention"))
    graph = dot(analysis)
    assert graph.count("fillcolor") == 7
    assert graph.count('label="skip"') == 3
    rows = factors(analysis)
    assert len(rows) == 7
    assert rows[0]["written by"] == "E S0, P S0"
    assert rows[0]["carries"] == "S0 = W_Q of layer 0"


def test_examining_a_model_gives_the_gauge_and_three_misuses():
    corpus = corpora.load("python-docs")
    config = ModelConfig(n_layer=2, n_head=2, n_embd=16, block_size=16)
    found = examine_model(GPT(config, len(corpus.vocabulary)), corpus, windows=8)
    assert found.gauge_change < 1e-10
    assert found.gauge_loss == pytest.approx(found.loss, abs=1e-5)
    assert found.gauge_saved == 2 * 2 * 16 * 8
    assert len(found.misuse_losses) == 3
    with pytest.raises(ValueError, match="nonlinear"):
        examine_model(GPT(ModelConfig(n_head=2, n_embd=16, query="nonlinear"), 50), corpus)


def test_the_error_figure_marks_what_is_wrong_by_words_and_hatching():
    figure = error_figure({"rule": 1e-15, "anyway": 0.5}, 2e-16)
    assert list(figure.data[0].text) == ["1e-15 ✓ rounding", "5e-01 ✗ wrong"]
    assert figure.data[0].marker.pattern.shape == ("", "/")
