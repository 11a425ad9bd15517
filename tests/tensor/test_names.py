"""The package: lazily resolved names, virtual modules, cost of the import."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from types import FunctionType, ModuleType

import pytest

import lehr
from lehr.ops import registry
from lehr.tensor import api


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, timeout=120, text=True,
                          capture_output=True).stdout.strip()


def test_import_is_cheap() -> None:
    """At most 0.1 CPU seconds over numpy and ml_dtypes; nothing of the framework is loaded."""
    out = python("import time, numpy, ml_dtypes, sys\nt = time.process_time()\nimport lehr\n"
                 "lehr.float32\nprint(time.process_time() - t)\n"
                 "print('lehr.tensor' in sys.modules, 'lehr.ops' in sys.modules)")
    cost, loaded = out.splitlines()
    assert float(cost) < 0.1
    assert loaded == "False False"


def test_names_that_are_modules_and_functions() -> None:
    assert python("import lehr.tensor.dispatch, lehr; print(lehr.tensor([1]).tolist())") == "[1]"
    assert python("import lehr; from lehr.tensor import api; print(lehr.tensor([1]).tolist())") \
        == "[1]"
    assert python("from lehr import tensor; print(tensor([2]).tolist())") == "[2]"


@pytest.mark.parametrize("name", [
    "autograd", "autograd.function", "autograd.functional", "autograd.graph", "random", "special",
    "linalg", "fft", "testing", "func", "types", "overrides"])
def test_virtual_modules(name: str) -> None:
    code = f"import lehr.{name} as m; print(m.__name__, len(dir(m)) > 5)"
    assert python(code) == f"lehr.{name} True"


def test_every_name_of_the_table_resolves() -> None:
    """Names of modules that are not built yet are the only ones that may lack."""
    lacking = []
    for space, found in lehr.TABLE.items():
        for words in found.values():
            for word in words.split():
                name = word.split("=")[0]
                try:
                    if not known(space):
                        continue
                    __import__(space, fromlist=["x"])
                    getattr(sys.modules[space], name)
                except AttributeError as error:
                    if "is not part of this build" not in str(error):
                        lacking.append(f"{space}.{name}: {error}")
    assert lacking == []


def known(space: str) -> bool:
    """Whether the folder that a public module belongs to is there."""
    top = ".".join(space.split(".")[:2])
    return importlib.util.find_spec(top) is not None


def test_every_method_of_the_table_resolves() -> None:
    for name in api._PLACED:
        assert hasattr(lehr.Tensor, name), name


def test_every_op_has_its_functions() -> None:
    """Each public path of each op leads to a function (or property) with documentation."""
    for op in registry.OPS.values():
        for word in op.where.split():
            place = op.api.removeprefix(f"{word}_")
            if word in ("function", "nn", "special", "linalg", "fft"):
                assert isinstance(api.function(place, word), FunctionType), op
            elif word == "method":
                assert callable(getattr(lehr.Tensor, place)), op
            elif word == "property":
                assert isinstance(getattr(lehr.Tensor, place), property), op
            elif word == "inplace":
                assert callable(getattr(lehr.Tensor, place + "_")), op


def test_dir_and_errors() -> None:
    names = dir(lehr)
    assert {"tensor", "exp", "float32", "no_grad", "autograd", "pi"} <= set(names)
    assert {"exp", "add_", "backward", "numpy", "T"} <= set(dir(lehr.Tensor)) | {"add_"}
    with pytest.raises(AttributeError, match="module 'lehr' has no attribute 'nonsense'"):
        getattr(lehr, "nonsense")  # noqa: B009
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'nonsense'"):
        getattr(lehr.zeros(1), "nonsense")  # noqa: B009
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        getattr(lehr.Tensor, "nonsense")  # noqa: B009
    assert isinstance(lehr.autograd, ModuleType)
    assert lehr.__version__ and lehr.pi > 3 and lehr.newaxis is None


def test_signatures_are_pytorchs() -> None:
    import inspect
    params = inspect.signature(lehr.softmax).parameters
    assert list(params)[:3] == ["input", "dim", "dtype"]
    assert list(inspect.signature(lehr.Tensor.add).parameters)[:2] == ["self", "other"]
    assert "tensors" in inspect.signature(lehr.stack).parameters
    with pytest.raises(TypeError):
        lehr.softmax(lehr.zeros(2))
    with pytest.raises(TypeError, match="unexpected keyword"):
        lehr.exp(lehr.zeros(2), nonsense=1)
    with pytest.raises(TypeError, match="invalid combination"):
        lehr.zeros(2).view("a", 2)
