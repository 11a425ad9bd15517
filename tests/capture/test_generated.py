"""Random programs from a grammar, run natively and by the machine."""

import random

import pytest
from test_programs import outcome

from lehr.compiler.capture.machine import Machine

SEEDS = range(160)
NAMES = ["a", "b", "c", "d"]
FUNCTIONS = "len str bool repr abs list sum type sorted hash_ tuple".split()
ITERABLES = ["range(3)", "list(xs)", "'xy'", "list(ds)", "gen(3)"]
ERRORS = ["Exception", "TypeError", "(ValueError, KeyError)", "ZeroDivisionError"]


class Writer:
    """Writes one program: a few functions and a main body, all ending after few steps."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.lines = []
        self.depth = 0
        self.functions = []
        self.loops = 0

    def pick(self, *options):
        return self.r.choice(options)

    def number(self):
        return str(self.r.choice([0, 1, 2, 3, 5, -1, 7, 2.5, 10]))

    def expr(self, depth=0):
        if depth > 3 or self.r.random() < 0.25:
            return self.pick(
                self.r.choice(NAMES),
                self.number(),
                self.number(),
                self.number(),
                "'s'",
                "None",
                "xs",
                "ds",
            )
        e = lambda: self.expr(depth + 1)
        kind = self.r.randrange(20)
        if kind < 4:
            return f"({e()} {self.pick('+', '+', '*', '-', '*', '//', '%', '/', '&')} {e()})"
        if kind == 4:
            return f"({e()} {self.pick('<', '<=', '==', '!=', '>', 'in', 'is', 'not in')} {e()})"
        if kind == 5:
            return f"({e()} {self.pick('and', 'or')} {e()})"
        if kind == 6:
            return f"({e()} if {e()} else {e()})"
        if kind == 7:
            return f"[{e()}, {e()}]"
        if kind == 8:
            return f"({e()}, {e()})"
        if kind == 9:
            return f"{{{self.pick(repr('k'), '1', '(1, 2)')}: {e()}}}"
        if kind == 10:
            source, test = self.pick("xs", "range(4)", "'ab'"), self.pick("v", "v != 1", "True")
            return f"[v for v in {source} if {test}]"
        if kind == 11:
            return f"{self.pick(*FUNCTIONS)}({e()})"
        if kind == 12:
            return f"{e()}[{self.pick('0', '-1', '1:', '::2', self.number(), repr('k'))}]"
        if kind == 13:
            return f"f'{{{self.r.choice(NAMES)}!r:>4}}|{{{self.r.choice(NAMES)}}}'"
        if kind == 14:
            return f"(lambda x, y={e()}: {self.pick('x', 'y', '(x, y)')})({e()})"
        if kind == 15:
            return f"(-{e()})" if self.r.random() < 0.5 else f"(not {e()})"
        if kind == 16 and self.functions:
            name, count = self.r.choice(self.functions)
            return f"{name}({', '.join(e() for _ in range(count))})"
        if kind == 17:
            return f"sum(v * 2 for v in {self.pick('xs', 'range(3)')})"
        if kind == 18:
            return f"Box({e()}){self.pick('.v', '.twice()', '.missing', '[0]', '')}"
        return f"xs.{self.pick('index', 'count')}({e()})"

    def emit(self, text):
        self.lines.append("    " * self.depth + text)

    def block(self, budget):
        self.depth += 1
        for _ in range(self.r.randint(1, 3)):
            self.statement(budget - 1)
        self.depth -= 1

    def statement(self, budget):
        kind = self.r.randrange(16) if budget > 0 else self.r.randrange(7)
        if kind < 3:
            self.emit(f"{self.r.choice(NAMES)} = {self.expr()}")
        elif kind == 3:
            self.emit(f"{self.r.choice(NAMES)} {self.pick('+=', '-=', '*=')} {self.expr()}")
        elif kind == 4:
            self.emit(f"log.append({self.expr()})")
        elif kind == 5:
            self.emit(
                self.pick(
                    f"xs.append({self.expr()})",
                    f"ds[{self.pick(repr('k'), '1', 'a')}] = {self.expr()}",
                    "xs.pop()",
                    f"xs[:1] = {self.expr()}",
                    f"a, *b = {self.expr()}",
                )
            )
        elif kind == 6 and self.loops:
            self.emit(f"if {self.expr()}: {self.pick('break', 'continue')}")
        elif kind in (6, 7, 8):
            self.emit(f"if {self.expr()}:")
            self.block(budget)
            if self.r.random() < 0.5:
                self.emit("else:")
                self.block(budget)
        elif kind in (9, 10):
            self.emit(f"for {self.pick('a', 'i', 'c')} in {self.pick(*ITERABLES)}:")
            self.loops += 1
            self.block(budget)
            self.loops -= 1
        elif kind in (11, 12, 13):
            self.emit("try:")
            self.block(budget)
            self.emit(f"except {self.pick(*ERRORS)} as err:")
            self.depth += 1
            self.emit("log.append((type(err).__name__, str(err)))")
            if self.r.random() < 0.2:
                self.emit("raise")
            self.depth -= 1
            if self.r.random() < 0.4:
                self.emit("finally:")
                self.block(budget)
        elif kind == 14:
            self.emit(f"with Manager({self.pick('True', 'False')}):")
            self.block(budget)
        else:
            self.emit(f"assert {self.expr()}, {self.expr()}")

    def function(self, index):
        name, count = f"f{index}", self.r.randint(0, 2)
        self.emit(f"def {name}({', '.join(NAMES[:count])}{', ' if count else ''}d=2):")
        self.depth += 1
        free = [n for n in NAMES[:3] if n not in NAMES[:count]]
        if free and self.r.random() < 0.3:
            self.emit(f"nonlocal {free[0]}")
        else:
            for n in free:
                self.emit(f"{n} = {self.number()}")
        for _ in range(self.r.randint(1, 3)):
            self.statement(1)
        self.emit(f"return {self.expr()}")
        self.depth -= 1
        self.functions.append((name, count))

    def program(self):
        self.lines += PREAMBLE.splitlines()
        self.depth = 1
        for index in range(self.r.randint(0, 2)):
            self.function(index)
        for _ in range(self.r.randint(4, 9)):
            if self.r.random() < 0.9:
                self.emit("try:")
                self.block(2)
                self.emit("except Exception as err:")
                self.emit("    log.append((type(err).__name__, str(err)))")
            else:
                self.statement(2)
        self.emit(f"return {self.expr(3)}, a, b, c, xs, ds")
        return "\n".join(self.lines)


PREAMBLE = """\
def main(log):
    a, b, c, d = 1, 2.0, "s", [1]
    xs, ds = [3, 1], {"k": 1}
    class Box:
        def __init__(self, v):
            self.v = v
        def twice(self):
            return self.v * 2
        def __eq__(self, other):
            log.append("eq")
            return isinstance(other, Box) and self.v == other.v
        def __repr__(self):
            return f"Box({self.v!r})"
        def __add__(self, other):
            return Box((self.v, other))
        def __bool__(self):
            return bool(self.v)
        __hash__ = None
    class Manager:
        def __init__(self, swallow):
            self.swallow = swallow
        def __enter__(self):
            log.append("enter")
            return self
        def __exit__(self, kind, value, trace):
            log.append(kind and kind.__name__)
            return self.swallow
    def gen(n):
        for i in range(n):
            got = yield i
            log.append(got)
        return n
    def hash_(x):
        return {x: 1} and "hashable"
"""


def build(seed):
    text = Writer(seed).program()
    scope = {"__name__": "generated"}
    exec(compile(text, f"<generated {seed}>", "exec"), scope)
    return scope["main"], text


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs(seed):
    main, text = build(seed)
    native = outcome(main)
    machine = outcome(lambda log: Machine().run(main, (log,)))
    assert machine == native, text


@pytest.mark.filterwarnings("ignore")
def test_the_random_programs_are_worth_running():
    """Some end well, some with an error, and together they touch most operations."""
    ends, operations = {"returned": 0, "raised": 0}, set()
    for seed in list(SEEDS)[:60]:
        main, _ = build(seed)
        ends[outcome(main)[0][0]] += 1
        machine = Machine()
        machine.capture(main, ([],))
        for program, _ in machine.prepared.values():
            operations |= {i.op for i in program.instructions}
    assert min(ends.values()) >= 10 and len(operations) > 45, (ends, len(operations))
