"""Breaks at any instruction: programs that break again and again do what Python does.

A machine that stops after so many instructions, wherever that is, makes every place a graph break:
each program is captured in parts, with the instruction in between run natively.
"""

import pytest
from test_programs import outcome, programs

from lehr.compiler.capture import attempt
from lehr.compiler.capture.bridge import PUSHES
from lehr.compiler.capture.tensors import TensorMachine
from lehr.compiler.compile import compile as lehr_compile

# Programs that look at what a break may change: how often the cache of a function without effects
# was asked, how often a dictionary that is built again hashes its keys.
COUNTING = ("closures.lru_cache", "containers.dict_keys_kinds")
FAST = (7, 29)
SLOW = (3, 5, 11, 13, 17, 23, 47, 83)


def stopping(every):
    """A machine that breaks at instruction number `every`."""

    class Stopping(TensorMachine):
        def __init__(self, halt=-1, *args, **kwargs):
            self.first = halt < 0
            super().__init__(every if self.first else halt, *args, **kwargs)

        def halted(self, frame):
            if not self.first:
                return super().halted(frame)
            ops = [f.program.instructions[f.at].op for f in frame.chain()]
            if ops[-1] in PUSHES and ops[0] in PUSHES:  # no other instruction ever breaks
                self.first = False
                self.stop("requested", "here")
            self.halt = self.count + 1
            return self.halt

    return Stopping


def compare(program, every, monkeypatch):
    native = outcome(lambda log: program(log))
    monkeypatch.setattr(attempt, "TensorMachine", stopping(every))
    options = {"strict": True, "suppress_errors": False, "recompile_limit": 1000}
    compiled = lehr_compile(program, backend="reference", options=options)
    for _ in range(2):
        assert outcome(lambda log: compiled(log)) == native


PROGRAMS = [p for p in programs() if p.id not in COUNTING]


@pytest.mark.parametrize("every", FAST)
@pytest.mark.parametrize("program", PROGRAMS)
def test_breaks_do_not_change_a_program(program, every, monkeypatch):
    compare(program, every, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("every", SLOW)
@pytest.mark.parametrize("program", PROGRAMS)
def test_more_breaks_do_not_change_a_program(program, every, monkeypatch):
    compare(program, every, monkeypatch)
