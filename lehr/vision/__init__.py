"""The part of torchvision that training scripts use: models, transforms, data sets, grids."""

from lehr.vision import datasets, models, transforms
from lehr.vision import grid as utils

__version__ = "0.24.0+lehr"
__all__ = ["datasets", "models", "transforms", "utils"]
