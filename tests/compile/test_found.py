"""Programs in which random ones once differed from eager mode, made small.

A case is a function and its arguments; it is called as `fuzz` calls programs: twice on the same
arguments, then on fresh ones.
"""

from __future__ import annotations

import collections
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import lehr as torch
from tests.compile import fuzz
from tests.compile.grammar import make

Inputs = Callable[[], tuple[Any, ...]]
CASES: list[Any] = []


def case(inputs: Inputs) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a test of a program; `inputs` makes its arguments."""
    def add(main: Callable[..., Any]) -> Callable[..., Any]:
        CASES.append(pytest.param(main, inputs, id=main.__name__))
        return main
    return add


@pytest.mark.parametrize(("main", "inputs"), CASES)
def test_compiled_is_eager(main: Callable[..., Any], inputs: Inputs) -> None:
    same(main, inputs, "loops")


def same(main: Callable[..., Any], inputs: Inputs, backend: str) -> None:
    def outcomes(function: Callable[..., Any]) -> list[fuzz.Outcome]:
        first = inputs()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [fuzz.outcome(function, a, i) for i, a in enumerate((first, first, inputs()))]
    made = outcomes(fuzz.compiled(backend)(main))
    for call, have, want in zip(fuzz.CALLS, made, outcomes(main), strict=False):
        for name in fuzz.Outcome._fields:
            assert fuzz.differing(getattr(have, name), getattr(want, name)) == "", (call, name)


# -- autocast

@case(lambda: (make((2, 3), "float32", 0),))
def break_inside_autocast(x: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
        x.resize_(x.shape)
        return y, x @ x.t()


@case(lambda: (make((2, 3), "float32", 0).requires_grad_(),))
def break_inside_nested_autocast(x: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ x.t()
        with torch.autocast("cpu", enabled=False):
            n = int(a.sum())
            b = x @ x.t()
        c = x @ x.t() * n
    return a, b, c


# -- views

def leaf_and_view() -> tuple[Any, ...]:
    a = make((2, 2), "float32", 0)
    b = a.t()
    return a.requires_grad_(), b


@case(leaf_and_view)
def detached_view_behind_a_break(a: Any, b: Any) -> Any:
    with torch.no_grad():
        b.addcmul_(a, a)
    c = b * 2
    d = b.detach()
    n = d.numpy().size
    return c, d, n


@case(lambda: (make((2, 1), "float32", 0).requires_grad_(),))
def views_of_what_changes_its_layout(x: Any) -> Any:
    y = x * 1
    z = y.t()
    y.unsqueeze_(0)
    z.mul_(2)
    y.squeeze_(0).mul_(3)
    return z, y, 1.5 - z


@case(lambda: (make((0, 2), "float64", 0),))
def empty_view_of_what_changes_its_layout(x: Any) -> Any:
    y = x.expm1()
    z = y.squeeze()
    y.unsqueeze_(0)
    z.clamp_(-1, 1)
    return y, z


@case(lambda: (make((2, 2), "float64", 0),))
def view_that_becomes_a_leaf(x: Any) -> Any:
    with torch.no_grad():
        y = x.broadcast_to(x.shape)
    y.requires_grad_()
    return y.unfold(0, 1, 1), y


@case(lambda: (make((2, 3), "float32", 0).requires_grad_(), 2))
def strided_view_of_another_order(x: Any, n: int) -> Any:
    y = x.t().flip(0)
    return y.as_strided((n,), (1,))


def parts() -> tuple[Any, ...]:
    whole = make((9,), "float32", 1)
    return whole[:6].view(2, 3), whole[3:]


@case(parts)
def part_of_memory_returned_unread(x: Any, y: Any) -> Any:
    n = float(x.sum())
    x.mul_(n)
    return y


# -- breaks

@case(lambda: (make((2, 2), "float32", 0).requires_grad_(),))
def hook_before_a_break(x: Any) -> Any:
    y = x * 2
    y.register_hook(lambda g: g * 3)
    n = y.sum().item()
    return y * n


@case(lambda: (make((2, 2), "float32", 0), {"w": True}))
def truth_of_what_becomes_a_tensor(x: Any, names: Any) -> Any:
    n = 1 if names["w"] is True or names["w"].dim() else 0
    names["w"] = x
    return x * n


# -- memory

@case(lambda: (make((1, 3), "uint8", 2),))
def part_of_what_was_just_replaced(x: Any) -> Any:
    x *= -1
    y = x.clone()
    y[..., :1] = x[..., :1]
    return y


@case(lambda: (make((3, 4), "float64", 2)[:, ::2],))
def write_through_a_strided_input(x: Any) -> None:
    x[:-1] = x[1:].clone()


# -- gradients

@case(lambda: (make((2, 3), "float16", 0).requires_grad_(), make((1, 3), "float32", 1)))
def write_to_an_input_that_backward_does_not_read(x: Any, y: Any) -> Any:
    out = x.cumsum(-1)
    n = float(y.mean())
    y.copy_(1 - y)
    return out, n


@case(lambda: (make((2, 1), "float32", 0).requires_grad_(),))
def result_without_a_backward_is_shown(x: Any) -> Any:
    y = x.expm1()
    y.clamp_(-1, 1)
    z = 1.5 - y
    return y, str(z.grad_fn is None)


@case(lambda: (make((2, 3), "float32", 0), make((2, 3), "float32", 1)))
def gradient_of_a_leaf_made_inside(x: Any, y: Any) -> Any:
    leaf = x.detach().clone().requires_grad_()
    (leaf * y).sum().backward()
    n = float(y.sum())
    return leaf, leaf.grad, n


@case(lambda: (make((2, 3), "float32", 0).requires_grad_(),))
def retained_gradient(x: Any) -> Any:
    y = x * 2
    y.retain_grad()
    (y * y).sum().backward()
    return y.detach(), y.grad


def leaf_on_a_part(k: int = 1) -> Any:
    """A leaf that is a view of a tensor without gradients."""
    return make((12,), "float32", k)[2:8].view(2, 3).requires_grad_()


@case(lambda: (leaf_on_a_part(), make((2, 3), "float32", 0).requires_grad_()))
def unrecorded_views_of_leaves(x: Any, y: Any) -> Any:
    with torch.no_grad():
        v, w = x[::2], y[::2]
    return v, w, v.clamp(min=0), w.clamp(min=0), v.as_strided((2,), (1,)) * 2


def test_a_leaf_on_a_part_has_a_graph_of_its_own() -> None:
    def f(x: Any) -> Any:
        with torch.no_grad():
            v = x[::2]
        return v * 2
    made = torch.compile(f, backend="loops")
    for part in (False, True, False):
        x = leaf_on_a_part() if part else torch.ones(2, 3).requires_grad_()
        assert made(x).requires_grad is f(x).requires_grad


@case(lambda: (make((4,), "float16", 0),))
def leaf_with_older_views(x: Any) -> Any:
    y = (x + 1).double()
    v = y.view(y.shape)
    y.requires_grad_()
    return v, v * 2, y[1:]


@case(lambda: (leaf_on_a_part(), make((2, 3), "float32", 2)))
def views_of_a_leaf_on_a_leaf(x: Any, y: Any) -> Any:
    leaf = x.detach().requires_grad_()
    return x > y, leaf[::2].narrow(0, 0, 1)


@case(lambda: (make((4, 3), "float32", 2).requires_grad_(),))
def views_of_unrecorded_views(x: Any) -> Any:
    y = x * 1
    with torch.no_grad():
        v, w = x.select(-1, 0), y[:2]
    return v.swapaxes(0, -1), w[1:], y, torch.randn(2)


def leaf_in_a_square() -> tuple[Any, ...]:
    a = make((3, 3), "float32", 0)
    return a, a[..., :1].requires_grad_()


@case(leaf_in_a_square)
def copied_from_a_leaf_inside(a: Any, b: Any) -> Any:
    a.copy_(b)
    return b * 2, a, b


@case(lambda: (make((1, 1), "float32", 1).expand(3, 2).requires_grad_(),))
def gradient_of_an_expanded_leaf(x: Any) -> Any:
    return x.mean()


# -- objects

@case(lambda: (make((2, 3), "float32", 0),))
def memory_of_what_is_computed(x: Any) -> Any:
    y = x * 2
    same = y.data_ptr() == y[1:].data_ptr() - 12, y.untyped_storage().nbytes(), y.storage().size()
    return same, x.data_ptr() == x.untyped_storage().data_ptr(), y + 1


@case(lambda: (make((0, 4), "float32", 1),))
def error_of_an_index_before_another(x: Any) -> Any:
    try:
        x[[0, 0]]
    except IndexError as error:
        text = str(error)
    return text, x * 2


def test_guards_make_no_entries() -> None:
    def total(x: Any, y: Any, seen: Any) -> Any:
        if x.shape[0] == 2:
            if y in seen and "sum" in seen[y]:
                seen[y]["sum"] = seen[y]["sum"] + x
            else:
                seen[y]["sum"] = x * 2
        return x + 1
    made, y = torch.compile(total, backend="loops"), torch.ones(3)
    for n in (2, 2, 3, 2):
        seen: Any = collections.defaultdict(dict)
        for k in (2, 3):
            made(torch.ones(n, 3), y, seen)
            assert [(at is y, found["sum"].sum().item()) for at, found in seen.items()] == (
                [(True, 6 * k)] if n == 2 else [])


# -- ops

@case(lambda: (make((), "float32", 1), make((2, 3), "int64", 1)))
def results_that_equal_their_arguments(x: Any, y: Any) -> Any:
    made = [x.cumsum(0), x.cumprod(0), y.trunc(), y.round(), torch.diff(y, n=0)]
    for t in made:
        t.add_(1)
    return made, x, y


@case(lambda: (make((3, 3), "int64", 2).t(),))
def whole_numbers_scaled_by_a_fraction(x: Any) -> Any:
    return torch.addcmul(x.sign(), x, x.sign(), value=0.5)


# -- what data stops

@case(lambda: (make((2, 3), "float32", 0), [5]))
def index_out_of_range_that_nothing_uses(x: Any, i: Any) -> Any:
    seen = [x * 2]
    try:
        x[torch.tensor(i)]
    except IndexError as e:
        seen.append(str(e))
    return seen


@case(lambda: (make((2, 3), "float32", 0), torch.tensor([0, 2]), []))
def effects_before_an_index_out_of_range(x: Any, i: Any, seen: Any) -> Any:
    seen.append(x + 1)
    return x.index_select(0, i)


@case(lambda: (make((0, 2), "float32", 1), {}))
def index_into_nothing(x: Any, names: Any) -> None:
    names["w"] = x[torch.tensor([0, -1])]


@pytest.mark.parametrize("backend", ["loops", "inductor"])
def test_index_into_an_empty_part(backend: str) -> None:
    """Nothing is read from memory of size 0, whatever part of it a table is."""
    def rows(whole: Any, table: Any, i: Any) -> Any:
        return torch.nn.functional.embedding(i, table), whole * 2
    for whole, table in ((torch.zeros(0, 4), None), (torch.zeros(0, 4), torch.zeros(0, 3))):
        part = whole[..., :1] if table is None else table
        with pytest.raises(IndexError, match="index out of range in self"):
            torch.compile(rows, backend=backend)(whole, part, torch.tensor([0, 1, 0]))


# -- views at indices that are data

def at(place: int) -> Inputs:
    return lambda: (make((3, 4), "float32", 3), torch.tensor(place), torch.tensor([0, 2]))


@case(at(1))
def a_row_returned(x: Any, i: Any, j: Any) -> Any:
    return x[i], (x * 2)[i]


@case(at(-1))
def a_row_written(x: Any, i: Any, j: Any) -> Any:
    y = x[i]
    y.add_(1)
    x[i] += y
    return y.sum()


@case(at(1))
def a_row_of_what_is_written_later(x: Any, i: Any, j: Any) -> Any:
    y, z = x[i], x[i][i]
    before = y * 2
    x.mul_(3)
    return before, y + 0, z * 1


@case(at(2))
def a_column(x: Any, i: Any, j: Any) -> Any:
    return x[:, i] * 2, x[:, i].is_contiguous()


@case(at(1))
def a_row_beside_other_indices(x: Any, i: Any, j: Any) -> Any:
    z = x.reshape(3, 2, 2) * 1
    z[i, :, j - 1] = torch.arange(4.0).reshape(2, 2)
    return x.reshape(3, 2, 2)[i, :, j - 1], z


@case(at(7))
def no_such_row(x: Any, i: Any, j: Any) -> Any:
    x.add_(1)
    y = x[i]
    x.add_(1)
    return y


def test_a_row_that_nobody_writes_is_part_of_the_graph() -> None:
    made = torch.compile(lambda x, i: x[i] * 2, fullgraph=True)
    assert made(torch.arange(6.0).reshape(3, 2), torch.tensor(-1)).tolist() == [8, 10]
    with pytest.raises(RuntimeError, match="a view at an index that is data"):
        torch.compile(lambda x, i: x[i], fullgraph=True)(torch.ones(2, 2), torch.tensor(0))


@case(lambda: (make((3,), "float32", 1),))
def a_gradient_that_outlives_its_leaf(x: Any) -> Any:
    w = x.detach().clone().requires_grad_()
    (w * x).sum().backward()
    return w.grad, w * 2


@case(lambda: (make((3,), "float32", 1),))
def versions_of_arguments(x: Any) -> Any:
    before = x._version
    x.add_(1)
    x.mul_(2)
    return before, x._version


@case(lambda: (make((1, 4), "float32", 1).requires_grad_(), make((2,), "float32", 2)))
def views_made_while_nothing_is_recorded(x: Any, y: Any) -> Any:
    z, top = x * 2, x.topk(2, -1)[0]
    with torch.no_grad():
        return z.T, z, top.view(-1)[1:], (y * 2).T


# -- C

def rotated(x: Any) -> Any:
    y = torch.rot90(x)
    x.diagonal().fill_(1.5)
    return y


def reversed_rows(x: Any) -> Any:
    y = x.flip(1) * 2
    x.mul_(3).add_(y)
    return y


@pytest.mark.parametrize("main", [rotated, reversed_rows])
@pytest.mark.parametrize("shape", [(4, 2), (3, 5), (2, 40)])
def test_rows_read_elsewhere_before_they_are_written(main: Any, shape: tuple[int, int]) -> None:
    """Reading and writing stay loops of their own within a row."""
    same(main, lambda: (make((shape[0], 2 * shape[1]), "float32", 1)[:, ::2],), "inductor")


@pytest.mark.parametrize("name", ["c", "n", "int", "c_b"])
def test_names_of_arguments(name: str) -> None:
    """A product of whole numbers names views of an operand after it."""
    space: dict[str, Any] = {"torch": torch}
    exec(f"def main({name}):\n    return torch.nn.functional.linear({name}, {name})", space)
    same(space["main"], lambda: (make((12,), "int64", 2)[2:8].view(2, 3),), "inductor")


def _kept(x: Any) -> Any:
    y = x * 2
    y.retain_grad()
    (y * y).sum().backward()
    return y.grad


def _kept_behind_a_break(x: Any) -> Any:
    y = x * 2
    y.retain_grad()
    z = (y * y).sum()
    str(z.item())
    z.backward()
    return y.grad


def _kept_for_later(x: Any) -> Any:
    y = x * 2
    y.retain_grad()
    return y, (y * y).sum()


@pytest.mark.parametrize("f", [_kept, _kept_behind_a_break, _kept_for_later])
@pytest.mark.parametrize("leaf", [True, False])
def test_gradients_of_results_that_retain_them(f: Any, leaf: bool) -> None:
    """Seed 2003550: of two results of one compiled call, the one that made the other."""
    made = []
    for g in (f, torch.compile(f)):
        for _ in range(2):
            x = torch.arange(3.0).requires_grad_()
            found = g(x if leaf else x * 1)
            if isinstance(found, tuple):
                found[1].backward()
                found = found[0].grad
            made.append((found.tolist(), x.grad.tolist()))
    assert made == [([0.0, 4.0, 8.0], [0.0, 8.0, 16.0])] * 4


def test_a_view_made_in_no_grad_of_what_was_written() -> None:
    """Seed 3000822: it was made after the write, and no error."""
    def f(w: Any) -> Any:
        t = w * 2
        t[0] = 1.5
        with torch.no_grad():
            return t, t[::2]
    for g in (f, torch.compile(f), torch.compile(f)):
        t, v = g(torch.ones(3, 2).requires_grad_())
        assert t.requires_grad and v.requires_grad and v.tolist() == [[1.5, 1.5], [2.0, 2.0]]


@case(lambda: (make((2, 2), "float32", 0), []))
def unrecorded_view_of_a_leaf_that_is_not_returned(x: Any, xs: list[Any]) -> Any:
    """Seed 3003650: the leaf is on memory that something else of the program is on."""
    outer = x.view_as(x).detach().requires_grad_()
    inner = (x * 2).detach().requires_grad_()
    with torch.no_grad():
        xs.append(outer[0])
        return inner[0]


@case(lambda: (make((2,), "float32", 0),))
def gradient_and_view_of_a_leaf_that_is_not_returned(x: Any) -> Any:
    """Seed 4001278: a backward by the view adds to that gradient."""
    leaf = x.clone().requires_grad_()
    (leaf * x).sum().backward()
    return leaf.grad, leaf[..., None]


@case(lambda: (make((4, 5), "float16", 1), torch.tensor([0, -1])))
def sums_of_picked_rows_in_half_precision(x: Any, i: Any) -> Any:
    """Seed 4004048: what is picked depends on the axis that is summed over."""
    return x[i].sum(0), x.index_select(0, i.abs()).double().sum(0).sin()


def test_as_strided_of_a_view_that_is_older_than_the_flag_of_its_leaf() -> None:
    """Seed 5100033. The view is a leaf of its own, as any view of it shows."""
    def f(b: Any) -> Any:
        t = b.as_strided((2,), (1,))
        float(b.sum())
        return t
    for g in (f, torch.compile(f)):
        a = torch.randn(2, 3)
        b = a.view(-1)
        a.requires_grad_()
        g(b).sum().backward()
        assert a.grad is None


@case(lambda: ([make((1, 3), "float64", 0).requires_grad_()],
               make((2, 3), "float32", 2).requires_grad_()))
def backward_that_fails_half_way(xs: list[Any], c: Any) -> Any:
    """Seed 3000872: in the second call `xs` holds a result whose history was walked already; the
    leaf beside it gets its gradient first."""
    t = torch.maximum(c, c)
    total = torch.stack([x.float().mean() for x in xs])
    xs.insert(0, t)
    total.sum().backward(retain_graph=True)
    return t, total


@case(lambda: (make((2, 2), "float32", 0),))
def error_of_a_matrix_inside_try(x: Any) -> Any:
    """Seed 6000427: what the handler made is there, whatever op data stopped."""
    y = x * 2
    try:
        torch.linalg.inv(x * 0)
    except RuntimeError as error:
        name = type(error).__name__
    return name, y


def test_texts_of_sizes_from_numbers_that_vary() -> None:
    """Seed 6000520."""
    def f(n: int, x: Any) -> Any:
        return str(torch.Size([1, n])), repr(torch.Size([n])), x * n
    g = torch.compile(f, backend="reference")
    for n in (3, 4, 5):
        assert g(n, torch.ones(2))[:2] == f(n, torch.ones(2))[:2]


class Scaling:
    def hook(self, g: Any) -> Any:
        return g * 7


def hooked_leaf(x: Any, log: list[Any]) -> Any:
    u = (x * 1).detach().requires_grad_()
    u.register_hook(lambda g: g * 3)
    return u


def hooked_leaf_behind_a_result(x: Any, log: list[Any]) -> Any:
    u = (x * 1).detach().requires_grad_()
    u.register_hook(lambda g: log.append(tuple(g.shape)))
    return u * 2


def halved_leaf(x: Any, log: list[Any]) -> Any:
    u = x.detach().float().requires_grad_()
    u.register_post_accumulate_grad_hook(lambda q: q.grad.mul_(0.5))
    (u * 2).sum().backward()
    return u


def hooks_of_two_kinds(x: Any, log: list[Any]) -> Any:
    u = (x * 1).requires_grad_()
    u.register_hook(Scaling().hook)
    t = u * 2
    t.register_hook(lambda g: g * 2)
    return t, u


def hook_that_was_removed(x: Any, log: list[Any]) -> Any:
    u = (x * 1).detach().requires_grad_()
    u.register_hook(lambda g: g * 3).remove()
    return u


@pytest.mark.parametrize("f", [hooked_leaf, hooked_leaf_behind_a_result, halved_leaf,
                               hooks_of_two_kinds, hook_that_was_removed])
def test_hooks_of_leaves_made_inside_are_called_later(f: Callable[..., Any]) -> None:
    """Seed 6000820: they were lost with the graph's leaf."""
    def outcomes(g: Callable[..., Any]) -> list[Any]:
        made = []
        for _ in range(2):
            log: list[Any] = []
            found = g(torch.ones(2), log)
            found = found if isinstance(found, tuple) else (found,)
            for _ in range(2):
                (found[0] * 4 + found[-1]).sum().backward(retain_graph=True)
            made.append(([t.grad.tolist() for t in found if t.is_leaf], log))
        return made
    assert outcomes(torch.compile(f, backend="reference")) == outcomes(f)


@pytest.mark.parametrize("backend", ["reference", "inductor", lambda graph, inputs: graph.forward])
def test_writes_through_pieces_whose_backward_is_asked_for_in_part(backend: Any) -> None:
    """The variant for the gradients that are there has symbols, too."""
    def f(a: Any) -> Any:
        t = a.clone()
        for u in t.unbind(0):
            u.add_(1)
        return t, u
    g = torch.compile(f, backend=backend)
    for n in (3, 4, 5, 6):
        a = torch.ones(n, 2, requires_grad=True)
        t, u = g(a)
        (t.sum() + 2 * u.sum()).backward(create_graph=n == 6 and type(backend) is str)
        assert a.grad.tolist() == [[1.0, 1.0]] * (n - 1) + [[3.0, 3.0]]


@pytest.mark.parametrize("layout", ["as the result", "expanded", "contiguous"])
def test_strides_of_gradients_behind_a_compiled_call(layout: str) -> None:
    """Seed 6002184. A compiled backward lays gradients out as eager mode does where the result's
    gradient lies as the result does; numbers, and what leaves keep, do not depend on it."""
    def f(x: Any) -> Any:
        return torch.nn.functional.gelu(x) * 2
    found = []
    for g in (f, torch.compile(f, backend="reference")):
        x = torch.arange(12.0).reshape(4, 3).t().requires_grad_()
        seen: list[Any] = []
        x.register_hook(seen.append)
        y = g(x)
        grad = torch.ones(())
        grad = {"as the result": torch.empty_like(y).fill_(1), "expanded": grad.expand(y.shape),
                "contiguous": torch.ones(3, 4)}[layout]
        y.backward(grad)
        found.append((seen[0].tolist(), x.grad.tolist(), x.grad.stride(),
                      seen[0].stride() if layout == "as the result" else None))
        assert g is f or seen[0].stride() == y.stride()
    assert found[0] == found[1]


@pytest.mark.parametrize("backend", ["reference", "inductor"])
@pytest.mark.parametrize("shared", [False, True])
def test_gradients_that_are_results_of_leaves_that_are_not(backend: str, shared: bool) -> None:
    """Seed 9700194. A later backward adds to the gradient that was handed out, also where the
    memory of its leaf is known by another leaf that is a result."""
    def f(x: Any) -> Any:
        known = torch.exp(x).requires_grad_()
        leaf = (known.detach() if shared else known.detach().clone()).requires_grad_()
        (leaf * 2).sum().backward()
        return leaf.grad, leaf[1], known
    for g in (f, torch.compile(f, backend=backend)):
        grad, part, known = g(torch.tensor([1.0, 2.0]))
        (4 * part).sum().backward()
        assert grad.tolist() == [2.0, 6.0] and known.grad is None


@pytest.mark.parametrize("leaf", [
    lambda b: torch.nn.Parameter(b), lambda b: torch.nn.Parameter(b.detach()[1:]),
    lambda b: torch.nn.Buffer(b.detach()).requires_grad_(),
    lambda b: b.data.requires_grad_(), lambda b: b.detach().requires_grad_()])
@pytest.mark.parametrize("needs", [False, True])
def test_leaves_on_memory_that_arguments_share(leaf: Callable[..., Any], needs: bool) -> None:
    """Seed 9900055. Such an argument is a view of all the memory, and so is what is made of it."""
    def f(a: Any, b: Any) -> Any:
        total, t = a.sum(), leaf(b)
        (t * t).sum().backward()
        with torch.no_grad():
            t -= 1
        return total, t.grad
    for g in (f, torch.compile(f, backend="reference")):
        whole = torch.arange(9.0)
        a, b = whole[:6].view(2, 3), whole[3:]
        total, grad = g(a, b.requires_grad_(needs))
        first = 3 + 6 - len(grad)
        assert total.item() == 15.0 and grad.tolist() == [2.0 * i for i in range(first, 9)]
        assert whole.tolist() == [float(i - (i >= first)) for i in range(9)]


def moved(x: Any) -> Any:
    u = x * 1
    v = u.view(-1)
    u.data = u.detach() + 1
    v.add_(1)
    return u[0], u, v


@pytest.mark.parametrize("f", [
    lambda x: (x.data, 0)[:1] * 2, lambda x: [d := x.data, d[0], d.t()],
    lambda x: [(d := x.data)[0], d], lambda x: [(d := (x * 2).data).view(-1), d[1], x],
    lambda x: [(e := (x + 1).data[1:])[0], e, x.data, x], moved])
@pytest.mark.parametrize("backend", ["reference", "inductor"])
def test_views_of_data_count_their_versions_together(f: Callable[..., Any], backend: str) -> None:
    """Seed 11001020. And apart from those of the tensor that they are the data of."""
    seen = []
    for g in (f, torch.compile(f, backend=backend)):
        made = [*g(torch.arange(6.0).reshape(2, 3))]
        seen.append([])
        first = [t._version for t in made]      # they count from the end of a compiled call
        for t in made:
            t.add_(1)
            seen[-1] += [[u._version - n for u, n in zip(made, first, strict=True)],
                         [u.tolist() for u in made],
                         [[u._storage is v._storage for u in made] for v in made]]
    assert seen[0] == seen[1]


@pytest.mark.parametrize("backend", ["loops", "inductor"])
def test_gradients_of_some_results_that_numbers_are_part_of(backend: str) -> None:
    """Seed 21002857. A number that varies is an argument of the graph, and a tensor in it."""
    def f(a: Any, b: Any, n: float) -> Any:
        t = b + n / 2
        m = torch.nn.functional.mse_loss(a, 0.5 - t)
        return torch.nn.functional.mse_loss(m, m), m
    g = torch.compile(f, backend=backend)
    for n in (1, 2, 3):
        found = []
        for h in (f, g):
            a = torch.ones(3, requires_grad=True)
            h(a, a.detach(), n)[1].backward()
            found.append((a.grad.tolist(), a.grad.stride()))
        assert found[0] == found[1]


@pytest.mark.parametrize("backend", ["loops", "inductor"])
def test_strided_views_of_what_was_a_view_before_a_break(backend: str) -> None:
    """Seed 21000534. They reach all of the base's memory, and so do their gradients."""
    def f(b: Any, c: Any) -> Any:
        t = b.select(-1, 0)
        torch._dynamo.graph_break()
        return c.abs(), t.as_strided((2,), (1,))
    found = []
    for g in (f, torch.compile(f, backend=backend)):
        b = torch.ones(4, requires_grad=True)
        for made in g(b, torch.ones(2)):
            if made.requires_grad:
                (made * torch.tensor([1.0, 3.0])).sum().backward()
        found.append(b.grad.tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize("backend", ["loops", "inductor"])
@pytest.mark.parametrize("make", [lambda: torch.ones(3, 1).expand(3, 4), lambda: torch.ones(3, 4),
                                  lambda: torch.ones(3, 4)[:, :2]])
def test_views_that_are_made_of_views_while_nothing_is_recorded(
        make: Callable[..., Any], backend: str) -> None:
    """Seed 20005531. Of a leaf that is a view of a tensor without gradients they have none."""
    def f(a: Any) -> Any:
        t = a.T
        with torch.no_grad():
            u = t.narrow(0, 0, 1)
        v = u.transpose(0, -1)
        return v.sin(), (u * 2).requires_grad, v
    found = []
    for g in (f, torch.compile(f, backend=backend), torch.compile(lambda a: f(a)[:2],
                                                                  backend=backend)):
        sin, flag, *_ = g(make().requires_grad_())
        found.append((sin.requires_grad, sin.is_leaf, flag))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("backend", ["loops", "inductor"])
@pytest.mark.parametrize("shape", [(2, 3), (3, 5), (2, 2, 7)])
def test_rows_of_which_a_part_was_written(backend: str, shape: tuple[int, ...]) -> None:
    """Seed 14000212. What a kernel stored into a part of a row does not stand for the rest."""
    def f(b: Any) -> Any:
        b.unfold(-1, 2, 2).add_(1)
        b[..., 1:].mul_(3)
        return b.diff(), b.flip(-1), b.sum(-1)
    found = []
    for g in (f, torch.compile(f, backend=backend)):
        b = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
        found.append([t.tolist() for t in (*g(b), b)])
    assert found[0] == found[1]
