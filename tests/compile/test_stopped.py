"""What data stops: the call is made again eagerly, which has to confirm the error."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import lehr as torch
from lehr.base.log import LehrWarning
from lehr.compiler import backend
from lehr.compiler.capture.stopped import Unconfirmed
from lehr.tensor import dispatch
from lehr.tensor.state import STATE
from tests.compile import loops


def broken(error: Exception) -> str:
    """The name of a back end whose programs raise."""
    def make(request: Any, options: Any) -> Any:
        def forward(inputs: Any) -> Any:
            raise error
        return backend.reference(request, options)._replace(forward=forward)
    backend.BACKENDS["broken"] = make
    return "broken"


def rows(x: Any, i: Any) -> Any:
    return x[i] * 2


@pytest.fixture(autouse=True)
def no_broken_backend_stays() -> Any:
    yield
    backend.BACKENDS.pop("broken", None)


@pytest.mark.parametrize("error", [IndexError("index 9 is out of bounds for a dimension of size 3"),
                                   RuntimeError("shapes differ"), ValueError("no"),
                                   RuntimeError("ZeroDivisionError")], ids=str)
def test_an_error_that_only_compiled_code_raises(error: Exception) -> None:
    x, i = torch.ones(3, 2), torch.tensor([0, 2])
    name = broken(error)
    strict = torch.compile(rows, backend=name, options={"strict": True})
    for _ in range(2):      # the first call, and one that an entry is ready for
        with pytest.raises(Unconfirmed, match=f"rows: .*{error}"):
            strict(x, i)
    loose = torch.compile(rows, backend=name, options={"strict": False})
    with pytest.warns(LehrWarning, match=f"rows: .*{error}"):
        assert loose(x, i).tolist() == [[2, 2], [2, 2]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")      # once
        assert loose(x, i).tolist() == [[2, 2], [2, 2]]
    assert STATE.profile is None


def test_behind_a_break() -> None:
    def f(x: Any, i: Any) -> Any:
        n = int(x.sum())
        return x[i] * n
    name = broken(ValueError("no"))
    with pytest.raises(Unconfirmed, match="no"):
        made = torch.compile(f, backend=name, options={"strict": True})
        made(torch.ones(3, 2), torch.tensor([0]))


@pytest.mark.parametrize("name", ["reference", "inductor"])
def test_an_error_of_the_program(name: str) -> None:
    x, i = torch.ones(3, 2), torch.tensor([0, 5])
    made = torch.compile(rows, backend=name, options={"strict": True})
    with pytest.raises(IndexError, match="index 5 is out of bounds"):
        made(x, i)
    assert STATE.profile is None


@pytest.mark.parametrize("name", ["reference", "inductor"])
def test_an_error_that_the_program_handles(name: str) -> None:
    def handled(x: Any, i: Any) -> Any:
        try:
            return x.gather(0, i)       # eagerly a RuntimeError
        except RuntimeError:
            return x - 1
    made = torch.compile(handled, backend=name, options={"strict": True})
    i = torch.tensor([[5, 0]])
    assert made(torch.ones(3, 2), i).tolist() == [[0, 0]] * 3
    assert made(torch.ones(3, 2), torch.tensor([[1, 0]])).tolist() == [[1, 1]]


def test_a_profile_stays() -> None:
    seen = []

    def profile(op: Any, args: Any) -> Any:
        STATE.profile = None
        seen.append(op.name)
        try:
            return dispatch.call(op, args)
        finally:
            STATE.profile = profile
    made = torch.compile(rows, backend="reference", options={"strict": True})
    STATE.profile = profile
    try:
        with pytest.raises(IndexError):
            made(torch.ones(3, 2), torch.tensor([7]))
        assert STATE.profile is profile
    finally:
        STATE.profile = None
    assert seen[-1] == "index"


def write_then_read(x: Any, i: Any, c: Any) -> Any:
    x.add_(1)
    y = x[i]
    c.index_copy_(0, i, y)
    x.mul_(2)
    return y.sum()


def read_at_written_places(x: Any, i: Any, c: Any) -> Any:
    i.add_(1)
    x.add_(1)
    y = x[i - 1]
    c.zero_()
    return y * 2


def places_written(x: Any, i: Any, c: Any) -> Any:
    c[i] = 7.0
    x.add_(1)
    return x.sum()


def handled_in_between(x: Any, i: Any, c: Any) -> Any:
    x.add_(1)
    try:
        y = c[i]
    except IndexError:
        x.mul_(3)
        return x.clone()
    return y


def nothing_read(x: Any, i: Any, c: Any) -> Any:
    x.add_(1)
    torch.zeros(3)[i]
    c.zero_()


def divided(x: Any, i: Any, c: Any) -> Any:
    c.add_(1)
    return (i // (i - 9)).sum()


@pytest.mark.parametrize("name", ["reference", "loops", "inductor"])
@pytest.mark.parametrize("f", [write_then_read, read_at_written_places, places_written,
                               handled_in_between, nothing_read, divided],
                         ids=lambda f: f.__name__)
def test_arguments_are_as_eager_leaves_them(f: Any, name: str) -> None:
    """Values and versions, where the error comes between writes."""
    made = torch.compile(f, backend=name, options={"strict": True})
    for places in ([0, 2], [0, 9], [-7, 1], [2, 0]):
        seen = []
        for call in (f, made):
            x = torch.arange(6.0).reshape(3, 2)
            arguments = [x, torch.tensor(places), torch.ones(3, 2)]
            said = []
            for _ in range(2):
                try:
                    said.append(repr(call(*arguments)))
                except (IndexError, RuntimeError) as error:
                    said.append(f"{type(error).__name__}: {error}")
            seen.append((said, [(t.tolist(), t._version) for t in arguments]))
        assert seen[0] == seen[1], places


def test_checks_come_before_what_the_caller_sees() -> None:
    """No memory has to be kept for the case that data stops a program."""
    found: list[Any] = []
    before = loops.Loops.__init__

    def noting(self: Any, *args: Any) -> None:
        before(self, *args)
        found.append(self)
    loops.Loops.__init__ = noting
    try:
        for f, sure in ((places_written, True), (nothing_read, True), (divided, True),
                        (read_at_written_places, False), (write_then_read, True)):
            made = torch.compile(f, backend="loops", options={"strict": True})
            made(torch.ones(3, 2), torch.tensor([0, 1]), torch.ones(3, 2))
            assert not found[-1].early or not sure, f.__name__
    finally:
        loops.Loops.__init__ = before
