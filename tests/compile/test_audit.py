"""`options={"audit": True}`: eager beside compiled; faults are planted in every part."""

import collections
import dataclasses
import inspect
import random
import re
import warnings

import numpy as np
import pytest

import lehr as torch
from lehr.base import log, options
from lehr.compiler import backend, check, stages
from lehr.compiler.audit import AuditedFunction, AuditError, alike
from lehr.compiler.capture import guard, rebuild
from lehr.compiler.graph import interp
from lehr.compiler.graph.ir import rebuild as rebuilt
from lehr.compiler.passes import pipeline
from lehr.ops import registry

AUDIT = {"audit": True, "strict": True}
X = torch.arange(6, dtype=torch.float32).reshape(2, 3) / 5
HERE = __file__


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Wrong code must not outlive its test."""
    monkeypatch.setattr(options, "_default", options.default().replace(cache_dir=str(tmp_path)))


def audited(function, **given):
    made = torch.compile(function, options=AUDIT, **given)
    assert isinstance(made if callable(made) and hasattr(made, "family") else made.compiled_call,
                      AuditedFunction)
    return made


def line_of(function, text):
    source, first = inspect.getsourcelines(function)
    (at,) = [i for i, line in enumerate(source) if text in line]
    return first + at


# -- sound programs pass, and act once

NOTES = []
TOTAL = 0


class Net(torch.nn.Module):
    seen = []

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.register_buffer("running", torch.zeros(3))
        self.calls, self.shapes = 0, []

    def forward(self, x):
        global TOTAL
        TOTAL += 1
        self.calls += 1
        y = self.inner(x).relu()
        self.running.add_(y.detach().mean(0))
        self.shapes.append(tuple(y.shape))
        self.seen.append(self.calls)
        y = torch.nn.functional.dropout(y, 0.5)
        print("sum", float(y.sum()))
        NOTES.append((random.random(), np.random.rand()))
        return {"y": y, "loss": y.sum()}


def test_effects_happen_once(capsys):
    def play(compiled):
        NOTES.clear(), Net.seen.clear()
        torch.manual_seed(1), random.seed(1), np.random.seed(1)
        net = Net()
        call = audited(net) if compiled else net
        for _ in range(3):
            call(X)["loss"].backward()
        return (net.calls, net.shapes, list(Net.seen), list(NOTES), net.running.tolist(),
                net.inner.weight.grad.tolist(), torch.rand(2).tolist(), capsys.readouterr().out)
    start = TOTAL
    want = play(False)
    have = play(True)
    assert TOTAL - start == 6 and len(NOTES) == 3
    for a, b in zip(have, want, strict=True):
        assert np.allclose(a, b) if isinstance(a, list) and a and isinstance(
            a[0], float | list) else alike(a, b) if isinstance(a, str) else a == b


def test_whole_steps_pass():
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.item()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    want = [step(X) for _ in range(4)]
    net.load_state_dict(before)
    optimizer.state.clear()
    run = audited(step)
    assert np.allclose([run(X) for _ in range(4)], want, rtol=1e-4)


@dataclasses.dataclass
class State:
    items: collections.OrderedDict
    queue: collections.deque
    slots: "Slotted"


class Slotted:
    __slots__ = ("__dict__", "value")

    def __init__(self):
        self.value, self.other = 1, {2}


def test_objects_of_all_kinds_are_put_back():
    def f(state, x, names, *, flag):
        state.items["b"] = x * 2
        state.items.move_to_end("a")
        state.queue.append(len(state.queue))
        state.slots.value += 1
        state.slots.other.add(state.slots.value)
        del names[0]
        y = x.t()
        y.mul_(2)
        count["n"] += 1
        torch.compiler.graph_break()
        state.items["c"] = [y, y]
        return state, y if flag else x
    count = {"n": 0}

    def world():
        return State(collections.OrderedDict(a=1), collections.deque([5]), Slotted()), X.clone()
    s, x = world()
    want_s, want_x = world()
    a = audited(f)(s, x, ["p", "q"], flag=True)
    assert count["n"] == 1
    b = f(want_s, want_x, ["p", "q"], flag=True)
    assert x.equal(want_x) and list(s.items) == list(want_s.items) == ["a", "b", "c"] or (
        list(s.items) == list(want_s.items))
    assert s.queue == want_s.queue and s.slots.value == 2 and s.slots.other == {2}
    assert a[0] is s and a[1].equal(b[1]) and s.items["c"][0] is s.items["c"][1] is a[1]


def test_exceptions_pass_and_act_once():
    def f(x, note):
        note.append(1)
        if x.sum() > 0:
            raise KeyError("positive")
        return x
    note = []
    with pytest.raises(KeyError, match="positive"):
        audited(f)(X, note)
    assert note == [1]


def test_views_and_inputs_with_history_pass():
    def f(x, h):
        y = h[:, :2] * x[:, 1:].clone()
        x[0] = 3
        return y, h.detach(), x.view(-1)
    w = X.clone().requires_grad_()
    h = w * 2
    y, _, v = audited(f)(X.clone(), h)
    y.sum().backward()
    assert w.grad is not None and v[0] == 3


def test_gradients_that_eager_refuses_are_not_compared():
    def f(x, w):
        y = w * x
        x.add_(1)       # what backward needs
        return y.sum()
    w = X.clone().requires_grad_()
    made = audited(f)(X.clone(), w)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        made.backward()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "complex64", "int64", "bool"])
def test_all_dtypes_pass(dtype):
    x = X.to(getattr(torch, dtype))
    audited(lambda x: (x * x, x.reshape(-1)))(x)


def test_the_environment_turns_it_on(monkeypatch):
    monkeypatch.setenv("LEHR_AUDIT", "1")
    options.set_default(None)
    assert isinstance(torch.compile(lambda x: x), AuditedFunction)


def test_iterators_cannot_be_read_twice():
    log.reset()
    run = audited(lambda x, it: x + next(it))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert run(X, iter([1, 2])).equal(X + 1)
    assert "is not audited: it is a list_iterator" in str(seen[0].message)


# -- planted faults

def spoiled(graph, name, instead):
    def rewrite(b, node, args):
        return b.call(registry.get(instead) if node.op.name == name else node.op, args)
    return rebuilt(graph, rewrite)


def chain(x, w):
    y = (x @ w).relu()
    z = y * 2 + 1
    e = (z / 3).exp()  # here
    return e.sum(0), y.mean()


W = torch.arange(9, dtype=torch.float32).reshape(3, 3) / 7 - 0.4


def test_a_wrong_kernel_is_found_with_its_line(monkeypatch):
    emit = stages.c.emit

    def wrong(*args):
        code = emit(*args)
        return code._replace(sources=[re.sub(r"([=+]) lehr_exp_f32\(", r"\1 2 * lehr_exp_f32(", t)
                                      for t in code.sources])
    monkeypatch.setattr(stages.c, "emit", wrong)
    with pytest.raises(AuditError) as caught:
        audited(chain)(X, W)
    error = caught.value
    assert error.path == "result[0]" and "3 of 3 elements differ" in error.text
    assert error.fault.stage == "the compiled code"
    assert [n.op.name for n in error.fault.part.nodes] == ["exp"]
    assert error.fault.location.path == HERE and error.fault.location.line == line_of(
        chain, "# here")
    text = str(error)
    assert "chain, compiled, is not what it is eagerly" in text
    assert f'File "{HERE}", line {line_of(chain, "# here")}' in text and "e = (z / 3).exp()" in text


def plant_in_pass(patch):
    wrong = pipeline.Pass("simplify", lambda g: spoiled(g, "exp", "expm1"))
    patch.setattr(pipeline, "PASSES", (*pipeline.PASSES[:-1], wrong))
    patch.setattr(pipeline.run, "__kwdefaults__", {**pipeline.run.__kwdefaults__,
                                                   "passes": pipeline.PASSES})


def plant_in_lowering(patch):
    lower = stages.lower.lower
    patch.setattr(stages.lower, "lower", lambda g, **kw: lower(spoiled(g, "exp", "expm1"), **kw))


@pytest.mark.parametrize(("stage", "plant"), [
    ("the graph after the pass simplify", plant_in_pass),
    ("the program as lowered", plant_in_lowering)])
def test_the_first_wrong_stage_is_named(stage, plant, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AuditError) as caught:
        audited(chain)(X, W)
    fault = caught.value.fault
    assert fault.stage == stage and fault.location.line == line_of(chain, "# here")
    assert [n.op.name for n in fault.part.nodes] == ["exp"]


def test_a_fault_that_takes_two_ops_gives_both(monkeypatch):
    """A rule that turns log(exp(x)) into x + 1."""
    def wrong(graph):
        def rewrite(b, node, args):
            before = node.inputs[0].node if node.op.name == "log" else None
            if before is not None and before.op.name == "exp":
                return b.call(registry.get("add"), (args[0], 1, 1))
            return b.call(node.op, args)
        return rebuilt(graph, rewrite)
    patched = pipeline.Pass("simplify", wrong)
    monkeypatch.setattr(pipeline, "PASSES", (*pipeline.PASSES[:-1], patched))
    monkeypatch.setattr(pipeline.run, "__kwdefaults__", {
        **pipeline.run.__kwdefaults__, "passes": pipeline.PASSES})

    def f(x):
        y = x.sin() * 2
        z = y.exp()
        u = z.log()  # here
        return u + y
    with pytest.raises(AuditError) as caught:
        audited(f)(X)
    fault = caught.value.fault
    assert [n.op.name for n in fault.part.nodes] == ["exp", "log"]
    assert fault.location.line == line_of(f, "# here")


def test_wrong_gradients_are_found(monkeypatch):
    split = backend.partition.split

    def wrong(graph, tangents, *rest):
        made = split(graph, tangents, *rest)
        return made._replace(backward=spoiled(made.backward, "mul", "maximum"))
    monkeypatch.setattr(backend.partition, "split", wrong)
    run = audited(lambda x, w: (x * w * w).sum(), fullgraph=True)
    with pytest.raises(AuditError, match="split into forward and backward"):
        run(X, torch.full((3,), 0.5).requires_grad_())


def test_wrong_code_for_gradients_is_found(monkeypatch):
    made = backend.Native.lowered

    def wrong(self):
        before = self.graph
        if "backward" in before.name:
            self.graph = spoiled(before, "cos", "sin")
        try:
            return made(self)
        finally:
            self.graph = before
    monkeypatch.setattr(backend.Native, "lowered", wrong)

    def f(x):
        return x.sin().sum()
    with pytest.raises(AuditError) as caught:
        audited(f)(X.clone().requires_grad_())
    assert caught.value.path == "the gradient of x"


def test_a_lost_effect_is_found(monkeypatch):
    monkeypatch.setitem(rebuild.REPLAY, "list.append", lambda target, value: None)

    def f(x, note):
        note.append(3)
        return x + len(note)
    with pytest.raises(AuditError) as caught:
        audited(f)(X, [])
    assert caught.value.path == "note" and "capture is at fault" in str(caught.value)
    assert caught.value.fault is None


def test_a_missing_guard_is_found(monkeypatch):
    fact = guard.Writer.fact
    monkeypatch.setattr(guard.Writer, "fact", lambda self, f: None if f.kind == "equals" else (
        fact(self, f)))
    run = audited(lambda x, mode: x + 1 if mode == "a" else x - 1)
    assert run(X, "a").equal(X + 1)
    with pytest.raises(AuditError) as caught:
        run(X, "b")
    assert caught.value.path == "result" and "capture is at fault" in str(caught.value)


def test_a_write_that_is_lost_is_found(monkeypatch):
    call = backend.Native.__call__
    held = {}

    def wrong(self, inputs):
        before = inputs[0].clone()
        made = call(self, inputs)
        inputs[0]._array[...] = before._array
        held["ran"] = True
        return made
    monkeypatch.setattr(backend.Native, "__call__", wrong)

    def f(x):
        x.add_(1)
        return x * 2
    x = X.clone()
    with pytest.raises(AuditError) as caught:
        audited(f)(x)
    assert held and caught.value.path == "x" and "6 of 6 elements differ" in caught.value.text


def test_other_random_numbers_are_found(monkeypatch):
    call = backend.Native.__call__

    def wrong(self, inputs):
        torch.rand(1)
        return call(self, inputs)
    monkeypatch.setattr(backend.Native, "__call__", wrong)
    with pytest.raises(AuditError) as caught:
        audited(lambda x: x + torch.rand(2, 3))(X)
    assert caught.value.path in ("result", "the default generator")


def test_aliases_and_layouts_are_compared(monkeypatch):
    laid = backend.Native.__call__
    monkeypatch.setattr(backend.Native, "__call__",
                        lambda self, inputs: [t.t().contiguous().t() for t in laid(self, inputs)])
    with pytest.raises(AuditError, match=r"strides is \(1, 2\), expected \(3, 1\)"):
        audited(lambda x: x + 1)(X)


def test_printed_numbers_are_alike_but_for_rounding():
    assert alike("a 0.12345671 b", "a 0.12345672 b") and alike("nan", "nan")
    assert not alike("a 0.1234 b", "a 0.1334 b") and not alike("a 1 b", "a 2 b")
    assert not alike("a 0.5", "b 0.5") and alike(1e-12, 0.0) and not alike(1e-3, 0.0)


def test_a_net_of_breaks_is_audited_as_a_whole(monkeypatch):
    """Programs behind graph breaks, and in functions that a break calls, are looked at, too."""
    plant_in_lowering(monkeypatch)

    def inner(x):
        print(end="")
        return x.exp()  # here

    def f(x):
        y = inner(x * 2)
        return y + 1
    with pytest.raises(AuditError) as caught:
        audited(f)(X)
    assert caught.value.fault.location.line == line_of(inner, "# here")


# -- rounding

def captured(function, *args):
    """The graph of a function's only capture."""
    seen = []
    backend.BACKENDS["spy"] = lambda request, options: seen.append(request.graph) or (
        backend.reference(request, options))
    try:
        torch.compile(function, backend="spy", fullgraph=True)(*args)
    finally:
        del backend.BACKENDS["spy"]
    return seen[0]


def test_noise_says_what_rounding_may_do_and_leaves_the_inputs():
    def f(x, y):
        x.add_(1)
        return (x.sum() - y.sum()) * 1e4, x.relu()
    graph = captured(f, X.clone(), X.clone())
    arrays = [X._array.copy(), X._array.copy()]
    mine = [a.copy() for a in arrays]
    want = [*interp.run(graph, mine)["outputs"], *mine]
    spread = check.noise(graph, arrays, want)
    assert all(np.array_equal(a, X._array) for a in arrays)
    assert 1e-3 < float(spread[0]) < 1 and spread[1].max() < 1e-4 and spread[2].max() < 1e-4


def test_rounding_that_a_step_makes_much_of_is_no_fault():
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.LayerNorm(16), torch.nn.GELU(),
                              torch.nn.Linear(16, 5))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)

    def step(x):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), torch.tensor([1, 4]))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
        return loss
    run = audited(step)
    for _ in range(3):
        run(X)
