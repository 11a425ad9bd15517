"""`torch.accelerator`: the device beside the CPU that eager tensors can live on, and how many.

lehr's eager tensors live on the CPU, so there is none; what needs one raises and says so.
"""

from __future__ import annotations

from typing import Any, NoReturn

from lehr.base.device import Device

REMEDY = ("lehr's eager tensors live on the CPU: take the device from "
          "torch.cuda.is_available(), or pass device='cpu'")


def refuse(what: str, kind: str = "accelerator") -> NoReturn:
    """AssertionError, as PyTorch built without that kind of device raises."""
    raise AssertionError(f"{what} needs a device of kind {kind!r}. {REMEDY}")


def is_available() -> bool:
    """Whether there is an accelerator for eager tensors."""
    return device_count() > 0


def device_count() -> int:
    """How many there are."""
    return 0


def current_accelerator(check_available: bool = False) -> Device | None:
    """The kind of accelerator as a device, None where there is none."""
    return None


def current_device_index() -> int:
    """The index of the accelerator in use; AssertionError where there is none."""
    refuse("torch.accelerator.current_device_index")


current_device_idx = current_device_index


def set_device_index(device: Any, /) -> None:
    """Chooses the accelerator in use; AssertionError where there is none."""
    refuse("torch.accelerator.set_device_index")


set_device_idx = set_device_index


def current_stream(device: Any = None, /) -> Any:
    """The stream in use; AssertionError where there is no accelerator."""
    refuse("torch.accelerator.current_stream")


def set_stream(stream: Any) -> None:
    """Chooses the stream in use; AssertionError where there is no accelerator."""
    refuse("torch.accelerator.set_stream")


def synchronize(device: Any = None, /) -> None:
    """Waits for the accelerator; AssertionError where there is none."""
    refuse("torch.accelerator.synchronize")


class device_index:
    """Makes an accelerator the one in use inside; None leaves it as it is."""

    def __init__(self, device: int | None, /) -> None:
        self.index = device

    def __enter__(self) -> None:
        if self.index is not None:
            set_device_index(self.index)

    def __exit__(self, *exc: Any) -> None:
        return None
