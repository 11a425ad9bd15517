"""What a style is: ordinary code that must become one graph, with the results of eager."""

from typing import NamedTuple


class Case(NamedTuple):
    """One style.

    make      () -> (function, tuples of arguments, watched): everything fresh
    captures  how often the compiled function may be captured over all its calls
    """

    make: object
    captures: int = 1


CASES = {}


def style(make=None, *, captures=1):
    """Registers a maker of a style."""
    if make is None:
        return lambda function: style(function, captures=captures)
    name = make.__name__
    assert name not in CASES, name
    CASES[name] = Case(make, captures)
    return make
