"""Apple's GPUs: none here."""


def is_available() -> bool:
    """False."""
    return False


def is_built() -> bool:
    """False."""
    return False


def is_macos_or_newer(major: int, minor: int) -> bool:
    """False: lehr runs on Linux."""
    return False


def is_macos13_or_newer(minor: int = 0) -> bool:
    """False: lehr runs on Linux."""
    return False
