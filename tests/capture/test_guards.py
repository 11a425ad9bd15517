"""Guards: asked for what is used and nothing else, false when the captured run is not valid."""

import collections
import functools
import re
import types

import pytest

from lehr.compiler.capture.fact import FACTS
from lehr.compiler.capture.machine import Machine
from lehr.compiler.capture.source import Source, const, local


class Config:
    scale = 2
    mode = "train"

    def __init__(self, **attrs):
        self.__dict__.update(attrs)

    def factor(self):
        return self.scale


class Layer(Config):
    def __call__(self, x):
        return x * self.w

    @property
    def size(self):
        return len(self.items)


LIMIT = 3


def pair():
    n = 0

    def put(value):
        nonlocal n
        n = value

    def get():
        return n

    return put, get


def reordered(values):
    """An equal set with another order of iteration: numbers of one slot stand as they came."""
    made = set()
    for value in list(values)[::-1]:
        made.add(value)
    assert made == values and list(made) != list(values)
    return made


def double(x):
    return x * 2


def facts(function, *args, **kwargs):
    machine = Machine()
    machine.capture(function, args, kwargs)
    return machine


def named(machine, builtin=False):
    return {
        (f.source.name(), f.kind)
        for f in machine.guards()
        if builtin or not (f.source.name() in dir(__builtins__) or f.kind == "absent")
    }


def hold(machine, arguments):
    for fact in machine.guards():
        try:
            if not FACTS[fact.kind](fact.source.read(arguments), fact.detail, arguments):
                return False
        except Exception:
            return False
    return True


def test_unused_arguments_get_no_guard():
    machine = facts(lambda a, b, c: [a, b], 1, [1], {})
    assert not [f for f in machine.guards() if f.source.root().kind == "local"]


def test_numbers_are_guarded_by_value_only_when_computed_with():
    def f(n, kept):
        return n + 1, kept

    assert ("n", "equals") in named(facts(f, 3, 4))
    assert not any(name == "kept" for name, _ in named(facts(f, 3, 4)))


def test_a_list_is_guarded_by_length_and_its_items_by_use():
    def f(xs):
        return xs[1] + 1, xs

    assert {n for n in named(facts(f, [5, 6, 7])) if n[0].startswith("xs")} == {
        ("xs", "type"),
        ("xs", "len"),
        ("xs[1]", "equals"),
    }


def test_a_dict_entry_is_guarded_alone():
    def f(d):
        return d["a"] + 1, d.get("zz"), "q" in d

    machine = facts(f, {"a": 1, "b": 2})
    found = {n for n in named(machine, builtin=True) if n[0].startswith("d")}
    assert found >= {("d", "type"), ("d['a']", "equals"), ("d", "absent")}
    assert ("d", "keys") not in found and not any("'b'" in n for n, _ in found)


def test_iterating_a_dict_guards_its_keys():
    def f(d):
        return list(d)

    assert ("d", "keys") in named(facts(f, {"a": 1}))


def test_attributes_are_named_as_the_user_writes_them():
    layer = Layer(w=3, sub=Layer(w=4), items=[1])

    def f(self):
        return self.w + self.sub.w

    names = {f.source.name() for f in facts(f, layer).guards()}
    assert {"self", "self.w", "self.sub", "self.sub.w"} <= names


def test_none_checks_ask_only_for_that():
    def f(x):
        return 1 if x is None else 2

    assert {n for n in named(facts(f, 5)) if n[0] == "x"} == {("x", "is not")}
    assert {n for n in named(facts(f, None)) if n[0] == "x"} == {("x", "is")}


def test_truth_asks_only_for_that():
    def f(x):
        return 1 if x else 2

    for value in (5, 0.0, "a", [], {"a": 1}):
        assert {k for n, k in named(facts(f, value)) if n == "x"} == {"truth"}


def test_isinstance_asks_for_the_type():
    def f(x):
        return isinstance(x, int)

    assert {k for n, k in named(facts(f, 5)) if n == "x"} == {"type"}


def test_the_same_object_through_two_arguments_is_one_value():
    def f(a, b):
        a.append(1)
        return len(b)

    shared = [1]
    machine = facts(f, shared, shared)
    assert ("b", "alias") in named(machine)
    assert Machine().run(f, (shared, shared)) == 2


def test_objects_taken_for_different_ones_must_stay_different():
    def f(a, b):
        a.append(1)
        return len(b)

    machine = facts(f, [1], [1])
    assert hold(machine, {"a": [1], "b": [1]})
    shared = [1]
    assert not hold(machine, {"a": shared, "b": shared})

    def g(a, b):
        return len(a) + len(b)

    assert hold(facts(g, [1], [1]), {"a": shared, "b": shared}), "without writes it does not matter"


def test_reads_and_writes_of_a_sub_object_keep_their_source():
    def f(d):
        for x in d["list"]:
            d["out"].append(x + 1)

    machine = facts(f, {"list": [1, 2], "out": []})
    assert ("d['list'][1]", "equals") in named(machine)
    assert [e.target.source.name() for e in machine.effects] == ["d['out']"] * 2


def test_guards_are_asked_once():
    def f(n, xs):
        t = 0
        for _ in range(50):
            t += n + xs[0]
        return t

    machine = facts(f, 3, [1])
    assert len(machine.guards()) < 15


def world():
    return {
        "cfg": Config(scale=5, sub=Config(), items=[1, 2], w=2),
        "xs": [1, 2, 3],
        "d": {"a": 1, "b": [1]},
        "n": 4,
        "s": "text",
        "layer": Layer(w=3, items=[1]),
        "flag": True,
        "t": (1, 2),
        "st": {1, 2},
        "fn": double,
        "other": None,
        "pattern": re.compile("b+"),
        "part": functools.partial(double, 3),
        "ordered": {1, 9, 17},
        "queue": collections.deque([1, 2], maxlen=2),
        "pair": pair(),
    }


def f_attr(cfg):
    return cfg.scale * 2


def f_class_attr(cfg):
    return cfg.sub.scale + len(cfg.sub.mode)


def f_method(cfg):
    return cfg.factor() + cfg.sub.factor()


def f_list(xs):
    return sum(xs)


def f_list_length(xs):
    return len(xs) > 2


def f_dict(d):
    return d["a"] + len(d["b"])


def f_dict_iter(d):
    return [k + "" for k in d]


def f_dict_missing(d):
    return d.get("zz", 7)


def f_dict_in(d):
    return "b" in d


def f_number(n, s):
    return n * len(s)


def f_call(layer, n):
    return layer(n) + layer.size


def f_flag(flag, n):
    return n + 0 if flag else -n


def f_hasattr(cfg):
    return hasattr(cfg, "extra"), getattr(cfg, "nothing", 5)


def f_tuple(t):
    a, b = t
    return a - b


def f_set(st):
    return 5 in st, len(st)


def f_global(n):
    return n + LIMIT


def f_function(fn, n):
    return fn(n)


def f_is(cfg, other):
    return cfg is other, other is None


def f_identity(cfg, layer):
    return cfg.sub is layer


def f_type(other):
    return type(other).__name__


def f_alias(xs, d):
    d["b"].append(5)
    return len(xs) + len(d["b"])


def f_pattern(pattern):
    return pattern.search("abbc").span()


def f_partial(part):
    return part()


def f_set_order(ordered):
    return list(ordered)


def f_set_member(ordered):
    return 1 in ordered


def f_deque(queue):
    queue.append(5)
    return queue[0], len(queue)


def f_cells(pair):
    put, get = pair
    put(7)
    return get() + 1


def f_items_of_items(cfg):
    return [x + 1 for x in cfg.items if x]


FUNCTIONS = [value for name, value in list(globals().items()) if name.startswith("f_")]

CHANGES = {
    "scale": lambda w: setattr(w["cfg"], "scale", 6),
    "sub scale": lambda w: setattr(w["cfg"].sub, "scale", 9),
    "new attribute": lambda w: setattr(w["cfg"], "extra", 1),
    "attribute gone": lambda w: delattr(w["cfg"], "scale"),
    "instance method": lambda w: setattr(w["cfg"], "factor", lambda: 99),
    "sub is none": lambda w: setattr(w["cfg"], "sub", None),
    "sub is layer": lambda w: setattr(w["cfg"], "sub", w["layer"]),
    "items": lambda w: w["cfg"].items.append(5),
    "item changed": lambda w: w["cfg"].items.__setitem__(0, 0),
    "list longer": lambda w: w["xs"].append(4),
    "list item": lambda w: w["xs"].__setitem__(0, 50),
    "list is tuple": lambda w: w.update(xs=(1, 2, 3, 4)),
    "list shared": lambda w: w["d"].__setitem__("b", w["xs"]),
    "dict value": lambda w: w["d"].__setitem__("a", 9),
    "dict key": lambda w: w["d"].__setitem__("zz", 0),
    "dict key gone": lambda w: w["d"].pop("b"),
    "dict order": lambda w: w["d"].__setitem__("a", w["d"].pop("a")),
    "dict list": lambda w: w["d"]["b"].append(1),
    "number": lambda w: w.update(n=5),
    "number type": lambda w: w.update(n=4.0),
    "bool": lambda w: w.update(n=True),
    "text": lambda w: w.update(s="longer text"),
    "flag": lambda w: w.update(flag=0),
    "layer weight": lambda w: setattr(w["layer"], "w", 4),
    "layer items": lambda w: setattr(w["layer"], "items", []),
    "layer class": lambda w: w.update(layer=Config(w=1)),
    "tuple": lambda w: w.update(t=(2, 1)),
    "tuple longer": lambda w: w.update(t=(2, 1, 0)),
    "set": lambda w: w["st"].add(5),
    "function": lambda w: w.update(fn=lambda x: x + 100),
    "function default": lambda w: w.update(fn=lambda x, k=3: x * k),
    "other": lambda w: w.update(other=w["cfg"]),
    "other list": lambda w: w.update(other=[]),
    "class attribute": lambda w: setattr(Config, "scale", 3),
    "class method": lambda w: setattr(Config, "factor", lambda self: -1),
    "subclass method": lambda w: setattr(Layer, "__call__", lambda self, x: x),
    "class gets attribute": lambda w: setattr(Config, "nothing", 0),
    "property": lambda w: setattr(Layer, "size", 12),
    "global": lambda w: globals().update(LIMIT=8),
    "pattern": lambda w: w.update(pattern=re.compile("c")),
    "partial argument": lambda w: w.update(part=functools.partial(double, 4)),
    "partial more": lambda w: w.update(part=functools.partial(double, 3, 4)),
    "partial keyword": lambda w: w.update(part=functools.partial(double, x=3)),
    "set reordered": lambda w: w.update(ordered=reordered(w["ordered"])),
    "set member": lambda w: w["ordered"].discard(1),
    "deque wider": lambda w: w.update(queue=collections.deque([1, 2], maxlen=3)),
    "cells apart": lambda w: w.update(pair=(pair()[0], pair()[1])),
    "global function": lambda w: globals().update(len=lambda x: 77),
}


@pytest.fixture(autouse=True)
def classes_restored():
    kept = {cls: dict(vars(cls)) for cls in (Config, Layer)}
    yield
    globals().update(LIMIT=3)
    globals().pop("len", None)
    for cls, attrs in kept.items():
        for name in set(vars(cls)) - set(attrs):
            delattr(cls, name)
        for name, value in attrs.items():
            if not name.startswith("__") or name == "__call__":
                setattr(cls, name, value)


def call(function, w):
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    arguments = {n: w[n] for n in names}
    try:
        return repr(function(**arguments)), arguments
    except Exception as error:
        return repr(error), arguments


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_result_means_a_failed_guard(function, change):
    """Sound: where a change alters what a native run gives, some guard notices."""
    w = world()
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    machine = facts(function, *[w[n] for n in names])
    assert hold(machine, {n: w[n] for n in names}), "guards hold for the call they were made from"
    before, _ = call(function, world())
    CHANGES[change](w)
    arguments = {n: w[n] for n in names}
    held = hold(machine, arguments)
    after, _ = call(function, w)
    if after != before:
        assert not held, (change, before, after, machine.guards())


def test_guards_are_not_too_strict():
    """Precise: most changes do not concern most functions, and their guards still hold."""
    kept = total = 0
    for function in FUNCTIONS:
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        for change in list(CHANGES)[:32]:
            w = world()
            machine = facts(function, *[w[n] for n in names])
            before, _ = call(function, world())
            CHANGES[change](w)
            held = hold(machine, {n: w[n] for n in names})
            after, _ = call(function, w)
            if after == before:
                total += 1
                kept += held
    assert kept / total > 0.9


def test_expressions_read_what_read_reads():
    w = world()
    bound = {}

    def bind(obj, hint):
        name = f"k{len(bound)}"
        bound[name] = obj
        return name

    seen = set()
    for function in FUNCTIONS:
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        machine = facts(function, *[w[n] for n in names])
        arguments = {n: w[n] for n in names}
        for fact in machine.guards():
            seen.add(fact.source.kind)
            expression = fact.source.expr(bind)
            value = eval(expression, {**bound, **arguments})
            assert value is fact.source.read(arguments) or value == fact.source.read(arguments)
    assert {"local", "attr", "item", "global", "const", "entry"} <= seen


def test_closures_and_defaults_have_sources():
    scale = 3
    box = [1]

    def f(x, y=2, *, z=4):
        return x + y + z + scale + box[0]

    machine = facts(f, 1)
    names = {fact.source.name() for fact in machine.guards()}
    assert {"x", "f.__defaults__[0]", "f.__kwdefaults__['z']", "scale", "box[0]"} <= names
    kinds = {fact.source.kind for fact in machine.guards()}
    assert {"default", "kwdefault", "cell"} <= kinds
    assert hold(machine, {"x": 1})
    scale = 4
    assert not hold(machine, {"x": 1})


def test_sources_compare_and_hash_by_path():
    a = local("x").attr("w").item(3)
    assert a == Source("item", Source("attr", Source("local", None, "x"), "w"), 3)
    assert hash(a) == hash(local("x").attr("w").item(3)) and a.name() == "x.w[3]"
    assert const(a, "here") != const(types.SimpleNamespace(), "here")
