"""What data stops in eager mode stops compiled calls: indices out of range and divisors of 0, also
where the result is unused, used in part, or read from where all elements are the same.

Made from the op table: every sample whose integers, replaced in one place, make the op raise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import lehr as torch
from lehr.base import dtype as dt
from lehr.ops import families, registry
from lehr.ops.registry import COMPOSITE, HOST, INDEX, Op
from lehr.ops.sample import dtypes_of, samples_of
from tests.compile import batch, loops

assert loops and families.FAMILIES

STOPS = (IndexError, RuntimeError, ValueError)
BAD = (1 << 20, -(1 << 20), 0)      # above, below, and what nothing can be divided by
FIRST, SAMPLES = 5, 3   # samples of one op that are tried, and calls of it that are compiled


class Case(NamedTuple):
    op: Op
    call: batch.Call
    text: str

    def __str__(self) -> str:
        return self.text


def integers(a: Any) -> Iterator[np.ndarray]:
    """The arrays of integers among arguments."""
    if isinstance(a, np.ndarray) and a.dtype in (np.int32, np.int64) and a.size:
        yield a
    elif type(a) in (list, tuple):
        for x in a:
            yield from integers(x)


def replaced(a: Any, old: np.ndarray, value: int) -> Any:
    """Arguments with the last element of one array replaced."""
    if a is old:
        made = old.copy()
        made[(-1,) * made.ndim] = value
        return made
    return type(a)(replaced(x, old, value) for x in a) if type(a) in (list, tuple) else a


@functools.cache
def cases(op: Op) -> list[Case]:
    """Calls of an op that an element of its arguments stops."""
    found: list[Case] = []
    for dtype in (d for d in (dt.float32, dt.int64) if d in dtypes_of(op)):
        good = [s for s in samples_of(op, dtype) if s.error is None][:FIRST]
        for n, sample in enumerate(good):
            for wanted, old in enumerate(integers(sample.args)):
                for value in BAD:
                    args = replaced(tuple(sample.args), old, value)
                    call, error = batch.call_of(op, sample._replace(args=args), True)
                    if isinstance(error, STOPS) and not isinstance(
                            error, NotImplementedError) and str(error):
                        found.append(Case(op, call, f"{op.name}-{dtype.name}-{n}-{wanted}-{value}"))
    step = max(1, len(found) // SAMPLES)
    return found[::step]


def used(run: Callable[[list[Any]], Any], t: list[Any]) -> Any:
    return run(t)


def unused(run: Callable[[list[Any]], Any], t: list[Any]) -> Any:
    for x in batch.tensors_in(run(t)):
        x + x
    return t[0].detach() + 0


def shape_alone(run: Callable[[list[Any]], Any], t: list[Any]) -> Any:
    return [torch.zeros_like(x) for x in batch.tensors_in(run(t))]


def constant(run: Callable[[list[Any]], Any], t: list[Any]) -> Any:
    """Tables of zeros."""
    return run([torch.zeros(x.shape) if x.dtype is torch.float32 else x for x in t])


def part(run: Callable[[list[Any]], Any], t: list[Any]) -> Any:
    return [x.reshape(-1)[:1] for x in batch.tensors_in(run(t))]


def gradient(run: Callable[[list[Any]], Any], t: list[Any]) -> Any:
    """A gradient that needs only shapes."""
    live = [x for x in batch.tensors_in(run(t)) if x.requires_grad]
    if not live:
        return run(t)
    return torch.autograd.grad([x.sum() for x in live], [x for x in t if x.requires_grad],
                               allow_unused=True)


USES = (used, unused, shape_alone, constant, part, gradient)
OPS = [op for op in registry.OPS.values() if op.samples is not None and not op.breaks
       and (op.places or op.name == "index") and (op.checks or op.kind in (
           INDEX, COMPOSITE, HOST))]


def silent(case: Case, use: Callable[..., Any], backend: str) -> str:
    """What is wrong; empty where the compiled call raises as the eager one does."""
    function, inputs = batch.function_of([case.call])

    def program(t: list[Any]) -> Any:
        return use(function, t)
    said = []
    for call in (program, torch.compile(program, backend=backend)):
        try:
            call(inputs)
            said.append("")
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    return "" if said[0] == said[1] else f"{case} {use.__name__}: {said[1]!r}, not {said[0]!r}"


@pytest.mark.parametrize("use", USES, ids=lambda u: u.__name__)
@pytest.mark.parametrize("backend", ["reference", "loops"])
def test_everywhere(backend: str, use: Callable[..., Any]) -> None:
    wrong = [text for op in OPS for case in cases(op) if (text := silent(case, use, backend))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("use", [constant, unused, *(
    pytest.param(u, marks=pytest.mark.slow) for u in (used, shape_alone, part, gradient))],
    ids=lambda u: getattr(u, "__name__", None))
def test_through_c(use: Callable[..., Any]) -> None:
    wrong = [text for n, op in enumerate(OPS) for case in cases(op)[n % 2:][:1]
             if (text := silent(case, use, "inductor"))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("backend", ["reference", "loops", "inductor"])
@pytest.mark.parametrize("i", [[0, 1], [0, -2], [0, 1 << 40]], ids=str)
@pytest.mark.parametrize("rows", [0, 1])
def test_small_tables(rows: int, i: list[int], backend: str) -> None:
    """Where the index does not matter to what is read."""
    made = torch.compile(lambda x, i: x[i], backend=backend)
    with pytest.raises(IndexError, match=f"index {i[1] if rows else 0} is out of bounds"):
        made(torch.ones(rows, 3), torch.tensor(i))
    if rows:
        assert made(torch.ones(1, 3), torch.tensor([0, -1])).tolist() == [[1] * 3] * 2


def test_a_table_that_is_one_row_in_memory() -> None:
    made = torch.compile(lambda x, i: x[i] + 1)
    x = torch.ones(1, 3).expand(4, 3)
    assert made(x, torch.tensor([3, -4])).tolist() == [[2] * 3] * 2
    for n in (4, -5):
        with pytest.raises(IndexError, match=f"index {n} is out of bounds"):
            made(x, torch.tensor([0, n]))


def test_what_is_checked_anyway_costs_nothing() -> None:
    """A kernel for the check alone is only made where no other looks at all indices."""
    def model(w: Any, t: Any) -> Any:
        h = torch.nn.functional.embedding(t[:, :-1], w)
        return torch.nn.functional.cross_entropy((h @ w.t()).flatten(0, 1), t[:, 1:].flatten())

    def zeros(w: Any, t: Any) -> Any:
        return torch.zeros(5, 4)[t[0]]

    w, t = torch.rand(5, 4, requires_grad=True), torch.tensor([[0, 1, 2], [4, 3, 0]])
    programs = []
    kept = loops.fuse.fuse
    try:
        loops.fuse.fuse = lambda p: programs.append(kept(p)) or programs[-1]
        for f in (model, zeros):
            torch.compile(f, backend="loops")(w, t)
    finally:
        loops.fuse.fuse = kept
    names = [[s.name for g in p.steps for s in getattr(g, "kernels", (g,))] for p in programs]
    assert not any("check" in n for part in names[:-1] for n in part), names
    assert sum("check" in n for n in names[-1]) == 1, names


def _strided(x: Any) -> Any:
    return torch.as_strided(x, (3, 4), (4, 1), 2)


def _caught(x: Any) -> Any:
    try:
        return _strided(x) + 1
    except RuntimeError as error:
        x.mul_(2)
        return str(error)


@pytest.mark.parametrize("f", [
    _strided, _caught, lambda x: _strided(x) * 2, lambda x: _strided(x.add_(1)) * 2,
    lambda x: _strided(x * 2), lambda x: _strided(x * 2) + 1])
@pytest.mark.parametrize("n", [6, 20])
@pytest.mark.parametrize("part", [lambda x: x, lambda x: x[1:5], lambda x: x[::2]])
def test_strided_views_beyond_the_memory(f: Any, n: int, part: Any) -> None:
    said = []
    for g in (f, torch.compile(f)):
        x = torch.arange(float(n))
        try:
            said.append((str(g(part(x))), x.tolist()))
        except RuntimeError as error:
            said.append((str(error), x.tolist()))
    assert said[0] == said[1]


@pytest.mark.parametrize("head", [False, True])
def test_errors_of_a_call_that_data_stopped_have_no_context_of_ours(head: bool) -> None:
    """Seed 18005195. `head`: the call is stopped behind a graph break."""
    def f(t: Any, at: Any) -> Any:
        if head:
            torch._dynamo.graph_break()
        try:
            assert t.nothing
        except AttributeError as error:
            context = error.__context__
        try:
            return t[at], context
        except IndexError as error:
            return context, error.__context__
    compiled = torch.compile(f, backend="reference")
    for _ in range(3):
        assert compiled(torch.ones(3), torch.tensor([100])) == (None, None)
