"""`torch.func`: auxiliary results, linear maps, stacked modules. Values are known by hand."""

from __future__ import annotations

import pytest

import lehr as torch

X = torch.tensor([1.0, 2.0])


def test_auxiliary_results():
    made, aux = torch.func.jacrev(lambda v: (v * v, v.sum()), has_aux=True)(X)
    assert made.tolist() == [[2.0, 0.0], [0.0, 4.0]] and aux.item() == 3 and not aux.requires_grad
    out, along, aux = torch.func.jvp(lambda v: (v * v, {"next": v + 1}), (X,), (X,), has_aux=True)
    assert out.tolist() == [1.0, 4.0] and along.tolist() == [2.0, 8.0]
    assert aux["next"].tolist() == [2.0, 3.0]


def test_a_linear_map_is_used_again():
    out, push = torch.func.linearize(lambda v, w: v * v * w, X, X)
    assert out.tolist() == [1.0, 8.0]
    assert push(torch.ones(2), torch.zeros(2)).tolist() == [2.0, 8.0]
    assert push(torch.zeros(2), torch.ones(2)).tolist() == [1.0, 4.0]


def test_functionalize_is_the_function():
    made = torch.func.functionalize(lambda v: v.clone().add_(1))(X)
    assert made.tolist() == [2.0, 3.0] and X.tolist() == [1.0, 2.0]
    with pytest.raises(RuntimeError, match="remove=views"):
        torch.func.functionalize(torch.sin, remove="views")


def nets():
    made = [torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).eval()
            for _ in range(3)]
    for k, net in enumerate(made):
        for p in net.parameters():
            torch.nn.init.constant_(p, k)
    return made


@pytest.mark.parametrize("compiled", [False, True])
def test_modules_are_stacked(compiled):
    models = nets()
    parameters, buffers = torch.func.stack_module_state(models)
    assert list(parameters) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert list(buffers) == ["1.running_mean", "1.running_var", "1.num_batches_tracked"]
    weight = parameters["0.weight"]
    assert weight.is_leaf and weight.requires_grad and tuple(weight.shape) == (3, 2, 2)

    def every(parameters, buffers, x):
        return torch.func.vmap(
            lambda p, b: torch.func.functional_call(models[0], (p, b), (x,)))(parameters, buffers)
    out = (torch.compile(every) if compiled else every)(parameters, buffers, torch.ones(4, 2))
    for have, net in zip(out, models, strict=True):
        torch.testing.assert_close(have, net(torch.ones(4, 2)))
    out.sum().backward()
    assert weight.grad is not None and models[0][0].weight.grad is None


def test_modules_that_cannot_be_stacked():
    first, second, _ = nets()
    for models, text in (([], "at least one"), ([first, second.train()], "same training"),
                         ([first, torch.nn.Linear(2, 2).eval()], "same class")):
        with pytest.raises(RuntimeError, match=text):
            torch.func.stack_module_state(models)
