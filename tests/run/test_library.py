"""Loading shared objects from memory, and where memory files are not allowed."""

import ctypes
import gc
import os
import pathlib
import shutil
import threading

import numpy as np
import pytest

from lehr.base.options import Options
from lehr.compiler.run import blas, library, toolchain

needs_cc = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler on this machine"
)
EXPORT = '__attribute__((visibility("default"))) '


def constant(n):
    source = EXPORT + f"long value(void) {{ return {n}; }} "
    return source + EXPORT + "void set(void **p) { *(long *)p[0] = *(long *)p[1] * 2; }"


@pytest.fixture(scope="module")
def codes():
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler on this machine")
    return [toolchain.compile([constant(n)], "constant", Options()) for n in range(3)]


def value(loaded):
    return loaded.function("value", ctypes.c_long)()


def test_a_loaded_library_is_called_with_one_pointer_array(codes):
    x = np.array([0, 21])
    table = (ctypes.c_void_p * 2)(x.ctypes.data, x.ctypes.data + 8)
    loaded = library.load(codes[0])
    loaded.entry("set")(table)
    assert x[0] == 42
    x[1] = 4
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(loaded.address("set"))(ctypes.addressof(table))
    assert x[0] == 8


def test_many_libraries_in_turn_are_not_mixed_up(codes):
    kept = []
    for turn in range(60):  # file numbers and names repeat
        loaded = library.load(codes[turn % 3], "same-name")
        kept.append(loaded)
        assert value(loaded) == turn % 3
        del loaded
        gc.collect()
    assert [value(each) for each in kept] == [n % 3 for n in range(60)]


def test_no_file_stays_open(codes):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        library.load(codes[0])
    assert len(os.listdir("/proc/self/fd")) == before


def refuse(*args):
    raise OSError(1, "Operation not permitted")


def test_without_memory_files(codes, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "memfd_create", refuse, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert [value(library.load(code)) for code in codes] == [0, 1, 2]
    assert not list(tmp_path.iterdir())


def test_folders_that_do_not_execute_are_passed_over(codes, use, tmp_path, monkeypatch):
    real, tried = ctypes.CDLL, []

    def cdll(path, **names):
        tried.append(path)
        if path.startswith(("/proc", str(tmp_path / "noexec"))):
            raise OSError(f"{path}: failed to map segment from shared object")
        return real(path, **names)

    (tmp_path / "noexec").mkdir()
    (tmp_path / "cache").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "noexec"))
    monkeypatch.setattr(ctypes, "CDLL", cdll)
    assert value(library.load(codes[1])) == 1
    assert [pathlib.Path(path).parts[1] for path in tried[:1]] == ["proc"]
    assert tried[-1].startswith(str(tmp_path / "cache")) and not os.path.exists(tried[-1])


def test_what_is_no_library_says_why(use):
    with pytest.raises(library.LoadError, match="bad.*invalid ELF header|too short"):
        library.load(b"hello" * 100, "bad")


def test_an_absent_function_is_named(codes):
    loaded = library.load(codes[0], "mine")
    for find in (loaded.function, loaded.entry, loaded.address):
        with pytest.raises(LookupError, match="library mine has no function 'absent'"):
            find("absent")


@needs_cc
def test_threads_build_one_library_once(use):
    before, results = toolchain.launches, []
    body = lambda: results.append(value(library.build([constant(77)], "x")))
    threads = [threading.Thread(target=body) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [77] * 6 and toolchain.launches - before == 1


# The matrix product.


def test_blas_computes_a_product():
    found = blas.blas()
    if found is None:
        pytest.skip("no BLAS that lehr knows")
    integer = {32: ctypes.c_int32, 64: ctypes.c_int64}[found.bits]
    for address, dtype, real in [
        (found.sgemm, np.float32, ctypes.c_float),
        (found.dgemm, np.float64, ctypes.c_double),
    ]:
        pointer = ctypes.c_void_p
        kinds = [ctypes.c_int] * 3 + [integer] * 3 + [real, pointer, integer, pointer, integer]
        gemm = ctypes.CFUNCTYPE(None, *kinds, real, pointer, integer)(address)
        a, b = np.arange(6, dtype=dtype).reshape(2, 3), np.arange(12, dtype=dtype).reshape(3, 4)
        c = np.empty((2, 4), dtype)
        data = a.ctypes.data, b.ctypes.data, c.ctypes.data
        gemm(101, 111, 111, 2, 4, 3, 1.0, data[0], 3, data[1], 4, 0.0, data[2], 4)
        np.testing.assert_array_equal(c, a @ b)


def test_numpys_own_library_serves_where_the_package_is_absent(monkeypatch):
    import importlib.util

    real = importlib.util.find_spec
    absent = lambda name: None if name == "scipy_openblas32" else real(name)
    monkeypatch.setattr(importlib.util, "find_spec", absent)
    blas.blas.cache_clear()
    try:
        found = blas.blas()
        assert found is None or not found.own
        if "openblas" in str(np.show_config("dicts")).lower():
            assert found is not None and found.bits in (32, 64)
    finally:
        blas.blas.cache_clear()


def test_no_library_at_all(monkeypatch):
    monkeypatch.setattr(blas, "_libraries", lambda: iter([("/nowhere.so", True)]))
    blas.blas.cache_clear()
    try:
        assert blas.blas() is None
    finally:
        blas.blas.cache_clear()
