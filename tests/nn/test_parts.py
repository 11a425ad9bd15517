"""nn.utils, nn.init and packed sequences; the same under torch."""

from __future__ import annotations

import math

import numpy as np
import pytest

import lehr
from tests.nn.both import check, filled, numbers


def trained(m):
    n = filled(m.nn.Linear(3, 2), m)
    n(numbers(m, 4, 3)).pow(2).sum().backward()
    return n


def _fuse(m, conv, bn, shape):
    n = [filled(conv, m).eval(), filled(bn, m).eval()]
    with m.no_grad():
        n[1].running_mean.copy_(numbers(m, *n[1].running_mean.shape, seed=9))
        n[1].running_var.copy_(numbers(m, *n[1].running_mean.shape, seed=8).abs() + 0.5)
    x = numbers(m, *shape)
    fuse = m.nn.utils.fusion.fuse_linear_bn_eval if len(
        shape) == 2 else m.nn.utils.fusion.fuse_conv_bn_eval
    made = fuse(*n, **({"transpose": True} if "Transpose" in type(conv).__name__ else {}))
    return [made(x), n[1](n[0](x)), type(made).__name__]


def _parametrized(m):
    class Double(m.nn.Module):
        def forward(self, x):
            return x * 2

        def right_inverse(self, x):
            return x / 2

    class Symmetric(m.nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).transpose(-1, -2)
    n = filled(m.nn.Linear(3, 3), m)
    p = m.nn.utils.parametrize
    p.register_parametrization(n, "weight", Symmetric())
    p.register_parametrization(n, "weight", Double())
    out = [n.weight, list(n.state_dict()), type(n).__name__, p.is_parametrized(n), repr(n)]
    n(numbers(m, 2, 3)).sum().backward()
    out.append(n.parametrizations.weight.original.grad)
    with p.cached():
        out.append(n.weight is n.weight)
    p.remove_parametrizations(n, "weight")
    return [*out, n.weight, type(n).__name__, list(n.state_dict())]


def _weight_norm(m, new):
    n = filled(m.nn.Conv1d(2, 3, 2), m)
    u = m.nn.utils
    (u.parametrizations.weight_norm if new else u.weight_norm)(n)
    out = [list(n.state_dict()), n(numbers(m, 1, 2, 5))]
    n(numbers(m, 1, 2, 5)).sum().backward()
    out.append([p.grad for p in n.parameters()])
    if new:
        u.parametrize.remove_parametrizations(n, "weight")
    else:
        u.remove_weight_norm(n)
    return [*out, list(n.state_dict()), n(numbers(m, 1, 2, 5))]


def _spectral(m, new):
    n = filled(m.nn.Linear(4, 3), m)
    u = m.nn.utils
    (u.parametrizations.spectral_norm if new else u.spectral_norm)(n)
    names = list(n.state_dict())
    for _ in range(200):
        n(numbers(m, 1, 4))
    top = np.linalg.svd(np.array(n.weight.detach().tolist()))[1][0]
    return [names, round(float(top), 3)]


def _packed(m, **kw):
    r = m.nn.utils.rnn
    p = r.pack_padded_sequence(numbers(m, 4, 3, 2), m.tensor([4, 2, 1]), **kw)
    q = r.pack_padded_sequence(numbers(m, 3, 4, 2), [1, 4, 2], batch_first=True,
                               enforce_sorted=False)
    return [list(p), list(q), r.pad_packed_sequence(p), r.pad_packed_sequence(q, True, -1.0, 5),
            r.pad_sequence([m.ones(2), m.zeros(3)], True, 7.0),
            r.pad_sequence([m.ones(2), m.zeros(3)], padding_side="left"),
            list(r.pack_sequence([m.ones(3), m.zeros(1)])),
            r.unpack_sequence(r.pack_sequence([m.ones(3, 2), m.zeros(1, 2)]))]


def _rnn_packed(m, kind, **kw):
    n = filled(getattr(m.nn, kind)(2, 3, **kw), m)
    p = m.nn.utils.rnn.pack_sequence([numbers(m, k, 2, seed=k) for k in (2, 4, 1)],
                                     enforce_sorted=False)
    out, h = n(p)
    out.data.sum().backward()
    return [list(out), h, [w.grad for w in n.parameters()]]


def _functional(m):
    n = filled(m.nn.Sequential(m.nn.Linear(2, 2), m.nn.BatchNorm1d(2)), m)
    given = {"0.weight": m.ones(2, 2), "1.running_mean": m.ones(2)}
    return [m.func.functional_call(n, given, (numbers(m, 3, 2),)), dict(n.state_dict()),
            m.func.functional_call(n.eval(), given, (numbers(m, 3, 2),))]


def _prefix(m):
    state = {"module.a": 1, "b": 2}
    m.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    return list(state)


PROGRAMS = {
    "clip_norm": lambda m: (lambda n: (m.nn.utils.clip_grad_norm_(n.parameters(), 1.0),
                                       [p.grad for p in n.parameters()]))(trained(m)),
    "clip_norm_inf": lambda m: (lambda n: (m.nn.utils.clip_grad_norm_(n.parameters(), 0.1,
                                                                      math.inf),
                                           [p.grad for p in n.parameters()]))(trained(m)),
    "clip_norm_one": lambda m: (lambda n: (m.nn.utils.clip_grad_norm_(n.weight, 1e6, 1),
                                           [p.grad for p in n.parameters()]))(trained(m)),
    "clip_none": lambda m: m.nn.utils.clip_grad_norm_([m.nn.Parameter(m.ones(1))], 1.0),
    "clip_value": lambda m: (lambda n: (m.nn.utils.clip_grad_value_(n.parameters(), 0.5),
                                        [p.grad for p in n.parameters()]))(trained(m))[1],
    "vector": lambda m: (lambda n, v: (m.nn.utils.vector_to_parameters(v, n.parameters()),
                                       list(n.parameters()),
                                       m.nn.utils.parameters_to_vector(n.parameters())))(
        m.nn.Linear(2, 2), numbers(m, 6))[1:],
    "fuse_conv": lambda m: _fuse(m, m.nn.Conv2d(2, 3, 2), m.nn.BatchNorm2d(3), (1, 2, 4, 4)),
    "fuse_transposed": lambda m: _fuse(m, m.nn.ConvTranspose2d(2, 3, 2, bias=False),
                                       m.nn.BatchNorm2d(3), (1, 2, 4, 4)),
    "fuse_linear": lambda m: _fuse(m, m.nn.Linear(2, 3), m.nn.BatchNorm1d(3), (5, 2)),
    "parametrize": _parametrized,
    "weight_norm": lambda m: _weight_norm(m, False),
    "weight_norm_new": lambda m: _weight_norm(m, True),
    "spectral_norm": lambda m: _spectral(m, False),
    "spectral_norm_new": lambda m: _spectral(m, True),
    "packed": _packed,
    "lstm_packed": lambda m: _rnn_packed(m, "LSTM", num_layers=2, bidirectional=True, proj_size=2),
    "gru_packed": lambda m: _rnn_packed(m, "GRU", bidirectional=True),
    "rnn_packed": lambda m: _rnn_packed(m, "RNN", nonlinearity="relu", bias=False),
    "functional_call": _functional,
    "skip_init": lambda m: m.nn.utils.skip_init(m.nn.Linear, 2, 3).weight.shape,
    "gains": lambda m: [m.nn.init.calculate_gain(k, p) for k, p in (
        ("linear", None), ("tanh", None), ("relu", None), ("leaky_relu", 0.2), ("selu", None))],
    "dirac": lambda m: m.nn.init.dirac_(m.empty(4, 2, 3), 2),
    "eye": lambda m: m.nn.init.eye_(m.empty(3, 2)),
    "prefix": lambda m: _prefix(m),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_same(name):
    check(PROGRAMS[name])


ERRORS = {
    "nonfinite": ("RuntimeError", lambda m: (lambda p: (setattr(p, "grad", m.full((1,), math.inf)),
                                                        m.nn.utils.clip_grad_norm_(
                                                            p, 1.0, error_if_nonfinite=True)))(
        m.nn.Parameter(m.ones(1)))),
    "fan": ("ValueError", lambda m: m.nn.init.kaiming_uniform_(m.empty(2))),
    "gain": ("ValueError", lambda m: m.nn.init.calculate_gain("swish")),
    "unsorted": ("RuntimeError", lambda m: m.nn.utils.rnn.pack_sequence([m.ones(1), m.ones(2)])),
    "no_parameter": ("ValueError", lambda m: m.nn.utils.parametrize.register_parametrization(
        m.nn.Linear(2, 2), "w", m.nn.Identity())),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    check(ERRORS[name][1], error=ERRORS[name][0])


STD = {  # what the moments of 40,000 values must be
    "xavier_normal_": (0.0, math.sqrt(2 / 400)), "xavier_uniform_": (0.0, math.sqrt(2 / 400)),
    "kaiming_normal_": (0.0, math.sqrt(2 / 200)), "kaiming_uniform_": (0.0, math.sqrt(2 / 200)),
    "normal_": (0.0, 1.0), "uniform_": (0.5, math.sqrt(1 / 12)), "trunc_normal_": (0.0, 0.8796)}


@pytest.mark.parametrize("name", STD)
def test_init_moments(name):
    lehr.manual_seed(0)
    t = getattr(lehr.nn.init, name)(lehr.empty(200, 200))
    mean, std = STD[name]
    assert abs(float(t.mean()) - mean) < 0.03
    assert float(t.std()) == pytest.approx(std, rel=0.03)
    if name == "trunc_normal_":
        assert float(t.abs().max()) <= 2.0


def test_init_orthogonal_and_sparse():
    lehr.manual_seed(0)
    for shape in ((4, 6), (6, 4), (3, 2, 2)):
        q = lehr.nn.init.orthogonal_(lehr.empty(*shape), gain=2.0).reshape(shape[0], -1).numpy()
        small = q @ q.T if q.shape[0] <= q.shape[1] else q.T @ q
        np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-5)
    s = lehr.nn.init.sparse_(lehr.empty(10, 8), 0.3).numpy()
    assert ((s == 0).sum(0) == 3).all()


@pytest.mark.parametrize("kind", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5)])
def test_orthogonal_parametrization(kind, shape):
    lehr.manual_seed(0)
    n = lehr.nn.utils.parametrizations.orthogonal(lehr.nn.Linear(shape[1], shape[0]),
                                                  orthogonal_map=kind)
    for _ in range(2):
        w = n.weight.detach().numpy()
        small = w @ w.T if shape[0] <= shape[1] else w.T @ w
        np.testing.assert_allclose(small, np.eye(min(shape)), atol=2e-5)
        n(lehr.randn(4, shape[1])).pow(2).sum().backward()
        lehr.optim.SGD(n.parameters(), lr=0.1).step()
    if kind != "householder":
        q = lehr.nn.init.orthogonal_(lehr.empty(*shape))
        n.weight = q
        np.testing.assert_allclose(n.weight.detach().numpy(), q.numpy(), atol=1e-5)
