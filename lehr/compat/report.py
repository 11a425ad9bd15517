"""How a program under `lehr run` ends when something is missing: the user's own frames, then what
is missing, on which line, and the way out.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import traceback
import types
from typing import Any

from lehr.compat import absent
from lehr.compat.alias import spelled

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FULL = "LEHR_TRACEBACK"  # "full": lehr's own frames too
BOOT = "<frozen "


def install() -> None:
    """Exceptions that nobody catches are shown by `show`, in threads too."""
    sys.excepthook = show
    threading.excepthook = _show_in_thread


def show(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Prints the traceback to stderr, and what is missing where that is why."""
    full = os.environ.get(FULL) == "full"
    text = traceback.TracebackException(kind, error, trace)
    left = 0 if full else _strip(text)
    lines = list(text.format())
    if left:
        lines.append(f"({left} frames inside lehr are left out; {FULL}=full shows them)\n")
    name = missing(error)
    if name is not None:
        lines.append(f"\n{advice(name, place(error, trace))}\n")
    sys.stderr.write("".join(lines))


def _show_in_thread(args: Any) -> None:
    if args.exc_type is SystemExit:
        return
    name = args.thread.name if args.thread is not None else "a thread"
    sys.stderr.write(f"Exception in thread {name}:\n")
    show(args.exc_type, args.exc_value, args.exc_traceback)


def _is_own(path: str) -> bool:
    return path.startswith((ROOT + os.sep, BOOT))


def _strip(text: traceback.TracebackException) -> int:
    """Takes lehr's frames out, of causes too, unless nothing else would be left; how many."""
    left, seen = 0, set()
    stack: list[Any] = [text]
    while stack:
        each = stack.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        kept = [frame for frame in each.stack if not _is_own(frame.filename)]
        if kept:
            left += sum(not f.filename.startswith(BOOT) for f in each.stack) - len(kept)
            each.stack[:] = kept
        stack += [each.__cause__, each.__context__]
    return left


def missing(error: BaseException | None) -> str | None:
    """PyTorch's name of what an exception, or a cause of it, says is missing; else None."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        for kind, find in KINDS:
            found = find(error) if isinstance(error, kind) else None
            if found is not None:
                return found
        error = error.__cause__ or error.__context__
    return None


def _attribute(error: Any) -> str | None:
    owner = error.obj
    if isinstance(owner, types.ModuleType):
        name = f"{spelled(owner.__name__)}.{error.name}"
    elif error.name is None:
        match = re.search(r"module '([\w.]+)' has no attribute '(\w+)'", str(error))
        name = f"{spelled(match[1])}.{match[2]}" if match else ""
    else:
        cls = owner if isinstance(owner, type) else type(owner)
        line = next((c for c in cls.__mro__ if c.__name__ == "Tensor"), None)
        ours = cls.__module__.startswith("lehr.") and line is not None
        name = f"torch.Tensor.{error.name}" if ours else ""
    return name if _is_torch(name) else None


def _module(error: Any) -> str | None:
    return error.name if error.name and _is_torch(error.name) else None


def _imported(error: Any) -> str | None:
    match = re.search(r"cannot import name '(\w+)'", str(error))
    name = spelled(error.name or "")
    return f"{name}.{match[1]}" if match and _is_torch(name) else None


def _keyword(error: Any) -> str | None:
    match = re.search(r"([\w.]+)\(\) got an unexpected keyword argument '(\w+)'", str(error))
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if match is None or trace is None:
        return None
    # Only calls of lehr's functions: what was called is looked up where the call stands.
    word = match[1].rpartition(".")[2] if not match[1].endswith("__init__") else match[1]
    found = _known(match[1], word, trace.tb_frame)
    return f"{found}({match[2]}=...)" if found else None


def _known(dotted: str, word: str, frame: types.FrameType) -> str | None:
    first = dotted.partition(".")[0]
    for name in (*frame.f_code.co_names, *frame.f_code.co_varnames):
        value = frame.f_locals.get(name, frame.f_globals.get(name))
        value = getattr(value, word, value) if isinstance(value, types.ModuleType) else value
        called = getattr(value, "__name__", None)
        if called in (word, first) and str(getattr(value, "__module__", "")).startswith("lehr"):
            return f"torch...{called}"
    return None




KINDS: tuple[tuple[type[BaseException], Any], ...] = (
    (AttributeError, _attribute), (ModuleNotFoundError, _module), (ImportError, _imported),
    (TypeError, _keyword))


def _is_torch(name: str) -> bool:
    return name.partition(".")[0] in ("torch", "torchvision")


def place(error: BaseException, trace: Any) -> tuple[str, int] | None:
    """(file, line) of the innermost frame outside lehr."""
    frames = traceback.extract_tb(trace if trace is not None else error.__traceback__)
    user = [f for f in frames if not _is_own(f.filename)]
    return (user[-1].filename, user[-1].lineno or 0) if user else None


def advice(name: str, where: tuple[str, int] | None) -> str:
    """What is missing, where, what it is and what to do: three lines."""
    part = absent.part(name.partition("(")[0])
    at = f", used at {where[0]}:{where[1]}" if where else ""
    script = sys.argv[0] if sys.argv and sys.argv[0].endswith(".py") else "SCRIPT"
    return (f"lehr run: {name} is missing{at}\n"
            f"  it is {part.what}; {part.instead}\n"
            f"  every missing name of the program: lehr run --check {script}")
