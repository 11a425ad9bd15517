"""Functions whose every instruction is a place to go on at."""

import contextlib
import sys
import types

from proof.probe import LOG

SAMPLES = []  # (name, call, code)


def sample(*args, code=None, **kwargs):
    def add(fn):
        SAMPLES.append((fn.__name__, lambda: fn(*args, **kwargs), code or fn.__code__))
        return fn
    return add


def t(*args, **kwargs):
    """A call with a side effect: logs and returns its first argument."""
    LOG.append((args, sorted(kwargs.items())))
    return args[0] if args else None


def boom(kind=ValueError):
    raise kind("boom")


def boom_chained():
    try:
        {}["inner"]
    except KeyError:
        raise ValueError("outer")


class Box:
    def __init__(self, value):
        self.value = value

    def item(self):
        return t(self.value)

    def add(self, other, *, scale=1):
        return self.value + other * scale


class Context:
    def __init__(self, name, swallow=False, fail=None):
        self.name, self.swallow, self.fail = name, swallow, fail

    def __enter__(self):
        LOG.append(("enter", self.name))
        return self

    def __exit__(self, kind, exc, tb):
        LOG.append(("exit", self.name, kind and kind.__name__, str(sys.exc_info()[1])))
        if self.fail:
            raise self.fail(self.name)
        return self.swallow


@sample(1, Box(2))
def null_on_stack(x, y):
    return t(x, y.item(), t(t(3), y.item()))


@sample(Box(2))
def method_layouts(b):
    f = b.item
    found = b.add(b.item(), scale=f()) + "a,b".split(t(",")).index(t("b"))
    return found + max(b.item(), *[t(1)], **{"key": t(abs)})


@sample(4)
def keyword_calls(x):
    return t(t(x), a=t(1), b=dict(c=t(2), **{"d": t(3)}))


@sample(1)
def unbound_locals(x):
    if t(x):
        y = t(2)
    del x
    try:
        LOG.append(x)
    except UnboundLocalError as exc:
        LOG.append(str(exc))
    z = t(y)
    del y
    return sorted(locals()), y


@sample(5)
def cells(x):
    early = lambda: x
    x = t(x + 1)
    count = 0

    def bump():
        nonlocal count, x
        count += 1
        x *= 2
        return count
    before = early(), bump(), count
    late = lambda: (x, count)
    x += 1
    return before, early(), late(), bump(), late(), sorted(locals())


def make_free():
    total = 10
    seen = lambda: total

    def add():
        nonlocal total
        total += t(1)
        total = total * t(2) + seen()
        return total, seen(), sorted(locals())
    return add


ADD = make_free()
sample(code=ADD.__code__)(ADD)
SAMPLES[-1] = ("free_without_locals", *SAMPLES[-1][1:])


@sample()
def no_locals():
    return t(t(1), t(2)) + len(str(t(3)))


@sample()
def cell_without_locals():
    c = t(3)
    return (lambda: c)() + t(1)


@sample(1, 2, 3, k=4, z=5)
def star_args(a, /, *rest, k, other=6, **more):
    a = t(a)
    rest = rest + (t(k),)
    return a, rest, k, other, more, t(more, *rest, **more)


class Base:
    def __init__(self, value):
        self.value = t(value)

    def twice(self):
        return t(self.value) * 2


class Derived(Base):
    def __init__(self, value):
        super().__init__(t(value))
        self.more = t(__class__.__name__)
        t(vars(self))

    def twice(self):
        keep = lambda: self
        return super().twice() + super(Derived, keep()).twice() + t(1)


sample(code=Derived.__init__.__code__)(lambda: Derived(3) and None)
SAMPLES[-1] = ("super_init", *SAMPLES[-1][1:])
sample(code=Derived.twice.__code__)(lambda: Derived(3).twice())
SAMPLES[-1] = ("super_self_is_cell", *SAMPLES[-1][1:])


@sample()
def with_normal():
    with Context("a") as a, Context("b"):
        t(a.name)
    with contextlib.suppress(KeyError), Context("c"):
        t({}["x"])
    return t("end")


@sample()
def with_raises():
    with Context("a"):
        with Context("b", swallow=True):
            boom()
        t("between")
        with Context("c", fail=TypeError):
            t(1)
            boom()


@sample()
def with_return_in_loop():
    for i in t([1, 2, 3]):
        with Context(i):
            if t(i) == 2:
                return t("out")


@sample()
def try_finally():
    log = []
    try:
        log.append(t(1))
        try:
            t(boom())
        except (KeyError, IndexError):
            log.append("no")
        else:
            log.append("no")
        finally:
            log.append(t("inner"))
    except ValueError as exc:
        log.append(t(str(exc)))
    finally:
        log.append(t("outer"))
    return log


@sample()
def raise_after():
    t(1)
    x = [t(2),
         boom(KeyError)]
    return x


@sample()
def pending_exception():
    try:
        boom(KeyError)
    except KeyError as exc:
        t(type(sys.exc_info()[1]).__name__)
        try:
            t(exc.args)
            boom()
        except ValueError:
            t(str(sys.exc_info()[1]))
            t("before")
            raise
        finally:
            t(str(sys.exc_info()[1]))


@sample()
def contexts_and_causes():
    try:
        boom()
    except ValueError:
        t("handling")
        try:
            boom_chained()
        except ValueError as inner:
            t(sys.exc_info()[1].__context__.args)
            raise RuntimeError(t("new")) from inner


@sample()
def restores_outer_exception():
    try:
        boom()
    except ValueError:
        try:
            boom(KeyError)
        except KeyError:
            t("inner")
        t(str(sys.exc_info()[1]))
        raise


def called_in_handler():
    t(str(sys.exc_info()[1]))
    try:
        boom(KeyError)
    except KeyError:
        t(str(sys.exc_info()[1]))
    t(str(sys.exc_info()[1]))
    raise


@sample(code=called_in_handler.__code__)
def outer_handler():
    try:
        raise OSError("outermost")
    except OSError:
        return called_in_handler()


SAMPLES[-1] = ("caller_is_handling", lambda: outer_handler(), called_in_handler.__code__)


@sample()
def except_star():
    try:
        raise ExceptionGroup("g", [ValueError(t(1)), KeyError(t(2)), OSError(3)])
    except* ValueError as group:
        t(len(group.exceptions))
    except* KeyError:
        t("key")


@sample(4)
def loops(n):
    out, i = [], 0
    for a, b in zip(range(n), t("abcd")):
        if a == 1:
            continue
        for c in range(a):
            if t(c) == 1:
                break
        else:
            out.append(b + t("else"))
        out.append((a, b, t(a)))
    while i < 2:
        i += t(1)
    return out


@sample([1, 2, 3])
def comprehensions(xs):
    x = "kept"
    a = [t(x) for x in xs if t(x) != 2]
    b = {y: [t(y + z) for z in xs[:1]] for y in xs[:2]}
    c = [f() for f in [lambda: (x, w) for w in xs[:2]]]
    return x, a, b, c, sum(t(v) for v in xs)


@sample([1, 2])
def comprehension_raises(xs):
    x = 7
    try:
        return [boom() if t(x) == 2 else x for x in xs]
    except ValueError:
        return t(x), [q for q in xs]


@sample({"k": 1, "z": 2})
def match_and_format(d):
    match t(d):
        case {"k": int(v), **rest}:
            text = f"{t(v)!r:>4}|{t(rest)}|{v:{t(3)}}"
        case _:
            text = "no"
    d[t("new")], *tail = t([1, 2, 3])
    d["k"] += t(1)
    return text, tail, d, d["k"] if t(0) or t(1) else None, t(1) < t(2) < t(3), "abc"[t(1):t(2)]


@sample(2)
def imports_and_classes(n):
    import math as m
    from os import path, sep

    class Local:
        size: int = t(n)

        def get(self):
            return __class__.__name__, n
    assert t(True), "never"
    del Local.size
    return m.floor(t(2.5)), sep, path is not None, Local().get(), types.SimpleNamespace(v=t(n)).v


def generator(n):
    got = []
    with Context("gen"):
        for i in range(n):
            got.append((yield t(i)))
    yield from [t("a"), "b"]
    yield got


@sample(code=generator.__code__)
def generators():
    for item in generator(2):
        LOG.append(item)


WIDE = "def wide(n):\n" + "".join(f"    v{i} = n + {i}\n" for i in range(300)) + (
    "    for i in range(2):\n        t(i)\n" + "".join(f"        n += v{i}\n" for i in range(300))
    + "    return t(v299), n\n")
_space = {"t": t}
exec(compile(WIDE, "sample_wide", "exec"), _space)
SAMPLES.append(("extended_args", lambda: _space["wide"](1), _space["wide"].__code__))


