"""Orthogonal polynomials (`lehr.special`), by their three-term recurrences.

The degree is a tensor too: an element's value is taken when the recurrence has reached its degree.
A negative degree gives 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from lehr.ops import rule
from lehr.ops.registry import POINTWISE, op


class Family(NamedTuple):
    """p[0] = 1, p[1] = `first`(x), p[k + 1] = `step`(k, x, p[k], p[k - 1]).

    `shifted`: at 2x - 1.
    """

    about: str
    first: Callable[[Any], Any]
    step: Callable[[int, Any, Any, Any], Any]
    shifted: bool = False


def _double(k, x, p, q):
    return 2 * x * p - q


FAMILIES = {
    "chebyshev_polynomial_t": Family("Chebyshev's of the first kind", lambda x: x, _double),
    "chebyshev_polynomial_u": Family("Chebyshev's of the second kind", lambda x: 2 * x, _double),
    "chebyshev_polynomial_v": Family("Chebyshev's of the third kind", lambda x: 2 * x - 1, _double),
    "chebyshev_polynomial_w": Family("Chebyshev's of the fourth kind", lambda x: 2 * x + 1,
                                     _double),
    "hermite_polynomial_h": Family("Hermite's (physicists')", lambda x: 2 * x,
                                   lambda k, x, p, q: 2 * x * p - 2 * k * q),
    "hermite_polynomial_he": Family("Hermite's (probabilists')", lambda x: x,
                                    lambda k, x, p, q: x * p - k * q),
    "laguerre_polynomial_l": Family("Laguerre's", lambda x: 1 - x,
                                    lambda k, x, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1)),
    "legendre_polynomial_p": Family("Legendre's", lambda x: x,
                                    lambda k, x, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1)),
}
FAMILIES |= {f"shifted_{name}": f._replace(about=f"shifted {f.about}", shifted=True)
             for name, f in FAMILIES.items() if name.startswith("chebyshev")}


def _evaluate(np, family, x, n):
    x, n = np.broadcast_arrays(x, np.trunc(n))
    at = 2 * x - 1 if family.shifted else x
    before, here = np.ones_like(at), family.first(at)
    out = np.where(n == 0, before, 0)
    for k in range(1, int(np.max(n, initial=0)) + 1):
        out = np.where(n == k, here, out)
        before, here = here, family.step(k, at, here, before)
    return out


def _declare(name: str, family: Family) -> None:
    @op(f"{name}(input: Tensor | Scalar, n: Tensor | Scalar) -> Tensor")
    class polynomial:
        kind, rule, where, host, nondiff = POINTWISE, rule.float_binary, "special", True, True
        __doc__ = f"Polynomials of degree n: {family.about}."
        dtypes = "float int"
        # Three-term recurrences lose a few digits; PyTorch switches to trigonometry.
        tolerance = {"float32": (1e-4, 1e-4)}

        def eager(np, x, n):
            return _evaluate(np, family, x, n)

        def samples(s):
            yield s(s.f(3, 4, domain=(-0.9, 0.9)), s.i(4, low=-1, high=5))._replace(derive=False)
            yield s(s.f(4), 3)._replace(derive=False)
            yield s(s.any(3), 2)._replace(derive=False)


for _name, _family in FAMILIES.items():
    _declare(_name, _family)
