"""PyTorch's names for capture, resolved lazily; `config` holds its settings."""

import sys

import lehr

lehr._equip(sys.modules[__name__])
