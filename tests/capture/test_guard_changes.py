"""Quick checks are never stale: every kind of change between calls is seen at the next one.

The slow reference is the meaning of the facts themselves (`FACTS`); results are compared with eager
calls. Counts of full checks bound what steady and restless programs cost.
"""

import functools
import gc
import random
import types
import weakref

import pytest

import lehr as torch
from lehr import nn
from lehr.compiler.capture import guard, pin
from lehr.compiler.capture.fact import FACTS
from lehr.nn import functional as F
from lehr.nn import hook as hooks

SCALE = 2.0


def helper(x, offset=1.0, *, factor=1.0):
    return x * factor + offset


class Config:
    def __init__(self, gain):
        self.gain = gain


class Part(nn.Module):
    bias = 0.5

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("shift", torch.ones(4))
        self.drop = nn.Dropout(0.0)

    def forward(self, x):
        x = self.linear(x * 2 if self.training else x)
        return self.drop(x) + self.shift + self.bias


class Other(Part):
    def forward(self, x):
        return super().forward(x) * 3


class Slotted:
    __slots__ = ("a", "b")


class Model(nn.Module):
    gain = 1.0

    def __init__(self):
        super().__init__()
        self.first, self.second = Part(), Part()
        self.stack = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.scale = 1.5
        self.sizes = [1, 2]
        self.table = {"k": 1.0, "rest": {"deep": 2.0}}
        self.config = Config(1.0)
        self.slotted = Slotted()
        self.slotted.a, self.slotted.b = 1.0, 2.0
        self.pair = (1.0, [2.0])

    def forward(self, x):
        x = self.second(self.first(x)) * self.scale * self.gain
        for n in self.sizes:
            x = x + n
        x = x * self.table["k"] + self.table["rest"]["deep"] * self.config.gain
        x = x + self.slotted.b + self.pair[1][0]
        if "extra" in self.table:
            x = x * self.table["extra"]
        return helper(self.stack(x)) * SCALE


def replaced(module, name, **changes):
    old = getattr(module, name)
    new = nn.Parameter(torch.full(old.shape, 0.25), **changes)
    setattr(module, name, new)


def other_function(x, offset=2.0, *, factor=3.0):
    return x * factor - offset


def swap(obj, name, value):
    """An attribute of something that outlives the test; put back afterwards."""
    old = getattr(obj, name)
    setattr(obj, name, value)
    UNDO.append(lambda: setattr(obj, name, old))


UNDO = []


@pytest.fixture(autouse=True)
def undo():
    yield
    while UNDO:
        UNDO.pop()()


def set_global(name, value):
    old = globals()[name]
    globals()[name] = value
    UNDO.append(lambda: globals().__setitem__(name, old))


def hooked(handle):
    UNDO.append(handle.remove)


def renamed(m):
    d = dict(m.first.__dict__)
    d["training"] = False
    m.first.__dict__ = d


# Name -> change of a model.
CHANGES = {
    "parameter replaced": lambda m: replaced(m.first.linear, "weight"),
    "parameter replaced in the table": lambda m: m.first.linear._parameters.__setitem__(
        "weight", nn.Parameter(torch.zeros(4, 4))),
    "parameter removed": lambda m: m.first.linear.register_parameter("bias", None),
    "parameter shared": lambda m: setattr(m.first.linear, "weight", m.second.linear.weight),
    "data set": lambda m: setattr(m.first.linear.weight, "data", torch.full((4, 4), 0.5)),
    "data written": lambda m: m.first.linear.weight.data.fill_(0.125),
    "storage replaced": lambda m: m.first.shift.set_(torch.full((4,), 7.0)),
    "storage moved": lambda m: m.first.shift.resize_(400).resize_(4),
    "layout changed": lambda m: m.first.linear.weight.data.t_(),
    "layout of the parameter changed": lambda m: setattr(
        m.first.linear.weight, "data", torch.arange(16.0).view(4, 4).t()),
    "dtype changed": lambda m: m.double().float(),
    "requires_grad_": lambda m: m.first.linear.weight.requires_grad_(False),
    "all frozen": lambda m: m.requires_grad_(False),
    "eval": lambda m: m.eval(),
    "one part in eval": lambda m: m.second.eval(),
    "training set in the dictionary": lambda m: m.first.__dict__.__setitem__("training", False),
    "hook": lambda m: m.first.register_forward_hook(lambda mod, args, out: out * 2),
    "hook before": lambda m: m.second.linear.register_forward_pre_hook(
        lambda mod, args: (args[0] + 1,)),
    "hook of a hook table": lambda m: m.first._forward_hooks.__setitem__(
        99, lambda mod, args, out: out - 1),
    "hook of all modules": lambda m: hooked(hooks.register_module_forward_hook(
        lambda mod, args, out: out + 1 if type(mod) is Part else None)),
    "buffer set": lambda m: setattr(m.first, "shift", torch.full((4,), 3.0)),
    "buffer set in the table": lambda m: m.first._buffers.__setitem__("shift", torch.zeros(4)),
    "buffer written": lambda m: m.first.shift.add_(1),
    "buffer of another shape": lambda m: setattr(m.first, "shift", torch.ones(1)),
    "module replaced": lambda m: setattr(m, "first", Other()),
    "module replaced in the table": lambda m: m._modules.__setitem__("second", Other()),
    "module shared": lambda m: setattr(m, "second", m.first),
    "item of a Sequential": lambda m: m.stack.__setitem__(1, nn.Tanh()),
    "item appended": lambda m: m.stack.append(nn.Sigmoid()),
    "attribute set": lambda m: setattr(m, "scale", 4.0),
    "attribute set in the dictionary": lambda m: m.__dict__.__setitem__("scale", 5.0),
    "attribute set by object": lambda m: object.__setattr__(m, "scale", 6.0),
    "attribute hides the class's": lambda m: setattr(m, "gain", 7.0),
    "attribute hides the class's, in the dictionary": lambda m: m.first.__dict__.update(bias=7.0),
    "forward of one object": lambda m: setattr(m.first, "forward", lambda x: x * 9),
    "class attribute": lambda m: swap(Model, "gain", 8.0),
    "class attribute of a part": lambda m: swap(Part, "bias", 1.5),
    "class attribute above": lambda m: swap(nn.Module, "dump_patches", True),
    "method replaced": lambda m: swap(Part, "forward", lambda self, x: x * 5),
    "method of lehr replaced": lambda m: swap(nn.ReLU, "forward", lambda self, x: x * 6),
    "attribute access replaced": lambda m: (
        setattr(Part, "__getattribute__", lambda self, name: 11.0 if name == "bias" else
                object.__getattribute__(self, name)),
        UNDO.append(lambda: delattr(Part, "__getattribute__"))),
    "class of an object": lambda m: setattr(m.first, "__class__", Other),
    "dictionary of an object": renamed,
    "list item": lambda m: m.sizes.__setitem__(0, 5),
    "list grows": lambda m: m.sizes.append(3),
    "list shrinks": lambda m: m.sizes.pop(),
    "list replaced": lambda m: setattr(m, "sizes", [1, 2, 3]),
    "list grows far": lambda m: m.sizes.extend(range(100)),
    "dictionary item": lambda m: m.table.__setitem__("k", 3.0),
    "dictionary grows": lambda m: m.table.__setitem__("extra", 3.0),
    "dictionary below": lambda m: m.table["rest"].update(deep=9.0),
    "dictionary item of another type": lambda m: m.table.__setitem__("k", 1),
    "object below": lambda m: setattr(m.config, "gain", 4.0),
    "object replaced": lambda m: setattr(m, "config", Config(5.0)),
    "slot": lambda m: setattr(m.slotted, "b", 5.0),
    "other slot": lambda m: setattr(m.slotted, "a", 5.0),
    "list in a tuple": lambda m: m.pair[1].__setitem__(0, 8.0),
    "global": lambda m: set_global("SCALE", 3.0),
    "global function": lambda m: set_global("helper", other_function),
    "code of a function": lambda m: swap(helper, "__code__", other_function.__code__),
    "defaults of a function": lambda m: swap(helper, "__defaults__", (4.0,)),
    "keyword defaults of a function": lambda m: swap(helper, "__kwdefaults__", {"factor": 5.0}),
    "keyword default changed": lambda m: (helper.__kwdefaults__.update(factor=6.0), UNDO.append(
        lambda: helper.__kwdefaults__.update(factor=1.0))),
    "function of lehr replaced": lambda m: swap(F, "linear", lambda x, w, b=None: x * 2),
    "default dtype": lambda m: (torch.set_default_dtype(torch.float64), UNDO.append(
        lambda: torch.set_default_dtype(torch.float32))),
    "nothing": lambda m: None,
    "an attribute that nobody reads": lambda m: setattr(m, "note", "hello"),
}
SAME = {"data written", "buffer written", "nothing", "an attribute that nobody reads", "other slot",
        "class attribute above", "dtype changed", "storage moved", "storage replaced", "data set",
        "parameter replaced", "parameter replaced in the table", "buffer set", "layout changed",
        "buffer set in the table", "parameter shared", "module shared"}


def reference(entry, args, kwargs=None):
    """The meaning of an entry's guards, fact by fact."""
    checker = entry.checker
    arguments = {**dict(zip(entry.positional, args, strict=False)), **(kwargs or {})}
    if len(args) != len(entry.positional) or guard.modes() != checker.modes:
        return False
    for fact in entry.captured.facts:
        try:
            if not FACTS[fact.kind](fact.source.read(arguments), fact.detail, arguments):
                return False
        except guard.MISSING:
            return False
    return True


def compiled(model):
    """A compiled model after some calls: its quick check is in use."""
    f = torch.compile(model, backend="reference")
    x = torch.randn(2, 4)
    for _ in range(3):
        f(x)
    return f, x


def agree(f, args):
    """Every entry's quick check says what the facts mean."""
    site = f.compiled_call if isinstance(f, nn.Module) else f
    args = (*site.bound, *args)
    for entry in site.entries:
        want = reference(entry, args)
        assert bool(entry.check(args, {})) == want, guard.explain(
            entry.captured.facts, dict(zip(entry.positional, args, strict=True)))
    return [bool(entry.check(args, {})) for entry in site.entries]


def test_the_interpreter_is_as_described():
    assert pin.trusted()
    assert all(pin._told(*trial()) for trial in pin.TRIALS)


def test_quick_checks_are_in_use():
    f, x = compiled(Model())
    checker = f.compiled_call.entries[0].checker
    assert checker.same is not None and checker.renewals == 1
    for _ in range(50):
        f(x)
    assert checker.renewals == 1
    assert len(checker.shape.explicit) < 5 and not checker.shape.anchors


@pytest.mark.parametrize("name", CHANGES)
def test_change(name):
    torch.manual_seed(0)
    m = Model()
    f, x = compiled(m)
    entry = f.compiled_call.entries[0]
    CHANGES[name](m)
    assert agree(f, (x,)) == [name in SAME]
    for _ in range(3):
        assert torch.allclose(f(x), m(x), atol=1e-6)
    assert (f.compiled_call.entries == [entry]) == (name in SAME)
    agree(f, (x,))


@pytest.mark.parametrize("seed", range(6))
def test_changes_at_random(seed):
    """Long runs of changes, on several models through one compiled function."""
    rng = random.Random(seed)
    models = [Model(), Model()]
    f = torch.compile(lambda m, x: m(x), backend="reference", options={"recompile_limit": 1000})
    x = torch.randn(2, 4)
    without = ("attribute access replaced", "default dtype", "list grows far")
    names = [n for n in CHANGES if n not in without]
    for _ in range(25):
        m = rng.choice(models)
        for _ in range(rng.choice((0, 1, 1, 2, 4))):
            f(m, x)
        name = rng.choice(names)
        try:
            CHANGES[name](m)
        except (AttributeError, RuntimeError, TypeError):
            continue
        for m in models:
            agree(f, (m, x))
        while UNDO and rng.random() < 0.5:
            UNDO.pop()()
            agree(f, (rng.choice(models), x))
        m = rng.choice(models)
        try:
            want = m(x)
        except Exception:       # the program itself fails now
            models = [Model(), Model()]
            continue
        assert torch.allclose(f(m, x), want, atol=1e-6), name


def test_gradients_are_seen_where_they_matter():
    p = nn.Parameter(torch.ones(4))

    @functools.partial(torch.compile, backend="reference")
    def f(x):
        return x * 2 if p.grad is None else x * p.grad

    @functools.partial(torch.compile, backend="reference")
    def g(x):
        return x * p

    x = torch.ones(4)
    for _ in range(3):
        assert f(x).tolist() == [2] * 4 and g(x).tolist() == [1] * 4
    p.grad = torch.full((4,), 5.0)
    assert f(x).tolist() == [5] * 4
    p.grad = torch.full((4,), 6.0)
    assert f(x).tolist() == [6] * 4
    p.grad.add_(1)
    assert f(x).tolist() == [7] * 4
    p.grad.data = torch.full((4,), 9.0)
    assert f(x).tolist() == [9] * 4
    p.grad = None
    assert f(x).tolist() == [2] * 4
    assert g(x).tolist() == [1] * 4
    assert len(f.entries) == 2 and len(g.entries) == 1


def training(optimizer_class, **settings):
    torch.manual_seed(0)
    m = nn.Linear(4, 3)
    optimizer = optimizer_class(m.parameters(), **settings)

    def step(x):
        optimizer.zero_grad()
        loss = m(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    return m, optimizer, step


def both(change=lambda m, o: None, **settings):
    """(compiled, eager): each a model, an optimizer and a step."""
    made = [training(torch.optim.AdamW, **settings) for _ in range(2)]
    made[0] = (*made[0][:2], torch.compile(made[0][2], backend="reference"))
    return made


def equal(made, x):
    a, b = (step(x) for _, _, step in made)
    assert torch.allclose(a, b, atol=1e-5)
    for p, q in zip(made[0][0].parameters(), made[1][0].parameters(), strict=True):
        assert torch.allclose(p, q, atol=1e-5)


def test_a_schedule_changes_numbers_only():
    made = both(lr=0.1)
    x = torch.randn(2, 4)
    for n in range(30):
        for _, o, _ in made:
            o.param_groups[0]["lr"] = 0.1 / (n + 1)
        equal(made, x)
    step = made[0][2]
    assert len(step.entries) == 1
    assert step.entries[0].checker.renewals <= 6
    agree(step, (x,))


OPTIMIZER = {
    "weight decay": lambda m, o: o.param_groups[0].update(weight_decay=0.5),
    "betas": lambda m, o: o.param_groups[0].update(betas=(0.5, 0.9)),
    "maximize": lambda m, o: o.param_groups[0].update(maximize=True),
    "group added": lambda m, o: o.add_param_group(
        {"params": [nn.Parameter(torch.ones(2))], "lr": 1.0}),
    "state loaded": lambda m, o: o.load_state_dict(o.state_dict()),
    "state dropped": lambda m, o: o.state.clear(),
    "state of one parameter dropped": lambda m, o: o.state.pop(m.bias),
    "state replaced": lambda m, o: o.state[m.bias].update(exp_avg=torch.ones(3)),
    "parameter frozen": lambda m, o: m.bias.requires_grad_(False),
    "parameter dropped": lambda m, o: o.param_groups[0]["params"].pop(),
    "data set": lambda m, o: setattr(m.weight, "data", torch.ones(3, 4)),
    "hook": lambda m, o: o.register_step_post_hook(lambda opt, args, kwargs: m.bias.data.add_(1.0)),
    "gradient": lambda m, o: setattr(m.weight, "grad", torch.ones(3, 4)),
}


@pytest.mark.parametrize("name", OPTIMIZER)
def test_change_of_an_optimizer(name):
    made = both(lr=0.1)
    x = torch.randn(2, 4)
    for _ in range(3):
        equal(made, x)
    for m, o, _ in made:
        OPTIMIZER[name](m, o)
    agree(made[0][2], (x,))
    for _ in range(3):
        equal(made, x)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.calls, self.seen = 0, []

    def forward(self, x):
        self.calls += 1
        self.last = x
        return self.linear(x) + self.calls


def test_what_changes_at_every_call_is_looked_at_alone():
    """A counter in `forward`: no recompile for ever, no full check for ever."""
    m = Counting()
    f = torch.compile(m, backend="reference")
    x = torch.randn(2, 4)
    for n in range(60):
        assert torch.allclose(f(x), m.linear(x) + (n + 1), atol=1e-6)
    assert m.calls == 60 and m.last is x
    entries = f.compiled_call.entries
    assert len(entries) <= 3
    assert entries[0].checker.renewals <= 8
    agree(f, (x,))
    m.linear.weight.data = torch.zeros(4, 4)
    assert torch.allclose(f(x), m.linear.bias + 61.0, atol=1e-6)


def test_globals_that_a_loop_writes():
    """A script's loop writes the globals that its compiled functions read."""
    space = {"torch": torch, "F": F, "model": Model(), "x": torch.randn(2, 4), "factor": 2.0}
    exec("def f(x):\n    return F.relu(model(x)) * factor", space)
    space["f"] = f = torch.compile(space["f"], backend="reference")
    loop = compile("for i in range(30):\n    step = i\n    y = f(x)", "<loop>", "exec")
    exec(loop, space)
    checker = f.entries[0].checker
    assert len(f.entries) == 1 and checker.renewals <= 4
    exec(loop, space)
    assert checker.renewals <= 4 and len(checker.shape.explicit) < 12
    agree(f, (space["x"],))
    others = types.SimpleNamespace(relu=torch.abs)
    for name, value in (("factor", 3.0), ("model", Model()), ("F", others)):
        space[name] = value
        agree(f, (space["x"],))
        want = space["F"].relu(space["model"](space["x"])) * space["factor"]
        assert torch.allclose(f(space["x"]), want, atol=1e-6)


@pytest.mark.parametrize("name", ["data set", "eval", "dictionary below", "global"])
def test_without_words_guards_are_checked_in_full(name, monkeypatch):
    """On an interpreter that is not as described, and without a C compiler."""
    monkeypatch.setattr(pin, "trusted", lambda: False)
    m = Model()
    f, x = compiled(m)
    checker = f.compiled_call.entries[0].checker
    assert checker.quick == checker.whole and checker.shape is None
    CHANGES[name](m)
    assert torch.allclose(f(x), m(x), atol=1e-6)
    agree(f, (x,))


def test_changes_now_and_then_cost_one_full_check_each():
    m = Model()
    f, x = compiled(m)
    for _ in range(6):
        m.train()
        for _ in range(20):
            f(x)
        m.eval()
        for _ in range(20):
            f(x)
    entries = f.compiled_call.entries
    assert len(entries) == 2
    for entry in entries:
        assert entry.checker.renewals <= 8
        assert not entry.checker.shape.anchors


def test_modules_of_one_class_share_an_entry():
    """Each has what its guards saw for itself."""
    f = torch.compile(lambda m, x: m(x), backend="reference")
    models = [Part() for _ in range(5)]
    x = torch.randn(2, 4)
    for _ in range(10):
        for m in models:
            assert torch.allclose(f(m, x), m(x), atol=1e-6)
    entry, = f.entries
    assert entry.checker.renewals <= len(models) + 1
    models[2].shift.fill_(9)
    models[3].linear.weight.data = torch.zeros(4, 4)
    models[4].eval()
    for m in models:
        assert torch.allclose(f(m, x), m(x), atol=1e-6)
        agree(f, (m, x))


def test_objects_that_are_new_at_every_call_are_not_kept():
    f = torch.compile(lambda c, x: x * c.gain, backend="reference")
    x = torch.ones(3)
    for _ in range(40):
        assert f(Config(2.0), x).tolist() == [2, 2, 2]
    checker = f.entries[0].checker
    assert checker.renewals <= 8 and not checker.shape.keyed
    assert not bool(f.entries[0].check((Config(3.0), x), {}))
    kept = [Config(2.0) for _ in range(100)]
    g = torch.compile(lambda c, x: x + c.gain, backend="reference")
    for c in kept:
        g(c, x)
    assert len(g.entries[0].checker.shape.lives) <= 32


def test_models_die():
    """A compiled function does not keep the modules that it was called with."""
    f = torch.compile(lambda m, x: m(x), backend="reference")
    x = torch.randn(2, 4)
    m = Part()
    for _ in range(3):
        f(m, x)
    lives = f.entries[0].checker.shape.lives
    ref, weight = weakref.ref(m), weakref.ref(m.linear.weight)
    assert len(lives) == 1
    del m
    gc.collect()
    assert ref() is None and weight() is None and not lives
    m = Part()
    assert torch.allclose(f(m, x), m(x), atol=1e-6) and len(f.entries) == 1


def test_the_same_tensor_twice_and_views():
    def f(a, b):
        a.add_(1)
        return a * b

    g = torch.compile(f, backend="reference")

    def cases():
        x = torch.ones(6)
        yield torch.ones(4), torch.ones(4)
        y = torch.ones(4)
        yield y, y
        yield y, y.view(4)
        for i, j in ((0, 2), (1, 2), (0, 0), (2, 0), (0, 1)):
            yield x[i:i + 4], x[j:j + 4]
        z = torch.ones(4)
        yield z, z.data
        yield z.data, z
    for _ in range(3):
        for (a, b), (c, d) in zip(cases(), cases(), strict=True):
            assert torch.equal(g(a, b), f(c, d)) and torch.equal(a, c) and torch.equal(b, d)
            agree(g, (a, b))


def test_keyword_arguments_and_counts():
    f = torch.compile(lambda x, *, m, k=1: m(x) * k, backend="reference")
    m, x = Part(), torch.randn(2, 4)
    for _ in range(3):
        assert torch.allclose(f(x, m=m), m(x), atol=1e-6)
        assert torch.allclose(f(x, m=m, k=2), m(x) * 2, atol=1e-6)
        assert torch.allclose(f(x, k=3, m=m), m(x) * 3, atol=1e-6)
    m.linear.bias = None
    assert torch.allclose(f(x, m=m), m(x), atol=1e-6)
    with pytest.raises(TypeError):
        f(x, x, m=m)


def test_modes():
    m, x = Part(), torch.randn(2, 4)
    f = torch.compile(m, backend="reference")
    for _ in range(2):
        for mode in (torch.no_grad, torch.enable_grad, torch.inference_mode):
            with mode():
                for _ in range(2):
                    assert f(x).requires_grad is m(x).requires_grad
    assert len(f.compiled_call.entries) == 3
