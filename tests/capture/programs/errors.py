"""Exceptions, contexts and `finally`."""


def p_try_else_finally(log):
    def f(x):
        try:
            log.append("try")
            y = 10 // x
        except ZeroDivisionError:
            log.append("except")
            return "zero"
        else:
            log.append("else")
        finally:
            log.append("finally")
        return y

    return f(2), f(0)


def p_finally_overrides(log):
    def f():
        try:
            return 1
        finally:
            return 2

    def g():
        for i in range(3):
            try:
                continue
            finally:
                log.append(i)
        return "done"

    def h():
        while True:
            try:
                1 / 0
            finally:
                break
        return "swallowed"

    return f(), g(), h()


def p_uncaught(log):
    def inner(x):
        return [1, 2][x]

    log.append("before")
    return inner(5)


def p_uncaught_custom(log):
    class Mine(Exception):
        def __init__(self, a, b):
            super().__init__(f"{a}-{b}")
            self.a = a

    raise Mine(1, 2)


def p_raise_from(log):
    try:
        try:
            1 / 0
        except ZeroDivisionError as e:
            raise ValueError("bad") from e
    except ValueError as e:
        log.append(
            (type(e.__cause__).__name__, e.__suppress_context__, e.__context__ is e.__cause__)
        )
        raise KeyError("k") from None


def p_implicit_context(log):
    try:
        raise ValueError("first")
    except ValueError:
        {}["missing"]


def p_nested_context(log):
    try:
        try:
            try:
                raise ValueError(1)
            except ValueError:
                raise TypeError(2)
        except TypeError:
            raise KeyError(3)
    except KeyError as e:
        chain = []
        while e:
            chain.append(repr(e))
            e = e.__context__
        return chain


def p_bare_raise(log):
    def f():
        try:
            raise ValueError("x")
        except ValueError:
            log.append("caught")
            raise

    try:
        f()
    except ValueError as e:
        log.append(str(e))
    try:
        raise
    except RuntimeError as e:
        return str(e)


def p_reraise_uncaught(log):
    def f():
        raise OSError(2, "no file")

    try:
        f()
    except OSError:
        log.append("seen")
        raise


def p_except_tuple_and_order(log):
    def f(kind):
        try:
            raise kind("m")
        except (KeyError, IndexError) as e:
            return "lookup", type(e).__name__
        except ArithmeticError:
            return "arith"
        except Exception as e:
            return "exc", type(e).__name__

    return [
        f(k)
        for k in (KeyError, IndexError, ZeroDivisionError, OverflowError, ValueError, RuntimeError)
    ]


def p_exception_name_is_deleted(log):
    try:
        raise ValueError(1)
    except ValueError as e:
        kept = e
    try:
        e
    except UnboundLocalError as x:
        return str(x), kept.args


def p_exception_attributes(log):
    e = ValueError(1, "b")
    out = [
        e.args,
        str(e),
        repr(e),
        str(ValueError()),
        str(KeyError("k")),
        repr(KeyError("k")),
        str(ValueError("one")),
    ]
    e.args = (5,)
    e.extra = "yes"
    out += [str(e), e.extra, e.__cause__, e.__context__, e.__traceback__]
    s = StopIteration(7)
    out += [s.value, SystemExit(3).code, OSError(2, "x").errno, OSError(2, "x", "f").filename]
    out += [type(OSError(2, "x")).__name__, AttributeError("a", name="n").name]
    return out


def p_add_note(log):
    try:
        e = ValueError("v")
        e.add_note("one")
        e.add_note("two")
        raise e
    except ValueError as x:
        log.append(x.__notes__)
        raise


def p_custom_hierarchy(log):
    class Base(Exception):
        code = 1

    class Child(Base):
        code = 2

        def __str__(self):
            return f"child {self.args}"

    out = []
    for kind in (Base, Child):
        try:
            raise kind("a")
        except Base as e:
            out.append((e.code, str(e), isinstance(e, Child), isinstance(e, Exception)))
    return out


def p_raise_errors(log):
    out = []

    def one():
        raise 5

    def two():
        raise int

    def three():
        raise ValueError from 5

    def four():
        try:
            1 / 0
        except 5:
            pass

    for f in (one, two, three, four):
        try:
            f()
        except TypeError as e:
            out.append(str(e))
    return out


def p_error_in_handler(log):
    try:
        try:
            raise ValueError("a")
        except TypeError:
            log.append("no")
        finally:
            log.append("finally")
            [][0]
    except IndexError as e:
        return type(e.__context__).__name__


def p_with(log):
    class C:
        def __init__(self, name, swallow=False):
            self.name, self.swallow = name, swallow

        def __enter__(self):
            log.append(("enter", self.name))
            return self.name

        def __exit__(self, kind, value, trace):
            log.append(("exit", self.name, kind and kind.__name__, value and str(value)))
            return self.swallow

    with C("a") as a, C("b") as b:
        log.append((a, b))
    with C("c", True):
        1 / 0

    def early():
        with C("d"):
            return "returned"

    def loop():
        for i in range(2):
            with C(i):
                if i == 0:
                    continue
                break
        return i

    log.append((early(), loop()))
    with C("e"):
        raise KeyError("out")


def p_with_errors(log):
    class NoExit:
        def __enter__(self):
            return 1

    class BadExit:
        def __enter__(self):
            return 1

        def __exit__(self, *a):
            raise RuntimeError("exit")

    out = []
    for c in (5, NoExit()):
        try:
            with c:
                pass
        except TypeError as e:
            out.append(str(e))
    try:
        with BadExit():
            raise ValueError("body")
    except RuntimeError as e:
        out.append((str(e), str(e.__context__)))
    return out


def p_contextmanager(log):
    from contextlib import contextmanager

    @contextmanager
    def tag(name):
        log.append(f"<{name}>")
        try:
            yield name.upper()
        except ValueError as e:
            log.append(f"swallowed {e}")
        finally:
            log.append(f"</{name}>")

    with tag("a") as x:
        log.append(x)
    with tag("b"):
        raise ValueError("oops")
    with tag("c"):
        raise KeyError("through")


def p_contextlib(log):
    import contextlib

    with contextlib.suppress(KeyError, ValueError):
        {}["x"]
    with contextlib.nullcontext(5) as n:
        log.append(n)

    class Closer:
        def close(self):
            log.append("closed")

    with contextlib.closing(Closer()):
        log.append("in")

    class Deco(contextlib.ContextDecorator):
        def __enter__(self):
            log.append("enter")
            return self

        def __exit__(self, *a):
            log.append("leave")

    @Deco()
    def f(x):
        return x + 1

    return f(1)


def p_exitstack(log):
    from contextlib import ExitStack, contextmanager

    @contextmanager
    def c(n):
        log.append(("in", n))
        yield n
        log.append(("out", n))

    with ExitStack() as stack:
        values = [stack.enter_context(c(i)) for i in range(3)]
        stack.callback(log.append, "callback")
        log.append(values)
    return "done"


def p_exc_info(log):
    import sys

    def show():
        kind, value, trace = sys.exc_info()
        return kind and kind.__name__, value and str(value)

    out = [show()]
    try:
        raise ValueError("a")
    except ValueError:
        out.append(show())
        try:
            raise KeyError("b")
        except KeyError:
            out.append(show())
        out.append(show())
    out.append(show())
    return out


def p_deep_traceback(log):
    def a(n):
        if n == 0:
            raise ValueError("bottom")
        return a(n - 1)

    def b():
        return a(3)

    b()


def p_traceback_through_comprehension(log):
    def f(x):
        return 10 / x

    return [f(i) for i in (2, 1, 0)]


def p_loop_with_try(log):
    out = []
    for x in ["1", "x", "3", None]:
        try:
            out.append(int(x))
        except ValueError:
            out.append("bad")
            continue
        except TypeError:
            out.append("type")
            break
        finally:
            out.append("f")
    return out


def p_try_in_finally(log):
    def f():
        try:
            raise ValueError(1)
        finally:
            try:
                raise KeyError(2)
            except KeyError:
                log.append("inner")

    try:
        f()
    except ValueError as e:
        return e.args, e.__context__


def p_return_in_except(log):
    def f():
        try:
            {}[1]
        except KeyError as e:
            return e.args[0]
        finally:
            log.append("cleanup")

    return f()


def p_exception_in_init(log):
    class A:
        def __init__(self, x):
            if x < 0:
                raise ValueError("negative")
            self.x = x

    try:
        A(-1)
    except ValueError as e:
        log.append(str(e))
    return A(3).x


def p_attribute_error_text(log):
    class A:
        __slots__ = ("x",)

    class B:
        pass

    out = []
    import math

    for call in (
        lambda: A().x,
        lambda: A().y,
        lambda: B().z,
        lambda: B.z,
        lambda: math.nope,
        lambda: (5).foo,
        lambda: [].bar,
        lambda: None.x,
        lambda: len.x,
        lambda: setattr(A(), "q", 1),
        lambda: setattr(5, "q", 1),
        lambda: setattr([], "q", 1),
        lambda: delattr(B(), "q"),
        lambda: setattr(int, "q", 1),
        lambda: delattr(A(), "x"),
        lambda: (lambda: 1).nope,
    ):
        try:
            out.append(call())
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out


def p_unhandled_stopiteration(log):
    it = iter([1])
    next(it)
    next(it)


def p_keyerror_from_dict_subclass(log):
    class D(dict):
        def __missing__(self, k):
            if k == "boom":
                raise LookupError("no " + k)
            return k * 2

    d = D(a=1)
    return d["a"], d["zz"], d.get("q"), d["boom"]


def p_generator_cleanup_on_error(log):
    def gen():
        try:
            yield 1
            yield 2
        finally:
            log.append("closed")

    for x in gen():
        log.append(x)
    g = gen()
    next(g)
    g.close()
    return "ok"


def p_exception_equality(log):
    e = ValueError("x")
    try:
        raise e
    except ValueError as f:
        return e is f, e == f, e == ValueError("x")


def p_same_exception_twice(log):
    e = ValueError("again")
    n = 0
    for _ in range(2):
        try:
            raise e
        except ValueError as f:
            n += f is e
    raise e


def p_cause_class(log):
    try:
        raise RuntimeError("a") from ValueError
    except RuntimeError as e:
        return type(e.__cause__).__name__, e.__cause__.args
