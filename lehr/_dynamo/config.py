"""The settings of `torch._dynamo.config`, see `lehr.compiler.setting`."""

import sys

from lehr.compiler import setting

setting.equip(sys.modules[__name__], setting.DYNAMO)
