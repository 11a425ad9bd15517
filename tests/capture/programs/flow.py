"""Control flow, calls, unpacking, strings and numbers."""


def p_while(log, n=7):
    i = total = 0
    while i < n:
        i += 1
        if i == 3:
            continue
        if i == 6:
            break
        total += i
    else:
        total = -1
    return total, i


def p_while_else(log, n=2):
    while n:
        n -= 1
    else:
        log.append("else")
    return n


def p_for_else(log, items=(1, 2, 3)):
    for x in items:
        if x > 5:
            break
    else:
        log.append("no break")
    for x in items:
        for y in items:
            if x * y == 4:
                break
        else:
            continue
        return x, y
    return None


def p_nested_loops(log):
    out = []
    for i in range(4):
        for j in range(i, 0, -1):
            if (i + j) % 2:
                out.append((i, j))
    return out


def p_range_forms(log):
    return [
        list(range(5)),
        list(range(2, 7)),
        list(range(9, 0, -3)),
        range(10)[3:8:2],
        3 in range(5),
        len(range(0, 10, 3)),
        range(3) == range(0, 3, 1),
    ]


def p_conditional(log, a=3):
    return ("big" if a > 2 else "small", a and 5, a or 6, not a, 0 and a, "" or "x")


def p_chained_compare(log, a=3):
    def f(x):
        log.append(x)
        return x

    return (f(1) < f(2) < f(3), f(5) < f(1) < f(2), 1 < a <= 3 != 4)


def p_boolean_shortcuts(log):
    def t(x):
        log.append(x)
        return x

    return t(0) or t(2) and t(0) or t(3), not t([]), t(1) and not t(None)


def p_walrus(log, data=(1, 5, 9)):
    if (n := len(data)) > 2:
        log.append(n)
    return [y for x in data if (y := x * 2) > 4], n


def p_unpack(log):
    a, b = 1, 2
    a, b = b, a
    (c, d), e = (3, 4), 5
    f, *g = [6, 7, 8]
    *h, i = "xyz"
    j, *k, m = range(5)
    return a, b, c, d, e, f, g, h, i, j, k, m


def p_unpack_errors(log):
    out = []
    for value in ([1], [1, 2, 3], "abcd", 5, None, {1: 2}):
        try:
            a, b = value
            out.append((a, b))
        except (ValueError, TypeError) as e:
            out.append(str(e))
    for value in ([1], (x for x in [1, 2])):
        try:
            a, *b, c = value
            out.append((a, b, c))
        except ValueError as e:
            out.append(str(e))
    return out


def p_star_calls(log):
    def f(a, b=2, *args, c, d=4, **kw):
        return a, b, args, c, d, sorted(kw.items())

    t, d = (1, 2, 3, 4), {"c": 5, "z": 6}
    return [
        f(*t, **d),
        f(1, c=3),
        f(*t[:1], *t[1:2], c=1),
        f(0, **{"c": 9}, y=1),
        f(**{"a": 1, "c": 2}),
        f(*[1], *(2, 3), c=0, **{"q": 1}, **{"r": 2}),
    ]


def p_argument_errors(log):
    def f(a, b, c=1, *, d, e=2):
        return a

    def g():
        return 0

    def h(a, /, b):
        return a

    out = []
    for call in (
        lambda: f(),
        lambda: f(1),
        lambda: f(1, 2),
        lambda: f(1, 2, 3, 4, d=1),
        lambda: f(1, 2, d=1, q=3),
        lambda: f(1, 2, a=1, d=1),
        lambda: g(1),
        lambda: g(x=1),
        lambda: h(a=1, b=2),
        lambda: h(1),
        lambda: f(*[1, 2], **{"d": 1, 5: 1}),
        lambda: f(*5),
        lambda: f(**5),
        lambda: f(1, 2, d=1, **{"d": 2}),
        lambda: (5)(3),
    ):
        try:
            out.append(call())
        except TypeError as e:
            out.append(str(e))
    return out


def p_defaults_are_shared(log):
    def f(x, acc=[]):
        acc.append(x)
        return acc

    return f(1), f(2), f(3, [])


def p_kwonly_and_posonly(log):
    def f(a, b=2, /, c=3, *, d=4):
        return a, b, c, d

    return f(1), f(1, 5, c=6), f(1, d=0), f.__defaults__, f.__kwdefaults__


def p_recursion(log):
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    return fact(20), [fib(i) for i in range(12)]


def p_mutual_recursion(log):
    def even(n):
        return True if n == 0 else odd(n - 1)

    def odd(n):
        return False if n == 0 else even(n - 1)

    return even(30), odd(7)


def p_lambdas(log):
    add = lambda a, b=1: a + b
    return (
        add(1),
        add(1, 5),
        (lambda *a, **k: (a, k))(1, x=2),
        [f() for f in [lambda i=i: i for i in range(3)]],
    )


def p_fstrings(log, x=3.14159, name="bob"):
    w = 10
    return (
        f"{x:.2f}|{name!r:>8}|{x:{w}.3f}|{name:^{w}}|{{}}|{x!s}|{name!a}|{1 + 1}|{x=}|{None}",
        f"{'nested ' + f'{name}'}",
        f"{[1, 2]!r} {dict(a=1)}",
        f"{'é'!a}",
    )


def p_percent_format(log):
    class Box:
        def __str__(self):
            return "box!"

        def __repr__(self):
            return "<Box>"

    return (
        "%d %s %r %5.2f %x" % (5, "a", "b", 1.5, 255),
        "%s" % Box(),
        "%r and %s" % (Box(), [1]),
        "%(a)s-%(b)03d" % {"a": 1, "b": 7},
        "%%" % (),
        "%s" % (1,),
    )


def p_str_format(log):
    class Box:
        size = 7

        def __format__(self, spec):
            return f"box<{spec}>"

    return (
        "{} {1} {0}".replace("{} ", "").format(1, 2),
        "{a:>5}|{b!r}".format(a=1, b="x"),
        "{:>4}".format(Box()),
        "{0.size} {1[0]}".format(Box(), [9]),
    )


def p_str_methods(log, s="Hello, World"):
    return (
        s.upper(),
        s.split(", "),
        s.replace("l", "L"),
        "-".join(["a", "b"]),
        s[::-1],
        s[2:5],
        s.find("W"),
        s.startswith("He"),
        s.encode(),
        "abc" * 2,
        "a" in s,
        s.partition(","),
        "  x ".strip(),
        s.count("l"),
        "a,b,,c".split(","),
        "x".zfill(3),
        s.swapcase(),
        "%s" % s,
        s.isalpha(),
        "abc".translate({97: "z"}),
        ",".join(str(i) for i in range(4)),
        "A" < "B",
        min("hello"),
        sorted("hello"),
    )


def p_bytes(log):
    b = b"abc"
    return (
        b[0],
        b[1:],
        b + b"d",
        b.hex(),
        bytes([1, 2]),
        b.decode(),
        list(b),
        b == b"abc",
        bytes(3),
        b"%d" % 5,
    )


def p_numbers(log):
    return (
        7 // 2,
        -7 // 2,
        7 % -3,
        7 / 2,
        2**10,
        2**-1,
        1 << 5,
        6 & 3,
        6 | 3,
        6 ^ 3,
        ~5,
        -(-3),
        +True,
        divmod(7, 2),
        abs(-4),
        round(2.5),
        round(2.675, 2),
        pow(3, 4, 5),
        int("12"),
        int("ff", 16),
        float("1e3"),
        complex(1, 2) * 1j,
        10**20,
        True + True,
        0.1 + 0.2,
        (3).bit_length(),
        1_000,
        int(3.9),
        float(2),
        bool(0.0),
        hex(255),
        bin(5),
        ord("a"),
        chr(98),
        (2.5).is_integer(),
        (5).real,
    )


def p_number_errors(log):
    out = []
    for call in (
        lambda: 1 / 0,
        lambda: 1 // 0,
        lambda: 1 % 0,
        lambda: 1.0 / 0,
        lambda: int("x"),
        lambda: int(None),
        lambda: float("y"),
        lambda: "a" + 1,
        lambda: 1 + "a",
        lambda: -"a",
        lambda: [] + (),
        lambda: 1 < "a",
        lambda: 2 ** "x",
        lambda: [1] * 1.5,
        lambda: "a" * [],
        lambda: {} + 1,
        lambda: None + 1,
        lambda: ~1.5,
        lambda: 1 << -1,
        lambda: (1, 2) < (1, "a"),
        lambda: len(5),
        lambda: abs("a"),
        lambda: ord("ab"),
        lambda: chr(-1),
        lambda: round("a"),
        lambda: divmod(1, 0),
        lambda: 0**-1,
    ):
        try:
            out.append(call())
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out


def p_augmented(log):
    a = 5
    a += 1
    a -= 2
    a *= 3
    a //= 2
    a **= 2
    a %= 7
    a <<= 3
    a >>= 1
    a |= 8
    a &= 12
    a ^= 5
    b = 7.0
    b /= 2
    s = "x"
    s += "y"
    s *= 2
    c = [1]
    d = c
    c += [2]
    c *= 2
    t = (1,)
    u = t
    t += (2,)
    return a, b, s, c, d is c, t, u


def p_del(log):
    a = 1
    del a
    try:
        return a
    except UnboundLocalError as e:
        log.append(str(e))
    b = [1, 2, 3]
    del b[0], b[-1:]
    d = {1: 2, 3: 4}
    del d[1]
    return b, d


def p_unbound(log, flag=False):
    if flag:
        x = 1

    def inner():
        return y

    out = []
    for f in (lambda: inner(),):
        try:
            f()
        except NameError as e:
            out.append((type(e).__name__, str(e)))
    if flag:
        y = 1
    try:
        x
    except UnboundLocalError as e:
        out.append(str(e))
    try:
        undefined_name
    except NameError as e:
        out.append(str(e))
    return out


def p_match_values(log):
    def f(x):
        match x:
            case 0 | 1:
                return "small"
            case int() if x < 0:
                return "negative"
            case "a" | "b" as letter:
                return letter
            case None:
                return "none"
            case True:
                return "true"
            case float(v):
                return v
            case str():
                return "str"
            case _:
                return "other"

    return [f(v) for v in (0, 1, -5, "a", "zz", None, True, 2.5, [], 77)]


def p_match_sequences(log):
    def f(x):
        match x:
            case []:
                return "empty"
            case [a]:
                return "one", a
            case [1, *rest]:
                return "starts 1", rest
            case (a, [b, c], *_):
                return a, b, c
            case [*_, last]:
                return "last", last

    return [f(v) for v in ([], [5], [1, 2, 3], (0, [1, 2], 9), (4, 5), "ab", {1}, range(3), (1,))]


def p_match_mappings(log):
    def f(x):
        match x:
            case {"kind": "circle", "r": r}:
                return r
            case {"kind": kind, **rest}:
                return kind, rest
            case {}:
                return "mapping"

    return [f(v) for v in ({"kind": "circle", "r": 2}, {"kind": "x", "y": 1}, {"a": 1}, {}, 5)]


def p_match_classes(log):
    class Point:
        __match_args__ = ("x", "y")

        def __init__(self, x, y):
            self.x, self.y = x, y

    class Other:
        x = 1

    def f(v):
        match v:
            case Point(0, 0):
                return "origin"
            case Point(x, y=0):
                return "axis", x
            case Point(x=a, y=b) if a == b:
                return "diagonal"
            case Point():
                return "point"
            case Other(x=q):
                return q

    out = [f(v) for v in (Point(0, 0), Point(3, 0), Point(2, 2), Point(1, 2), Other(), 5)]
    try:
        match Other():
            case Other(1):
                pass
    except TypeError as e:
        out.append(str(e))
    return out


def p_global_builtins(log):
    return (
        any([0, 1]),
        all([]),
        sum([1, 2], 10),
        min(3, 1),
        max([1, 5], key=lambda x: -x),
        max([], default=7),
        sorted([3, 1, 2], reverse=True),
        sorted("bca", key=ord),
        list(reversed([1, 2])),
        list(enumerate("ab", 1)),
        list(zip([1, 2], "ab")),
        list(map(lambda a, b: a * b, [1, 2], [3, 4])),
        list(filter(None, [0, 1, 2])),
        isinstance(1, (str, int)),
        issubclass(bool, int),
        callable(len),
        hash("a") == hash("a"),
        len("abc"),
        type(1) is int,
        type([]).__name__,
        int.__name__,
        repr([1, "a"]),
        list(range(3))[1],
        sum([0.1] * 10),
    )


def p_builtin_errors(log):
    out = []
    for call in (
        lambda: min([]),
        lambda: max(),
        lambda: sum(["a"]),
        lambda: sum([1], "a"),
        lambda: next(iter([])),
        lambda: isinstance(1, 5),
        lambda: issubclass(1, int),
        lambda: len(),
        lambda: sorted(5),
        lambda: list(5),
        lambda: dict([1]),
        lambda: dict([(1, 2, 3)]),
        lambda: zip(1),
        lambda: iter(5),
        lambda: next(5),
        lambda: getattr(5, "nope"),
        lambda: getattr(5, 5),
        lambda: reversed(5),
        lambda: list(zip([1], [1, 2], strict=True)),
        lambda: range(1.5),
        lambda: range(1, 2, 0),
        lambda: enumerate(),
        lambda: "".join([1]),
        lambda: int([]),
        lambda: tuple(1, 2),
        lambda: {[]: 1},
        lambda: {1: 2}[3],
        lambda: [1][5],
        lambda: (1,)["a"],
        lambda: "abc"[10],
        lambda: [1]["x"],
        lambda: {}["k"],
        lambda: None[0],
        lambda: 5 in 6,
        lambda: set([[]]),
        lambda: hash([]),
    ):
        try:
            out.append(call())
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out


def p_ternary_chain(log, xs=(5, -1, 0)):
    return ["pos" if x > 0 else "neg" if x < 0 else "zero" for x in xs]


def p_slices(log):
    a = list(range(10))
    a[2:5] = ["x"]
    a[::3] = [0] * len(a[::3])
    s = slice(1, None, 2)
    b = a[s]
    a[-1:] = []
    del a[::2]
    return (
        a,
        b,
        "hello"[1:-1],
        (1, 2, 3)[::-1],
        s.indices(5),
        s == slice(1, None, 2),
        [1, 2, 3][-2:],
    )


def p_slice_errors(log):
    out = []
    a = [1, 2, 3]
    for call in (
        lambda: a["x":],
        lambda: a.__setitem__(slice(0, 2, 2), [1, 2]),
        lambda: a.__setitem__(7, 1),
        lambda: a.__setitem__(slice(0, 1), 5),
        lambda: a.__delitem__(9),
        lambda: a[1.5],
        lambda: a[::0],
    ):
        try:
            out.append(call())
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out, a


def p_assert(log, n=1):
    assert n == 1
    try:
        assert n == 2, f"n is {n}"
    except AssertionError as e:
        log.append(str(e))
    try:
        assert not n
    except AssertionError as e:
        return e.args


def p_imports(log):
    import collections.abc as abc
    import math
    import os.path
    from collections import OrderedDict as OD
    from math import pi, sqrt

    try:
        from math import nothing
    except ImportError as e:
        log.append(type(e).__name__)
    try:
        import no_such_module_anywhere
    except ModuleNotFoundError as e:
        log.append(str(e))
    return math.floor(pi), sqrt(16), os.path.join("a", "b"), OD(a=1), issubclass(list, abc.Sequence)


COUNTER = 0


def p_globals(log):
    global COUNTER
    before = COUNTER
    COUNTER += 5
    after = COUNTER
    COUNTER = before
    return after - before, globals()["COUNTER"] == before


def p_annotations(log):
    x: int = 5
    y: "str"

    def f(a: int, b: "x" = 2) -> float:
        return a

    return x, sorted(f.__annotations__), f.__annotations__["a"]


def p_docstrings(log):
    def f():
        """doc of f"""

    class C:
        """doc of C"""

    def g():
        pass

    return f.__doc__, C.__doc__, g.__doc__, f.__name__, f.__qualname__, g.__module__


def p_many_locals(log):
    a0 = 0
    a1 = a0 + 1
    a2 = a1 + 1
    a3 = a2 + 1
    a4 = a3 + 1
    a5 = a4 + 1
    a6 = a5 + 1
    a7 = a6 + 1
    b0 = a7 + 1
    b1 = b0 + 1
    b2 = b1 + 1
    b3 = b2 + 1
    b4 = b3 + 1
    b5 = b4 + 1
    b6 = b5 + 1
    b7 = b6 + 1
    c0 = b7 + 1
    c1 = c0 + 1
    c2 = c1 + 1
    c3 = c2 + 1
    c4 = c3 + 1
    return a0 + b0 + c0, c4


def p_locals(log, a=1):
    b = 2
    return sorted(k for k in locals() if k != "log"), vars() == locals()


def p_none_checks(log, x=None, y=0):
    return x is None, y is not None, x == None, (x or 3), [v for v in (1, None, 0) if v is not None]


def p_is_identity(log):
    a = []
    b = a
    c = []
    return a is b, a is c, a is not c, None is None, type(a) is list, () == (), 1 is not None


def p_string_building(log):
    out = ""
    for i, c in enumerate("abc"):
        out = out + c * i + str(i)
    return out, "".join(reversed(out))


def p_complex_expression(log, a=2, b=3.5):
    return [
        (a + b * 2 - a**2) / (b // 1) % 3,
        [a, *[b, a]][1],
        {**{"x": a}, "y": b}["x"],
        (a, *(1, 2)),
    ]
