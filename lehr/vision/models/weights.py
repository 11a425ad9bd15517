"""Trained weights: files that `torch.save` wrote, looked for below `torch.hub.get_dir()`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

from lehr.io.hub import get_dir
from lehr.io.load import load
from lehr.vision import picture

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]  # of ImageNet's channels


class ImageClassification:
    """What ImageNet's models were given: resized, cut to the middle, normalized."""

    def __init__(self, crop_size: int = 224, resize_size: int = 256) -> None:
        self.crop_size, self.resize_size = crop_size, resize_size

    def __call__(self, img: Any) -> Any:
        img = picture.center_crop(picture.resize(img, self.resize_size), self.crop_size)
        if picture.is_image(img):
            img = picture.pil_to_tensor(img)
        return picture.normalize(picture.convert_image_dtype(img), MEAN, STD)


class Weights(Enum):
    """Named sets of trained weights of one model: the value is the file's name."""

    @property
    def path(self) -> Path:
        """Where the file is looked for."""
        return Path(get_dir()) / "checkpoints" / self.value

    @property
    def transforms(self) -> Any:
        """What makes a picture an input."""
        return ImageClassification

    def get_state_dict(self, progress: bool = True, check_hash: bool = False) -> Any:
        """The weights. FileNotFoundError where the file is not there: it is not downloaded."""
        if not self.path.exists():
            raise FileNotFoundError(
                f"the weights {type(self).__name__}.{self.name} are not downloaded by lehr: put "
                f"PyTorch's file {self.value} into {self.path.parent}, or use weights=None")
        return load(self.path, "cpu", weights_only=True)


def named(name: str, **files: str) -> Any:
    """The enumeration NAME_Weights; DEFAULT is the last."""
    rows: Any = {**files, "DEFAULT": list(files.values())[-1]}
    return Weights(f"{name}_Weights", rows)  # type: ignore[call-arg,arg-type]


def fill(model: Any, kind: Any, weights: Any, pretrained: Any = None) -> Any:
    """The model with weights: None, a member of `kind`, its name, or pretrained=True (the oldest).
    """
    if pretrained:
        weights = next(iter(kind))
    if isinstance(weights, str):
        weights = kind[weights.rpartition(".")[2]]
    if weights is not None:
        if not isinstance(weights, kind):
            raise TypeError(f"Expected weights of {kind.__name__}, got {weights!r}")
        model.load_state_dict(weights.get_state_dict())
    return model
