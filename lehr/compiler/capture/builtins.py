"""Models of C functions and classes: real callable -> how the machine calls it.

`MODELS` is open: `@model(f, ...)` adds a row, a machine may extend its own copy.  A model is
written like the function it stands for; calls with the wrong number of arguments go to the real one
for the text of the error.
"""
from __future__ import annotations

import _thread
import builtins as python
import collections
import dataclasses
import functools
import itertools
import operator
import os
import sys
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .iterators import (
    CallIterator,
    ChainIterator,
    CountIterator,
    EnumerateIterator,
    FilterIterator,
    MapIterator,
    RepeatIterator,
    SequenceIterator,
    StarmapIterator,
    ZipIterator,
)
from .mapping import DictValue
from .objects import CellValue, ClassValue, MethodValue, ModuleValue
from .polyfill import POLYFILLS
from .sets import SetValue
from .source import Source, const
from .value import NULL, Const, Known, Value, arity

if TYPE_CHECKING:
    from .machine import Machine

Model = Callable[[Any, list[Value], dict[str, Value]], Value]
MODELS: dict[Any, Model] = {}
# Parameters of C functions that may be given by name though they are positional.
KEYWORDS: dict[Any, tuple[str, ...]] = {
    enumerate: ("iterable", "start"), sum: ("start",), round: ("number", "ndigits"),
    pow: ("base", "exp", "mod"), itertools.count: ("start", "step"),
    itertools.repeat: ("object", "times"), str: ("object",),
}


def model(*reals: Any) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Adds a model: a function `(machine, *arguments)`."""
    def add(function: Callable[..., Value]) -> Callable[..., Value]:
        for real in reals:
            MODELS[real] = checked(function, real)
        return function
    return add


def checked(function: Callable[..., Value], real: Any) -> Model:
    limits = arity(function, skip=1)
    if limits.names is not None:
        positional = function.__code__.co_varnames[:function.__code__.co_argcount]
        allowed = limits.names.difference(positional).union(KEYWORDS.get(real, ()))
        limits = limits._replace(names=allowed)

    def run(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if not limits.accepts(len(args), kwargs):
            m.native_op(real, *([None] * len(args)), **dict.fromkeys(kwargs))
            m.stop("unmodelled", f"{real.__name__} with these arguments")
        return function(m, *args, **kwargs)
    return run


# -- types and attributes


@model(isinstance)
def isinstance_(m: Machine, value: Value, kinds: Value) -> Value:
    return Const(any(check_instance(m, value, kind) for kind in m.classes(kinds)))


def check_instance(m: Machine, value: Value, kind: Any) -> bool:
    if isinstance(kind, type):
        found = m.class_value(kind)
        assert isinstance(found, ClassValue)
        return m.is_instance(value, found)
    return check_other(m, kind, "__instancecheck__", value, "isinstance() arg 2 must be a type, a"
                                                            " tuple of types, or a union")


@model(issubclass)
def issubclass_(m: Machine, cls: Value, kinds: Value) -> Value:
    kind = m.class_of(cls)
    if kind is None:
        m.error(TypeError, "issubclass() arg 1 must be a class")
    return Const(any(check_subclass(m, cls, kind, other) for other in m.classes(kinds)))


def check_subclass(m: Machine, cls: Value, kind: Any, other: Any) -> bool:
    if isinstance(other, type):
        found = m.class_value(other)
        assert isinstance(found, ClassValue)
        return m.is_subclass(kind, found)
    return check_other(m, other, "__subclasscheck__", cls, "issubclass() arg 2 must be a class, a"
                                                           " tuple of classes, or a union")


def check_other(m: Machine, kind: Value, hook: str, value: Value, text: str) -> bool:
    """Aliases of `typing` and the like bring their own check."""
    found = m.special(kind, hook, [value])
    return m.error(TypeError, text) if found is None else m.truth(found)


@model(type)
def type_(m: Machine, /, *args: Value, **kwargs: Value) -> Value:
    if len(args) == 1 and not kwargs:
        return m.class_value(m.type_of(args[0]))
    if len(args) != 3:
        m.error(TypeError, "type() takes 1 or 3 arguments")
    kind = m.class_value(m.find_meta(tuple(m.class_of(b) for b in m.iterate(args[1])), None))
    return m.make_class(kind, args[0], args[1], args[2], kwargs)


@model(getattr)
def getattr_(m: Machine, owner: Value, name: Value, default: Value | None = None) -> Value:
    title = attribute_name(m, name)
    if default is None:
        return m.getattr(owner, title)
    found = m.find_attr(owner, title)
    return default if found is None else found


def attribute_name(m: Machine, name: Value) -> str:
    if not issubclass(m.type_of(name), str):
        m.error(TypeError, f"attribute name must be string, not {m.type_name(name)!r}")
    return m.text(name)


@model(hasattr)
def hasattr_(m: Machine, owner: Value, name: Value) -> Value:
    return Const(m.find_attr(owner, attribute_name(m, name)) is not None)


@model(setattr)
def setattr_(m: Machine, owner: Value, name: Value, value: Value) -> Value:
    m.setattr(owner, attribute_name(m, name), value)
    return Const(None)


@model(delattr)
def delattr_(m: Machine, owner: Value, name: Value) -> Value:
    m.setattr(owner, attribute_name(m, name), None)
    return Const(None)


@model(callable)
def callable_(m: Machine, value: Value) -> Value:
    return Const(m.callable(value))


@model(vars)
def vars_(m: Machine, owner: Value | None = None) -> Value:
    if owner is None:
        return locals_(m)
    found = m.find_attr(owner, "__dict__")
    if found is None:
        m.error(TypeError, "vars() argument must have __dict__ attribute")
    assert found is not None
    return found


@model(dir)
def dir_(m: Machine, owner: Value | None = None) -> Value:
    if owner is None:
        names = sorted(m.text(k) for k in m.iterate(locals_(m)))
        return m.list_value([Const(n) for n in names])
    owner = owner.force(m)
    hook = m.lookup(owner.type_, "__dir__")
    if not isinstance(hook, Known) or isinstance(owner, Known):
        names_given = list(m.iterate(m.call_method(owner, "__dir__", [])))
        return m.list_value(m.sorted(names_given, None, None))
    found: set[str] = set()
    if not isinstance(owner, ModuleValue):
        cls = owner.real if isinstance(owner, ClassValue) else owner.type_
        for base in cls.__mro__:
            found |= set(m.class_space(m.class_value(base)).shown.values_of(m))  # type: ignore
    attrs = m.attrs_of(owner)
    if attrs is not None:
        found |= {k for k in attrs.values_of(m) if isinstance(k, str)}
    return m.list_value([Const(n) for n in sorted(found)])


@model(id)
def id_(m: Machine, value: Value) -> Value:
    """Only good for telling objects apart within one call."""
    value = value.force(m)
    if isinstance(value, Const):
        return Const(id(value.value))
    if value.real is not None:
        m.guard(value.source, "is", value.real)
        return Const(id(value.real))
    m.kept.append(value)
    return Const(id(value))


@model(super)
def super_(m: Machine, /, *args: Value) -> Value:
    if not args:
        return m.zero_super()
    if len(args) > 2:
        m.native_op(super, *([None] * len(args)))
    return m.make_super(args[0], args[1] if len(args) > 1 else None)


# -- numbers, text, truth


@model(bool)
def bool_(m: Machine, value: Value | None = None) -> Value:
    return Const(False if value is None else m.truth(value))


def number(kind: type, methods: tuple[str, ...]) -> Callable[..., Value]:
    """`int`, `float` or `complex` of one value: the first of its methods, else C code."""
    def convert(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if len(args) == 1 and not kwargs:
            value = args[0].force(m)
            if not isinstance(value, Const):
                for name in methods:
                    found = m.special(value, name, [])
                    if found is not None:
                        return Const(m.native_op(kind, found.constant(m)))
        made = m.fold(kind, args, kwargs)
        return m.stop("unmodelled", f"{kind.__name__}() of this object") if made is None else made
    return convert


MODELS[int] = number(int, ("__int__", "__index__", "__trunc__"))
MODELS[float] = number(float, ("__float__", "__index__"))
MODELS[complex] = number(complex, ("__complex__", "__float__", "__index__"))


@model(str)
def str_(m: Machine, /, *args: Value, **kwargs: Value) -> Value:
    if len(args) == 1 and not kwargs:
        return m.str_of(args[0])
    return pure(m, str, args, kwargs)


@model(bytes)
def bytes_(m: Machine, /, *args: Value, **kwargs: Value) -> Value:
    if len(args) == 1 and not kwargs and not isinstance(args[0].force(m), Const):
        found = m.special(args[0], "__bytes__", [])
        if found is not None:
            if not issubclass(m.type_of(found), bytes):
                m.error(TypeError, f"__bytes__ returned non-bytes (type {m.type_name(found)})")
            return found
        args = (m.list_value(list(m.iterate(args[0]))),)
    return pure(m, bytes, args, kwargs)


def pure(m: Machine, function: Any, args: Any, kwargs: Any) -> Value:
    made = m.fold(function, list(args), kwargs)
    return m.stop("native-call", function.__name__) if made is None else made


@model(repr)
def repr_(m: Machine, value: Value) -> Value:
    return m.repr(value)


@model(ascii)
def ascii_(m: Machine, value: Value) -> Value:
    return m.ascii(value)


@model(format)
def format_(m: Machine, value: Value, spec: Value | None = None) -> Value:
    return m.format(value, Const("") if spec is None else spec)


@model(hash)
def hash_(m: Machine, value: Value) -> Value:
    return Const(m.hash(value))


@model(abs)
def abs_(m: Machine, value: Value) -> Value:
    found = m.special(value, "__abs__", [])
    if found is None:
        m.error(TypeError, f"bad operand type for abs(): {m.type_name(value)!r}")
    assert found is not None
    return found


@model(round)
def round_(m: Machine, number: Value, ndigits: Value | None = None) -> Value:
    args = [] if ndigits is None else [ndigits]
    found = m.special(number, "__round__", args)
    if found is None:
        name = m.type_name(number)
        m.error(TypeError, f"type {name} doesn't define __round__ method")
    assert found is not None
    return found


@model(divmod)
def divmod_(m: Machine, left: Value, right: Value) -> Value:
    return m.binary("divmod()", left, right)


@model(pow)
def pow_(m: Machine, base: Value, exp: Value, mod: Value | None = None) -> Value:
    if mod is None or m.is_none(mod):
        return m.binary("**", base, exp)
    if not isinstance(base.force(m), Const):
        found = m.special(base, "__pow__", [exp, mod])
        if found is not None:
            return found
    return pure(m, pow, [base, exp, mod], {})


@model(len)
def len_(m: Machine, value: Value) -> Value:
    return Const(m.length(value))


@model(range)
def range_(m: Machine, /, *args: Value) -> Value:
    return Const(m.native_op(range, *[m.index(a) for a in args]))


@model(slice)
def slice_(m: Machine, /, *args: Value) -> Value:
    if not 1 <= len(args) <= 3:
        m.native_op(slice, *([None] * len(args)))
    return m.make_slice([Const(None), args[0]] if len(args) == 1 else list(args))


# -- iteration


@model(iter)
def iter_(m: Machine, value: Value, sentinel: Value | None = None) -> Value:
    if sentinel is None:
        return m.iter(value)
    if not m.callable(value):
        m.error(TypeError, "iter(v, w): v must be callable")
    return CallIterator(value, sentinel)


@model(next)
def next_(m: Machine, iterator: Value, default: Value | None = None) -> Value:
    if m.lookup(m.type_of(iterator), "__next__") is None:
        m.error(TypeError, f"{m.type_name(iterator)!r} object is not an iterator")
    if default is None:
        return m.call_method(iterator, "__next__", [])
    found = m.next(iterator)
    return default if found is None else found


@model(reversed)
def reversed_(m: Machine, value: Value) -> Value:
    found = m.special(value, "__reversed__", [])
    if found is not None:
        return found
    kind = m.type_of(value)
    if m.lookup(kind, "__getitem__") is None or m.lookup(kind, "__len__") is None:
        m.error(TypeError, f"{kind.__name__!r} object is not reversible")
    return SequenceIterator(value.force(m), m.length(value) - 1, -1)


@model(enumerate)
def enumerate_(m: Machine, iterable: Value, start: Value | None = None) -> Value:
    return EnumerateIterator(m.iter(iterable), 0 if start is None else m.index(start))


@model(zip)
def zip_(m: Machine, *iterables: Value, strict: Value | None = None) -> Value:
    inner = []
    for i, iterable in enumerate(iterables):
        if not m.iterable(iterable):
            m.error(TypeError, f"{m.type_name(iterable)!r} object is not iterable")
        inner.append(m.iter(iterables[i]))
    return ZipIterator(inner, strict is not None and m.truth(strict))


@model(map)
def map_(m: Machine, function: Value, *iterables: Value) -> Value:
    if not iterables:
        m.error(TypeError, "map() must have at least two arguments.")
    return MapIterator(function, [m.iter(i) for i in iterables])


@model(filter)
def filter_(m: Machine, function: Value, iterable: Value) -> Value:
    return FilterIterator(function, m.iter(iterable), True, filter)


@model(any)
def any_(m: Machine, iterable: Value) -> Value:
    return Const(any(m.truth(v) for v in m.iterate(iterable)))


@model(all)
def all_(m: Machine, iterable: Value) -> Value:
    return Const(all(m.truth(v) for v in m.iterate(iterable)))


@model(sum)
def sum_(m: Machine, iterable: Value, start: Value | None = None) -> Value:
    total = Const(0) if start is None else start
    if m.type_of(total) in (str, bytes):
        m.native_op(sum, [], total.constant(m))
    run: list[Any] = []     # numbers in a row are left to C code, which compensates floats
    for item in m.iterate(iterable):
        item = item.force(m)
        if is_number(item) and is_number(total):
            run.append(item.value)  # type: ignore[attr-defined]
            continue
        total = m.binary("+", sum_run(total, run), item)
        run = []
    return sum_run(total, run)


def is_number(value: Value) -> bool:
    return isinstance(value, Const) and type(value.value) in (int, float, bool)


def sum_run(total: Value, run: list[Any]) -> Value:
    return Const(sum(run, total.value)) if run else total  # type: ignore[attr-defined]


def extreme(name: str, symbol: str, real: Any) -> None:
    """`min` and `max`."""
    def find(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        key, default = kwargs.pop("key", None), kwargs.pop("default", None)
        if kwargs or not args:
            m.native_op(real, *([0] * len(args)), **dict.fromkeys(kwargs))
        if len(args) > 1 and default is not None:
            m.error(TypeError, f"Cannot specify a default for {name}() with multiple positional"
                               " arguments")
        if key is not None and m.is_none(key):
            key = None
        best = rank = None
        for item in m.iterate(args[0]) if len(args) == 1 else args:
            mark = item if key is None else m.call(key, [item])
            if rank is None or m.truth(m.compare(symbol, mark, rank)):
                best, rank = item, mark
        if best is None:
            best = default
        if best is None:
            m.error(ValueError, EMPTY.format(name))
        assert best is not None
        return best
    MODELS[real] = find


def empty_text() -> str:
    """The words changed between versions."""
    try:
        min([])
    except ValueError as error:
        return str(error).replace("min", "{}")
    raise AssertionError("unreachable")


EMPTY = empty_text()
extreme("min", "<", min)
extreme("max", ">", max)


@model(sorted)
def sorted_(m: Machine, iterable: Value, *, key: Value | None = None,
            reverse: Value | None = None) -> Value:
    return m.list_value(m.sorted(list(m.iterate(iterable)), key, reverse))


# -- scopes and classes


@model(globals)
def globals_(m: Machine) -> Value:
    assert m.frame is not None
    return m.frame.globals


@model(locals)
def locals_(m: Machine) -> Value:
    frame = m.frame
    assert frame is not None
    if frame.names is not None:
        return frame.names
    made: dict[Any, Value] = {}
    for name, value in zip(frame.program.slots, frame.slots, strict=True):
        if value is not None and value is not NULL:
            content = value.read(m) if isinstance(value, CellValue) else value
            if content is not None:
                made[name] = content
    return m.dict_value(made)


@model(python.__build_class__)
def build_class(m: Machine, /, *args: Value, **kwargs: Value) -> Value:
    return m.build_class(list(args), kwargs)


def refuse(code: str, *reals: Any) -> None:
    def stop(m: Machine, args: list[Value], kwargs: dict[str, Value], name: str) -> Value:
        return m.stop(code, name)
    for real in reals:
        MODELS[real] = functools.partial(stop, name=real.__name__)


refuse("execute", eval, exec, compile)


@model(sys._getframe)
def get_frame(m: Machine, depth: Value | None = None) -> Value:
    """A break, but for `typing_extensions`, which asks who called it and takes a missing frame for
    an answer: programs that import it subscript generic classes through that.
    """
    code = None if m.frame is None else m.frame.code
    if code is not None and code.co_name == "_has_generic_or_protocol_as_origin" and (
            os.path.basename(code.co_filename) == "typing_extensions.py"):
        return m.error(ValueError, "call stack is not deep enough")  # type: ignore[no-any-return]
    return m.stop("frame-access", "_getframe")


@model(sys.exc_info)
def exc_info(m: Machine) -> Value:
    fault = m.handled()
    if fault is None:
        return m.tuple_value([Const(None)] * 3)
    trace = m.getattr(fault, "__traceback__")
    return m.tuple_value([m.class_value(fault.type_), fault, trace])


@model(sys.exception)
def exception(m: Machine) -> Value:
    return m.handled() or Const(None)


@model(sys.intern)
def intern(m: Machine, text: Value) -> Value:
    return text


@model(dict.__dict__["fromkeys"])
def fromkeys(m: Machine, cls: Value, iterable: Value, value: Value | None = None) -> Value:
    made = m.call(cls, [])
    source = iterable.force(m)
    if type(made) is DictValue and made.type_ is dict and isinstance(source, (DictValue, SetValue)):
        for raw in SetValue().others(m, (source,))[0]:      # keys that are hashed already
            made.put(m, raw, value or Const(None))
        return made
    for key in m.iterate(iterable):
        m.setitem(made, key, value or Const(None))
    return made


# -- operator, functools, itertools: what other modules model goes through the machine


for _symbol, _function in (
        ("+", operator.add), ("-", operator.sub), ("*", operator.mul), ("/", operator.truediv),
        ("//", operator.floordiv), ("%", operator.mod), ("**", operator.pow),
        ("@", operator.matmul), ("&", operator.and_), ("|", operator.or_), ("^", operator.xor),
        ("<<", operator.lshift), (">>", operator.rshift)):
    model(_function)(lambda m, a, b, op=_symbol: m.binary(op, a, b))
for _symbol, _function in (
        ("<", operator.lt), ("<=", operator.le), ("==", operator.eq), ("!=", operator.ne),
        (">", operator.gt), (">=", operator.ge)):
    model(_function)(lambda m, a, b, op=_symbol: m.compare(op, a, b))
for _symbol, _function in (
        ("+", operator.iadd), ("-", operator.isub), ("*", operator.imul),
        ("/", operator.itruediv), ("//", operator.ifloordiv), ("%", operator.imod),
        ("**", operator.ipow), ("@", operator.imatmul), ("&", operator.iand),
        ("|", operator.ior), ("^", operator.ixor)):
    model(_function)(lambda m, a, b, op=_symbol: m.inplace(op, a, b))
for _symbol, _unary in (("-", operator.neg), ("+", operator.pos), ("~", operator.invert),
                        ("not", operator.not_)):
    model(_unary)(lambda m, a, op=_symbol: m.unary(op, a))


@model(operator.getitem)
def operator_getitem(m: Machine, whole: Value, index: Value) -> Value:
    return m.getitem(whole, index)


@model(operator.setitem)
def operator_setitem(m: Machine, whole: Value, index: Value, value: Value) -> Value:
    m.setitem(whole, index, value)
    return Const(None)


@model(operator.delitem)
def operator_delitem(m: Machine, whole: Value, index: Value) -> Value:
    m.delitem(whole, index)
    return Const(None)


@model(operator.contains)
def operator_contains(m: Machine, whole: Value, item: Value) -> Value:
    return Const(m.contains(whole, item))


@model(operator.truth)
def operator_truth(m: Machine, value: Value) -> Value:
    return Const(m.truth(value))


@model(operator.is_)
def operator_is(m: Machine, left: Value, right: Value) -> Value:
    return Const(m.identical(left, right))


@model(operator.is_not)
def operator_is_not(m: Machine, left: Value, right: Value) -> Value:
    return Const(not m.identical(left, right))


@model(operator.index)
def operator_index(m: Machine, value: Value) -> Value:
    return Const(m.index(value))


@model(operator.length_hint)
def length_hint(m: Machine, value: Value, default: Value | None = None) -> Value:
    if m.lookup(m.type_of(value), "__len__") is not None:
        return Const(m.length(value))
    found = m.special(value, "__length_hint__", [])
    found = None if found is None else found.force(m)
    if found is None or isinstance(found, Const) and found.value is NotImplemented:
        return Const(0) if default is None else default
    return found


@model(functools.reduce)
def reduce(m: Machine, function: Value, iterable: Value, initial: Value | None = None) -> Value:
    total = initial
    for item in m.iterate(iterable):
        total = item if total is None else m.call(function, [total, item])
    if total is None:
        m.error(TypeError, "reduce() of empty iterable with no initial value")
    assert total is not None
    return total


@model(itertools.chain)
def chain(m: Machine, *iterables: Value) -> Value:
    return ChainIterator(m.iter(m.tuple_value(list(iterables))))


@model(itertools.chain.__dict__["from_iterable"])
def chain_from_iterable(m: Machine, cls: Value, iterable: Value) -> Value:
    return ChainIterator(m.iter(iterable))


@model(itertools.count)
def count(m: Machine, start: Value | None = None, step: Value | None = None) -> Value:
    return CountIterator(start or Const(0), step or Const(1))


@model(itertools.repeat)
def repeat(m: Machine, object: Value, times: Value | None = None) -> Value:
    return RepeatIterator(object, None if times is None else m.index(times))


@model(itertools.starmap)
def starmap(m: Machine, function: Value, iterable: Value) -> Value:
    return StarmapIterator(function, [m.iter(iterable)])


@model(itertools.filterfalse)
def filterfalse(m: Machine, function: Value, iterable: Value) -> Value:
    return FilterIterator(function, m.iter(iterable), False, itertools.filterfalse)


def cached_call(m: Machine, function: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A function under `functools.lru_cache`: run once per arguments and capture.

    Whether the real cache holds the result is not known to later calls, so the function must be
    free of effects.
    """
    wrapped = m.part(function.real.__wrapped__, function.source, "__wrapped__")
    every = [*args, *kwargs.values()]
    key = (tuple(v.key(m) for v in every), tuple(m.type_of(v) for v in every), tuple(kwargs))
    cache = m.caches.setdefault(function.real, {})
    if key not in cache:
        before = len(m.effects)
        cache[key] = m.call(wrapped, args, kwargs)
        if len(m.effects) != before:
            m.stop("cached-effects", function.real.__name__)
    return cache[key]


@model(_thread.get_ident)
def get_ident(m: Machine) -> Value:
    found = _thread.get_ident()
    m.guard(const(_thread.get_ident, "get_ident"), "returns", found)
    return Const(found)


def process_class(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return m.native_on_class(dataclasses._process_class, args, kwargs)  # type: ignore[attr-defined]


MODELS[dataclasses._process_class] = process_class  # type: ignore[attr-defined]


def call_alias(m: Machine, function: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A call of `list[int]`: the class is called, the alias is noted where that is possible."""
    made = m.call(m.fresh(function.real.__origin__), args, kwargs)
    name = Const("__orig_class__")
    m.catching((AttributeError, TypeError), lambda: setattr_(m, made, name, function))
    return made


def interpreted(function: Callable[..., Any]) -> Model:
    return lambda m, args, kwargs: m.call(m.wrap(function, None), args, kwargs)


for _real, _polyfill in POLYFILLS.items():
    MODELS[_real] = interpreted(_polyfill)


def call_weakref(m: Machine, function: Known, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A weak reference that existed before the call: what it refers to."""
    source = None if function.source is None else Source("call", function.source)
    return m.lazy(function.real(), source)


# Type of a C callable -> how its objects are called.
CALLABLES: dict[type, Callable[[Any, Known, list[Value], dict[str, Value]], Value]] = {
    weakref.ReferenceType: call_weakref,
    functools._lru_cache_wrapper: cached_call, types.GenericAlias: call_alias,
}


@model(type({}.keys()).__dict__["isdisjoint"])
def isdisjoint(m: Machine, view: Value, other: Value) -> Value:
    return m.call_method(m.set_value(m.iterate(view)), "isdisjoint", [other])


def native_class_call(m: Machine, args: list[Value], kwargs: dict[str, Value], real: Any) -> Value:
    """A function that makes a class from constants: `collections.namedtuple`."""
    made = m.native_op(real, *[a.constant(m) for a in args],
                       **{k: v.constant(m) for k, v in kwargs.items()})
    if m.frame is not None and "module" not in kwargs:
        name = m.frame.globals.find(m, "__name__")
        made.__module__ = None if name is None else name.constant(m)
    value = m.class_value(made)
    m.fresh_classes[made] = value
    m.born(value)
    return value


MODELS[collections.namedtuple] = functools.partial(native_class_call, real=collections.namedtuple)


def type_call(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    cls = args[0].force(m)
    if not isinstance(cls, ClassValue):
        return m.error(TypeError, "descriptor '__call__' requires a 'type' object")
    return m.construct(cls, args[1:], kwargs)


MODELS[type.__call__] = type_call


@model(types.MethodType)
def method_type(m: Machine, function: Value, owner: Value) -> Value:
    if not m.callable(function):
        m.error(TypeError, "first argument must be callable")
    return MethodValue(function.force(m), owner)


@model(types.MappingProxyType)
def mapping_proxy(m: Machine, whole: Value) -> Value:
    whole = whole.force(m)
    if not isinstance(whole, DictValue) or whole.type_ is not dict:
        return m.stop("native-new", "mappingproxy of this object")
    return m.proxy(whole)
