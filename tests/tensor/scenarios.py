"""Small programs about gradients, run by lehr and decided by torch (see `cases`).

Each takes the library and returns something to show. `python -m tests.tensor.scenarios` writes what
torch returns into `scenarios.json`.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.tensor.cases import show

GOLDEN = Path(__file__).with_name("scenarios.json")
SCENARIOS: dict[str, Callable[[Any], Any]] = {}


def scenario(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    SCENARIOS[function.__name__] = function
    return function


def attempt(function: Callable[[], Any]) -> Any:
    try:
        return show(function())
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:44]}"


@scenario
def hooks_on_results_and_leaves(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: g * 10)
    z = (y * 3).sum()
    out = [t.autograd.grad(z, [y, x], retain_graph=True),
           t.autograd.grad(z, [y], retain_graph=True)]
    x.register_hook(lambda g: g * 100)
    out.append(t.autograd.grad(z, [x], retain_graph=True))
    z.backward(retain_graph=True)
    out.append(x.grad)
    y.retain_grad()
    z.backward()
    return [*out, y.grad, x.grad]


@scenario
def hooks_and_in_place(t: Any) -> Any:
    a = t.ones(2, requires_grad=True)
    b = a * 1
    b.retain_grad()
    b.register_hook(lambda g: g * 2)
    b.mul_(3)
    b.register_hook(lambda g: g * 5)
    b.sum().backward()
    return b.grad, a.grad


@scenario
def hooks_are_removed(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    h = x.register_hook(lambda g: g * 3)
    (x * 1).sum().backward()
    h.remove()
    (x * 1).sum().backward()
    with x.register_hook(lambda g: g * 7):
        (x * 1).sum().backward()
    (x * 1).sum().backward()
    return x.grad


@scenario
def hook_of_a_wrong_shape(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    x.register_hook(lambda g: g[:1])
    return attempt(lambda: (x * 1).sum().backward())


@scenario
def node_hooks(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    y = x.exp()
    seen = []
    y.grad_fn.register_prehook(lambda g: (g[0] * 2,))
    y.grad_fn.register_hook(lambda gi, go: seen.append((gi[0].tolist(), go[0].tolist())))
    y.grad_fn.register_hook(lambda gi, go: (gi[0] * 0,))
    y.sum().backward()
    return x.grad, len(seen)


@scenario
def hooks_after_accumulation(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    seen = []
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
    (x * 2).sum().backward()
    (x * 3).sum().backward()
    x.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
    (x * 3).sum().backward()
    return seen, x.grad


@scenario
def optimizer_in_backward(t: Any) -> Any:
    """A hook that changes the gradient in place must not reach gradients still under way."""
    a = t.ones(2, requires_grad=True)
    b = t.ones(2, requires_grad=True)
    for p in (a, b):
        p.register_post_accumulate_grad_hook(lambda p: (p.grad.zero_(), None)[1])
    c = t.ones(2, requires_grad=True)
    ((a + b) + c).sum().backward()
    return a.grad, b.grad, c.grad


@scenario
def gradients_are_not_shared(t: Any) -> Any:
    a = t.ones(2, requires_grad=True)
    b = t.ones(2, requires_grad=True)
    g = t.full((2,), 5.0)
    (a + b).backward(g)
    a.grad.mul_(2)
    return a.grad, b.grad, g


@scenario
def gradient_strides_follow_the_leaf(t: Any) -> Any:
    x = t.ones(3, 2).t().requires_grad_()
    w = t.ones(2, 3, 4, 5).to(memory_format=t.channels_last).requires_grad_()
    (x * 2).sum().backward()
    (w * 2).sum().backward()
    v = t.ones(2, 3, requires_grad=True)
    v.t().contiguous().backward(t.ones(3, 2))
    return x.grad.stride(), w.grad.stride(), v.grad.stride()


@scenario
def accumulation_and_zeroing(t: Any) -> Any:
    x = t.tensor([2.0], requires_grad=True)
    out = []
    for _ in range(2):
        (x ** 2).sum().backward()
        out.append(x.grad.clone())
    x.grad.zero_()
    (x ** 2).sum().backward()
    out.append(x.grad.clone())
    x.grad = None
    out.append(x.grad)
    x.grad = t.ones(1)
    (x ** 2).sum().backward()
    return [*out, x.grad]


@scenario
def double_backward(t: Any) -> Any:
    x = t.tensor([1.0, 2.0], requires_grad=True)
    (g,) = t.autograd.grad((x ** 3).sum(), x, create_graph=True)
    (h,) = t.autograd.grad(g.sum(), x, create_graph=True)
    (k,) = t.autograd.grad(h.sum(), x)
    y = (x ** 2).sum()
    y.backward(create_graph=True)
    return g, h, k, x.grad.requires_grad, x.grad.detach()


@scenario
def second_backward(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    y = (x.exp()).sum()
    y.backward()
    first = attempt(lambda: y.backward())
    z = (x * 1).sum()
    z.backward(retain_graph=True)
    z.backward()
    lin = (x + 1).sum()
    lin.backward()
    return first, attempt(lambda: lin.backward()), x.grad


@scenario
def inputs_restrict(t: Any) -> Any:
    x, y = t.ones(2, requires_grad=True), t.ones(2, requires_grad=True)
    m = x * y
    z = (m * x).sum()
    z.backward(inputs=[x], retain_graph=True)
    out = [x.grad, y.grad]
    z.backward(inputs=[m])
    return [*out, m.grad, x.grad, y.grad]


@scenario
def several_roots(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    y, z = x * 2, x * 3
    t.autograd.backward([y, z], [t.ones(2), t.full((2,), 2.0)])
    t.autograd.backward((x.sum(),))
    return x.grad, attempt(lambda: t.autograd.backward([x * 1], [None])), attempt(
        lambda: t.autograd.backward([x * 1, x * 2], [t.ones(2)]))


@scenario
def modes(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    out = []
    with t.no_grad():
        out.append((x * 2).requires_grad)
        with t.enable_grad():
            out.append((x * 2).requires_grad)
        out.append((x * 2).requires_grad)
    with t.set_grad_enabled(False):
        out.append((x * 2).requires_grad)
    t.set_grad_enabled(False)
    out.append(t.is_grad_enabled())
    t.set_grad_enabled(True)
    out.append(t.is_grad_enabled())

    @t.no_grad()
    def f(a: Any) -> Any:
        return a * 2

    @t.no_grad
    def k(a: Any) -> Any:
        return a * 2

    @t.no_grad()
    def gen() -> Any:
        got = yield t.is_grad_enabled()
        yield got, t.is_grad_enabled()

    @t.inference_mode()
    def inf(a: Any) -> Any:
        return a * 2
    run = gen()
    out += [f(x).requires_grad, k(x).requires_grad, next(run), t.is_grad_enabled(), run.send(5),
            t.is_grad_enabled(), inf(x).is_inference()]

    @t.set_grad_enabled(False)
    def off() -> Any:
        return t.is_grad_enabled()
    out += [off(), t.is_grad_enabled()]
    return out


@scenario
def inference_tensors(t: Any) -> Any:
    with t.inference_mode():
        x = t.ones(2)
        y = x * 2
        z = y[0]
        inside = (x.is_inference(), y.is_inference(), z.is_inference(),
                  t.is_inference_mode_enabled())
        y.add_(1)
    w = t.ones(2, requires_grad=True)
    return (inside, t.is_inference_mode_enabled(), attempt(lambda: w * x),
            attempt(lambda: y.add_(1)), attempt(lambda: x.requires_grad_()),
            attempt(lambda: x._version), (x + 1).is_inference(),
            attempt(lambda: w + x), x.clone().is_inference(), attempt(lambda: w * x.clone()))


@scenario
def no_grad_views(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    y = x * 1
    with t.no_grad():
        v = y.view(2)
    out = [v.requires_grad, v.grad_fn, attempt(lambda: v.mul_(2))]
    y.mul_(2)
    out.append(attempt(lambda: v.grad_fn))
    b = t.ones(2)
    with t.no_grad():
        u = b[0]
    out.append(attempt(lambda: u.mul_(t.ones((), requires_grad=True))))
    return out


@scenario
def detached(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    y = x * 2
    d = y.detach()
    d[0].mul_(t.full((), 3.0, requires_grad=True))
    z = y.sum()
    z.backward()
    return y, d.requires_grad, d, y.grad_fn is not None, x.grad, d._version, y._version


@scenario
def data_is_unseen(t: Any) -> Any:
    x = t.ones(3, requires_grad=True)
    y = x.exp()
    y.data.mul_(2)
    y.sum().backward()
    x.data = t.zeros(2, 2)
    return y, x.grad is None or tuple(x.grad.shape), x, x.requires_grad, x._version


@scenario
def versions(t: Any) -> Any:
    x = t.ones(2, 2)
    v = x[0]
    v.add_(1)
    x.t_()
    x.data.add_(1)
    x.detach().add_(1)
    x.copy_(x)
    x[0, 0] = 5
    return x._version, v._version, x


@scenario
def saved_values_are_checked(t: Any) -> Any:
    out = []
    for name in ("exp", "sigmoid", "relu", "sqrt", "sin", "square", "log", "abs", "tanh"):
        x = t.full((2,), 0.5, requires_grad=True)
        y = x * 1
        z = getattr(y, name)()
        y.add_(1)
        out.append(attempt(lambda z=z: z.sum().backward()))
        y = x * 1
        z = getattr(y, name)()
        z.add_(1)
        out.append(attempt(lambda z=z: z.sum().backward()))
    return out


@scenario
def only_what_is_needed_is_saved(t: Any) -> Any:
    x, w = t.ones(2), t.ones(2, requires_grad=True)
    out = []
    for f in (lambda a: a * w, lambda a: w * a, lambda a: a / w, lambda a: t.addcmul(w, a, a),
              lambda a: t.where(a > 0, w, a), lambda a: a @ w, lambda a: t.maximum(a, w)):
        a = x.clone()
        y = f(a)
        a.add_(1)
        out.append(attempt(lambda y=y: y.sum().backward()))
    return out


@scenario
def anomaly(t: Any) -> Any:
    x = t.zeros(1, requires_grad=True)
    with t.autograd.set_detect_anomaly(True):
        y = (x / x).sqrt()
        out = [attempt(lambda: y.sum().backward()), t.is_anomaly_enabled()]
    with t.autograd.detect_anomaly(check_nan=False):
        out.append(attempt(lambda: (x / x).sum().backward()))
    return [*out, t.is_anomaly_enabled()]


@scenario
def saved_tensor_hooks(t: Any) -> Any:
    x = t.tensor([1.0, 2.0], requires_grad=True)
    kept = []

    def pack(v: Any) -> Any:
        kept.append(v.tolist())
        return v.tolist()
    with t.autograd.graph.saved_tensors_hooks(pack, lambda v: t.tensor(v)):
        y = x.exp() * x
    y.sum().backward()
    with t.autograd.graph.save_on_cpu():
        z = (x * x).sum()
    z.backward()
    with t.autograd.graph.disable_saved_tensors_hooks("not here"):
        refused = attempt(lambda: t.autograd.graph.saved_tensors_hooks(pack, pack).__enter__())
    return len(kept), x.grad, refused


@scenario
def multi_grad_hooks(t: Any) -> Any:
    xs = [t.ones(2, requires_grad=True) for _ in range(3)]
    seen = []
    h = t.autograd.graph.register_multi_grad_hook(
        xs[:2], lambda gs: seen.append([None if g is None else g.tolist() for g in gs]))
    (xs[0] * xs[1] * 2 + xs[2]).sum().backward()
    (xs[0] * 3).sum().backward()
    h.remove()
    (xs[0] * 3).sum().backward()
    return seen


@scenario
def expand_and_sum(t: Any) -> Any:
    x = t.ones(1, 3, requires_grad=True)
    y = t.ones(2, 1, requires_grad=True)
    z = t.ones((), requires_grad=True)
    (x * y + z).sum().backward()
    w = t.ones(3, requires_grad=True, dtype=t.float64)
    (w * t.ones(2, 3)).sum().backward()
    h = t.ones(3, requires_grad=True, dtype=t.bfloat16)
    (h * t.ones(2, 3)).sum().backward()
    return x.grad, y.grad, z.grad, w.grad, h.grad


@scenario
def retain_grad_on_views(t: Any) -> Any:
    x = t.ones(4, requires_grad=True)
    y = x * 1
    v = y[:2]
    v.retain_grad()
    y.retain_grad()
    v.mul_(3)
    y.sum().backward()
    return v.grad, y.grad, x.grad


@scenario
def index_put_gradients(t: Any) -> Any:
    x = t.zeros(4, requires_grad=True)
    v = t.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1
    y[t.tensor([0, 2])] = v
    y[t.tensor([True, False, False, True])] = 7.0
    y[1] += v[0]
    (y * t.arange(4.0)).sum().backward()
    z = x[t.tensor([0, 0, 1])]
    (z * t.tensor([1.0, 2.0, 3.0])).sum().backward()
    return y, x.grad, v.grad


@scenario
def complex_gradients(t: Any) -> Any:
    x = t.tensor([1.0, 2.0], requires_grad=True)
    z = t.complex(x, x * 2)
    (z * z.conj()).real.sum().backward()
    return x.grad


@scenario
def functional(t: Any) -> Any:
    F = t.autograd.functional
    x = t.tensor([1.0, 2.0])
    return (F.jacobian(lambda a: a ** 2, x), F.hessian(lambda a: (a ** 3).sum(), x),
            F.vjp(lambda a: a * 3, x, t.ones(2)), F.jvp(lambda a: a ** 2, x, t.ones(2)),
            F.hvp(lambda a: (a ** 3).sum(), x, t.ones(2)),
            F.vhp(lambda a: (a ** 3).sum(), x, t.ones(2)),
            F.jacobian(lambda a, b: (a * b, a.sum()), (x, x)),
            F.jacobian(lambda a: a * 2, x, vectorize=True),
            F.hessian(lambda a, b: (a * b).sum(), (x, x)),
            attempt(lambda: F.jacobian(lambda a: t.ones(2), x, strict=True)))


@scenario
def gradcheck(t: Any) -> Any:
    x = t.tensor([0.5, 1.5], dtype=t.float64, requires_grad=True)

    class Wrong(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            return a * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 3
    check, twice = t.autograd.gradcheck, t.autograd.gradgradcheck
    return (check(lambda a: a.sin(), (x,)), twice(lambda a: a.sin() * a, (x,)),
            check(Wrong.apply, (x,), raise_exception=False),
            attempt(lambda: check(Wrong.apply, (x,)))[:33],
            attempt(lambda: check(lambda a: a, (t.ones(2),)))[:50],
            check(lambda a, b: (a * b, a @ b), (x, x.detach().clone().requires_grad_())))


@scenario
def leaves_that_stop_being_leaves(t: Any) -> Any:
    x = t.ones(2)
    w = t.full((2,), 3.0, requires_grad=True)
    x.mul_(w)
    out = [x.requires_grad, x.is_leaf]
    x.sum().backward()
    y = x.detach_()
    return [*out, w.grad, y is x, x.requires_grad, x.is_leaf, attempt(lambda: x.sum().backward())]


@scenario
def graph_edges(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    y = x * 2
    e = t.autograd.graph.get_gradient_edge(y)
    fn = y.grad_fn
    fn.metadata["k"] = 1
    return (e.node is fn, e.output_nr, fn.next_functions[0][0].name(), fn.next_functions[1],
            fn.metadata, fn.next_functions[0][0].variable is x)


def exponential(t: Any) -> Any:
    class Exp(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, k: float) -> Any:
            y = x.exp() * k
            ctx.save_for_backward(y)
            ctx.k = k
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (y,) = ctx.saved_tensors
            return g * y, None
    return Exp


@scenario
def function_basics(t: Any) -> Any:
    Exp = exponential(t)
    x = t.tensor([0.0, 1.0], requires_grad=True)
    y = Exp.apply(x, 2.0)
    out = [y.detach(), y.grad_fn.name(), type(y.grad_fn).__name__, y.grad_fn.k,
           y.grad_fn.needs_input_grad]
    (g,) = t.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = t.autograd.grad(g.sum(), x)
    y = Exp.apply(x, 1.0)
    y.sum().backward()
    again = attempt(lambda: y.sum().backward())
    with t.no_grad():
        z = Exp.apply(x, 2.0)
    return [*out, g.detach(), h, x.grad, again, z.requires_grad,
            Exp.apply(t.ones(1), 1.0).requires_grad, attempt(lambda: Exp()(x)),
            attempt(lambda: Exp.apply(x))]


@scenario
def function_with_setup_context(t: Any) -> Any:
    class Pair(t.autograd.Function):
        @staticmethod
        def forward(x: Any, y: Any) -> Any:
            return x * y, x + y

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)
            ctx.mark_non_differentiable(output[1])
            ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            x, y = ctx.saved_tensors
            return (g * y if ctx.needs_input_grad[0] else None,
                    g * x if ctx.needs_input_grad[1] else None)
    x, y = t.tensor([2.0], requires_grad=True), t.tensor([3.0])
    a, b = Pair.apply(x, y)
    a.sum().backward()
    return a.detach(), b, a.requires_grad, b.requires_grad, x.grad


@scenario
def function_materializes(t: Any) -> Any:
    seen = []

    class Two(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            seen.append((g.tolist(), h.tolist()))
            return g * 2 + h * 3
    x = t.ones(2, requires_grad=True)
    Two.apply(x)[1].sum().backward()
    return seen, x.grad


@scenario
def function_in_place(t: Any) -> Any:
    class Double(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    class Forgets(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x)
            x.mul_(2)
            return x * 1
    x = t.ones(2, requires_grad=True)
    y = x * 1
    z = Double.apply(y)
    z.sum().backward()
    w = x * 1
    Double.apply(w[:1])
    w.sum().backward()
    return (z is y, y.detach(), y._version, x.grad, attempt(lambda: Double.apply(x)),
            attempt(lambda: Forgets.apply(x * 1)))


@scenario
def function_returns_input_or_view(t: Any) -> Any:
    class Same(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 5

    class Row(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x[0]

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return t.stack([g * 7, g * 0])
    x = t.ones(2, 2, requires_grad=True)
    y = Same.apply(x)
    y.sum().backward()
    r = Row.apply(x)
    r.sum().backward()
    return y is x, y.grad_fn is not None, x.is_leaf, x.grad, attempt(lambda: r.add_(1))[:20]


@scenario
def function_errors(t: Any) -> Any:
    def make(count: int, shape: Any = None, value: Any = None) -> Any:
        class Odd(t.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any, k: Any) -> Any:
                return x * 2

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                first = g if shape is None else t.ones(shape)
                return (first, value, None)[:count] if count > 1 else first
        return Odd
    x = t.ones(2, requires_grad=True)

    class Nothing(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

    class Bare(t.autograd.Function):
        pass
    return (attempt(lambda: make(1).apply(x, 1).sum().backward()),
            attempt(lambda: make(3).apply(x, 1).sum().backward()),
            attempt(lambda: make(2, None, t.ones(1)).apply(x, 1).sum().backward()),
            attempt(lambda: make(2, (3,)).apply(x, 1).sum().backward()),
            attempt(lambda: make(2, (4, 2)).apply(x, 1).sum().backward()), x.grad,
            attempt(lambda: Nothing.apply(x).sum().backward())[:20],
            attempt(lambda: Bare.apply(x)))


@scenario
def function_once_differentiable(t: Any) -> Any:
    class Once(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x ** 2

        @staticmethod
        @t.autograd.function.once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 2 * x
    x = t.ones(2, requires_grad=True)
    (g,) = t.autograd.grad(Once.apply(x).sum(), x, create_graph=True)
    return g.detach(), g.requires_grad, attempt(lambda: g.sum().backward())


@scenario
def function_keeps_other_things(t: Any) -> Any:
    class Keeps(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, *, scale: float = 1.0) -> Any:
            return x

    class Saves(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, idx: Any) -> Any:
            ctx.save_for_backward(x, None, idx)
            return x[idx], 5, "a", None

        @staticmethod
        def backward(ctx: Any, g: Any, *rest: Any) -> Any:
            x, none, idx = ctx.saved_tensors
            out = t.zeros_like(x)
            out[idx] = g
            return out, none
    x = t.ones(3, requires_grad=True)
    y, *more = Saves.apply(x, t.tensor([0, 2]))
    y.sum().backward()
    return more, x.grad


@scenario
def subclass_results(t: Any) -> Any:
    log = []

    class Plain(t.Tensor):
        pass

    class Logged(t.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (),
                               kwargs: Any = None) -> Any:
            log.append((func.__name__, [k.__name__ for k in types], len(args),
                        sorted(kwargs or {})))
            return super().__torch_function__(func, types, args, kwargs)

    class Param(t.Tensor):
        __torch_function__ = t._C._disabled_torch_function_impl
    p = t.ones(2).as_subclass(Plain)
    q = t.ones(2).as_subclass(Logged)
    r = t.ones(2).as_subclass(Param)
    names = lambda x: type(x).__name__
    out = [names(p + 1), names(1 + p), names(p.sum()), names(t.stack([p, p])), names(p.split(1)[0]),
           names(p.max(0).values), names(r + 1), names(p + r), names(p[0]), names(p.detach()),
           names(p.to(t.float64)), names(p.clone()), names(t.zeros_like(p)),
           names(p.requires_grad_())]
    t.add(q, 1, alpha=2)
    q.mul(3)
    t.cat([q, q])
    return out, log, names(q + 1), names(q.as_subclass(t.Tensor))


@scenario
def function_mode(t: Any) -> Any:
    log = []

    class Mode(t.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (),
                               kwargs: Any = None) -> Any:
            log.append(func.__name__)
            return func(*args, **(kwargs or {}))
    x = t.ones(2)
    with Mode():
        t.add(x, x)
        t.zeros(2)
        t.rand(2)
        x.sum()
        with t._C.DisableTorchFunction():
            t.mul(x, 2)
    t.add(x, x)
    return log


@scenario
def duck_typed_override(t: Any) -> Any:
    class Duck:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (),
                               kwargs: Any = None) -> Any:
            return "duck", func.__name__, len(args)
    d = Duck()
    return (t.add(d, 1), t.add(t.ones(1), d), t.stack([d]), t.overrides.has_torch_function((d,)),
            t.overrides.is_tensor_like(d), t.sum(d, dim=0)[:2])


@scenario
def recording_within_inference(t: Any) -> Any:
    w, out = t.ones(2, requires_grad=True), []
    with t.inference_mode():
        x = t.ones(2)
        with t.enable_grad():
            out.append((w * x).requires_grad)
        with t.set_grad_enabled(True):
            out.append((w * x).is_inference())
        t.set_grad_enabled(True)
        out.append((w * w).requires_grad)
    return [*out, (w * w).requires_grad]


@scenario
def results_that_cannot_be_written(t: Any) -> Any:
    i, x, b = t.tensor([1, 2]), t.ones(2), t.tensor([True, False])
    return [attempt(lambda: i.add_(x)), attempt(lambda: b.add_(i)), attempt(lambda: i.div_(2)),
            attempt(lambda: t.add(x, 1, out=t.zeros(2, dtype=t.int64))), attempt(lambda: b - b),
            attempt(lambda: b - x), attempt(lambda: t.ones(3, 3) @ x)]


def evaluate(lib: Any, name: str) -> str:
    with warnings.catch_warnings(), contextlib.redirect_stderr(None):
        warnings.simplefilter("ignore")
        return str(show(SCENARIOS[name](lib)))


def golden() -> dict[str, str]:
    return json.loads(GOLDEN.read_text("utf-8"))  # type: ignore[no-any-return]


if __name__ == "__main__":
    import torch
    GOLDEN.write_text(json.dumps({n: evaluate(torch, n) for n in SCENARIOS}, indent=0) + "\n")
