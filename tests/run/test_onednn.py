"""oneDNN where it is not installed, or is not what it should be."""

from __future__ import annotations

import ctypes

import pytest

import lehr as torch
from lehr.base.options import Options
from lehr.compiler.run import onednn, template
from lehr.compiler.run.library import Library


@pytest.fixture
def absent(monkeypatch):
    monkeypatch.setattr(onednn, "find", lambda: "")
    monkeypatch.setattr(onednn, "version", lambda: "")
    onednn.load.cache_clear()
    yield
    onednn.load.cache_clear()


def test_absent_extra_is_named(absent):
    """Where it is asked for, at once; the error is one of options."""
    with pytest.raises(ValueError, match=r"extra is not installed; pip install 'lehr\[onednn\]'"):
        torch.compile(lambda x: x, options={"library": "onednn"})
    with pytest.raises(onednn.Missing):
        onednn.load()
    assert onednn.parts(Options(mode="max-autotune")) == {} == onednn.parts(Options())
    assert not torch.backends.mkldnn.is_available()


def test_absent_extra_is_no_candidate(absent):
    x = torch.randn(20, 30)
    made = torch.compile(lambda x: x @ x.t(), mode="max-autotune")
    torch.testing.assert_close(made(x), x @ x.t())


def test_damaged_library_is_told(monkeypatch, tmp_path):
    path = tmp_path / onednn.FILE
    path.write_bytes(b"nothing")
    monkeypatch.setattr(onednn, "find", lambda: str(path))
    onednn.load.cache_clear()
    try:
        with pytest.raises(onednn.Missing, match="does not load"):
            onednn.load()
    finally:
        onednn.load.cache_clear()


def test_lacking_function_is_named(monkeypatch):
    """A library of another kind: the first function that it has not."""
    other = onednn.OneDnn("libother.so", "3.0.0", ctypes.CDLL(None))
    monkeypatch.setattr(onednn, "load", lambda: other)
    built = template.library.build(
        ["".join(map(template.pool.text, ("runtime.h", "scratch.h", "onednn.c")))], "onednn",
        extra=template.FLAGS)
    assert isinstance(built, Library)
    with pytest.raises(onednn.Missing, match="libother.so lacks dnnl_engine_create"):
        onednn.connect(built)
