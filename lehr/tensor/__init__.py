"""Eager tensors: storage, dispatch, autograd, and the public functions and methods."""

from lehr.tensor import api as api  # fills the op registry and binds it to tensors
