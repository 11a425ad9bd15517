"""Each rule holds for the tree, and each check finds a breach that was planted."""

import pytest

from tests.structure import rules
from tests.structure.rules import Source

LEHR = rules.sources("lehr")
ALL = [*LEHR, *rules.sources("tests")]


def report(breaches):
    assert not breaches, "\n" + "\n".join(breaches)


def test_tree_is_seen():
    assert len(LEHR) > 5 and any(s.path == "lehr/cli/__init__.py" for s in LEHR)


def test_layers():
    report(rules.layer_breaches(LEHR))


def test_packages():
    report(rules.package_breaches(LEHR, rules.declared()))


def test_rivals():
    report(rules.rival_breaches(LEHR))


def test_budgets():
    report(rules.budget_breaches(ALL))


def test_options():
    path = "lehr/base/options.py"
    report(rules.option_breaches(Source(path, (rules.ROOT / path).read_text("utf-8"))))


def test_python_version():
    report(rules.version_breaches(LEHR))


def test_names():
    report(rules.name_breaches(ALL))


LAYER_PLANTS = {
    "a lower layer imports a higher one": ("lehr/ops/a.py", "from lehr.tensor import Tensor"),
    "inside a function": ("lehr/base/a.py", "def f():\n    import lehr.ops.math"),
    "a module named in from": ("lehr/compiler/emit/a.py", "from lehr.compiler import graph"),
    "relative": ("lehr/compiler/loop/a.py", "from ..passes import joint"),
    "relative from a package": ("lehr/compiler/loop/__init__.py", "from ..emit.c import text"),
    "for type checking only": ("lehr/nn/a.py", "if TYPE_CHECKING:\n    import lehr.optim"),
    "the whole package": ("lehr/nn/a.py", "import lehr"),
    "by import_module": ("lehr/ops/a.py", "importlib.import_module('lehr.compiler.run.cache')"),
    "a folder in no layer": ("lehr/extra/a.py", "x = 1"),
}
LAYER_FINE = {
    "itself": ("lehr/ops/a.py", "from .math import exp"),
    "an allowed layer": ("lehr/tensor/a.py", "from lehr.compiler.run import cache"),
    "a composition": ("lehr/compiler/compile.py", "import lehr.compiler.capture.machine"),
    "the re-export table": ("lehr/__init__.py", "import lehr.cli"),
    "a name that only starts alike": ("lehr/ops/a.py", "import lehrbuch"),
}


@pytest.mark.parametrize("plant", LAYER_PLANTS.values(), ids=LAYER_PLANTS)
def test_layer_plant(plant):
    assert len(rules.layer_breaches([Source(*plant)])) == 1


@pytest.mark.parametrize("fine", LAYER_FINE.values(), ids=LAYER_FINE)
def test_layer_fine(fine):
    assert rules.layer_breaches([Source(*fine)]) == []


def test_layer_table_is_closed():
    for name, allowed in rules.LAYERS.items():
        assert all(a == "lehr" or a in rules.LAYERS for a in allowed), name


OTHER_PLANTS = {
    "undeclared package": (rules.package_breaches, "lehr/nn/a.py", "import scipy"),
    "base with tqdm": (rules.package_breaches, "lehr/base/a.py", "from tqdm import tqdm"),
    "torch": (rules.rival_breaches, "lehr/nn/a.py", "def f():\n    import torch.nn"),
    "jax by name": (rules.rival_breaches, "lehr/cli/a.py", "import_module('jax')"),
    "tinygrad": (rules.rival_breaches, "lehr/a.py", "from tinygrad import Tensor"),
    "long file": (rules.budget_breaches, "lehr/a.py", "x = 1\n" * 801),
    "long function": (rules.budget_breaches, "lehr/a.py", "def f():\n" + "    x = 1\n" * 100),
    "long line": (rules.budget_breaches, "lehr/a.py", "x = '" + "a" * 96 + "'"),
    "version read": (rules.version_breaches, "lehr/ops/a.py", "sys.version_info >= (3, 12)"),
    "version imported": (rules.version_breaches, "lehr/ops/a.py", "from sys import version_info"),
    "utils.py": (rules.name_breaches, "lehr/ops/utils.py", ""),
    "a folder": (rules.name_breaches, "lehr/common/math.py", ""),
    "a suffix": (rules.name_breaches, "lehr/ops/graph_helpers.py", ""),
}


@pytest.mark.parametrize("plant", OTHER_PLANTS.values(), ids=OTHER_PLANTS)
def test_plant(plant):
    check, *file = plant
    args = (rules.declared(),) if check is rules.package_breaches else ()
    assert len(check([Source(*file)], *args)) == 1


def test_second_version_file_is_found():
    files = [
        Source(f"lehr/compiler/capture/{name}.py", "import sys\nsys.version_info")
        for name in ("dialect", "machine")
    ]
    assert rules.version_breaches(files[:1]) == []
    assert len(rules.version_breaches(files)) == 1


def test_budget_edges():
    body = "def f():\n" + "    x = 1\n" * 99
    longest = "# " + "a" * 98
    assert rules.budget_breaches([Source("lehr/a.py", body + longest)]) == []
    assert rules.budget_breaches([Source("lehr/a.py", "x = 1\n" * 800)]) == []


@pytest.mark.parametrize(("count", "found"), [(40, 0), (41, 1)])
def test_option_count(count, found):
    fields = "".join(f"    a{i}: int = 0\n" for i in range(count))
    source = Source("lehr/base/options.py", "class Options:\n" + fields)
    assert len(rules.option_breaches(source)) == found


def test_missing_options_record_is_found():
    assert rules.option_breaches(Source("lehr/base/options.py", "x = 1"))


def test_declared_packages():
    assert {"numpy", "ml_dtypes", "PIL", "scipy_openblas32", "pytest", "cuda"} <= rules.declared()
