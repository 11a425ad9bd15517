"""Pictures side by side, and as files."""

from __future__ import annotations

import math
from typing import Any

from PIL import Image

from lehr.tensor import api, create
from lehr.tensor.mode import no_grad
from lehr.tensor.tensor import Tensor

_stack: Any = api.function("stack")


@no_grad()
def make_grid(tensor: Any, nrow: int = 8, padding: int = 2, normalize: bool = False,
              value_range: Any = None, scale_each: bool = False, pad_value: float = 0.0) -> Tensor:
    """Pictures [n, channels, height, width] (or a list, or one) as one picture of `nrow` columns.

    normalize shifts them to 0 to 1 by value_range (low, high), else by their own; scale_each takes
    each picture's own.
    """
    if not isinstance(tensor, (Tensor, list)):
        raise TypeError(f"tensor or list of tensors expected, got a {type(tensor)}")
    if isinstance(tensor, list):
        tensor = _stack(tensor, 0)
    if tensor.dim() == 2:
        tensor = tensor.unsqueeze(0)
    if tensor.dim() == 3:
        tensor = tensor.unsqueeze(0)
    if tensor.shape[1] == 1:
        tensor = tensor.expand(-1, 3, -1, -1)
    if normalize:
        tensor = tensor.clone()
        for each in tensor.unbind(0) if scale_each else [tensor]:
            low, high = value_range or (float(each.min()), float(each.max()))
            each.clamp_(low, high).sub_(low).div_(max(high - low, 1e-5))
    n, c, h, w = tensor.shape
    if n == 1:
        return tensor.squeeze(0)  # type: ignore[no-any-return]
    columns = min(nrow, n)
    rows = math.ceil(n / columns)
    height, width = h + padding, w + padding
    grid = tensor.new_full((c, height * rows + padding, width * columns + padding), pad_value)
    for i in range(n):
        y, x = divmod(i, columns)
        grid.narrow(1, y * height + padding, h).narrow(2, x * width + padding, w).copy_(
            tensor.select(0, i))
    return grid  # type: ignore[no-any-return]


@no_grad()
def save_image(tensor: Any, fp: Any, format: str | None = None, **kwargs: Any) -> None:
    """Writes `make_grid(tensor, **kwargs)`, floats from 0 to 1, to a path or file.

    OSError where it cannot be written, ValueError for an unknown format.
    """
    grid = make_grid(tensor, **kwargs)
    a = grid.mul(255).add_(0.5).clamp_(0, 255).permute(1, 2, 0).to(create.tensor(0).byte().dtype)
    Image.fromarray(a.contiguous().cpu().numpy()).save(fp, format=format)
