"""Models of torchvision, with its names of parameters."""

from __future__ import annotations

from typing import Any

from lehr.vision.models import mobilenet, resnet, transformer, vgg
from lehr.vision.models.mobilenet import *  # noqa: F403
from lehr.vision.models.resnet import *  # noqa: F403
from lehr.vision.models.transformer import *  # noqa: F403
from lehr.vision.models.vgg import *  # noqa: F403

BUILDERS = {name: value for module in (resnet, vgg, mobilenet, transformer)
            for name, value in vars(module).items()
            if name.islower() and name.startswith(("res", "wide", "vgg", "alex", "mobile", "vit"))
            and callable(value)}


def list_models(module: Any = None, include: Any = None, exclude: Any = None) -> list[str]:
    """The names that `get_model` takes."""
    return sorted(BUILDERS)


def get_model(name: str, **config: Any) -> Any:
    """A model by name. ValueError for an unknown one."""
    if name.lower() not in BUILDERS:
        raise ValueError(f"Unknown model {name}; there are {', '.join(sorted(BUILDERS))}")
    return BUILDERS[name.lower()](**config)
