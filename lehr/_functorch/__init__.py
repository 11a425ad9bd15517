"""PyTorch's names for derivatives of captured graphs; `config` holds their settings."""

import sys

import lehr

lehr._equip(sys.modules[__name__])
