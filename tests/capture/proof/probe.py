"""Runs a call natively and goes on from its middle: at every instruction, in a forked child.

A traced native run stops before each executed instruction of one code object.  The true slots and
stack are read from the interpreter's frame; a forked child finishes the call through the functions
under test and compares what came of it with the native run.
"""

import ctypes
import faulthandler
import functools
import os
import signal
import sys
import threading
import warnings

from lehr.compiler.capture import bytecode
from lehr.compiler.capture.bridge import make_bridge
from lehr.compiler.capture.resume import (
    CARRIED,
    HANDLED,
    NULL,
    VALUE,
    CannotResume,
    Point,
    handler_of,
    make_resume,
)

LOG = []  # what the samples did, in order
UNSET = type("Unset", (), {"__repr__": lambda self: "UNSET"})()  # NULL, seen from Python
FRAME, TOP, SLOTS = 24, 64, 72  # offsets in frame objects and frames of 64-bit 3.11 to 3.13


def native_frame(frame):
    """(slots, stack) before an instruction."""
    program = bytecode.program(frame.f_code)
    base = ctypes.c_void_p.from_address(id(frame) + FRAME).value
    count = len(program.slots)
    top = ctypes.c_int.from_address(base + TOP).value
    if sys.version_info >= (3, 12):  # opcode events do not store the depth there
        top = count + depth_at(frame.f_code, frame.f_lasti)
    pointers = [ctypes.c_void_p.from_address(base + SLOTS + 8 * i).value for i in range(top)]
    values = [UNSET if p is None else ctypes.cast(p, ctypes.py_object).value for p in pointers]
    return values[:count], values[count:]


@functools.cache
def depth_at(code, offset):
    program = bytecode.program(code)
    return depths(code)[program.starts[start_of(program, offset)]]


@functools.cache
def depths(code):
    return bytecode.depths(bytecode.program(code))


def start_of(program, offset):
    """The instruction's first byte: its EXTENDED_ARG is not traced by itself."""
    return max(o for o in program.starts if o <= offset)


def outcome(call):
    try:
        return "returned", repr(call())
    except BaseException as exc:
        return "raised", describe(exc)


def describe(exc, depth=0):
    """Type, text, lines in the samples' frames, context and cause."""
    if exc is None or depth > 5:
        return None
    lines, tb = [], exc.__traceback__
    while tb:
        code = tb.tb_frame.f_code
        if "sample" in code.co_filename and code.co_name not in ("<lambda>", "outer_handler"):
            lines.append((code.co_name, tb.tb_lineno))
        tb = tb.tb_next
    linked = describe(exc.__context__, depth + 1), describe(exc.__cause__, depth + 1)
    return (type(exc).__name__, str(exc), lines, *linked, exc.__suppress_context__)


class Watch:
    """One native frame under observation."""

    def __init__(self, outer):
        self.outer = outer  # the exception that the callers were handling
        self.handled = []  # [(stack index, exception)]: PUSH_EXC_INFO ran, POP_EXCEPT did not
        self.lasti = {}  # stack index -> byte offset
        self.last = None  # (slots, stack, offset) before the current instruction
        self.results = []  # [(offset, opname, how, text)]

    def step(self, name, arg, stack):
        """The instruction is about to change the stack."""
        if name == "PUSH_EXC_INFO":
            self.handled.append((len(stack) - 1, stack[-1]))
        elif name == "POP_EXCEPT":
            self.handled.pop()
        elif name == "SWAP":  # `return` in a handler moves its value below what POP_EXCEPT takes
            top, other = len(stack) - 1, len(stack) - arg
            moved = {top: other, other: top}
            self.handled = [(moved.get(i, i), exc) for i, exc in self.handled]
            self.lasti = {moved.get(i, i): at for i, at in self.lasti.items()}


class Probe:
    """One native run.

    wants  code object -> whether to watch it
    every  take one place in this many
    ways   "resume" goes on at the instruction, "bridge" runs it alone and goes on behind it
    """

    def __init__(self, wants, every=1, ways=("resume",)):
        self.wants, self.every, self.ways = wants, every, ways
        self.clock, self.watches, self.ended = 0, {}, []

    def run(self, call):
        frame = sys._getframe()
        frame.f_trace_opcodes = True  # 3.12 looks at it when settrace is called
        sys.settrace(self.trace)
        try:
            return outcome(call)
        finally:
            sys.settrace(None)

    def trace(self, frame, event, arg):
        if event == "call":
            if not self.wants(frame.f_code):
                return None
            frame.f_trace, frame.f_trace_opcodes = self.trace, True  # 3.13 wants this order
            self.watches.setdefault(frame, Watch(sys.exc_info()[1]))
        elif event == "opcode":
            self.before_instruction(frame, self.watches[frame])
        elif event == "exception":
            self.raised(frame, self.watches[frame], arg[1], arg[2])
        elif event == "return" and name_at(frame, frame.f_lasti).startswith("RETURN_"):
            self.ended.append((frame.f_code, repr(arg), self.watches[frame]))
        return self.trace

    def before_instruction(self, frame, watch):
        slots, stack = native_frame(frame)
        offset = frame.f_lasti
        row = next((r for r in bytecode.exception_table(frame.f_code) if r[2] == offset), None)
        limit = row[3] if row else len(stack)
        watch.lasti = {i: at for i, at in watch.lasti.items() if i < limit}
        if row and row[4]:
            watch.lasti[limit] = 2 * stack[limit]
        watch.last = slots, stack, offset
        for way in self.ways:
            self.attempt(frame, watch, slots, stack, offset, way)
        watch.step(name_at(frame, offset), frame.f_code.co_code[offset + 1], stack)

    def raised(self, frame, watch, exc, traceback):
        slots, stack, offset = watch.last  # f_lasti may stand on the call's last cache
        generator = frame.f_code.co_flags & bytecode.GENERATOR
        if name_at(frame, offset) in ("FOR_ITER", "SEND") or generator or "resume" not in self.ways:
            return
        handler = handler_of(frame.f_code, offset)
        stack = stack[: handler[3]] if handler else []
        self.attempt(frame, watch, slots, stack, offset, "raise", exc, traceback)

    def attempt(self, frame, watch, slots, stack, offset, way, exc=None, traceback=None):
        self.clock += 1
        if self.clock % self.every:
            return
        receive, send = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads of numpy's
            pid = os.fork()
        if not pid:
            try:
                sys.settrace(None)
                faulthandler.disable()  # a child that dies is told of by its status
                signal.alarm(20)
                if exc is not None:
                    exc.__traceback__ = traceback  # 3.11 has not stored it yet
                text = finish(frame, watch, slots, list(stack), offset, way, exc)
            except BaseException as error:
                text = f"{type(error).__name__}: {error}"
            os.write(send, text.encode()[:60000])
            os._exit(0)
        os.close(send)
        with os.fdopen(receive, "rb") as pipe:
            text = pipe.read().decode()
        status = os.waitpid(pid, 0)[1]
        text = text or f"child died: {status}"
        watch.results.append((offset, name_at(frame, offset), way, text))


def name_at(frame, offset):
    return bytecode.opcode.opname[frame.f_code.co_code[offset]]


def state_of(frame, watch, slots, stack, offset, exc):
    """The point of a native frame, and what is bound and on the stack there."""
    program = bytecode.program(frame.f_code)
    spec = [NULL if value is UNSET else VALUE for value in stack]
    for index, at in watch.lasti.items():
        if index < len(stack):
            spec[index] = at
    for index, handled in watch.handled:
        if index < len(stack):
            spec[index], stack[index] = HANDLED, handled
    bound = tuple(i for i in range(program.own) if slots[i] is not UNSET)
    start = start_of(program, offset)
    point = Point(frame.f_code, start, tuple(spec), bound, exc is not None)
    state = [slots[i] for i in bound]
    state += [value for value, kind in zip(stack, spec, strict=True) if kind in CARRIED]
    return program, point, state if exc is None else [*state, exc]


def finish(frame, watch, slots, stack, offset, way, exc):
    """In the child: completes the call, in a thread, where no exception is being handled."""
    program, point, state = state_of(frame, watch, slots, stack, offset, exc)
    original = Original(frame.f_globals, tuple(slots[program.own :]) or None)
    if way == "bridge":
        bridge = make_bridge(program, program.starts[point.offset], point)

        def going():
            return cross(program, bridge, point, state, original)
    else:
        resume = make_resume(point)

        def going():
            return resume.call(original, state)
    texts = []

    def call():
        if frame.f_code.co_flags & bytecode.GENERATOR:
            return any(LOG.append(item) for item in going()) or None
        return going()

    def thread():
        if watch.outer is None:
            texts.append(repr((outcome(call), LOG)))
        else:
            try:
                raise watch.outer
            except BaseException:
                texts.append(repr((outcome(call), LOG)))

    worker = threading.Thread(target=thread)
    worker.start()
    worker.join()
    return texts[0]


class Original:
    """What a builder needs of the function: its globals and its cells."""

    def __init__(self, namespace, closure):
        self.__globals__, self.__closure__ = namespace, closure


def cross(program, bridge, point, state, original):
    """The instruction alone, then the rest of the call."""
    slots = state[: len(point.bound)]
    stack = state[len(point.bound) :]
    spec, caught = point.spec, None
    try:
        *pushed, number = bridge.function(original)(state)
    except BaseException as error:
        handler = handler_of(point.code, point.offset)
        if handler is None:
            raise
        caught = error
    if caught is not None:  # outside the except clause: nothing is being handled there
        spec = spec[: handler[3]]
        kept = stack[: sum(k in CARRIED for k in spec)]
        after = Point(point.code, point.offset, spec, point.bound, True)
        return make_resume(after).call(original, [*slots, *kept, caught])
    out = bridge.exits[number]
    kept = stack[: sum(k in CARRIED for k in spec[: out.kept])]
    after = Point(point.code, out.offset, out.spec, point.bound)
    return make_resume(after).call(original, [*slots, *kept, *pushed])


def probe_sample(call, code, every=1, ways=("resume",)):
    """Native text, and (offset, opname, how, text) of every place."""
    LOG.clear()
    probe = Probe(lambda c: c is code, every, ways)
    native = repr((probe.run(call), LOG))
    return native, [r for watch in probe.watches.values() for r in watch.results]


def refused(text):
    """Whether the builder said that the place cannot be resumed at."""
    return text.startswith(CannotResume.__name__)
