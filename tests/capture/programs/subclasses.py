"""Classes derived from builtin containers, numbers and text."""


def p_subclass_list(log):
    class L(list):
        def append(self, x):
            log.append(x)
            super().append(x * 2)

        @property
        def last(self):
            return self[-1]

        def __getitem__(self, i):
            return ("item", super().__getitem__(i))

    a = L([1, 2])
    a.append(5)
    a.tag = "t"
    a.extend([7])
    return (
        list(a),
        a.last,
        len(a),
        a[0],
        a.tag,
        isinstance(a, list),
        a == [1, 2, 10, 7],
        a + [1],
        type(a + [1]).__name__,
        sorted(a),
        repr(a),
    )


def p_subclass_dict(log):
    class D(dict):
        def __getitem__(self, k):
            return ("d", super().__getitem__(k))

        def __setitem__(self, k, v):
            log.append(k)
            super().__setitem__(k, v)

        def __missing__(self, k):
            return "missing " + k

    d = D(a=1)
    d["b"] = 2
    d.update(c=3)
    d.extra = 1
    return (
        d["a"],
        d["zz"],
        d.get("a"),
        list(d.items()),
        d == {"a": 1, "b": 2, "c": 3},
        {**d},
        d.extra,
        dict(d),
        len(d),
        "a" in d,
    )


def p_subclass_int_str(log):
    class I(int):
        def __add__(self, o):
            return I(int(self) + int(o) + 1)

        def double(self):
            return self * 2

    class S(str):
        def shout(self):
            return self.upper() + "!"

        def __eq__(self, o):
            return True

        __hash__ = str.__hash__

    i, s = I(5), S("abc")
    i.tag = 1
    return (
        i + 1,
        i.double(),
        i == 5,
        i < 6,
        [0] * I(2),
        s.shout(),
        s == "zzz",
        s[0],
        len(s),
        s + "d",
        f"{i:03d} {s:>5}",
        isinstance(i, int),
        i.tag,
        str(i),
        hash(i) == hash(5),
        {5: "x"}[i],
    )


def p_subclass_tuple(log):
    class P(tuple):
        def __new__(cls, a, b):
            return super().__new__(cls, (a, b))

        @property
        def first(self):
            return self[0]

    p = P(1, 2)
    a, b = p
    return p.first, a, b, p == (1, 2), p + (3,), {p: 1}[(1, 2)], len(p), isinstance(p, tuple)


def p_subclass_exception_and_set(log):
    class S(set):
        def add(self, x):
            super().add(x * 10)

    s = S([1])
    s.add(2)
    return sorted(s), 20 in s, sorted(s | {5}), type(s | {5}).__name__ in ("S", "set")
