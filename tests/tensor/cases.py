"""Expressions whose results torch has decided: each is evaluated with `torch` standing for lehr.

`golden.json` beside this file keeps what torch said, for machines without it; where torch is
installed the file itself is checked. `python -m tests.tensor.cases` writes it again.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).with_name("golden.json")

# Values that the expressions may use.
SETUP = """
t = torch.tensor([1.0, 2.0]); i = torch.tensor([3, 1, 2]); b = torch.tensor([True, False])
m = torch.arange(6.0).reshape(2, 3); a = np.array([3.0, 4.0]); z = torch.tensor(2.5)
g = torch.tensor([1.0, 2.0], requires_grad=True); e = torch.zeros(0); h = m.to(torch.bfloat16)
c = torch.arange(24.0).reshape(2, 3, 4)
"""

CREATION = """
torch.tensor([np.float64(1.0)]).dtype
torch.tensor([np.float32(1.0)]).dtype
torch.tensor([np.int32(1)]).dtype
torch.tensor(np.float64(1)).dtype
torch.tensor([a, a])
torch.tensor([True, 2])
torch.tensor([True, 2.0])
torch.tensor([[1, 2], [3]])
torch.tensor('a')
torch.tensor(['a'])
torch.tensor([None])
torch.tensor(None)
torch.tensor([2**63])
torch.tensor(2**64)
torch.tensor([[1], 2])
torch.tensor([1, [2]])
torch.tensor([])
torch.tensor([[], []])
torch.tensor([t, t])
torch.tensor([torch.tensor(1), 2.5])
torch.tensor([torch.tensor(1.0, dtype=torch.float64), 2])
torch.tensor([z, z * 2])
torch.tensor(range(3))
torch.tensor({1: 2})
torch.tensor({1, 2})
torch.tensor(1j)
torch.tensor([1 + 2j, 3])
torch.tensor([1, 2], dtype=torch.float16)
torch.tensor(300, dtype=torch.uint8)
torch.tensor(-1, dtype=torch.uint8)
torch.tensor(1.7, dtype=torch.int32)
torch.tensor(float('nan'), dtype=torch.int32)
torch.tensor(b'abc')
torch.tensor((1, 2.5))
torch.tensor(np.array([1, 2], dtype='>i4'))
torch.tensor([1.5], dtype=torch.bool)
torch.tensor(a, requires_grad=True)
torch.tensor([1], requires_grad=True)
torch.tensor(a, dtype=torch.int8)
torch.tensor(np.arange(6)[::-2].copy())
torch.as_tensor(a).data_ptr() == a.ctypes.data
torch.as_tensor(t) is t
torch.as_tensor(t, dtype=torch.int64)
torch.as_tensor([1, 2.5])
torch.from_numpy([1])
torch.from_numpy(np.arange(3)[::-1])
torch.from_numpy(np.array(['a']))
torch.from_numpy(np.arange(6).reshape(2, 3).T).stride()
torch.asarray([1, 2], dtype=torch.float32)
torch.asarray(a, copy=True).data_ptr() == a.ctypes.data
torch.asarray([1], copy=False)
torch.frombuffer(bytearray(b'\\x01\\x02\\x03\\x04'), dtype=torch.int16)
torch.frombuffer(bytearray(b'\\x01\\x02\\x03'), dtype=torch.int16)
torch.frombuffer(bytearray(b'\\x01\\x02\\x03\\x04'), dtype=torch.uint8, count=2, offset=1)
torch.frombuffer(bytearray(b'\\x01'), dtype=torch.uint8, count=2)
torch.from_dlpack(a)
torch.zeros(2, 3)
torch.zeros((2, 3), dtype=torch.int32)
torch.zeros(size=(2,))
torch.zeros([])
torch.zeros(2, requires_grad=True)
torch.ones(2, dtype=torch.bool)
torch.full((2,), 3)
torch.full((2,), 3.0)
torch.full((2,), True)
torch.full((2,), 3, dtype=torch.float64)
torch.full((), 1)
torch.arange(5)
torch.arange(1, 2.5, 0.5)
torch.arange(5.0)
torch.arange(1, 10, 3)
torch.arange(5, 0, -2)
torch.arange(0)
torch.arange(3, dtype=torch.float16)
torch.arange(1, 0)
torch.linspace(0, 1, 5)
torch.linspace(0, 1, 1)
torch.logspace(0, 2, 3)
torch.eye(2, 3)
torch.eye(2, dtype=torch.int64)
torch.zeros_like(i)
torch.ones_like(i, dtype=torch.float32)
torch.full_like(t, 7)
torch.empty_like(m.t()).stride()
torch.zeros_like(m.t(), memory_format=torch.contiguous_format).stride()
torch.empty(2, 3, 4, 5, memory_format=torch.channels_last).stride()
torch.empty_strided((2, 3), (1, 2)).stride()
t.new_zeros(2, 3)
t.new_full((2,), 5)
i.new_tensor([1.5])
i.new_ones((2, 2))
t.new_empty((2, 0)).shape
torch.tril_indices(3, 3)
torch.complex(t, t)
torch.scalar_tensor(3)
torch.rand(2, 3).shape
torch.randn((2, 3)).dtype
torch.randint(3, (2,)).dtype
torch.randint(1, 3, (2,)).shape
torch.randint(low=1, high=2, size=(2,))
torch.randperm(4).sort()[0]
torch.normal(0.0, 1.0, (2, 2)).shape
torch.normal(t, t).shape
torch.rand(2, dtype=torch.int64)
torch.rand_like(t).shape
torch.randint_like(t, 3).dtype
torch.Tensor(2, 3).shape
torch.Tensor([1, 2])
torch.Tensor().shape
torch.FloatTensor([1, 2])
torch.LongTensor([1, 2])
torch.LongTensor([1.5])
torch.Tensor(2.5)
torch.Tensor(torch.Size([2, 3])).shape
isinstance(t, torch.FloatTensor)
isinstance(t, torch.LongTensor)
torch.zeros(2, device='meta')
torch.zeros(2, 3, device='meta') + 1
torch.zeros(-1)
torch.zeros(2, device='nonsense')
torch.range(0, 2)
"""

PROTOCOLS = """
t + a
t * a
t - a
t == a
t + np.float64(2)
torch.add(t, np.float64(2))
torch.mul(t, np.int64(2))
torch.full((2,), np.float32(1.5))
i * np.float32(2)
t.mul_(np.float64(3))
np.float64(2) * t
np.float32(2) * t
np.sin(t)
t + [1, 2]
[1, 2] + t
2 ** t
t ** 2
t // 2
2 // t
7 % t
5 - t
t @ 2
t @ t
~t
~b
-t
+t
abs(-t)
b & True
b | b
b ^ b
i << 1
i >> 1
t << 'a'
i & 2
t is None
t != None
t == None
t < 1.5
1.5 < t
len(torch.ones(()))
list(torch.ones(()))
len(m)
[x.tolist() for x in m]
list(t)
'a' in t
1 in t
5 in t
f'{z:.3f}'
f'{t:.3f}'
f'{t}'
t.__index__()
[1, 2, 3][torch.tensor(1)]
int(t)
int(z)
bool(t)
bool(z)
bool(e)
complex(z)
float(t)
t.item()
e.item()
z.item()
i[0].item()
b[0].item()
hash(t) == id(t)
g.numpy()
np.asarray(g)
g.detach().numpy()
h.numpy()
np.asarray(t)
np.array([t, t])
np.array(z)
t.__array__(np.float64)
t.tolist()
m.tolist()
z.tolist()
h.tolist()
copy.deepcopy(g)
copy.deepcopy(g * 2)
copy.deepcopy(g).requires_grad
copy.copy(t)
pickle.loads(pickle.dumps(t))
pickle.loads(pickle.dumps(m.t())).stride()
reversed(t)
range(torch.tensor(3))
t.shape + (1,)
t.shape * 2
t.shape[0]
m.shape[:1]
torch.Size([2, 3]).numel()
t.size(5)
z.size(0)
m.size(-1)
m.stride()
m.stride(0)
m.dim()
m.numel()
m.nelement()
m.element_size()
m.nbytes
m.itemsize
m.is_contiguous()
m.t().is_contiguous()
m.ndim
m.device
m.layout
m.dtype
m.requires_grad
m.is_leaf
m.grad
m.grad_fn
m.is_cuda
m.is_sparse
m.storage_offset()
m[1].storage_offset()
m.is_floating_point()
m.is_complex()
m.is_signed()
m.type()
i.type()
b.type()
m.type(torch.int64)
m.type('torch.DoubleTensor').dtype
m.to(torch.float64).dtype
m.to('cpu') is m
m.to('cpu', torch.int32).dtype
m.to(i).dtype
m.to(torch.float32, copy=True) is m
m.to(m) is m
m.to(dtype=torch.float16).dtype
c.to(memory_format=torch.channels_last)
torch.zeros(1, 2, 3, 4).to(memory_format=torch.channels_last).stride()
m.half().dtype
m.double().dtype
m.int()
m.long().dtype
m.bool()
m.bfloat16().dtype
m.char().dtype
m.byte().dtype
m.short().dtype
m.cpu() is m
m.float() is m
m.type_as(i).dtype
m.contiguous() is m
m.t().contiguous().stride()
m.view(-1).shape
m.view(3, 2)
m.view(4, 2)
m.t().view(6)
m.view(torch.int32).dtype
m.view(torch.float64)
m.reshape(-1)
m.t().reshape(6)
m.flatten()
m.unflatten(1, (3, 1)).shape
m.T.shape
c.mT.shape
m.H.shape
m.split(2, 1)
m.split([1, 2], 1)
m.split([1, 1], 1)
m.chunk(2, 1)
m.unbind()
m.unbind(1)
m.tensor_split(2, 1)
m.expand(2, 2, 3).shape
m.expand(3, 3)
m.repeat(2, 1).shape
m.squeeze().shape
m.unsqueeze(0).shape
m.unsqueeze(5)
c.permute(2, 0, 1).shape
c.permute(dims=(2, 0, 1)).shape
c.permute(0, 0, 1)
c.transpose(0, 2).shape
c.movedim(0, -1).shape
m.flip(dims=(0,))
m.sum(axis=1)
m.sum(dim=1, keepdims=True)
torch.softmax(m, axis=0)
torch.cat([t, t], axis=0)
torch.stack((t, t))
torch.concat([t, t])
m.max()
m.max(1)
m.max(dim=0).values
m.min(1, keepdim=True)
m.topk(2)
m.sort(descending=True)
torch.where(m > 2)
torch.where(m > 2, m, 0.0)
torch.nonzero(m > 2)
torch.nonzero(m > 2, as_tuple=True)
m[m > 2]
m.masked_fill(m > 2, -1)
torch.add(t, t, alpha=2)
torch.add(t, 1, out=torch.zeros(2))
torch.add(t, 1, out=torch.zeros(2, dtype=torch.int64))
torch.add(g, 1, out=torch.zeros(2))
t.add(1).mul_(2)
i.mul_(1.5)
i.add_(1)
t.add_(torch.ones(3))
t.add_(torch.ones(2, 2))
t.div_(2)
i.div_(2)
i.floor_divide_(2)
t.clamp_(min=1.5)
t.pow_(2)
t.copy_(i[:2])
t.copy_(torch.ones(3))
t.copy_(3)
torch.matmul(t, 3)
torch.exp(2.0)
torch.cat(t)
t.dot(3)
t.fill_(3)
t.fill_(torch.tensor(3))
t.fill_(torch.ones(2))
t.zero_()
e.fill_(1)
torch.zeros(3, 3).fill_diagonal_(1)
torch.zeros(7, 3).fill_diagonal_(2, wrap=True)
m.sum_to_size(1, 3)
m.sum_to_size(4, 3)
t.apply_(lambda v: v + 1)
t.map_(t, lambda x, y: x * y)
m.t_().shape
m.unsqueeze_(0).shape
torch.ones(2, 1).squeeze_(1).shape
m.resize_(3, 2)
m.resize_(2).shape
t.data
g.data.requires_grad
m.as_strided((2, 2), (1, 2))
m.as_strided((2, 2), (1, 2), 1)
m.as_strided((2, 2), (-1, 2))
m.untyped_storage().nbytes()
m[1].untyped_storage().nbytes()
t.set_(torch.ones(3)).shape
torch.result_type(t, 1)
torch.result_type(i, 1.5)
torch.result_type(torch.tensor(1, dtype=torch.int8), i)
torch.promote_types(torch.int8, torch.float16)
torch.can_cast(torch.float64, torch.int32)
torch.is_tensor(t)
torch.is_floating_point(i)
torch.numel(m)
torch.finfo(torch.float32)
torch.finfo(torch.bfloat16)
torch.iinfo(torch.int16)
torch.finfo(torch.int8)
torch.float32.is_floating_point
torch.int64.itemsize
torch.float32.to_complex()
torch.get_default_dtype()
torch.device('cuda:1')
torch.device('cpu').type
torch.device('cuda', 2).index
torch.device('cpu') == torch.device('cpu')
str(torch.device('cuda:0'))
torch.device('xyz')
torch.strided
torch.channels_last
torch.contiguous_format
torch.is_grad_enabled()
torch.equal(t, t)
t.equal(i[:2])
torch.typename(t)
t.is_same_size(g)
t.element_size()
t.is_set_to(t)
t.get_device()
torch.unique(torch.tensor([2, 1, 2]), return_counts=True)
torch.meshgrid(t, t, indexing='ij')
torch.broadcast_tensors(t, z)
torch.einsum('ij,j->i', m, m[0])
torch.nn.functional.one_hot(i)
torch.nn.functional.elu_(t)
torch.relu_(-t)
torch.sym_int(3)
torch._assert(False, 'no')
torch._check(False)
torch.func.grad(lambda x: (x ** 3).sum())(t)
torch.vmap(torch.dot)(m, m)
"""

ERRORS = """
g.add_(1)
g[0].add_(1)
g.detach_()
(g * 2)[0].detach_()
t.requires_grad_(False)
i.requires_grad_()
(g * 2).requires_grad_(False)
g.backward()
(g * 2).backward()
t.sum().backward()
g.sum().backward(torch.ones(2))
g.sum().backward(inputs=[])
torch.autograd.grad(g.sum(), t)
torch.autograd.grad(g.sum(), torch.ones(2, requires_grad=True))
torch.autograd.grad(g.sum(), torch.ones(2, requires_grad=True), allow_unused=True)
torch.autograd.grad(g.sum(), [torch.ones(2, requires_grad=True)], materialize_grads=True)
torch.autograd.grad((g ** 2).sum(), g, create_graph=True)
torch.autograd.grad([(g ** 2).sum(), g.sum()], g)
torch.autograd.grad(g * 2, g, torch.ones(2))
torch.autograd.grad(g * 2, g, torch.ones(3))
t.register_hook(print)
t.retain_grad()
(g * 2).register_post_accumulate_grad_hook(print)
t.unsqueeze(0).expand(3, 2).add_(1)
t.unsqueeze(0).expand(3, 2).fill_(1)
t.resize_(-1)
g.resize_(3)
t.bernoulli_(2.0)
t.uniform_(1, 0)
t.normal_(0, -1)
i.normal_()
torch.multinomial(torch.ones(2), 3)
t.random_(3, 3)
torch.zeros(2).set_(torch.zeros(2, dtype=torch.int64))
torch.set_default_dtype(torch.int64)
setattr(g, 'grad', torch.ones(3))
setattr(g, 'grad', 3)
setattr(g, 'grad', torch.ones(2, dtype=torch.float64))
setattr(g, 'data', 3)
(g * 2).grad_fn
(g.exp() + 1).grad_fn.next_functions[0][0].name()
g.sum().grad_fn.name()
g.view(1, 2).grad_fn.name()
(g * 2).is_leaf
t.data_ptr() == t[0].data_ptr()
"""


def lines(*blocks: str) -> list[str]:
    return [line for block in blocks for line in block.strip().splitlines()]


CASES = lines(CREATION, PROTOCOLS, ERRORS)


def show(x: Any) -> Any:
    """A result as text that does not depend on the library."""
    if type(x).__name__ in ("Tensor",) and hasattr(x, "stride"):
        return repr(x)
    if isinstance(x, np.ndarray):
        return f"array {x.dtype} {x.tolist()}"
    if isinstance(x, (tuple, list)) and not type(x).__name__ == "Size":
        return "[" + ", ".join(map(str, map(show, x))) + "]"
    if isinstance(x, float) and math.isnan(x):
        return "nan"
    return re.sub(r" object at 0x[0-9a-f]+", "", repr(x))


def evaluate(lib: Any, text: str) -> str:
    """What an expression gives, or the type of its error."""
    import copy
    import pickle
    space = {"torch": lib, "np": np, "copy": copy, "pickle": pickle, "math": math}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(SETUP, space)
        try:
            return str(show(eval(text, space)))
        except Exception as error:
            return f"raises {type(error).__name__}"


def golden() -> dict[str, str]:
    return json.loads(GOLDEN.read_text("utf-8"))  # type: ignore[no-any-return]


if __name__ == "__main__":
    import torch
    GOLDEN.write_text(json.dumps({text: evaluate(torch, text) for text in CASES}, indent=0) + "\n")
