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
