"""oneDNN: an extra of lehr's, for products and convolutions of compiled programs.

`options={"library": "onednn"}` or `LEHR_LIBRARY=onednn` chooses it; without it, lehr computes with
its own kernels and OpenBLAS.
"""


def is_available() -> bool:
    """Whether the extra `onednn` is installed."""
    from lehr.compiler.run import onednn

    return bool(onednn.find())


enabled = False
deterministic = False
allow_tf32 = True
