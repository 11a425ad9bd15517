"""Many calls of ops as one compiled function: one capture, one program, one C compilation."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import lehr
from lehr.ops.registry import Op
from lehr.ops.sample import Sample
from lehr.tensor import autograd, dispatch
from lehr.tensor.tensor import Tensor
from tests.ops import oracle
from tests.ops.test_generated import outcome, show
from tests.ops.test_tensor import laid

SEED = 7
PLAIN = (type(None), bool, int, str)


class Call(NamedTuple):
    """One call of an op: its sample and the bound arguments as tensors."""

    op: Op
    sample: Sample
    bound: tuple[Any, ...]

    @property
    def leaves(self) -> list[Tensor]:
        return [t for t in tensors_in(self.bound) if t.requires_grad]

    def __str__(self) -> str:
        return f"{self.op.name}: {show(self.sample)}"


class Failure(NamedTuple):
    call: Call
    what: str

    def __str__(self) -> str:
        return f"{self.call}: {self.what}"


def tensors_in(a: Any) -> list[Tensor]:
    """The tensors of an argument or a result, also inside lists."""
    if isinstance(a, Tensor):
        return [a]
    return [t for x in a for t in tensors_in(x)] if isinstance(a, (list, tuple)) else []


def tensors(a: Any, grad: bool) -> Any:
    """Arrays as tensors of the same strides; floating ones are leaves where `grad`."""
    if isinstance(a, np.ndarray):
        made = laid(a)
        return made.requires_grad_() if grad and made.dtype.is_floating_point else made
    return type(a)(tensors(x, grad) for x in a) if type(a) in (list, tuple) else a


def call_of(op: Op, sample: Sample, grad: bool = False) -> tuple[Call, Exception | None]:
    """The call, and what it (and its backward, where `grad`) raises in eager mode."""
    call = Call(op, sample, tuple(tensors(a, grad) for a in sample.bind(op)))
    made, error = outcome(dispatch.call, op, call.bound)
    if error is None and grad:
        _, error = outcome(reverse, [call], [made])
    return call, error


def eager(calls: Sequence[Call]) -> list[Any]:
    lehr.manual_seed(SEED)
    return [dispatch.call(c.op, c.bound) for c in calls]


def function_of(calls: Sequence[Call], fed: Any = None, read: Any = None
                ) -> tuple[Callable[..., Any], list[Tensor]]:
    """A function of a list of tensors that makes the calls, and that list. `fed` is called with
    each tensor first, `read` with each result: what it gives comes behind all results."""
    inputs: list[Tensor] = []
    constants: list[Any] = []

    def text(a: Any) -> str:
        if isinstance(a, Tensor):
            inputs.append(a)
            return f"fed(t[{len(inputs) - 1}])" if fed else f"t[{len(inputs) - 1}]"
        if type(a) in PLAIN or (type(a) is float and math.isfinite(a)):
            return repr(a)
        if type(a) in (list, tuple):
            inside = "".join(text(x) + ", " for x in a)
            return f"[{inside}]" if type(a) is list else f"({inside})"
        constants.append(a)
        return f"constants[{len(constants) - 1}]"

    lines = ["def batch(t):", "    made = ["]
    for c in calls:
        given = ", ".join(f"{p.name}={text(a)}" if p.keyword else text(a)
                          for p, a in zip(c.op.params, c.bound, strict=True))
        lines.append(f"        F.{c.op.name}({given}),")
    lines += ["    ]", "    return made + [read(m) for m in made]" if read else "    return made"]
    space: dict[str, Any] = {"F": dispatch.F, "constants": constants, "fed": fed, "read": read}
    exec(compile("\n".join(lines), "<batch>", "exec"), space)
    return space["batch"], inputs


def compiled(calls: Sequence[Call], backend: str, **options: Any) -> list[Any]:
    function, inputs = function_of(calls)
    made = lehr.compile(function, fullgraph=True, backend=backend, options=options)
    lehr.manual_seed(SEED)
    return made(inputs)


def different(have: Any, want: Any, op: Op, inputs: Sequence[Tensor]) -> str:
    """Empty where a compiled result is what eager gives: values, dtype, shape, strides,
    aliasing."""
    if isinstance(want, (list, tuple)):
        if type(have) is not type(want) or len(have) != len(want):
            return f"{type(have).__name__} of {len(have)}, expected {type(want).__name__}"
        pairs = zip(have, want, strict=True)
        return next((f"result {i}: {d}" for i, (a, b) in enumerate(pairs)
                     if (d := different(a, b, op, inputs))), "")
    if not isinstance(want, Tensor):
        same = type(have) is type(want) and (have == want or have != have and want != want)
        return "" if same else f"{have!r}, expected {want!r}"
    if not isinstance(have, Tensor):
        return f"{type(have).__name__}, expected a tensor"
    for name in ("dtype", "shape", "device", "requires_grad", "is_leaf"):
        a, b = getattr(have, name), getattr(want, name)
        if a != b:
            return f"{name} {a}, expected {b}"
    if have.stride() != want.stride() or have._offset != want._offset:
        return (f"strides {have.stride()} at {have._offset}, expected {want.stride()} "
                f"at {want._offset}")
    shared = [[i for i, t in enumerate(inputs) if t._storage is x._storage] for x in (have, want)]
    if shared[0] != shared[1]:
        return f"storage of inputs {shared[0]}, expected {shared[1]}"
    limits = oracle.tolerance(op, want.dtype, oracle.STRICT)
    return oracle.agree(have.detach()._array, want.detach()._array, *limits)


def attempt(calls: Sequence[Call], run: Callable[[Sequence[Call]], list[str]],
            failures: list[Failure]) -> None:
    """`run` gives what is wrong with each call; where it raises, the calls that make it are found
    by halving."""
    try:
        texts = run(calls)
    except Exception as error:
        if len(calls) == 1:
            last = traceback.extract_tb(error.__traceback__)[-1]
            at = f"{last.filename.rpartition('/lehr/')[2]}:{last.lineno}"
            failures.append(Failure(calls[0], f"{type(error).__name__}: {error} (in {at})"))
            return
        half = len(calls) // 2
        found = len(failures)
        attempt(calls[:half], run, failures)
        attempt(calls[half:], run, failures)
        if len(failures) == found:
            failures.append(Failure(calls[0], f"only together with {len(calls) - 1} more: "
                                              f"{type(error).__name__}: {error}"))
        return
    failures += [Failure(c, text) for c, text in zip(calls, texts, strict=True) if text]


def values(calls: Sequence[Call], backend: str = "inductor", **options: Any) -> list[Failure]:
    """The calls whose compiled results are not eager's."""
    def run(calls: Sequence[Call]) -> list[str]:
        want = eager(calls)
        have = compiled(calls, backend, **options)
        return [different(a, b, c.op, tensors_in(c.bound))
                for c, a, b in zip(calls, have, want, strict=True)]
    failures: list[Failure] = []
    attempt(calls, run, failures)
    return failures


def gradients(
    calls: Sequence[Call], backend: str = "inductor", **options: Any
) -> list[Failure]:
    """The calls whose compiled gradients are not eager's; operands are leaves."""
    def run(calls: Sequence[Call]) -> list[str]:
        want = reverse(calls, eager(calls))
        have = reverse(calls, compiled(calls, backend, **options))
        found = []
        for c, a, b in zip(calls, have, want, strict=True):
            texts = [(i, _gradient(x, y, c)) for i, (x, y) in enumerate(zip(a, b, strict=True))]
            found.append("; ".join(f"gradient {i}: {text}" for i, text in texts if text))
        return found
    failures: list[Failure] = []
    attempt(calls, run, failures)
    return failures


def _gradient(have: Tensor | None, want: Tensor | None, call: Call) -> str:
    if have is None or want is None:
        return "" if have is want else f"{have is None and 'none' or 'one'}, expected otherwise"
    if have.stride() != want.stride():
        return f"strides {have.stride()}, expected {want.stride()}"
    # A gradient is a sum of parts that may cancel: its rounding is that of the largest element. Its
    # rule computes parts of it in the dtypes of the operands.
    dtypes = {want.dtype, *(t.dtype for t in tensors_in(call.bound) if t.dtype.is_floating_point)}
    rtol, atol = max(oracle.tolerance(call.op, d, oracle.STRICT) for d in dtypes)
    largest = float(want.abs().max()) if want.numel() else 0.0
    atol = 4 * atol + (4 * rtol * largest if math.isfinite(largest) else 0.0)
    return oracle.agree(have._array, want._array, 4 * rtol, atol)


def _weight(random: np.random.Generator, t: Tensor) -> Tensor:
    """A random gradient in the layout of `t`."""
    made = lehr.empty_strided(t._shape, t._strides, dtype=t.dtype)
    made._array[...] = random.uniform(0.5, 1.5, t._shape)
    return made


def reverse(calls: Sequence[Call], made: Sequence[Any]) -> list[list[Tensor | None]]:
    """For each call the gradients of its operands, of the weighted sum of its results."""
    leaves = [c.leaves for c in calls]
    outs = [t for m in made for t in tensors_in(m)
            if t.requires_grad and t.dtype.is_floating_point and t.grad_fn is not None]
    random = np.random.default_rng(0)
    weights = [_weight(random, t) for t in outs]
    flat = [t for part in leaves for t in part]
    found = iter(autograd.run_backward(outs, weights, False, False, flat, False) if outs else
                 [None] * len(flat))
    return [[next(found) for _ in part] for part in leaves]
