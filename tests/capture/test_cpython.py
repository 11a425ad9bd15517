"""CPython's own tests, interpreted: what passes natively passes here, or stops with a break.

The exceptions are listed; they concern garbage collection, identity of equal constants, and
containers that change while C code looks at them.
"""

import contextlib
import gc
import importlib
import io
import traceback
import unittest
import warnings

import pytest

from lehr.compiler.capture.breaks import CaptureBreak
from lehr.compiler.capture.machine import Machine
from lehr.compiler.capture.value import Const

pytest.importorskip("test.test_scope", reason="this Python comes without its tests")

MODULES = [
    "test_scope", "test_patma", "test_list", "test_with", "test_generators", "test_contains",
    "test_compare", "test_named_expressions", "test_super", "test_contextlib", "test_class",
    "test_property", "test_raise", "test_iter", "test_opcodes", "test_keywordonlyarg",
    "test_positional_only_arg", "test_bool", "test_augassign", "test_binop", "test_richcmp",
    "test_exception_variations", "test_exception_group", "test_functools",
]
KNOWN = {   # tests that pass natively and differ here
    "testLeaks", "test_free_after_iterating", "test_equal_operator_modifying_operand", "test_sort",
    "test_except_throw_bad_exception", "test_cell_as_self", "test___classcell___missing",
    "test___classcell___overwrite", "test___classcell___wrong_cell", "testSetattrWrapperNameIntern",
    "testForExceptionsRaisedInInstanceGetattr2", "test_3611", "test_ref_counting_behavior",
    "test_iter_function_concealing_reentrant_exhaustion", "test_property_no_doc_on_getter",
    "test_docstring_copy2", "test_del_property", "test_get_property", "test_set_property",
}


class Tests(Machine):
    """Leaves out what only tidies up after tests."""

    models = {
        **Machine.models,
        traceback.clear_frames: lambda m, args, kwargs: Const(None),
        gc.collect: lambda m, args, kwargs: Const(0),
    }


def cases(module):
    for cls in list(vars(module).values()):
        if isinstance(cls, type) and issubclass(cls, unittest.TestCase):
            for name in unittest.defaultTestLoader.getTestCaseNames(cls):
                yield cls, name


def passes(cls, name):
    """Whether the test passes natively; those that need a fixture of the class do not."""
    case = cls(name)
    try:
        case.setUp()
        getattr(case, name)()
        case.tearDown()
    except BaseException:
        return False
    return True


def interpret(cls, name):
    case = cls(name)
    case.setUp()
    try:
        return Tests().capture(getattr(case, name)).fault
    except CaptureBreak:
        return "break"
    finally:
        case.doCleanups()


@contextlib.contextmanager
def quiet():
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        with contextlib.redirect_stderr(io.StringIO()):
            yield


@pytest.mark.parametrize("name", MODULES)
def test_module(name):
    try:
        module = importlib.import_module(f"test.{name}")
    except ImportError:
        pytest.skip(f"no {name}")
    wrong, right = [], 0
    with quiet():
        for cls, test in cases(module):
            if not passes(cls, test):
                continue
            found = interpret(cls, test)
            if found is None:
                right += 1
            elif found != "break" and test not in KNOWN:
                wrong.append((cls.__name__, test, found.type_.__name__, found.points[:2]))
    assert not wrong
    assert right
