"""Activations computed again in the backward pass instead of kept (Chen et al., 2016).

`use_reentrant=False` keeps placeholders in the place of saved tensors and runs the function again
when the first is asked for; `True` runs it within `autograd.Function` and backpropagates through it
there.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from lehr.base import tree
from lehr.nn.module import Module
from lehr.tensor import autocast as casting
from lehr.tensor import random
from lehr.tensor.function import Function
from lehr.tensor.gradient import backward
from lehr.tensor.graph import saved_tensors_hooks
from lehr.tensor.mode import enable_grad, no_grad
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

tree_map = tree.map  # programs take it from here


class CheckpointError(RuntimeError):
    """The function did something else when it ran again."""


class Setup:
    """What has to be as it was when the function runs again: random numbers and autocast."""

    def __init__(self, preserve: bool) -> None:
        self.state = random.get_rng_state() if preserve else None
        policy = STATE.autocast
        self.policy = None if policy is None else (dict(policy.devices), policy.caching)

    @contextlib.contextmanager
    def again(self) -> Any:
        """The modes and random numbers of the first run; those of now afterwards."""
        held = random.get_rng_state() if self.state is not None else None
        before = STATE.autocast
        if self.state is not None:
            random.set_rng_state(self.state)
        # A region of its own: casts of weights made in this run belong to it alone.
        STATE.autocast = None if self.policy is None else casting.Policy(*self.policy, {})
        try:
            yield
        finally:
            STATE.autocast = before
            if held is not None:
                random.set_rng_state(held)


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tensors without history, as leaves that need gradients where they did."""
    if not isinstance(inputs, tuple):
        raise RuntimeError("Only tuple of tensors is supported. Got Unsupported input type: "
                           f"{type(inputs).__name__}")
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x
                 for x in inputs)


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warns where no input needs a gradient."""
    if not any(x.requires_grad for x in inputs if isinstance(x, Tensor)):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None",
                      stacklevel=3)


class CheckpointFunction(Function):
    """One checkpointed call, reentrant."""

    @staticmethod
    def forward(ctx: Any, run_function: Callable[..., Any], preserve_rng_state: bool,
                *args: Any) -> Any:
        check_backward_validity(args)
        ctx.run_function, ctx.setup = run_function, Setup(preserve_rng_state)
        ctx.held = [None if isinstance(a, Tensor) else a for a in args]
        ctx.spots = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*[args[i] for i in ctx.spots])
        with no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        args = list(ctx.held)
        for i, t in zip(ctx.spots, ctx.saved_tensors, strict=True):
            args[i] = t
        own = detach_variable(tuple(args))
        with enable_grad(), ctx.setup.again():
            outputs = ctx.run_function(*own)
        outputs = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
        pairs = [(o, g) for o, g in zip(outputs, grads, strict=True)
                 if isinstance(o, Tensor) and o.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not "
                               "necessary")
        backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, *(x.grad if isinstance(x, Tensor) else None for x in own))


class _Stop(Exception):
    """Everything asked for has been computed again."""


class Holder:
    """The placeholder of one saved tensor."""

    __slots__ = ("__weakref__", "frame", "number")

    def __init__(self, frame: Frame, number: int) -> None:
        self.frame, self.number = frame, number


class Frame:
    """One checkpointed call, not reentrant: how to run it again, and what it saved.

    made       number -> tensor of the second run, until each has been read
    described  number -> (shape, dtype, device) in the first run
    """

    def __init__(self, run: Callable[[], Any], setup: Setup, contexts: Any, early_stop: bool,
                 check: bool) -> None:
        self.run, self.setup, self.contexts = run, setup, contexts
        self.early_stop, self.check = early_stop, check
        self.described: list[Any] = []
        self.made: dict[int, Any] = {}

    def pack(self, t: Any) -> Holder:
        """Forgets a tensor that the first run saves."""
        self.described.append((tuple(t.shape), t.dtype, t.device))
        return Holder(self, len(self.described) - 1)

    def unpack(self, holder: Holder) -> Any:
        """The tensor again, after a second run if need be."""
        if holder.number not in self.made:
            self._again()
        if holder.number not in self.made:
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the "
                f"original forward and recomputation.\nNumber of tensors saved during forward: "
                f"{len(self.described)}\nNumber of tensors saved during recomputation: "
                f"{len(self.made)}. The function has to do the same each time it runs.")
        return self.made.pop(holder.number)

    def _again(self) -> None:
        count = 0
        self.made = {}

        def keep(t: Any) -> Any:
            nonlocal count
            number, count = count, count + 1
            if number < len(self.described):
                if self.check:
                    self._compare(number, t)
                self.made[number] = t.detach()
                if self.early_stop and count == len(self.described):
                    raise _Stop
            return t
        with enable_grad(), self.setup.again(), self.contexts, \
                saved_tensors_hooks(keep, lambda t: t), contextlib.suppress(_Stop):
            self.run()

    def _compare(self, number: int, t: Any) -> None:
        now = (tuple(t.shape), t.dtype, t.device)
        if now != self.described[number]:
            raise CheckpointError(
                "torch.utils.checkpoint: Recomputed values for the following tensors have "
                "different "
                "metadata than during the forward pass.\ntensor at position "
                f"{number}:\nsaved metadata: {_shown(self.described[number])}\nrecomputed "
                f"metadata: "
                f"{_shown(now)}")


def _shown(facts: Any) -> str:
    shape, dtype, device = facts
    return f"{{'shape': torch.Size({list(shape)}), 'dtype': {dtype}, 'device': {device!r}}}"


class Defaults:
    """Whether the second run ends as soon as everything is there, and checks by default."""

    early_stop = True
    debug = False


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Any:
    """Within the block, whether the second run ends as soon as everything asked for is there."""
    before, Defaults.early_stop = Defaults.early_stop, enable
    try:
        yield
    finally:
        Defaults.early_stop = before


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Any:
    """Accepted; errors name the tensor in any case."""
    before, Defaults.debug = Defaults.debug, bool(enabled)
    try:
        yield
    finally:
        Defaults.debug = before


def noop_context_fn() -> tuple[Any, Any]:
    """The contexts of both runs: none."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None,
               context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
               determinism_check: str = "default", debug: bool = False, early_stop: bool = True,
               **kwargs: Any) -> Any:
    """`function(*args, **kwargs)`, whose saved tensors are computed again in the backward pass.

    preserve_rng_state  (True) the second run draws the same random numbers
    context_fn          contexts of the first and the second run
    determinism_check   "default" compares shapes, dtypes and devices; "none" does not
    early_stop          the second run ends as soon as everything is there
    """
    if use_reentrant is None:
        warnings.warn("torch.utils.checkpoint: the use_reentrant parameter should be passed "
                      "explicitly. Starting in PyTorch 2.9, calling checkpoint without "
                      "use_reentrant "
                      "will raise an exception. use_reentrant=False is recommended, but if you "
                      "need "
                      "to preserve the current default behavior, you can pass use_reentrant=True. "
                      "Refer to docs for more details on the differences between the two variants.",
                      stacklevel=2)
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug is not False:
            raise ValueError("Passing `context_fn` or `debug` is only supported when "
                             "use_reentrant=False.")
        return CheckpointFunction.apply(function, preserve, *args)
    if determinism_check not in ("default", "none"):
        raise ValueError("determinism_check should be one of ['default', 'none'], but got "
                         f"{determinism_check}")
    first, second = context_fn()
    if not STATE.grad:
        with first:
            return function(*args, **kwargs)
    stop = early_stop and Defaults.early_stop
    frame = Frame(lambda: function(*args, **kwargs), Setup(preserve), second, stop,
                  determinism_check == "default")
    with saved_tensors_hooks(frame.pack, frame.unpack), first:
        return function(*args, **kwargs)


def checkpoint_sequential(functions: Any, segments: int, input: Any,
                          use_reentrant: bool | None = None, **kwargs: Any) -> Any:
    """A sequence of modules in `segments` checkpointed parts; the last one keeps its tensors."""
    if use_reentrant is None:
        warnings.warn("torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter "
                      "should be passed explicitly. use_reentrant=False is recommended.",
                      stacklevel=2)
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    parts = list(functions.children()) if isinstance(functions, Module) else list(functions)

    def between(start: int, end: int) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for f in parts[start:end]:
                x = f(x)
            return x
        return run
    size = len(parts) // segments
    end = 0
    for start in range(0, size * (segments - 1), size):
        end = start + size
        input = checkpoint(between(start, end), input, use_reentrant=use_reentrant,
                           preserve_rng_state=preserve)
    return between(end, len(parts))(input)


__all__ = ["CheckpointError", "CheckpointFunction", "checkpoint", "checkpoint_sequential",
           "noop_context_fn", "set_checkpoint_debug_enabled", "set_checkpoint_early_stop"]
