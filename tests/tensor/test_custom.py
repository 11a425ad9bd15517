"""Operators of the user's own, eager and compiled."""

import numpy as np
import pytest

import lehr as torch
from lehr import Tensor
from lehr.compiler.counters import stats
from lehr.ops import registry
from lehr.tensor.custom import CUSTOM


@pytest.fixture
def define():
    """Defines an operator for the time of a test."""
    made = []

    def decorate(name="shop::op", mutates_args=()):
        def make(fn):
            made.append(torch.library.custom_op(name, fn, mutates_args=mutates_args))
            return made[-1]
        return make
    yield decorate
    for each in made:
        CUSTOM.pop(each.qualname, None)
        registry.OPS.pop(each.op.name, None)


def sine(define):
    """sin by numpy, with its derivative and its fake."""
    @define("shop::sine")
    def op(x: Tensor, scale: float = 1.0) -> Tensor:
        return torch.from_numpy(np.sin(x.numpy()) * np.float32(scale))

    @op.register_fake
    def _(x, scale=1.0):
        return torch.empty_like(x)

    def keep(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.scale = inputs[1]

    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].cos() * ctx.scale, None

    op.register_autograd(backward, setup_context=keep)
    return op


def test_eager_call_and_gradient(define):
    op = sine(define)
    x = torch.randn(3, 4, requires_grad=True)
    y = torch.ops.shop.sine(x, 2.0)
    y.sum().backward()
    assert torch.allclose(y, x.detach().sin() * 2) and torch.allclose(x.grad, x.detach().cos() * 2)
    assert op(x).grad_fn is not None and repr(op) == "<CustomOpDef(shop::sine)>"


def test_one_graph_with_a_host_call(define):
    op = sine(define)

    @torch.compile(fullgraph=True)
    def f(x):
        return op(x * 2, 3.0) + 1

    before = stats()
    for _ in range(2):
        x = torch.randn(3, 4)
        assert torch.allclose(f(x), (x * 2).sin() * 3 + 1)
    after = stats()
    assert after["graphs"] - before["graphs"] == 1 and after["breaks"] == before["breaks"]


def test_compiled_gradient(define):
    op = sine(define)

    @torch.compile(fullgraph=True)
    def step(x):
        y = op(x).sum()
        y.backward()
        return y.detach()

    x = torch.randn(5, requires_grad=True)
    step(x)
    assert torch.allclose(x.grad, x.detach().cos())


def test_without_a_fake_the_graph_breaks(define):
    @define("shop::plain")
    def op(x: Tensor) -> Tensor:
        return torch.from_numpy(x.numpy() + 1)

    def f(x):
        return op(x * 2) * 3

    x = torch.randn(4)
    assert torch.equal(torch.compile(f)(x), (x * 2 + 1) * 3)
    with pytest.raises(Exception, match="shop::plain"):
        torch.compile(f, fullgraph=True)(x)


def test_written_arguments(define):
    @define("shop::fill", mutates_args=("x",))
    def op(x: Tensor, value: float) -> None:
        x.numpy()[...] = value

    x = torch.zeros(3)
    before = x._version
    assert op(x, 2.0) is None and torch.equal(x, torch.full((3,), 2.0)) and x._version > before

    def f(x):
        y = x + 1
        op(y, 5.0)
        return y * 2
    assert torch.equal(torch.compile(f, fullgraph=True)(x), torch.full((3,), 10.0))


def test_written_arguments_in_a_graph(define):
    """What is written is seen through views and by later calls, versions count it."""
    @define("shop::halve", mutates_args=("x", "count"))
    def op(x: Tensor, y: Tensor, count: Tensor) -> Tensor:
        x.numpy()[...] = x.numpy() * 0.5 + y.numpy()
        count.numpy()[...] += 1
        return x.sum()

    @op.register_fake
    def _(x, y, count):
        return x.new_empty(())

    def f(x, y, count):
        row = x[1]
        total = op(row, y, count)
        op(x.t()[0], y[:2], count)
        return total, row * 2, x.sum()

    seen = []
    for g in (f, torch.compile(f, fullgraph=True)):
        x, count = torch.arange(6.0).reshape(2, 3), torch.zeros((), dtype=torch.int64)
        for _ in range(2):
            out = g(x, torch.ones(3), count)
        seen.append(([t.tolist() for t in out], x.tolist(), count.item(), x._version > 0))
    assert seen[0] == seen[1]


def test_an_argument_that_is_written_and_read(define):
    """Copies would not share memory: the graph breaks."""
    @define("shop::shift", mutates_args=("x",))
    def op(x: Tensor, y: Tensor) -> None:
        x.numpy()[...] += 1
        x.numpy()[...] *= y.numpy()

    def f(x):
        op(x, x)
        return x + 1
    assert torch.compile(f)(torch.ones(2)).tolist() == [5.0, 5.0]
    assert f(torch.ones(2)).tolist() == [5.0, 5.0]
    with pytest.raises(Exception, match="shop::shift"):
        torch.compile(f, fullgraph=True)(torch.ones(2))


def test_several_results_and_lists(define):
    @define("shop::parts")
    def op(xs: list[Tensor], *, which: int) -> tuple[Tensor, Tensor]:
        return xs[which].clone(), torch.stack(xs)

    @op.register_fake
    def _(xs, which):
        return torch.empty_like(xs[0]), torch.stack(xs)

    xs = [torch.randn(3), torch.randn(3)]
    for f in (lambda a, b: op([a, b], which=1),
              torch.compile(lambda a, b: op([a, b], which=1), fullgraph=True)):
        one, both = f(*xs)
        assert torch.equal(one, xs[1]) and torch.equal(both, torch.stack(xs))


def test_no_derivative_says_so(define):
    @define("shop::flat")
    def op(x: Tensor) -> Tensor:
        return x * 2
    with pytest.raises(RuntimeError, match="shop::flat has no derivative"):
        op(torch.randn(2, requires_grad=True)).sum().backward()


def test_results_may_not_share_memory(define):
    @define("shop::same")
    def op(x: Tensor) -> Tensor:
        return x
    with pytest.raises(RuntimeError, match="shop::same: a result shares memory"):
        op(torch.randn(2))


def test_a_fake_that_lies_is_found(define):
    @define("shop::lie")
    def op(x: Tensor) -> Tensor:
        return torch.zeros(3)
    op.register_fake(lambda x: torch.empty_like(x))
    with pytest.raises(Exception, match="shop::lie made"):
        torch.compile(lambda x: op(x) + 1, fullgraph=True)(torch.randn(4))
    with pytest.raises(Exception, match="shop::lie made"):      # of the right shape, not dtype
        torch.compile(lambda x: op(x) + 1, fullgraph=True)(torch.zeros(3, dtype=torch.float64))


def test_other_devices_are_refused():
    def fn(x: Tensor) -> Tensor:
        return x + 1
    op = torch.library.custom_op("shop::away", fn, mutates_args=(), device_types="cuda")
    try:
        with pytest.raises(NotImplementedError,
                           match="not defined for tensors on cpu, only for cuda"):
            op(torch.zeros(2))
        op.register_kernel("cpu", fn)
        assert torch.equal(op(torch.zeros(2)), torch.ones(2))
    finally:
        CUSTOM.pop(op.qualname)
        registry.OPS.pop(op.op.name)


@pytest.mark.parametrize(("name", "fn", "text"), [
    ("plain", lambda x: x, "namespace::name"),
    ("view::x", lambda x: x, "annotation"),
])
def test_bad_definitions(name, fn, text):
    with pytest.raises(ValueError, match=text):
        torch.library.custom_op(name, fn, mutates_args=())


def test_lehrs_own_namespaces_stay():
    def fn(x: Tensor) -> Tensor:
        return x.clone()
    with pytest.raises(ValueError, match="lehr's own"):
        torch.library.custom_op("registry::x", fn, mutates_args=())
    with pytest.raises(AttributeError):
        torch.ops.nowhere  # noqa: B018


def test_names_are_found_later(define):
    @define("shop::later")
    def op(x: Tensor) -> Tensor:
        return x + 1
    torch.library.register_fake("shop::later")(lambda x: torch.empty_like(x))
    torch.library.register_autograd("shop::later", lambda ctx, g: g * 7)
    x = torch.randn(2, requires_grad=True)
    torch.ops.shop.later(x).sum().backward()
    assert torch.equal(x.grad, torch.full((2,), 7.0))
    with pytest.raises(RuntimeError, match="operator a::b does not exist"):
        torch.library.register_fake("a::b", lambda x: x)
