from __future__ import annotations

import hashlib
import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from nqlab import corpus as corpora
from nqlab import synthetic
from nqlab.config import replace
from nqlab.presets import tiny
from nqlab.training.events import Done
from tests.small import trained


def test_the_generator_gives_the_published_numbers() -> None:
    assert synthetic.splitmix64(0, 0, 3).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert synthetic.splitmix64(1234567, 0, 2).tolist() == [6457827717110365317, 3203168211198807973]
    assert synthetic.splitmix64(7, 5, 3).tolist() == synthetic.splitmix64(7, 0, 8).tolist()[5:]


def test_the_text_is_the_same_everywhere() -> None:
    text = synthetic.text()
    assert text == synthetic.text()
    assert (len(text), "".join(sorted(set(text)))) == (1_000_000, synthetic.LETTERS)
    assert hashlib.sha256(text.encode("utf-8")).hexdigest() == "7306d12cc3ef2706943b819397c3f24caffab6f137e5cc8eb9c9c8bfabb89009"


def test_chances_are_those_of_the_description() -> None:
    p = synthetic.chances()
    assert p.shape == (20, 20, 20)
    assert (p.sum(axis=2) == 1).all()
    counts = np.rint(p * 256)
    assert (counts / 256 == p).all()
    assert counts.min() == 1
    assert {tuple(sorted(row[row > 1], reverse=True)) for row in counts.reshape(400, 20)} == {
        (237,), (161, 77), (131, 71, 37), (101, 69, 45, 25),
    }  # fmt: skip
    for first in range(20):
        assert (p[first] == p[first % 4]).all()
    assert not (p[0] == p[1]).all()


def test_the_text_follows_its_chances() -> None:
    ids = np.frombuffer(synthetic.text().encode("ascii"), dtype=np.uint8) - ord("a")
    seen = np.zeros((20, 20, 20))
    np.add.at(seen, (ids[:-2], ids[1:-1], ids[2:]), 1)
    times = seen.sum(axis=2, keepdims=True)
    p = synthetic.chances()
    chi2 = ((seen - times * p) ** 2 / (times * p)).sum()
    freedom = 400 * 19
    assert abs(chi2 - freedom) < 5 * math.sqrt(2 * freedom)


def test_the_entropy_rate_is_what_a_simulation_by_other_means_finds() -> None:
    """-ln P of each letter of another text: drawn by numpy's generator, from chances read letter by letter."""
    p = synthetic.chances()
    rng = np.random.default_rng(5)
    cumulated = p.cumsum(axis=2)
    a, b, total, n = 0, 0, 0.0, 200_000
    for draw in rng.random(n).tolist():
        c = int(np.searchsorted(cumulated[a, b], draw, side="right"))
        total -= math.log(p[a, b, c])
        a, b = b, c
    assert total / n == pytest.approx(synthetic.entropy_rate(), abs=5 * 1.35 / math.sqrt(n))  # 1.35 nats: the letters' spread


def test_the_entropy_rate_is_the_texts_own_within_its_noise() -> None:
    """The empirical conditional entropy H(X3 | X1, X2), by counting; a million letters flatter it by a thousandth."""
    text = synthetic.text()
    triples, pairs = Counter(zip(text, text[1:], text[2:])), Counter(pairwise(text))
    total = sum(triples.values())
    entropy = -sum(n / total * math.log(n / pairs[t[:2]]) for t, n in triples.items())
    assert entropy == pytest.approx(synthetic.entropy_rate(), abs=0.01)


@pytest.mark.parametrize(("p", "rate"), [(0.5, math.log(2)), (0.9, 0.3250829733914482)])
def test_the_rate_of_a_source_that_can_be_computed_by_hand(p: float, rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two letters that repeat with chance p: the rate is the entropy of a coin."""
    chances = np.array([[[p, 1 - p], [1 - p, p]]] * 2)
    monkeypatch.setattr(synthetic, "chances", lambda: chances)
    monkeypatch.setattr(synthetic, "_V", 2)
    assert synthetic.entropy_rate.__wrapped__() == pytest.approx(rate)


def test_a_longer_memory_pays_and_the_rate_is_far_below_the_bigram_entropy() -> None:
    corpus = corpora.load("synthetic")
    assert corpus.entropy_rate == synthetic.entropy_rate()
    assert corpus.entropies[1] - synthetic.entropy_rate() > 0.5


@pytest.mark.slow
def test_a_tiny_linear_models_loss_approaches_the_rate_and_does_not_pass_it() -> None:
    """Within 0.04 nats after 1000 updates at 3e-3, of which 0.013 are the first position's, which sees one letter only.
    The validation windows' own noise is below 0.02."""
    corpus = corpora.load("synthetic")
    changes = {"corpus": "synthetic", "learning_rate": 3e-3, "eval_interval": 1000, "sample_interval": 0, "threads": 1}
    loss = next(e.val_loss for e in trained(replace(tiny(), changes), corpus) if isinstance(e, Done))
    assert -0.02 < loss - synthetic.entropy_rate() < 0.04
