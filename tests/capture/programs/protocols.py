"""Special methods: operators, comparison, containers, calls, text."""


def p_operators(log):
    class V:
        def __init__(self, x):
            self.x = x

        def __add__(self, o):
            return V(self.x + (o.x if isinstance(o, V) else o))

        __radd__ = __add__

        def __sub__(self, o):
            return V(self.x - o.x)

        def __mul__(self, o):
            if not isinstance(o, int):
                return NotImplemented
            return V(self.x * o)

        def __rmul__(self, o):
            return V(self.x * o * 100)

        def __neg__(self):
            return V(-self.x)

        def __invert__(self):
            return "inv"

        def __pos__(self):
            return "pos"

        def __abs__(self):
            return abs(self.x)

        def __iadd__(self, o):
            self.x += 1000
            return self

        def __matmul__(self, o):
            return "matmul"

        def __pow__(self, o):
            return "pow"

        def __rtruediv__(self, o):
            return "rdiv"

        def __divmod__(self, o):
            return "dm"

        def __lshift__(self, o):
            return "shl"

        def __and__(self, o):
            return "and"

        def __bool__(self):
            return self.x != 0

        def __int__(self):
            return int(self.x)

        def __float__(self):
            return float(self.x)

        def __index__(self):
            return self.x

        def __round__(self, n=None):
            return ("round", n)

        def __repr__(self):
            return f"V({self.x})"

    a, b = V(3), V(4)
    out = [
        a + b,
        a + 1,
        1 + a,
        a - b,
        a * 2,
        2 * a,
        -a,
        ~a,
        +a,
        abs(V(-2)),
        a @ b,
        a**2,
        1 / a,
        *(divmod(a, 1), a << 1, a & 1, bool(V(0)), not a, int(a), float(a), [0, 1, 2, 3][a]),
        *(round(a), round(a, 2), sum([a, b]), range(a), "ab" * a, hex(a)),
    ]
    a += 1
    out.append(a)
    for f in (lambda: a * "x", lambda: a - 1, lambda: a // 2, lambda: a % b, lambda: a | b):
        try:
            out.append(f())
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return [repr(x) for x in out]


def p_reflected_priority(log):
    class A:
        def __add__(self, o):
            return "A.add"

        def __radd__(self, o):
            return "A.radd"

        def __eq__(self, o):
            log.append("A.eq")
            return NotImplemented

        def __lt__(self, o):
            return "A.lt"

        __hash__ = None

    class B(A):
        def __radd__(self, o):
            return "B.radd"

        def __gt__(self, o):
            return "B.gt"

    class C(A):
        pass

    return (
        A() + B(),
        B() + A(),
        A() + C(),
        5 + A(),
        [] + A(),
        "s" + B(),
        A() < B(),
        A() < C(),
        A() == B(),
        A() != A(),
    )


def p_comparisons(log):
    class N:
        def __init__(self, v):
            self.v = v

        def __eq__(self, o):
            return isinstance(o, N) and self.v == o.v

        def __lt__(self, o):
            return self.v < o.v

        def __le__(self, o):
            return self.v <= o.v

        def __hash__(self):
            return hash(self.v)

        def __repr__(self):
            return f"N{self.v}"

    a, b, c = N(1), N(2), N(1)
    d = {a: "one"}
    d[c] = "again"
    out = [
        a == c,
        a != c,
        a < b,
        a > b,
        a >= b,
        a <= c,
        a == 5,
        a != 5,
        sorted([b, a]),
        max(a, b),
        d,
        N(1) in d,
        c in [b, a],
        [b, a].index(c),
        {a, c, b} == {a, b},
        a in {c},
        [a, b] == [c, b],
        (a, 1) < (b, 0),
        [b, a, c].count(a),
    ]
    try:
        a < 5
    except AttributeError as e:
        out.append(str(e))
    try:
        object() < a
    except (TypeError, AttributeError) as e:
        out.append(type(e).__name__)
    return out


def p_container_protocol(log):
    class Box:
        def __init__(self):
            self.d = {}

        def __getitem__(self, k):
            log.append(("get", k))
            return self.d[k]

        def __setitem__(self, k, v):
            log.append(("set", k, v))
            self.d[k] = v

        def __delitem__(self, k):
            del self.d[k]

        def __len__(self):
            return len(self.d)

        def __contains__(self, k):
            return k in self.d

        def __iter__(self):
            return iter(sorted(self.d))

    b = Box()
    b["x"] = 1
    b[1:2] = "s"
    b["x"] += 5
    out = [b["x"], len(b), "x" in b, "q" in b, bool(Box())]
    del b["x"]
    b[1, 2] = "tuple"
    out.append((1, 2) in b)
    try:
        b["gone"]
    except KeyError as e:
        out.append(e.args)
    return out, len(b)


def p_callable_object(log):
    class Adder:
        def __init__(self, n):
            self.n = n

        def __call__(self, x, *, times=1):
            return (x + self.n) * times

    a = Adder(5)
    return a(1), a(1, times=3), list(map(a, [1, 2])), callable(a), callable(5)


def p_str_and_repr(log):
    class A:
        def __repr__(self):
            return "A()"

    class B(A):
        def __str__(self):
            return "b"

        def __format__(self, spec):
            return f"<{spec}>"

    class C:
        def __bytes__(self):
            return b"c"

        def __str__(self):
            return 5

    out = [
        str(A()),
        repr(B()),
        str(B()),
        f"{B()!r} {B():>3} {A()} {A()!s:>6}",
        str([A(), B()]),
        "%s %r" % (B(), B()),
        bytes(C()),
        repr({1: A()}),
        repr((A(),)),
        format(A()),
        "{}".format(B()),
    ]
    for f in (lambda: str(C()), lambda: f"{A():x}"):
        try:
            f()
        except TypeError as e:
            out.append(str(e))
    return out
