"""The settings of `torch._functorch.config`, see `lehr.compiler.setting`."""

import sys

from lehr.compiler import setting

setting.equip(sys.modules[__name__], setting.FUNCTORCH)
