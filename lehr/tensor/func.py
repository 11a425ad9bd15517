"""`torch.func`: derivatives of functions as functions, and `vmap`.

`vmap` runs its function once for each slice and stacks the results: what it computes is what
PyTorch's computes, not how fast.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lehr.base import tree
from lehr.tensor import gradient, jacobian
from lehr.tensor.mode import enable_grad
from lehr.tensor.tensor import Tensor

F = Tensor.F


def _fresh(x: Any) -> Any:
    """A tensor to differentiate by, itself differentiable."""
    if not isinstance(x, Tensor):
        return x
    return F.alias(x) if x.requires_grad else x.detach().requires_grad_()


def _chosen(argnums: Any, args: tuple[Any, ...]) -> tuple[bool, list[int]]:
    several = not isinstance(argnums, int)
    places = list(argnums) if several else [argnums]
    for p in places:
        if not -len(args) <= p < len(args):
            raise RuntimeError(f"Got argnum={p}, but only {len(args)} positional inputs")
    return several, [p % len(args) for p in places]


def grad_and_value(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Any:
    """A function that returns (gradient, value) of a scalar function (auxiliary results with the
    value)."""
    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with enable_grad():
            several, places = _chosen(argnums, args)
            given = list(args)
            for p in places:
                given[p] = tree.map(_fresh, given[p])
            out = func(*given, **kwargs)
            value, aux = out if has_aux else (out, None)
            if not isinstance(value, Tensor) or value.numel() != 1 or value._shape:
                raise RuntimeError("Expected the function given to grad to return a scalar tensor, "
                                   f"got {getattr(value, 'shape', type(value))}")
            found = []
            for p in places:
                leaves, spec = tree.flatten(given[p])
                tensors = [x for x in leaves if isinstance(x, Tensor)]
                grads = iter(gradient.grad(value, tensors, create_graph=_inside(args),
                                           retain_graph=True, materialize_grads=True)
                             if value.requires_grad else map(F.zeros_like, tensors))
                found.append(tree.unflatten(
                    [next(grads) if isinstance(x, Tensor) else x for x in leaves], spec))
        made = tuple(found) if several else found[0]
        value = value if _inside(args) else value.detach()
        return made, (value, aux) if has_aux else value
    return wrapper


def _inside(args: Any) -> bool:
    """Whether somebody differentiates through this call."""
    return any(isinstance(x, Tensor) and x.requires_grad for x in tree.flatten(args)[0])


def grad(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Any:
    """A function that returns the gradient of a scalar function."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        made, value = both(*args, **kwargs)
        return (made, value[1]) if has_aux else made
    return wrapper


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """(func(*primals), a function from weights to gradients of the primals)."""
    with enable_grad():
        given = [tree.map(_fresh, p) for p in primals]
        out = func(*given)
    value, aux = out if has_aux else (out, None)
    outs, _ = tree.flatten(value)

    def pull(weights: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        found = []
        ws = tree.flatten(weights)[0]
        live = [(o, w) for o, w in zip(outs, ws, strict=True) if o.requires_grad]
        for p in given:
            leaves, spec = tree.flatten(p)
            grads = gradient.grad([o for o, _ in live], leaves, [w for _, w in live],
                                  retain_graph=True, create_graph=_inside(primals),
                                  materialize_grads=True) if live else map(F.zeros_like, leaves)
            found.append(tree.unflatten(list(grads), spec))
        return tuple(found)
    shown = value if _inside(primals) else tree.map(lambda t: t.detach(), value)
    return (shown, pull, aux) if has_aux else (shown, pull)


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False,
        has_aux: bool = False) -> Any:
    """(func(*primals), the directional derivative), by differentiating twice."""
    aside: list[Any] = []
    made = jacobian.jvp(_without(func, aside) if has_aux else func, tuple(primals),
                        tuple(tangents), strict=strict)
    return (*made, aside[-1]) if has_aux else made


def _without(func: Callable[..., Any], aside: list[Any]) -> Callable[..., Any]:
    """The function without its auxiliary results, which are put aside."""
    def plain(*args: Any) -> Any:
        out, aux = func(*args)
        aside.append(tree.map(lambda t: t.detach() if isinstance(t, Tensor) else t, aux))
        return out
    return plain


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """(func(*primals), the function from tangents of all primals to directional derivatives)."""
    def push(*tangents: Any) -> Any:
        return jvp(func, primals, tangents)[1]
    return func(*primals), push


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """The function: what it computes is the same with and without writes and views."""
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError("functionalize(f, remove='mutations'): received invalid argument for "
                           f"remove={remove}. Valid options are: remove='mutations', "
                           "remove='mutations_and_views'")
    return func


def jacrev(func: Callable[..., Any], argnums: Any = 0, *, has_aux: bool = False,
           chunk_size: Any = None, _preallocate_and_copy: bool = False) -> Any:
    """A function that returns the Jacobian (and the auxiliary results, where there are any)."""
    @functools.wraps(func)
    def wrapper(*args: Any) -> Any:
        several, places = _chosen(argnums, args)
        aside: list[Any] = []
        plain = _without(func, aside) if has_aux else func

        def partial(*chosen: Any) -> Any:
            given = list(args)
            for p, x in zip(places, chosen, strict=True):
                given[p] = x
            return plain(*given)
        inputs = tuple(args[p] for p in places)
        made = jacobian.jacobian(partial, inputs if several else inputs[0],
                                 create_graph=_inside(args))
        return (made, aside[-1]) if has_aux else made
    return wrapper


jacfwd = jacrev


def hessian(func: Callable[..., Any], argnums: Any = 0) -> Any:
    """A function that returns the Hessian."""
    return jacrev(jacrev(func, argnums), argnums)


def vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error",
         *, chunk_size: Any = None) -> Any:
    """A function that maps `func` over a dimension of its arguments (None: the whole argument)."""
    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        dims = in_dims if isinstance(in_dims, (tuple, list)) else (in_dims,) * len(args)
        if len(dims) != len(args):
            raise ValueError(f"vmap: in_dims has {len(dims)} entries for {len(args)} inputs")
        flat = [(*tree.flatten(a), d) for a, d in zip(args, dims, strict=True)]
        sizes = {x._shape[d] for leaves, _, dim in flat for x, d in _mapped(leaves, dim)}
        if len(sizes) != 1:
            raise ValueError("vmap: Expected all tensors to have the same size in the mapped "
                             f"dimension, got sizes {sorted(sizes)} for the mapped dimension"
                             if sizes else "vmap: at least one input must be mapped over")
        rows = []
        for i in range(next(iter(sizes))):
            given = [tree.unflatten(_row(leaves, dim, i), spec) for leaves, spec, dim in flat]
            rows.append(tree.flatten(func(*given, **kwargs)))
        spec = rows[0][1]
        outs = _spread(rows[0][0], out_dims)
        return tree.unflatten([F.stack([r[0][k] for r in rows], outs[k])
                               for k in range(len(outs))], spec)
    return wrapper


def _row(leaves: list[Any], dim: Any, i: int) -> list[Any]:
    """Slice `i` of the mapped leaves."""
    return [x if d is None or not isinstance(x, Tensor) else F.select(x, d, i)
            for x, d in zip(leaves, _spread(leaves, dim), strict=True)]


def _spread(leaves: list[Any], dim: Any) -> list[Any]:
    """One mapped dimension a leaf."""
    if isinstance(dim, (tuple, list, dict)):
        return list(tree.flatten(dim)[0]) if not isinstance(dim, tuple) else list(dim)
    return [dim] * len(leaves)


def _mapped(leaves: list[Any], dim: Any) -> Any:
    return [(x, d) for x, d in zip(leaves, _spread(leaves, dim), strict=True)
            if d is not None and isinstance(x, Tensor)]
