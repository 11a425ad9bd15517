"""Steps of control flow: jumps, loops, generators, calls, exceptions, contexts, `match`.

The table CONTROL, beside STEPS of steps.py.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .fault import FaultValue, Raised
from .frame import Frame
from .generator import Finished, GeneratorValue
from .mapping import DictValue
from .objects import ClassValue, FunctionValue
from .sequence import TupleValue
from .steps import Step, table
from .value import NULL, Const, Handled, Value

if TYPE_CHECKING:
    from .machine import Machine

CONTROL: dict[str, Step] = {}
step = table(CONTROL)

# -- jumps and loops


@step("JUMP")
def jump(m: Machine, f: Frame, target: int) -> None:
    f.next = target


@step("JUMP_TRUE")
def jump_true(m: Machine, f: Frame, target: int) -> None:
    value = f.stack.pop()
    if value.value if value.__class__ is Const else m.truth(value):
        f.next = target


@step("JUMP_FALSE")
def jump_false(m: Machine, f: Frame, target: int) -> None:
    value = f.stack.pop()
    if not (value.value if value.__class__ is Const else m.truth(value)):
        f.next = target


@step("JUMP_NONE")
def jump_none(m: Machine, f: Frame, target: int) -> None:
    if m.is_none(f.stack.pop()):
        f.next = target


@step("JUMP_NOT_NONE")
def jump_not_none(m: Machine, f: Frame, target: int) -> None:
    if not m.is_none(f.stack.pop()):
        f.next = target


@step("GET_ITER")
def get_iter(m: Machine, f: Frame, arg: Any) -> None:
    f.stack[-1] = m.iter(f.stack[-1])


@step("FOR_ITER")
def for_iter(m: Machine, f: Frame, target: int) -> None:
    found = m.next(f.stack[-1])
    if found is None:
        f.stack.pop()
        f.next = target
    else:
        f.stack.append(found)


@step("RETURN")
def return_(m: Machine, f: Frame, arg: Any) -> Value:
    return f.stack.pop()


@step("RETURN_GENERATOR")
def return_generator(m: Machine, f: Frame, arg: Any) -> Value:
    f.generator = GeneratorValue(f)
    if f.code.co_exceptiontable:
        m.born(f.generator)
        m.generators.append(f.generator)
    return f.generator


@step("YIELD")
def yield_(m: Machine, f: Frame, arg: Any) -> Value:
    f.yielded = True
    return f.stack.pop()


@step("GET_YIELD_ITER")
def get_yield_iter(m: Machine, f: Frame, arg: Any) -> None:
    f.stack[-1] = m.iter(f.stack[-1])


@step("SEND")
def send(m: Machine, f: Frame, arg: tuple[int, bool]) -> None:
    target, drop = arg
    sent, inner = f.stack.pop(), f.stack[-1]
    try:
        f.stack.append(send_into(m, inner, sent))
    except Finished as finished:
        if drop:
            f.stack[-1] = finished.value
        else:
            f.stack.append(finished.value)
        f.next = target


def send_into(m: Machine, inner: Value, sent: Value) -> Value:
    if isinstance(inner, GeneratorValue):
        return inner.resume(m, sent)
    try:
        if m.is_none(sent):
            return m.call_method(inner, "__next__", [])
        return m.call(m.getattr(inner, "send"), [sent])
    except Raised as raised:
        if not issubclass(raised.value.type_, StopIteration):
            raise
        value = m.getattr(raised.value, "value")
    raise Finished(value)


@step("END_SEND")
def end_send(m: Machine, f: Frame, arg: Any) -> None:
    value = f.stack.pop()
    f.stack[-1] = value


# -- calls


@step("CALL")
def call(m: Machine, f: Frame, arg: tuple[int, tuple[str, ...] | None]) -> None:
    count, names = arg
    stack = f.stack
    args = stack[len(stack) - count:]
    high, low = stack[-count - 1], stack[-count - 2]
    del stack[-count - 2:]
    if low is NULL:
        function = high
    elif high is NULL:
        function = low
    else:
        function = low
        args.insert(0, high)
    kwargs: dict[str, Value] = {}
    if names:
        kwargs = dict(zip(names, args[-len(names):], strict=True))
        del args[-len(names):]
    stack.append(function.invoke(m, args, kwargs))


@step("CALL_KW")
def call_kw(m: Machine, f: Frame, count: int) -> None:
    names = f.stack.pop().constant(m)
    call(m, f, (count, names))


@step("CALL_EX")
def call_ex(m: Machine, f: Frame, has_kwargs: int) -> None:
    stack = f.stack
    named = stack.pop().force(m) if has_kwargs else None
    given = stack.pop()
    low, high = stack[-2:]
    del stack[-2:]
    function = high if low is NULL else low
    args = star_args(m, function, given)
    kwargs: dict[str, Value] = {}
    if named is not None:
        for key, value in DictValue().items_of(m, named):
            if type(key) is not str:
                m.error(TypeError, "keywords must be strings")
            kwargs[key] = value
    stack.append(function.invoke(m, args, kwargs))


def star_args(m: Machine, function: Value, given: Value) -> list[Value]:
    if not m.iterable(given):
        m.error(TypeError, f"{m.callee_name(function)} argument after * must be an iterable, not"
                           f" {m.type_name(given)}")
    return list(m.iterate(given))


@step("MAKE_FUNCTION")
def make_function(m: Machine, f: Frame, flags: int) -> None:
    code = f.stack.pop()
    made = FunctionValue(code.value, f.globals)
    for flag in (8, 4, 2, 1):
        if flags & flag:
            FUNCTION_PARTS[flag](m, made, f.stack.pop().force(m))
    f.stack.append(made)


@step("SET_FUNCTION")
def set_function(m: Machine, f: Frame, flag: int) -> None:
    made = f.stack.pop()
    FUNCTION_PARTS[flag](m, made, f.stack.pop().force(m))
    f.stack.append(made)


def set_defaults(m: Machine, made: FunctionValue, value: Any) -> None:
    made.defaults = tuple(value.parts(m))


def set_kwdefaults(m: Machine, made: FunctionValue, value: Any) -> None:
    made.kwdefaults = dict(value.values_of(m))


def set_annotations(m: Machine, made: FunctionValue, value: Any) -> None:
    """A tuple of names and annotations that stands for a dict, or the dict itself."""
    value = value.force(m)
    if isinstance(value, TupleValue):
        parts = value.parts(m)
        value = m.dict_value({m.text(k): v for k, v in zip(parts[::2], parts[1::2], strict=True)})
    made.fields["__annotations__"] = value


def set_closure(m: Machine, made: FunctionValue, value: Any) -> None:
    made.closure = tuple(value.parts(m))


FUNCTION_PARTS: dict[int, Callable[[Any, FunctionValue, Any], None]] = {
    1: set_defaults, 2: set_kwdefaults, 4: set_annotations, 8: set_closure}


@step("BUILD_CLASS")
def build_class(m: Machine, f: Frame, arg: Any) -> None:
    f.stack.append(m.build_class_value)


# -- exceptions and contexts


def as_fault(m: Machine, value: Value, what: str) -> FaultValue:
    """The operand of `raise`: an instance, or a class that is called."""
    value = value.force(m)
    if isinstance(value, ClassValue) and issubclass(value.real, BaseException):
        made = m.call(value, []).force(m)
        if not isinstance(made, FaultValue):
            name = m.type_name(made)
            m.error(TypeError, f"calling {m.repr_text(value)} should have returned an instance of"
                               f" BaseException, not <class {name!r}>")
        return made  # type: ignore[return-value]
    if not isinstance(value, FaultValue):
        m.error(TypeError, what)
    return value  # type: ignore[return-value]


@step("RAISE")
def raise_(m: Machine, f: Frame, count: int) -> None:
    if not count:
        current = m.handled()
        if current is None:
            m.error(RuntimeError, "No active exception to reraise")
        assert current is not None
        raise Raised(current, again=True)
    cause = f.stack.pop() if count == 2 else None
    fault = as_fault(m, f.stack.pop(), "exceptions must derive from BaseException")
    if cause is not None:
        fault.set_link(m, "cause", None if m.is_none(cause) else as_fault(
            m, cause, "exception causes must derive from BaseException"))
    m.set_context(fault)
    raise Raised(fault)


@step("RERAISE")
def reraise(m: Machine, f: Frame, arg: int) -> None:
    raise Raised(f.stack.pop(), again=True)


@step("PUSH_EXC")
def push_exc(m: Machine, f: Frame, arg: Any) -> None:
    fault = f.stack[-1]
    f.stack[-1] = Handled(m.handling[-1])
    f.stack.append(fault)
    m.handling[-1] = fault


@step("POP_EXC")
def pop_exc(m: Machine, f: Frame, arg: Any) -> None:
    m.handling[-1] = f.stack.pop().previous


@step("CHECK_EXC")
def check_exc(m: Machine, f: Frame, arg: Any) -> None:
    f.stack[-1] = Const(m.matches(f.stack[-2], f.stack[-1]))


@step("CHECK_GROUP", "PREP_RERAISE_STAR")
def check_group(m: Machine, f: Frame, arg: Any) -> None:
    m.stop("unmodelled", "except*")


@step("WITH")
def with_(m: Machine, f: Frame, arg: Any) -> None:
    manager = f.stack[-1].force(m)
    kind = manager.type_of(m)
    enter, leave = m.lookup(kind, "__enter__"), m.lookup(kind, "__exit__")
    if enter is None or leave is None:
        protocol = "context manager protocol"
        missing = "" if enter is None else " (missed __exit__ method)"
        m.error(TypeError, f"{kind.__name__!r} object does not support the {protocol}{missing}")
    assert enter is not None
    assert leave is not None
    f.stack[-1] = leave.get(m, manager, kind)
    f.stack.append(enter.get(m, manager, kind).invoke(m, [], {}))


@step("WITH_EXIT")
def with_exit(m: Machine, f: Frame, arg: Any) -> None:
    fault, leave = f.stack[-1], f.stack[-4]
    trace = m.getattr(fault, "__traceback__")
    f.stack.append(m.call(leave, [m.class_value(fault.type_), fault, trace]))


@step("CLEANUP_THROW")
def cleanup_throw(m: Machine, f: Frame, arg: Any) -> None:
    fault = f.stack.pop()
    if not issubclass(fault.type_, StopIteration):
        raise Raised(fault, again=True)
    f.stack[-2:] = [Const(None), m.getattr(fault, "value")]


@step("STOP_ITERATION")
def stop_iteration(m: Machine, f: Frame, arg: Any) -> None:
    fault = f.stack[-1]
    if issubclass(fault.type_, StopIteration):
        made = FaultValue(RuntimeError, [Const("generator raised StopIteration")])
        made.cause = made.context = fault
        made.suppress = True
        f.stack[-1] = made


# -- match


@step("GET_LEN")
def get_len(m: Machine, f: Frame, arg: Any) -> None:
    f.stack.append(Const(m.length(f.stack[-1])))


@step("MATCH_MAPPING")
def match_mapping(m: Machine, f: Frame, arg: Any) -> None:
    f.stack.append(Const(bool(m.type_of(f.stack[-1]).__flags__ & 1 << 6)))


@step("MATCH_SEQUENCE")
def match_sequence(m: Machine, f: Frame, arg: Any) -> None:
    f.stack.append(Const(bool(m.type_of(f.stack[-1]).__flags__ & 1 << 5)))


@step("MATCH_KEYS")
def match_keys(m: Machine, f: Frame, arg: Any) -> None:
    f.stack.append(m.match_keys(f.stack[-2], f.stack[-1]))


@step("MATCH_CLASS")
def match_class(m: Machine, f: Frame, count: int) -> None:
    names, cls, subject = f.stack.pop(), f.stack.pop(), f.stack.pop()
    f.stack.append(m.match_class(subject, cls, count, names))


# -- what capture refuses


@step("ASYNC")
def async_(m: Machine, f: Frame, name: str) -> None:
    m.stop("async", name)


@step("TYPING")
def typing_(m: Machine, f: Frame, name: str) -> None:
    m.stop("type-parameters", name.removeprefix("INTRINSIC_"))
