"""`gradcheck`: gradients against finite differences."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.tensor import gradient
from lehr.tensor.mode import no_grad
from lehr.tensor.tensor import Tensor


class GradcheckError(RuntimeError):
    """A gradient differs from its finite differences."""


def _tuple(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def _differentiable(xs: Sequence[Any]) -> list[Tensor]:
    return [x for x in xs if isinstance(x, Tensor) and x.requires_grad]


def numerical_jacobian(fn: Callable[..., Any], inputs: Sequence[Any], x: Tensor, out: int,
                       eps: float) -> Any:
    """d out / d x by central differences: an array [x.numel(), out.numel()]."""
    data = x.detach()
    flat = data.numpy()
    rows = []
    with no_grad():
        for at in np.ndindex(flat.shape):
            value = flat[at]
            sides = []
            for step in (eps, -eps):
                flat[at] = value + step
                made = _tuple(fn(*inputs))[out].detach().numpy()
                sides.append(made.astype(np.float64).reshape(-1))
            flat[at] = value
            rows.append((sides[0] - sides[1]) / (2 * eps))
    count = len(rows[0]) if rows else 0
    return np.array(rows).reshape(len(rows), count)


def analytical_jacobian(output: Tensor, x: Tensor) -> Any:
    """d output / d x by backward: an array [x.numel(), output.numel()]."""
    columns = []
    for at in range(output.numel()):
        seed = np.zeros(output.numel(), output.dtype.np)
        seed[at] = 1
        g = gradient.grad(output, x, Tensor._from_array(seed.reshape(tuple(output._shape))),
                          retain_graph=True, allow_unused=True)[0]
        if g is not None and g._shape != x._shape:
            raise GradcheckError(f"a gradient of shape {list(g._shape)} for an input of shape "
                                 f"{list(x._shape)}")
        columns.append(np.zeros(x.numel()) if g is None
                       else g.detach().numpy().astype(np.float64).reshape(-1))
    return np.array(columns).reshape(len(columns), x.numel()).T


def _check_inputs(inputs: Sequence[Any]) -> None:
    live = _differentiable(inputs)
    if not live:
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but "
                         "none of the them have requires_grad=True.")
    for i, x in enumerate(live):
        if x.dtype.is_complex:
            raise NotImplementedError("gradcheck of complex inputs is not supported; check the "
                                      "real and imaginary parts")
        if x.dtype is not dt.float64:
            warnings.warn(f"Input #{i} requires gradient and is not a double precision floating "
                          "point or complex. This check will likely fail if all the inputs are not "
                          "of double precision floating point or complex. ", stacklevel=4)
        if any(s == 0 and n > 1 for n, s in zip(x._shape, x._strides, strict=True)):
            raise RuntimeError(f"The {i}th input has a dimension with stride 0. gradcheck only "
                               "supports inputs that are non-overlapping to be able to compute the "
                               "numerical gradients correctly. You should call .contiguous on the "
                               "input before passing it to gradcheck.")


def _compare(fn: Any, inputs: Sequence[Any], eps: float, atol: float, rtol: float,
             nondet_tol: float, undefined: bool) -> None:
    outputs = _differentiable(_tuple(fn(*inputs)))
    every = _tuple(fn(*inputs))
    if not outputs:
        raise GradcheckError("none of the outputs require gradient")
    for o, output in enumerate(every):
        if not isinstance(output, Tensor) or not output.requires_grad:
            continue
        for i, x in enumerate(inputs):
            if not (isinstance(x, Tensor) and x.requires_grad):
                continue
            made = analytical_jacobian(output, x)
            again = analytical_jacobian(output, x)
            if not np.allclose(made, again, rtol=0, atol=nondet_tol):
                raise GradcheckError("Backward is not reentrant, i.e., running backward with same "
                                     "input and grad_output multiple times gives different values, "
                                     "although analytical gradient matches numerical gradient.The "
                                     f"tolerance for nondeterminism was {nondet_tol}.")
            want = numerical_jacobian(fn, inputs, x, o, eps)
            if not np.allclose(made, want, rtol=rtol, atol=atol):
                raise GradcheckError(f"Jacobian mismatch for output {o} with respect to input "
                                     f"{i},\nnumerical:{want}\nanalytical:{made}\n")
        if undefined:
            gradient.grad(output, _differentiable(inputs), Tensor.F.zeros_like(output),
                          retain_graph=True, allow_unused=True)


def gradcheck(func: Callable[..., Any], inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5,
              rtol: float = 1e-3, raise_exception: bool = True, nondet_tol: float = 0.0,
              check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
              check_batched_grad: bool = False, check_batched_forward_grad: bool = False,
              check_forward_ad: bool = False, check_backward_ad: bool = True,
              fast_mode: bool = False, masked: bool | None = None) -> bool:
    """Whether backward of `func(*inputs)` agrees with central differences (step `eps`).

    False, or GradcheckError with `raise_exception`, where it does not. Inputs should be float64.
    """
    if check_forward_ad or check_batched_grad or check_batched_forward_grad:
        raise NotImplementedError("gradcheck checks backward only: forward mode and batched "
                                  "gradients are not supported")
    inputs = _tuple(inputs)
    try:
        _check_inputs(inputs)
        if check_backward_ad:
            _compare(func, inputs, eps, atol, rtol, nondet_tol, check_undefined_grad)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(func: Callable[..., Any], inputs: Any, grad_outputs: Any = None, *,
                  eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
                  gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True,
                  nondet_tol: float = 0.0, check_undefined_grad: bool = True,
                  check_grad_dtypes: bool = False, check_batched_grad: bool = False,
                  check_fwd_over_rev: bool = False, check_rev_over_rev: bool = True,
                  fast_mode: bool = False, masked: bool = False) -> bool:
    """`gradcheck` of the gradient of `func`, weighted by `grad_outputs` (random by default)."""
    inputs = _tuple(inputs)
    _check_inputs(inputs)
    if grad_outputs is None:
        from lehr.tensor import random
        outputs = _differentiable(_tuple(func(*inputs)))
        weights = [random.randn_like(o.detach()).requires_grad_() for o in outputs]
    else:
        weights = [w.detach().requires_grad_() for w in _tuple(grad_outputs)]
    count = len(inputs)

    def first(*args: Any) -> Any:
        xs = [x.detach().requires_grad_() if isinstance(x, Tensor) and x.is_leaf and not
              x.requires_grad and i in live else x for i, x in enumerate(args[:count])]
        outs = _differentiable(_tuple(func(*xs)))
        found = gradient.grad(outs, [xs[i] for i in live], args[count:], create_graph=True,
                              allow_unused=True)
        return tuple(g for g in found if g is not None)
    live = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]

    def enabled(*args: Any) -> Any:
        from lehr.tensor.mode import enable_grad
        with enable_grad():
            return first(*args)
    return gradcheck(enabled, (*inputs, *weights), eps=eps, atol=atol, rtol=rtol,
                     raise_exception=raise_exception, nondet_tol=nondet_tol,
                     check_undefined_grad=check_undefined_grad)
