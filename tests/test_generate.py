from __future__ import annotations

from itertools import islice

import pytest
import torch
from torch import Tensor

from nqlab import slots
from nqlab.config import ModelConfig
from nqlab.generate import NotFiniteError, lean, stream
from nqlab.model.gpt import GPT, keyed_generator

VOCAB, BLOCK = 11, 8
PROMPT = torch.tensor([[3, 1, 4]])


def model_of(query: str = "linear", **options: object) -> GPT:
    """A model in float64, far enough from initialisation to have an opinion."""
    config = ModelConfig.model_validate({"n_layer": 1, "n_head": 2, "n_embd": 16, "block_size": BLOCK, "query": query, **options})
    model = GPT(config, VOCAB, seed=1).double()
    with torch.no_grad():
        for i, parameter in enumerate(model.parameters()):
            parameter.add_(torch.randn(parameter.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(i)), alpha=0.3)
    return model


def text(model: GPT, length: int = 20, prompt: Tensor = PROMPT, **options: object) -> list[int]:
    return [int(i) for i in islice(stream(model, prompt, **options), length)]  # type: ignore[arg-type]


@pytest.mark.parametrize("query", slots.QUERY)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("prompt_length", [1, 8, 20])
def test_with_the_cache_and_without_the_text_is_the_same_beyond_a_full_context(query: str, temperature: float, prompt_length: int) -> None:
    model, prompt = model_of(query), torch.randint(VOCAB, (1, prompt_length), generator=torch.Generator().manual_seed(0))
    cached, uncached = (text(model, 2 * BLOCK + 2, prompt, temperature=temperature, use_cache=c, seed=5) for c in (True, False))
    assert cached == uncached
    assert temperature == 0 or len(set(cached)) > 1


@pytest.mark.parametrize("query", slots.QUERY)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("prompt_length", [1, 8, 20])
def test_a_batch_too_is_the_same_with_the_cache_and_without(query: str, temperature: float, prompt_length: int) -> None:
    model, prompts = model_of(query), torch.randint(VOCAB, (4, prompt_length), generator=torch.Generator().manual_seed(0))
    options = {"temperature": temperature, "seed": 5}
    texts = [list(islice(stream(model, prompts, use_cache=c, **options), 2 * BLOCK + 2)) for c in (True, False)]  # type: ignore[arg-type]
    cached, uncached = (torch.stack(ids, dim=1) for ids in texts)  # (4, length)
    assert torch.equal(cached, uncached)
    assert temperature == 0 or len(set(map(tuple, cached.tolist()))) == 4, "each row has draws of its own"


@pytest.mark.parametrize("block", [1, 2, 3])
def test_the_shortest_contexts_work_with_the_cache_and_without(block: int) -> None:
    model = model_of(block_size=block)
    assert text(model, use_cache=True) == text(model, use_cache=False)


def test_at_temperature_zero_the_likeliest_character_is_taken() -> None:
    model = model_of()
    context, expected = PROMPT, []
    for _ in range(20):
        if context.shape[1] > BLOCK:
            context = context[:, -BLOCK // 2 :]
        expected.append(int(model(context)[0, -1].argmax()))
        context = torch.cat((context, torch.tensor([[expected[-1]]])), dim=1)
    assert text(model, 20, temperature=0.0) == expected
    assert text(model, 20, temperature=0.0, seed=1) == expected


def test_the_colder_the_closer_to_the_likeliest() -> None:
    model = model_of()
    coldest = text(model, 60, temperature=0.0)
    assert text(model, 60, temperature=1e-4) == coldest
    assert text(model, 60, temperature=1e-45) == coldest
    assert text(model, 60, temperature=5.0) != coldest


@pytest.mark.parametrize("temperature", [-0.1, float("nan"), float("-inf")])
def test_a_temperature_that_is_no_number_of_zero_or_more_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match="must be 0 or more"):
        text(model_of(), 1, temperature=temperature)


def test_top_k_is_clamped_to_what_there_is() -> None:
    model = model_of()
    assert text(model, top_k=VOCAB + 100) == text(model, top_k=VOCAB) == text(model, top_k=None)
    assert text(model, top_k=0) == text(model, top_k=-3) == text(model, top_k=1) == text(model, temperature=0.0)


def test_top_k_draws_among_the_k_likeliest_and_all_of_them() -> None:
    model, prompt = model_of(), PROMPT.repeat(2000, 1)
    likeliest = set(model(PROMPT)[0, -1].topk(3).indices.tolist())
    drawn = next(stream(model, prompt, temperature=3.0, top_k=3))
    assert set(drawn.tolist()) == likeliest
    assert len(set(next(stream(model, prompt, temperature=3.0)).tolist())) > 3


def test_draws_follow_the_softmax() -> None:
    model = model_of()
    drawn = next(stream(model, PROMPT.repeat(20_000, 1), temperature=0.7))
    expected = torch.softmax(model(PROMPT)[0, -1] / 0.7, dim=-1)
    found = torch.bincount(drawn, minlength=VOCAB) / 20_000
    assert (found - expected).abs().max() < 0.02


@pytest.mark.parametrize("rows", [1, 5])
def test_the_draws_are_those_of_torchs_multinomial(rows: int) -> None:
    model, prompts = model_of(), PROMPT.repeat(rows, 1)
    generator, context = keyed_generator(3, "sample"), prompts
    for drawn in islice(stream(model, prompts, seed=3, temperature=0.5, top_k=7), BLOCK - PROMPT.shape[1]):
        logits = model(context)[:, -1] / 0.5
        logits[logits < logits.topk(7).values[:, -1:]] = float("-inf")
        assert torch.equal(drawn, torch.multinomial(logits.float().softmax(-1), 1, generator=generator)[:, 0])
        context = torch.cat((context, drawn[:, None]), dim=1)


@pytest.mark.parametrize("query", slots.QUERY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_lean_twin_computes_the_same_bits_from_the_same_weights(query: str, dtype: torch.dtype) -> None:
    model = model_of(query, n_layer=2, dropout=0.5).to(dtype)
    twin, ids = lean(model), torch.randint(VOCAB, (2, BLOCK), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.wte.weight.mul_(2)  # seen by the twin: nothing is copied
    assert model.training
    assert torch.equal(twin(ids), twin(ids)), "nothing is dropped"
    assert torch.equal(twin(ids), model.eval()(ids))
    assert {p.data_ptr() for p in twin.parameters()} == {p.data_ptr() for p in model.parameters()}


def test_a_lean_twin_is_faithful_to_every_part_and_blind_to_hooks() -> None:
    model = model_of(norm="rmsnorm", activation="relu", tied=False)
    twin, seen = lean(model), []
    model.blocks[0].register_forward_hook(lambda *args: seen.append(args))  # type: ignore[arg-type]
    assert torch.equal(twin(PROMPT), model(PROMPT))
    assert len(seen) == 1
    assert [type(a).__name__ for a in twin.modules()] == [type(a).__name__ for a in model.modules()]


def test_a_seed_gives_the_same_text_again_and_another_seed_another() -> None:
    model = model_of()
    assert text(model, seed=7) == text(model, seed=7)
    assert text(model, seed=7) != text(model, seed=8)


def test_global_random_numbers_are_neither_used_nor_moved_on() -> None:
    model = model_of(dropout=0.5)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = text(model, seed=7)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert text(model, seed=7) == first


def test_two_texts_written_in_turns_do_not_disturb_each_other() -> None:
    model = model_of()
    turns = zip(stream(model, PROMPT, seed=1), stream(model, PROMPT, seed=2))
    pairs = [(int(a), int(b)) for a, b in islice(turns, 20)]
    assert [a for a, _ in pairs] == text(model, 20, seed=1)
    assert [b for _, b in pairs] == text(model, 20, seed=2)


@pytest.mark.parametrize("training", [True, False])
def test_the_training_flag_and_the_weights_are_left_alone_and_nothing_is_dropped(training: bool) -> None:
    model = model_of(dropout=0.5).train(training)
    before = [p.clone() for p in model.parameters()]
    assert text(model) == text(model_of())
    assert all(m.training == training for m in model.modules())
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before))
    assert all(p.grad is None for p in model.parameters())


def test_a_prompt_longer_than_the_context_is_cropped_to_its_end() -> None:
    model = model_of()
    long = torch.randint(VOCAB, (1, 50), generator=torch.Generator().manual_seed(0))
    assert text(model, prompt=long) == text(model, prompt=long[:, -BLOCK:])
    assert text(model, prompt=long, temperature=0.0) != text(model, prompt=long[:, :BLOCK], temperature=0.0)


def test_a_batch_of_prompts_is_continued_each_on_its_own() -> None:
    model = model_of()
    prompts = torch.randint(VOCAB, (3, 5), generator=torch.Generator().manual_seed(0))
    together = torch.stack(list(islice(stream(model, prompts, temperature=0.0), 20)), dim=1)
    assert together.shape == (3, 20)
    for row, prompt in zip(together, prompts):
        assert row.tolist() == text(model, 20, prompt[None], temperature=0.0)


def test_the_prompt_is_not_changed() -> None:
    prompt = PROMPT.clone()
    text(model_of(), prompt=prompt)
    assert torch.equal(prompt, PROMPT)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_that_diverged_is_refused_in_words(value: float, temperature: float) -> None:
    model = model_of()
    with torch.no_grad():
        model.norm_f.weight[0] = value
    with pytest.raises(NotFiniteError, match=r"not finite \(it diverged\); sample from an earlier checkpoint"):
        text(model, temperature=temperature)
    assert issubclass(NotFiniteError, ValueError)
