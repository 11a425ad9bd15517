"""Iterators that existed before a call: after a graph break in a loop, or given as arguments."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest

import lehr as torch
from lehr.compiler.counters import stats

NUMBERS = [1, 2, 3, 4, 5]
NAMED = dict(zip("abcde", NUMBERS, strict=True))
KINDS: dict[str, Callable[[], Any]] = {
    "list": lambda: iter(list(NUMBERS)), "tuple": lambda: iter(tuple(NUMBERS)),
    "range": lambda: iter(range(5)), "long range": lambda: iter(range(1 << 70, (1 << 70) + 3)),
    "str": lambda: iter("abc"), "wide str": lambda: iter("\u00e9\u4e2d"),
    "bytes": lambda: iter(b"abc"), "keys": lambda: iter(NAMED),
    "values": lambda: iter(NAMED.values()), "items": lambda: iter(NAMED.items()),
    "reversed keys": lambda: reversed(NAMED), "reversed items": lambda: reversed(NAMED.items()),
    "set": lambda: iter({1, 2, 3}), "reversed": lambda: reversed(list(NUMBERS)),
    "reversed tuple": lambda: reversed(tuple(NUMBERS)),
    "reversed range": lambda: reversed(range(4)),
    "enumerate": lambda: enumerate(list(NUMBERS), 3),
    "zip": lambda: zip(NUMBERS, "abc", strict=False),
    "strict zip": lambda: zip(NUMBERS, NAMED, strict=True),
    "nested": lambda: enumerate(zip(iter(NUMBERS), NAMED.items(), strict=False)),
    "empty": lambda: iter([]), "empty zip": lambda: zip(strict=False),
    "map": lambda: map(abs, iter(NUMBERS)),
    "filter": lambda: filter(None, [0, 1, 0, 2]),
    "deque": lambda: iter(collections.deque(NUMBERS)), "generator": lambda: (n for n in NUMBERS)}


def weigh(item: Any) -> int:
    if isinstance(item, tuple):
        return sum(map(weigh, item))
    return item % 1000 if isinstance(item, int) else len(str(item))


def data(x: Any) -> float:
    return float(x.sum())       # a graph break


def once(it: Any, x: Any, log: list[Any]) -> Any:
    for n, item in enumerate(it):
        x = x * 2 + weigh(item)
        if n == 1:
            log.append(data(x))
        x = x + 1
    return x


def rounds(it: Any, x: Any, log: list[Any]) -> Any:
    for item in it:
        x = x * 2 + weigh(item)
        log.append(data(x))
    return x


def some(it: Any, x: Any, log: list[Any]) -> Any:
    """Leaves the rest."""
    next(it, None)
    log.append(data(x))
    log.append(next(it, "none"))
    for item in it:
        if weigh(item) % 2:
            break
        x = x + weigh(item)
    return x


def twice(it: Any, x: Any, log: list[Any]) -> Any:
    log.append(data(x))
    pairs = list(zip(it, it, strict=False))
    return x + len(pairs) + sum(weigh(a) for a, _ in pairs)


def outcome(f: Any, make: Callable[[], Any]) -> Any:
    it, log = make(), []
    y = f(it, torch.ones(2), log)
    return y.tolist(), log, list(it), list(it)


@pytest.mark.parametrize("f", [once, rounds, some, twice])
@pytest.mark.parametrize("kind", KINDS)
def test_loops_go_on_where_they_are(kind: str, f: Any) -> None:
    compiled = torch.compile(f, backend="reference")
    for _ in range(2):
        assert outcome(compiled, KINDS[kind]) == outcome(f, KINDS[kind])


@pytest.mark.parametrize("kind", ["list", "tuple", "range", "values", "items", "enumerate", "zip",
                                  "map", "reversed", "set"])
def test_a_break_in_one_round_costs_one_break(kind: str) -> None:
    def f(it: Any, x: Any, log: list[Any]) -> Any:
        for item in it:
            x = x * 2 + weigh(item)
            if not log:
                log.append(float(x.sum()))
        return x
    torch.compiler.reset()
    compiled = torch.compile(f, backend="reference")
    before = stats()["breaks"]
    assert outcome(compiled, KINDS[kind]) == outcome(f, KINDS[kind])
    assert stats()["breaks"] - before == 1


def test_one_capture_serves_all_rounds() -> None:
    compiled = torch.compile(rounds, backend="reference")
    before = stats()["captures"]
    batches = [torch.full((2,), float(n)) for n in range(30)]

    def play(f: Any) -> Any:
        log: list[Any] = []

        def body(it: Any, x: Any) -> Any:
            for batch in it:
                x = x * 0.5 + batch
                log.append(float(x.sum()))
            return x
        g = torch.compile(body, backend="reference") if f is compiled else body
        return g(iter(batches), torch.ones(2)).tolist(), log
    assert play(compiled) == play(rounds)
    assert stats()["captures"] - before < 10


def test_what_is_walked_over_may_change() -> None:
    def grows(work: list[int], x: Any, log: list[Any]) -> Any:
        for n in work:
            if n < 3:
                work.append(n + 1)
            log.append(data(x + n))
            x = x + n
        return x

    def shrinks(work: dict[str, int], x: Any, log: list[Any]) -> Any:
        try:
            for k in work:
                log.append(data(x))
                del work[k]
        except RuntimeError as error:
            log.append(str(error))
        return x

    def written(work: list[int], x: Any, log: list[Any]) -> Any:
        it = iter(work)
        next(it)
        log.append(data(x))
        work[1] = 7
        return x + next(it)
    cases: tuple[tuple[Any, Any], ...] = (
        (grows, lambda: [0]), (shrinks, lambda: dict(NAMED)), (written, lambda: [1, 2]))
    for f, make in cases:
        made = []
        for g in (f, torch.compile(f, backend="reference")):
            work, log = make(), []
            made.append((g(work, torch.ones(2), log).tolist(), work, log))
        assert made[0] == made[1]


def test_two_loops_share_an_iterator() -> None:
    def f(it: Any, x: Any, log: list[Any]) -> Any:
        for a in it:
            log.append(data(x))
            for b in it:
                x = x + a * b
                break
        return x
    for kind in ("list", "range", "values"):
        assert outcome(torch.compile(f, backend="reference"), KINDS[kind]) == outcome(
            f, KINDS[kind])


def test_subclasses_are_guarded() -> None:
    class Base:
        pass

    def f(x: Any) -> Any:
        return x + len(Base.__subclasses__())
    compiled = torch.compile(f, backend="reference", fullgraph=True)
    assert compiled(torch.zeros(1)).item() == 0
    first = type("First", (Base,), {})
    assert compiled(torch.zeros(1)).item() == 1 and first.__base__ is Base
