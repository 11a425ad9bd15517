"""`torch.backends`: switches of the libraries that PyTorch computes with.

lehr computes with its own kernels. The switches keep what they are given, since programs set and
read them; those that choose a precision act on lehr's own setting.
"""

from lehr.backends import (
    cpu,
    cuda,
    cudnn,
    mha,
    mkl,
    mkldnn,
    mps,
    openmp,
    opt_einsum,
    quantized,
)

__all__ = ["cpu", "cuda", "cudnn", "mha", "mkl", "mkldnn", "mps", "openmp", "opt_einsum",
           "quantized"]
