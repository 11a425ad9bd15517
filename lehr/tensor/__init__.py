"""Eager tensors: storage, dispatch, autograd, and the public functions and methods."""

# The registry is filled and bound to tensors, and operators and indexing are put on the class.
from lehr.tensor import api as api
from lehr.tensor import arithmetic as arithmetic
from lehr.tensor import index as index
