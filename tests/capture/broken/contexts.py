"""Breaks inside `with`, `try`, handlers and `finally`."""

import contextlib
import sys

import lehr as torch

from .case import LOG, case, given, leaf, note, t

TEN = t(1.0, 2.0)
X = leaf(1.0, 2.0)


@case(given(X), graphs=2, breaks=1, repeat=2)
def inside_no_grad(x):
    with torch.no_grad():
        y = x * 2
        print("grad", torch.is_grad_enabled())
        z = y + x
    return z, (z + x), torch.is_grad_enabled()


@case(given(X), graphs=2, breaks=1, repeat=2)
def nested_modes(x):
    with torch.no_grad():
        y = x * 2
        with torch.enable_grad():
            z = x * 3
            print("inner", torch.is_grad_enabled())
            w = z + 1
        v = x + 1
    return y, z, w, v, x * 1


@case(given(X), graphs=2, breaks=1, repeat=2)
def mode_set_by_call(x):
    torch.set_grad_enabled(False)
    y = x * 2
    print("set", torch.is_grad_enabled())
    torch.set_grad_enabled(True)
    return y, x * 2


@case(given(X), graphs=2, breaks=1, repeat=2)
def inference(x):
    with torch.inference_mode():
        y = x * 2
        print("inference", torch.is_inference_mode_enabled())
        y = y + 1
    return y.requires_grad, y.is_inference()


@torch.no_grad()
def decorated(x):
    y = x * 2
    print("decorated", torch.is_grad_enabled())
    return y + 1


@case(given(X), graphs=3, breaks=3, repeat=2)
def decorated_callee(x):
    return decorated(x) + x


class Context:
    def __init__(self, name, swallow=False):
        self.name, self.swallow = name, swallow

    def __enter__(self):
        LOG.append(("enter", self.name))
        return self

    def __exit__(self, kind, error, trace):
        LOG.append(("exit", self.name, kind and kind.__name__, str(error)))
        return self.swallow


@case(given(TEN), graphs=2, breaks=1, repeat=2)
def inside_a_context(x):
    with Context("a") as a, Context("b"):
        y = x * 2
        print(a.name)
        z = y + 1
    return z


class Printing(Context):
    def __enter__(self):
        print("enter", self.name)
        return super().__enter__()

    def __exit__(self, *args):
        print("exit", self.name)
        return super().__exit__(*args)


@case(given(TEN), graphs=3, breaks=3, repeat=2)
def context_that_breaks(x):
    x = x + 1
    with Printing("p"):
        y = x * 2
    return y + 1


@contextlib.contextmanager
def managed(name):
    LOG.append(("open", name))
    try:
        yield name
    except ValueError as error:
        LOG.append(("swallowed", str(error)))
    finally:
        LOG.append(("close", name))


@case(given(TEN), graphs=2, breaks=2, repeat=2)
def inside_a_generator_context(x):
    with managed("m") as name:
        y = x * 2
        print(name)
        z = y + 1
    return z


@case(given(TEN), graphs=2, breaks=2, repeat=2)
def generator_context_swallows(x):
    with managed("m"):
        y = x * 2
        print("raising")
        raise ValueError("inner")
    return x + 1


@case(given(TEN), graphs=2, breaks=1, repeat=2)
def context_swallows_what_a_break_raises(x):
    with Context("s", swallow=True):
        x = x * 2
        open("/no/such/file")
    return x + 1


@case(given(TEN), graphs=3, breaks=2, repeat=2)
def return_from_inside_a_context(x):
    for i in range(2):
        with Context(i):
            x = x * 2
            print("in", i)
            if i == 1:
                return x + 1


def fail(text, kind=ValueError):
    raise kind(text)


def print_and_fail(text, kind=ValueError):
    print("failing")
    raise kind(text)


@case(given(TEN), graphs=2, breaks=1, repeat=2)
def inside_try(x):
    try:
        y = x * 2
        print("try")
        fail("here")
    except ValueError as error:
        return y + 1, str(error)
    return None


@case(given(TEN), graphs=2, breaks=1, repeat=2)
def the_break_raises(x):
    y = x * 2
    try:
        y = y + open("/no/such/file")
    except OSError as error:
        text = str(error)
    return y + 1, text


@case(given(TEN), graphs=2, breaks=2, repeat=2)
def callee_breaks_and_raises(x):
    y = x * 2
    try:
        print_and_fail("from callee")
    except ValueError as error:
        return y + 1, str(error), error.__traceback__ is not None
    return y


@case(given(TEN), graphs=3, breaks=2, repeat=2)
def inside_a_handler(x):
    try:
        y = x * 2
        fail("first")
    except ValueError as error:
        print("handling", error)
        z = y + 1
        print(type(sys.exc_info()[1]).__name__)
    return z * 2


@case(given(TEN), graphs=1, breaks=1, repeat=2)
def raised_in_a_handler(x):
    try:
        fail("first")
    except ValueError:
        y = x * 2
        print("in handler")
        fail("second", KeyError)


@case(given(TEN), graphs=1, breaks=1, repeat=2)
def bare_raise_in_a_handler(x):
    try:
        fail("first")
    except ValueError:
        x = x * 2
        print("again")
        raise


@case(given(TEN), graphs=1, breaks=1, repeat=2)
def raised_from_in_a_handler(x):
    try:
        fail("first")
    except ValueError as error:
        x = x * 2
        print("from")
        raise RuntimeError("wrapped") from error


@case(given(TEN), graphs=4, breaks=3, repeat=2)
def nested_handlers(x):
    try:
        fail("outer")
    except ValueError as outer:
        try:
            x = x * 2
            fail("inner", KeyError)
        except KeyError as inner:
            print("both", outer, inner)
            x = x + 1
        print("outer only", type(sys.exc_info()[1]).__name__)
        x = x + 2
    print(sys.exc_info()[1])
    return x * 2


@case(given(TEN), graphs=3, breaks=2, repeat=2)
def inside_finally(x):
    try:
        y = x * 2
        print("body")
    finally:
        z = x + 1
        print("finally")
    return y + z


@case(given(TEN), graphs=1, breaks=1, repeat=2)
def finally_while_raising(x):
    try:
        y = x * 2
        fail("through")
    finally:
        print("cleaning")
        LOG.append(y + 1)


@case(given(TEN), graphs=1, breaks=1, repeat=2)
def return_through_finally(x):
    try:
        return x * 2
    finally:
        print("leaving")


@case(given(TEN), graphs=2, breaks=1, repeat=2)
def try_else(x):
    try:
        y = x * 2
    except ValueError:
        return None
    else:
        print("else")
        y = y + 1
    return y * 2


@case(given(TEN), graphs=1, breaks=1, repeat=2)
def uncaught_from_a_break(x):
    y = x * 2
    return y + open("/no/such/file")


@case(given(TEN), graphs=1, breaks=1, repeat=2)
def uncaught_behind_a_break(x):
    y = x * 2
    print("before")
    z = y + 1
    return fail("after") or z


@case(given(t(1.0, 2.0), t(1.0, 2.0, 3.0)), graphs=1, breaks=1, repeat=2)
def shape_error_behind_a_break(x, y):
    z = x * 2
    print("before")
    return z + y


@case(given(t(1.0, 2.0), t(1.0, 2.0, 3.0)), graphs=2, breaks=1, repeat=2)
def shape_error_caught(x, y):
    z = x * 2
    print("before")
    try:
        z = z + y
    except RuntimeError as error:
        z = z + len(str(error)) * 0
    return z


@case(given(TEN), graphs=1, breaks=2, repeat=2)
def except_star(x):
    y = x * 2
    try:
        raise ExceptionGroup("g", [ValueError("a"), KeyError("b")])
    except* ValueError as group:
        LOG.append(len(group.exceptions))
    except* KeyError:
        LOG.append("key")
    return y + 1


@case(given(TEN), graphs=1, breaks=1, repeat=2)
def assertion(x):
    y = x * 2
    print("assert")
    assert note(False), "not so"
    return y
