"""What each canonical instruction does: one function per operation, in the table STEPS.

A step takes the machine, the frame and the instruction's argument.  It returns None to go on with
`frame.next`; any other value leaves the frame with it (return or yield).
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .fault import FaultValue
from .frame import Frame
from .mapping import DictValue
from .objects import CellValue, ClassValue, FunctionValue, SuperValue
from .operation import BINARY, COMPARE
from .sequence import ListValue, SequenceValue, SliceValue, TupleValue
from .value import GONE, NULL, Const, Lazy, Value

if TYPE_CHECKING:
    from .machine import Machine

Step = Callable[["Machine", Frame, Any], Any]
STEPS: dict[str, Step] = {}


def table(steps: dict[str, Step]) -> Callable[..., Callable[[Step], Step]]:
    """A decorator that puts a function into the table under the names of its operations."""
    def step(*ops: str) -> Callable[[Step], Step]:
        def add(function: Step) -> Step:
            for op in ops:
                steps[op] = function
            return function
        return add
    return step


step = table(STEPS)


# -- stack


@step("NOP", "RESUME", "END_FOR")
def nop(m: Machine, f: Frame, arg: Any) -> None:
    pass


@step("POP")
def pop(m: Machine, f: Frame, arg: Any) -> None:
    f.stack.pop()


@step("PUSH_NULL")
def push_null(m: Machine, f: Frame, arg: Any) -> None:
    f.stack.append(NULL)


@step("COPY")
def copy(m: Machine, f: Frame, arg: int) -> None:
    f.stack.append(f.stack[-arg])


@step("SWAP")
def swap(m: Machine, f: Frame, arg: int) -> None:
    stack = f.stack
    stack[-1], stack[-arg] = stack[-arg], stack[-1]


@step("CONST")
def const(m: Machine, f: Frame, arg: Value) -> None:
    f.stack.append(arg)


# -- slots and cells


@step("LOAD")
def load(m: Machine, f: Frame, arg: int) -> None:
    value = f.slots[arg]
    if value is None:
        name = f.program.slots[arg]
        m.error(UnboundLocalError,
                f"cannot access local variable {name!r} where it is not associated with a value")
    f.stack.append(value)


@step("STORE")
def store(m: Machine, f: Frame, arg: int) -> None:
    value = f.stack.pop()
    f.slots[arg] = None if value is NULL else value


@step("DELETE")
def delete(m: Machine, f: Frame, arg: int) -> None:
    if f.slots[arg] is None:
        load(m, f, arg)
    f.slots[arg] = None


@step("LOAD_CLEAR")
def load_clear(m: Machine, f: Frame, arg: int) -> None:
    value = f.slots[arg]
    f.stack.append(NULL if value is None else value)
    f.slots[arg] = None


@step("MAKE_CELL")
def make_cell(m: Machine, f: Frame, arg: int) -> None:
    f.slots[arg] = CellValue(f.slots[arg] or GONE)


@step("COPY_FREE")
def copy_free(m: Machine, f: Frame, arg: int) -> None:
    f.slots[f.program.own:] = f.function.closure


@step("LOAD_CELL")
def load_cell(m: Machine, f: Frame, arg: int) -> None:
    value = f.slots[arg].read(m)  # type: ignore[union-attr]
    if value is None:
        unbound_cell(m, f, arg)
    f.stack.append(value)


def unbound_cell(m: Machine, f: Frame, arg: int) -> None:
    name = f.program.slots[arg]
    if arg < f.program.own:
        m.error(UnboundLocalError,
                f"cannot access local variable {name!r} where it is not associated with a value")
    m.error(NameError, f"cannot access free variable {name!r} where it is not associated with a"
                       " value in enclosing scope")


@step("STORE_CELL")
def store_cell(m: Machine, f: Frame, arg: int) -> None:
    f.slots[arg].write(m, f.stack.pop())  # type: ignore[union-attr]


@step("DELETE_CELL")
def delete_cell(m: Machine, f: Frame, arg: int) -> None:
    cell = f.slots[arg]
    if cell.read(m) is None:  # type: ignore[union-attr]
        unbound_cell(m, f, arg)
    cell.write(m, None)  # type: ignore[union-attr]


@step("LOAD_DICT_CELL")
def load_dict_cell(m: Machine, f: Frame, arg: int) -> None:
    found = f.stack.pop().force(m).find(m, f.program.slots[arg])
    if found is None:
        load_cell(m, f, arg)
    else:
        f.stack.append(found)


# -- names


def global_value(m: Machine, f: Frame, name: str) -> Value:
    found = f.globals.find(m, name)
    if found is None:
        found = m.builtins.find(m, name)
        if found is None:
            fault = FaultValue(NameError, [Const(f"name {name!r} is not defined")])
            fault.named = {"name": Const(name)}
            m.raise_fault(fault)
    assert found is not None
    return found


@step("LOAD_GLOBAL")
def load_global(m: Machine, f: Frame, name: str) -> None:
    f.stack.append(global_value(m, f, name))


@step("STORE_GLOBAL")
def store_global(m: Machine, f: Frame, name: str) -> None:
    f.globals.put(m, name, f.stack.pop())


@step("DELETE_GLOBAL")
def delete_global(m: Machine, f: Frame, name: str) -> None:
    if f.globals.drop(m, name) is None:
        m.error(NameError, f"name {name!r} is not defined")


def namespace(m: Machine, f: Frame) -> DictValue:
    return f.globals if f.names is None else f.names


@step("LOAD_NAME")
def load_name(m: Machine, f: Frame, name: str) -> None:
    found = namespace(m, f).find(m, name)
    f.stack.append(global_value(m, f, name) if found is None else found)


@step("STORE_NAME")
def store_name(m: Machine, f: Frame, name: str) -> None:
    namespace(m, f).put(m, name, f.stack.pop())


@step("DELETE_NAME")
def delete_name(m: Machine, f: Frame, name: str) -> None:
    if namespace(m, f).drop(m, name) is None:
        m.error(NameError, f"name {name!r} is not defined")


@step("LOAD_LOCALS")
def load_locals(m: Machine, f: Frame, arg: Any) -> None:
    f.stack.append(namespace(m, f))


@step("LOAD_DICT_GLOBAL")
def load_dict_global(m: Machine, f: Frame, name: str) -> None:
    found = f.stack.pop().force(m).find(m, name)
    f.stack.append(global_value(m, f, name) if found is None else found)


@step("SETUP_ANNOTATIONS")
def setup_annotations(m: Machine, f: Frame, arg: Any) -> None:
    names = namespace(m, f)
    if names.find(m, "__annotations__") is None:
        names.put(m, "__annotations__", m.dict_value({}))


@step("IMPORT")
def import_name(m: Machine, f: Frame, name: str) -> None:
    names = f.stack.pop()
    f.stack[-1] = m.import_module(f, name, names, f.stack[-1])


@step("IMPORT_FROM")
def import_from(m: Machine, f: Frame, name: str) -> None:
    f.stack.append(m.import_from(f.stack[-1], name))


@step("IMPORT_STAR")
def import_star(m: Machine, f: Frame, arg: Any) -> None:
    m.stop("import-star")


@step("PRINT_EXPR")
def print_expr(m: Machine, f: Frame, arg: Any) -> None:
    m.stop("interactive")


# -- attributes and items


@step("LOAD_ATTR")
def load_attr(m: Machine, f: Frame, name: str) -> None:
    f.stack[-1] = m.getattr(f.stack[-1], name)


@step("LOAD_METHOD")
def load_method(m: Machine, f: Frame, arg: tuple[str, bool]) -> None:
    name, null_first = arg
    owner = f.stack[-1].force(m)
    found = m.method(owner, name)
    if found is not None:
        f.stack[-1] = found
        f.stack.append(owner)
        return
    value = m.getattr(owner, name)
    if null_first:
        f.stack[-1] = NULL
        f.stack.append(value)
    else:
        f.stack[-1] = value
        f.stack.append(NULL)


@step("STORE_ATTR")
def store_attr(m: Machine, f: Frame, name: str) -> None:
    owner = f.stack.pop()
    m.setattr(owner, name, f.stack.pop())


@step("DELETE_ATTR")
def delete_attr(m: Machine, f: Frame, name: str) -> None:
    m.setattr(f.stack.pop(), name, None)


def super_value(m: Machine, f: Frame, written: bool) -> tuple[Value, Value]:
    """The `super` object of LOAD_SUPER_ATTR, and self; `written`: the call names both arguments."""
    self, cls = f.stack.pop(), f.stack.pop()
    maker = f.stack.pop().force(m)
    if isinstance(maker, ClassValue) and maker.real is super:
        return m.make_super(cls, self), self
    return m.call(maker, [cls, self] if written else []), self


@step("LOAD_SUPER")
def load_super(m: Machine, f: Frame, arg: tuple[str, bool]) -> None:
    found, _ = super_value(m, f, arg[1])
    f.stack.append(m.getattr(found, arg[0]))


@step("LOAD_SUPER_METHOD")
def load_super_method(m: Machine, f: Frame, arg: tuple[str, bool, bool]) -> None:
    name, null_first, written = arg
    found, self = super_value(m, f, written)
    if isinstance(found, SuperValue) and found.obj is not None:
        method = m.lookup_in(found.owner, name, found.cls)
        if isinstance(method, FunctionValue) and not isinstance(self.force(m), ClassValue):
            f.stack += [method, self]
            return
    value = m.getattr(found, name)
    f.stack += [NULL, value] if null_first else [value, NULL]


@step("GETITEM")
def getitem(m: Machine, f: Frame, arg: Any) -> None:
    stack = f.stack
    index, whole = stack.pop(), stack[-1]
    if whole.__class__ is Lazy:
        whole = whole.force(m)
    plain = whole.__class__ is ListValue or whole.__class__ is TupleValue
    if plain and index.__class__ is Const and type(index.value) is int and (
            whole.type_ is whole.base):
        items = whole.parts(m)
        if -len(items) <= index.value < len(items):
            stack[-1] = items[index.value]
            return
    stack[-1] = m.getitem(whole, index)


@step("SETITEM")
def setitem(m: Machine, f: Frame, arg: Any) -> None:
    index, whole, value = f.stack.pop(), f.stack.pop(), f.stack.pop()
    m.setitem(whole, index, value)


@step("DELITEM")
def delitem(m: Machine, f: Frame, arg: Any) -> None:
    index, whole = f.stack.pop(), f.stack.pop()
    m.delitem(whole, index)


# -- operators


@step("BINARY")
def binary(m: Machine, f: Frame, symbol: str) -> None:
    right, stack = f.stack.pop(), f.stack
    left = stack[-1]
    if left.__class__ is Const and right.__class__ is Const:
        try:
            stack[-1] = Const(BINARY[symbol][0](left.value, right.value))
        except Exception:  # noqa: BLE001  (computed again, where errors are the program's)
            stack[-1] = m.binary(symbol, left, right)
    else:
        stack[-1] = m.binary(symbol, left, right)


@step("INPLACE")
def inplace(m: Machine, f: Frame, symbol: str) -> None:
    right, stack = f.stack.pop(), f.stack
    left = stack[-1]
    if left.__class__ is Const and right.__class__ is Const:
        try:
            stack[-1] = Const(BINARY[symbol][0](left.value, right.value))
        except Exception:  # noqa: BLE001  (computed again, where errors are the program's)
            stack[-1] = m.inplace(symbol, left, right)
    else:
        stack[-1] = m.inplace(symbol, left, right)


@step("UNARY")
def unary(m: Machine, f: Frame, symbol: str) -> None:
    f.stack[-1] = m.unary(symbol, f.stack[-1])


@step("TO_BOOL")
def to_bool(m: Machine, f: Frame, arg: Any) -> None:
    f.stack[-1] = Const(m.truth(f.stack[-1]))


@step("COMPARE")
def compare(m: Machine, f: Frame, symbol: str) -> None:
    right, stack = f.stack.pop(), f.stack
    left = stack[-1]
    if left.__class__ is Const and right.__class__ is Const:
        try:
            stack[-1] = Const(COMPARE[symbol][0](left.value, right.value))
        except TypeError:
            stack[-1] = m.compare(symbol, left, right)
    else:
        stack[-1] = m.compare(symbol, left, right)


@step("IS")
def is_(m: Machine, f: Frame, invert: bool) -> None:
    right = f.stack.pop()
    f.stack[-1] = Const(m.identical(f.stack[-1], right) is not invert)


@step("CONTAINS")
def contains(m: Machine, f: Frame, invert: bool) -> None:
    whole = f.stack.pop()
    f.stack[-1] = Const(m.contains(whole, f.stack[-1]) is not invert)


# -- building


def take(f: Frame, count: int) -> list[Value]:
    if not count:
        return []
    items = f.stack[-count:]
    del f.stack[-count:]
    return items


@step("BUILD_TUPLE")
def build_tuple(m: Machine, f: Frame, count: int) -> None:
    f.stack.append(TupleValue(tuple, take(f, count)))


@step("BUILD_LIST")
def build_list(m: Machine, f: Frame, count: int) -> None:
    f.stack.append(ListValue(list, take(f, count)))


@step("BUILD_SET")
def build_set(m: Machine, f: Frame, count: int) -> None:
    f.stack.append(m.set_value(take(f, count)))


@step("BUILD_MAP")
def build_map(m: Machine, f: Frame, count: int) -> None:
    made, items = DictValue(), take(f, 2 * count)
    for key, value in zip(items[::2], items[1::2], strict=True):
        made.storage[key.key(m)] = value
    f.stack.append(made)


@step("BUILD_KEY_MAP")
def build_key_map(m: Machine, f: Frame, count: int) -> None:
    keys = f.stack.pop().parts(m)
    made = DictValue()
    for key, value in zip(keys, take(f, count), strict=True):
        made.storage[key.key(m)] = value
    f.stack.append(made)


@step("BUILD_STRING")
def build_string(m: Machine, f: Frame, count: int) -> None:
    parts = take(f, count)
    f.stack.append(Const("".join([m.text(part) for part in parts])))


@step("BUILD_SLICE")
def build_slice(m: Machine, f: Frame, count: int) -> None:
    ends = take(f, count)
    f.stack.append(SliceValue(ends if count == 3 else [*ends, Const(None)]))


@step("LIST_APPEND")
def list_append(m: Machine, f: Frame, arg: int) -> None:
    value = f.stack.pop()
    whole = f.stack[-arg]
    if whole.__class__ is ListValue and whole.real is None:
        whole.items.append(value)
    else:
        whole.force(m).append(m, value)


@step("SET_ADD")
def set_add(m: Machine, f: Frame, arg: int) -> None:
    value = f.stack.pop()
    f.stack[-arg].force(m).add(m, value)


@step("MAP_ADD")
def map_add(m: Machine, f: Frame, arg: int) -> None:
    value, key = f.stack.pop(), f.stack.pop()
    f.stack[-arg].force(m).put(m, key.key(m), value)


@step("LIST_EXTEND")
def list_extend(m: Machine, f: Frame, arg: int) -> None:
    value = f.stack.pop()
    if not m.iterable(value):
        name = m.type_name(value)
        m.error(TypeError, f"Value after * must be an iterable, not {name}")
    f.stack[-arg].force(m).extend(m, value)


@step("SET_UPDATE")
def set_update(m: Machine, f: Frame, arg: int) -> None:
    value = f.stack.pop()
    f.stack[-arg].force(m).update(m, value)


@step("DICT_UPDATE")
def dict_update(m: Machine, f: Frame, arg: int) -> None:
    value = f.stack.pop()
    if m.find_attr(value, "keys") is None:
        m.error(TypeError, f"{m.type_name(value)!r} object is not a mapping")
    f.stack[-arg].force(m).update(m, value)


@step("DICT_MERGE")
def dict_merge(m: Machine, f: Frame, arg: int) -> None:
    value = f.stack.pop()
    whole = f.stack[-arg].force(m)
    function = f.stack[-arg - 2 - m.null_above]     # asked for its name only where that is shown
    if m.find_attr(value, "keys") is None:
        name = m.type_name(value)
        m.error(TypeError,
                f"{m.callee_name(function)} argument after ** must be a mapping, not {name}")
    for key, item in whole.items_of(m, value):
        if whole.find(m, key) is not None:
            shown = m.text(m.str_of(m.lift(key)))
            m.error(TypeError, f"{m.callee_name(function)} got multiple values for keyword "
                               f"argument {shown!r}")
        whole.put(m, key, item)


@step("LIST_TO_TUPLE")
def list_to_tuple(m: Machine, f: Frame, arg: Any) -> None:
    f.stack[-1] = TupleValue(tuple, list(f.stack[-1].force(m).parts(m)))


@step("CONVERT")
def convert(m: Machine, f: Frame, how: str) -> None:
    f.stack[-1] = m.converted(f.stack[-1], how)


@step("FORMAT")
def format_(m: Machine, f: Frame, arg: tuple[str, bool]) -> None:
    how, has_spec = arg
    spec = f.stack.pop() if has_spec else Const("")
    value = m.converted(f.stack[-1], how) if how else f.stack[-1]
    f.stack[-1] = m.format(value, spec)


@step("UNPACK")
def unpack(m: Machine, f: Frame, count: int) -> None:
    value = f.stack.pop().force(m)
    if isinstance(value, SequenceValue) and value.type_ in (tuple, list):
        items = list(value.parts(m))
        if len(items) < count:
            m.error(ValueError, f"not enough values to unpack (expected {count}, got {len(items)})")
        if len(items) > count:
            m.error(ValueError, f"too many values to unpack (expected {count})")
    else:
        items = unpack_iterable(m, value, count)
    f.stack += reversed(items)


def unpack_iterable(m: Machine, value: Value, count: int) -> list[Value]:
    if not m.iterable(value):
        m.error(TypeError, f"cannot unpack non-iterable {m.type_name(value)} object")
    iterator = m.iter(value)
    items: list[Value] = []
    for _ in range(count):
        found: Any = m.next(iterator)
        if found is None:
            m.error(ValueError, f"not enough values to unpack (expected {count}, got {len(items)})")
        items.append(found)
    if m.next(iterator) is not None:
        m.error(ValueError, f"too many values to unpack (expected {count})")
    return items


@step("UNPACK_EX")
def unpack_ex(m: Machine, f: Frame, arg: tuple[int, int]) -> None:
    before, after = arg
    value = f.stack.pop()
    if not m.iterable(value):
        m.error(TypeError, f"cannot unpack non-iterable {m.type_name(value)} object")
    items = list(m.iterate(value))
    if len(items) < before + after:
        m.error(ValueError, "not enough values to unpack (expected at least"
                            f" {before + after}, got {len(items)})")
    end = len(items) - after
    rest: list[Value] = [*items[:before], m.list_value(items[before:end]), *items[end:]]
    f.stack += reversed(rest)
