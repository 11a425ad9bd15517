"""Which slots of a frame are still needed at a place: a graph break hands on no others."""
from __future__ import annotations

from .bytecode import Program
from .dialect import ENDS, JUMPS

READS = frozenset(("LOAD", "LOAD_CLEAR", "DELETE"))
KILLS = frozenset(("STORE", "LOAD_CLEAR", "DELETE"))
# Names with which a function, or what it calls, looks at whole frames.
WHOLE = frozenset((
    "locals", "vars", "dir", "eval", "exec", "breakpoint", "set_trace", "_getframe",
    "currentframe", "getouterframes", "exc_info", "format_exc", "print_exc", "extract_stack"))


def live(program: Program) -> list[int]:
    """For each canonical position a set of slots, as bits: what may be read there or later.

    Cells are always live, and `super()` reads the first argument from the frame.
    """
    code, ops = program.code, program.instructions
    names = set(code.co_names)
    if names & WHOLE:
        return [(1 << program.own) - 1] * len(ops)
    always = sum(1 << i for i in range(program.own) if program.slots[i] in code.co_cellvars)
    if "super" in names:
        always |= 1
    found = [0] * len(ops)
    again = True
    while again:    # against the direction of the jumps: once, and once more for each nested loop
        again = False
        for at in range(len(ops) - 1, -1, -1):
            ins = ops[at]
            after = 0 if ins.op in ENDS or at + 1 == len(ops) else found[at + 1]
            if ins.op in JUMPS:
                after |= found[ins.arg[0] if ins.op == "SEND" else ins.arg]
            bit = 1 << ins.arg if ins.op in READS or ins.op in KILLS else 0
            if ins.op in KILLS:
                after &= ~bit
            if ins.op in READS:
                after |= bit
            if ins.handler is not None:
                after |= found[ins.handler.target]
            if after != found[at]:
                found[at], again = after, True
    return [always | bits for bits in found]
