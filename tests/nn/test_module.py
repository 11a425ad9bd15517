"""`Module`: attributes, registries, state, hooks, copies, text; the same under torch."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections import OrderedDict

import pytest

import lehr
from tests.nn.both import check, filled, numbers


def model(mod, **kw):
    class Block(mod.nn.Module):
        def __init__(self, n):
            super().__init__()
            self.lin = mod.nn.Linear(n, n)
            self.register_buffer("scale", mod.ones(n))
            self.register_buffer("temp", mod.zeros(1), persistent=False)

        def forward(self, x):
            return self.lin(x) * self.scale

    class Net(mod.nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = mod.nn.ModuleList([Block(3), Block(3)])
            self.head = mod.nn.Sequential(mod.nn.Linear(3, 2), mod.nn.ReLU())
            self.names = mod.nn.ModuleDict({"a": mod.nn.Linear(2, 2), "b": mod.nn.Identity()})
            self.bias = mod.nn.Parameter(mod.zeros(2))
            self.tied = self.head[0]

        def forward(self, x):
            for b in self.blocks:
                x = b(x)
            return self.names["a"](self.head(x)) + self.bias
    return filled(Net(), mod)


PROGRAMS = {
    "names": lambda m: ([n for n, _ in model(m).named_parameters()],
                        [n for n, _ in model(m).named_parameters(remove_duplicate=False)],
                        [n for n, _ in model(m).named_buffers()],
                        [n for n, _ in model(m).named_modules()],
                        [n for n, _ in model(m).named_children()],
                        [n for n, _ in model(m).named_modules(remove_duplicate=False)],
                        [n for n, _ in model(m).named_parameters(recurse=False, prefix="x")]),
    "state": lambda m: dict(model(m).state_dict()),
    "metadata": lambda m: dict(model(m).state_dict()._metadata),
    "prefix": lambda m: list(model(m).state_dict(prefix="p.")),
    "repr": lambda m: repr(model(m)),
    "same_repr": lambda m: repr(m.nn.ModuleList([m.nn.Linear(2, 2), m.nn.Linear(2, 2),
                                                 m.nn.ReLU()])),
    "forward": lambda m: model(m)(numbers(m, 4, 3)),
    "train": lambda m: [x.training for x in model(m).eval().modules()],
    "apply": lambda m: (lambda seen: (model(m).apply(lambda x: seen.append(type(x).__name__)),
                                      seen)[1])([]),
    "submodule": lambda m: [repr(model(m).get_submodule(p)) for p in ("blocks.0.lin", "head.1")],
    "parameter": lambda m: [model(m).get_parameter("head.0.weight"),
                            model(m).get_buffer("blocks.1.scale")],
    "requires": lambda m: [p.requires_grad for p in model(m).requires_grad_(False).parameters()],
    "load": lambda m: repr(model(m).load_state_dict(model(m).state_dict())),
    "loose": lambda m: tuple(model(m).load_state_dict({"bias": m.ones(2), "zz": m.ones(1)},
                                                      strict=False)),
    "assign": lambda m: (lambda n, v: (n.load_state_dict({"weight": v}, assign=True),
                                       n.weight.data_ptr() == v.data_ptr(),
                                       type(n.weight).__name__))(m.nn.Linear(2, 2, bias=False),
                                                                 m.ones(2, 2))[1:],
    "dir": lambda m: all(k in dir(model(m)) for k in ("blocks", "bias", "forward", "training")),
    "vars": lambda m: sorted(k for k in vars(m.nn.Linear(2, 2)) if k != "_compiled_call_impl"),
    "double": lambda m: [str(p.dtype) for p in model(m).double().state_dict().values()],
    "to": lambda m: [str(p.dtype) for p in model(m).to(m.bfloat16).parameters()],
    "buffer_class": lambda m: (lambda n: (setattr(n, "b", m.nn.Buffer(m.ones(2), persistent=False)),
                                          [k for k, _ in n.named_buffers()], list(n.state_dict())))(
        m.nn.Module())[1:],
    "sequential": lambda m: _sequential(m),
    "lists": lambda m: _lists(m),
    "dicts": lambda m: _dicts(m),
    "parameters": lambda m: _parameters(m),
    "zero_grad": lambda m: _zero_grad(m),
    "deepcopy": lambda m: _deepcopy(m),
    "delete": lambda m: _delete(m),
    "extra": lambda m: _extra(m),
}


def _sequential(m):
    s = m.nn.Sequential(OrderedDict([("a", m.nn.Linear(2, 2)), ("b", m.nn.ReLU())]))
    t = m.nn.Sequential(m.nn.ReLU(), m.nn.Tanh(), m.nn.Sigmoid())
    out = [repr(s), repr(s[1:]), repr(t[-1]), len(t), [type(x).__name__ for x in t]]
    t[0] = m.nn.GELU()
    del t[1]
    t.append(m.nn.Identity())
    t.insert(1, m.nn.ELU())
    out += [repr(t), repr(t + s), repr(t * 2), repr(t.pop(0)), repr(t),
            repr(t.extend([m.nn.ReLU()]))]
    t += s
    return [*out, repr(t)]


def _lists(m):
    t = m.nn.ModuleList([m.nn.ReLU(), m.nn.Tanh()])
    t.append(m.nn.GELU())
    t.insert(0, m.nn.ELU())
    t.extend([m.nn.Identity()])
    t[1] = m.nn.Sigmoid()
    out = [repr(t), repr(t[1:3]), repr(t[-1]), len(t), repr(t.pop(1)),
           repr(t.__add__([m.nn.ReLU()]))]
    del t[0]
    return [*out, repr(t)]


def _dicts(m):
    d = m.nn.ModuleDict([("x", m.nn.ReLU()), ("y", m.nn.Tanh())])
    d["z"] = m.nn.GELU()
    d.update({"w": m.nn.ELU()})
    out = [repr(d), list(d), "x" in d, repr(d.pop("x")), len(d), [k for k, _ in d.items()]]
    d.clear()
    return [*out, len(d)]


def _parameters(m):
    p = m.nn.ParameterList([m.nn.Parameter(m.ones(2)), m.ones(3)])
    p.append(m.zeros(1))
    q = m.nn.ParameterDict({"b": m.nn.Parameter(m.ones(2)), "a": m.zeros(3)})
    q["c"] = m.ones(1)
    return [repr(p), repr(q), list(p.state_dict()), list(q.state_dict()), len(p), list(q.keys()),
            [type(x).__name__ for x in p], repr(m.nn.Parameter(m.ones(2)))]


def _zero_grad(m):
    n = model(m)
    n(numbers(m, 4, 3)).sum().backward()
    grads = [p.grad.clone() for p in n.parameters()]
    n.zero_grad(set_to_none=False)
    zeros = [float(p.grad.abs().sum()) for p in n.parameters()]
    n.zero_grad()
    return grads, zeros, [p.grad is None for p in n.parameters()]


def _deepcopy(m):
    n = model(m)
    c = copy.deepcopy(n)
    with m.no_grad():
        n.bias.fill_(7.0)
    return [c.bias, c.tied is c.head[0], c.bias is n.bias, dict(c.state_dict())]


def _delete(m):
    n = model(m)
    del n.bias
    del n.blocks[0].scale
    del n.names
    n.head = None
    return [list(n.state_dict()), [k for k, _ in n.named_children()]]


def _extra(m):
    class Keeper(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = 1

        def get_extra_state(self):
            return {"seen": self.seen}

        def set_extra_state(self, state):
            self.seen = state["seen"]
    a, b = m.nn.Sequential(Keeper()), m.nn.Sequential(Keeper())
    a[0].seen = 5
    b.load_state_dict(a.state_dict())
    return [b[0].seen, list(a.state_dict())]


@pytest.mark.parametrize("name", PROGRAMS)
def test_same(name):
    check(PROGRAMS[name])


ERRORS = {
    "early_parameter": ("AttributeError", lambda m: type("E", (m.nn.Module,), {
        "__init__": lambda s: setattr(s, "w", m.nn.Parameter(m.ones(1)))})()),
    "early_module": ("AttributeError", lambda m: type("E", (m.nn.Module,), {
        "__init__": lambda s: setattr(s, "w", m.nn.ReLU())})()),
    "not_a_parameter": ("TypeError", lambda m: setattr(m.nn.Linear(2, 2), "weight", m.ones(2, 2))),
    "not_a_module": ("TypeError", lambda m: setattr(model(m), "head", 3)),
    "not_a_buffer": ("TypeError", lambda m: setattr(model(m).blocks[0], "scale", 3)),
    "dot": ("KeyError", lambda m: m.nn.Module().register_buffer("a.b", m.ones(1))),
    "taken": ("KeyError", lambda m: m.nn.Linear(2, 2).register_buffer("forward", m.ones(1))),
    "missing": ("AttributeError", lambda m: m.nn.Linear(2, 2).nothing),
    "no_forward": ("NotImplementedError", lambda m: m.nn.Module()(1)),
    "size": ("RuntimeError",
             lambda m: m.nn.Linear(2, 2).load_state_dict(m.nn.Linear(3, 2).state_dict())),
    "keys": ("RuntimeError", lambda m: m.nn.Linear(2, 2).load_state_dict({"weight": m.ones(2, 2),
                                                                         "x": m.ones(1)})),
    "integer_to": ("TypeError", lambda m: m.nn.Linear(2, 2).to(m.int64)),
    "mode": ("ValueError", lambda m: m.nn.Linear(2, 2).train("yes")),
    "taken_key": ("KeyError", lambda m: m.nn.ParameterDict({"keys": m.nn.Parameter(m.ones(1))})),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    error, program = ERRORS[name]
    check(program, error=error)


def test_load_error_text():
    """All problems in one message, in torch's words."""
    def program(m):
        try:
            m.nn.Linear(2, 2).load_state_dict({"weight": m.ones(3, 2), "x": m.ones(1)})
        except RuntimeError as error:
            return str(error)
    check(program)


def _hooks(m):
    log = []
    n = m.nn.Sequential(m.nn.Linear(3, 3), m.nn.Linear(3, 2))
    filled(n, m)
    n.register_forward_pre_hook(lambda mod, args: log.append(("pre", len(args))))
    n.register_forward_hook(lambda mod, args, out: out * 2)
    h = n[0].register_forward_hook(lambda mod, args, kwargs, out: log.append(sorted(kwargs)),
                                   with_kwargs=True)
    n[1].register_forward_pre_hook(lambda mod, args: (args[0] + 1,), prepend=True)
    n[1].register_full_backward_hook(lambda mod, gi, go: log.append(
        [None if g is None else g.clone() for g in (*gi, *go)]))
    n[1].register_full_backward_pre_hook(lambda mod, go: (go[0] * 3,))
    x = numbers(m, 4, 3).requires_grad_()
    out = n(x)
    out.sum().backward()
    h.remove()
    n(x)
    return log, out, x.grad, [p.grad for p in n.parameters()]


def test_hooks():
    check(_hooks)


def test_backward_hook_without_inputs_that_need_gradients():
    def program(m):
        n, log = filled(m.nn.Linear(2, 2), m), []
        n.register_full_backward_hook(lambda mod, gi, go: log.append((gi, go)))
        n(numbers(m, 3, 2)).sum().backward()
        return log
    check(program)


def test_old_backward_hook():
    def program(m):
        n, log = m.nn.ReLU(), []
        n.register_backward_hook(lambda mod, gi, go: log.append((gi, go)))
        x = numbers(m, 3, 2).requires_grad_()
        n(x).sum().backward()
        return log
    check(program)


def test_mixed_backward_hooks_are_refused():
    def program(m):
        n = m.nn.ReLU()
        n.register_backward_hook(lambda *a: None)
        n.register_full_backward_hook(lambda *a: None)
    check(program, error="RuntimeError")


def test_global_hooks():
    def program(m):
        from importlib import import_module
        space = import_module(f"{m.__name__}.nn.modules.module")
        log = []
        handles = [space.register_module_forward_pre_hook(lambda mod,
                                                          a: log.append(type(mod).__name__)),
                   space.register_module_forward_hook(lambda mod, a, o: o + 1)]
        try:
            out = filled(m.nn.Sequential(m.nn.Linear(2, 2)), m)(numbers(m, 1, 2))
        finally:
            for h in handles:
                h.remove()
        return log, out
    check(program)


def test_always_called():
    def program(m):
        log = []
        n = m.nn.Linear(2, 2)
        n.register_forward_hook(lambda mod, a, o: log.append("always"), always_call=True)
        n.register_forward_hook(lambda mod, a, o: log.append("never"))
        try:
            n(m.ones(3, 3))
        except RuntimeError:
            log.append("raised")
        return log
    check(program)


def test_state_hooks():
    def program(m):
        log = []
        n = m.nn.Linear(2, 2)
        n.register_state_dict_pre_hook(lambda mod, prefix, keep: log.append(prefix))
        n._register_state_dict_hook(lambda mod, sd, prefix, local: sd.update(more=m.ones(1)))
        n.register_load_state_dict_pre_hook(lambda mod, sd, prefix, *rest: sd.pop("more"))
        n.register_load_state_dict_post_hook(lambda mod, keys: log.append(list(keys.missing_keys)))
        state = n.state_dict()
        n.load_state_dict(state)
        return log, list(state)
    check(program)


def test_pickle():
    n = lehr.nn.Sequential(lehr.nn.Linear(2, 3), lehr.nn.BatchNorm1d(3))
    n[0].weight.requires_grad = False
    again = pickle.loads(pickle.dumps(n))
    assert repr(again) == repr(n)
    assert [p.requires_grad for p in again.parameters()] == [False, True, True, True]
    for a, b in zip(n.state_dict().values(), again.state_dict().values(), strict=True):
        assert a.tolist() == b.tolist()


def test_modules_are_freed():
    n = lehr.nn.Linear(2, 2)
    n.register_forward_hook(lambda *a: None)
    n(lehr.ones(1, 2)).sum().backward()
    ref = weakref.ref(n)
    del n
    gc.collect()
    assert ref() is None


def test_compile_is_used_and_not_saved():
    n = lehr.nn.Linear(2, 2)
    calls = []
    n._compiled_call_impl = lambda *a: calls.append(a) or "made"
    assert n(1) == "made" and calls == [(1,)]
    assert copy.deepcopy(n)._compiled_call_impl is None


def test_layers_are_made_on_the_default_device():
    with lehr.device("meta"):
        layers = [lehr.nn.Linear(2, 3), lehr.nn.BatchNorm1d(3), lehr.nn.Conv2d(1, 2, 3),
                  lehr.nn.LSTM(2, 3), lehr.nn.Embedding(4, 2)]
    for layer in layers:
        assert {t.device.type for t in layer.state_dict().values()} == {"meta"}
    assert lehr.nn.Linear(2, 3).weight.device.type == "cpu"
