"""The compiler: capture, graph, passes, loop, emit, run; `lehr.compiler.NAME` is resolved lazily.
"""

import sys

import lehr

lehr._equip(sys.modules[__name__])
