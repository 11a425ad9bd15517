"""Measuring and choosing: order of candidates, margins, what is remembered."""

import time

import pytest

from lehr.compiler.run import tune
from lehr.compiler.run.tune import Unfit, choose, measure


class Clock:
    """A timer that needs no time: each candidate returns its own seconds per call."""

    def __init__(self):
        self.order = []

    def __call__(self, body, calls):
        seconds = body()
        self.order.append(seconds)
        return seconds * calls


def cost(seconds):
    return lambda: seconds


def test_medians_and_quartiles():
    noise = iter([9.0, 9.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    times = measure({"a": lambda: next(noise)}, 5, timer=Clock(), sample=0)
    assert times["a"].median == 3.0 and times["a"].low < 3.0 < times["a"].high
    assert times["a"].calls == 5


def test_candidates_take_turns_in_changing_order():
    clock = Clock()
    measure({"a": cost(1.0), "b": cost(1.1), "c": cost(1.2)}, 4, timer=clock, sample=0)
    rounds = clock.order[9:]
    assert [sorted(rounds[n : n + 3]) for n in (0, 3, 6)] == [[1.0, 1.1, 1.2]] * 3
    assert len({rounds[n] for n in (0, 3, 6)}) == 3  # each is first once


def test_a_hopeless_candidate_is_measured_once():
    clock = Clock()
    times = measure({"slow": cost(10.0), "fast": cost(1.0)}, 8, timer=clock, sample=0)
    assert times["slow"].calls == 1 and times["fast"].calls == 8


def test_short_bodies_are_repeated_to_fill_a_sample():
    assert measure({"a": cost(1e-5)}, 3, timer=Clock(), sample=1e-3)["a"].calls == 3 * 100


def test_the_budget_ends_rounds_but_not_before_the_third():
    body = lambda: time.sleep(0.02)
    times = measure({"a": body}, 1000, timer=tune.wall, sample=0, budget=0.01)
    assert times["a"].calls == 3


def test_unfit_drops_out_and_other_errors_are_errors():
    def unfit():
        raise Unfit("needs a GPU")

    assert set(measure({"a": cost(1.0), "b": unfit}, 3, timer=Clock())) == {"a"}
    with pytest.raises(ZeroDivisionError):
        measure({"a": lambda: 1 / 0})


def test_real_work_is_ranked():
    small, large = list(range(1000)), list(range(20_000))
    times = measure({"large": lambda: sum(large), "small": lambda: sum(small)}, 5)
    assert times["small"].median < times["large"].median


def pick(candidates, standard="a", **parts):
    parts = {"kernel": "k", **parts}
    return choose(candidates, standard, parts, timer=Clock(), repeats=3, sample=0)


def test_the_standard_keeps_its_place_within_the_margin(use):
    assert pick({"a": cost(1.0), "b": cost(0.98)}, kernel="1") == "a"
    assert pick({"a": cost(1.0), "b": cost(0.95)}, kernel="2") == "b"
    assert pick({"a": cost(1.0), "b": cost(2.0)}, kernel="3") == "a"


def test_a_standard_that_is_unfit_does_not_count(use):
    def unfit():
        raise Unfit

    assert pick({"a": unfit, "b": cost(1.0)}) == "b"
    with pytest.raises(Unfit, match="none of a can run"):
        pick({"a": unfit}, kernel="other")


def test_a_choice_is_remembered(use):
    assert pick({"a": cost(1.0), "b": cost(0.5)}) == "b"
    never = {"a": lambda: 1 / 0, "b": lambda: 1 / 0}
    assert pick(never) == "b"
    for different in ({"kernel": "k2"}, {"shape": "8x8"}):
        with pytest.raises(ZeroDivisionError):
            pick(never, **different)
    with pytest.raises(ZeroDivisionError):
        pick({**never, "c": lambda: 1 / 0})
