"""Switches of an executor that is not there."""

from lehr import _C


def test_switches_remember_what_they_were():
    before = _C._jit_set_profiling_mode(False)
    assert _C._jit_set_profiling_mode(before) is False
    assert _C._jit_set_profiling_mode(before) is before
    assert _C._jit_set_profiling_executor(True) in (True, False)
    assert _C._jit_override_can_fuse_on_cpu(True) is None
    assert _C._get_tracing_state() is None
