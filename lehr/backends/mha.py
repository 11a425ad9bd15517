"""The switch of PyTorch's short way through `nn.MultiheadAttention` in inference."""

_FAST = [True]


def get_fastpath_enabled() -> bool:
    """What `set_fastpath_enabled` was given."""
    return _FAST[0]


def set_fastpath_enabled(value: bool) -> None:
    """Accepted: results are the same."""
    _FAST[0] = bool(value)
