"""The garbage collector while a program is compiled: seldom, and as before after it."""

import gc

import pytest

import lehr as torch
from lehr.compiler import collector


def test_rare_collections_and_the_settings_of_before():
    before = gc.get_threshold()
    with collector.rare():
        assert gc.get_threshold()[0] > before[0] and gc.get_threshold()[1:] == before[1:]
        with collector.rare():
            pass
        assert gc.get_threshold()[0] > before[0]
    assert gc.get_threshold() == before
    with pytest.raises(ValueError), collector.rare():
        raise ValueError
    assert gc.get_threshold() == before


def test_what_the_program_sets_stays():
    before = gc.get_threshold()
    try:
        with collector.rare():
            gc.set_threshold(123, 4, 5)
        assert gc.get_threshold() == (123, 4, 5)
        gc.set_threshold(0)
        with collector.rare():
            assert gc.get_threshold()[0] == 0   # not at all, as the program wants it
    finally:
        gc.set_threshold(*before)


def test_compiling_makes_few_collections():
    """Thousands of objects are made for a graph; the collector looks at them a few times."""
    torch.compile(torch.sin)(torch.ones(3))     # what is imported is made, too
    before = gc.get_threshold()
    started = []
    gc.callbacks.append(lambda phase, info: started.append(phase) if phase == "start" else None)
    try:
        @torch.compile
        def f(x):
            for n in range(60):
                x = (x * (n + 1)).sin() + x
            return x
        f(torch.ones(8))
    finally:
        gc.callbacks.pop()
    assert gc.get_threshold() == before
    assert len(started) < 8
