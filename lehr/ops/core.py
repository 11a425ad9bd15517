"""Ops that only graphs hold: storage access, run-time numbers, futures of collectives."""

from __future__ import annotations

from typing import Any

from lehr.ops import rule
from lehr.ops.registry import CREATE, POINTWISE, op
from lehr.ops.rule import Number, Spec


def _read(ref: Any) -> Spec:
    t = ref.type.tensor
    return Spec(t.shape, t.dtype, t.device)


def _write(ref: Any, value: Any) -> None:
    want = ref.type.tensor
    if tuple(want.shape) != tuple(value.shape) or want.dtype is not value.dtype:
        raise TypeError(f"write of {value.dtype}{list(value.shape)} into a storage of "
                        f"{want.dtype}{list(want.shape)}")


@op("read(ref: Ref) -> Tensor")
class read:
    """The current value of a storage."""

    kind, rule, where, nondiff = CREATE, _read, "", True


@op("write(ref: Ref, value: Tensor) -> None")
class write:
    """Replaces the whole value of a storage."""

    kind, rule, where, nondiff = CREATE, _write, "", True


def _number(input: Any) -> Number:
    return Number(input.dtype.category)


@op("number(input: Tensor) -> Scalar")
class number:
    """A 0-d tensor as a run-time number: it no longer takes part in type promotion by dtype."""

    kind, rule, where, nondiff = POINTWISE, _number, "", True

    def eager(np: Any, x: Any) -> Any:
        return x.item()



@op("size_value(size: int) -> Tensor")
class size_value:
    """A symbolic size as an int64 0-d tensor."""

    kind, where, nondiff = CREATE, "", True

    def rule(size: Any) -> Spec:
        return Spec((), rule.dt.int64)

    def eager(np: Any, size: Any) -> Any:
        return np.asarray(size, np.int64)

    def lower(L: Any, idx: Any, size: Any) -> Any:
        return L.iota(size, rule.dt.int64)
