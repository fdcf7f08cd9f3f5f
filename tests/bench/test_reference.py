"""The yardstick is honest: the same losses as the lab's own step."""

from itertools import islice

import pytest
import torch

from nqlab.bench import harness
from nqlab.bench.reference import ReferenceGPT, ReferenceRun
from nqlab.config import replace
from nqlab.corpus import load
from nqlab.generate import stream
from nqlab.model.gpt import GPT, keyed_generator
from nqlab.training.events import Step
from nqlab.training.loop import train


@pytest.mark.parametrize("size", ["T", "S"])
def test_the_reference_step_has_the_losses_of_the_lab(tmp_path, size):
    config, corpus = replace(harness.sizes()[size], {"warmup_steps": 4, "steps": 20}), load(harness.CORPUS)
    reference = ReferenceRun(config, corpus.ids[: corpus.split_at], len(corpus.vocabulary), tmp_path)
    theirs = [reference.step() for _ in range(20)]
    ours = [event.loss for event in train(config, corpus) if isinstance(event, Step)]
    assert theirs == pytest.approx(ours, abs=2e-4)  # float32, other kernels: rounding grows over 20 updates
    assert theirs[:3] == pytest.approx(ours[:3], abs=2e-6)


def test_the_reference_writes_the_text_of_the_lab():
    config = harness.sizes()["T"]
    model = GPT(config.model, 65, seed=1)
    with torch.no_grad():  # a model with opinions, or rounding would decide
        for parameter in model.parameters():
            parameter.mul_(5)
    reference, prompt = ReferenceGPT(config, 65), torch.tensor([[1, 2, 3]])
    reference.take(model)
    ours = torch.cat(list(islice(stream(model, prompt, seed=4), 60)))
    assert reference.write(prompt, 60, keyed_generator(4, "sample"))[0, 3:].tolist() == ours.tolist()
    assert reference.write(prompt, 70).shape == (1, 73), "beyond a full context it looks at the end"
