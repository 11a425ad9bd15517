"""Names that collide with the machine's own, odd corners, longer programs."""


def p_keyword_names(log):
    def f(self=0, m=1, args=2, kwargs=3, obj=4, value=5, **rest):
        return self, m, args, kwargs, obj, value, rest

    class A:
        def __init__(this, self=None, m=None, **args):
            this.all = (self, m, args)

    return (
        f(self=9, m=8, name="n"),
        dict(self=1, m=2, args=3, kwargs=4),
        A(self=1, m=2, args=3).all,
        "{self}{m}".format(self=1, m=2),
    )


def p_update_with_odd_keywords(log):
    d = {}
    d.update(self=1, m=2, method=3, key=4)
    import collections

    return (
        d,
        collections.OrderedDict(m=1),
        collections.defaultdict(int, self=2, m=3),
        collections.Counter(m=2, self=1),
    )


def p_shadow_builtins_in_class(log):
    class A:
        list = [1]

        def len(self):
            return len(self.list)

        type = "t"

    return A().len(), A.type, A().list


def p_bubble_sort(log):
    a = [5, 2, 9, 1, 7]
    for i in range(len(a)):
        for j in range(len(a) - 1 - i):
            if a[j] > a[j + 1]:
                a[j], a[j + 1] = a[j + 1], a[j]
    return a


def p_primes(log):
    sieve = [True] * 50
    sieve[0:2] = [False, False]
    for i in range(2, 8):
        if sieve[i]:
            sieve[i * i :: i] = [False] * len(sieve[i * i :: i])
    return [i for i, p in enumerate(sieve) if p]


def p_queens(log):
    def place(n, row=0, cols=()):
        if row == n:
            return 1
        return sum(
            place(n, row + 1, (*cols, c))
            for c in range(n)
            if all(c != k and abs(c - k) != row - r for r, k in enumerate(cols))
        )

    return [place(n) for n in range(1, 6)]


def p_tokenizer(log):
    def tokens(s):
        i = 0
        while i < len(s):
            c = s[i]
            if c.isspace():
                i += 1
            elif c.isdigit():
                j = i
                while j < len(s) and s[j].isdigit():
                    j += 1
                yield ("num", int(s[i:j]))
                i = j
            elif c in "+-*/()":
                yield ("op", c)
                i += 1
            else:
                raise SyntaxError(f"bad {c!r} at {i}")

    def expr(ts):
        v = term(ts)
        while ts and ts[0][1] in ("+", "-"):
            op = ts.pop(0)[1]
            r = term(ts)
            v = v + r if op == "+" else v - r
        return v

    def term(ts):
        v = atom(ts)
        while ts and ts[0][1] in ("*", "/"):
            op = ts.pop(0)[1]
            r = atom(ts)
            v = v * r if op == "*" else v / r
        return v

    def atom(ts):
        kind, v = ts.pop(0)
        if kind == "num":
            return v
        v = expr(ts)
        ts.pop(0)
        return v

    out = [expr(list(tokens(s))) for s in ("1 + 2 * 3", "(1+2)*3 - 4/2", "10")]
    try:
        list(tokens("1 $ 2"))
    except SyntaxError as e:
        out.append(str(e))
    return out


def p_linked_list(log):
    class Node:
        def __init__(self, v, nxt=None):
            self.v, self.next = v, nxt

    class Linked:
        def __init__(self, items=()):
            self.head, self.size = None, 0
            for i in items:
                self.push(i)

        def push(self, v):
            self.head = Node(v, self.head)
            self.size += 1

        def __iter__(self):
            n = self.head
            while n:
                yield n.v
                n = n.next

        def __len__(self):
            return self.size

        def reverse(self):
            prev, cur = None, self.head
            while cur:
                cur.next, prev, cur = prev, cur, cur.next
            self.head = prev

    a = Linked("abc")
    first = list(a)
    a.reverse()
    return first, list(a), len(a), "b" in a


def p_bank(log):
    class Insufficient(Exception):
        def __init__(self, need, have):
            super().__init__(need, have)
            self.missing = need - have

    class Account:
        opened = 0

        def __init__(self, owner, balance=0):
            self.owner, self.balance = owner, balance
            self.history = []
            type(self).opened += 1

        def withdraw(self, n):
            if n > self.balance:
                raise Insufficient(n, self.balance)
            self.balance -= n
            self.history.append(-n)

        def __enter__(self):
            self.saved = self.balance
            return self

        def __exit__(self, kind, value, tb):
            if kind is Insufficient:
                self.balance = self.saved
                log.append(f"rolled back, missing {value.missing}")
                return True

    a = Account("ann", 100)
    with a:
        a.withdraw(30)
        a.withdraw(100)
    with a:
        a.withdraw(50)
    return a.balance, a.history, Account.opened


def p_state_machine(log):
    transitions = {
        ("idle", "start"): "running",
        ("running", "pause"): "paused",
        ("paused", "start"): "running",
        ("running", "stop"): "idle",
    }
    state, seen = "idle", []
    for event in ("start", "pause", "start", "bad", "stop"):
        try:
            state = transitions[state, event]
        except KeyError as e:
            seen.append(e.args)
        else:
            seen.append(state)
    return seen


def p_memo_and_default_dict(log):
    memo = {}

    def ways(n, coins=(1, 2, 5)):
        if n == 0:
            return 1
        if n < 0 or not coins:
            return 0
        if (n, coins) not in memo:
            memo[n, coins] = ways(n - coins[-1], coins) + ways(n, coins[:-1])
        return memo[n, coins]

    return ways(20), len(memo) > 5


def p_training_loop_shape(log):
    class Param:
        def __init__(self, v):
            self.v, self.grad = v, 0.0

    class SGD:
        def __init__(self, params, lr=0.1, momentum=0.9):
            self.param_groups = [{"params": list(params), "lr": lr, "momentum": momentum}]
            self.state = {}

        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    s = self.state.setdefault(p, {"m": 0.0})
                    s["m"] = group["momentum"] * s["m"] + p.grad
                    p.v -= group["lr"] * s["m"]

        def zero_grad(self):
            for g in self.param_groups:
                for p in g["params"]:
                    p.grad = 0.0

    class Schedule:
        def __init__(self, opt):
            self.opt, self.base = opt, [g["lr"] for g in opt.param_groups]
            self.n = 0

        def step(self):
            self.n += 1
            for g, b in zip(self.opt.param_groups, self.base):
                g["lr"] = b * 0.5 ** (self.n // 2)

    w, b = Param(0.0), Param(0.0)
    opt = SGD([w, b])
    sched = Schedule(opt)
    losses = []
    for epoch in range(3):
        for x, y in [(1.0, 3.0), (2.0, 5.0)]:
            opt.zero_grad()
            e = w.v * x + b.v - y
            losses.append(e * e)
            w.grad += 2 * e * x
            b.grad += 2 * e
            opt.step()
        sched.step()
    return [round(v, 9) for v in losses], round(w.v, 9), opt.param_groups[0]["lr"], len(opt.state)


def p_hooks(log):
    class M:
        def __init__(self):
            self._hooks = {}
            self._pre = []

        def register(self, h):
            key = len(self._hooks)
            self._hooks[key] = h

            class Handle:
                def remove(inner):
                    del self._hooks[key]

            return Handle()

        def __call__(self, *args, **kwargs):
            for h in self._pre:
                r = h(self, args)
                if r is not None:
                    args = r if isinstance(r, tuple) else (r,)
            out = self.forward(*args, **kwargs)
            for h in self._hooks.values():
                r = h(self, args, out)
                if r is not None:
                    out = r
            return out

        def forward(self, x, scale=1):
            return x * scale

    m = M()
    h = m.register(lambda mod, a, o: o + 1)
    m._pre.append(lambda mod, a: a[0] * 10)
    first = m(1, scale=2)
    h.remove()
    return first, m(1)


def p_config_tree(log):
    class Cfg(dict):
        __getattr__ = dict.__getitem__
        __setattr__ = dict.__setitem__

    c = Cfg(a=1, sub=Cfg(b=2))
    c.new = c.sub.b + 1
    c.sub.update(q=5)
    try:
        c.missing
    except KeyError as e:
        log.append(e.args)
    return c.a, dict(c.sub), c["new"], {**c}


def p_string_report(log):
    rows = [("alpha", 1.5, True), ("b", 22.25, False)]
    width = max(len(r[0]) for r in rows)
    lines = [f"{n:<{width}} | {v:>8.2f} | {'yes' if ok else 'no':^5}" for n, v, ok in rows]
    return (
        "\n".join(lines),
        "=".join("-" * 3),
        ", ".join(f"{k}={v!r}" for k, v in sorted({"b": 1, "a": "x"}.items())),
    )


def p_parse_args(log):
    def parse(argv):
        opts, rest, it = {}, [], iter(argv)
        for a in it:
            match a.split("="):
                case [flag, value] if flag.startswith("--"):
                    opts[flag[2:]] = value
                case [flag] if flag.startswith("-"):
                    opts[flag.lstrip("-")] = next(it, None)
                case _:
                    rest.append(a)
        return opts, rest

    return parse(["--lr=0.1", "x", "-n", "5", "--flag"])


def p_matrix_class(log):
    class Mat:
        def __init__(self, rows):
            self.rows = [list(r) for r in rows]

        @classmethod
        def eye(cls, n):
            return cls([[int(i == j) for j in range(n)] for i in range(n)])

        @property
        def shape(self):
            return len(self.rows), len(self.rows[0])

        @property
        def T(self):
            return Mat(zip(*self.rows))

        def __matmul__(self, o):
            return Mat([[sum(a * b for a, b in zip(r, c)) for c in o.T.rows] for r in self.rows])

        def __getitem__(self, ij):
            i, j = ij
            if isinstance(i, slice) or isinstance(j, slice):
                return Mat(
                    [
                        r[j] if isinstance(j, slice) else [r[j]]
                        for r in (self.rows[i] if isinstance(i, slice) else [self.rows[i]])
                    ]
                )
            return self.rows[i][j]

        def __eq__(self, o):
            return isinstance(o, Mat) and self.rows == o.rows

        def __pow__(self, n):
            return Mat.eye(self.shape[0]) if n == 0 else self @ self ** (n - 1)

        def __repr__(self):
            return f"Mat({self.rows})"

    m = Mat([[1, 1], [1, 0]])
    return (
        repr(m**8),
        (m**8)[0, 1],
        m.T == m,
        (m @ Mat.eye(2)).rows,
        m.shape,
        m[0:1, :].rows,
        m[:, 1].rows,
    )


def p_iteration_protocol_mix(log):
    class Batches:
        def __init__(self, data, size):
            self.data, self.size = data, size

        def __iter__(self):
            for i in range(0, len(self.data), self.size):
                yield self.data[i : i + self.size]

        def __len__(self):
            return -(-len(self.data) // self.size)

    b = Batches(list(range(7)), 3)
    return [sum(x) for x in b], len(b), [list(z) for z in zip(b, b)], list(enumerate(b, 1))[-1]


def p_event_order(log):
    class T:
        def __init__(self, n):
            self.n = n
            log.append(("init", n))

        def __del__(self):
            pass

        def __bool__(self):
            log.append(("bool", self.n))
            return self.n > 1

        def __eq__(self, o):
            log.append(("eq", self.n, getattr(o, "n", o)))
            return self.n == getattr(o, "n", o)

        __hash__ = None

    a, b = T(1), T(2)
    x = a or b
    y = a and b
    z = not b
    w = b in [a, b]
    v = [a] == [T(1)]
    return x.n, y.n, z, w, v


def p_global_function_calls(log):
    return (
        outer_helper(3, flag=True),
        [outer_helper(i) for i in range(2)],
        Registry.get("a"),
        Registry.names(),
    )


def outer_helper(n, *, flag=False):
    def inner(k):
        return k + n

    return inner(1) * (2 if flag else 1)


class Registry:
    items = {"a": 1}

    @classmethod
    def get(cls, name, default=None):
        return cls.items.get(name, default)

    @staticmethod
    def names():
        return sorted(Registry.items)


def p_deep_unpack(log):
    data = [("a", (1, [2, 3])), ("b", (4, [5, 6]))]
    out = [(k, x, y, z) for k, (x, [y, z]) in data]
    for i, (k, (x, rest)) in enumerate(data):
        log.append((i, k, x, *rest))
    return out


def p_large_dict_literal(log):
    return {
        "a": 1,
        "b": {"c": [1, {"d": (2, {3})}]},
        **{str(i): i for i in range(20)},
        "z": lambda: 1,
    }["b"]["c"][1]["d"][0]


def p_long_elif(log):
    def kind(x):
        if x is None:
            return 0
        elif isinstance(x, bool):
            return 1
        elif isinstance(x, int):
            return 2
        elif isinstance(x, (float, complex)):
            return 3
        elif hasattr(x, "keys"):
            return 4
        elif callable(x):
            return 5
        elif isinstance(x, str) and x:
            return 6
        else:
            return 7

    return [kind(v) for v in (None, True, 3, 2.5, 1j, {}, len, "a", "", [])]


def p_exceptions_as_flow(log):
    class Found(Exception):
        pass

    def search(grid, t):
        try:
            for i, row in enumerate(grid):
                for j, v in enumerate(row):
                    if v == t:
                        raise Found((i, j))
        except Found as f:
            return f.args[0]
        return None

    return search([[1, 2], [3, 4]], 3), search([[1]], 9)


def p_operator_on_tuples(log):
    best = None
    for item in [("a", 3), ("b", 1), ("c", 2)]:
        if best is None or item[1] < best[1]:
            best = item
    return best, (1, 2) + (3,), (0,) * 3, (1, 2) < (1, 3), sorted([(2, "b"), (1, "z"), (2, "a")])


def p_type_checks(log):
    class A:
        pass

    a = A()
    return (
        type(a) is A,
        type(a).__mro__[1] is object,
        a.__class__.__name__,
        type(type(a)).__name__,
        A.__bases__[0].__name__,
        isinstance(a, type(a)),
        type(None) is type(None),
        type(1.0) == float,
    )


def p_bitwise_flags(log):
    A, B, C = 1, 2, 4
    f = A | C
    f &= ~A
    f ^= B
    return f, bool(f & B), f >> 1, bin(f), f.bit_count() if hasattr(f, "bit_count") else None


def p_nested_exceptions_in_loops(log):
    out = []
    for i in range(4):
        try:
            try:
                if i == 0:
                    raise KeyError(i)
                if i == 1:
                    continue
                if i == 2:
                    [][i]
                out.append("clean")
            except KeyError as e:
                out.append(("k", e.args))
                raise ValueError(i) from e
            finally:
                out.append(("f", i))
        except (ValueError, IndexError) as e:
            out.append((type(e).__name__, type(e.__cause__).__name__, type(e.__context__).__name__))
    return out


def p_return_many_kinds(log):
    class A:
        def __init__(self):
            self.me = self

    a = A()
    f = lambda x: x
    return [
        a.me is a,
        {"a": (1, [2, {3}])},
        1.5,
        None,
        ...,
        b"x",
        range(3),
        slice(1, 2),
        frozenset([1]),
        type(a).__name__,
        f(3),
        NotImplemented,
        2**70,
    ]


def p_with_return_value_reuse(log):
    import contextlib

    @contextlib.contextmanager
    def scope(d, **kw):
        old = dict(d)
        d.update(kw)
        try:
            yield d
        finally:
            d.clear()
            d.update(old)

    d = {"a": 1}
    with scope(d, b=2) as inner:
        seen = dict(inner)
        with scope(d, a=9):
            seen2 = dict(d)
    return seen, seen2, d


def p_unbound_loop_variable(log):
    for i in []:
        pass
    try:
        i
    except UnboundLocalError as e:
        return str(e)


def p_star_expr_order(log):
    a, *b = [1]
    *c, d = "x"
    (e, *f), g = [1, 2, 3], 4
    for h, *k in [(1, 2, 3), "ab"]:
        log.append((h, k))
    return b, c, d, e, f, g


def p_re(log):
    import re

    m = re.match(r"(\w+)-(\d+)", "abc-42")
    return (
        m.group(1),
        m.groups(),
        re.sub(r"\d", "#", "a1b2"),
        re.findall("a.", "abac"),
        re.split(",", "a,b"),
        bool(re.search("z", "abc")),
        re.compile("b+").search("abbb").span(),
    )


def p_json_like(log):
    def dump(x):
        if isinstance(x, dict):
            return "{" + ", ".join(f'"{k}": {dump(v)}' for k, v in x.items()) + "}"
        if isinstance(x, (list, tuple)):
            return "[" + ", ".join(map(dump, x)) + "]"
        if isinstance(x, str):
            return f'"{x}"'
        if x is None or isinstance(x, bool):
            return {None: "null", True: "true", False: "false"}[x]
        return repr(x)

    return dump({"a": [1, 2.5, None, True], "b": {"c": "d"}})


def p_math(log):
    import math

    return (
        math.sqrt(2),
        math.ceil(1.2),
        math.floor(-1.5),
        math.gcd(12, 18),
        math.prod([1, 2, 3]),
        math.isclose(0.1 + 0.2, 0.3),
        math.inf > 1,
        math.log(8, 2),
        math.cos(0),
        math.isnan(math.nan),
        math.factorial(5),
        math.hypot(3, 4),
        math.pi,
        math.exp(1),
        math.trunc(2.7),
        math.fsum([0.1] * 10),
        math.copysign(1, -2),
    )


def p_textwrap_and_string(log):
    import string
    import textwrap

    return (
        textwrap.dedent("  a\n   b"),
        string.ascii_lowercase[:3],
        string.Template("$x").template,
        textwrap.indent("a\nb", "> "),
    )
