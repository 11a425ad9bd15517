"""oneDNN: lehr computes with its own kernels and OpenBLAS, and with its own threads."""


def is_available() -> bool:
    """False: lehr computes without oneDNN."""
    return False


enabled = False
deterministic = False
allow_tf32 = True
