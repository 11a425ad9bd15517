"""Tensors indexed, written, viewed, compared and made, as people do it."""

import lehr as torch
import lehr.nn.functional as F
from lehr import nn
from styles.case import style

X = [(torch.arange(24.0).view(2, 3, 4) + i,) for i in range(3)]


@style
def arrays_indexing():
    index = torch.tensor([2, 0])

    def f(x):
        return (x[0], x[..., -1], x[:, 1:], x[None], x[:, ::2], x[:, index], x[0, 1, 2],
                x[:, None, 0], x[-1, ..., 1:3], x.narrow(1, 0, 2), x[[0, 1], [1, 2]],
                x.index_select(2, index), x.take_along_dim(x.argsort(-1), -1))
    return f, X, None


@style
def arrays_written():
    kept = torch.zeros(2, 3, 4)

    def f(x):
        y = x.clone()
        y[0, 1] = 7
        y[:, 0] += 1
        y[..., -1].mul_(2)
        y[y > 20] = -1.0
        y[:, [0, 2]] = 0.5
        v = y.view(-1)
        v[3:5] = torch.tensor([1.0, 2.0])
        kept.copy_(y)
        kept[0].add_(1)
        kept[1, 2].fill_(9)
        return y, v.sum(), kept.mean()
    return f, X, lambda: kept


@style
def arrays_shapes():
    def f(x):
        b, t, d = x.shape
        *lead, last = x.size()
        n = x.numel() // b
        y = x.reshape(b, -1).view(b, n).unflatten(1, (t, d))
        s = torch.Size([b, t]) + x.shape[2:]
        return (y.permute(2, 0, 1).contiguous(), y.transpose(0, 1).flatten(1), lead, last, s,
                x.new_zeros(b, d), torch.empty_like(x).fill_(1), x.ndim, len(x), x.stride(),
                x.is_contiguous(), x.T.shape if x.dim() == 2 else x.mT.shape)
    return f, X, None


@style
def arrays_iteration():
    def f(x):
        total = 0
        for row in x:
            for i, v in enumerate(row.unbind(0)):
                total = total + v * i
        a, b = x
        parts = x.split([1, 3], dim=-1)
        return total, a - b, [p.sum() for p in parts], [c.shape for c in x.chunk(2, 1)], list(
            zip(a, b))[0]
    return f, X, None


@style
def arrays_results_with_names():
    def f(x):
        m = x.max(dim=-1)
        values, indices = x.topk(2)
        low = x.min(1, keepdim=True)
        return m.values, m.indices, values, indices, low.values, x.sort(descending=True).indices[0]
    return f, X, None


@style
def arrays_kinds():
    def f(x):
        return (x.to(torch.float64).dtype, x.half().float(), x.long() // 2, (x > 3).int(), x.bool(),
                x.type_as(torch.ones(1).double()), x.to(x.device), x.dtype.is_floating_point,
                torch.is_tensor(x), x.is_floating_point(), torch.finfo(x.dtype).eps,
                torch.tensor(x.shape[1], dtype=x.dtype), torch.result_type(x, 1), x.device.type)
    return f, X, None


@style
def arrays_modes():
    @torch.no_grad()
    def quiet(x):
        return x * 2, torch.is_grad_enabled()

    @torch.inference_mode()
    def inferred(x):
        return x * 3

    def f(x):
        w = torch.ones(4, requires_grad=True)
        y, on = quiet(x * w)
        with torch.set_grad_enabled(False):
            z = x * w
        torch.set_grad_enabled(False)
        u = (x * w).requires_grad
        torch.set_grad_enabled(True)
        with torch.enable_grad():
            v = (x * w).sum()
        return (y, on, z.requires_grad, u, inferred(x), v.requires_grad, torch.is_grad_enabled(),
                (x * w).detach().requires_grad)
    return f, X, None


@style
def arrays_data():
    """`.data` shares memory and has no history."""
    w = nn.Parameter(torch.ones(4))

    def f(x):
        y = (x * w).sum()
        d = w.data
        d.mul_(0.5)
        w.data.add_(1)
        return y, d, w.data.requires_grad, (x * w.data).requires_grad
    return f, X, lambda: w


@style
def arrays_attention():
    def f(x):
        q = k = v = x.view(2, 3, 2, 2).transpose(1, 2)
        mask = torch.ones(3, 3, dtype=torch.bool).tril()
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        b = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        s = torch.einsum("bhqd,bhkd->bhqk", q, k) / q.size(-1) ** 0.5
        s = s.masked_fill(~mask, float("-inf")).softmax(-1)
        return a, b, torch.einsum("bhqk,bhkd->bhqd", s, v)
    return f, X, None


@style
def arrays_scatter():
    def f(x):
        index = (x.long() % 3).clamp(0, 2)
        z = torch.zeros(2, 3, 4)
        out = [z.scatter(1, index, x), z.scatter_add(1, index, x), x.gather(1, index),
               z.index_add(1, torch.tensor([0, 2]), x[:, :2]),
               torch.where(x > 5, x, -x), x.cumsum(-1), x.roll(1, dims=1), x.flip(0),
               torch.zeros(4).index_put((torch.tensor([1, 1]),), torch.ones(2), accumulate=True)]
        return out
    return f, X, None


@style
def arrays_constants():
    """Tensors made inside: each call has its own."""
    def f(x):
        a = torch.arange(x.shape[-1], device=x.device, dtype=x.dtype)
        b = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        c = torch.linspace(0, 1, 4) + torch.eye(4)[0] + torch.full((4,), 2)
        a += 1
        b[0, 0] = 5
        return x * a * c, b, torch.ones_like(x), torch.tensor(3), torch.triu(torch.ones(3, 3), 1)
    return f, X, None


@style
def arrays_comparisons_in_python():
    """Branches on what is known of a tensor without its data."""
    def f(x, mask=None):
        if mask is not None and mask.dim() > 2:
            raise ValueError("mask")
        if x.shape[-1] % 2 == 0 and not x.requires_grad and x.dtype == torch.float32:
            x = x.unflatten(-1, (2, -1)).sum(-1)
        if isinstance(x, torch.Tensor) and x.device == torch.device("cpu") and x is not mask:
            x = x + 1
        return x, x in [x], x.shape == torch.Size([2, 3, 2]), None not in (x.shape, 1)
    return f, X, None


@style
def arrays_grads():
    def f(x):
        w = torch.full((4,), 2.0, requires_grad=True)
        loss = (x * w).pow(2).sum()
        (g,) = torch.autograd.grad(loss, w, create_graph=True)
        h = torch.autograd.grad(g.sum(), w)[0]
        y = torch.nn.Parameter(x[0].clone())
        (y * w.detach()).sum().backward()
        y.grad.zero_()
        y.grad = None
        return g.detach(), h, y.is_leaf, w.grad is None, y.grad
    return f, X, None
