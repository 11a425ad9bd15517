"""Fourier transforms on the host: three primitives over numpy's, and every function of `torch.fft`
around them.

`dft` is complex to complex, `dft_real` takes real numbers to the first half of the spectrum,
`dft_half` such a half back to real numbers. Each sums without a factor and multiplies by `scale`,
so all normalisations are one rule, and each one's derivative is another.
"""

from __future__ import annotations

import math

import numpy

from lehr.base import dtype as dt
from lehr.base.device import CPU, Device
from lehr.base.proof import decide
from lehr.ops import layout
from lehr.ops.registry import CREATE, HOST, op
from lehr.ops.rule import Spec, device_of, dim_of

TOLERANCE = {"float32": (2e-5, 2e-5), "float64": (1e-11, 1e-11), "complex64": (2e-5, 2e-5),
             "complex128": (1e-11, 1e-11)}  # order of summation


def _checked(x):
    if x.dtype in (dt.float16, dt.bfloat16):
        raise RuntimeError(f"Unsupported dtype {x.dtype}: Fourier transforms take float32 and "
                           "float64")
    return dt.Default.dtype if x.dtype.is_integer else x.dtype


def _complex(s, *shape):
    made = s.f(*shape, 2, dtype=s.floating)
    return made.view(s.floating.to_complex().np)[..., 0]


@op("dft(input: Tensor, dims: list[int], inverse: bool, scale: float) -> Tensor")
class dft:
    """scale * sum over t of x[t] exp(-+ 2 pi i k t / n) along each of `dims` (+ where `inverse`).
    """

    kind, host, where, tolerance, dtypes = HOST, True, "", TOLERANCE, "float"

    def rule(x, dims, inverse, scale):
        return Spec(tuple(x.shape), _checked(x).to_complex(), x.device)

    def layout(spec, x, dims, inverse, scale):
        return layout.transformed(spec, x, dims)

    def eager(np, x, dims, inverse, scale):
        if not x.size or not dims:
            return x * x.real.dtype.type(scale)
        n = math.prod(x.shape[d] for d in dims)
        made = np.fft.ifftn(x, axes=tuple(dims)) if inverse else np.fft.fftn(x, axes=tuple(dims))
        factor = scale * n if inverse else scale
        return made if factor == 1 else made * made.real.dtype.type(factor)

    def vjp(F, g, out, x, dims, inverse, scale):
        real = not x.dtype.is_complex  # the matrix of the transform is symmetric
        made = F.dft(g, dims, inverse, scale)
        return F.real(made) if real else made

    def samples(s):
        yield s(_complex(s, 3, 4), [1], False, 1.0)
        yield s(_complex(s, 3, 4), [0, 1], True, 0.5)
        yield s(s.f(3, 5), [1], False, 2.0)


@op("dft_real(input: Tensor, dim: int, scale: float, others: list[int] = ()) -> Tensor")
class dft_real:
    """Elements 0 .. n // 2 along `dim` of the transform of real numbers along it and `others`."""

    kind, host, where, tolerance, dtypes = HOST, True, "", TOLERANCE, "float"

    def rule(x, dim, scale, others=()):
        shape = list(x.shape)
        shape[dim] = shape[dim] // 2 + 1
        return Spec(tuple(shape), _checked(x).to_complex(), x.device)

    def layout(spec, x, dim, scale, others):
        return layout.transformed(spec, x, others, dim)

    def eager(np, x, dim, scale, others):
        x = x.astype(dt.Default.dtype.np) if x.dtype.kind not in "f" else x
        made = np.fft.rfftn(x, axes=(*others, dim))
        return made if scale == 1 else made * made.real.dtype.type(scale)

    def vjp(F, g, out, x, dim, scale, others):
        n = x.shape[dim]
        return F.real(F.dft(_resized(F, g, dim, n), [*others, dim], False, scale))

    def samples(s):
        yield s(s.f(3, 4), 1, 1.0)
        yield s(s.f(3, 5), 1, 0.5)
        yield s(s.f(3, 5), 0, 1.0)
        yield s(s.f(3, 4, 5), 1, 1.0, (2, 0))


@op("dft_half(input: Tensor, dim: int, n: int, scale: float) -> Tensor")
class dft_half:
    """n real numbers from elements 0 .. n // 2 of their transform; the imaginary parts of the ends
    do not count."""

    kind, host, where, tolerance, dtypes = HOST, True, "", TOLERANCE, "float"

    def rule(x, dim, n, scale):
        shape = list(x.shape)
        shape[dim] = n
        return Spec(tuple(shape), _checked(x).to_real(), x.device)

    def layout(spec, x, dim, n, scale):
        return layout.transformed(spec, x, (), dim)

    def eager(np, x, dim, n, scale):
        made = np.fft.irfft(x, n, axis=dim)
        return made if scale * n == 1 else made * made.dtype.type(scale * n)

    def vjp(F, g, out, x, dim, n, scale):
        size = x.shape[dim]
        k = F.arange(size, device=g.device)
        ends = F.logical_or(k == 0, k * 2 == n)
        twice = F.to_dtype(2 - F.to_dtype(ends, dt.int64), g.dtype)
        shape = [1] * len(x.shape)
        shape[dim] = size
        return F.dft_real(g, dim, scale) * F.reshape(twice, shape)

    def samples(s):
        yield s(_complex(s, 3, 4), 1, 6, 1.0)
        yield s(_complex(s, 3, 4), 1, 7, 0.5)
        yield s(_complex(s, 4, 2), 0, 6, 1.0)


def _resized(F, x, dim, size):
    """Zeros added at the end of a dimension, or elements dropped there."""
    have = x.shape[dim]
    if have == size:
        return x
    if have > size:
        return F.narrow(x, dim, 0, size)
    shape = list(x.shape)
    shape[dim] = size - have
    return F.cat([x, F.full(shape, 0, dtype=x.dtype, device=x.device)], dim)


def _plan(x, s, dim, many):
    """(dimensions, sizes or None each); the last dimension is the halved one where there is one."""
    ndim = len(x.shape)
    if not many:
        return [dim_of(dim, ndim)], [s]
    if dim is None:
        dims = list(range(ndim)) if s is None else list(range(ndim - len(s), ndim))
    else:
        dims = [dim_of(d, ndim) for d in ([dim] if isinstance(dim, int) else dim)]
    if len(set(dims)) != len(dims):
        raise RuntimeError("FFT dims must be unique")
    sizes = [None] * len(dims) if s is None else [None if n == -1 else n for n in s]
    if len(sizes) != len(dims):
        raise RuntimeError("When given, dim and shape arguments must have the same length")
    return dims, sizes


def _scale(norm, inverse, n):
    """What the transform is multiplied by."""
    if norm not in (None, "backward", "ortho", "forward"):
        raise RuntimeError(f'Invalid normalization mode: "{norm}"')
    if norm == "ortho":
        return 1 / math.sqrt(n)
    return 1 / n if (norm == "forward") != inverse else 1.0


def _transform(F, kind, x, s, dim, norm, many):
    """`kind`: (what comes in, what goes out, inverse); "half" is half a spectrum."""
    source, target, inverse = kind
    dims, sizes = _plan(x, s, dim, many)
    if not dims:
        return x if x.dtype.is_complex else F.to_dtype(x, _checked(x).to_complex())
    last = sizes[-1]
    if source == "half":
        last = 2 * (x.shape[dims[-1]] - 1) if last is None else last
        sizes = [*sizes[:-1], last // 2 + 1]
    for d, n in zip(dims, sizes, strict=True):
        x = x if n is None else _resized(F, x, d, n)
    whole = [x.shape[d] for d in dims[:-1]] + [last if source == "half" else x.shape[dims[-1]]]
    scale = _scale(norm, inverse, math.prod(whole))
    if source == "half":
        if not inverse:  # of the conjugate: a forward transform is the inverse of that
            x = F.conj(x) if x.dtype.is_complex else x
        if len(dims) > 1:
            x = F.dft(x, dims[:-1], True, 1.0)
        return F.dft_half(x, dims[-1], last, scale)
    if target == "half":
        if not inverse:
            return F.dft_real(x, dims[-1], scale, tuple(dims[:-1]))
        y = F.conj(F.dft_real(x, dims[-1], scale))
        return F.dft(y, dims[:-1], True, 1.0) if len(dims) > 1 else y
    return F.dft(x, dims, inverse, scale)


def _type(kind, x, s, dim, norm, many):
    source, target, inverse = kind
    _scale(norm, inverse, 1)
    made = _checked(x)
    if source == "real" and x.dtype.is_complex:
        raise RuntimeError("expected a real input tensor to a transform of real numbers, but got "
                           f"{x.dtype}")
    dims, sizes = _plan(x, s, dim, many)
    shape = list(x.shape)
    for d, n in zip(dims, sizes, strict=True):
        if n is not None:
            shape[d] = n
    if source == "half":
        shape[dims[-1]] = 2 * (x.shape[dims[-1]] - 1) if sizes[-1] is None else sizes[-1]
    for d in dims:
        if isinstance(shape[d], int) and shape[d] < 1:
            raise RuntimeError(f"Invalid number of data points ({shape[d]}) specified")
    if target == "half":
        shape[dims[-1]] = shape[dims[-1]] // 2 + 1
    return Spec(tuple(shape), made.to_real() if source == "half" else made.to_complex(), x.device)


# name -> (what comes in, what goes out, inverse)
KINDS = {"fft": ("full", "full", False), "ifft": ("full", "full", True),
         "rfft": ("real", "half", False),
         "irfft": ("half", "real", True), "hfft": ("half", "real", False), "ihfft": ("real",
                                                                                     "half", True)}
FORMS = {"": "n: int | None = None, dim: int = -1",
         "2": "s: list[int] | None = None, dim: list[int] = (-2, -1)",
         "n": "s: list[int] | None = None, dim: list[int] | None = None"}
DOCS = {"fft": "The discrete Fourier transform", "ifft": "The inverse Fourier transform",
        "rfft": "The first half of the transform of real numbers",
        "irfft": "Real numbers from the first half of their transform",
        "hfft": "The transform of a signal whose other half is the conjugate: real numbers",
        "ihfft": "The first half of the inverse transform of real numbers"}


def _declare(name, form):
    kind, many = KINDS[name], form != ""

    @op(f"fft_{name}{form}(input: Tensor, {FORMS[form]}, norm: str | None = None) -> Tensor")
    class made:
        where, tolerance, dtypes = "fft", TOLERANCE, "float"
        __doc__ = f"{DOCS[name]}, along {'several dimensions' if many else 'one dimension'}."

        def rule(x, s=None, dim=None if form == "n" else -1 if form == "" else (-2, -1), norm=None):
            return _type(kind, x, s, dim, norm, many)

        def decomp(F, x, s, dim, norm):
            return _transform(F, kind, x, s, dim, norm, many)

        def samples(s):
            def x(*shape):
                return s.f(*shape) if kind[0] == "real" else _complex(s, *shape)
            yield s(x(3, 5, 4))
            yield s(x(3, 5, 4), norm="ortho")
            if form == "":
                yield s(x(3, 5), 4, 0, "forward")
                yield s(x(3, 5), 9)
                yield s.raises(RuntimeError, x(3, 5), 0)
            else:
                yield s(x(3, 5, 4), (2, 6), (0, 2), "forward")
                yield s(x(3, 5, 4), dim=(2, 0))
                yield s.raises(RuntimeError, x(3, 5, 4), (0, 2), (0, 1))
            if kind[0] == "full":
                yield s(s.f(3, 4))
            yield s.raises(RuntimeError, x(3, 5), norm="half")
    return made


for _name in KINDS:
    for _form in FORMS:
        _declare(_name, _form)


# Order and frequencies


def _shift(name, doc, amount):
    @op(f"fft_{name}(input: Tensor, dim: int | list[int] | None = None) -> Tensor")
    class made:
        where, __doc__ = "fft", doc

        def rule(x, dim=None):
            return Spec(tuple(x.shape), x.dtype, x.device)

        def decomp(F, x, dim):
            dims = list(range(x.ndim)) if dim is None else [dim] if isinstance(dim,
                                                                               int) else list(dim)
            return F.roll(x, [amount(x.shape[d]) for d in dims], dims) if dims else F.clone(x)

        def samples(s):
            yield s(s.any(4, 5))
            yield s(s.any(4, 5), 1)
            yield s(s.any(4, 5), [0])
    return made


_shift("fftshift", "Moves frequency 0 to the middle.", lambda n: n // 2)
_shift("ifftshift", "Moves frequency 0 from the middle to the start.", lambda n: (n + 1) // 2)


def _frequencies(name, doc, half):
    @op(f"fft_{name}(n: int, d: float = 1.0, *, dtype: dtype | None = None, device: device | None "
        "= None) -> Tensor")
    class made:
        kind, where, nondiff, dtypes, __doc__ = CREATE, "fft", True, "float", doc

        def rule(n, d=1.0, dtype=None, device=None):
            return Spec((n // 2 + 1 if half else n,), dtype or dt.Default.dtype,
                        CPU if device is None else Device(device))

        def decomp(F, n, d, dtype, device):
            k = F.arange(n // 2 + 1 if half else n, device=device)
            k = k if half else F.where(k > (n - 1) // 2, k - n, k)
            return F.to_dtype(k, dtype or dt.Default.dtype) * (1 / (n * d))

        def samples(s):
            s.touched = True
            for n in (1, 4, 5):
                yield s(n, dtype=s.dtype)
            yield s(6, 0.25, dtype=s.dtype)
    return made


_frequencies("fftfreq", "The frequencies of a transform of n samples `d` apart.", False)
_frequencies("rfftfreq", "The frequencies of the first half of a transform.", True)


# Short-time transforms


def _lengths(x, n_fft, hop, width):
    """(hop, window length) with their defaults."""
    hop = n_fft // 4 if hop is None else hop
    width = n_fft if width is None else width
    if n_fft <= 0 or hop <= 0 or not 0 < width <= n_fft:
        raise RuntimeError("stft: expected 0 < win_length <= n_fft and hop_length > 0, but got "
                           f"n_fft={n_fft}, hop_length={hop}, win_length={width}")
    return hop, width


def _window(F, window, n_fft, width, dtype, device):
    """The window in the middle of n_fft elements; ones where there is none."""
    if window is None:
        window = F.full((width,), 1, dtype=dtype, device=device)
    left = (n_fft - width) // 2
    return F.constant_pad_nd(window, [left, n_fft - width - left], 0) if width != n_fft else window


def _one_sided(x, onesided):
    return not x.dtype.is_complex if onesided is None else onesided


@op("stft(input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = "
    "None, window: Tensor | None = None, center: bool = True, pad_mode: str = 'reflect', "
    "normalized: bool = False, onesided: bool | None = None, return_complex: bool | None = None, "
    "align_to_window: bool | None = None) -> Tensor")
class stft:
    """Transforms [.., frequencies, frames] of windows `hop_length` apart of signals [.., t]."""

    tolerance, dtypes = TOLERANCE, "float"

    def rule(x, n_fft, hop=None, width=None, window=None, center=True, pad_mode="reflect",
             normalized=False, onesided=None, return_complex=None, align=None):
        if len(x.shape) not in (1, 2):
            raise RuntimeError(f"stft({list(x.shape)}): expected a 1D or 2D tensor")
        if return_complex is None and not x.dtype.is_complex and (
                window is None or not window.dtype.is_complex):
            raise RuntimeError("stft requires the return_complex parameter be given for real "
                               "inputs, and will further require that return_complex=True in a "
                               "future PyTorch release.")
        hop, _ = _lengths(x, n_fft, hop, width)
        if window is not None and (len(window.shape) != 1 or window.shape[0] != (width or n_fft)):
            raise RuntimeError("expected a 1D window tensor of size equal to "
                               f"win_length={width or n_fft}, but got window with size "
                               f"{list(window.shape)}")
        if align is not None and center:
            raise RuntimeError("stft only supports align_to_window for center=False.")
        t = x.shape[-1] + (2 * (n_fft // 2) if center else 0)
        if decide(t, "<", n_fft):
            raise RuntimeError(f"stft: expected 0 < n_fft <= {t}, but got n_fft={n_fft}")
        bins = n_fft // 2 + 1 if _one_sided(x, onesided) else n_fft
        frames = (t - n_fft) // hop + 1
        made = _checked(x).to_complex()
        if return_complex is False:
            return Spec((*x.shape[:-1], bins, frames, 2), made.to_real(), device_of((x, window)))
        return Spec((*x.shape[:-1], bins, frames), made, device_of((x, window)))

    def decomp(F, x, n_fft, hop, width, window, center, pad_mode, normalized, onesided,
               return_complex,
               align):
        hop, width = _lengths(x, n_fft, hop, width)
        one = _one_sided(x, onesided)
        if center:
            rows = F.reshape(x, (1, *x.shape) if x.ndim == 2 else (1, 1, *x.shape))
            rows = F.nn_pad(rows, [n_fft // 2, n_fft // 2], pad_mode)
            x = F.reshape(rows, (*x.shape[:-1], rows.shape[-1]))
        frames = F.unfold(x, -1, n_fft, hop)
        if window is not None or width != n_fft:
            frames = frames * _window(F, window, n_fft, width, x.dtype, x.device)
        scale = 1 / math.sqrt(n_fft) if normalized else 1.0
        if one:
            y = F.dft_real(frames, frames.ndim - 1, scale)
        else:
            y = F.dft(frames, [frames.ndim - 1], False, scale)
        y = F.transpose(y, -2, -1)
        return F.view_as_real(y) if return_complex is False else y

    def samples(s):
        yield s(s.f(2, 20), 8, return_complex=True)
        yield s(s.f(20), 8, 3, 6, s.f(6, pos=True), return_complex=True, normalized=True)
        yield s(s.f(2, 20), 8, center=False, onesided=False, return_complex=True)
        yield s(s.f(20), 8, return_complex=False)
        yield s.raises(RuntimeError, s.f(20), 8)
        yield s.raises(RuntimeError, s.f(20), 8, win_length=9, return_complex=True)


@op("istft(input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = "
    "None, window: Tensor | None = None, center: bool = True, normalized: bool = False, "
    "onesided: bool | None = None, length: int | None = None, return_complex: bool = False) -> "
    "Tensor")
class istft:
    """Signals [.., t] from `stft`'s results, by least squares (Griffin, Lim, 1984)."""

    tolerance, dtypes = {"float32": (1e-4, 1e-4), "float64": (1e-10, 1e-10)}, "float"

    def rule(x, n_fft, hop=None, width=None, window=None, center=True, normalized=False,
             onesided=None,
             length=None, return_complex=False):
        if len(x.shape) not in (2, 3) or not x.dtype.is_complex:
            raise RuntimeError("istft requires a complex-valued input tensor of 2 or 3 "
                               "dimensions matching the output from stft with "
                               f"return_complex=True, but got {x.dtype}{list(x.shape)}")
        if return_complex:
            raise NotImplementedError("istft: return_complex=True is not implemented")
        one = x.shape[-2] != n_fft if onesided is None else onesided
        if x.shape[-2] != (n_fft // 2 + 1 if one else n_fft):
            raise RuntimeError("istft: expected the frequency dimension (3rd to the last) of the "
                               f"input tensor to match n_fft={n_fft}, but got {x.shape[-2]}")
        hop, _ = _lengths(x, n_fft, hop, width)
        t = n_fft + hop * (x.shape[-1] - 1) - (2 * (n_fft // 2) if center else 0)
        return Spec((*x.shape[:-2], t if length is None else length), x.dtype.to_real(),
                    device_of((x, window)))

    def decomp(F, x, n_fft, hop, width, window, center, normalized, onesided, length,
               return_complex):
        hop, width = _lengths(x, n_fft, hop, width)
        one = x.shape[-2] != n_fft if onesided is None else onesided
        made = x.dtype.to_real()
        scale = 1 / math.sqrt(n_fft) if normalized else 1 / n_fft
        rows = F.transpose(x if x.ndim == 3 else F.unsqueeze(x, 0), -2, -1)
        if one:
            frames = F.dft_half(rows, 2, n_fft, scale)
        else:
            frames = F.real(F.dft(rows, [2], True, scale))
        weight = _window(F, window, n_fft, width, made, x.device)
        count, total = x.shape[-1], n_fft + hop * (x.shape[-1] - 1)

        def joined(t):  # [n, frames, n_fft] added up
            columns = F.reshape(F.transpose(t, 1, 2), (t.shape[0], 1, n_fft, count))
            return F.reshape(F.overlap(columns, [total], [hop], [0], [1]), (t.shape[0], total))
        envelope = joined(F.expand(F.reshape(weight * weight, (1, 1, n_fft)), (1, count, n_fft)))
        start = n_fft // 2 if center else 0
        end = start + length if length is not None else total - start
        y, envelope = joined(frames * weight), envelope
        kept = min(end, total)
        y, envelope = (F.narrow(t, 1, start, kept - start) for t in (y, envelope))
        y = y / envelope
        if end > total:
            y = _resized(F, y, 1, end - start)
        return y if x.ndim == 3 else F.squeeze(y, 0)

    def samples(s):
        signal = s.f(2, 33)
        wide = signal.astype(numpy.float64)
        padded = numpy.pad(wide, ((0, 0), (4, 4)), "reflect")
        frames = numpy.lib.stride_tricks.sliding_window_view(padded, 8, 1)[:, ::2]
        spectrum = numpy.fft.rfft(frames).swapaxes(1, 2).astype(s.floating.to_complex().np)
        yield s(spectrum, 8)
        yield s(spectrum[0], 8, 2, 6, s.f(6, pos=True), length=30)
        yield s.raises(RuntimeError, signal, 8)
