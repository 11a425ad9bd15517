"""Dataclasses, enumerations, named tuples, generics, copies."""

import collections as _c
import dataclasses as _d
import enum as _e
import typing as _t


@_d.dataclass
class Point:
    x: int
    y: int = 0
    tags: list = _d.field(default_factory=list)

    def norm(self):
        return abs(self.x) + abs(self.y)


@_d.dataclass(order=True)
class Pair:
    a: int
    b: int


@_d.dataclass(frozen=True)
class Frozen:
    a: int


class Color(_e.Enum):
    RED = 1
    BLUE = 2

    def describe(self):
        return f"{self.name}={self.value}"


class Level(_e.IntEnum):
    LOW = 1
    HIGH = 2


class Perm(_e.Flag):
    R = 1
    W = 2


Pos = _c.namedtuple("Pos", "x y")


class Typed(_t.NamedTuple):
    a: int
    b: str = "z"

    def total(self):
        return self.a + len(self.b)


T = _t.TypeVar("T")


class Stack(_t.Generic[T]):
    def __init__(self):
        self.items = []

    def push(self, x: T) -> "Stack[T]":
        self.items.append(x)
        return self


def p_dataclass_made_outside(log):
    p = Point(1, 2)
    q = Point(1, 2)
    r = Point(3, y=4)
    out = [p == q, p == r, repr(p), p.norm(), r.x, Point(0).y, sorted([Pair(2, 1), Pair(1, 5)])]
    p.x = 9
    try:
        Frozen(1).a = 2
    except Exception as e:
        out.append((type(e).__name__, str(e)))
    import dataclasses

    out += [
        dataclasses.replace(r, x=0),
        dataclasses.asdict(p),
        [f.name for f in dataclasses.fields(Point)],
        {Frozen(1): 2}[Frozen(1)],
        p.tags,
        Point(1).tags is Point(1).tags,
        dataclasses.is_dataclass(p),
        dataclasses.astuple(q),
    ]
    return out


def p_enum_made_outside(log):
    import enum

    c = Color.RED
    out = [
        c.name,
        c.value,
        Color(2),
        Color["BLUE"],
        c is Color.RED,
        c == Color.BLUE,
        [m.name for m in Color],
        len(Color),
        repr(c),
        str(c),
        isinstance(c, Color),
        {Color.RED: 1}[c],
        c in (Color.RED,),
        Level.HIGH > Level.LOW,
        Level.HIGH + 1,
        Level(2).name,
        c.describe(),
        Perm.R | Perm.W,
        Perm.R in (Perm.R | Perm.W),
        isinstance(Color.RED, enum.Enum),
        Color.__members__["RED"],
        hash(c) == hash(Color.RED),
    ]
    try:
        Color(99)
    except ValueError as e:
        out.append(str(e))
    match c:
        case Color.BLUE:
            out.append("blue")
        case Color.RED:
            out.append("red")
    return [repr(o) for o in out]


def p_namedtuple_made_outside(log):
    p = Pos(1, y=2)
    x, y = p
    return (
        p.x,
        p.y,
        p[0],
        x + y,
        p._replace(x=5),
        p._asdict(),
        p == (1, 2),
        repr(p),
        p._fields,
        Pos._make([3, 4]),
        len(p),
        p + (3,),
        {p: 1}[(1, 2)],
        Typed(1, "a"),
        Typed(2).b,
        Typed(1).total(),
        isinstance(p, tuple),
        [*p],
        max(Pos(1, 5), Pos(2, 0)),
    )


def p_namedtuple_errors(log):
    out = []
    for f in (
        lambda: Pos(1),
        lambda: Pos(1, 2, 3),
        lambda: Pos(1, 2)._replace(q=1),
        lambda: setattr(Pos(1, 2), "x", 5),
        lambda: Pos(1, 2).z,
    ):
        try:
            f()
        except (TypeError, ValueError, AttributeError) as e:
            out.append((type(e).__name__, str(e)))
    return out


def p_made_inside(log):
    import collections
    import dataclasses
    import enum

    P = collections.namedtuple("P", "a b", defaults=[5])

    class E(enum.Enum):
        X = 1
        Y = enum.auto()

        def f(self):
            return self.value * 10

    @dataclasses.dataclass
    class D:
        a: int
        b: list = dataclasses.field(default_factory=list)

        def total(self):
            return self.a + len(self.b)

    d = D(3)
    d.b.append(1)
    return (
        P(1),
        P(1, 2)._replace(a=0),
        E.Y.value,
        E.X.f(),
        E(1).name,
        d.total(),
        d == D(3, [1]),
        repr(d),
    )


def p_total_ordering(log):
    import functools

    @functools.total_ordering
    class A:
        def __init__(self, v):
            self.v = v

        def __eq__(self, o):
            return self.v == o.v

        def __lt__(self, o):
            return self.v < o.v

    return A(1) <= A(2), A(3) > A(2), A(1) >= A(1)


def p_cached_property(log):
    import functools

    class A:
        @functools.cached_property
        def big(self):
            log.append("compute")
            return [1]

    a = A()
    return a.big, a.big is a.big, a.__dict__


def p_generic_class(log):
    out = [Stack[int]().push(1).items, Stack().push(2).push(3).items, Stack.__name__]
    return out


def p_class_getitem(log):
    class A:
        def __class_getitem__(cls, k):
            return (cls.__name__, k)

    return A[5], A[1, 2], list[int] == list[int], dict[str, int].__origin__ is dict


def p_copy(log):
    import copy

    class A:
        def __init__(self):
            self.x, self.y = [1], {"k": (1, [2])}

    a = A()
    b, c = copy.copy(a), copy.deepcopy(a)
    a.x.append(2)
    a.y["k"][1].append(3)
    return (
        b.x,
        c.x,
        c.y,
        b.x is a.x,
        copy.copy([1, 2]),
        copy.deepcopy({"a": [1]}),
        copy.deepcopy((1, 2)),
    )
