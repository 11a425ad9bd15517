"""Random programs: Triton and the loop interpreter agree on whatever the verifier lets pass."""

import numpy as np
import pytest

from lehr.compiler.emit import triton
from lehr.compiler.emit.c import Layout
from lehr.compiler.loop import interp
from lehr.compiler.loop.plan import plan
from lehr.compiler.loop.text import print_program
from tests.emit import test_generated as generated
from tests.emit.test_triton import pytestmark, runner, running

assert pytestmark and runner
# Programs of one seed, by where they run: the interpreter is slow.
COUNT = {"interpreter": 4, "gpu": 25}


@pytest.mark.parametrize("seed", range(16))
def test_programs(seed, runner):
    if runner == "interpreter" and seed > 3:
        pytest.skip("more programs run on a GPU only")
    for p, maker in generated.programs(seed, COUNT[runner]):
        planned = plan(p)
        code = triton.emit(p, Layout(planned.offsets, planned.nbytes))
        args = generated.arguments(p, maker, seed)
        ours, theirs = ([np.copy(a) for a in args] for _ in range(2))
        sizes = {s.name: n for s, n in maker.sizes.items()}
        have = [*running["here"].run(code, ours, sizes), *ours]
        want = [*interp.run(p, theirs, maker.sizes), *theirs]
        for h, w in zip(have, want, strict=True):
            # sign and floor turn the last bit of a sum into 1.
            off = ~np.isclose(h.astype(np.float64), w.astype(np.float64), 1e-3, 1e-3,
                              equal_nan=True)
            assert off.mean() < 0.02 or off.sum() <= 1, f"{print_program(p)}\n{code.source}"
