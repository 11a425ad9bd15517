"""`torch.onnx`: lehr writes no ONNX files; code that asks whether it is being exported gets no."""

from __future__ import annotations

import enum
from typing import Any, NoReturn


class TrainingMode(enum.IntEnum):
    """The mode a model would be exported in."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(enum.IntEnum):
    """How operators would be exported."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


def is_in_onnx_export() -> bool:
    """False."""
    return False


def export(model: Any, args: Any = (), f: Any = None, **kwargs: Any) -> NoReturn:
    """NotImplementedError: lehr writes no ONNX files."""
    raise NotImplementedError(
        "torch.onnx.export: lehr writes no ONNX files. Save the weights "
        "(torch.save(model.state_dict(), path)) and export them where PyTorch is installed")


dynamo_export = export


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Any, opset_version: int) -> None:
    """Accepted: it would be used by an export."""
