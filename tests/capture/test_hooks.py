"""Hooks on tensors from outside act in captured backwards, whenever they come and go."""

import pytest

import lehr as torch
from lehr import nn
from lehr.compiler.counters import COUNTERS

X = torch.ones(1, 2)


def fresh():
    torch.manual_seed(0)
    m = nn.Linear(2, 2)

    def step(x):
        loss = m(x).pow(2).sum()
        loss.backward()
        grads = [p.grad.clone() for p in m.parameters()]
        m.zero_grad()
        return loss.detach(), grads
    return m, step


def play(compiled):
    m, step = fresh()
    if compiled:
        step = torch.compile(step)
    found, seen = [step(X)], []
    on_grad = m.weight.register_hook(lambda g: g * 3)
    found += [step(X), step(X)]
    after = m.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum()))
    found += [step(X), step(X)]
    on_grad.remove()
    found.append(step(X))
    after.remove()
    found += [step(X), step(X)]
    m.bias.register_hook(lambda g: g * 5)
    found += [step(X), step(X)]
    return [(loss.tolist(), [g.tolist() for g in grads]) for loss, grads in found], [
        s.item() for s in seen]


def test_hooks_come_and_go():
    COUNTERS.reset()
    eager, compiled = play(False), play(True)
    for (loss, grads), (same_loss, same_grads) in zip(eager[0], compiled[0], strict=True):
        assert loss == pytest.approx(same_loss)
        for g, h in zip(grads, same_grads, strict=True):
            assert g == [pytest.approx(x) for x in h]
    assert eager[1] == pytest.approx(compiled[1])
    assert torch.compiler.stats()["breaks"] == 0


def test_without_hooks_nothing_is_captured_again():
    m, step = fresh()
    f = torch.compile(step)
    for _ in range(3):
        f(X)
        m.weight.register_hook(lambda g: g).remove()
    assert len(f.entries) == 1


def test_hooks_registered_inside_on_tensors_from_outside():
    m, _ = fresh()
    y = m(X)

    def register(y):
        y.retain_grad()
        y.register_hook(lambda g: g * 2)
        return y * 2
    torch.compile(register)(y).sum().backward()
    assert y.grad.tolist() == [[4.0, 4.0]]
    assert m.weight.grad.tolist() == [[4.0, 4.0], [4.0, 4.0]]

    def leaf(x):
        handle = m.weight.register_hook(lambda g: g * 2)
        m(x).sum().backward()
        handle.remove()
        grad, m.weight.grad = m.weight.grad, None
        return grad
    f = torch.compile(leaf)
    m.weight.grad = None
    assert [f(X).tolist() for _ in range(3)] == [[[2.0, 2.0], [2.0, 2.0]]] * 3
    m(X).sum().backward()
    assert m.weight.grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]
