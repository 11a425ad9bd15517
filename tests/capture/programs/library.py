"""Pure Python code of the standard library, interpreted."""

import dataclasses as _d
import enum as _e


@_d.dataclass
class Base:
    a: int


@_d.dataclass
class Child(Base):
    b: int = 5
    c: list = _d.field(default_factory=list, repr=False)


@_d.dataclass
class Post:
    x: int
    doubled: int = _d.field(init=False)

    def __post_init__(self):
        self.doubled = self.x * 2


@_d.dataclass(frozen=True, order=True, slots=True)
class Key:
    a: int
    b: int


class Shape(_e.Enum):
    SQUARE = "square"
    CIRCLE = "circle"

    def area(self, n):
        return n * n if self is Shape.SQUARE else 3 * n * n

    @property
    def label(self):
        return self.value.title()


class Priority(_e.IntEnum):
    LOW = 1
    MID = 2
    HIGH = 3


class Mode(str, _e.Enum):
    READ = "r"
    WRITE = "w"


class Flags(_e.IntFlag):
    A = 1
    B = 2


def p_textwrap(log):
    import textwrap

    text = "The quick brown fox jumps over the lazy dog and runs away from it all."
    return (
        textwrap.fill(text, 20),
        textwrap.wrap(text, 15),
        textwrap.shorten(text, 30),
        textwrap.dedent("   a\n     b\n   c"),
    )


def p_difflib(log):
    import difflib

    a, b = ["one\n", "two\n", "three\n"], ["one\n", "tree\n", "four\n"]
    return (
        list(difflib.unified_diff(a, b)),
        difflib.get_close_matches("appel", ["ape", "apple", "peach"]),
        list(difflib.ndiff(a, b)),
    )


def p_fractions(log):
    from fractions import Fraction

    a, b = Fraction(1, 3), Fraction("2/4")
    return (
        a + b,
        a * b,
        a / b,
        a - 1,
        float(a),
        a < b,
        repr(b),
        Fraction(0.25),
        max(a, b),
        a**2,
        round(Fraction(7, 2)),
        hash(a) == hash(Fraction(2, 6)),
        str(-a),
    )


def p_statistics(log):
    import statistics

    return statistics.mean([1, 2, 3, 4]), statistics.median([3, 1, 2]), statistics.mode([1, 1, 2])


def p_json_in_python(log):
    from json import encoder

    e = encoder.JSONEncoder(sort_keys=True)
    chunks = encoder._make_iterencode(
        {},
        e.default,
        encoder.py_encode_basestring_ascii,
        None,
        float.__repr__,
        ": ",
        ", ",
        True,
        False,
        True,
    )
    return "".join(chunks({"b": [1, 2.5, None, True], "a": {"x": "é\n"}}, 0))


def p_shlex_and_fnmatch(log):
    import fnmatch

    return fnmatch.translate("*.py") is not None, [
        n for n in ("a.py", "b.txt") if n.endswith(".py")
    ]


def p_urllib_parse(log):
    from urllib import parse

    u = parse.urlsplit("http://host:80/path;p?q=1&r=ab#frag")
    return (
        tuple(u),
        u.port,
        u.hostname,
        parse.quote("a b/c"),
        parse.urlencode({"a": 1, "b": "x y"}),
        parse.parse_qs("a=1&b=2&a=3"),
        parse.urljoin("http://a/b/c", "../d"),
    )


def p_calendar_math(log):
    import calendar

    return calendar.isleap(2024), calendar.leapdays(2000, 2024)


def p_colorsys(log):
    import colorsys

    return colorsys.rgb_to_hsv(0.2, 0.4, 0.6), colorsys.hsv_to_rgb(0.5, 0.5, 0.5)


def p_graphlib(log):
    from graphlib import CycleError, TopologicalSorter

    out = [list(TopologicalSorter({"d": {"b", "c"}, "b": {"a"}, "c": {"a"}}).static_order())[0]]
    try:
        list(TopologicalSorter({"a": {"b"}, "b": {"a"}}).static_order())
    except CycleError as e:
        out.append(e.args[0])
    return out


def p_functools_singledispatch_free(log):
    import functools

    return functools.reduce(lambda a, b: {**a, **b}, [{"x": 1}, {"y": 2}])


def p_copy_deep(log):
    import copy

    class Node:
        def __init__(self, v, kids=()):
            self.v, self.kids, self.parent = v, list(kids), None
            for k in self.kids:
                k.parent = self

    t = Node(1, [Node(2), Node(3, [Node(4)])])
    c = copy.deepcopy(t)
    c.kids[0].v = 99

    class Custom:
        def __init__(self):
            self.x = [1]

        def __deepcopy__(self, memo):
            log.append("custom")
            return "deep"

        def __copy__(self):
            return "shallow"

    return (
        t.kids[0].v,
        c.kids[0].v,
        c.kids[1].kids[0].parent is c.kids[1],
        c is not t,
        copy.deepcopy([Custom()]),
        copy.copy(Custom()),
    )


def p_string_formatter(log):
    import string

    return string.capwords("hello big world"), string.Template("$a and ${b}").substitute(a=1, b="z")


def p_operator_and_itertools_recipes(log):
    import itertools
    import operator

    def take(n, it):
        return list(itertools.islice(it, n))

    def roundrobin(*its):
        its = [iter(i) for i in its]
        while its:
            for i in its[:]:
                try:
                    yield next(i)
                except StopIteration:
                    its.remove(i)

    return (
        take(3, itertools.count(2)),
        list(roundrobin("ab", "c", "def")),
        dict(itertools.zip_longest("ab", [1])),
        list(itertools.accumulate([1, 2, 3], operator.mul)),
    )


def p_inspect_free_introspection(log):
    def f(a, b=1, *args, c, **kw):
        return a

    code = f.__code__
    return (
        code.co_varnames[:5],
        code.co_argcount,
        code.co_kwonlyargcount,
        f.__defaults__,
        f.__kwdefaults__,
    )


def p_heapq_merge(log):
    import heapq

    return list(heapq.merge([1, 4, 7], [2, 5], [0, 9])), list(
        heapq.merge(["a", "ccc"], ["bb"], key=len)
    )


def p_ipaddress(log):
    import ipaddress

    a = ipaddress.ip_address("10.0.0.1")
    return str(a + 1), a.is_private, int(a), str(ipaddress.ip_network("10.0.0.0/30")[1])


def p_html_escape(log):
    import html

    return html.escape("<a href='x'>&</a>"), html.unescape("&lt;&#65;&gt;")


def p_queue_like_deque_algorithms(log):
    from collections import deque

    def bfs(g, s):
        seen, q, order = {s}, deque([s]), []
        while q:
            n = q.popleft()
            order.append(n)
            for m in g.get(n, ()):
                if m not in seen:
                    seen.add(m)
                    q.append(m)
        return order

    return bfs({1: [2, 3], 2: [4], 3: [4], 4: [1]}, 1)


def p_typing_uses(log):
    import typing

    x: typing.Optional[int] = None

    def f(a: "typing.List[int]") -> typing.Dict[str, int]:
        return typing.cast(dict, {"a": a})

    if typing.TYPE_CHECKING:
        pass
    return f(1), x, typing.get_origin(list[int]) is list, typing.get_args(dict[str, int])


def p_dataclass_features(log):
    import dataclasses

    return (
        dataclasses.fields(Base)[0].name,
        Child(1, 2),
        Child(1) == Child(1),
        dataclasses.replace(Child(1), b=9),
        Child.__match_args__,
        Post(3).doubled,
        hash(Key(1, 2)) == hash(Key(1, 2)),
        Key(1, 2) < Key(1, 3),
    )


def p_enum_features(log):
    return (
        [m.value for m in Shape],
        Shape.SQUARE.area(3),
        Shape("circle").name,
        Shape.CIRCLE.label,
        Priority.HIGH > Priority.LOW,
        str(Mode.READ),
        f"{Mode.READ}",
        Mode("w") is Mode.WRITE,
        [p for p in Priority if p >= Priority.MID],
        Flags.A | Flags.B == Flags(3),
        bool(Flags.A & Flags.B),
    )
