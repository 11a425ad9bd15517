"""Bessel's and Airy's functions: published values, and identities at every size of argument."""

import math

import numpy as np
import pytest

import lehr

# DLMF, chapters 9 and 10.
VALUES = [("bessel_j0", 1.0, 0.7651976865579666), ("bessel_j1", 1.0, 0.44005058574493355),
          ("bessel_y0", 1.0, 0.08825696421567698), ("bessel_y1", 1.0, -0.7812128213002887),
          ("bessel_j0", 1000.0, 0.024786686152420174), ("airy_ai", 1.0, 0.13529241631288141),
          ("airy_ai", 0.0, 0.3550280538878172), ("airy_ai", -5.0, 0.35076100902411431),
          ("modified_bessel_k0", 1.0, 0.42102443824070834),
          ("modified_bessel_k1", 1.0, 0.6019072301972346)]


@pytest.mark.parametrize(("name", "x", "want"), VALUES)
def test_values(name, x, want):
    got = getattr(lehr.special, name)(lehr.tensor(x, dtype=lehr.float64)).item()
    assert got == pytest.approx(want, rel=1e-12)


SIZES = lehr.tensor(np.geomspace(1e-3, 1e8, 200))


def test_wronskian():
    """J1 Y0 - J0 Y1 = 2 / (pi x): DLMF 10.5.2."""
    j0, j1, y0, y1 = (getattr(lehr.special, f"bessel_{n}")(SIZES) for n in ("j0", "j1", "y0", "y1"))
    assert lehr.allclose((j1 * y0 - j0 * y1) * SIZES * math.pi / 2, lehr.ones_like(SIZES),
                         rtol=0, atol=1e-7)


def test_modified_wronskian():
    """I0 K1 + I1 K0 = 1 / x: DLMF 10.28.2, with both scaled."""
    s = lehr.special
    left = s.i0e(SIZES) * s.scaled_modified_bessel_k1(SIZES)
    right = s.i1e(SIZES) * s.scaled_modified_bessel_k0(SIZES)
    assert lehr.allclose((left + right) * SIZES, lehr.ones_like(SIZES), rtol=0, atol=1e-12)
