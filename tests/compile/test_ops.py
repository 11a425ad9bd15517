"""Every op's samples through `lehr.compile` with the native back end: what eager gives."""

from __future__ import annotations

import pytest

from lehr.ops import registry
from lehr.ops.registry import Op
from lehr.ops.sample import dtypes_of, samples_of, variants
from tests.compile import batch
from tests.ops.test_generated import OPS
