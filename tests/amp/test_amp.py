"""Autocast and gradient scaling; the same under torch."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import lehr
from tests.nn.both import check, filled, numbers


def cast(m, **kw):
    return m.autocast("cpu", **kw)


def _types(m):
    a, b, h = numbers(m, 4, 4), numbers(m, 4, 4, seed=1), numbers(m, 4, 4).to(m.bfloat16)
    out = []
    with cast(m):
        out += [a @ b, m.nn.functional.linear(a, b), m.bmm(a[None], b[None]), a + b, h + h, h + a,
                m.nn.functional.softmax(a, -1), m.cat([h, a]), m.cat([h, h]), m.relu(a),
                m.addmm(a, a, b), a.double() @ b.double(), m.trace(h), m.polar(h, h),
                m.nn.functional.binary_cross_entropy(h.sigmoid(), h.sigmoid())]
        with cast(m, enabled=False):
            out += [a @ b]
            with cast(m, dtype=m.float16):
                out += [a @ b]
        out.append(a @ b)
    out.append(a @ b)
    return [str(x.dtype) for x in out]


def _trained(m):
    n = filled(m.nn.Sequential(m.nn.Linear(8, 8), m.nn.GELU(), m.nn.Linear(8, 3)), m)
    with cast(m, dtype=m.bfloat16):
        out = n(numbers(m, 5, 8))
        loss = m.nn.functional.cross_entropy(out, m.tensor([0, 1, 2, 0, 1]))
    loss.backward()
    return [str(out.dtype), str(loss.dtype), loss, [p.grad for p in n.parameters()]]


def _decorated(m):
    @cast(m)
    def f(x):
        return x @ x
    return [str(f(m.ones(2, 2)).dtype), m.is_autocast_enabled("cpu"),
            str(m.get_autocast_dtype("cpu"))]


def _function(m):
    seen = []

    class Mul(m.autograd.Function):
        @staticmethod
        @m.amp.custom_fwd(device_type="cpu", cast_inputs=m.float32)
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            seen.append((str(x.dtype), m.is_autocast_enabled("cpu")))
            return x @ y

        @staticmethod
        @m.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            seen.append(m.is_autocast_enabled("cpu"))
            x, y = ctx.saved_tensors
            return g @ y.t(), x.t() @ g
    x = numbers(m, 3, 3).to(m.bfloat16).requires_grad_()
    with cast(m):
        out = Mul.apply(x, x)
    out.sum().backward()
    return [seen, str(out.dtype), str(x.grad.dtype)]


def _scaled(m):
    n = filled(m.nn.Linear(3, 2), m)
    o = m.optim.SGD(n.parameters(), lr=0.1)
    s = m.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    log = []
    for i in range(6):
        o.zero_grad()
        loss = n(numbers(m, 4, 3, seed=i)).pow(2).mean()
        if i == 2:
            loss = loss * float("inf")
        s.scale(loss).backward()
        if i % 2:
            s.unscale_(o)
            m.nn.utils.clip_grad_norm_(n.parameters(), 0.5)
        s.step(o)
        s.update()
        log.append([s.get_scale(), [p.detach().clone() for p in n.parameters()]])
    state = s.state_dict()
    t = m.amp.GradScaler("cpu")
    t.load_state_dict(state)
    return [log, state, t.get_scale(), t.state_dict()]


PROGRAMS = {"types": _types, "trained": _trained, "decorated": _decorated, "function": _function,
            "scaled": _scaled}
# Products of bfloat16 numbers are summed in another order.
LOOSE = {"trained": {"rtol": 2e-2, "atol": 2e-3}}


@pytest.mark.parametrize("name", PROGRAMS)
def test_same(name):
    check(PROGRAMS[name], **LOOSE.get(name, {}))


def _ready(m):
    p = m.nn.Parameter(m.ones(2))
    o = m.optim.SGD([p], lr=0.1)
    s = m.amp.GradScaler("cpu")
    s.scale(p.sum()).backward()
    return p, o, s


def _twice(m, first, second):
    _, o, s = _ready(m)
    getattr(s, first)(o)
    getattr(s, second)(o)


ERRORS = {
    "no_device": ("RuntimeError", lambda m: m.autocast("toaster")),
    "unscaled_twice": ("RuntimeError", lambda m: _twice(m, "unscale_", "unscale_")),
    "stepped_twice": ("RuntimeError", lambda m: _twice(m, "step", "step")),
    "unscale_after_step": ("RuntimeError", lambda m: _twice(m, "step", "unscale_")),
    "update_first": ("AssertionError", lambda m: m.amp.GradScaler("cpu").update()),
    "half": ("ValueError", lambda m: (lambda p, s: (
        setattr(p, "grad", m.ones(1, dtype=m.float16)), s.scale(m.ones(1)),
        s.step(m.optim.SGD([p], lr=0.1))))(m.nn.Parameter(m.ones(1, dtype=m.float16)),
                                           m.amp.GradScaler("cpu"))),
    "closure": ("RuntimeError",
                lambda m: (lambda p, o, s: s.step(o, closure=lambda: 1))(*_ready(m))),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    check(ERRORS[name][1], error=ERRORS[name][0])


def test_weights_are_cast_once():
    """Within a region a leaf that needs gradients is cast once, and not kept after it."""
    w = lehr.nn.Parameter(lehr.ones(3, 3))
    x = lehr.ones(2, 3)
    with lehr.autocast("cpu"):
        x @ w
        casts = _casts()
        assert len(casts) == 1
        first = next(iter(casts.values()))[0]
        x @ w
        assert len(casts) == 1 and next(iter(casts.values()))[0] is first
        with lehr.no_grad():
            w.add_(1.0)
        assert float((x @ w)[0, 0]) == 6.0
        w.data = w.data + 1     # seed 16000949: a version of its own, which may be that of before
        w.data = w.data - 2
        assert float((x @ w)[0, 0]) == 3.0
    assert not casts


def _assigned(w):
    w.data = w.data + 1


WRITES = {
    "assigned": _assigned, "data": lambda w: w.data.add_(1),
    "detached": lambda w: w.detach().add_(1),
    "numpy": lambda w: np.add(v := w.detach().numpy(), 1, out=v),
    "in place": lambda w: lehr.no_grad()(w.add_)(1)}


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("backend", ["eager mode", "aot_eager", "inductor"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_weights_that_a_region_writes_are_cast_again(write, backend, own):
    """Also those that it made itself, seed 16000949."""
    def f(x, w):
        with lehr.autocast("cpu", lehr.bfloat16):
            if own:
                w = lehr.ones(2, 3, requires_grad=True)
            before = lehr.nn.functional.linear(x, w)
            write(w)
            return before, lehr.nn.functional.linear(x, w)
    run = f if backend == "eager mode" else lehr.compile(f, backend=backend)
    for _ in range(2):
        w = lehr.ones(2, 3, requires_grad=True)
        made = run(lehr.tensor([[1.0, 2.0, 3.0]]), w)
        assert [t.tolist() for t in made] == [[[6.0, 6.0]], [[12.0, 12.0]]]


def _casts():
    from lehr.tensor.state import STATE
    return STATE.autocast.casts


def test_skipped_steps_are_counted():
    p, o, s = _ready(lehr)
    p.grad.fill_(float("nan"))
    before = p.detach().clone()
    assert s.step(o) is None and s.skipped == 1
    assert (p == before).all()


def test_disabled_scaler_only_steps():
    p = lehr.nn.Parameter(lehr.ones(2))
    o = lehr.optim.SGD([p], lr=1.0)
    s = lehr.amp.GradScaler("cpu", enabled=False)
    p.grad = lehr.ones(2)
    assert s.scale(3.0) == 3.0
    s.unscale_(o)
    s.step(o)
    s.update()
    assert p.tolist() == [0.0, 0.0] and s.state_dict() == {}


def test_a_scale_below_one_is_told() -> None:
    """pytorch/pytorch#99640: steps skipped for ever look like training."""
    p = lehr.nn.Parameter(lehr.ones(2))
    optimizer = lehr.optim.SGD([p], lr=0.1)
    scaler = lehr.amp.GradScaler("cpu", init_scale=2.0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(3):
            scaler.scale((p * float("inf")).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert [str(w.message) for w in said] == [
        "GradScaler: 2 steps were skipped, and the factor has come down to 0.5; gradients are "
        "infinite or NaN whatever it is"]
    assert scaler.skipped == 3 and scaler.get_scale() == 0.25
