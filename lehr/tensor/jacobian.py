"""`autograd.functional`: Jacobians, Hessians and their products with vectors, by backward alone.

J v is the derivative, with respect to u, of (u J) v.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lehr.tensor import gradient
from lehr.tensor.mode import enable_grad
from lehr.tensor.tensor import Tensor

F = Tensor.F


def _tensors(given: Any, name: str, function: str) -> tuple[bool, tuple[Tensor, ...]]:
    several = isinstance(given, (tuple, list))
    made = tuple(given) if several else (given,)
    for i, t in enumerate(made):
        if not isinstance(t, Tensor):
            which = f"value {i} of the {name}" if several else f"the {name}"
            raise TypeError(f"The {name} given to {function} must be either a Tensor or a tuple of "
                            f"Tensors but {which} has type {type(t)}.")
    return several, made


def _copies(inputs: tuple[Tensor, ...], create_graph: bool) -> tuple[Tensor, ...]:
    """The inputs as tensors to differentiate by."""
    if create_graph:
        return tuple(x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
                     for x in inputs)
    return tuple(x.detach().clone().requires_grad_() for x in inputs)


def _grad(outputs: Any, inputs: Any, weights: Any, create: bool) -> tuple[Any, ...]:
    live = [(o, w) for o, w in zip(outputs, weights, strict=True) if o.requires_grad]
    if not live:
        return (None,) * len(inputs)
    return gradient.grad([o for o, _ in live], inputs, [w for _, w in live], retain_graph=True,
                         create_graph=create, allow_unused=True)


def _connected(outs: tuple[Tensor, ...], strict: bool) -> None:
    for i, o in enumerate(outs):
        if strict and not o.requires_grad:
            raise RuntimeError(
                f"Output {i} of the user-provided function does not require gradients. The outputs "
                "must be computed in a differentiable manner from the input when running in strict "
                "mode.")


def _filled(found: Any, like: Any, strict: bool, what: str) -> tuple[Tensor, ...]:
    out = []
    for i, (g, t) in enumerate(zip(found, like, strict=True)):
        if g is None:
            if strict:
                raise RuntimeError(f"{what} {i} is independent of the input. This is not allowed "
                                   "in strict mode.")
            g = F.zeros_like(t)
        out.append(g)
    return tuple(out)


def _finish(found: Any, create_graph: bool) -> Any:
    return found if create_graph else tuple(g.detach() for g in found)


def _unpack(found: tuple[Any, ...], several: bool) -> Any:
    return found if several else found[0]


def _weights(v: Any, like: tuple[Tensor, ...], function: str, what: str) -> tuple[Tensor, ...]:
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"The vector v can only be None if the {what} is a single Tensor "
                               "with a single element.")
        return (F.ones_like(like[0]),)
    made = _tensors(v, "v", function)[1]
    if len(made) != len(like) or any(a._shape != b._shape for a, b in zip(made, like, strict=True)):
        raise RuntimeError(f"v has invalid sizes: should be {[list(t._shape) for t in like]} but "
                           f"got {[list(t._shape) for t in made]}.")
    return made


def vjp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:
    """(func(*inputs), v times the Jacobian)."""
    with enable_grad():
        several, given = _tensors(inputs, "inputs", "vjp")
        xs = _copies(given, create_graph)
        many, outs = _tensors(func(*xs), "outputs of the user-provided function", "vjp")
        _connected(outs, strict)
        weights = _weights(v, outs, "vjp", "user-provided function returns")
        found = _filled(_grad(outs, xs, weights, create_graph), xs, strict, "Output")
    return (_unpack(_finish(outs, create_graph), many),
            _unpack(_finish(found, create_graph), several))


def jvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:
    """(func(*inputs), the Jacobian times v), by differentiating twice."""
    with enable_grad():
        _, given = _tensors(inputs, "inputs", "jvp")
        xs = _copies(given, create_graph)
        weights = _weights(v, xs, "jvp", "input to the user-provided function")
        many, outs = _tensors(func(*xs), "outputs of the user-provided function", "jvp")
        u = tuple(F.zeros_like(o).requires_grad_() for o in outs)
        row = _filled(_grad(outs, xs, u, True), xs, strict, "Output")
        found = _filled(_grad(row, u, weights, create_graph), outs, strict, "Output")
    return (_unpack(_finish(outs, create_graph), many), _unpack(_finish(found, create_graph), many))


def jacobian(func: Callable[..., Any], inputs: Any, create_graph: bool = False,
             strict: bool = False, vectorize: bool = False,
             strategy: str = "reverse-mode") -> Any:
    """The Jacobian: for each output and input a tensor [*output.shape, *input.shape]."""
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')
    with enable_grad():
        several, given = _tensors(inputs, "inputs", "jacobian")
        xs = _copies(given, create_graph)
        many, outs = _tensors(func(*xs), "outputs of the user-provided function", "jacobian")
        _connected(outs, strict)
        blocks = []
        for o in outs:
            rows = [_filled(_grad([flat], xs, [F.ones_like(flat)], create_graph), xs, strict,
                            "Output") for flat in o.reshape(-1).unbind(0)]
            blocks.append(tuple(
                F.reshape(F.stack([r[i] for r in rows]), (*o._shape, *x._shape)) if rows
                else F.zeros((*o._shape, *x._shape), dtype=x.dtype) for i, x in enumerate(xs)))
        made = tuple(_finish(b, create_graph) for b in blocks)
    return _unpack(tuple(_unpack(b, several) for b in made), many)


def _scalar(func: Callable[..., Any], name: str) -> Callable[..., Tensor]:
    def checked(*xs: Any) -> Tensor:
        out = func(*xs)
        if not isinstance(out, Tensor):
            raise RuntimeError(f"The function given to {name} should return a single Tensor")
        if out.numel() != 1:
            raise RuntimeError(f"The Tensor returned by the function given to {name} should "
                               "contain a single element")
        return out.reshape(())
    return checked


def hessian(func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False,
            vectorize: bool = False, outer_jacobian_strategy: str = "reverse-mode") -> Any:
    """Second derivatives of a scalar function: for each pair of inputs a tensor
    [*first.shape, *second.shape]."""
    several, given = _tensors(inputs, "inputs", "hessian")
    checked = _scalar(func, "hessian")

    def slope(*xs: Tensor) -> tuple[Tensor, ...]:
        made = jacobian(checked, xs, create_graph=True, strict=strict)
        return made if isinstance(made, tuple) else (made,)
    found = jacobian(slope, given, create_graph=create_graph, strict=strict)
    return found if several else found[0][0]


def vhp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:
    """(func(*inputs), v times the Hessian)."""
    with enable_grad():
        several, given = _tensors(inputs, "inputs", "vhp")
        xs = _copies(given, create_graph)
        weights = _weights(v, xs, "vhp", "input to the user-provided function")
        out = _scalar(func, "vhp")(*xs)
        slope = _filled(_grad([out], xs, [F.ones_like(out)], True), xs, strict, "Output")
        found = _filled(_grad(slope, xs, weights, create_graph), xs, strict, "Output")
    return (_finish((out,), create_graph)[0], _unpack(_finish(found, create_graph), several))


def hvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:
    """(func(*inputs), the Hessian times v): the same, the Hessian being symmetric."""
    return vhp(func, inputs, v, create_graph, strict)
