"""Closures, decorators, scopes, functools."""


def p_counter(log):
    def make():
        n = 0

        def inc(by=1):
            nonlocal n
            n += by
            return n

        def get():
            return n

        return inc, get

    inc, get = make()
    inc()
    inc(5)
    other, _ = make()
    return get(), other(), get.__closure__[0].cell_contents, inc.__code__.co_freevars


def p_late_binding(log):
    fs = []
    for i in range(3):
        fs.append(lambda: i)
    i = 10
    return [f() for f in fs], [f() for f in [lambda x=j: x for j in range(3)]]


def p_deep_nesting(log):
    def a(x):
        def b(y):
            def c(z):
                nonlocal x
                x += 1
                return x + y + z

            return c

        return b

    f = a(1)(2)
    return f(3), f(3), a(0)(0)(0)


def p_shared_cells(log):
    x = [0]

    def w(v):
        nonlocal x
        x = v

    def r():
        return x

    w(5)
    first = r()
    x = 7
    return first, r(), x


def p_delete_nonlocal(log):
    x = 1

    def d():
        nonlocal x
        del x

    d()
    try:
        x
    except UnboundLocalError as e:
        log.append(str(e))

    def late():
        return y

    try:
        late()
    except NameError as e:
        log.append(str(e))
    y = 3
    return late()


def p_decorator(log):
    def trace(f):
        def wrapper(*a, **k):
            log.append(f.__name__)
            return f(*a, **k)

        return wrapper

    @trace
    def add(a, b=2):
        return a + b

    return add(1), add(1, b=5), add.__name__


def p_decorator_with_arguments(log):
    import functools

    def repeat(n):
        def deco(f):
            @functools.wraps(f)
            def wrapper(*a):
                return [f(*a) for _ in range(n)]

            return wrapper

        return deco

    @repeat(2)
    def hello(x):
        "says hello"
        return x * 2

    return hello(3), hello.__name__, hello.__doc__, hello.__wrapped__(1), hello.__qualname__


def p_stacked_decorators(log):
    def d(n):
        def w(f):
            log.append(("apply", n))

            def g(x):
                log.append(("call", n))
                return f(x) + n

            return g

        return w

    @d(1)
    @d(10)
    def f(x):
        return x

    return f(100)


def p_class_decorator(log):
    def register(cls):
        cls.tag = cls.__name__.lower()
        return cls

    @register
    class Thing:
        pass

    return Thing.tag, Thing().tag


def p_decorator_class(log):
    class Count:
        def __init__(self, f):
            self.f, self.n = f, 0

        def __call__(self, *a):
            self.n += 1
            return self.f(*a)

    @Count
    def f(x):
        return x + 1

    f(1)
    return f(2), f.n


def p_partial(log):
    import functools

    def f(a, b, c=0, **k):
        return a, b, c, k

    p = functools.partial(f, 1, c=5)
    q = functools.partial(p, 2, z=1)
    return (
        p(2),
        q(),
        q(c=9),
        p.func is f,
        p.args,
        p.keywords,
        q.args,
        functools.partial(int, base=2)("101"),
        list(map(functools.partial(pow, 2), [1, 2, 3])),
    )


def p_partialmethod(log):
    import functools

    class A:
        def f(self, x, y):
            return x, y

        g = functools.partialmethod(f, 1)

    return A().g(2)


def p_reduce(log):
    import functools
    import operator

    out = [
        functools.reduce(operator.add, [1, 2, 3]),
        functools.reduce(lambda a, b: a * b, [1, 2, 3], 10),
        functools.reduce(max, [3, 9, 2]),
    ]
    try:
        functools.reduce(operator.add, [])
    except TypeError as e:
        out.append(str(e))
    return out


def p_lru_cache(log):
    import functools

    @functools.lru_cache(maxsize=None)
    def fib(n):
        log.append(n)
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    @functools.cache
    def sq(x):
        return x * x

    return fib(10), sq(3), sq(3), fib.cache_info().hits, sq.cache_info()


def p_lru_cache_outside(log):
    return slow(3), slow(3), slow(y=2, x=1)


def p_cmp_to_key(log):
    import functools

    return sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a))


def p_operator_module(log):
    import operator as op

    class A:
        x = 5

        class b:
            c = 6

        def m(self, k):
            return k

    d = {"k": 1}
    op.setitem(d, "z", 2)
    return (
        op.add(1, 2),
        op.itemgetter(1)([5, 6]),
        op.itemgetter("a", "b")({"a": 1, "b": 2}),
        op.attrgetter("x")(A()),
        op.attrgetter("b.c", "x")(A()),
        op.methodcaller("m", 3)(A()),
        op.mul([1], 2),
        op.not_(0),
        op.contains([1], 1),
        op.neg(5),
        op.truth([]),
        op.is_(None, None),
        op.index(3),
        d,
        op.lt(1, 2),
        op.concat([1], [2]),
        op.iadd([1], [2]),
        sorted([("b", 1), ("a", 2)], key=op.itemgetter(0)),
        op.countOf([1, 1], 1),
        op.and_(6, 3),
    )


def p_globals_and_builtins_shadowing(log):
    def f():
        len = lambda x: "shadow"
        return len([1])

    return f(), len([1])


def p_kwargs_forwarding(log):
    def inner(*args, **kwargs):
        kwargs["extra"] = 1
        return args, sorted(kwargs.items())

    def outer(*args, **kwargs):
        r = inner(*args, **kwargs)
        return r, sorted(kwargs)

    return outer(1, 2, a=3), outer()


def p_closure_in_comprehension(log):
    n = 10
    return (
        [(lambda: n + i)() for i in range(3)],
        {k: (lambda: k * n)() for k in (1, 2)},
        [f(1) for f in [lambda x, i=i: x + i for i in range(2)]],
    )


def p_recursive_closure(log):
    def make():
        def fact(n):
            return 1 if n == 0 else n * fact(n - 1)

        return fact

    return make()(6)


def p_function_attributes(log):
    def f(a, b=1, *, c=2):
        "doc"
        f.calls += 1
        return a

    f.calls = 0
    f(1)
    f(2)
    f.__name__ = "renamed"
    f.__doc__ = "new"
    return (
        f.calls,
        f.__name__,
        f.__doc__,
        f.__defaults__,
        f.__kwdefaults__,
        f.__code__.co_argcount,
        f.__dict__,
        hasattr(f, "nope"),
    )


def p_callbacks(log):
    class Bus:
        def __init__(self):
            self.handlers = {}

        def on(self, name):
            def register(f):
                self.handlers.setdefault(name, []).append(f)
                return f

            return register

        def emit(self, name, *a):
            return [h(*a) for h in self.handlers.get(name, ())]

    bus = Bus()

    @bus.on("x")
    def one(v):
        return v + 1

    @bus.on("x")
    def two(v):
        return v * 2

    return bus.emit("x", 10), bus.emit("none"), one(1)


def p_generator_closure(log):
    def make(k):
        total = 0

        def gen():
            nonlocal total
            for i in range(3):
                total += i * k
                yield total

        return gen, lambda: total

    g, total = make(2)
    return list(g()), total(), list(g())


def p_exec_order_of_arguments(log):
    def t(x):
        log.append(x)
        return x

    def f(*a, **k):
        return a, k

    f(t(1), *[t(2)], x=t(3), **{"y": t(4)})
    {t("k"): t("v")}
    [t(5), t(6)][t(0)]
    t([0])[t(0)] = t("value")
    return log[:]


def p_singledispatch_like(log):
    table = {int: lambda x: x + 1, str: lambda x: x.upper(), list: len}
    return [table.get(type(v), lambda x: "?")(v) for v in (1, "a", [1, 2], None)]


def p_walrus_in_closure(log):
    def f(xs):
        return [last := x for x in xs], last

    return f([1, 2, 3])


def p_nested_functions_share_globals(log):
    return helper(3), [helper(i) for i in range(2)], OUTER


def p_conditional_imports_and_constants(log):
    import sys

    return (
        sys.version_info >= (3, 8),
        sys.maxsize > 0,
        sys.platform == sys.platform,
        "math" in sys.modules or True,
    )


OUTER = 5


def helper(x):
    return x + OUTER


import functools as _f


@_f.lru_cache(maxsize=8)
def slow(x, y=1):
    return x * 10 + y
