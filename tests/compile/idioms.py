"""What people write in Python, for random programs: phrases of the wider grammar from seed 6000000
on.

A phrase is a paragraph of a text. In it $x and $y are tensors, $t and $u fresh names, $k a number,
$d a dimension. What phrases use is in `props`, beside the objects of `phrases`.
"""

from __future__ import annotations


def paragraphs(text: str) -> list[str]:
    """The phrases of a text, as templates for `str.format`."""
    text = text.replace("{", "{{").replace("}", "}}")
    for name in "xytukndp":
        text = text.replace("$" + name, "{" + name + "}")
    return [p.strip("\n") for p in text.split("\n\n") if p.strip()]


RECORDS = paragraphs("""
$t = Frozen($x, n)
try:
    $t.count = 3
except dataclasses.FrozenInstanceError as error:
    $t = str(error), $t.value

$t = Basket()
$t.items.append($x)
$t = $t.items, Basket().items, $t.total

$t = Basket([$x, $y]).total, dataclasses.asdict(Frozen(1, 2))

$t = [f.name for f in dataclasses.fields(Basket([$x]))], Frozen(1, 2) == Frozen(1, 2)

$t = Slim($x, 3)
$t.value = $t.value * 2
$t = $t.value, $t.k

try:
    Slim($x, 1).other = 2
except AttributeError as error:
    $t = str(error)

match Pair($x, n):
    case Pair(left=q, count=1):
        $t = q * 2
    case Pair(left=q, count=k) if k > 1:
        $t = q * k

match [$x, *xs]:
    case [q]:
        $t = q
    case [q, *rest]:
        $t = q.sum(), len(rest)

match {'kind': 'sum', 'of': $x}:
    case {'kind': 'mean', 'of': q}:
        $t = q.float().mean()
    case {'kind': 'sum' | 'max' as how, **rest}:
        $t = how, rest['of'].sum()

match ($x.dim(), flag):
    case (0, _):
        $t = $x
    case (1, True) | (2, False):
        $t = $x * 2
    case _:
        $t = $x + 1

match Kind(n % 2 + 1):
    case Kind.SUM:
        $t = $x.sum()
    case Kind.MEAN:
        $t = $x.float().mean()

match $x.shape:
    case (p, q):
        $t = p * q
    case (p, *_):
        $t = p

match names.get('w'):
    case None:
        $t = 'none'
    case torch.Tensor() as q:
        $t = q * 2

$t = Span($x.shape[0], $x.numel())
$t = $t.size, $t.wider(2).size, Span(*range(2)), $t[0], $t._asdict()
""")

LOOPS = paragraphs("""
def $tg(q):
    total = q.sum()
    yield q
    yield total
    return total * 2
def $th(q):
    last = yield from $tg(q)
    yield last
$t = list($th($x))

def $tg():
    try:
        yield 1
    except ValueError as error:
        yield str(error)
$u = $tg()
$t = next($u), $u.throw(ValueError('thrown'))
del $u

$t = torch.stack([q.float().sum() for q in $x])

$t = [q.sum() * i for i, q in enumerate($x, 1)], {i: q for i, q in enumerate($x)}

$t = [p * q for p, q in zip($x, $y)], [*zip($x, range(9))]

$t = sum(q.sum() for q in $x), max(q.numel() for q in $x)

$t = [q for row in xs for q in (row[:1] if row.dim() else [row])]

$t = reversed($x), list(reversed($x.unbind()))

$t = [q * 2 for q in reversed(xs)], [i for i, _ in enumerate(reversed(xs))]

for $u, (p, q) in enumerate(zip($x, $x.flip(0))):
    $t = p + q * $u

try:
    $t = list(zip($x, range(50), strict=True))
except ValueError as error:
    $t = str(error)

$t = $x.detach().double().abs().mean()
while $t < 4:
    $t = $t * 2 + 1

$u = 0
while True:
    $u += 1
    if $u > 3 or ($x * $u).sum() > 2:
        break
$t = $u

for $u in range(4):
    if $x.sum() * $u > 3:
        $t = $u
        break
else:
    $t = -1

$t = $x
for $u in ($x > 0).flatten()[:3]:
    $t = $t * 2 if $u else $t + 1

$u = n
while ($u := $u - 1) > 0:
    $t = $x * $u

$t = [q := $x + 1, q * 2], q.dim()

$t = [r for q in xs if (r := q.sum()).dim() == 0]

if any((last := q).dim() == 2 for q in xs):
    $t = last * 2

$u = [1, 2, 3]
for i in $u:
    if i == 2:
        $u.remove(2)
$t = $u, $x * sum($u)

$t = iter(range(5))
$t = next($t), [*zip($t, $t)], next($t, 'end')

$u = []
for i in range(3):
    for j in range(3):
        if j > i:
            continue
        if i + j == 3:
            break
        $u.append($x * (i - j))
    else:
        $u.append($x)
$t = sum($u)
""")

CALLS = paragraphs("""
def $tf(q, depth=0):
    if depth > 2 or q.dim() == 0:
        return q.sum(), depth
    return $tf(q[0], depth + 1)
$t = $tf($x)

def $tf(tree):
    if isinstance(tree, dict):
        return {k: $tf(v) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(map($tf, tree))
    return tree * 2
$t = $tf({'a': [$x, ($y, 1)], 'b': 2})

def $tf(k, memo={}):
    if k < 2:
        return k
    if k not in memo:
        memo[k] = $tf(k - 1) + $tf(k - 2)
    return memo[k]
$t = $tf(6), $x * $tf(n)

def $tf(k):
    return $x if k == 0 else $tg(k - 1) * 2
def $tg(k):
    return $y if k == 0 else $tf(k - 1) + 1
$t = $tf(n)

def $tf(q, seen={}):
    seen[q.dim()] = seen.get(q.dim(), 0) + 1
    return dict(seen)
$t = $tf($x), $tf($y), $tf($x)

$u = functools.partial(torch.clamp, min=0)
$t = $u($x), functools.partial($u, max=1)($x), $u.keywords
del $u

$t = once(n), once(n), $x * once(3)

$t = functools.reduce(operator.mul, [$x, $y, 2], 1)

def $tf(*args, **kwargs):
    return $tg(*args, **{'k': 3, **kwargs})
def $tg(q, *more, k, z=1):
    return q * k * z, len(more)
$t = $tf($x), $tf($x, $y, z=2), $tf(*xs, *[$x], k=n)

def $tf(q, *, scale=2, shift=None):
    return q * scale + (0 if shift is None else shift)
$t = $tf($x), $tf($x, shift=1), $tf(q=$x, **{'scale': n})

try:
    (lambda q, k: q)($x)
except TypeError as error:
    $t = str(error).split('>.')[-1]

def $tf(q):
    if q.dim() == 0:
        return q
    for i in range(q.shape[0]):
        if i == 1:
            return q[i] * 2
        if q.shape[0] > 4:
            break
    else:
        return q.sum()
    return None
$t = $tf($x)

def $tf(q):
    if q.sum() > 0:
        return q * 2
    return -q
$t = $tf($x)

def $tf():
    total = 0
    def add(q):
        nonlocal total
        total = total + q.sum()
        return total
    return add, lambda: total
$u, $uf = $tf()
$u($x), $u($y)
$t = $uf()
del $u, $uf

def $tf(f, k):
    def inner(q):
        for _ in range(k):
            q = f(q)
        return q
    return inner
$t = $tf(lambda q: q * 2 + 1, n)($x)

$t = getattr(torch, 'sin')($x.float()), getattr($x, 'sum')(), torch.Tensor.add($x, $y)

$t = operator.add($x, $y), operator.itemgetter(0)($x), operator.methodcaller('sum', 0)($x)

$t = math.sqrt(n) * $x, math.prod($x.shape), math.ceil(n / 2), math.pi * $x

$t = sorted(xs, key=operator.methodcaller('dim')), sorted([3, 1, 2], reverse=True)

$t = [f($x) for f in (torch.neg, torch.Tensor.abs, lambda q: q * 3, Kind.SUM.run)]

@counting
def $tf(q):
    return q + 1
$t = $tf($tf($x)), $tf.calls

import math as $u
$t = $u.floor(2.5) * $x
del $u

$t = shape_of($x), shape_of([1, $x]), shape_of('s')
""")

TEXTS = paragraphs("""
$t = f'{$x.shape}', f'{tuple($x.shape)}', '{}'.format($x.size()), str($x.dtype)

$t = f'{$x.shape[0]:>4d}|{$x.numel() / 3:.2f}|{$x.dim()!r}', '%s %d' % (list($x.shape), $x.dim())

$t = repr($x.device), f'{$x.dtype!s:>16}', str($x.shape).upper(), f'{flag=} {n=}'

$t = '_'.join(map(str, $x.shape)), 'x'.join(f'{s}' for s in $x.shape), str(n).zfill(3)

$t = f'{n:{n + 3}d}', f"{'w' in names and 'yes'}", f'{$x.requires_grad}', '-' * $x.dim()

$t = 'a-b-c'.partition('-'), 'abc'[::-1], 'abc'.index('b'), 'A' < 'b', 'tensor' in str(type($x))

print(f'{tuple($x.shape)}', $x.dim(), sep='|', end=';')

print(f'{$x.sum():.1f}')

$t = {f'{k}.{i}': q for k in names for i, q in enumerate(xs)}

$t = [line.strip() for line in 'a\\n b \\nc'.splitlines()], ord('a') + n, chr(97 + n)

$t = f'{$x.detach()}', repr($x.shape), str(torch.Size([1, n]))
""")

ERRORS = paragraphs("""
try:
    $x.view(-1, 1000, 7)
except RuntimeError as error:
    $t = str(error)
finally:
    xs.append($x)

def $tf(q):
    try:
        return q @ torch.ones(31)
    except (RuntimeError, ValueError):
        q = q * 2
    else:
        q = q * 3
    finally:
        names['tried'] = n
    return q
$t = $tf($x)

try:
    try:
        torch.cat([$x, torch.ones(1, 2, 3, 4, 5)])
    except Exception as error:
        raise Problem('joined', n) from error
except Problem as problem:
    $t = problem.number, type(problem.__cause__).__name__, str(problem)

for $u in range(3):
    try:
        if $u < 2:
            raise Problem('again', $u)
        $t = $x * $u
    except Problem:
        continue
    finally:
        box.count += 1

def $tf():
    for i in range(3):
        try:
            return i
        finally:
            if i < 1:
                continue
$t = $tf()

try:
    $x[torch.tensor([100])]
except IndexError as error:
    $t = str(error)

try:
    $x + torch.ones(7, 5, 3, 2)
except RuntimeError as error:
    $t = str(error), $x * 2

try:
    torch.linalg.inv(torch.zeros(2, 2))
except RuntimeError as error:
    $t = type(error).__name__

try:
    float($x)
except (RuntimeError, ValueError) as error:
    $t = str(error)

try:
    bool($x)
except RuntimeError as error:
    $t = str(error)

try:
    raise ExceptionGroup('g', [ValueError(1), KeyError('k')])
except* ValueError as group:
    $t = len(group.exceptions)
except* KeyError:
    xs.append($x)

with Guarded(names) as $u:
    $t = $x * 2
    raise Problem('held', 1)
del $u

try:
    with Guarded(names):
        $t = $x + 1
        raise KeyError('let out')
except KeyError as error:
    $t = error.args, names['left']

$t = $x * 2
try:
    $t[0] = 5
    $t.add_(torch.ones(9, 9, 9, 9))
except RuntimeError:
    $t = $t + 1

try:
    assert $x.dim() > 7, f'{$x.dim()} dimensions'
except AssertionError as error:
    $t = str(error)

try:
    $x.requires_grad_().backward()
except RuntimeError as error:
    $t = str(error)
""")

TABLES = paragraphs("""
$t = {(i, j): $x[i] for i in range(2) for j in 'ab'}
$t = $t[1, 'b'], (0, 'c') in $t, len($t)

$t = {$x.dtype: 1, $y.dtype: 2}, {tuple($x.shape): $x}[tuple($x.shape)]

$u = {$x: 1}
$u[$y] = 2
$t = $u[$x], len($u), $y in $u
del $u

$u = {}
for q in xs:
    $u.setdefault((q.dim(), q.dtype), []).append(q.sum())
$t = {k[0]: len(v) for k, v in $u.items()}

$u = {int: 'int', torch.Tensor: 'tensor'}
$t = $u[type($x)], $u.get(type(n)), $u.get(str, 'none')

$t = {**names, 'x': $x} | {'y': $y}, names.keys() & {'w'}, names.items() >= set()

try:
    for k in names:
        names[k + 'x'] = 1
except RuntimeError as error:
    $t = str(error)
    names = {k: q for k, q in names.items() if not k.endswith('x')}

$u = [[$x, 1], [$y, 2]]
($ua, _), (*_, $ub) = $u
$t = $ua, $ub

$t = list(zip(*[(1, $x), (2, $y)])), [*'ab', *range(n)], (*xs,)[-1]

$t = 0 < n <= 3, n == 2 != flag, not n, n or $x, flag and $x

$u = [3, 1, 2]
$u[1:1] = [7, 8]
$u[::2] = [0] * len($u[::2])
del $u[-1]
$t = $u, $u.index(7), $u.count(0)

$t = copy.copy(xs), copy.deepcopy([1, [2]]), copy.deepcopy({'q': $x.detach()})

$t = $x.shape[:-1] + (2,), $x.shape == tuple($x.shape), $x.size()[0], 3 in $x.shape

$t = set(range(n)) ^ {1}, {1, 2} <= {1, 2, 3}, sorted({q.dim() for q in xs})

$t = -n // 2, -n % 3, n / 4, n ** -1, divmod(-7, n), n << 2 | 1, ~n, 7 & n, round(-2.5)

$t = isinstance(n, int | float), type($x) is torch.Tensor, hasattr($x, 'grad'), callable($x)

$t = [None] * 2 + [$x][:n], ([1] * 3).__len__(), bytes([n]), (1, 2) < (1, n)

$t = deque([1, 2, 3], maxlen=3)
$t.append($x.dim())
$t.rotate(1)
$t = list($t)
""")

OBJECTS = paragraphs("""
$u = Meter()
for q in xs:
    $u.update(q.float().mean())
$t = $u.mean, $u.count
del $u

$u = Meter()
$u.mean = $x.sum()
$t = $u.mean, $u.total
del $u

$t = Registry.of('double')($x), sorted(Registry.known), Registry.of('half')($x)

$t = Lazy($x)
$t = $t.square, $t.square is $t.square, 'square' in vars($t)

$t = Vector($x) + Vector($y), Vector($x) * 2, -Vector($x), 2 - Vector($x)
$t = [v.at for v in $t], Vector($x) == Vector($x), bool(Vector($x))

$t = Vector($x)
$t.at += 1
$t = $t.at, Vector.zero($x).at, Vector.name($x)

$t = list(Countdown(n)), [i * $x for i in Countdown(2)]

$x.tag = n
$t = $x.tag, hasattr($x, 'tag'), hasattr($y, 'other')

$u = Tagged($x.detach().float())
$t = type($u + 1).__name__, ($u * 2).sum(), $u.dim()
del $u

$t = Shape.make('square', $x).area(), Shape.make('line', $x).area(), isinstance(n, Shape)

box.history = getattr(box, 'history', ()) + (n,)
$t = box.history[-3:]

box.cache = getattr(box, 'cache', None) or {}
if n not in box.cache:
    box.cache[n] = $x.detach().sum()
$t = box.cache[n]

box.last = $x.detach()
$t = box.last * 2

$t = vars(Box(1, 2)), Box.step.__name__, Box(2, 0).step($x), type(box).__name__

box.step = lambda q: q * 3
$t = box.step($x)
del box.step
""")

IDIOMS = (RECORDS, LOOPS, CALLS, TEXTS, ERRORS, TABLES, OBJECTS)
