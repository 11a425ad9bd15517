"""Why capture stops: one registry of breaks, and the exception that carries one.

A break is raised by its code only.  `title` says what happened, `explain` why capture cannot go on,
`hint` what the user can write instead.
"""
from __future__ import annotations

import linecache
import types
from typing import TYPE_CHECKING, Any, NamedTuple

from .value import Signal

if TYPE_CHECKING:
    from .frame import Frame


class Break(NamedTuple):
    code: str
    title: str
    explain: str
    hint: str


REGISTRY: dict[str, Break] = {row.code: row for row in (
    Break("native-call", "a call into C code that capture has no model of",
          "The function is implemented in C; what it reads, changes or returns is unknown here.",
          "Move the call out of the compiled function, or let the graph break there."),
    Break("native-method", "a method implemented in C that capture has no model of",
          "The object's class is implemented in C and this method may change it.",
          "Call it outside the compiled function, or convert to plain lists, dicts and tensors."),
    Break("native-new", "an object of a class implemented in C is created",
          "Capture cannot follow the construction, nor build an equal object again at each call.",
          "Create the object outside the compiled function and pass it in."),
    Break("native-result", "a C function returned an object that capture cannot build again",
          "The result is neither a constant nor a plain container of constants.",
          "Compute it outside the compiled function and pass it in."),
    Break("print", "print",
          "Printing must happen in program order with the values of this call.",
          "Remove it from the compiled function, or accept the graph break."),
    Break("opaque-attribute", "an attribute of an object implemented in C is read",
          "Reading it runs C code whose result may differ at the next call.",
          "Read the attribute outside the compiled function and pass the value in."),
    Break("opaque-write", "an object implemented in C is written to",
          "The write cannot be recorded and replayed for certain.",
          "Do it outside the compiled function."),
    Break("async", "coroutines and asynchronous generators",
          "An event loop decides when they go on; one call is not one run.",
          "Await outside, and compile the plain function that does the computing."),
    Break("type-parameters", "generic functions or classes are defined (PEP 695)",
          "Type variables are made by the interpreter itself and compare by identity.",
          "Define generic functions and classes at module level."),
    Break("execute", "source text is compiled or executed",
          "`eval`, `exec` and `compile` run code that capture has not seen.",
          "Do it at import time and call the result."),
    Break("frame-access", "the running frame is inspected",
          "A captured function has no interpreter frame of its own.",
          "Pass what is needed as an argument."),
    Break("traceback", "a traceback is inspected",
          "A captured function has no interpreter frames to show in it.",
          "Let the exception leave the compiled function and look at it there."),
    Break("import-star", "`from module import *`",
          "The names it binds are not known from the bytecode.",
          "Import the names at the top of the file."),
    Break("interactive", "an expression statement of the interactive prompt",
          "It calls `sys.displayhook`.",
          "Put the code into a function."),
    Break("generator-escape", "an iterator leaves the compiled function in the middle of its work",
          "Its position cannot be handed to a real generator or iterator.",
          "Exhaust it inside (`list(...)`), or create it outside."),
    Break("fresh-class", "a class that is created at each call leaves the compiled function",
          "Each call must give a new class, with the methods of that call.",
          "Define the class at module level."),
    Break("class-hook", "a class with hooks is created",
          "A metaclass, `__init_subclass__` or `__set_name__` written in Python runs in the middle"
          " of the construction.",
          "Define the class at module level."),
    Break("class-write", "an attribute of a class implemented in C or of a metaclass is written",
          "The write cannot be recorded and replayed for certain.",
          "Set class attributes at import time."),
    Break("cyclic-tuple", "a tuple that contains itself",
          "It cannot be built in one step when effects are replayed.",
          "Use a list for the cycle."),
    Break("recursion", "very deep recursion",
          "Each level is captured on its own, and the limit for one graph is reached.",
          "Write a loop, or mark the recursive function as not compiled."),
    Break("cached-effects", "a cached function changed something",
          "`functools.lru_cache` decides at run time whether the function runs at all.",
          "Keep cached functions free of side effects."),
    Break("unknown-opcode", "bytecode that this version of lehr does not know",
          "The code object was not made by a supported Python compiler.",
          "Compile the function with a supported Python (3.11 to 3.13)."),
    Break("unmodelled", "a corner of the language that capture does not follow",
          "Following it by guesswork could give a wrong result.",
          "Rewrite the line with simpler means, or let the graph break there."),
    Break("tensor-change", "a tensor itself is changed, not its elements",
          "Its layout, `requires_grad` or memory after the call would be the compiled program's.",
          "Do it outside the compiled function, or bind the changed tensor to a new name."),
    Break("data-dependent", "the data of a tensor is needed in Python",
          "The graph has not run yet when this line decides, so there is no value to look at.",
          "Keep the decision in tensors (`where`, masks), or let the graph break there."),
    Break("data-dependent-size", "an operator whose result has a size that depends on data",
          "The shapes of everything behind it would be unknown.",
          "Use a form with a fixed size (masks, `where`, padding), or let the graph break there."),
    Break("sparse-tensor", "a sparse tensor is made or read",
          "Graphs hold dense tensors; how many places a sparse one has, its data decides.",
          "Use dense tensors (embeddings without sparse=True), or let the graph break there."),
    Break("changing-value", "a value that differs from call to call is needed in Python",
          "With it as a constant, the function would be captured again for each of its values.",
          "Pass the value in a tensor, or let the graph break there."),
    Break("native-argument", "an object that the framework's own code would read without guards",
          "What that code reads of the object could change between calls unseen.",
          "Pass tensors, numbers and plain containers of them."),
    Break("outside-history", "a gradient has to flow into what was computed before",
          "The tensors come from outside with a history that the graph does not know.",
          "Compile the forward pass and its backward together, or let the graph break there."),
    Break("mutated-leaf", "an argument is written in place while gradients are recorded",
          "Its gradient history after the call would be the compiled program's.",
          "Write to a clone, or write under `no_grad`."),
    Break("late", "a backward or hook that does more than compute gradients",
          "What else it does, at each backward, has its place there and not in this call.",
          "Keep to tensor operations in it, or let the graph break there."),
    Break("disabled", "a function that is kept out of compiled code",
          "It always runs eagerly, so the graph ends before the call.",
          "Remove lehr.compiler.disable, or accept the graph break."),
    Break("requested", "a graph break that the program asks for",
          "lehr.compiler.graph_break() ends the graph here.",
          "Remove the call."),
    Break("process-setting", "a setting of the whole process is changed or read",
          "It acts on all that runs after it, also on how graphs are made.",
          "Move it out of the compiled function, or let the graph break there."),
    Break("halt", "the place where an earlier attempt had to stop",
          "Capture was restarted to stop exactly before the instruction that broke it.",
          "See the break that caused the restart."),
)}


def page() -> str:
    """The registry as a page of the documentation."""
    rows = [f"## {row.code}\n\n{row.title[0].upper() + row.title[1:]}. {row.explain}\n\n"
            f"What to do: {row.hint}\n" for row in REGISTRY.values()]
    return PAGE + "\n".join(rows)


PAGE = """# Graph breaks

A compiled function that meets something capture cannot follow is compiled in parts: the graph so
far runs, the line runs as Python, and capture goes on behind it. Results are the same; every break
costs some time, and what stands on both sides of it cannot be fused. `fullgraph=True` makes a break
an error, `LEHR_LOG=breaks` prints each, with the line, the reason and the way out. These are all
reasons there are; this page is made from `lehr/compiler/capture/breaks.py` (a test compares them).

"""


class Place(NamedTuple):
    """One line of the user's program."""
    file: str
    line: int
    function: str
    text: str

    def __str__(self) -> str:
        shown = f"\n    {self.text}" if self.text else ""
        return f'  File "{self.file}", line {self.line}, in {self.function}{shown}'


Spot = tuple[types.CodeType, int]     # a line of a code object


def place(file: str, line: int | None, function: str) -> Place:
    number = line or 0
    return Place(file, number, function, linecache.getline(file, number).strip())


class CaptureBreak(Signal):
    """Capture stops here.

    code    key of REGISTRY
    detail  what exactly: a function's name, a type
    frames  the machine's frames, outermost first; each stands at the instruction it was executing
    spots   what to show instead of them
    count   how many instructions had been executed when the outermost frame began its current one
            (or where else to halt; -1: nowhere): `Machine(halt=count)` restarts and stops exactly
            before that instruction, with slots,
            stack and effects as the native interpreter would have them there
    """

    def __init__(self, code: str, detail: str = "", frames: tuple[Frame, ...] = (),
                 cause: Any = None, count: int | None = None,
                 spots: tuple[Spot, ...] = ()) -> None:
        self.code, self.detail, self.frames, self.cause = code, detail, frames, cause
        self.row = REGISTRY[code]
        spots = spots or tuple((f.program.code, f.line) for f in frames)
        self.places = tuple(place(c.co_filename, line, c.co_qualname) for c, line in spots)
        self.forbidden = False      # `error_on_graph_break` was in force
        self.count = count if count is not None else frames[0].begun if frames else -1
        super().__init__(self.message())

    def message(self) -> str:
        where = "\n".join(str(p) for p in self.places)
        what = f"{self.row.title}: {self.detail}" if self.detail else self.row.title
        lines = [f"cannot capture {what} [{self.code}]"]
        if where:
            lines.append(where)
        lines += [f"Why: {self.row.explain}", f"What to do: {self.row.hint}"]
        return "\n".join(lines)
