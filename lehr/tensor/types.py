"""`torch.types`: names for annotations."""

from __future__ import annotations

import os
from typing import IO

from lehr.base.device import Device as _Device
from lehr.tensor.memory import UntypedStorage

Number = int | float | bool
Device = _Device | str | int | None
FileLike = str | os.PathLike[str] | IO[bytes]
Storage = UntypedStorage
