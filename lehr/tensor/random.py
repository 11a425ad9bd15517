"""Random numbers: generators, and the functions that draw from them.

A generator is a key and a counter. An op takes counters in program order (`take`) and is a pure function of
them, so a capture only has to make the counter symbolic.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base.device import CPU, Device
from lehr.tensor import create
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

MASK = (1 << 64) - 1


class Generator:
    """A stream of random numbers. `state`: int64 [2], the key and the count of calls that drew from it."""

    def __init__(self, device: Any = "cpu") -> None:
        self.device = Device(device)
        self.state = np.array([67280421310721, 0], np.int64)

    def manual_seed(self, seed: int) -> Generator:
        """Starts the stream of `seed`, a number in [-2**63, 2**64)."""
        number = int(seed)
        if not -(1 << 63) <= number < 1 << 64:
            raise RuntimeError("Overflow when unpacking long long")
        self.state[:] = number - (1 << 64) if number >= 1 << 63 else number, 0
        return self

    def seed(self) -> int:
        """Starts a stream that nobody knows; returns its seed."""
        number = int.from_bytes(os.urandom(8), "little")
        self.manual_seed(number)
        return number

    def initial_seed(self) -> int:
        """The seed of the stream."""
        return int(self.state[0]) & MASK

    @functools.cached_property
    def state_tensor(self) -> Tensor:
        """The state itself as an int64 tensor: what compiled programs read and advance."""
        return Tensor._from_array(self.state)

    def get_state(self) -> Tensor:
        """The state as a uint8 tensor."""
        return Tensor._from_array(self.state.copy().view(np.uint8))

    def set_state(self, new_state: Tensor) -> Generator:
        """Goes on from a state that `get_state` returned."""
        if not isinstance(new_state, Tensor) or new_state.dtype is not dt.uint8:
            raise TypeError("expected a torch.ByteTensor, but got "
                            f"{getattr(new_state, 'dtype', type(new_state).__name__)}")
        if tuple(new_state._shape) != (16,):
            raise RuntimeError(f"RNG state is wrong size: expected 16 bytes, got {new_state.numel()}")
        self.state[:] = new_state._array.copy().view(np.int64)
        return self

    def clone_state(self) -> Generator:
        """Another generator in the same state."""
        made = Generator(self.device)
        made.state[:] = self.state
        return made

    graphsafe_get_state = clone_state

    def graphsafe_set_state(self, state: Generator) -> Generator:
        self.state[:] = state.state
        return self

    def take(self, count: int = 1) -> tuple[Any, Any]:
        """(key, first offset) of the next `count` calls."""
        if STATE.tracer is not None:
            return STATE.tracer.rng(self, count)  # type: ignore[no-any-return]
        key, offset = self.state.tolist()
        self.state[1] = offset + count
        return key, offset

    def __repr__(self) -> str:
        return f"<torch._C.Generator object at {id(self):#x}>"


default_generator = Generator()


def take(generator: Generator | None, count: int = 1) -> tuple[Any, Any]:
    return (default_generator if generator is None else generator).take(count)


def manual_seed(seed: int) -> Generator:
    """Seeds the default generator."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seeds the default generator with a number nobody knows."""
    return default_generator.seed()


def initial_seed() -> int:
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The default generator's state."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    default_generator.set_state(new_state)


def _made(out: Any, made: Tensor, requires_grad: bool) -> Tensor:
    if out is not None:
        return out.copy_(made)  # type: ignore[no-any-return]
    create.finish(made)
    return made.requires_grad_() if requires_grad else made


def _size(size: tuple[Any, ...], given: Any) -> tuple[Any, ...]:
    size = tuple(given) if given is not None else size
    return tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size


def rand(*size: Any, generator: Generator | None = None, names: Any = None, out: Any = None,
         dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
         pin_memory: bool = False, **more: Any) -> Tensor:
    """Uniform numbers in [0, 1)."""
    made = Tensor.F.uniform(_size(size, more.pop("size", None)), 0.0, 1.0, *take(generator), dtype=dtype,
                            device=device or STATE.device)
    return _made(out, made, requires_grad)


def randn(*size: Any, generator: Generator | None = None, names: Any = None, out: Any = None,
          dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
          pin_memory: bool = False, **more: Any) -> Tensor:
    """Standard normal numbers."""
    made = Tensor.F.normal(_size(size, more.pop("size", None)), 0.0, 1.0, *take(generator), dtype=dtype,
                           device=device or STATE.device)
    return _made(out, made, requires_grad)


def randint(low: Any, high: Any = None, size: Any = None, *, generator: Generator | None = None,
            out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
            requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """Integers in [low, high), int64; (high, size) counts from 0."""
    if size is None:
        low, high, size = 0, low, high
    made = Tensor.F.randint(tuple(size), low, high, *take(generator), dtype=dtype,
                            device=device or STATE.device)
    return _made(out, made, requires_grad)


def randperm(n: int, *, generator: Generator | None = None, out: Any = None, dtype: Any = None,
             layout: Any = None, device: Any = None, requires_grad: bool = False,
             pin_memory: bool = False) -> Tensor:
    """A permutation of 0 .. n - 1, int64."""
    made = Tensor.F.randperm(n, *take(generator), dtype=dtype, device=device or STATE.device)
    return _made(out, made, requires_grad)


def normal(mean: Any, std: Any = 1.0, size: Any = None, *, generator: Generator | None = None,
           out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
           requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """Normal numbers; `mean` and `std` are numbers with a `size`, or tensors."""
    F = Tensor.F
    if size is not None:
        made = F.normal(tuple(size), mean, std, *take(generator), dtype=dtype, device=device or STATE.device)
        return _made(out, made, requires_grad)
    first = mean if isinstance(mean, Tensor) else std
    if not isinstance(first, Tensor):
        raise TypeError("normal() of two numbers needs a size")
    if isinstance(mean, Tensor) and isinstance(std, Tensor):
        mean, std = F.expand(mean, layout_shape(mean, std)), std
        first = mean
    z = F.normal(tuple(first._shape), 0.0, 1.0, *take(generator), dtype=first.dtype, device=first.device)
    with_std = F.mul(z, std)
    return _made(out, F.detach(F.add(with_std, mean)), requires_grad)


def layout_shape(a: Tensor, b: Tensor) -> tuple[Any, ...]:
    from lehr.ops.rule import broadcast
    return broadcast(tuple(a._shape), tuple(b._shape))


__all__ = ["CPU", "Generator", "manual_seed"]
