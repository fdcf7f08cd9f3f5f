import pytest

from nqlab.analysis import estimate
from nqlab.config import replace
from nqlab.presets import small, tiny


def test_twice_the_steps_and_evaluations_take_twice_the_time():
    base = replace(tiny(), {"eval_interval": 1000})
    one, two = (estimate.race_s([replace(base, {"steps": n})], 65, 0.01, 1) for n in (9_999, 19_999))
    assert two == pytest.approx(2 * one, rel=1e-3)


def test_a_race_takes_the_sum_of_its_runs_and_more_threads_take_less():
    one = estimate.race_s([small()], 65, 0.01, 1)
    assert estimate.race_s([small(), small()], 65, 0.01, 1) == pytest.approx(2 * one)
    assert estimate.race_s([small()], 65, 0.01, 2) < one


def test_the_tiny_step_is_the_unit():
    assert estimate.step_s(tiny(), 65, 0.02, 1) == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (12.4, "about 12 s"),
        (99, "about 99 s"),
        (150, "about 2.5 min"),
        (3000, "about 50 min"),
        (7200, "about 2.0 h"),
        (1e6, "about 12 days"),
    ],
)
def test_in_words(seconds, words):
    assert estimate.in_words(seconds) == words
