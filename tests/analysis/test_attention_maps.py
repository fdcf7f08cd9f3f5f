"""Attention weights computed from outside: they are the module's own, they sum to 1, and no one sees ahead."""

import json
import math

import numpy as np
import pytest
import torch

from nqlab import slots
from nqlab.analysis.attention_maps import MAX_CHARACTERS, attention_maps, attention_weights, entropies, uniform_entropy, weights_of
from tests.analysis.test_probe import ids_of, model_of


@pytest.mark.parametrize("query", slots.QUERY)
def test_the_weights_reproduce_what_the_module_puts_out(docs, query):
    model = model_of(docs, query)
    ids, seen = ids_of(docs, model), {}
    for i, block in enumerate(model.blocks):
        block.attn.register_forward_hook(lambda module, args, out, i=i: seen.update({i: (args[0], out)}))
    with torch.no_grad():
        for i, weights in enumerate(weights_of(model, ids)):
            x, out = seen[i]
            attn = model.blocks[i].attn
            v = attn.value(x).view(4, 16, 2, 8).transpose(1, 2)  # (N, H, T, D)
            again = attn.out((weights @ v).transpose(1, 2).flatten(2))
            assert torch.allclose(again, out, atol=1e-5)
            assert torch.allclose(weights.sum(-1), torch.ones(4, 2, 16), atol=1e-6)
            assert not weights.triu(1).any()
            assert weights.min() >= 0


def test_a_hand_written_row():
    q, k = torch.tensor([[1.0, 2.0], [3.0, -1.0]]), torch.tensor([[0.5, 1.0], [1.0, 1.0]])
    first, second = (3 * 0.5 - 1) / math.sqrt(2), (3 - 1) / math.sqrt(2)
    share = math.exp(first) / (math.exp(first) + math.exp(second))
    expected = torch.tensor([[1, 0], [share, 1 - share]])
    assert torch.allclose(attention_weights(q, k), expected)


@pytest.mark.parametrize("length", [1, 5, 64])
def test_entropy_without_preferences_is_the_mean_of_the_logarithms(length):
    flat = attention_weights(torch.zeros(2, length, 4), torch.randn(2, length, 4))
    mean = sum(math.log(i + 1) for i in range(length)) / length
    assert uniform_entropy(length) == pytest.approx(mean)
    assert float(entropies(flat).mean()) == pytest.approx(mean, abs=1e-6)


def test_entropy_of_a_sharp_row_is_zero():
    assert torch.equal(entropies(torch.eye(3)), torch.zeros(3))


def test_maps_of_a_prompt_are_those_of_its_ids(docs):
    model = model_of(docs)
    prompt = docs.text[:11]
    maps = attention_maps(model, docs.vocabulary, prompt)
    assert maps.text == prompt
    assert maps.weights.shape == (2, 2, 11, 11)
    alone = weights_of(model, torch.tensor([docs.vocabulary.encode(prompt)]))
    assert np.array_equal(maps.weights[1], alone[1][0].numpy())
    assert maps.entropy(1, 0) == pytest.approx(float(entropies(alone[1][0, 0]).mean()))


def test_maps_are_plain_data(docs):
    record = json.loads(json.dumps(attention_maps(model_of(docs), docs.vocabulary, "an a").record(), allow_nan=False))
    assert record["characters"] == ["a", "n", " ", "a"]
    assert record["weights"][1][1][0] == [1, 0, 0, 0]


def test_looking_leaves_the_model_as_it_was(docs):
    model = model_of(docs)
    model.train()
    attention_maps(model, docs.vocabulary, "an")
    assert model.training
    assert not any(module._forward_hooks for module in model.modules())


def test_a_prompt_is_refused_with_the_reason(docs):
    model = model_of(docs)
    with pytest.raises(ValueError, match="the corpus has no '☃'"):
        attention_maps(model, docs.vocabulary, "a ☃")
    with pytest.raises(ValueError, match="17 characters; at most 16 fit"):
        attention_maps(model, docs.vocabulary, "a" * 17)
    with pytest.raises(ValueError, match=f"at most {MAX_CHARACTERS} fit"):
        attention_maps(model_of(docs, block_size=100), docs.vocabulary, "a" * 65)
    assert attention_maps(model, docs.vocabulary, "").text == "\n"
