"""The tape as the user sees it: nodes, edges, hooks on saved tensors and on several gradients."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from lehr.tensor.hook import Handle
from lehr.tensor.node import Node, edge_of
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor


class GradientEdge(NamedTuple):
    """One result of one node: what a tensor's gradient goes to."""

    node: Node
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The edge that stands for the gradient of `tensor`."""
    edge = edge_of(tensor)
    if edge is None:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not "
                           "require gradients")
    return GradientEdge(*edge)


class saved_tensors_hooks:
    """Inside, the tape keeps `pack_hook(tensor)` instead of each tensor it saves, and gets the
    tensor back by `unpack_hook`."""

    def __init__(self, pack_hook: Callable[[Tensor], Any],
                 unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pair = pack_hook, unpack_hook

    def __enter__(self) -> None:
        if STATE.no_hooks is not None:
            raise RuntimeError(STATE.no_hooks)
        STATE.saved = (*STATE.saved, self.pair)

    def __exit__(self, *args: Any) -> None:
        STATE.saved = STATE.saved[:-1]


class save_on_cpu(saved_tensors_hooks):
    """Inside, saved tensors wait in host memory."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Tensor) -> Any:
            is_there = tensor.device.type == "cpu"
            return tensor.device, tensor.clone() if is_there else tensor.to("cpu")

        def unpack(packed: Any) -> Tensor:
            device, tensor = packed
            return tensor.to(device)
        super().__init__(pack, unpack)


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Inside, `saved_tensors_hooks` raises with this message."""
    if STATE.saved:
        raise RuntimeError(error_message)
    before, STATE.no_hooks = STATE.no_hooks, error_message
    try:
        yield
    finally:
        STATE.no_hooks = before


class Handles:
    """Removes several hooks."""

    def __init__(self, handles: Iterable[Handle]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        for h in self.handles:
            h.remove()

    def __enter__(self) -> Handles:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[..., None], *,
                             mode: str = "all") -> Handles:
    """`fn(grads)` runs once the gradients of all tensors are there ("all"), or `fn(grad)` on the
    first one ("any"), in each backward."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    state: dict[str, Any] = {"walk": None, "grads": [], "left": 0, "done": False}

    def arrived(i: int, grad: Tensor) -> None:
        from lehr.tensor import autograd
        walk = autograd.current()
        if state["walk"] is not walk:
            state.update(walk=walk, grads=[None] * len(tensors), done=False,
                         left=len(tensors) if walk is None else walk.reaches(tensors))
        if mode == "any":
            if not state["done"]:
                state["done"] = True
                fn(grad)
            return
        state["grads"][i] = grad
        state["left"] -= 1
        if state["left"] == 0:
            fn(state["grads"])
            state["walk"] = None
    return Handles(t.register_hook(functools.partial(arrived, i)) for i, t in enumerate(tensors))


class _Versions(contextlib.AbstractContextManager[Any]):
    """Keeps copies of saved tensors, so that later writes do no harm."""

    def __init__(self) -> None:
        self.hooks = saved_tensors_hooks(lambda t: t.clone(), lambda t: t)

    def __enter__(self) -> _Versions:
        self.hooks.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.hooks.__exit__(*exc)

    def clear(self) -> None:
        """Nothing is kept here."""


def allow_mutation_on_saved_tensors() -> Any:
    """Inside, tensors that the tape saved may be written to (they are copied)."""
    return _Versions()


def increment_version(tensor: Any) -> None:
    """Tells the tape that the memory of the tensor(s) was written from outside."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        t._storage.written()


__all__ = ["GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks",
           "get_gradient_edge", "increment_version", "register_multi_grad_hook", "save_on_cpu",
           "saved_tensors_hooks"]
