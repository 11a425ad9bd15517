"""Optimizers and schedules: trajectories, state and errors as torch's."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import lehr
from tests.nn.both import check, numbers

CASES = {
    "SGD": [{}, {"momentum": 0.9, "dampening": 0.2}, {"momentum": 0.9, "nesterov": True},
            {"weight_decay": 0.1, "maximize": True}],
    "Adam": [{}, {"amsgrad": True, "weight_decay": 0.1}, {"decoupled_weight_decay": True,
                                                          "weight_decay": 0.1}],
    "AdamW": [{}, {"amsgrad": True}, {"maximize": True, "betas": (0.8, 0.9), "eps": 1e-4}],
    "NAdam": [{}, {"weight_decay": 0.1, "decoupled_weight_decay": True}],
    "RAdam": [{}, {"weight_decay": 0.1}], "Adamax": [{}, {"weight_decay": 0.1}],
    "Adadelta": [{}, {"weight_decay": 0.1}], "Adagrad": [{}, {"lr_decay": 0.1}],
    "RMSprop": [{}, {"momentum": 0.9, "centered": True}], "Rprop": [{}, {"etas": (0.4, 1.5)}],
    "ASGD": [{}, {"t0": 2, "weight_decay": 0.1}], "Adafactor": [{}, {"weight_decay": 0.1}],
    "LBFGS": [{"max_iter": 3}, {"max_iter": 3, "line_search_fn": "strong_wolfe"}],
}


def trained(m, name, dtype, steps=8, **kw):
    """Parameters along a least-squares fit, and the state at the end."""
    ps = [m.nn.Parameter(numbers(m, *s, seed=i, dtype=dtype)) for i, s in enumerate(((4, 3), (4,)))]
    x, y = numbers(m, 6, 3, seed=7, dtype=dtype), numbers(m, 6, 4, seed=8, dtype=dtype)
    o = getattr(m.optim, name)(ps, **kw)

    def closure():
        o.zero_grad()
        loss = ((m.tanh(x @ ps[0].t() + ps[1]) - y) ** 2).mean()
        loss.backward()
        return loss
    trail = []
    for _ in range(steps):
        o.step(closure)
        trail.append([p.detach().clone() for p in ps])
    state = o.state_dict()
    keys = [sorted(s) for s in state["state"].values()]
    step = [str(s["step"].dtype) for s in state["state"].values() if "step" in s]
    groups = [{k: v for k, v in g.items() if not isinstance(v, m.Tensor)}
              for g in state["param_groups"]]
    return [trail, keys, step, groups, repr(o)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_trajectories(name, dtype):
    # Rounding grows fast along LBFGS's steps.
    steps = 1 if name == "LBFGS" and dtype == "float32" else 8
    for kw in CASES[name]:
        check(lambda m, kw=kw: trained(m, name, dtype, steps, **kw), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_half_precision_and_layouts(name):
    """Parameters that the in-place kernels do not take go through the op's parts."""
    def run(p, g):
        o = getattr(lehr.optim, name)([p], lr=0.1, **({"momentum": 0.9} if name == "SGD" else {}))
        for _ in range(3):
            p.grad = g
            o.step()
        return p.detach().float().numpy()
    w, g = numbers(lehr, 6, 4), numbers(lehr, 6, 4, seed=3)
    want = run(lehr.nn.Parameter(w.clone()), g)
    strided = lehr.nn.Parameter(lehr.zeros(6, 8)[:, ::2])
    strided.data.copy_(w)
    np.testing.assert_allclose(run(strided, g), want, rtol=1e-6, atol=1e-7)
    turned = lehr.nn.Parameter(w.t().contiguous().t())
    np.testing.assert_allclose(run(turned, g), want, rtol=1e-6, atol=1e-7)
    half = lehr.nn.Parameter(w.to(lehr.bfloat16))
    np.testing.assert_allclose(run(half, g.to(lehr.bfloat16)), want, rtol=5e-2, atol=5e-2)
    scalar = lehr.nn.Parameter(lehr.tensor(2.0))
    assert run(scalar, lehr.tensor(1.0)).shape == ()


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_eager_kernel_and_parts_agree(name):
    """With recording on the op's parts run; their results are the kernel's."""
    kw = {"momentum": 0.9} if name == "SGD" else {}

    def run(differentiable):
        p = numbers(lehr, 5, 3).requires_grad_()
        p = p * 1.0 if differentiable else lehr.nn.Parameter(p.detach())
        if differentiable:
            p.retain_grad()
        o = getattr(lehr.optim, name)([p], lr=0.1, differentiable=differentiable, **kw)
        for i in range(3):
            p.grad = numbers(lehr, 5, 3, seed=i + 1)
            o.step()
        return p.detach().numpy()
    np.testing.assert_allclose(run(True), run(False), rtol=2e-6, atol=1e-7)


def test_complex_parameters():
    def program(m):
        p = m.nn.Parameter(m.complex(numbers(m, 3), numbers(m, 3, seed=1)))
        o = m.optim.Adam([p], lr=0.1)
        for i in range(3):
            p.grad = m.complex(numbers(m, 3, seed=i), numbers(m, 3, seed=i + 5))
            o.step()
        return m.view_as_real(p.detach())
    check(program)


def test_tensor_rates():
    def program(m):
        p = m.nn.Parameter(numbers(m, 3))
        lr = m.tensor(0.1)
        o = m.optim.AdamW([p], lr=lr)
        s = m.optim.lr_scheduler.StepLR(o, 1, 0.5)
        for i in range(3):
            p.grad = numbers(m, 3, seed=i)
            o.step()
            s.step()
        return [p.detach(), o.param_groups[0]["lr"]]
    check(program)


def _groups(m):
    a, b, c = (m.nn.Parameter(numbers(m, 2, seed=i)) for i in range(3))
    o = m.optim.SGD([{"params": [a], "lr": 0.5}, {"params": b}], lr=0.1, momentum=0.9)
    o.add_param_group({"params": [c], "weight_decay": 0.1})
    for p in (a, b, c):
        p.grad = m.ones(2)
    o.step()
    return [[p.detach() for p in (a, b, c)], repr(o), o.state_dict()["param_groups"],
            [sorted(map(str, s)) for s in o.state_dict()["state"].values()]]


def _named(m):
    n = m.nn.Linear(2, 2)
    o = m.optim.Adam(n.named_parameters())
    return o.state_dict()["param_groups"][0]["param_names"]


def _hooks(m):
    p, log = m.nn.Parameter(m.ones(1)), []
    o = m.optim.SGD([p], lr=0.1)
    o.register_step_pre_hook(lambda o, a, k: log.append("pre"))
    h = o.register_step_post_hook(lambda o, a, k: log.append("post"))
    o.register_state_dict_post_hook(lambda o, d: {**d, "more": 1})
    o.register_load_state_dict_pre_hook(lambda o, d: log.append(sorted(d)))
    p.grad = m.ones(1)
    o.step()
    h.remove()
    o.step()
    o.load_state_dict(o.state_dict())
    return log


def _reload(m):
    def fresh():
        p = m.nn.Parameter(numbers(m, 3))
        return p, m.optim.AdamW([p], lr=0.1)
    p, o = fresh()
    for i in range(3):
        p.grad = numbers(m, 3, seed=i)
        o.step()
    q, r = fresh()
    with m.no_grad():
        q.copy_(p)
    r.load_state_dict(copy.deepcopy(o.state_dict()))
    for x, y in ((p, o), (q, r)):
        x.grad = numbers(m, 3, seed=9)
        y.step()
    half = m.nn.Parameter(numbers(m, 3).to(m.bfloat16))
    h = m.optim.AdamW([half])
    h.load_state_dict(o.state_dict())
    kept = h.state_dict()["state"][0]
    return [p.detach(), q.detach(), str(kept["exp_avg"].dtype), str(kept["step"].dtype)]


PROGRAMS = {"groups": _groups, "named": _named, "hooks": _hooks, "reload": _reload}


@pytest.mark.parametrize("name", PROGRAMS)
def test_same(name):
    check(PROGRAMS[name])


ERRORS = {
    "empty": ("ValueError", lambda m: m.optim.SGD([], lr=0.1)),
    "tensor": ("TypeError", lambda m: m.optim.SGD(m.ones(2), lr=0.1)),
    "rate": ("ValueError", lambda m: m.optim.Adam([m.nn.Parameter(m.ones(1))], lr=-1.0)),
    "beta": ("ValueError", lambda m: m.optim.Adam([m.nn.Parameter(m.ones(1))], betas=(1.0, 0.9))),
    "nesterov": ("ValueError", lambda m: m.optim.SGD([m.nn.Parameter(m.ones(1))], nesterov=True)),
    "leaf": ("ValueError", lambda m: m.optim.SGD([m.nn.Parameter(m.ones(1)) * 2], lr=0.1)),
    "twice": ("ValueError", lambda m: (lambda p: m.optim.SGD(
        [{"params": [p]}, {"params": [p]}], lr=0.1))(m.nn.Parameter(m.ones(1)))),
    "set": ("TypeError", lambda m: m.optim.SGD([{"params": {m.nn.Parameter(m.ones(1))}}], lr=0.1)),
    "sizes": ("ValueError", lambda m: m.optim.SGD([m.nn.Parameter(m.ones(1))], lr=0.1)
              .load_state_dict(m.optim.SGD([m.nn.Parameter(m.ones(1))] * 1 +
                                           [m.nn.Parameter(m.ones(1))], lr=0.1).state_dict())),
    "muon": ("ValueError", lambda m: m.optim.Muon([m.nn.Parameter(m.ones(1))])),
    "schedule": ("TypeError", lambda m: m.optim.lr_scheduler.StepLR(3, 1)),
    "cycle": ("ValueError", lambda m: m.optim.lr_scheduler.OneCycleLR(
        m.optim.SGD([m.nn.Parameter(m.ones(1))], lr=0.1), 0.1)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    check(ERRORS[name][1], error=ERRORS[name][0])


def _rates(m, make):
    ps = [m.nn.Parameter(m.ones(1)), m.nn.Parameter(m.ones(1))]
    o = m.optim.SGD([{"params": ps[:1]}, {"params": ps[1:], "lr": 0.02}], lr=0.1, momentum=0.9)
    s = make(m.optim.lr_scheduler, o)
    out = []
    for i in range(14):
        o.step()
        if isinstance(s, m.optim.lr_scheduler.ReduceLROnPlateau):
            s.step([1.0, 0.9, 0.95, 0.95, 0.95, 0.5, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6][i])
        else:
            s.step()
        out.append([g["lr"] for g in o.param_groups] + [g["momentum"] for g in o.param_groups]
                   + list(s.get_last_lr()))
    return [out, sorted(k for k in s.state_dict() if k[0] != "_")]


SCHEDULES = {
    "step": lambda s, o: s.StepLR(o, 3), "multi": lambda s, o: s.MultiStepLR(o, [2, 5, 5]),
    "constant": lambda s, o: s.ConstantLR(o), "linear": lambda s, o: s.LinearLR(o, 0.1),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.9),
    "polynomial": lambda s, o: s.PolynomialLR(o, 10, 2.0),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 5, 0.001),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2),
    "lambda": lambda s, o: s.LambdaLR(o, [lambda e: 0.9 ** e, lambda e: 1 / (e + 1)]),
    "factor": lambda s, o: s.MultiplicativeLR(o, lambda e: 0.9),
    "cycle": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 3, mode="triangular2"),
    "one": lambda s, o: s.OneCycleLR(o, 0.2, total_steps=20, three_phase=True),
    "plateau": lambda s, o: s.ReduceLROnPlateau(o, patience=1, cooldown=1),
    "sequence": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, total_iters=4), s.ExponentialLR(o, 0.9), s.ConstantLR(o)], [4, 8]),
    "chain": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 3), s.ExponentialLR(o, 0.9)]),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name):
    check(lambda m: _rates(m, SCHEDULES[name]), rtol=1e-9, atol=1e-12)


def test_schedules_come_back():
    for name, make in SCHEDULES.items():
        if name in ("lambda", "factor"):
            continue
        s, other = (make(lehr.optim.lr_scheduler, lehr.optim.SGD(
            [lehr.nn.Parameter(lehr.ones(1))], lr=0.1, momentum=0.9)) for _ in range(2))
        for _ in range(4):
            s.optimizer.step()
            s.step(*((1.0,) if name == "plateau" else ()))
        other.load_state_dict(pickle.loads(pickle.dumps(s.state_dict())))
        for g, h in zip(other.optimizer.param_groups, s.optimizer.param_groups, strict=True):
            g.update({k: v for k, v in h.items() if k != "params"})
        for _ in range(4):
            for each in (s, other):
                each.optimizer.step()
                each.step(*((1.0,) if name == "plateau" else ()))
            assert s.get_last_lr() == other.get_last_lr(), name


def test_order_of_steps_is_checked():
    o = lehr.optim.SGD([lehr.nn.Parameter(lehr.ones(1))], lr=0.1)
    s = lehr.optim.lr_scheduler.StepLR(o, 1)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        s.step()
    o = lehr.optim.SGD([lehr.nn.Parameter(lehr.ones(1))], lr=0.1)
    s = lehr.optim.lr_scheduler.StepLR(o, 1)
    o.step()
    s.step()


def _averaged(m, **kw):
    n = m.nn.Sequential(m.nn.Linear(2, 2), m.nn.BatchNorm1d(2))
    with m.no_grad():
        for i, p in enumerate(n.parameters()):
            p.copy_(numbers(m, *p.shape, seed=i))
    u = m.optim.swa_utils
    a = u.AveragedModel(n, **{k: f(u) for k, f in kw.items()})
    for i in range(4):
        with m.no_grad():
            for p in n.parameters():
                p.add_(i + 1.0)
        a.update_parameters(n)
    u.update_bn([numbers(m, 5, 2, seed=s) for s in range(3)], a)
    return [dict(a.state_dict()), a.eval()(numbers(m, 2, 2))]


@pytest.mark.parametrize("kw", [{}, {"avg_fn": lambda u: u.get_ema_avg_fn(0.9)},
                                {"multi_avg_fn": lambda u: u.get_ema_multi_avg_fn(0.9),
                                 "use_buffers": lambda u: True}])
def test_averages(kw):
    check(lambda m: _averaged(m, **kw), rtol=1e-4)


def test_swa_rates():
    def program(m):
        o = m.optim.SGD([m.nn.Parameter(m.ones(1))], lr=0.1)
        s = m.optim.swa_utils.SWALR(o, 0.05, anneal_epochs=4)
        out = []
        for _ in range(7):
            o.step()
            s.step()
            out.append(o.param_groups[0]["lr"])
        return out
    check(program)


def test_muon_makes_momentum_orthogonal():
    p = lehr.nn.Parameter(lehr.zeros(6, 4))
    o = lehr.optim.Muon([p], lr=1.0, weight_decay=0.0, ns_steps=8)
    p.grad = numbers(lehr, 6, 4)
    o.step()
    top = np.linalg.svd(p.detach().numpy())[1] / np.sqrt(6 / 4)
    assert top.max() < 1.3 and top.min() > 0.6
