"""Small programs, each run natively and by the machine: same result, errors, lines and log."""

import importlib
import pathlib
import re
import types

import pytest

from lehr.compiler.capture.machine import Machine

HERE = pathlib.Path(__file__).parent / "programs"
MODULES = sorted(p.stem for p in HERE.glob("[a-z]*.py"))
ADDRESS = re.compile(r"0x[0-9a-f]+")


def programs():
    for name in MODULES:
        module = importlib.import_module(f"programs.{name}")
        for attr, value in vars(module).items():
            if attr.startswith("p_") and isinstance(value, types.FunctionType):
                yield pytest.param(value, id=f"{name}.{attr[2:]}")


def describe(error, depth=0):
    """Type, text, lines in the program's own file, context and cause."""
    if error is None or depth > 6:
        return None
    lines, trace = [], error.__traceback__
    while trace:
        code = trace.tb_frame.f_code
        if str(HERE) in code.co_filename or code.co_filename.startswith("<generated"):
            lines.append((code.co_name, trace.tb_lineno))
        trace = trace.tb_next
    return (
        type(error).__name__,
        ADDRESS.sub("@", str(error)),
        lines,
        describe(error.__cause__, depth + 1),
        describe(error.__context__, depth + 1),
        error.__suppress_context__,
        getattr(error, "__notes__", None),
    )


def canon(value, depth=0):
    """A comparable picture of a result."""
    if depth > 8:
        return "..."
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [canon(v, depth + 1) for v in value])
    if isinstance(value, dict):
        return (
            type(value).__name__,
            [(canon(k, depth + 1), canon(v, depth + 1)) for k, v in value.items()],
        )
    if isinstance(value, (set, frozenset)):
        return (type(value).__name__, sorted(map(repr, value)))
    if isinstance(value, BaseException):
        return describe(value, 4)
    if isinstance(value, types.FunctionType):
        return ("function", value.__qualname__)
    if isinstance(value, type):
        return ("class", value.__qualname__)
    if type(value).__module__ not in ("builtins",) and hasattr(value, "__dict__"):
        return (type(value).__qualname__, canon(vars(value), depth + 1))
    return (type(value).__name__, ADDRESS.sub("@", repr(value)))


def outcome(call):
    log = []
    try:
        result = ("returned", canon(call(log)))
    except Exception as error:
        result = ("raised", describe(error))
    return result, canon(log)


@pytest.mark.parametrize("program", programs())
def test_the_machine_does_what_python_does(program):
    native = outcome(lambda log: program(log))
    assert outcome(lambda log: Machine().run(program, (log,))) == native


def test_there_are_four_hundred_programs():
    """With the random ones of `test_generated`, on each version of Python."""
    from test_generated import SEEDS
    assert len(list(programs())) + len(SEEDS) >= 400
