"""Operations on one picture: a PIL image, or a tensor [..., channels, height, width].

Tensors of uint8 are from 0 to 255, floats from 0 to 1.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from lehr.base import dtype as dt
from lehr.tensor import api, create, index
from lehr.tensor.tensor import Tensor


class InterpolationMode(Enum):
    """How values between pixels are found."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


_PIL = {"nearest": Image.Resampling.NEAREST, "nearest-exact": Image.Resampling.NEAREST,
        "bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC,
        "box": Image.Resampling.BOX, "hamming": Image.Resampling.HAMMING,
        "lanczos": Image.Resampling.LANCZOS}
_MODES = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
GREY = (0.2989, 0.587, 0.114)  # of red, green and blue, ITU-R BT.601


def _nn(name: str) -> Any:
    return api.function(name, "nn")


def mode_of(value: Any) -> str:
    """The name of an InterpolationMode, or of PIL's number of one."""
    return value.value if isinstance(value, InterpolationMode) else _MODES[int(value)]


def is_image(img: Any) -> bool:
    """Whether it is a PIL image; TypeError where it is no tensor either."""
    if isinstance(img, Image.Image):
        return True
    if not isinstance(img, Tensor):
        raise TypeError(f"img should be PIL Image or Tensor. Got {type(img)}")
    return False


def size_of(img: Any) -> tuple[int, int]:
    """(height, width)."""
    if is_image(img):
        return img.height, img.width
    return img.shape[-2], img.shape[-1]


def get_image_size(img: Any) -> list[int]:
    """[width, height]."""
    return list(reversed(size_of(img)))


def get_dimensions(img: Any) -> list[int]:
    """[channels, height, width]."""
    return [get_image_num_channels(img), *size_of(img)]


def get_image_num_channels(img: Any) -> int:
    """How many channels."""
    return len(img.getbands()) if is_image(img) else img.shape[-3]


def pair(value: Any) -> tuple[int, int]:
    """One number, or two, as two."""
    if isinstance(value, (int, float)):
        return int(value), int(value)
    found = [int(v) for v in value]
    if len(found) not in (1, 2):
        raise ValueError(f"one or two numbers are needed, got {value}")
    return found[0], found[-1]


def pil_to_tensor(pic: Any) -> Tensor:
    """A PIL image as a tensor [channels, height, width] of its own kind of numbers."""
    if not isinstance(pic, Image.Image):
        raise TypeError(f"pic should be PIL Image. Got {type(pic)}")
    a = np.array(pic)
    if a.dtype == np.bool_:
        a = a.astype(np.uint8) * 255
    if a.ndim == 2:
        a = a[..., None]
    return create.from_numpy(np.ascontiguousarray(a.transpose(2, 0, 1)))


def to_tensor(pic: Any) -> Tensor:
    """A PIL image or an array [height, width(, channels)] as a tensor [channels, height, width];
    uint8 becomes float from 0 to 1."""
    if isinstance(pic, np.ndarray) or (hasattr(pic, "__array__")
                                       and not isinstance(pic, (Image.Image, Tensor))):
        a = np.asarray(pic)
        if a.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {a.ndim} dimensions.")
        a = a[..., None] if a.ndim == 2 else a
        made = create.from_numpy(np.ascontiguousarray(a.transpose(2, 0, 1)))
    elif isinstance(pic, Image.Image):
        made = pil_to_tensor(pic)
    else:
        raise TypeError(f"pic should be PIL Image or ndarray. Got {type(pic)}")
    return made.to(dt.Default.dtype).div(255) if made.dtype is dt.uint8 else made


def to_pil_image(pic: Any, mode: str | None = None) -> Image.Image:
    """A tensor [channels, height, width] or an array [height, width, channels] as a PIL image."""
    if isinstance(pic, Tensor):
        if pic.dim() not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.dim()} dimensions.")
        pic = pic.unsqueeze(0) if pic.dim() == 2 else pic
        if pic.is_floating_point() and mode != "F":
            pic = pic.mul(255).byte()
        a = pic.cpu().numpy().transpose(1, 2, 0)
    else:
        a = np.asarray(pic)
        a = a[..., None] if a.ndim == 2 else a
    if a.shape[-1] > 4:
        raise ValueError(f"pic should not have > 4 channels. Got {a.shape[-1]} channels.")
    a = np.ascontiguousarray(a[..., 0] if a.shape[-1] == 1 else a)
    made = Image.fromarray(a)
    return made if mode is None or made.mode == mode else made.convert(mode)


def convert_image_dtype(image: Tensor, dtype: Any = dt.float32) -> Tensor:
    """Another dtype, scaled: whole numbers span their type, floats 0 to 1."""
    if image.dtype is dtype:
        return image
    if image.is_floating_point():
        if dtype.is_floating_point:
            return image.to(dtype)
        top = np.iinfo(dtype.np).max
        return image.mul(top + 1.0 - 1e-3).to(dtype)
    top = np.iinfo(image.dtype.np).max
    if dtype.is_floating_point:
        return image.to(dtype) / top
    other = np.iinfo(dtype.np).max
    if other < top:
        return (image // ((top + 1) // (other + 1))).to(dtype)
    return image.to(dtype) * ((other + 1) // (top + 1))


def normalize(tensor: Tensor, mean: Any, std: Any, inplace: bool = False) -> Tensor:
    """(x - mean) / std for each channel. ValueError where a deviation is zero."""
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        raise TypeError("Input tensor should be a float tensor. Got "
                        f"{getattr(tensor, 'dtype', type(tensor))}.")
    if tensor.dim() < 3:
        raise ValueError("Expected tensor to be a tensor image of size (..., C, H, W). Got "
                         f"tensor.size() = {tensor.size()}")
    made = tensor if inplace else tensor.clone()
    middle = create.as_tensor(mean, dtype=tensor.dtype)
    spread = create.as_tensor(std, dtype=tensor.dtype)
    if spread.eq(0).any():
        raise ValueError(f"std evaluated to zero after conversion to {tensor.dtype}, leading to "
                         "division by zero.")
    shape = (-1, 1, 1)
    return made.sub_(middle.view(shape) if middle.dim() else middle).div_(
        spread.view(shape) if spread.dim() else spread)


def _target(img: Any, size: Any, max_size: int | None) -> tuple[int, int]:
    """Height and width for `size`: one number is the shorter side's."""
    if not isinstance(size, int) and len(size) == 2:
        return int(size[0]), int(size[1])
    short = size if isinstance(size, int) else int(size[0])
    h, w = size_of(img)
    long = int(short * max(h, w) / min(h, w))
    if max_size is not None and long > max_size:
        short, long = int(max_size * short / long), max_size
    return (short, long) if h <= w else (long, short)


def resize(img: Any, size: Any, interpolation: Any = InterpolationMode.BILINEAR,
           max_size: int | None = None, antialias: Any = True) -> Any:
    """Another size: (height, width), or one number for the shorter side."""
    h, w = _target(img, size, max_size)
    name = mode_of(interpolation)
    if is_image(img):
        return img.resize((w, h), _PIL[name])
    if (h, w) == size_of(img):
        return img
    batch = img if img.dim() == 4 else img.unsqueeze(0)
    smooth = name in ("bilinear", "bicubic")
    if not smooth and not name.startswith("nearest"):
        raise ValueError(f"tensors cannot be resized with {name!r}")
    made = _nn("interpolate")(batch if batch.is_floating_point() else batch.float(), size=[h, w],
                              mode=name, align_corners=False if smooth else None,
                              antialias=bool(antialias) and smooth)
    if not img.is_floating_point():
        made = made.round().clamp(0, 255).to(img.dtype)
    return made if img.dim() == 4 else made.squeeze(0)


def pad(img: Any, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Any:
    """Borders: one number, [left and right, top and bottom], or [left, top, right, bottom]."""
    sides = [padding] * 4 if isinstance(padding, int) else list(padding)
    sides = sides * 4 if len(sides) == 1 else sides * 2 if len(sides) == 2 else sides
    left, top, right, bottom = sides
    if is_image(img):
        if padding_mode == "constant":
            return ImageOps.expand(img, (left, top, right, bottom), fill)
        a = np.asarray(img)
        width = [(top, bottom), (left, right)] + [(0, 0)] * (a.ndim - 2)
        how: Any = {"edge": "edge", "reflect": "reflect", "symmetric": "symmetric"}[padding_mode]
        return Image.fromarray(np.pad(a, width, how))
    name = {"edge": "replicate"}.get(padding_mode, padding_mode)
    value = {"value": fill} if name == "constant" else {}
    batch = img if img.dim() == 4 else img.unsqueeze(0)
    made = _nn("pad")(batch, [left, right, top, bottom], mode=name, **value)
    return made if img.dim() == 4 else made.squeeze(0)


def crop(img: Any, top: int, left: int, height: int, width: int) -> Any:
    """A part; what lies outside is black."""
    if is_image(img):
        return img.crop((left, top, left + width, top + height))
    h, w = size_of(img)
    if top < 0 or left < 0 or top + height > h or left + width > w:
        border = [max(-left, 0), max(-top, 0), max(left + width - w, 0), max(top + height - h, 0)]
        img, top, left = pad(img, border), max(top, 0), max(left, 0)
    return img.narrow(-2, top, height).narrow(-1, left, width)


def center_crop(img: Any, output_size: Any) -> Any:
    """The middle part; what lies outside is black."""
    height, width = pair(output_size)
    h, w = size_of(img)
    if width > w or height > h:
        spare_w, spare_h = max(width - w, 0), max(height - h, 0)
        img = pad(img, [spare_w // 2, spare_h // 2, (spare_w + 1) // 2, (spare_h + 1) // 2])
        h, w = size_of(img)
    return crop(img, round((h - height) / 2.0), round((w - width) / 2.0), height, width)


def resized_crop(img: Any, top: int, left: int, height: int, width: int, size: Any,
                 interpolation: Any = InterpolationMode.BILINEAR, antialias: Any = True) -> Any:
    """A part in another size."""
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)


def five_crop(img: Any, size: Any) -> tuple[Any, ...]:
    """The four corners and the middle."""
    height, width = pair(size)
    h, w = size_of(img)
    return (crop(img, 0, 0, height, width), crop(img, 0, w - width, height, width),
            crop(img, h - height, 0, height, width),
            crop(img, h - height, w - width, height, width), center_crop(img, (height, width)))


def ten_crop(img: Any, size: Any, vertical_flip: bool = False) -> tuple[Any, ...]:
    """`five_crop` of the picture and of its mirror image."""
    flipped = vflip(img) if vertical_flip else hflip(img)
    return five_crop(img, size) + five_crop(flipped, size)


def hflip(img: Any) -> Any:
    """Left and right exchanged."""
    return ImageOps.mirror(img) if is_image(img) else img.flip(-1)


def vflip(img: Any) -> Any:
    """Top and bottom exchanged."""
    return ImageOps.flip(img) if is_image(img) else img.flip(-2)


def rotate(img: Any, angle: float, interpolation: Any = InterpolationMode.NEAREST,
           expand: bool = False, center: Any = None, fill: Any = None) -> Any:
    """Turned counter-clockwise by so many degrees."""
    if is_image(img):
        return img.rotate(angle, _PIL[mode_of(interpolation)], expand, center, fillcolor=fill)
    return _through(img, lambda pic: rotate(pic, angle, interpolation, expand, center, fill))


def affine(img: Any, angle: float, translate: Any, scale: float, shear: Any,
           interpolation: Any = InterpolationMode.NEAREST, fill: Any = None,
           center: Any = None) -> Any:
    """Turned by `angle` degrees, moved by `translate` pixels, scaled, sheared by degrees."""
    if not is_image(img):
        return _through(img, lambda pic: affine(pic, angle, translate, scale, shear, interpolation,
                                                fill, center))
    h, w = size_of(img)
    cx, cy = center if center is not None else (w * 0.5, h * 0.5)
    skew = [shear, 0.0] if isinstance(shear, (int, float)) else list(shear)
    r, sx, sy = (math.radians(v) for v in (angle, skew[0], skew[-1] if len(skew) > 1 else 0.0))
    a, b = math.cos(r - sy) / math.cos(sy), -math.cos(r - sy) * math.tan(sx) / math.cos(sy) \
        - math.sin(r)
    c, d = math.sin(r - sy) / math.cos(sy), -math.sin(r - sy) * math.tan(sx) / math.cos(sy) \
        + math.cos(r)
    m = [d / scale, -b / scale, 0.0, -c / scale, a / scale, 0.0]
    m[2] = m[0] * (-cx - translate[0]) + m[1] * (-cy - translate[1]) + cx
    m[5] = m[3] * (-cx - translate[0]) + m[4] * (-cy - translate[1]) + cy
    return img.transform((w, h), Image.Transform.AFFINE, tuple(m), _PIL[mode_of(interpolation)],
                         fillcolor=fill)


def _through(img: Tensor, change: Any) -> Tensor:
    """An operation of PIL images on each channel of a tensor."""
    flat = img.reshape(-1, *img.shape[-2:])
    made = [pil_to_tensor(change(Image.fromarray(plane.cpu().numpy()))) for plane in flat]
    joined: Any = api.function("cat")
    rows = joined(made, 0)
    return rows.reshape(*img.shape[:-2], *rows.shape[-2:]).to(img.dtype)


def _blend(a: Tensor, b: Any, ratio: float) -> Tensor:
    top = 1.0 if a.is_floating_point() else 255.0
    return (ratio * a + (1.0 - ratio) * b).clamp(0, top).to(a.dtype)


def rgb_to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """The brightness: 0.2989 red + 0.587 green + 0.114 blue."""
    if is_image(img):
        grey = img.convert("L")
        return grey if num_output_channels == 1 else Image.merge("RGB", [grey] * 3)
    if img.shape[-3] == 1:
        made = img
    else:
        red, green, blue = img.unbind(-3)
        made = (GREY[0] * red + GREY[1] * green + GREY[2] * blue).to(img.dtype).unsqueeze(-3)
    return made.expand(*img.shape[:-3], 3, *img.shape[-2:]) if num_output_channels == 3 else made


to_grayscale = rgb_to_grayscale


def adjust_brightness(img: Any, brightness_factor: float) -> Any:
    """Times a factor."""
    if is_image(img):
        return ImageEnhance.Brightness(img).enhance(brightness_factor)
    return _blend(img, 0.0, brightness_factor)


def adjust_contrast(img: Any, contrast_factor: float) -> Any:
    """Away from the mean brightness by a factor."""
    if is_image(img):
        return ImageEnhance.Contrast(img).enhance(contrast_factor)
    mean = rgb_to_grayscale(img).float().mean((-3, -2, -1), keepdim=True)
    return _blend(img, mean, contrast_factor)


def adjust_saturation(img: Any, saturation_factor: float) -> Any:
    """Away from grey by a factor."""
    if is_image(img):
        return ImageEnhance.Color(img).enhance(saturation_factor)
    return img if img.shape[-3] == 1 else _blend(img, rgb_to_grayscale(img), saturation_factor)


def adjust_hue(img: Any, hue_factor: float) -> Any:
    """The hue turned by a part of the circle, from -0.5 to 0.5."""
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    if not is_image(img):
        if img.shape[-3] == 1:
            return img
        made = pil_to_tensor(adjust_hue(to_pil_image(img), hue_factor))
        return convert_image_dtype(made, img.dtype)
    if img.mode in ("L", "1", "I", "F"):
        return img
    h, s, v = img.convert("HSV").split()
    turned = (np.asarray(h).astype(np.int16) + int(hue_factor * 255)) % 256
    return Image.merge("HSV", (Image.fromarray(turned.astype(np.uint8)), s, v)).convert(img.mode)


def gaussian_blur(img: Any, kernel_size: Any, sigma: Any = None) -> Any:
    """Convolved with a Gaussian of `sigma` pixels, cut to `kernel_size`; edges are mirrored."""
    sizes = pair(kernel_size)
    if sigma is None:
        sigma = [n * 0.15 + 0.35 for n in sizes]
    widths = [float(sigma)] * 2 if isinstance(sigma, (int, float)) else [float(s) for s in sigma]
    widths = widths * 2 if len(widths) == 1 else widths
    if any(n % 2 == 0 or n <= 0 for n in sizes) or any(s <= 0 for s in widths):
        raise ValueError(f"kernel_size {kernel_size} must be odd and sigma {sigma} positive")
    if is_image(img):
        return to_pil_image(gaussian_blur(pil_to_tensor(img), list(sizes), widths), img.mode)
    rows = []
    for n, s in zip(sizes, widths, strict=True):
        x = np.linspace(-(n - 1) / 2, (n - 1) / 2, n)
        weight = np.exp(-0.5 * (x / s) ** 2)
        rows.append(weight / weight.sum())
    kernel = create.from_numpy(np.outer(rows[1], rows[0]).astype(np.float32))
    c = img.shape[-3]
    batch = img.reshape(-1, *img.shape[-3:]).float()
    edges = [sizes[0] // 2, sizes[0] // 2, sizes[1] // 2, sizes[1] // 2]
    made = _nn("conv2d")(_nn("pad")(batch, edges, mode="reflect"),
                         kernel.expand(c, 1, *kernel.shape), groups=c).reshape(img.shape)
    return made.to(img.dtype) if img.is_floating_point() \
        else made.round().clamp(0, 255).to(img.dtype)


def erase(img: Tensor, i: int, j: int, h: int, w: int, v: Any, inplace: bool = False) -> Tensor:
    """The rectangle at row i, column j of h rows and w columns becomes `v`."""
    made = img if inplace else img.clone()
    made.narrow(-2, i, h).narrow(-1, j, w).copy_(create.as_tensor(v, dtype=made.dtype).expand(
        *made.shape[:-2], h, w))
    return made


def invert(img: Any) -> Any:
    """The negative."""
    if is_image(img):
        return ImageOps.invert(img)
    return (1 if img.is_floating_point() else 255) - img


def autocontrast(img: Any) -> Any:
    """Each channel stretched to the full range."""
    if is_image(img):
        return ImageOps.autocontrast(img)
    return _through(img, ImageOps.autocontrast)


def equalize(img: Any) -> Any:
    """Each channel's histogram made flat."""
    return ImageOps.equalize(img) if is_image(img) else _through(img, ImageOps.equalize)


def solarize(img: Any, threshold: float) -> Any:
    """Pixels from `threshold` on are inverted."""
    if is_image(img):
        return ImageOps.solarize(img, int(threshold))
    return index.where(img >= threshold, invert(img), img)


def posterize(img: Any, bits: int) -> Any:
    """So many bits of each channel are kept."""
    if is_image(img):
        return ImageOps.posterize(img, bits)
    return img & (-int(2 ** (8 - bits)) & 255)


def adjust_sharpness(img: Any, sharpness_factor: float) -> Any:
    """Away from a smoothed copy by a factor; PIL images."""
    if is_image(img):
        return ImageEnhance.Sharpness(img).enhance(sharpness_factor)
    return _through(img, lambda pic: adjust_sharpness(pic, sharpness_factor))
