"""The machine extended: C functions with effects, symbolic numbers, values of one's own."""

import math
import time
import weakref

from lehr.compiler.capture.machine import Machine
from lehr.compiler.capture.rebuild import REPLAY, Rebuilder, replay
from lehr.compiler.capture.value import CONSTANTS, SCALARS, Const, Value, slot


class Printing(Machine):
    """Prints in program order, when the effects are replayed."""

    def native(self, function, args, kwargs):
        if function.real is not print:
            return super().native(function, args, kwargs)
        self.effect("print", function, *[self.str_of(a) for a in args])
        return Const(None)


REPLAY["print"] = lambda function, *texts: function(*texts)


def test_a_c_function_with_effects(capsys):
    def f(xs):
        for x in xs:
            print("item", x)
            xs.append(x) if len(xs) < 3 else None
        return len(xs)
    f([1, 2])
    native = capsys.readouterr().out
    assert Printing().run(f, ([1, 2],)) == 3
    assert capsys.readouterr().out == native == "item 1\nitem 2\nitem 1\n"


class Symbol(Value):
    """A number known only later: text."""

    __slots__ = ("text",)
    type_ = int

    def __init__(self, text):
        self.text, self.source = text, None

    @slot("__add__")
    def add(self, m, other):
        return Symbol(f"({self.text} + {shown(other.force(m))})")

    @slot("__radd__")
    def radd(self, m, other):
        return Symbol(f"({shown(other.force(m))} + {self.text})")

    @slot("__mul__")
    def mul(self, m, other):
        return Symbol(f"({self.text} * {shown(other.force(m))})")

    def rebuild(self, r):
        return self.text


def shown(value):
    return value.text if isinstance(value, Symbol) else repr(value.value)


class Symbolic(Machine):
    def number(self, real, source):
        return Symbol(source.name())


def test_numbers_from_outside_can_be_symbolic():
    def f(n, cfg):
        total = 0
        for k in cfg["scales"]:
            total = total + n * k
        return total + 1
    machine = Symbolic()
    outcome = machine.capture(f, (3, {"scales": [2, 5]}))
    text = "(((0 + (n * cfg['scales'][0])) + (n * cfg['scales'][1])) + 1)"
    assert Rebuilder(machine)(outcome.value) == text
    assert not [g for g in machine.guards() if g.source.name() == "n" and g.kind == "equals"]


def test_models_replace_python_and_c_functions():
    def slow(x):
        raise AssertionError("must not run")

    def f(x):
        return slow(x) + math.sqrt(x)

    class Modelled(Machine):
        models = {
            **Machine.models,
            slow: lambda m, args, kwargs: Const(100),
            math.sqrt: lambda m, args, kwargs: Const(7),
        }
    assert Modelled().run(f, (4,)) == 107


class Opaque:
    """Stands for an object of the framework."""

    def __init__(self, n):
        self.n = n

    def grow(self, by):
        raise AssertionError("must not be interpreted")


class OpaqueValue(Value):
    __slots__ = ("real",)
    type_ = Opaque

    def __init__(self, real, source):
        self.real, self.source = real, source

    @slot("__getattribute__")
    def getattr(self, m, name):
        return Const(f"{self.source.name()}.{m.text(name)}")

    def rebuild(self, r):
        return self.real


def test_factories_make_values_of_ones_own():
    def f(o):
        return o.anything

    class Framework(Machine):
        def __init__(self):
            super().__init__()
            self.factories[Opaque] = lambda m, real, source: OpaqueValue(real, source)

        def lookup(self, cls, name):
            if cls is Opaque and name == "__getattribute__":
                return self.known_value(type.__getattribute__)
            return super().lookup(cls, name)
    assert Framework().run(f, (Opaque(3),)) == "o.anything"


def test_every_constant_type_is_wrapped_as_a_constant():
    code = (lambda: 0).__code__
    samples = [1, 1.5, True, "s", b"b", 1j, None, ..., NotImplemented, range(3), code,
               *[kind(1) for kind in SCALARS]]
    assert {type(s) for s in samples} == set(CONSTANTS)
    for sample in samples:
        assert Machine().run(lambda x: x, (sample,)) is sample


def test_weak_references_are_followed():
    class Node:
        pass
    node = Node()
    node.v = 5

    def f(ref):
        return ref().v + 1
    machine = Machine()
    assert machine.run(f, (weakref.ref(node),)) == 6
    assert "ref().v" in {g.source.name() for g in machine.guards()}


def test_callable_objects_methods_and_keywords():
    class Model:
        def __init__(self):
            self.calls = []

        def __call__(self, x, *rest, scale=1, **more):
            self.calls.append(x)
            return x * scale, rest, more
    model = Model()
    assert Machine().run(model, (2, 3), {"scale": 5, "q": 1}) == (10, (3,), {"q": 1})
    assert Machine().run(model.__call__, (4,)) == (4, (), {})
    assert model.calls == [2, 4]
    assert Machine().run(max, (3, 9)) == 9


def test_capture_cost_is_linear():
    def f(n):
        total = 0
        for i in range(n):
            total = total + i * 2
        return total
    counts = []
    for n in (100, 200, 300):
        machine = Machine()
        machine.capture(f, (n,))
        counts.append(machine.count)
    assert counts[1] - counts[0] == counts[2] - counts[1] > 0
    start = time.process_time()
    machine = Machine()
    machine.capture(f, (20_000,))
    per_instruction = (time.process_time() - start) / machine.count
    assert per_instruction < 10e-6      # usually a quarter of a microsecond


def test_effects_of_a_failed_run_are_replayed_too():
    w = []

    def f(w):
        w.append(1)
        raise ValueError("after")
    machine = Machine()
    outcome = machine.capture(f, (w,))
    assert outcome.value is None and outcome.fault.type_ is ValueError
    replay(machine.effects, Rebuilder(machine))
    assert w == [1]
