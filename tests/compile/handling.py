"""What people do with tensors, for random programs: phrases as in `idioms`."""

from __future__ import annotations

from tests.compile.idioms import paragraphs

HOOKS = paragraphs("""
$u = Tally($x.shape[-1])
$uh = $u.register_forward_hook(lambda m, i, o: o * 2)
$t = $u($x.float())
$uh.remove()
$t = $t, $u($x.float()), $u.calls
del $u, $uh

$u = Tally($x.shape[-1])
$u.register_forward_pre_hook(lambda m, i: (i[0] + 1,))
$t = $u($x.float()) + $u($x.float())
del $u

$u = Tally($x.shape[-1])
$u.register_forward_hook(lambda m, i, k, o: o + len(k), with_kwargs=True)
$t = $u($x.float(), scale=2.0)
del $u

$u = Tally($x.shape[-1])
$u.register_forward_hook(lambda m, i, o: xs.append(o.detach()))
$t = $u($x.float())
del $u

$u = Tally($x.shape[-1])
$u.register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))
$t = $u($x.float() * 1)
$t.sum().backward(retain_graph=True)
$t = $u.weight.grad
del $u

$u = $x.detach().float().requires_grad_()
$uh = $u.register_hook(lambda g: g * 2)
($u * $y).sum().backward(retain_graph=True)
$uh.remove()
($u * 3).sum().backward()
$t = $u.grad
del $uh

$u = $x.detach().float().requires_grad_()
$u.register_hook(lambda g: xs.append(g))
$u.register_hook(lambda g: None)
($u ** 2).sum().backward()
$t = $u.grad, len(xs)

$u = $x.detach().float().requires_grad_()
$u.register_post_accumulate_grad_hook(lambda q: q.grad.mul_(0.5))
($u ** 2).sum().backward()
$t = $u.grad

$t = $x * 2
$t.register_hook(lambda g: g.clamp(-1, 1))
$t = $t * $y

$t = ($x * $y).exp()
$t.grad_fn.register_hook(lambda gi, go: tuple(None if g is None else g * 2 for g in gi))
""")

FUNC = paragraphs("""
$t = torch.func.grad_and_value(lambda q: (q * q).sum())($x.detach().float())

$t = torch.func.vmap(lambda p, q: (p * q).sum(), in_dims=(0, None))($x, $y[0])

$t = torch.func.vmap(torch.func.grad(lambda q: (q ** 3).sum()))($x.detach().float())

$t = torch.func.vmap(lambda q: q * 2, in_dims=-1, out_dims=0)($x)

$t = torch.func.jacrev(lambda q: q.flatten()[:2].sin())($x.detach().float())

$t = torch.func.jacfwd(lambda q: q.flatten()[:2] ** 2)($x.detach().float())

$t = torch.func.hessian(lambda q: (q[:2] ** 3).sum())($x.detach().float().flatten()[:2])

$u, $uf = torch.func.vjp(lambda q: q.sin() * 2, $x.detach().float())
$t = $uf(torch.ones_like($u))
del $uf

$t = torch.func.grad(lambda p, q: (p * q).sum(), argnums=(0, 1))($x.detach().float(), $y.float())

$t = torch.func.grad(lambda p: ((p['a'] * $x).sum() + p['b'] ** 2))(
    {'a': torch.tensor(2.0), 'b': torch.tensor(3.0)})

$u = Tally($x.shape[-1])
$t = torch.func.functional_call($u, {'weight': $u.weight * 3}, ($x.float(),))
del $u

$u = Tally($x.shape[-1])
$t = torch.func.grad(lambda p: torch.func.functional_call($u, p, ($x.float(),)).sum())(
    {k: q.detach() for k, q in $u.named_parameters()})
del $u

$t = torch.vmap(lambda q: torch.where(q > 0, q, -q).cumsum(0))($x)

$t = torch.autograd.functional.vjp(lambda q: q.exp(), $x.detach().float(),
                                    torch.ones_like($x, dtype=torch.float32))

$t = torch.autograd.functional.hessian(lambda q: (q ** 3).sum(), $x.detach().float().flatten()[:2])
""")

MODES = paragraphs("""
with torch.autocast('cpu', dtype=torch.bfloat16):
    $u = torch.nn.functional.linear($x.float(), $x.float())
    with torch.autocast('cpu', enabled=False):
        $t = torch.nn.functional.linear($x.float(), $x.float()) + $u
    $t = $t, $x.float() @ $x.float().t()

with torch.autocast('cpu', dtype=torch.float16), torch.no_grad():
    $t = $x.float() @ $x.float().mT, torch.is_autocast_enabled('cpu')

with torch.autocast('cpu', dtype=torch.bfloat16, enabled=flag):
    $t = $x.float() @ $x.float().mT
    $u = ($t * 2).softmax(-1), torch.is_autocast_enabled('cpu')

@torch.autocast('cpu', dtype=torch.bfloat16)
def $tf(q):
    return q @ q.mT
$t = $tf($x.float())

try:
    with torch.autocast('cpu', dtype=torch.bfloat16):
        $u = $x.float() @ $x.float().mT
        raise KeyError('left')
except KeyError:
    $t = $x.float() @ $x.float().mT, torch.is_autocast_enabled('cpu')

with torch.no_grad():
    $u = $x * 2
    with torch.enable_grad():
        $t = $x * 3
    $t = $t.requires_grad, $u.requires_grad, torch.is_grad_enabled()

@torch.no_grad()
def $tf(q):
    return q * 2, torch.is_grad_enabled()
$t = $tf($x)

with torch.inference_mode():
    $t = ($x * 2).sum(0)
    $t = $t.clone(), $t.is_inference()

try:
    with torch.no_grad():
        $x.nothing
except AttributeError:
    $t = torch.is_grad_enabled(), $x * 2

$u = torch.is_grad_enabled()
torch.set_grad_enabled(not $u)
$t = $x * 2
torch.set_grad_enabled($u)
""")

VIEWS = paragraphs("""
$u = $x[1:]
$t = $u.t()
$t.mul_(2)

$x.view(-1)[::2].add_(1)

$x[::2].view(-1)[1:].sub_(1)

$u = $x.chunk(2, -1)
$u[0].add_($k)
$t = $u[-1] * 2

$u = $x.unsqueeze(0)
$u[:, 0].zero_()
$t = $u.sum(), $x.sum()

$u = $x.t()[0]
$u += $u[:1].clone()
$t = $x * 2

$x.unfold(-1, 2, 2).add_(1)

$u = $x.flatten()
$u[0] = 7
$t = $u, $x.flatten()[0]

$u = $x.detach()
$u[..., 0] = $k
$t = $x + 0

$t = $x.clone()
for $u in $t.unbind(0):
    $u.add_(1)

$t = $x.clone()
for $u in $t:
    $u *= 2

$t = $x.clone()
$u = $t.view(-1)
$u[1:] = $u[:-1].clone()
$t[0] += $u[-1]

$t = torch.zeros_like($x)
$t[..., :1].copy_($x[..., :1])
$t.T[0].neg_()

$u = [q for q in $x.split(1)]
$u[0].fill_(n)
$t = torch.cat($u)

$t = ($x * 1).t().contiguous()
$t.t()[0].add_($y[0])

$t = $x.clone().diagonal()
$t.add_(1)

$t = $x.expand(3, *$x.shape)
$u = $t[1:].clone()
$u[0].zero_()
$t = $t + $u[0]

$u = $x.view($x.shape)
$u.requires_grad_(False).add_(1)
$t = $u is $x, $x * 1

$t = $x.clone().as_strided((2, 2), (1, 1))
$t = $t + $t.t()

$u = $x.clone().swapaxes(0, -1).narrow(0, 0, 1).squeeze(0)
$u.clamp_(0, 1)
$t = $u._base.sum()
""")

SLICES = paragraphs("""
$t = $x[::3], $x[..., ::2], $x[-2:], $x[:-1:2], $x[5:], $x[-100:100]

$t = $x.flip(-1)[..., ::2], $x.flip(0)[:1]

$t = $x[slice(None, None, 2)], $x[(0,)], $x[0, ...], $x[None, 0]

$x[1::2] = $k

$x[..., ::2] += $y[..., ::2]

$x[:, 1:] = $x[:, :-1].clone()

$x[-1:], $x[:1] = $x[:1].clone(), $x[-1:].clone()

$t = $x.unfold(0, 2, 1).sum(-1), $x.unfold(-1, 2, 2).amax(-1)

$t = torch.nn.functional.unfold($x.float()[None, None], 2)

$t = torch.nn.functional.fold(torch.nn.functional.unfold($x.float()[None, None], 1),
                              $x.shape[-2:], 1)

$t = $x[torch.tensor([0, 0])], $x[torch.tensor([[0, -1]])], $x[[0], [0]]

$t = $x[:, torch.tensor([0, 0])], $x[torch.tensor([0]), ..., 0]

$t = $x[torch.arange($x.shape[0]).flip(0)]

$t = $x[True], $x[None, False].shape

$t = $x.tensor_split(2, -1), $x.hsplit(1), $x.view(-1)[1:-1:2]

$t = $x.take(torch.tensor([0, -1])), $x.take_along_dim(torch.zeros_like($x, dtype=torch.int64), 0)

$t = $x.index_select($d, torch.tensor([0, 0])).narrow($d, 1, 1)
""")

MASKS = paragraphs("""
$t = torch.where($x > 0, 1, 0), torch.where($x > 0, $x, 0.5), torch.where($x > $k, 1.0, $y)

$t = torch.where($x > 0, $y, float('nan')).nan_to_num(2.0)

$t = torch.where($x[:1] > 0, $y, -1)

$x[$x > $y] = $y[$x > $y]

$x[$x > 0] += 1

$x[($x > 0) & ($y < 2)] = 0

$x[..., $x[0] > 0] = $k

$x[$x.isnan() | ($x == 0)] = -1

$t = $x.masked_select($x > 0)

$t = torch.where($x > 0)[0]

$t = $x.clone()
$t[torch.ones($x.shape[0], dtype=torch.bool)] = $k

$t = $x.masked_fill(torch.ones_like($x).tril() == 0, float('-inf')).softmax(-1)

$x.masked_fill_($x < 0, $y.flatten()[0].detach())

$t = ($x > 0).nonzero(as_tuple=True), ($x > 0).sum()

$t = ($x > 0).float().cumsum($d), ($x > 0) ^ ($y > 0), ~($x > 0)

$t = torch.where(torch.tensor(flag), $x, $y)

$t = torch.clamp($x, min=$y), torch.clamp($x, torch.tensor(-1), torch.tensor(1))
""")

OUTS = paragraphs("""
$t = torch.empty_like($x)
torch.add($x, $y, out=$t)

$t = torch.zeros_like($x)
torch.mul($x, 2, out=$t[0:])

$u = torch.empty(0, dtype=$x.dtype)
torch.cat([$x.detach(), $y.detach()], out=$u)
$t = $u * 1

$t = torch.empty($x.shape[1:], dtype=$x.dtype)
torch.sum($x.detach(), 0, out=$t)

$t = torch.empty(2, 3)
$u = torch.matmul(torch.ones(2, 4), torch.ones(4, 3), out=$t)
$t = $u is $t, $u

$t = torch.empty_like($x), torch.empty_like($x, dtype=torch.int64)
torch.sort($x.detach(), out=$t)

$t = torch.empty(n)
torch.arange(n, out=$t)
torch.sin($t, out=$t)

with torch.no_grad():
    torch.clamp($x, -1, 1, out=$x)

with torch.no_grad():
    torch.mul($x[0], 2, out=$x[-1])

$t = torch.empty($x.shape, dtype=torch.bool)
torch.gt($x, 0, out=$t)

$t = torch.stack([$x.detach(), $x.detach()], out=torch.empty(0, dtype=$x.dtype))

try:
    torch.add($x, $y, out=torch.empty(1, dtype=torch.int64))
except RuntimeError as error:
    $t = str(error)
""")

SCATTERS = paragraphs("""
$x.index_put_((torch.tensor([0, 0]),), $y[:1], accumulate=True)

$x.index_put_((torch.tensor([0]), torch.tensor([-1])), torch.tensor(2, dtype=$x.dtype))

$x[torch.tensor([0, 0])] += 1

$t = $x.scatter_reduce(0, torch.zeros_like($x, dtype=torch.int64), $y, 'sum')

$t = $x.scatter_reduce($d, torch.zeros_like($x, dtype=torch.int64), $y, 'amax', include_self=False)

$t = $x.scatter_reduce($d, torch.zeros_like($x, dtype=torch.int64), $y, 'mean')

$t = $x.scatter_reduce($d, torch.zeros_like($x, dtype=torch.int64), $y, 'prod', include_self=False)

$x.scatter_reduce_(0, torch.zeros_like($x, dtype=torch.int64), $y, 'amin')

$t = torch.zeros(3, *$x.shape[1:], dtype=$x.dtype).index_add(
    0, torch.arange($x.shape[0]) % 2, $x, alpha=2)

$t = $x.index_reduce(0, torch.tensor([0]), $y[:1], 'amax')

$t = $x.scatter(0, torch.zeros_like($x, dtype=torch.int64), 3)

$x.scatter_add_(0, torch.zeros_like($x, dtype=torch.int64), $y.clone())

$t = torch.bincount(torch.tensor([0, 1, 1, 3]), minlength=n)

$t = torch.histc($x.detach().float(), 4, -2, 2)

$t = torch.zeros(n + 1).scatter_(0, torch.arange(n), 1.0)

$t = torch.zeros($x.shape[0], 4).scatter_(1, torch.arange($x.shape[0])[:, None] % 4, 1)

$x.put_(torch.tensor([0, 1]), torch.ones(2, dtype=$x.dtype), accumulate=True)

$t = $x.select_scatter($y[0], 0, 0), $x.slice_scatter($y[:1], 0, 0, 1)

$t = $x.diagonal_scatter($y.diagonal())
""")

ORDERS = paragraphs("""
$t = $x.cummax($d), $x.cummin($d)

$t = $x.cumprod($d), $x.logcumsumexp($d)

$t = torch.sort($x, stable=True, descending=True)

$t = torch.sort($x * 0, $d, stable=True).indices, ($x > 0).int().sort($d, stable=True)

$t = $x.argsort($d, stable=True), $x.argsort(dim=$d, descending=True, stable=True)

$t = $x.topk(1, $d, largest=False), $x.flatten().topk(2)

$t = $x.topk(2, sorted=True).values.sum(), $x.flatten().topk(min(3, $x.numel())).indices

$u, $ui = $x.sort(-1)
$t = $u.gather(-1, $ui), $x.gather(-1, $ui)

$t = $x.max($d), $x.min($d, keepdim=True), $x.argmax($d), $x.argmin()

$t = torch.quantile($x.float(), 0.5), $x.float().quantile(torch.tensor([0.25, 0.75]), 0)

$t = $x.mode($d), $x.median(), $x.nanmedian()

$t = torch.searchsorted($x.flatten().sort().values, $y.flatten())

$t = $x.unique(return_counts=True), $x.flatten().unique_consecutive()

$t = torch.msort($x), torch.isin($x, torch.tensor([0, 1]))

$t = $x.aminmax(dim=$d), torch.var_mean($x, $d), $x.std($d, correction=0)

$t = torch.cartesian_prod($x.flatten()[:2], $y.flatten()[:2]), torch.combinations($x.flatten()[:3])

$t = torch.trapezoid($x), torch.gradient($x.flatten())[0], $x.diff(n=1, dim=0)
""")

MODULES = paragraphs("""
$u = Tally($x.shape[-1])
$t = [$u($x.float()) for _ in range(2)], $u.calls, $u.seen * 1

$u = Ladder($x.shape[-1], n)
$t = $u($x.float())
$u.steps[0].weight.data.mul_(2)
$t = $t, $u($x.float()), len($u.steps)
del $u

$u = Ladder($x.shape[-1], 3)
$t = [s.bias.sum() for s in $u.steps[1:]], [k for k, _ in $u.named_modules()]
del $u

$u = Shelf($x.shape[-1])
$t = $u($x.float(), 'up' if flag else 'down'), list($u.parts), 'up' in $u.parts
del $u

$u = Shelf($x.shape[-1])
$t = {k: v.shape for k, v in $u.state_dict().items()}
$u.load_state_dict({k: v * 2 for k, v in $u.state_dict().items()})
$t = $t, $u($x.float(), 'up')
del $u

$u = Tally($x.shape[-1])
$u.eval()
$t = $u($x.float()), $u.training, [m.training for m in $u.modules()]
$u.train()
del $u

$u = copy.deepcopy(Tally($x.shape[-1]))
$t = $u($x.float()), $u.seen
del $u

$u = nn.Sequential(Tally($x.shape[-1]), nn.ReLU())
$t = $u($x.float()), $u[0].calls, len($u), [type(m).__name__ for m in $u]
$u.append(nn.Tanh())
$t = $t, $u($x.float())
del $u

$u = Tally($x.shape[-1])
$u.apply(lambda m: setattr(m, 'calls', 5))
$t = $u($x.float()), $u.calls
del $u

$u = Tied($x.shape[-1])
$t = $u($x.float()), $u.a.weight is $u.b.weight, len(list($u.parameters()))
$t[0].sum().backward(retain_graph=True)
$t = $t, $u.a.weight.grad
del $u

$u = Tally($x.shape[-1])
$u.register_buffer('more', $x.detach() * 2)
$u.seen = $u.seen + 3
$t = dict($u.named_buffers()), $u.seen
del $u

$u = nn.ParameterList([torch.ones(2), torch.zeros(2)])
$t = sum(p.sum() for p in $u), len($u)
del $u

$u = Tally($x.shape[-1])
$u.weight.requires_grad_(False)
$t = $u($x.float()).requires_grad
$u.double()
$t = $t, $u.weight.dtype, $u($x.double()).dtype
del $u

$u = Tally($x.shape[-1])
$u.weight = nn.Parameter($u.weight.detach() + 1)
$t = $u($x.float()), [k for k, _ in $u.named_parameters()]
del $u

torch.manual_seed(n)
$u = nn.Linear($x.shape[-1], 2)
nn.init.xavier_uniform_($u.weight)
nn.init.zeros_($u.bias)
$t = $u($x.float())
del $u

torch.manual_seed(n)
$u = nn.GRU($x.shape[-1], 2, batch_first=True)
$t = $u($x.float()[None] if $x.dim() == 2 else $x.float())
del $u

torch.manual_seed(n)
$u = nn.LSTMCell($x.shape[-1], 2)
$uh = (torch.zeros($x.shape[0], 2), torch.zeros($x.shape[0], 2))
for _ in range(n):
    $uh = $u($x.float(), $uh)
$t = $uh
del $u

torch.manual_seed(n)
$u = nn.Embedding(5, 3, padding_idx=0)
$t = $u(torch.tensor([0, 1, 1, 4]))
$t.sum().backward(retain_graph=True)
$t = $t, $u.weight.grad
del $u

torch.manual_seed(n)
$u = nn.MultiheadAttention(4, 2, batch_first=True)
$t = $u(*[torch.ones(1, 3, 4) * n] * 3)
del $u
""")

STEPS = paragraphs("""
for $u in range(2):
    box.opt.zero_grad()
    ((box.net(box.data) - $u) ** 2).mean().backward()
    box.opt.step()
    box.sched.step()
$t = box.sched.get_last_lr()

box.opt.zero_grad()
for $u in box.data.split(1):
    (box.net($u) ** 2).sum().backward()
torch.nn.utils.clip_grad_norm_(box.net.parameters(), 1.0)
box.opt.step()

box.opt.zero_grad()
(box.net(box.data) ** 2).sum().backward()
torch.nn.utils.clip_grad_value_(box.net.parameters(), 0.1)
box.opt.step()

box.sched.step()
$t = [g['lr'] for g in box.opt.param_groups]

for $u in box.opt.param_groups:
    $u['lr'] = $u['lr'] * 0.9

$u = box.net(box.data).sum()
$t = torch.autograd.grad($u, list(box.net.parameters()), allow_unused=True)

box.net.register_forward_hook(lambda m, i, o: o + 1)
$t = box.net(box.data)

for $u in box.net.parameters():
    $u.register_hook(lambda g: g * 0.5)

box.twin = copy.deepcopy(box.net)
with torch.no_grad():
    for $u, $ut in zip(box.twin.parameters(), box.net.parameters()):
        $u.lerp_($ut, 0.5)
$t = box.twin(box.data)

$t = {k: v.clone() for k, v in box.net.state_dict().items()}
box.net.load_state_dict($t)

for $u in box.net.parameters():
    if $u.grad is not None:
        $u.grad = $u.grad * 2
box.opt.step()

box.opt.step(lambda: box.net(box.data).sum())

box.net.zero_grad()
$t = [p.grad is None for p in box.net.parameters()]

$u = torch.amp.GradScaler('cpu')
box.opt.zero_grad()
$u.scale((box.net(box.data) ** 2).mean()).backward()
$u.step(box.opt)
$u.update()
$t = $u.get_scale()
del $u

with torch.autocast('cpu', dtype=torch.bfloat16):
    $u = (box.net(box.data) ** 2).mean()
$u.backward()
$t = $u

$t = len(box.opt.param_groups), sum(p.numel() for g in box.opt.param_groups for p in g['params'])

if not hasattr(box, 'best') or box.best > 3:
    box.best = n
$t = box.best
""")

OPS = paragraphs("""
$t = $x.view(*$x.shape[:-1], -1), $x.expand(-1, -1), torch.einsum('...i->...', $x)

$t = torch.linalg.solve($x.float().mT @ $x.float() + 9 * torch.eye($x.shape[-1]),
                        $x.float().mT)

$t = torch.linalg.norm($x.float()), torch.linalg.vector_norm($x.float(), 1, $d)

$t = torch.fft.rfft($x.float()).abs(), torch.fft.ifft(torch.fft.fft($x.float())).real

$t = torch.bmm($x[None].float(), $x[None].float().mT), torch.addmv($x[:, 0], $x, $x[0])

$t = torch.baddbmm($y[None], $x[None], $x[None].mT, beta=0.5, alpha=2)

$t = F.conv_transpose1d($x.float()[None], torch.ones($x.shape[0], 2, 2), stride=2)

$t = F.max_pool1d($x.float()[None], 2, return_indices=True)

$t = F.adaptive_avg_pool2d($x.float()[None, None], (1, 2)), F.avg_pool2d($x.float()[None, None], 2)

$t = F.nll_loss($x.float().log_softmax(-1), torch.zeros($x.shape[0], dtype=torch.int64))

$t = F.binary_cross_entropy_with_logits($x.float(), ($y > 0).float(), reduction='none')

$t = F.kl_div($x.float().log_softmax(-1), $y.float().softmax(-1), reduction='batchmean')

$t = F.cosine_similarity($x.float(), $y.float(), dim=$d), F.pairwise_distance($x, $y)

$t = F.scaled_dot_product_attention($x.float()[None], $x.float()[None], $y.float()[None],
                                    is_causal=True)

$t = F.scaled_dot_product_attention($x.float()[None], $x.float()[None], $y.float()[None],
                                    attn_mask=torch.ones($x.shape[0], $x.shape[0]).tril().bool())

$t = F.cross_entropy($x.float(), $y.float().softmax(-1), label_smoothing=0.1)

$t = F.interpolate($x.float()[None, None], size=(3, 4), mode='bilinear', align_corners=False)

$t = F.pixel_shuffle($x.float().reshape(1, -1, 1, 1)[:, :4].expand(1, 4, 1, 1), 2)

$t = F.batch_norm($x.float(), None, None, training=True), F.instance_norm($x.float()[None])

$t = F.pad($x, (1, 1), value=2.0), F.pad($x, (-1, 1, 0, 1))

$t = F.pad($x[None], (1, 0), mode='circular')

$t = F.hardtanh($x), F.elu($x), F.leaky_relu($x, 0.2), F.softplus($x), F.mish($x), F.relu6($x)

$t = F.gumbel_softmax($x.float(), hard=True), F.dropout1d($x.float()[None], 0.5)

$t = torch.complex($x, $y) * torch.complex($y, $x), torch.polar($x.abs(), $y).angle()

$t = $x.to(torch.int8).float(), $x.half().double(), $x.to($y.dtype), $x.to($y)

$t = $x.new_zeros(2), $x.new_full((2,), 3), $x.new_tensor([1, 2]), torch.empty_like($x).fill_(1)

$t = torch.as_tensor([n, 2.5]), torch.tensor([[n]], dtype=torch.int32), torch.tensor($x.shape)

$t = torch.tensor([1.0, n]) * 2, torch.scalar_tensor(n), torch.asarray([1, n])

$t = $x.logical_and($y), $x.logical_not(), $x.isclose($y), torch.allclose($x, $x)

$t = torch.special.expit($x), torch.special.xlogy($x.abs(), 2), torch.sinc($x), torch.logit($x)

$t = $x.trunc(), $x.frac(), $x.round(), $x.floor(), $x.ceil(), torch.round($x, decimals=1)

$t = torch.addcdiv($x, $y, $y.abs() + 1, value=2), torch.hypot($x, $y), torch.atan2($x, $y)

$t = $x.cross($y, dim=-1) if $x.shape[-1] == 3 else $x.dist($y)

$t = torch._foreach_mul([$x, $y], 2), torch._foreach_norm([$x.float()])

$t = torch.stack([$x, $y], -1).flatten(1), torch.dstack([$x, $y]), torch.cat((xs[0], xs[0]))

$t = $x.mean((0, 1)), $x.sum((-1,), dtype=torch.float64), $x.amax((0, -1)), $x.norm(1, 0)

$t = $x.squeeze(0), $x.unsqueeze(-1).squeeze(-1), $x.ravel(), $x.moveaxis(0, -1)

$t = torch.cond($x.sum() > 0, lambda q: q * 2, lambda q: q - 1, ($x.detach(),))

$t = torch.multinomial(torch.tensor([0.1, 0.9, 0.5]), 2), torch.normal($x.float(), 1.0)

$x.exponential_()

$t = torch.randn(3, generator=torch.Generator().manual_seed(n))
""")

TAPES = paragraphs("""
$u = $x.detach().double().requires_grad_()
$t = torch.autograd.grad(($u ** 3).sum(), $u, create_graph=True)[0]
$t = torch.autograd.grad($t.sum(), $u)[0]

$u = $x.detach().double().requires_grad_()
($u.sin().sum() + torch.autograd.grad(($u ** 3).sum(), $u, create_graph=True)[0].norm()).backward()
$t = $u.grad

$t = torch.autograd.grad(($x * $y).sum(), [$x, $y], allow_unused=True, retain_graph=True)

$t = torch.autograd.grad($x * 2, $x, grad_outputs=torch.ones_like($x))

$t = ($x * 2).requires_grad_()
$t.backward(torch.ones_like($t), retain_graph=True)

$u = $x.detach().requires_grad_()
(($u * 2).sum() + $x.sum()).backward(inputs=[$u])
$t = $u.grad

$t = Split.apply($x, $y)

$t = Split.apply($x, $y)[1] * 2

$t = Scaled.apply($x, 2.5)
$t.sum().backward(retain_graph=True)

$u = []
with torch.autograd.graph.saved_tensors_hooks(lambda q: kept(names, q), lambda q: q):
    $t = ($x * $y).sin()

$t = torch.utils.checkpoint.checkpoint(lambda p, q: (p * q).exp(), $x, $y, use_reentrant=False)
$t.sum().backward(retain_graph=True)

$t = $x * 2
$t.mul_($y)
$t[0] = 0
$t = $t.exp()

$t = $x.clone()
$t[:1] *= $y[:1]
$t.sum().backward(retain_graph=True)

$x.grad = None
($x * $x).sum().backward()
$t = $x.grad.clone()
$x.grad.zero_()

$u = $x.detach().clone().requires_grad_()
for _ in range(n):
    ($u ** 2).sum().backward()
    with torch.no_grad():
        $u -= 0.1 * $u.grad
        $u.grad = None
$t = $u

$t = ($x * 2).detach().requires_grad_()
$t.retain_grad()
($t * $y).sum().backward()
$t = $t.grad, $t.is_leaf

$t = $x.float().cumsum(0).prod(-1)
$t.sum().backward(retain_graph=True)

with torch.autograd.set_grad_enabled(flag):
    $t = $x * 2
$t = $t, $t.requires_grad, $t.grad_fn is None

$t = nn.Parameter($x.detach().float())
($t * 2).sum().backward()
$t = $t.grad, isinstance($t, nn.Parameter)
""")

HANDLING = (HOOKS, FUNC, MODES, VIEWS, SLICES, MASKS, OUTS, SCATTERS, ORDERS, MODULES,
            OPS, TAPES)
