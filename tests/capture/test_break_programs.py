"""Programs with graph breaks: compiled equals eager, with the expected graphs and breaks."""

import contextlib
import importlib
import io
import pathlib
import sys
import types

import numpy as np
import pytest
from broken import case as cases

import lehr as torch
from lehr.compiler.compile import compile as lehr_compile
from lehr.compiler.counters import COUNTERS, stats

HERE = pathlib.Path(__file__).parent / "broken"
for path in sorted(HERE.glob("[a-z]*.py")):
    importlib.import_module(f"broken.{path.stem}")
VERSION = sys.version_info[:2]


def canon(value, seen=None):
    """A comparable picture of a result; the same object twice shows as a reference."""
    seen = {} if seen is None else seen
    if type(value) in (int, float, str, bool, bytes, type(None), complex):
        return repr(value)
    if id(value) in seen:
        return f"same as {seen[id(value)]}"
    seen[id(value)] = len(seen)
    seen[f"keep {id(value)}"] = value
    if isinstance(value, torch.Tensor):
        array = value.detach().numpy() if value.dtype is not torch.bfloat16 else None
        grad = value.grad if value.is_leaf else None
        data = np.round(array, 4).tolist() if array.dtype.kind == "f" else array.tolist()
        return ("tensor", str(value.dtype), tuple(value.shape), value.stride(), value.requires_grad,
                data, None if grad is None else canon(grad, seen))
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.name, value.tolist())
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [canon(v, seen) for v in value])
    if isinstance(value, dict):
        return (type(value).__name__, [(canon(k, seen), canon(v, seen)) for k, v in value.items()])
    if isinstance(value, (set, frozenset)):
        return (type(value).__name__, sorted(map(repr, value)))
    if isinstance(value, BaseException):
        return describe(value)
    if isinstance(value, types.FunctionType):
        return ("function", value.__qualname__,
                [canon(c.cell_contents, seen) for c in value.__closure__ or ()])
    if hasattr(value, "__dict__"):
        return (type(value).__qualname__, canon(dict(vars(value)), seen))
    return type(value).__qualname__


def describe(error, depth=0):
    """Type, text, lines in the programs, context and cause."""
    if error is None or depth > 4:
        return None
    lines, trace = [], error.__traceback__
    while trace:
        code = trace.tb_frame.f_code
        if str(HERE) in code.co_filename:
            lines.append((code.co_name, trace.tb_lineno))
        trace = trace.tb_next
    return (type(error).__name__, str(error), lines, describe(error.__cause__, depth + 1),
            describe(error.__context__, depth + 1), error.__suppress_context__)


def run(function, calls):
    """What each call gives, prints, logs and does to its arguments."""
    found = []
    for args, kwargs in calls:
        args, kwargs = cases.made(list(args)), cases.made(kwargs)
        cases.LOG.clear()
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            try:
                result = ("returned", function(*args, **kwargs))
            except Exception as error:
                result = ("raised", error)
        seen = {}
        found.append((canon(result, seen), canon(args, seen), canon(kwargs, seen),
                      out.getvalue(), canon(list(cases.LOG), seen), torch.is_grad_enabled()))
    return found


@pytest.mark.parametrize("case", cases.CASES, ids=[c.function.__name__ for c in cases.CASES])
def test_program(case, monkeypatch):
    want = run(case.function, case.calls)
    COUNTERS.reset()
    compiled = lehr_compile(case.function, backend="reference",
                            options={"strict": True, "suppress_errors": False})
    got = run(compiled, case.calls)
    for number, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        assert mine == theirs, f"call {number}"
    counts = stats()
    seen = (counts["graphs"], counts["breaks"], counts["fallbacks"])
    expected = [x.get(VERSION, x.get(None)) if isinstance(x, dict) else x
                for x in (case.graphs, case.breaks)]
    assert seen == (*expected, case.fallbacks)
