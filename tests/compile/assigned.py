"""Memory that changes hands, for random programs: `x.data = y`, `numpy()` and back; phrases as in
`idioms`, which programs know from seed 8000000 on."""

from __future__ import annotations

from tests.compile.idioms import paragraphs

MOVES = paragraphs("""
$u = $x.detach().float().requires_grad_()
$u.data = $u.data * 2
$t = ($u * $y).sum(), $u

$u = $x * 1
$uv = $u.view(-1)
$u.data = $u.detach() + 1
$uv.add_(1)
$t = $u, $uv
del $uv

box.data.data = box.data.data * 0.5 + 0.25
$t = box.data.sum()

box.data.data += 1
box.data.data.clamp_(max=2)
$t = box.data * 2

$u = box.data
box.data.data = torch.zeros_like($u)
$t = $u + 1, box.data

$u = box.data.data
box.data.data = $u * 2
$t = $u, box.data + 1
del $u

$u = box.data[0]
box.data.data = box.data.data + 1
$u.mul_(2)
$t = $u, box.data.sum()

box.data.data = box.data.data - 1
box.data.add_(1)
$t = box.data._version, box.data * 1

$u = torch.zeros_like(box.data)
$u.data, box.data.data = box.data.data, $u.data
$t = $u, box.data

$u = nn.Linear($x.shape[-1], 2)
$u($x.float()).sum().backward()
with torch.no_grad():
    for uq in $u.parameters():
        uq.data = uq.data - 0.5 * uq.grad.data
        uq.grad.data.zero_()
    del uq
$t = $u($x.float()), $u.weight.grad
del $u

$u = $x.detach().float().requires_grad_()
($u * 2).sum().backward()
$u.grad.data = $u.grad.data * 3
$t = $u.grad, $u
""")

ARRAYS = paragraphs("""
$u = ($x * 2).detach().numpy()
$t = torch.from_numpy($u) + 1
del $u

$u = ($x * 2).detach()
$uv = $u.numpy()
$u.add_(1)
$t = torch.from_numpy($uv), $u, $uv.shape, $uv.ndim
del $uv

$t = torch.from_numpy($x.detach().numpy())
$t = $t.sum(), $x * 1

$u = ($x + 1).detach().numpy()
$t = torch.from_numpy($u), torch.from_numpy($u).view(-1), $u.size
del $u

$u = ($x + 1).detach().t().numpy() if $x.dim() < 3 else $x.detach().numpy()
$t = torch.from_numpy($u).clone()
del $u
""")

ASSIGNED = (MOVES, ARRAYS)
