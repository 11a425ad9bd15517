"""Breaks: every code is reachable, explains itself, names the user's line, and restarts exactly."""

import pathlib
import re
import sys
import types

import pytest

from lehr.compiler.capture import breaks, bytecode
from lehr.compiler.capture.breaks import REGISTRY, CaptureBreak
from lehr.compiler.capture.machine import Machine
from lehr.compiler.capture.rebuild import Rebuilder
from lehr.compiler.capture.value import NULL, Handled, Lasti

CAPTURE = pathlib.Path(breaks.__file__).parent


def fresh_class():
    class Made:
        pass

    return Made


def run_fresh_class():
    machine = Machine()
    outcome = machine.capture(fresh_class)
    rebuilder = Rebuilder(machine)
    rebuilder.repeats = True
    rebuilder(outcome.value)


def unknown_opcode():
    code = (lambda: None).__code__
    broken = code.replace(co_code=code.co_code[:2] + bytes([255, 0]) + code.co_code[2:])
    Machine().run(types.FunctionType(broken, {}))


async def coroutine():
    return 1


def interactive():
    code = compile("1 + 1", "<s>", "single")
    Machine().run(types.FunctionType(code, {}))


def star():
    code = compile("from math import *", "<s>", "exec")
    Machine().run(types.FunctionType(code, {}))


def type_parameters():
    if sys.version_info < (3, 12):
        Machine().stop("type-parameters")
    scope = {}
    exec("def outer():\n  def f[T](x: T): return x\n  return f(1)", scope)
    Machine().run(scope["outer"])


def deep(n):
    return n and deep(n - 1)


class Hooked(type):
    @classmethod
    def __prepare__(mcs, name, bases):
        return {}


def hooked():
    class A(metaclass=Hooked):
        pass


COUNT = []


def cached(x):
    COUNT.append(x)
    return x


def lru():
    import functools

    return functools.lru_cache(cached)


CACHED = lru()


def cyclic():
    a = []
    t = (a,)
    a.append(t)
    return t


class Swaps:
    def __init__(self):
        import threading

        self.lock = threading.Lock()


SWAPS = Swaps()
LOG = open  # a C function whose effects nobody can replay


def running():
    def gen():
        yield 1

    machine = Machine()
    value = machine.capture(gen).value
    value.running = True
    Rebuilder(machine)(value)


def look_at_traceback():
    try:
        return 1 / 0
    except ZeroDivisionError as e:
        return e.__traceback__.tb_lineno


def write_opaque():
    SWAPS.lock.anything = 1


TRIGGERS = {
    "native-call": lambda: LOG("somewhere"),
    "native-method": lambda: SWAPS.lock.acquire(),
    "native-new": lambda: bytearray(5),
    "native-result": lambda: re.compile("a").scanner("aa"),
    "print": lambda: print("x"),
    "opaque-attribute": look_at_traceback,
    "opaque-write": write_opaque,
    "async": lambda: coroutine(),
    "execute": lambda: eval("1"),
    "frame-access": lambda: sys._getframe(),
    "traceback": lambda: ValueError().with_traceback(5),
    "class-hook": hooked,
    "class-write": lambda: setattr(Hooked, "__len__", lambda self: 1),
    "cyclic-tuple": cyclic,
    "recursion": lambda: deep(100000),
    "cached-effects": lambda: CACHED(3),
    "unmodelled": lambda: repr(object()),
}
DIRECT = {
    "fresh-class": run_fresh_class,
    "unknown-opcode": unknown_opcode,
    "interactive": interactive,
    "import-star": star,
    "type-parameters": type_parameters,
    "generator-escape": running,
    "halt": lambda: Machine(halt=1).run(deep, (1,)),
}


@pytest.mark.parametrize("code", [*TRIGGERS, *DIRECT])
def test_every_break_is_reachable_and_explains_itself(code):
    row = REGISTRY[code]
    assert row.code == code and row.title and row.explain and row.hint
    with pytest.raises(CaptureBreak) as caught:
        if code in DIRECT:
            DIRECT[code]()
        else:
            Machine().run(TRIGGERS[code])
    assert caught.value.code == code
    text = str(caught.value)
    assert row.title in text and row.explain in text and row.hint in text and f"[{code}]" in text


def raised_codes():
    """File name -> codes that it raises."""
    found = {}
    for path in CAPTURE.glob("*.py"):
        text = path.read_text()
        codes = set(re.findall(r'\bstop\(\s*"([a-z-]+)"', text)) | set(
            re.findall(r'\brefuse\("([a-z-]+)"', text)
        )
        found[path] = codes
    return found


def test_only_registered_codes_are_raised_and_all_are():
    assert set().union(*raised_codes().values()) <= set(REGISTRY)
    text = "".join(p.read_text() for p in CAPTURE.parents[1].rglob("*.py") if p.name != "breaks.py")
    assert {code for code in REGISTRY if f'"{code}"' not in text} == set()
    for row in REGISTRY.values():
        assert row.title and row.explain and row.hint


def test_every_code_of_the_machine_itself_is_triggered_here():
    for path, codes in raised_codes().items():
        if "lehr.tensor" not in path.read_text():  # what concerns tensors is tested with them
            assert codes <= {*TRIGGERS, *DIRECT}, path


def test_a_break_names_the_users_lines():
    def inner(x):
        return LOG(x)  # the line to be named

    def outer():
        return inner("q")

    with pytest.raises(CaptureBreak) as caught:
        Machine().run(outer)
    places = caught.value.places
    assert [p.function.split(".")[-1] for p in places] == ["outer", "inner"]
    assert places[-1].text == "return LOG(x)  # the line to be named"
    assert places[-1].file == __file__ and f"line {places[-1].line}, in" in str(caught.value)
    assert places[-1].line == inner.__code__.co_firstlineno + 1


def broken(function, *args):
    with pytest.raises(CaptureBreak) as caught:
        Machine().capture(function, args)
    return caught.value


def halted(function, count, *args):
    machine = Machine(halt=count)
    with pytest.raises(CaptureBreak) as caught:
        machine.capture(function, args)
    assert caught.value.code == "halt"
    return machine, caught.value.frames


def test_a_restart_stops_before_the_instruction_that_broke():
    def f(xs, n):
        total = 0
        for i in range(n):
            total += i
            xs.append(total)
            if i == 2:
                total = LOG(total)
        return total

    xs = [0]
    first = broken(f, xs, 5)
    machine, frames = halted(f, first.count, xs, 5)
    assert len(frames) == 1 and xs == [0]
    frame = frames[0]
    ins = frame.program.instructions[frame.at]
    assert ins.op == "CALL" and frame.line == f.__code__.co_firstlineno + 6
    slots = dict(zip(frame.program.slots, frame.slots, strict=True))
    assert slots["total"].value == 3 and slots["i"].value == 2
    assert [e.args[0].value for e in machine.effects] == [0, 1, 3]
    assert frame.offset == ins.offset


def test_the_halted_stack_is_laid_out_as_the_native_one():
    """At every instruction of a call with everything on the stack: as deep as the bytecode says."""

    def f(xs):
        for x in xs:
            try:
                with Context():
                    y = [x, max(x, 1 // x), *[v + 0 for v in (x, 2)]]
            except ZeroDivisionError:
                y = {"k": f"{x!r:>3}"}
            finally:
                x = None
        return y

    machine = Machine()
    machine.capture(f, ([1, 0],))
    depths = bytecode.depths(bytecode.program(f.__code__))
    markers = set()
    for count in range(machine.count):
        _, frames = halted(f, count, [1, 0])
        frame = frames[0]
        if len(frames) == 1:
            assert len(frame.stack) == depths[frame.at], frame.program.instructions[frame.at]
        markers |= {
            type(v) if v is not NULL else NULL
            for v in frame.stack
            if isinstance(v, (Handled, Lasti)) or v is NULL
        }
    assert markers == {NULL, Handled, Lasti}


class Context:
    def __enter__(self):
        return self

    def __exit__(self, *args):
        return False


def test_halting_in_an_inner_frame_shows_all_frames():
    def inner(x):
        return x + 1

    def outer(x):
        return inner(x) * 2

    machine = Machine()
    machine.capture(outer, (1,))
    depths = set()
    for count in range(machine.count):
        _, frames = halted(outer, count, 1)
        depths.add(len(frames))
        assert frames[0].code is outer.__code__
    assert depths == {1, 2}


def test_breaks_pass_through_handlers_of_the_program():
    def f():
        try:
            LOG("x")
        except Exception:
            return "swallowed"
        finally:
            COUNT.append("never")

    assert broken(f).code == "native-call"
    assert "never" not in COUNT


def test_a_machine_error_is_never_an_error_of_the_program():
    class Broken(Machine):
        def guard(self, source, kind, detail):
            raise KeyError("a bug of the machine")

    def f(x):
        try:
            return x + 1
        except KeyError:
            return "hidden"

    with pytest.raises(KeyError, match="a bug"):
        Broken().run(f, (1,))
