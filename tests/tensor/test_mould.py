"""Shapes and layouts of gradients: of tensors that got another shape while nothing was recorded, of
leaves that are not dense."""

from __future__ import annotations

import pytest

import lehr

MOULDS = [     # what is done to a tensor unrecorded, its shape, whether it still fits
    (lambda t: t.unsqueeze_(0), (2,), True), (lambda t: t.unsqueeze_(-1), (2,), False),
    (lambda t: t.squeeze_(), (1, 2), False), (lambda t: t.squeeze_(), (2, 1), False),
    (lambda t: t.t_(), (3, 2), False), (lambda t: t.t_(), (2, 2), True),
    (lambda t: t.as_strided_((1,), (1,)), (2,), False),
    (lambda t: setattr(t, "data", lehr.ones(3)), (2,), False),
    (lambda t: setattr(t, "data", lehr.ones(3)), (1,), True)]


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("backend", [None, "reference", "inductor"])
@pytest.mark.parametrize(("change", "shape", "fits"), MOULDS)
def test_shapes_that_change_unrecorded(change, shape, fits, backend, split):
    """As in PyTorch, gradients have to fit the shape that was recorded (seed 18009911: a compiled
    backward took elements for what they were not)."""
    def f(x):
        t = x * x
        if split:
            lehr._dynamo.graph_break()
        with lehr.no_grad():
            change(t)
        return t
    x = lehr.full(shape, 3.0, requires_grad=True)
    t = (lehr.compile(f, backend=backend) if backend else f)(x)
    if fits:
        t.backward(lehr.ones_like(t))
        assert x.grad.shape == x.shape
        assert x.grad.flatten()[0] == 6 * t.numel() // x.numel()
    else:
        with pytest.raises(RuntimeError, match="invalid gradient at index 0 - got"):
            (t * 2).sum().backward()


def test_gradients_of_leaves_that_are_not_dense_are_row_major():
    """Also one that lies as the leaf does, as a compiled call's may (seed 19004801)."""
    for shape in ((1, 8), (2, 8)):
        x = lehr.arange(float(shape[0] * 8)).reshape(shape)[:, ::2].detach().requires_grad_()
        y = x * 2
        y.backward(lehr.ones(shape)[:, ::2])
        assert x.grad.stride() == (4, 1)
        f = lehr.compile(lambda x: x.select_scatter(lehr.zeros(x.shape[0]), 1, 0),
                         backend="reference")
        x.grad = None
        (f(x) * 1).sum().backward()
        assert x.grad.stride() == (4, 1)
