"""Generators, iterators and comprehensions."""


def p_simple(log):
    def count(n):
        i = 0
        while i < n:
            yield i
            i += 1

    return (
        list(count(4)),
        sum(count(5)),
        [x for x in count(3)],
        tuple(count(2)),
        max(count(4)),
        3 in count(9),
    )


def p_send(log):
    def echo():
        got = []
        while True:
            x = yield len(got)
            if x is None:
                return got
            got.append(x)

    g = echo()
    out = [next(g), g.send("a"), g.send("b")]
    try:
        g.send(None)
    except StopIteration as e:
        out.append(e.value)
    return out


def p_throw(log):
    def g():
        while True:
            try:
                yield "ok"
            except ValueError as e:
                log.append(str(e))
            except KeyError:
                yield "key"

    it = g()
    out = [next(it), it.throw(ValueError("v")), it.throw(KeyError), next(it)]
    try:
        it.throw(TypeError("t"))
    except TypeError as e:
        out.append(str(e))
    try:
        next(it)
    except StopIteration:
        out.append("stopped")
    return out


def p_throw_unstarted(log):
    def g():
        yield 1

    it = g()
    it.throw(ValueError("early"))


def p_close(log):
    def g():
        try:
            yield 1
        except GeneratorExit:
            log.append("exit")
            raise

    it = g()
    next(it)
    it.close()
    it.close()

    def bad():
        try:
            yield 1
        except GeneratorExit:
            yield 2

    b = bad()
    next(b)
    try:
        b.close()
    except RuntimeError as e:
        return str(e)


def p_yield_from(log):
    def inner():
        x = yield 1
        log.append(x)
        y = yield 2
        log.append(y)
        return "result"

    def outer():
        r = yield from inner()
        log.append(r)
        yield from [10, 20]
        yield from "ab"
        return r

    g = outer()
    out = [next(g), g.send("s"), g.send("t")]
    out += list(g)
    return out


def p_yield_from_throw(log):
    def inner():
        try:
            yield 1
        except ValueError as e:
            log.append(f"inner {e}")
            yield "recovered"
        return "end"

    def outer():
        r = yield from inner()
        yield r

    g = outer()
    return next(g), g.throw(ValueError("x")), next(g)


def p_yield_from_throw_ends_inner(log):
    def inner():
        try:
            yield 1
        except ValueError:
            return "stopped by throw"

    def outer():
        r = yield from inner()
        log.append(r)
        yield "after"

    g = outer()
    return next(g), g.throw(ValueError("x")), list(g)


def p_yield_from_throw_through(log):
    def inner():
        yield 1

    def outer():
        try:
            yield from inner()
        except KeyError as e:
            yield repr(e)

    g = outer()
    return next(g), g.throw(KeyError("k"))


def p_yield_from_close(log):
    def inner():
        try:
            yield 1
        finally:
            log.append("inner closed")

    def outer():
        try:
            yield from inner()
        finally:
            log.append("outer closed")

    g = outer()
    next(g)
    g.close()
    return "ok"


def p_yield_from_iterator_class(log):
    class It:
        def __init__(self):
            self.n = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.n += 1
            if self.n > 2:
                raise StopIteration("value")
            return self.n

    def g():
        log.append((yield from It()))

    return list(g())


def p_stop_iteration_inside(log):
    def g():
        yield 1
        raise StopIteration("inside")

    return list(g())


def p_stop_iteration_from_next(log):
    def g(it):
        while True:
            yield next(it)

    try:
        return list(g(iter([1, 2])))
    except RuntimeError as e:
        return str(e), type(e.__cause__).__name__


def p_generator_expression(log):
    g = (x * x for x in range(5) if x % 2)
    first = next(g)
    return (
        first,
        list(g),
        sum(i for i in range(4)),
        any(x > 2 for x in (1, 3)),
        "".join(c for c in "abc"),
    )


def p_lazy_evaluation(log):
    def src():
        for i in range(5):
            log.append(("make", i))
            yield i

    g = (log.append(("use", x)) or x for x in src())
    next(g)
    next(g)
    return "two"


def p_infinite(log):
    def nat():
        n = 0
        while True:
            yield n
            n += 1

    out = []
    for x in nat():
        if x > 5:
            break
        out.append(x)
    return out


def p_pipeline(log):
    def source(n):
        yield from range(n)

    def odd(it):
        return (x for x in it if x % 2)

    def square(it):
        for x in it:
            yield x * x

    return list(square(odd(source(8))))


def p_recursive_generator(log):
    def walk(tree):
        if isinstance(tree, list):
            for t in tree:
                yield from walk(t)
        else:
            yield tree

    return list(walk([1, [2, [3, 4], []], 5]))


def p_generator_return_value(log):
    def g():
        yield 1
        return 99

    def h():
        v = yield from g()
        yield v

    return list(h())


def p_comprehensions(log, n=4):
    return (
        [i for i in range(n)],
        {i: i * i for i in range(n)},
        {i % 3 for i in range(n)},
        [(i, j) for i in range(3) for j in range(i)],
        [[j for j in range(i)] for i in range(3)],
        {k: [v for v in vs if v] for k, vs in {"a": [0, 1], "b": [2]}.items()},
        [x for x in [y for y in range(5)] if x > 2 if x < 4],
    )


def p_comprehension_scope(log):
    x = "outer"
    a = [x for x in range(3)]
    fs = [lambda: i for i in range(3)]
    return x, a, [f() for f in fs]


def p_comprehension_error(log):
    x = 5
    try:
        [1 // (x - i) for i in range(9)]
    except ZeroDivisionError:
        pass
    return x, [x for _ in range(2)]


def p_iterator_class(log):
    class Up:
        def __init__(self, n):
            self.n, self.i = n, 0

        def __iter__(self):
            return self

        def __next__(self):
            if self.i >= self.n:
                raise StopIteration
            self.i += 1
            return self.i

    return (
        list(Up(3)),
        sum(Up(4)),
        [a + b for a, b in zip(Up(2), Up(9))],
        dict(enumerate(Up(2))),
        2 in Up(3),
        max(Up(5)),
    )


def p_getitem_protocol(log):
    class Seq:
        def __getitem__(self, i):
            if i > 3:
                raise IndexError
            return i * 10

        def __len__(self):
            return 4

    return (
        list(Seq()),
        20 in Seq(),
        list(reversed(Seq())),
        [x for x in Seq()],
        tuple(Seq()),
        sorted(Seq(), reverse=True),
    )


def p_iter_sentinel(log):
    data = [1, 2, 3, 0, 4]
    it = iter(data)
    return list(iter(lambda: next(it), 0)), list(it)


def p_iterators_are_stateful(log):
    a = [1, 2, 3]
    it = iter(a)
    next(it)
    a.append(4)
    z = zip(it, it)
    m = map(str, a)
    next(m)
    e = enumerate(a, 5)
    next(e)
    return list(z), list(m), list(e), list(it), next(it, "end")


def p_list_changes_while_iterating(log):
    a = [1, 2, 3]
    out = []
    for x in a:
        out.append(x)
        if len(a) < 6:
            a.append(x * 10)
    b = [1, 2, 3, 4]
    for x in b:
        if x == 2:
            b.remove(2)
        out.append(x)
    return out, a, b


def p_dict_changes_while_iterating(log):
    d = {1: 1, 2: 2}
    for k in d:
        d[k + 10] = 1


def p_set_changes_while_iterating(log):
    s = {1, 2}
    for k in s:
        s.add(k + 10)


def p_generator_already_running(log):
    def g():
        try:
            next(it)
        except ValueError as e:
            yield str(e)

    it = g()
    return list(it)


def p_send_to_fresh(log):
    def g():
        yield 1

    g().send(5)


def p_generator_with_context(log):
    class C:
        def __enter__(self):
            log.append("in")

        def __exit__(self, *a):
            log.append("out")

    def g():
        with C():
            yield 1
            yield 2
        yield 3

    out = []
    for x in g():
        out.append(x)
        log.append(x)
    return out


def p_generator_exception_state(log):
    def g():
        try:
            raise ValueError("in gen")
        except ValueError:
            yield 1
            import sys

            log.append(str(sys.exc_info()[1]))
            yield 2

    try:
        raise KeyError("outside")
    except KeyError:
        it = g()
        next(it)
        import sys

        log.append(str(sys.exc_info()[1]))
        next(it)
        log.append(str(sys.exc_info()[1]))
    return sys.exc_info()


def p_unpack_generator(log):
    def g():
        yield 1
        yield 2

    a, b = g()
    c, *d = g()
    return a, b, c, d, [*g(), *g()], {*g()}, (lambda *x: x)(*g())


def p_zip_longer(log):
    a = iter([1, 2, 3])
    pairs = list(zip("ab", a))
    return pairs, next(a, "gone"), list(zip(*[(1, 2), (3, 4)])), dict(zip("xy", range(2)))


def p_itertools(log):
    import itertools as it

    return (
        list(it.chain([1], (2,), "a")),
        list(it.chain.from_iterable([[1], [2, 3]])),
        list(it.islice(it.count(5), 3)),
        list(it.islice("abcdef", 1, 5, 2)),
        list(it.repeat(7, 2)),
        list(it.takewhile(lambda x: x < 3, [1, 2, 5, 1])),
        list(it.dropwhile(lambda x: x < 3, [1, 2, 5, 1])),
        list(it.starmap(pow, [(2, 3), (3, 2)])),
        list(it.accumulate([1, 2, 3])),
        list(it.product("ab", [1, 2])),
        list(it.permutations([1, 2, 3], 2)),
        list(it.combinations("abc", 2)),
        list(it.zip_longest([1, 2], "a", fillvalue=0)),
        [(k, list(g)) for k, g in it.groupby("aabccc")],
        list(it.pairwise([1, 2, 3])),
        list(it.compress("abc", [1, 0, 1])),
        list(it.filterfalse(None, [0, 1, 2])),
        list(it.islice(it.cycle("ab"), 5)),
        list(it.combinations_with_replacement("ab", 2)),
        list(it.accumulate([1, 2, 3], lambda a, b: a * b, initial=2)),
    )


def p_tee(log):
    import itertools as it

    a, b = it.tee(iter([1, 2, 3]))
    return next(a), list(b), list(a)


def p_next_default(log):
    it = iter("a")
    return next(it), next(it, None), next(iter([]), 5), next((x for x in [1, 2] if x > 1), None)


def p_map_filter_multiple(log):
    return (
        list(map(lambda a, b, c: (a, b, c), "ab", [1, 2, 3], (True, False))),
        list(map(None.__class__, [])),
        list(filter(lambda x: x % 2, range(6))),
        list(map(str.upper, "ab")),
        list(map(int, ["1", "2"])),
    )


def p_reversed_forms(log):
    return (
        list(reversed([1, 2, 3])),
        list(reversed("ab")),
        list(reversed(range(3))),
        list(reversed((1, 2))),
        list(reversed({"a": 1, "b": 2})),
        list(reversed({"a": 1}.items())),
    )


def p_sorted_forms(log):
    class K:
        def __init__(self, v):
            self.v = v

        def __lt__(self, o):
            return self.v < o.v

        def __repr__(self):
            return f"K{self.v}"

    data = [("b", 2), ("a", 2), ("c", 1)]
    return (
        sorted(data, key=lambda t: t[1]),
        sorted(data, key=lambda t: (-t[1], t[0])),
        sorted([K(3), K(1), K(2)]),
        sorted({"z": 1, "y": 2}),
        sorted([3, 1, 2], key=lambda x: -x),
        sorted(["b", "A", "c"], key=str.lower),
        sorted([[2], [1, 5], [1]]),
        sorted([1, 2.5, True]),
        sorted("hello", reverse=True),
    )


def p_sorted_error(log):
    return sorted([1, "a", None])


def p_generator_as_argument(log):
    return (
        sum(x for x in range(3)),
        list(x for x in "ab"),
        dict((k, 1) for k in "xy"),
        set(x % 2 for x in range(5)),
    )


def p_started_generator_exhausted_later(log):
    def g():
        received = yield "a"
        while received:
            received = yield received.upper()
        return "done"

    it = g()
    out = [next(it)]
    for word in ("x", "y"):
        out.append(it.send(word))
    out.append(next(it, "default"))
    return out
