"""A made-up language whose entropy is known: a Markov source of order 2 over 20 letters.

Which letter follows depends on the two before: on the second, and on which of four kinds the first is of (a, e, i, m, q
are of one kind, b, f, j, n, r of the next, and so on), so that a small model can learn it in seconds. Chances are 256ths:
each of the 20 letters has at least 1, so that the source can get from anywhere to anywhere, and one to four favourites
share the rest. How many favourites, and which, is drawn for each of the 80 cases. No model can do better on average
than the source's entropy rate, which is computed from the chances.

All draws are SplitMix64's (Steele, Lea and Flood 2014), whole numbers only: the text is the same on every machine.
"""

from __future__ import annotations

from functools import cache
from itertools import accumulate

import numpy as np

LETTERS = "abcdefghijklmnopqrst"
LENGTH = 1_000_000  # characters
SEED = 1
_V = len(LETTERS)
_KINDS = 4
_CASES = _KINDS * _V
_SLOTS = 256
_FAVOURITES = ((236,), (160, 76), (130, 70, 36), (100, 68, 44, 24))  # 256ths beside the 20 that all letters share


def splitmix64(seed: int, first: int, count: int) -> np.ndarray:
    """Outputs number ``first`` to ``first + count - 1`` of the generator started at ``seed``: uint64, shape (count,)."""
    state = np.uint64(seed) + np.arange(first + 1, first + 1 + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # wraps
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@cache
def _counts() -> np.ndarray:
    """The chances in 256ths, whole numbers, shape (80, 20): a row for each kind of the first letter and each second."""
    draws = splitmix64(SEED, 0, _CASES * (_V + 1)).reshape(_CASES, _V + 1)
    ranked = draws[:, 1:].argsort(axis=1)  # which letters are favourites: those with the least draws
    counts = np.ones((_CASES, _V), dtype=np.int64)
    for row, order, number in zip(counts, ranked, draws[:, 0].tolist()):
        shares = _FAVOURITES[number % len(_FAVOURITES)]
        row[order[: len(shares)]] += shares
    return counts


def chances() -> np.ndarray:
    """P(third letter | first, second), shape (20, 20, 20); every row sums to 1."""
    return (_counts() / _SLOTS).reshape(_KINDS, _V, _V)[np.arange(_V) % _KINDS]


def text() -> str:
    """The language's text, ``LENGTH`` letters, the same everywhere."""
    letters = np.repeat(np.tile(np.arange(_V), _CASES), _counts().ravel()).tolist()  # the letter in each of a case's 256 slots
    slots = (splitmix64(SEED, _CASES * (_V + 1), LENGTH) >> np.uint64(56)).tolist()

    def follow(pair: int, slot: int) -> int:
        first, second = divmod(pair, _V)
        return second * _V + letters[(first % _KINDS * _V + second) * _SLOTS + slot]

    pairs = accumulate(slots, follow, initial=0)
    return "".join(LETTERS[pair % _V] for pair in pairs)[1:]


@cache
def entropy_rate() -> float:
    """Nats per character: sum over pairs (a, b) of pi(a, b) H(P(. | a, b)), with pi the stationary distribution.

    pi solves pi(b, c) = sum over a of pi(a, b) P(c | a, b); it is unique, because every chance is above zero.
    """
    p, pi = chances(), np.full((_V, _V), 1 / _V**2)
    for _ in range(1000):  # each round is a step of the source: it forgets where it began
        pi = np.einsum("ab,abc->bc", pi, p)
    return float(-np.einsum("ab,abc,abc->", pi, p, np.log(p)))
