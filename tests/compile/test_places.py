"""Where an argument begins in its memory is no fact of a compiled call: views of it lie in the
argument of each call (seed 14003351). What names a place in memory itself stays there."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import lehr as torch

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "view": lambda u: (u.view(-1), u * 2),
    "detach": lambda u: [u.detach(), u.detach()[:, 1:]],
    "data": lambda u: [d := u.data[:, 1:], d.t(), u.data],
    "unfold": lambda u: u.unfold(1, 2, 2),
    "write": lambda u: (u.view(-1)[1:].add_(1), u.t()),
    "copied": lambda u: copy.deepcopy([u.detach()]),
    "broken": lambda u: (torch._dynamo.graph_break(), [u.view(-1)])[1],
    "other elements": lambda u: [u.view(torch.int16), u.view(torch.float64)[:, 1:]],
    "complex": lambda u: [torch.view_as_real(z := u.view(torch.complex64)), z.real],
    "strided": lambda u: u.as_strided((2,), (1,), 8),
    "strided here": lambda u: u.as_strided((2,), (1,)),
    "strided and computed": lambda u: u.as_strided((2,), (1,), 8) * 2,
}


def seen(f: Callable[[Any], Any], i: int, step: int) -> list[Any]:
    x = torch.arange(48.0).reshape(8, 6)[:, :step]
    made = f(x[i:i + 2])
    made = made if isinstance(made, tuple | list) else [made]
    return [*((t.storage_offset(), t.stride(), t.tolist()) for t in made), x.tolist()]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["reference", "inductor"])
@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
def test_views_of_arguments_that_begin_elsewhere(f: Any, backend: str, dynamic: Any) -> None:
    compiled = torch.compile(f, backend=backend, dynamic=dynamic)
    for i in (2, 3, 0, 2, 6):
        assert seen(compiled, i, 6) == seen(f, i, 6)
