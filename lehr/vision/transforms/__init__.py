"""Changes of pictures as objects: `Compose([Resize(32), ToTensor(), Normalize(m, s)])`.

Those that are random draw from lehr's generator, so `manual_seed` repeats them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lehr.base import dtype as dt
from lehr.nn.module import Module
from lehr.tensor import random
from lehr.tensor.tensor import Tensor
from lehr.vision import picture
from lehr.vision import picture as functional
from lehr.vision.picture import InterpolationMode, pair

__all__ = [
    "CenterCrop", "ColorJitter", "Compose", "ConvertImageDtype", "FiveCrop", "GaussianBlur",
    "Grayscale", "InterpolationMode", "Lambda", "Normalize", "PILToTensor", "Pad", "RandomAffine",
    "RandomApply", "RandomChoice", "RandomCrop", "RandomErasing", "RandomGrayscale",
    "RandomHorizontalFlip", "RandomInvert", "RandomOrder", "RandomResizedCrop", "RandomRotation",
    "RandomVerticalFlip", "Resize", "TenCrop", "ToImage", "ToDtype", "ToPILImage", "ToTensor",
    "functional",
]


def uniform(low: float = 0.0, high: float = 1.0) -> float:
    """A number from low to high."""
    return float(random.rand(1).item()) * (high - low) + low


def whole(low: int, high: int) -> int:
    """A whole number from low to below high."""
    return int(random.randint(low, high, (1,)).item())


class Compose:
    """One change after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        for t in self.transforms:
            img = t(img)
        return img

    def __repr__(self) -> str:
        inner = "".join(f"\n    {t}" for t in self.transforms)
        return f"{type(self).__name__}({inner}\n)"


class _Change(Module):
    """A change whose settings are its attributes: `shown` names those that repr prints."""

    shown: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={getattr(self, n)}' for n in self.shown)})"


class ToTensor:
    """`functional.to_tensor`."""

    def __call__(self, pic: Any) -> Tensor:
        return picture.to_tensor(pic)

    def __repr__(self) -> str:
        return "ToTensor()"


class PILToTensor:
    """`functional.pil_to_tensor`."""

    def __call__(self, pic: Any) -> Tensor:
        return picture.pil_to_tensor(pic)

    def __repr__(self) -> str:
        return "PILToTensor()"


class ToPILImage:
    """`functional.to_pil_image`."""

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, pic: Any) -> Any:
        return picture.to_pil_image(pic, self.mode)


class ToImage:
    """A PIL image or array as a tensor of the same numbers."""

    def __call__(self, pic: Any) -> Any:
        return pic if isinstance(pic, Tensor) else picture.pil_to_tensor(pic)


class ConvertImageDtype(_Change):
    """`functional.convert_image_dtype`."""

    shown = ("dtype",)

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, image: Tensor) -> Tensor:
        """The picture in the dtype."""
        return picture.convert_image_dtype(image, self.dtype)


class ToDtype(_Change):
    """Another dtype; with `scale` as `ConvertImageDtype`."""

    shown = ("dtype", "scale")

    def __init__(self, dtype: Any = dt.float32, scale: bool = False) -> None:
        super().__init__()
        self.dtype, self.scale = dtype, scale

    def forward(self, image: Tensor) -> Tensor:
        """The picture in the dtype."""
        if self.scale:
            return picture.convert_image_dtype(image, self.dtype)
        return image.to(self.dtype)


class Lambda:
    """Any function."""

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        if not callable(lambd):
            raise TypeError(f"Argument lambd should be callable, got {type(lambd).__name__!r}")
        self.lambd = lambd

    def __call__(self, img: Any) -> Any:
        return self.lambd(img)

    def __repr__(self) -> str:
        return "Lambda()"


class Normalize(_Change):
    """`functional.normalize`."""

    shown = ("mean", "std")

    def __init__(self, mean: Any, std: Any, inplace: bool = False) -> None:
        super().__init__()
        self.mean, self.std, self.inplace = mean, std, inplace

    def forward(self, tensor: Tensor) -> Tensor:
        """The normalized picture."""
        return picture.normalize(tensor, self.mean, self.std, self.inplace)


class Resize(_Change):
    """`functional.resize`."""

    shown = ("size", "interpolation", "max_size", "antialias")

    def __init__(self, size: Any, interpolation: Any = InterpolationMode.BILINEAR,
                 max_size: int | None = None, antialias: Any = True) -> None:
        super().__init__()
        self.size, self.interpolation = size, interpolation
        self.max_size, self.antialias = max_size, antialias

    def forward(self, img: Any) -> Any:
        """The picture in the size."""
        return picture.resize(img, self.size, self.interpolation, self.max_size, self.antialias)


class CenterCrop(_Change):
    """`functional.center_crop`."""

    shown = ("size",)

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = pair(size)

    def forward(self, img: Any) -> Any:
        """The middle."""
        return picture.center_crop(img, self.size)


class FiveCrop(_Change):
    """`functional.five_crop`."""

    shown = ("size",)

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = pair(size)

    def forward(self, img: Any) -> Any:
        """The corners and the middle."""
        return picture.five_crop(img, self.size)


class TenCrop(_Change):
    """`functional.ten_crop`."""

    shown = ("size", "vertical_flip")

    def __init__(self, size: Any, vertical_flip: bool = False) -> None:
        super().__init__()
        self.size, self.vertical_flip = pair(size), vertical_flip

    def forward(self, img: Any) -> Any:
        """Ten parts."""
        return picture.ten_crop(img, self.size, self.vertical_flip)


class Pad(_Change):
    """`functional.pad`."""

    shown = ("padding", "fill", "padding_mode")

    def __init__(self, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> None:
        super().__init__()
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def forward(self, img: Any) -> Any:
        """The picture with borders."""
        return picture.pad(img, self.padding, self.fill, self.padding_mode)


class RandomCrop(_Change):
    """A part of the size, anywhere, after padding; with `pad_if_needed` smaller pictures too."""

    shown = ("size", "padding")

    def __init__(self, size: Any, padding: Any = None, pad_if_needed: bool = False, fill: Any = 0,
                 padding_mode: str = "constant") -> None:
        super().__init__()
        self.size, self.padding, self.pad_if_needed = pair(size), padding, pad_if_needed
        self.fill, self.padding_mode = fill, padding_mode

    def forward(self, img: Any) -> Any:
        """A part. ValueError where the picture is too small."""
        if self.padding is not None:
            img = picture.pad(img, self.padding, self.fill, self.padding_mode)
        h, w = picture.size_of(img)
        th, tw = self.size
        if self.pad_if_needed and (w < tw or h < th):
            img = picture.pad(img, [max(tw - w, 0), max(th - h, 0)], self.fill, self.padding_mode)
            h, w = picture.size_of(img)
        if h < th or w < tw:
            raise ValueError(f"Required crop size {(th, tw)} is larger than input image size "
                             f"{(h, w)}")
        return picture.crop(img, whole(0, h - th + 1), whole(0, w - tw + 1), th, tw)


class RandomResizedCrop(_Change):
    """A part of an area in `scale` (of the whole) and a shape in `ratio`, resized to `size`."""

    shown = ("size", "scale", "ratio", "interpolation", "antialias")

    def __init__(self, size: Any, scale: Any = (0.08, 1.0), ratio: Any = (3 / 4, 4 / 3),
                 interpolation: Any = InterpolationMode.BILINEAR, antialias: Any = True) -> None:
        super().__init__()
        self.size, self.scale, self.ratio = pair(size), scale, ratio
        self.interpolation, self.antialias = interpolation, antialias

    @staticmethod
    def get_params(img: Any, scale: Any, ratio: Any) -> tuple[int, int, int, int]:
        """(top, left, height, width)."""
        h, w = picture.size_of(img)
        for _ in range(10):
            area = h * w * uniform(*scale)
            aspect = math.exp(uniform(math.log(ratio[0]), math.log(ratio[1])))
            width, height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < width <= w and 0 < height <= h:
                return whole(0, h - height + 1), whole(0, w - width + 1), height, width
        shape = min(max(w / h, min(ratio)), max(ratio))
        width, height = (w, round(w / shape)) if w / h <= shape else (round(h * shape), h)
        return (h - height) // 2, (w - width) // 2, height, width

    def forward(self, img: Any) -> Any:
        """A part in the size."""
        place = self.get_params(img, self.scale, self.ratio)
        return picture.resized_crop(img, *place, self.size, self.interpolation, self.antialias)


class _Chance(_Change):
    """A change that is made with probability `p`."""

    shown: tuple[str, ...] = ("p",)

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def change(self, img: Any) -> Any:
        """The change."""
        raise NotImplementedError

    def forward(self, img: Any) -> Any:
        """The changed picture, or the picture."""
        return self.change(img) if uniform() < self.p else img


class RandomHorizontalFlip(_Chance):
    """Left and right exchanged, sometimes."""

    def change(self, img: Any) -> Any:
        """The mirror image."""
        return picture.hflip(img)


class RandomVerticalFlip(_Chance):
    """Top and bottom exchanged, sometimes."""

    def change(self, img: Any) -> Any:
        """The mirror image."""
        return picture.vflip(img)


class RandomInvert(_Chance):
    """The negative, sometimes."""

    def change(self, img: Any) -> Any:
        """The negative."""
        return picture.invert(img)


class RandomGrayscale(_Chance):
    """Without colour, sometimes."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p)

    def change(self, img: Any) -> Any:
        """The brightness in as many channels."""
        return picture.rgb_to_grayscale(img, picture.get_image_num_channels(img))


class Grayscale(_Change):
    """Without colour, in one channel or three."""

    shown = ("num_output_channels",)

    def __init__(self, num_output_channels: int = 1) -> None:
        super().__init__()
        self.num_output_channels = num_output_channels

    def forward(self, img: Any) -> Any:
        """The brightness."""
        return picture.rgb_to_grayscale(img, self.num_output_channels)


def _around(value: Any, centre: float = 1.0, low: float = 0.0) -> tuple[float, float] | None:
    """The range of a factor: `value` around the centre, or given as two numbers."""
    if isinstance(value, (int, float)):
        if value < 0:
            raise ValueError("If a single number, it must be non negative.")
        value = (max(centre - value, low), centre + value)
    return None if value[0] == value[1] == centre else (float(value[0]), float(value[1]))


class ColorJitter(_Change):
    """Brightness, contrast, saturation and hue changed at random, in a random order."""

    shown = ("brightness", "contrast", "saturation", "hue")

    def __init__(self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0,
                 hue: Any = 0) -> None:
        super().__init__()
        self.brightness, self.contrast = _around(brightness), _around(contrast)
        self.saturation, self.hue = _around(saturation), _around(hue, 0.0, -0.5)

    def forward(self, img: Any) -> Any:
        """The changed picture."""
        steps = [(picture.adjust_brightness, self.brightness),
                 (picture.adjust_contrast, self.contrast),
                 (picture.adjust_saturation, self.saturation), (picture.adjust_hue, self.hue)]
        for i in random.randperm(4).tolist():
            change, bounds = steps[i]
            if bounds is not None:
                img = change(img, uniform(*bounds))
        return img


class GaussianBlur(_Change):
    """`functional.gaussian_blur` with a sigma drawn from a range."""

    shown = ("kernel_size", "sigma")

    def __init__(self, kernel_size: Any, sigma: Any = (0.1, 2.0)) -> None:
        super().__init__()
        self.kernel_size = pair(kernel_size)
        self.sigma = (sigma, sigma) if isinstance(sigma, (int, float)) else tuple(sigma)

    def forward(self, img: Any) -> Any:
        """The blurred picture."""
        return picture.gaussian_blur(img, list(self.kernel_size), uniform(*self.sigma))


class RandomRotation(_Change):
    """Turned by an angle from a range of degrees (one number: from -n to n)."""

    shown = ("degrees", "interpolation", "expand", "fill")

    def __init__(self, degrees: Any, interpolation: Any = InterpolationMode.NEAREST,
                 expand: bool = False, center: Any = None, fill: Any = 0) -> None:
        super().__init__()
        self.degrees = _degrees(degrees)
        self.interpolation, self.expand = interpolation, expand
        self.center, self.fill = center, fill

    def forward(self, img: Any) -> Any:
        """The turned picture."""
        return picture.rotate(img, uniform(*self.degrees), self.interpolation, self.expand,
                              self.center, self.fill)


def _degrees(value: Any) -> tuple[float, float]:
    if isinstance(value, (int, float)):
        if value < 0:
            raise ValueError("If degrees is a single number, it must be positive.")
        return -float(value), float(value)
    return float(value[0]), float(value[1])


class RandomAffine(_Change):
    """Turned, moved (parts of the size), scaled and sheared (degrees) at random."""

    shown = ("degrees", "translate", "scale", "shear")

    def __init__(self, degrees: Any, translate: Any = None, scale: Any = None, shear: Any = None,
                 interpolation: Any = InterpolationMode.NEAREST, fill: Any = 0,
                 center: Any = None) -> None:
        super().__init__()
        self.degrees, self.translate, self.scale = _degrees(degrees), translate, scale
        self.shear = None if shear is None else (
            _degrees(shear) if isinstance(shear, (int, float)) else tuple(shear))
        self.interpolation, self.fill, self.center = interpolation, fill, center

    def forward(self, img: Any) -> Any:
        """The changed picture."""
        h, w = picture.size_of(img)
        dx, dy = self.translate or (0, 0)
        move = [round(uniform(-dx * w, dx * w)), round(uniform(-dy * h, dy * h))]
        skew = [0.0, 0.0]
        if self.shear is not None:
            skew[0] = uniform(self.shear[0], self.shear[1])
            skew[1] = uniform(*self.shear[2:]) if len(self.shear) == 4 else 0.0
        size = 1.0 if self.scale is None else uniform(*self.scale)
        return picture.affine(img, uniform(*self.degrees), move, size, skew, self.interpolation,
                              self.fill, self.center)


class RandomErasing(_Chance):
    """A rectangle of a tensor erased, sometimes: `value` a number, one each channel, "random"."""

    shown = ("p", "scale", "ratio", "value")

    def __init__(self, p: float = 0.5, scale: Any = (0.02, 0.33), ratio: Any = (0.3, 3.3),
                 value: Any = 0, inplace: bool = False) -> None:
        super().__init__(p)
        self.scale, self.ratio, self.value, self.inplace = scale, ratio, value, inplace

    def change(self, img: Tensor) -> Tensor:
        """With a rectangle erased."""
        c, h, w = img.shape[-3:]
        for _ in range(10):
            area = h * w * uniform(*self.scale)
            aspect = math.exp(uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            eh, ew = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if eh < h and ew < w:
                v: Any = self.value
                if v == "random":
                    v = random.randn(c, eh, ew)
                elif not isinstance(v, (int, float)):
                    v = Tensor([float(x) for x in v]).view(-1, 1, 1)
                return picture.erase(img, whole(0, h - eh + 1), whole(0, w - ew + 1), eh, ew, v,
                                     self.inplace)
        return img


class RandomApply(_Change):
    """All of some changes, with probability `p`."""

    shown = ("p",)

    def __init__(self, transforms: Any, p: float = 0.5) -> None:
        super().__init__()
        self.transforms, self.p = transforms, p

    def forward(self, img: Any) -> Any:
        """The changed picture, or the picture."""
        if uniform() >= self.p:
            return img
        for t in self.transforms:
            img = t(img)
        return img


class RandomChoice:
    """One of some changes; `p` weighs them."""

    def __init__(self, transforms: Any, p: Any = None) -> None:
        self.transforms, self.p = transforms, p

    def __call__(self, img: Any) -> Any:
        weights = Tensor(self.p if self.p is not None else [1.0] * len(self.transforms))
        return self.transforms[int(random.multinomial(weights, 1).item())](img)


class RandomOrder:
    """All of some changes in a random order."""

    def __init__(self, transforms: Any) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        for i in random.randperm(len(self.transforms)).tolist():
            img = self.transforms[i](img)
        return img
