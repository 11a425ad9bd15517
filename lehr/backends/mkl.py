"""MKL: lehr computes with its own kernels and OpenBLAS, and with its own threads."""


def is_available() -> bool:
    """False: lehr computes without MKL."""
    return False
