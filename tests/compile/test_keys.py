"""Objects as keys of a program's dictionaries and sets, and attributes that programs give to
tensors: at each call those of that call."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import lehr as torch


class Thing:
    """An object with default equality."""


def table(m: Any, x: Any) -> Any:
    return {m: 1, (m, 2): 3, frozenset([m, x]): 4}, x + 1


def group(m: Any, x: Any) -> Any:
    y = x * 2
    return [{m, x, y}, y]


def kept(m: Any, x: Any) -> Any:
    m.cache, m.seen = {x: x * 2}, {m}
    return m.cache


def across_a_break(m: Any, x: Any) -> Any:
    seen = {m}
    first = {x: 0}
    x.resize_(x.shape)
    return m in seen, x in first, seen, first


def outside(m: Any, x: Any) -> Any:
    m.all.add(x)
    m.all.discard(m)
    return m.all


def unique(m: Any, x: Any) -> Any:
    """A generator's own set, with a break while it waits."""
    def each() -> Any:
        seen = set()
        for p in (x, m, x):
            if p not in seen:
                seen.add(p)
                yield p
    found = []
    for p in each():
        x.resize_(x.shape)
        found.append(p)
    return found


def named(value: Any, names: dict[int, str]) -> Any:
    if isinstance(value, dict):
        return [(named(k, names), named(v, names)) for k, v in value.items()]
    if isinstance(value, (set, frozenset)):
        return sorted((named(v, names) for v in value), key=str)
    if isinstance(value, (list, tuple)):
        return [named(v, names) for v in value]
    return names.get(id(value), type(value).__name__ if isinstance(value, torch.Tensor) else value)


@pytest.mark.parametrize("f", [table, group, kept, across_a_break, outside, unique])
def test_keys_are_those_of_the_call(f: Callable[..., Any]) -> None:
    def outcomes(g: Callable[..., Any]) -> list[Any]:
        made = []
        for _ in range(3):
            m, x = Thing(), torch.ones(2)
            m.all = {m}  # type: ignore[attr-defined]
            names = {id(m): "m", id(x): "x"}
            found = g(m, x)
            if f is group:
                names[id(found[1])] = "y"
            made.append(named(found, names))
        return made
    want = outcomes(f)
    for backend in ("reference", "inductor") if f is group else ("reference",):
        assert outcomes(torch.compile(f, backend=backend)) == want


def test_keys_are_not_kept() -> None:
    g = torch.compile(table, backend="reference")
    m, x = Thing(), torch.ones(2)
    g(m, x)
    refs = weakref.ref(m), weakref.ref(x)
    del m, x
    gc.collect()
    assert [r() for r in refs] == [None, None]


def test_parameters_of_two_modules_with_tied_weights() -> None:
    """Seed 6000125: the second module's tied weight came twice."""
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = self.b = None
            self.a, self.b = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2, bias=False)
            self.b.weight = self.a.weight

    @torch.compile(backend="reference")
    def names(m: Any) -> Any:
        found = []
        for p in m.parameters():
            p.register_hook(lambda g: g)
            found.append(tuple(p.shape))
        return found
    assert [names(Tied()) for _ in range(3)] == [[(2, 2), (2,)]] * 3


# -- attributes of tensors

def test_attributes_of_tensors_are_seen_and_guarded() -> None:
    @torch.compile(backend="reference", fullgraph=True)
    def f(x: Any) -> Any:
        return hasattr(x, "tag"), getattr(x, "tag", 5), x * 2
    x = torch.ones(2)
    assert f(x)[:2] == (False, 5)
    x.tag = 1
    assert f(x)[:2] == (True, 1) and f(torch.ones(2))[:2] == (False, 5)
    x.tag = 2
    assert f(x)[:2] == (True, 2)
    del x.tag
    assert f(x)[:2] == (False, 5)


def five() -> int:
    return 5


def marks(x: Any) -> Any:
    y, z = x * 2, x.t()
    x.tag, y.tag, z.tag = y, [x], x.tag + 1
    del x.other
    y.gone = 1
    del y.gone
    x.sum = five
    return y, z, x.sum(), vars(y)["tag"][0] is x, hasattr(z, "other"), [*vars(x)]


def marked_across_a_break(x: Any) -> Any:
    y = x * 2
    y.tag = 1
    x.resize_(x.shape)
    y.tag += 1
    w = y.clone()
    return y, y.tag, hasattr(w, "tag"), [*vars(y)], y, y, w


def refused(x: Any) -> Any:
    try:
        return x.nothing
    except AttributeError as error:
        return str(error)


@pytest.mark.parametrize("f", [marks, marked_across_a_break, refused])
def test_attributes_that_programs_give_to_tensors(f: Callable[..., Any]) -> None:
    def outcomes(g: Callable[..., Any]) -> list[Any]:
        made = []
        for _ in range(3):
            x = torch.ones(2, 2)
            x.tag, x.other = 1, 2
            found = g(x)
            names = {id(x): "x", **{id(t): f"r{i}" for i, t in enumerate(found)}}
            made.append([named(found, names), named(vars(x), names), [
                named(vars(t), names) for t in found if isinstance(t, torch.Tensor)]])
        return made
    want = outcomes(f)
    assert outcomes(torch.compile(f, backend="reference")) == want
    assert outcomes(torch.compile(f)) == want
