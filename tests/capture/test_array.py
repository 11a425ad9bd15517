"""Arrays that `t.numpy()` gives inside compiled functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lehr as torch
from lehr.tensor.tensor import Tensor


def returned(x: Any) -> Any:
    return {"loss": (x * 2).sum().detach().cpu().numpy(), "all": [(x + 1).numpy()]}


def written_later(x: Any) -> Any:
    y = x * 2
    a = y.numpy()
    y.add_(1)
    return a, y


def of_an_argument(x: Any) -> Any:
    a = x.numpy()
    x.mul_(3)
    return a, x.view(-1).numpy(), a


def sizes(x: Any) -> Any:
    a = (x * 2).numpy()
    return torch.ones(a.shape) * a.size + a.ndim, isinstance(a, np.ndarray)


def back(x: Any) -> Any:
    a = (x * 2).numpy()
    t = torch.from_numpy(a)
    t[0] = 7
    return t, a, t + 1


def back_in_part(x: Any) -> Any:
    """Memory of its own for numpy's and lehr's eyes: it begins at the part."""
    y = x * 2
    a, b = torch.from_numpy(y[1].numpy()), torch.from_numpy(y.t().numpy())
    return a.storage_offset(), a.stride(), a, b.stride(), b.clone(), y


def kept(x: Any, log: list[Any]) -> Any:
    log.append((x * 2).numpy())
    return x + 1


def parts_of_one(x: Any) -> Any:
    y = x + 1
    return y[0].numpy(), y.t().numpy(), y.numpy(), y


def of_whole_numbers(x: Any) -> Any:
    return (x > 0).numpy(), x.long().numpy(), x.half().numpy(), x.double().numpy()


def computed(x: Any) -> Any:
    a = (x * 2).numpy()
    y = x + 1
    b = np.sin(a) + a.mean()
    return torch.from_numpy(b) * y, a


def iterated(x: Any) -> Any:
    total = 0.0
    for row in (x * 2).numpy():
        total += float(row[0])
    return total, x * 2


def item_set(x: Any) -> Any:
    y = x * 2
    a = y.numpy()
    a[0] = 5
    return y + 1, a


def with_a_tensor(x: Any) -> Any:
    a = (x * 2).numpy()
    return np.asarray(a), a.tolist(), len(a), f"{a[0, 0]}", a.dtype.name


def as_key(x: Any) -> Any:
    a = x.numpy()
    try:
        return {a: 1}
    except TypeError as error:
        return str(error)


def compared(x: Any) -> Any:
    a, b = x.numpy(), x.numpy()
    return a is b, a is a, (a == b).all(), [a] == [a], b in [b]


def needing_grad(x: Any) -> Any:
    try:
        return x.detach().requires_grad_().numpy()
    except RuntimeError as error:
        return str(error)


WHOLE = (returned, written_later, of_an_argument, sizes, back, parts_of_one, of_whole_numbers)
PARTS = (back_in_part, computed, iterated, item_set, with_a_tensor, as_key, compared, needing_grad)


def told(value: Any, seen: dict[int, int]) -> Any:
    """Numbers, dtypes, strides, identity, and what lies on one memory."""
    if isinstance(value, Tensor):
        with torch.no_grad():
            return "tensor", told(value.detach().numpy(), seen)
    if isinstance(value, np.ndarray):
        place = value.__array_interface__["data"][0]
        owner: Any = value
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        memory = seen.setdefault(owner.__array_interface__["data"][0], len(seen))
        return (value.tolist(), value.dtype.name, value.strides, value.flags.writeable, memory,
                place - owner.__array_interface__["data"][0])
    if isinstance(value, dict):
        return {k: told(v, seen) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [told(v, seen) for v in value]
    return value


@pytest.mark.parametrize("backend", ["reference", "inductor"])
@pytest.mark.parametrize("f", [*WHOLE, *PARTS])
def test_arrays_are_those_of_eager_mode(f: Callable[..., Any], backend: str) -> None:
    torch.compiler.reset()
    compiled = torch.compile(f, backend=backend)
    for n in (2, 2, 3, 5):
        made = []
        for g in (f, compiled):
            x = torch.arange(3.0 * n).reshape(n, 3) / 4
            found = g(x)
            made.append(told((found, x), {}))
        assert made[1] == made[0]


@pytest.mark.parametrize("f", WHOLE)
def test_these_are_one_graph(f: Callable[..., Any]) -> None:
    torch.compiler.reset()
    torch.compile(f, backend="reference", fullgraph=True)(torch.ones(2, 3))


def test_one_that_is_kept_is_of_its_call() -> None:
    compiled = torch.compile(kept, backend="reference", fullgraph=True)
    log: list[Any] = []
    for n in range(3):
        compiled(torch.full((2,), float(n)), log)
    assert [a.tolist() for a in log] == [[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]]


def test_what_writes_to_it_later_is_noticed() -> None:
    """The memory of a weight that was handed out is not packed."""
    torch.compiler.reset()
    net = torch.nn.Linear(64, 64, bias=False)

    @torch.compile
    def show() -> Any:
        return net.weight.detach().numpy()

    @torch.compile
    def run(x: Any) -> Any:
        return net(x)
    x = torch.ones(64, 64)
    with torch.no_grad():
        for _ in range(4):
            run(x)
        array = show()
        for n in range(4):
            array[:] = n
            np.testing.assert_array_equal(run(x).numpy(), np.full((64, 64), 64.0 * n))
