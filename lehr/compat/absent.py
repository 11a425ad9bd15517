"""Parts of PyTorch that lehr does not have: what each is, and what to do instead.

Keys are dotted names; the longest one that is, or contains, a missing name describes it.
"""

from __future__ import annotations

from typing import NamedTuple


class Part(NamedTuple):
    """what: the part in a few words; instead: the way out."""

    what: str
    instead: str


GUARD = "leave the line out, or guard it: if hasattr(...)"

PARTS: dict[str, Part] = {
    "torch": Part("a name of PyTorch that lehr lacks", GUARD),
    "torch.Tensor": Part("a method of tensors that lehr lacks",
                         "write it with other operations"),
    **{name: Part("half-precision complex numbers, which numpy cannot hold",
                  "use complex64: x.cfloat()")
       for name in ("torch.complex32", "torch.chalf", "torch.Tensor.chalf")},
    **{f"torch.{name}": Part("an unsigned integer type that lehr lacks", "use int64")
       for name in ("uint16", "uint32", "uint64")},
    "torch.hash_tensor": Part("a hash whose type, uint64, lehr lacks",
                              "hash the bytes: hashlib.sha256(x.numpy())"),
    "torch.nn": Part("a layer or function that lehr lacks",
                     "write it as an nn.Module over the operations that there are"),
    "torch.fx": Part("graphs of Python programs that the program itself rewrites",
                     "lehr.compile captures graphs, but hands none out: change the module's code"),
    "torch.jit": Part("TorchScript", "leave it out: lehr.compile makes Python fast"),
    "torch.onnx": Part("export to ONNX", "save the weights and export where PyTorch is installed"),
    "torch.sparse": Part("a function of sparse tensors that lehr lacks",
                         "work on x.coalesce()'s indices() and values(), or on x.to_dense()"),
    **{f"torch.sparse_{kind}_tensor": Part("compressed sparse tensors",
                                           "torch.sparse_coo_tensor takes coordinates")
       for kind in ("csr", "csc", "bsr", "bsc", "compressed")},
    "torch.nested": Part("nested tensors", "pad the sequences: nn.utils.rnn.pad_sequence"),
    "torch.ao": Part("quantization", "keep the model in float32 or bfloat16"),
    "torch.quantization": Part("quantization", "keep the model in float32 or bfloat16"),
    "torch.distributed.rpc": Part("remote procedure calls between processes",
                                  "use collectives (torch.distributed.all_reduce, ...)"),
    "torch.distributed.pipelining": Part("pipeline parallelism", "use DistributedDataParallel"),
    "torch.distributed.fsdp": Part("sharded data parallelism", "use DistributedDataParallel"),
    "torch.distributed.tensor": Part("tensors spread over processes",
                                     "use DistributedDataParallel"),
    "torch.distributed": Part("communication between processes that lehr lacks",
                              "use the collectives that there are (see docs/run.md)"),
    "torch.cuda": Part("a function of CUDA devices that lehr lacks", GUARD),
    "torch.backends": Part("a switch of a library that lehr does not use", GUARD),
    "torch._C": Part("a part of PyTorch's own C++ code", GUARD),
    "torch._dynamo": Part("a part of PyTorch's own compiler", GUARD),
    "torch._inductor": Part("a part of PyTorch's own compiler", GUARD),
    "torch.ops": Part("an operator of PyTorch's or an extension's C++ code",
                      "declare it in Python: torch.library.custom_op"),
    "torch.utils.cpp_extension": Part("building C++ extensions of PyTorch",
                                      "declare the operator in Python: torch.library.custom_op"),
    "torch.utils.data": Part("a part of the data tools that lehr lacks",
                             "write a Dataset, IterableDataset or Sampler"),
    "torchvision": Part("a part of torchvision that lehr lacks",
                        "write it over torch and PIL"),
    "torchvision.datasets": Part("a data set of torchvision that lehr lacks",
                                 "read the files with a Dataset of your own"),
    "torchvision.models": Part("a model of torchvision that lehr lacks",
                               "write it as an nn.Module"),
}


def part(name: str) -> Part:
    """The part that a missing name belongs to."""
    while name not in PARTS and "." in name:
        name = name.rpartition(".")[0]
    return PARTS.get(name, PARTS["torch"])

# Methods of PyTorch's tensors that lehr's lack. Where a program calls one on a value of unknown
# type, it may be another class's: `lehr run --check` says so.
METHODS = frozenset(
    "ccol_indices chalf col_indices crow_indices dequantize geqrf int_repr is_distributed orgqr "
    "ormqr q_scale q_zero_point qscheme record_stream row_indices slice_inverse smm "
    "sparse_resize_ to_mkldnn to_padded_tensor to_sparse_bsc to_sparse_bsr to_sparse_csc "
    "to_sparse_csr xpu".split())
