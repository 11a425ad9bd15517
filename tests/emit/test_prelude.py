"""The C functions of the prelude against double precision and against Python's integers."""

import ctypes
import math
import shutil
import subprocess

import numpy as np
import pytest

from lehr.base import options
from lehr.compiler.emit import header
from lehr.compiler.run import toolchain
from tests.emit.harness import build_c

UNARY = ("exp exp2 expm1 log log2 log10 log1p sqrt tanh erf sin cos tan asin acos atan sinh cosh "
         "asinh acosh atanh erfc lgamma floor ceil trunc rint abs").split()
BINARY = "pow atan2 hypot fmod remainder floor_divide copysign maximum minimum".split()
NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh",
         "acosh": "arccosh", "atanh": "arctanh", "atan2": "arctan2", "pow": "power"}
# Units in the last place, measured over every exponent: those computed in double are rounded once.
ULP = dict.fromkeys((*UNARY, *BINARY), 0.52) | {
    "exp": 1.4, "exp2": 1.1, "expm1": 1.5, "log": 1.0, "log2": 1.6, "log1p": 1.4, "tanh": 1.5,
    "erf": 1.5, "sin": 1.5, "cos": 1.5}
EXACT = "floor ceil trunc rint abs fmod remainder floor_divide copysign maximum minimum".split()

EXPORT = '__attribute__((visibility("default"))) void'


def loop(name, call, count, kind="float", result=None):
    args = "".join(f"const {kind} *restrict a{i} = p[{i + 2}];" for i in range(count))
    values = ", ".join(f"a{i}[i]" for i in range(count))
    result = result or kind
    return (f"{EXPORT} {name}(void **p) {{ int64_t n = *(int64_t *)p[0]; {result} *restrict y = "
            f"p[1]; {args} for (int64_t i = 0; i < n; i++) y[i] = {call}({values}); }}\n")


def call(library, name, result, *arrays):
    y = np.empty(len(arrays[0]), result)
    n = ctypes.c_int64(len(y))
    arrays = [np.ascontiguousarray(a) for a in arrays]
    at = [ctypes.addressof(n), y.ctypes.data, *(a.ctypes.data for a in arrays)]
    library.entry(name)((ctypes.c_void_p * len(at))(*at))
    return y


@pytest.fixture(scope="module")
def single():
    body = "".join(loop(f"k_{n}", f"lehr_{n}_f32", 1) for n in UNARY)
    return build_c(body + "".join(loop(f"k_{n}", f"lehr_{n}_f32", 2) for n in BINARY), "math")


def points():
    rng = np.random.default_rng(0)
    every = np.arange(0, 1 << 32, 40009, dtype=np.uint64).astype(np.uint32).view(np.float32)
    special = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38,
               -3.4028235e38, 0.5, -0.5, 2, 1.5, 2.5, 88.72284, 88.73, -103.98, -87.4, 89, 3.93,
               np.pi, np.pi / 2, 1e22, 16777216, -126, -149, 128, 127.99999]
    return np.concatenate([every, np.array(special, np.float32),
                           rng.standard_normal(40000) * 3, 1 + rng.standard_normal(20000) * 1e-3,
                           np.linspace(-110, 110, 40000)]).astype(np.float32)


def reference(name, *arrays):
    wide = [a.astype(np.float64) for a in arrays]
    if name in EXACT:
        return getattr(np, name)(*arrays).astype(np.float64)
    if name in ("erf", "erfc"):
        return np.vectorize(getattr(math, name), otypes=[float])(*wide)
    if name == "lgamma":
        return np.vectorize(_lgamma, otypes=[float])(*wide)
    return getattr(np, NUMPY.get(name, name))(*wide)


def _lgamma(x):
    if math.isinf(x) or (x <= 0 and x == math.floor(x)):
        return math.inf
    try:
        return math.lgamma(x) if not math.isnan(x) else x
    except OverflowError:
        return math.inf


def ulps(have, want):
    """(the largest error in units of the last place, values that are wrong kinds of number)."""
    single = want.astype(np.float32)
    good = np.isfinite(single) & np.isfinite(have)
    kinds = ~good & ~((have == single) | (np.isnan(have) & np.isnan(single)))
    kinds |= (want == 0) & (np.signbit(want) != np.signbit(have))
    unit = np.spacing(np.maximum(np.abs(want), 1.1754944e-38).astype(np.float32)).astype(np.float64)
    error = np.abs(have.astype(np.float64) - want) / np.minimum(unit, 2.0 ** 104)
    return np.where(good, error, 0), kinds


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", UNARY)
def test_unary(single, name):
    x = points()
    if name in ("erf", "erfc", "lgamma"):
        x = x[::4] if name != "lgamma" else x[(np.abs(x) < 1e6) | ~np.isfinite(x)][::4]
    have = call(single, f"k_{name}", np.float32, x)
    error, kinds = ulps(have, reference(name, x))
    assert not kinds.any(), (x[kinds][:5], have[kinds][:5])
    assert error.max() <= ULP[name], (x[error.argmax()], error.max())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BINARY)
def test_binary(single, name):
    rng = np.random.default_rng(1)
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-45, -1e-45, 3.4e38, -3.4e38,
                        0.5, -0.5, 2, -2, 3, -3, 2.5, 1e10, -1e10, 16777217, 7, -7], np.float32)
    a, b = (v.ravel() for v in np.meshgrid(special, special))
    bits = [rng.integers(0, 1 << 32, 40000, dtype=np.uint32).view(np.float32) for _ in range(2)]
    a = np.concatenate([a, rng.standard_normal(40000) * 5, bits[0],
                        np.exp(rng.standard_normal(40000) * 3)]).astype(np.float32)
    b = np.concatenate([b, rng.standard_normal(40000) * 5, bits[1],
                        rng.standard_normal(40000) * 10]).astype(np.float32)
    have = call(single, f"k_{name}", np.float32, a, b)
    want = reference(name, a, b)
    error, kinds = ulps(have, want)
    if name in ("maximum", "minimum"):
        kinds &= want != 0  # of two zeros either will do
    assert not kinds.any(), (a[kinds][:5], b[kinds][:5], have[kinds][:5])
    assert error.max() <= (0 if name in EXACT else ULP[name])


POWERS = ["1.7f", "-0.5f", "3.0f", "0.0f", "2.5f", "-3.0f"]


def raised(y):
    return loop(f"k_{POWERS.index(y)}", "TO", 1).replace("TO(a0[i])", f"lehr_pow_f32(a0[i], {y})")


@pytest.mark.filterwarnings("ignore")
def test_constant_power(single):
    """A power known to the compiler has the bits of any other, and vectors."""
    made = build_c("".join(map(raised, POWERS)), "powers")
    x = points()
    for n, y in enumerate(POWERS):
        want = call(single, "k_pow", np.float32, x, np.full_like(x, float(y[:-1])))
        np.testing.assert_array_equal(call(made, f"k_{n}", np.float32, x), want)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc says what it did")
@pytest.mark.parametrize("y", POWERS)
def test_constant_power_has_vectors(y, tmp_path):
    source = "\n".join(("#include <stdint.h>", header.prelude([raised(y)]), raised(y)))
    (tmp_path / "power.c").write_text(source)
    words, _ = toolchain.flags("gcc", options.default())
    said = subprocess.run(["gcc", *words, "-w", "-fopt-info-vec", "-c", "power.c"], cwd=tmp_path,
                          capture_output=True, text=True, check=True).stderr
    assert "loop vectorized" in said


# Integers

WIDTHS = {"u8": np.uint8, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}
INTEGER = "floor_divide trunc_divide remainder fmod shl shr gcd pow maximum minimum".split()


def wrapped(value, dtype):
    bits = 8 * np.dtype(dtype).itemsize
    value &= (1 << bits) - 1
    return value - (1 << bits) if np.iinfo(dtype).min and value >> (bits - 1) else value


def integer(name, a, b, dtype):
    """In Python's own integers."""
    bits = 8 * np.dtype(dtype).itemsize
    if name in ("floor_divide", "remainder"):
        return (a // b if name == "floor_divide" else a % b) if b else 0
    if name in ("trunc_divide", "fmod"):
        q = (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1) if b else 0
        return q if name == "trunc_divide" else a - q * b if b else 0
    if name in ("shl", "shr"):
        if not 0 <= b < bits:
            return 0 if name == "shl" or a >= 0 else -1
        return a << b if name == "shl" else a >> b
    if name == "pow":
        if b < 0:
            return {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)
        return pow(a, b, 1 << 64)
    return {"gcd": math.gcd, "maximum": max, "minimum": min}[name](a, b)


@pytest.fixture(scope="module")
def whole():
    names = {"u8": "uint8_t", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t"}
    body = "".join(loop(f"k_{n}_{t}", f"lehr_{n}_{t}", 2, kind)
                   for n in INTEGER for t, kind in names.items())
    return build_c(body, "integers")


@pytest.mark.parametrize("t", WIDTHS)
@pytest.mark.parametrize("name", INTEGER)
def test_integer(whole, name, t):
    dtype = WIDTHS[t]
    info = np.iinfo(dtype)
    rng = np.random.default_rng(2)
    edge = [0, 1, 2, 3, 5, 7, 8, 31, 63, 64, 100, info.max, info.max - 1, info.min, info.min + 1]
    edge += [-1, -2, -3, -7, -64] if info.min else []
    a, b = (v.ravel().astype(dtype) for v in np.meshgrid(np.array(edge, object),
                                                         np.array(edge, object)))
    a = np.concatenate([a, rng.integers(info.min, info.max, 500, dtype)])
    b = np.concatenate([b, rng.integers(-9 if info.min else 0, 9, 500, dtype)])
    have = call(whole, f"k_{name}_{t}", dtype, a, b)
    for x, y, z in zip(a.tolist(), b.tolist(), have.tolist(), strict=True):
        if name == "fmod" and y == 0 or name == "remainder" and y == 0:
            continue  # callers check
        assert z == wrapped(integer(name, x, y, dtype), dtype), (name, x, y)


def test_names():
    """A source takes what it names, and what that names, once; nobody else's names pass."""
    taken = header.prelude(["lehr_log1p_f32(x) + lehr_gcd_i16(a, b)"])
    assert taken.count("lehr_split_f32(float x, float *e)") == 1
    assert "LEHR_GCD(i16, int16_t, uint16_t, 16)" in taken and "lehr_sin_f32" not in taken
    with pytest.raises(LookupError, match="lehr_no_such_f32"):
        header.prelude(["lehr_no_such_f32(x)"])
