"""Random numbers: generators, and the functions that draw from them.

A generator is a key and a counter. An op takes counters in program order (`take`) and is a pure
function of them, so a capture only has to make the counter symbolic.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base.device import Device
from lehr.base.dtype import DType
from lehr.ops.rule import broadcast
from lehr.tensor import api, dispatch, override
from lehr.tensor.format import plain
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

MASK = (1 << 64) - 1
DEFAULT_SEED = 67280421310721
F = Tensor.F


class Generator:
    """A stream of random numbers. `state`: int64 [2], the key and the count of calls that drew."""

    def __init__(self, device: Any = "cpu") -> None:
        self.device = Device(device)
        self.state = np.array([DEFAULT_SEED, 0], np.int64)

    def manual_seed(self, seed: int) -> Generator:
        """Starts the stream of `seed`, a number in [-2**63, 2**64)."""
        number = int(seed)
        if not -(1 << 63) <= number < 1 << 64:
            raise RuntimeError("Overflow when unpacking long long")
        number = number - (1 << 64) if number >= 1 << 63 else number
        if STATE.tracer is not None:
            STATE.tracer.seed_rng(self, number)
        else:
            self.state[:] = number, 0
        return self

    def seed(self) -> int:
        """Starts a stream that nobody knows; returns its seed."""
        self._known("seed")
        number = int.from_bytes(os.urandom(8), "little")
        self.manual_seed(number)
        return number

    def initial_seed(self) -> int:
        """The seed of the stream."""
        self._known("initial_seed")
        return int(self.state[0]) & MASK

    @functools.cached_property
    def state_tensor(self) -> Tensor:
        """The state itself as an int64 tensor: what compiled programs read and advance."""
        return Tensor._from_array(self.state)

    def get_state(self) -> Tensor:
        """The state as a uint8 tensor."""
        if STATE.tracer is not None:
            return STATE.tracer.rng_state(self)
        return Tensor._from_array(self.state.copy().view(np.uint8))

    def set_state(self, new_state: Tensor) -> Generator:
        """Goes on from a state that `get_state` returned."""
        if not isinstance(new_state, Tensor) or new_state.dtype is not dt.uint8:
            found = getattr(new_state, "dtype", type(new_state).__name__)
            raise TypeError(f"expected a torch.ByteTensor, but got {found}")
        if tuple(new_state._shape) != (16,):
            raise RuntimeError("RNG state is wrong size: expected 16 bytes, got "
                               f"{new_state.numel()}")
        if STATE.tracer is not None:
            STATE.tracer.set_rng_state(self, new_state)
            return self
        self.state[:] = np.ascontiguousarray(new_state._array).view(np.int64)
        return self

    def clone_state(self) -> Generator:
        """Another generator in the same state."""
        self._known("clone_state")
        made = Generator(self.device)
        made.state[:] = self.state
        return made

    graphsafe_get_state = clone_state

    def graphsafe_set_state(self, state: Generator) -> Generator:
        """Goes on from another generator's state."""
        self._known("graphsafe_set_state")
        self.state[:] = state.state
        return self

    def _known(self, what: str) -> None:
        """The state is needed (or set) in Python."""
        if STATE.tracer is not None:
            STATE.tracer.concretize(what, self)

    def take(self, count: int = 1) -> tuple[Any, Any]:
        """(key, first offset) of the next `count` calls."""
        if STATE.tracer is not None:
            return STATE.tracer.rng(self, count)
        key, offset = self.state.tolist()
        self.state[1] = offset + count
        return key, offset

    def __reduce__(self) -> tuple[Any, ...]:
        return _generator, (str(self.device), self.state.tolist())

    def __repr__(self) -> str:
        return f"<torch._C.Generator object at {id(self):#x}>"


def _generator(device: str, state: list[int]) -> Generator:
    made = Generator(device)
    made.state[:] = state
    return made


default_generator = Generator()


def take(generator: Generator | None, count: int = 1) -> tuple[Any, Any]:
    """(key, first offset) of the next `count` calls of a generator (the default one: None)."""
    return (default_generator if generator is None else generator).take(count)


def manual_seed(seed: int) -> Generator:
    """Seeds the default generator."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seeds the default generator with a number nobody knows."""
    return default_generator.seed()


def initial_seed() -> int:
    """The default generator's seed."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The default generator's state."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Puts the default generator into a state that `get_rng_state` returned."""
    default_generator.set_state(new_state)


@contextlib.contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, _caller: str = "fork_rng",
             _devices_kw: str = "devices", device_type: str = "cuda") -> Iterator[None]:
    """Afterwards the default generator is in the state that it had before."""
    if not enabled:
        yield
        return
    before = default_generator.get_state()
    try:
        yield
    finally:
        default_generator.set_state(before)


# -- new tensors -----------------------------------------------------------------------------------


def _finish(name: str, made: Tensor, out: Any, layout: Any, requires_grad: bool) -> Tensor:
    if layout is not None and str(layout) != "torch.strided":
        raise NotImplementedError(f"{name}(layout={layout}): lehr has strided tensors only")
    if out is not None:
        if out._shape != made._shape:
            out.resize_(made._shape)
        return write(out, made)
    return made.requires_grad_() if requires_grad else made


def _size(size: tuple[Any, ...], more: dict[str, Any], name: str) -> tuple[Any, ...]:
    """`*size` as numbers or one sequence, or `size=`."""
    given = more.pop("size", None)
    if more:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(more))}'")
    return api.listed((given,) if given is not None else size)


def _where(device: Any) -> Any:
    return STATE.device if device is None else device


def rand(*size: Any, generator: Generator | None = None, names: Any = None, out: Any = None,
         dtype: DType | None = None, layout: Any = None, device: Any = None,
         requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None,
         **more: Any) -> Tensor:
    """Uniform numbers in [0, 1): multiples of 2**-24 (2**-53, 2**-11, 2**-8 in other dtypes)."""
    made = F.uniform(_size(size, more, "rand"), 0.0, 1.0, *take(generator), dtype=dtype,
                     device=_where(device))
    return _finish("rand", made, out, layout, requires_grad)


def randn(*size: Any, generator: Generator | None = None, names: Any = None, out: Any = None,
          dtype: DType | None = None, layout: Any = None, device: Any = None,
          requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None,
          **more: Any) -> Tensor:
    """Standard normal numbers."""
    made = F.normal(_size(size, more, "randn"), 0.0, 1.0, *take(generator), dtype=dtype,
                    device=_where(device))
    return _finish("randn", made, out, layout, requires_grad)


def randint(*args: Any, generator: Generator | None = None, out: Any = None,
            dtype: DType | None = None, layout: Any = None, device: Any = None,
            requires_grad: bool = False, pin_memory: bool = False, **named: Any) -> Tensor:
    """randint(low=0, high, size): integers in [low, high), int64 unless `dtype` is given."""
    words = ("high", "size") if len(args) + len(named) == 2 else ("low", "high", "size")
    given = {**dict(zip([w for w in words if w not in named], args, strict=False)), **named}
    if set(given) != set(words):
        raise TypeError("randint() received an invalid combination of arguments: expected (int "
                        "high, tuple size) or (int low, int high, tuple size)")
    made = F.randint(tuple(given["size"]), given.get("low", 0), given["high"], *take(generator),
                     dtype=dtype, device=_where(device))
    return _finish("randint", made, out, layout, requires_grad)


def randperm(n: int, *, generator: Generator | None = None, out: Any = None,
             dtype: DType | None = None, layout: Any = None, device: Any = None,
             requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """A permutation of 0 .. n - 1, int64 unless `dtype` is given."""
    made = F.randperm(n, *take(generator), dtype=dtype, device=_where(device))
    return _finish("randperm", made, out, layout, requires_grad)


def normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, generator: Generator | None = None,
           out: Any = None, dtype: DType | None = None, layout: Any = None, device: Any = None,
           requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """Normal numbers; `mean` and `std` are numbers with a `size`, or tensors (or one of each)."""
    if size is not None:
        made = F.normal(tuple(size), mean, std, *take(generator), dtype=dtype,
                        device=_where(device))
        return _finish("normal", made, out, layout, requires_grad)
    given = [x for x in (mean, std) if isinstance(x, Tensor)]
    if not given:
        raise TypeError("normal() received an invalid combination of arguments: two numbers need a "
                        "size")
    shape = broadcast(*[tuple(x._shape) for x in given])
    z = F.normal(shape, 0.0, 1.0, *take(generator), dtype=given[0].dtype, device=given[0].device)
    made = F.detach(F.add(F.mul(z, std), mean))
    return _finish("normal", made, out, layout, requires_grad)


def _like(name: str, draw: Any) -> Any:
    def like(input: Tensor, *, dtype: DType | None = None, layout: Any = None, device: Any = None,
             requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None,
             generator: Generator | None = None) -> Tensor:
        made = F.empty_like(input, dtype=dtype, device=device,
                            memory_format=plain(memory_format))
        write(made, draw(tuple(input._shape), take(generator), made.dtype, made.device))
        return made.requires_grad_() if requires_grad else made
    like.__name__ = name
    return like


rand_like = _like("rand_like", lambda size, at, dtype, device: F.uniform(
    size, 0.0, 1.0, *at, dtype=dtype, device=device))
randn_like = _like("randn_like", lambda size, at, dtype, device: F.normal(
    size, 0.0, 1.0, *at, dtype=dtype, device=device))


def randint_like(input: Tensor, low: Any, high: Any = None, *, dtype: DType | None = None,
                 layout: Any = None, device: Any = None, requires_grad: bool = False,
                 pin_memory: bool = False, memory_format: Any = None,
                 generator: Generator | None = None) -> Tensor:
    """Integers in [low, high) (or [0, low)) of the shape and dtype of `input`."""
    low, high = (0, low) if high is None else (low, high)
    made = F.randint(tuple(input._shape), low, high, *take(generator),
                     dtype=input.dtype if dtype is None else dtype,
                     device=input.device if device is None else device)
    return made.requires_grad_() if requires_grad else made


def bernoulli(input: Tensor, p: Any = None, *, generator: Generator | None = None,
              out: Any = None) -> Tensor:
    """0 and 1: 1 with the probability in `input`, or with probability `p` everywhere."""
    if p is None:
        made = F.bernoulli(input, *take(generator))
    else:
        made = F.to_dtype(F.coin(tuple(input._shape), p, *take(generator), device=input.device),
                          input.dtype)
    return _finish("bernoulli", made, out, None, False)


def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *,
                generator: Generator | None = None, out: Any = None) -> Tensor:
    """Indices drawn with the (unnormalised) probabilities in the rows of `input`, int64."""
    if out is not None and out.dtype is not dt.int64:
        raise RuntimeError(f"multinomial expects Long tensor out, got: {out.dtype}")
    made = F.multinomial(input, num_samples, replacement, *take(generator))
    return _finish("multinomial", made, out, None, False)


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Poisson counts with the rates in `input`."""
    return F.poisson(input, *take(generator))


def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """How many of `count` trials succeed, each with probability `prob`."""
    return F.binomial(count, prob, *take(generator))


def _standard_gamma(self: Tensor, generator: Generator | None = None) -> Tensor:
    return F.standard_gamma(self, *take(generator))


# -- dropout ---------------------------------------------------------------------------------------


def _drop(name: str, op: str, features: bool) -> tuple[Any, Any]:
    draw = getattr(F, op)

    def drop(input: Tensor, p: float = 0.5, train: bool = True) -> Tensor:
        if not 0 <= p <= 1:
            raise RuntimeError("dropout probability has to be between 0 and 1, but got " + str(p))
        if not train or p == 0:
            return input
        return draw(input, p, *take(None), features)

    def drop_(input: Tensor, p: float = 0.5, train: bool = True) -> Tensor:
        made = drop(input, p, train)
        return input if made is input else write(input, made)
    drop.__name__, drop_.__name__ = name, name + "_"
    return drop, drop_


dropout, dropout_ = _drop("dropout", "dropout", False)
alpha_dropout, alpha_dropout_ = _drop("alpha_dropout", "alpha_dropout", False)
feature_dropout, feature_dropout_ = _drop("feature_dropout", "dropout", True)
feature_alpha_dropout, feature_alpha_dropout_ = _drop("feature_alpha_dropout", "alpha_dropout",
                                                      True)


def rrelu(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False,
          generator: Generator | None = None) -> Tensor:
    """Leaky ReLU whose slope is random in training and the mean of the bounds otherwise."""
    if training:
        return F.rrelu_train(input, lower, upper, *take(generator))
    return F.leaky_relu(input, (lower + upper) / 2)


# -- in place --------------------------------------------------------------------------------------


def write(target: Tensor, value: Tensor) -> Tensor:
    """Overwrites `target` with a value that does not depend on it."""
    dispatch.check_writable(target, STATE.grad and target.requires_grad)
    if STATE.tracer is not None:
        target = STATE.tracer.lift(None, (target,))[0]
    dispatch.assign(target, value)
    return target


def _filler(name: str, op: str, first: tuple[str, Any], second: tuple[str, Any] | None) -> Any:
    """An in-place method `name(first, second, generator)`; a parameter may be called `from`."""
    draw = getattr(F, op)
    params = [first] if second is None else [first, second]

    def fill(self: Tensor, *args: Any, generator: Generator | None = None, **named: Any) -> Tensor:
        given = dict(params)
        for (key, _), value in zip(params, args, strict=False):
            given[key] = value
        if len(args) > len(params) or not named.keys() <= given.keys():
            raise TypeError(f"{name}() takes ({', '.join(k for k, _ in params)}, *, generator)")
        given |= named
        made = draw(tuple(self._shape), *given.values(), *take(generator), dtype=self.dtype,
                    device=self.device)
        return write(self, made)
    fill.__name__ = name
    fill.__doc__ = f"Overwrites the tensor with numbers of the distribution {op}."
    return fill


uniform_ = _filler("uniform_", "uniform", ("from", 0.0), ("to", 1.0))
normal_ = _filler("normal_", "normal", ("mean", 0.0), ("std", 1.0))
log_normal_ = _filler("log_normal_", "log_normal", ("mean", 1.0), ("std", 2.0))
exponential_ = _filler("exponential_", "exponential", ("lambd", 1.0), None)
cauchy_ = _filler("cauchy_", "cauchy", ("median", 0.0), ("sigma", 1.0))
geometric_ = _filler("geometric_", "geometric", ("p", 0.5), None)


def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Overwrites the tensor with 0 and 1; `p`: the probability of 1, or a tensor of them."""
    if isinstance(p, Tensor):
        p = F.expand(F.to_dtype(p, dt.float32) if p.dtype.is_integer else p, self._shape)
        return write(self, F.bernoulli(p, *take(generator)))
    made = F.coin(tuple(self._shape), p, *take(generator), device=self.device)
    return write(self, F.to_dtype(made, self.dtype))


# The integers that a floating dtype holds without gaps.
EXACT = {dt.float16: 1 << 11, dt.bfloat16: 1 << 8, dt.float32: 1 << 24, dt.float64: 1 << 53}


def random_(self: Tensor, *args: Any, generator: Generator | None = None, **named: Any) -> Tensor:
    """random_(from=0, to=None): integers in [from, to); without `to`, up to the dtype's largest."""
    if len(args) > 2:
        raise TypeError("random_() takes (from, to, *, generator)")
    given = dict(zip(("to",) if len(args) == 1 else ("from", "to"), args, strict=False)) | named
    low, high = given.get("from", 0) or 0, given.get("to")
    d = self.dtype
    if high is None:
        if d in EXACT:
            high = EXACT[d] + 1
        elif d is dt.bool_:
            high = 2
        else:
            high = 1 << (8 * d.itemsize - d.signed)
    elif high <= low:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= "
                           f"to={high}")
    made = F.randint(tuple(self._shape), low, high, *take(generator),
                     dtype=dt.int64 if d is dt.bool_ or d in EXACT else d, device=self.device)
    return write(self, made if made.dtype is d else F.to_dtype(made, d))


for _name in ("rand randn randint randperm normal rand_like randn_like randint_like bernoulli "
              "multinomial poisson binomial dropout dropout_ alpha_dropout feature_dropout "
              "rrelu").split():
    globals()[_name] = override.public(globals()[_name])
