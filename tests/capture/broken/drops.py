"""What happens when the last reference to something goes."""

import contextlib

import lehr as torch

from .case import LOG, case, given, note, t

TEN = t(1.0, 2.0)


class Tracked:
    def __init__(self, n):
        self.n = n

    def __del__(self):
        LOG.append(f"gone {self.n}")


@case(given(TEN), graphs=1, breaks=1, repeat=3)
def an_object_with_del(x):
    made = Tracked(3)
    return x * made.n + 1


def guarded(x):
    try:
        yield x
        yield x + 1
    finally:
        LOG.append("closed")


@case(given(TEN), graphs=1, breaks=2, repeat=3)
def a_generator_left_in_the_middle(x):
    return next(guarded(x * 2))


@case(given(TEN), graphs=1, breaks=0, repeat=2)
def a_generator_that_ends(x):
    total = 0
    for part in guarded(x * 2):
        total = total + part
    return total


@case(given(TEN), graphs=1, breaks=0, repeat=2)
def a_generator_that_is_closed(x):
    values = guarded(x * 2)
    first = next(values)
    values.close()
    note("after")
    return first


def returning(x):
    yield x
    return x + 5


@case(given(TEN), graphs=1, breaks=0)
def what_a_generator_returned(x):
    values = returning(x * 2)
    next(values)
    try:
        next(values)
    except StopIteration as end:
        return end.value


@contextlib.contextmanager
def region(x):
    LOG.append("in")
    try:
        yield x * 2
    finally:
        LOG.append("out")


@case(given(TEN), graphs=1, breaks=0, repeat=2)
def a_context_of_a_generator(x):
    with region(x) as y, torch.no_grad():
        return y + 1


def delegating(x):
    yield from (x, x + 1)


@case(given(TEN), graphs=1, breaks=0)
def a_delegating_generator_left_in_the_middle(x):
    return next(delegating(x * 2))
