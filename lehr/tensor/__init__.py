"""Eager tensors: storage, dispatch, autograd, and the public functions and methods."""

# The registry is filled and bound to tensors; operators, indexing and `data` are put on the class.
from lehr.tensor import api as api
from lehr.tensor import arithmetic as arithmetic
from lehr.tensor import attend as attend
from lehr.tensor import heap as heap
from lehr.tensor import index as index
from lehr.tensor import layer as layer
from lehr.tensor import memory as memory
from lehr.tensor import native as native
from lehr.tensor import pointwise as pointwise
from lehr.tensor import product as product
from lehr.tensor import setting as setting
