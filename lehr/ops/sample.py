"""Samples of an op's arguments: what the generated tests call every op with.

An op's `samples(s)` yields `s(args..., **kwargs)` for a good call and `s.raises(Error, args...)`
for one that must raise. `s` makes the arguments, for one dtype under test, from a seed of the op's
and the dtype's names:

    def samples(s):
        yield s(s.any(3, 4), s.any(4))
        yield s(s.f(5, pos=True), 2.0)
        yield s.raises(RuntimeError, s.any(3), s.any(4))

`variants` derives more calls from a good one: non-contiguous, zero-size, 0-d, broadcast, mixed
dtypes, special values.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from lehr.base import dtype as dt
from lehr.base.dtype import DType
from lehr.ops.registry import POINTWISE, Op

Array = np.ndarray[Any, Any]

TESTED = (dt.bool_, dt.uint8, dt.int8, dt.int16, dt.int32, dt.int64, dt.float16, dt.bfloat16,
          dt.float32, dt.float64)
HALF = (dt.float16, dt.bfloat16)
SPECIAL = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0, -1.0, 0.5, -2.5)
# These see the operand's memory, so a copy in another layout is another question.
STORAGE = ("as_strided", "as_strided_copy", "as_strided_scatter")


class Sample(NamedTuple):
    """One call. `error`: the exception type it must raise, None for a good call. `match`: a part
    of the message. `parity`: whether torch, where installed, has to agree. `derive`: whether
    `variants` may derive others from it. `name`: the derived variant's."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    error: type[Exception] | None = None
    match: str = ""
    parity: bool = True
    derive: bool = True
    name: str = ""

    def bind(self, op: Op) -> tuple[Any, ...]:
        return op.signature.bind(self.args, self.kwargs)

    def mapped(self, fn: Callable[[Array], Array], name: str = "") -> Sample:
        """With `fn` applied to every array, also inside lists."""
        return self._replace(args=tuple(_map(fn, a) for a in self.args), name=name,
                             kwargs={k: _map(fn, a) for k, a in self.kwargs.items()})

    def arrays(self) -> list[Array]:
        found: list[Array] = []
        self.mapped(lambda a: found.append(a) or a)  # type: ignore[func-returns-value]
        return found


def _map(fn: Callable[[Array], Array], a: Any) -> Any:
    if isinstance(a, np.ndarray):
        return fn(a)
    return type(a)(_map(fn, x) for x in a) if type(a) in (list, tuple) else a


class Sampler:
    """Makes arguments. `dtype` is the dtype under test; `touched` whether an argument has had
    it."""

    def __init__(self, seed: str, dtype: DType) -> None:
        self.dtype = dtype
        self.random = np.random.default_rng(zlib.crc32(f"{seed} {dtype.name}".encode()))
        self.touched = False

    def __call__(self, *args: Any, **kwargs: Any) -> Sample:
        return Sample(args, kwargs)

    def raises(self, error: type[Exception], *args: Any, match: str = "", parity: bool = True,
               **kwargs: Any) -> Sample:
        """A call that must raise `error` with `match` in its message; `parity=False`: torch does
        not."""
        return Sample(args, kwargs, error, match, parity)

    @property
    def floating(self) -> DType:
        """The dtype under test where it is a floating one, else float32."""
        return self.dtype if self.dtype.category == dt.FLOAT else dt.float32

    def f(self, *shape: int, dtype: DType | None = None, pos: bool = False,
          away_from_zero: bool = False, unique: bool = False, nonfinite: bool = False,
          domain: tuple[float, float] = (-3.0, 3.0)) -> Array:
        """Floating values, of the dtype under test unless `dtype` is given.

        pos: in (0.1, 3.1); away_from_zero: 0.25 at least in magnitude; unique: all different;
        nonfinite: NaN, infinities and signed zeros among them; domain: the interval, ends
        included.
        """
        made = self._made(dtype or self.floating)
        low, high = (0.1, 3.1) if pos else domain
        n = int(np.prod(shape, dtype=int))
        if unique:
            values = self.random.permutation(np.linspace(low, high, n))
        else:
            values = self.random.uniform(low, high, n)
        if away_from_zero:
            values = np.where(np.abs(values) < 0.25, np.copysign(0.25, values) + values, values)
        if nonfinite:
            places = self.random.permutation(n)[: min(n, len(SPECIAL))]
            values[places] = SPECIAL[: len(places)]
        return values.astype(made.np).reshape(shape)

    def i(self, *shape: int, low: int = 0, high: int = 5, dtype: DType = dt.int64,
          unique: bool = False) -> Array:
        """Integers in [low, high), int64 unless `dtype` is given."""
        n = int(np.prod(shape, dtype=int))
        made = self._made(dtype)
        values = (self.random.permutation(np.arange(low, low + max(n, high - low)))[:n] if unique
                  else self.random.integers(low, high, n))
        return values.astype(made.np).reshape(shape)

    def b(self, *shape: int) -> Array:
        """Booleans."""
        return np.asarray(self.random.integers(0, 2, shape)).astype(bool)

    def any(self, *shape: int, low: int | None = None, high: int = 10, pos: bool = False,
            away_from_zero: bool = False, unique: bool = False, **options: Any) -> Array:
        """Values of the dtype under test; `low`, `high` bound integers, `options` are those of
        `f`."""
        self.touched = True
        if self.dtype is dt.bool_:
            return self.b(*shape)
        if self.dtype.category == dt.INT:
            least = (0 if pos or not self.dtype.signed else -9) if low is None else low
            made = self.i(*shape, low=least, high=high, dtype=self.dtype, unique=unique)
            return np.where(made == 0, np.ones_like(made), made) if away_from_zero or pos else made
        return self.f(*shape, pos=pos, away_from_zero=away_from_zero, unique=unique, **options)

    def _made(self, dtype: DType) -> DType:
        self.touched = self.touched or dtype is self.dtype
        return dtype


def dtypes_of(op: Op) -> tuple[DType, ...]:
    """The dtypes under test: those of the words in `op.dtypes`, all of TESTED where there are
    none."""
    words = op.dtypes.split()
    kinds: dict[str, Callable[[DType], bool]] = {
        "float": lambda d: d.category == dt.FLOAT and d not in HALF, "half": lambda d: d in HALF,
        "int": lambda d: d.category == dt.INT, "bool": lambda d: d is dt.bool_}
    return tuple(d for d in TESTED if not words or any(kinds[w](d) for w in words))


def samples_of(op: Op, dtype: DType) -> list[Sample]:
    """The declared samples, none where no argument has the dtype under test (except for
    float32)."""
    if op.samples is None:
        return []
    s = Sampler(op.name, dtype)
    made = list(op.samples(s))
    return made if s.touched or dtype is dt.float32 else []


def strided(a: Array) -> Array:
    """The same values with gaps between them (and dimensions stored in reverse order)."""
    if a.ndim == 0:
        return a
    room = np.zeros((*a.shape[:0:-1], 2 * a.shape[0]), a.dtype)
    out = room.transpose()[::2]
    out[...] = a
    return out


def variants(op: Op, sample: Sample) -> Iterator[Sample]:
    """Calls derived from a good one. Only pointwise ops get those that change shapes or values."""
    if sample.error is not None or not sample.derive or op.name in STORAGE:
        return
    arrays = sample.arrays()
    if any(a.ndim for a in arrays):
        yield sample.mapped(strided, "strided")
    if op.kind != POINTWISE or not arrays:
        return
    yield sample.mapped(lambda a: a.reshape(-1)[:1].reshape(()), "0-d")
    ndim = max(a.ndim for a in arrays)
    if ndim:
        first = max(a.shape[0] for a in arrays if a.ndim == ndim)
        yield sample.mapped(
            lambda a: a[:0] if a.ndim == ndim and a.shape[0] == first else a, "empty")
    for place in range(len(arrays) if len(arrays) > 1 else 0):
        def at(change: Callable[[Array], Array], name: str, place: int = place) -> Sample:
            seen = iter(range(len(arrays)))
            return sample.mapped(
                lambda a: change(a) if next(seen) == place else a, f"{name}{place}")
        if arrays[place].ndim:
            yield at(lambda a: a[..., :1], "broadcast")
            yield at(lambda a: a.reshape(-1)[:1].reshape(()), "0-d")
        if arrays[place].dtype != bool:
            yield at(lambda a: a.astype(np.float64), "float64-")
            yield at(lambda a: a.astype(np.int16), "int16-")
    yield from _special(sample, arrays)


def _special(sample: Sample, arrays: list[Array]) -> Iterator[Sample]:
    """Every combination of the special values, where all arrays are floating and of one dtype."""
    floats = [a for a in arrays if dt.of_numpy(a.dtype).category == dt.FLOAT]
    if not floats or len(floats) != len(arrays) or len({a.dtype for a in floats}) > 1:
        return
    values = np.array(SPECIAL, arrays[0].dtype)
    grid = iter(np.meshgrid(*[values] * min(len(arrays), 3), indexing="ij"))
    last = values[0]
    yield sample.mapped(lambda a: next(grid, last), "special")


def unary(*shapes: tuple[int, ...], **options: Any) -> Callable[[Sampler], Iterator[Sample]]:
    """`samples` of an op of one tensor; `options` are those of `Sampler.any`."""
    def samples(s: Sampler) -> Iterator[Sample]:
        for shape in shapes or ((3, 4),):
            yield s(s.any(*shape, **options))
    return samples


def binary(**options: Any) -> Callable[[Sampler], Iterator[Sample]]:
    """`samples` of an op of two tensors that broadcast."""
    def samples(s: Sampler) -> Iterator[Sample]:
        yield s(s.any(3, 4, **options), s.any(3, 4, **options))
        yield s(s.any(2, 1, 4, **options), s.any(3, 1, **options))
        yield s.raises(RuntimeError, s.any(3, 4), s.any(2, 4), match="must match the size")
    return samples


def operands(**options: Any) -> Callable[[Sampler], Iterator[Sample]]:
    """`binary`, and with Python numbers of each category as the second operand."""
    def samples(s: Sampler) -> Iterator[Sample]:
        yield from binary(**options)(s)
        for number in (2, 2.5, True):
            yield s(s.any(5, **options), number)
    return samples
