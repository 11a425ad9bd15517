"""Generators in captured calls: states read, set and seeded, with the numbers of eager."""

import pytest

import lehr as torch


def restored(x):
    state = torch.get_rng_state()
    a, b = torch.rand(3), torch.rand(3)
    torch.set_rng_state(state)
    return a, b, torch.rand(3), torch.rand(3), x + a


def seeded(x):
    torch.manual_seed(7)
    return torch.rand(3) + x, torch.randn(3)


def forked(x):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        a = torch.rand(3)
    return a, torch.rand(3) + x


def own(x, generator):
    a = torch.rand(3, generator=generator)
    state = generator.get_state()
    b = torch.rand(3, generator=generator)
    generator.set_state(state)
    return a, b, torch.rand(3, generator=generator) + x


def asked(x):
    return torch.rand(3) + x, torch.initial_seed()


def play(function, compiled):
    f = torch.compile(function) if compiled else function
    torch.manual_seed(5)
    extra = (torch.Generator().manual_seed(9),) if function is own else ()
    found = [f(torch.ones(3), *extra) for _ in range(3)]
    return [[x.tolist() if isinstance(x, torch.Tensor) else x for x in row] for row in found], (
        torch.get_rng_state().tolist(), [g.get_state().tolist() for g in extra])


@pytest.mark.parametrize("function", [restored, seeded, forked, own, asked])
def test_the_numbers_of_eager(function):
    eager, compiled = play(function, False), play(function, True)
    assert eager[1] == compiled[1]
    for a, b in zip(eager[0], compiled[0], strict=True):
        assert a == [pytest.approx(x) for x in b]
