"""What Python offers, as models use it."""

import abc
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import itertools
import math
import operator
import typing
from collections.abc import Iterable

import lehr as torch
import lehr.nn.functional as F
from lehr import nn
from styles.case import style

X = [(torch.arange(6.0).view(2, 3) + i,) for i in range(3)]


class Kind(enum.Enum):
    SUM = "sum"
    MEAN = "mean"

    def apply(self, x):
        return x.sum(-1) if self is Kind.SUM else x.mean(-1)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@style
def language_enums():
    def f(x):
        out = [k.apply(x) for k in Kind]
        kind = Kind("mean")
        if kind == Kind.MEAN and Level.HIGH > Level.LOW:
            out.append(x * Level.HIGH)
        return out, kind.name, Kind["SUM"].value
    return f, X, None


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    mask: typing.Optional[torch.Tensor] = None
    meta: dict = dataclasses.field(default_factory=dict)

    def __len__(self):
        return self.x.shape[0]

    @classmethod
    def of(cls, *xs):
        return cls(torch.stack(xs), meta={"n": len(xs)})

    @property
    def valid(self):
        return self.x if self.mask is None else self.x * self.mask


@dataclasses.dataclass(frozen=True)
class Frozen:
    scale: float = 2.0
    shift: int = 1


@style
def language_dataclasses():
    def f(x):
        b = Batch.of(x, x + 1)
        c = dataclasses.replace(b, mask=(b.x > 2).float())
        s = Frozen(shift=3)
        names = [f.name for f in dataclasses.fields(c)]
        return c.valid * s.scale + s.shift, len(c), c.meta, names, Frozen() == Frozen(2.0, 1)
    return f, X, None


class Base(abc.ABC):
    @abc.abstractmethod
    def run(self, x): ...

    def __call__(self, x):
        return self.run(x)


class Twice(Base):
    factor = 2
    __slots__ = ("bias",)

    def __init__(self, bias=0.0):
        self.bias = bias

    def run(self, x):
        return x * self.factor + self.bias


class Thrice(Twice):
    factor = 3

    def run(self, x):
        return super().run(x) + super(Thrice, self).run(x)


@style
def language_classes():
    def f(x):
        ops = [Twice(), Thrice(1.0)]
        for op in ops:
            x = op(x)
        return x, isinstance(ops[1], Base), [type(o).__name__ for o in ops]
    return f, X, None


class Vector:
    """Operators of one's own."""

    def __init__(self, t):
        self.t = t

    def __add__(self, other):
        return Vector(self.t + (other.t if isinstance(other, Vector) else other))

    __radd__ = __add__

    def __matmul__(self, other):
        return Vector(self.t @ other.t)

    def __getitem__(self, i):
        return self.t[i]

    def __iter__(self):
        return iter(self.t.unbind(0))

    def __len__(self):
        return len(self.t)

    def __bool__(self):
        return True

    def __eq__(self, other):
        return self is other

    __hash__ = None

    def __enter__(self):
        self.t = self.t + 10
        return self

    def __exit__(self, *exc):
        self.t = self.t - 10
        return False


@style
def language_operators():
    def f(x):
        v = Vector(x)
        w = sum([v, v, 1])
        with w as inside:
            held = inside[0]
        a, b = w
        return w.t, held, a, b, len(v), v == v, v != w, (v @ Vector(x.t())).t
    return f, X, None


@style
def language_match():
    def dispatch(x, spec):
        match spec:
            case {"op": "scale", "by": float() | int() as by}:
                return x * by
            case ("pad", int(n), *rest) if n > 0:
                return F.pad(x, (n, 0)) if not rest else F.pad(x, (n, rest[0]))
            case Frozen(scale=s):
                return x * s
            case [first, *_]:
                return dispatch(x, first)
            case None | False:
                return x
            case _:
                raise ValueError(spec)
    specs = [{"op": "scale", "by": 3}, ("pad", 1), ("pad", 1, 2), Frozen(), [Frozen(4.0)], None]
    return (lambda x: [dispatch(x, s) for s in specs]), X, None


@style
def language_exceptions():
    class Wrong(Exception):
        def __init__(self, code):
            super().__init__(f"wrong {code}")
            self.code = code

    log = []

    def check(x, n):
        if x.shape[0] < n:
            raise Wrong(n)
        return x

    def f(x):
        try:
            check(x, 9)
        except Wrong as error:
            x = x + error.code
            log.append(str(error))
        except (KeyError, ValueError):
            x = x - 1
        else:
            x = x * 0
        finally:
            x = x * 2
        with contextlib.suppress(KeyError):
            {}["absent"]
        try:
            value = {"a": 1}["b"]
        except KeyError:
            value = None
        try:
            x.nothing  # noqa: B018
        except AttributeError:
            value = 3
        return x, value
    return f, X, lambda: log


@style
def language_raises():
    """The user's own error, with its type and text."""
    def f(x):
        assert x.dim() == 2, f"expected 2 dims, got {x.dim()}"
        y = x * 2
        if y.shape[1] == 3:
            return y
        raise NotImplementedError(f"no {tuple(y.shape)}")
    return f, X, None


@style
def language_generators():
    def pieces(x, n):
        for i in range(0, x.shape[-1], n):
            got = yield x[..., i:i + n]
            if got:
                yield x * got

    def nested(x):
        yield from (p * 2 for p in pieces(x, 1))

    def f(x):
        total = 0
        for p in nested(x):
            total = total + p.sum()
        g = pieces(x, 2)
        first, sent = next(g), g.send(3.0)
        lazily = max(map(lambda p: p.shape[-1], pieces(x, 2)))
        return total, first, sent, lazily, [p.mean() for p in filter(len, pieces(x, 3))]
    return f, X, None


@style
def language_itertools():
    def f(x):
        rows = list(x)
        pairs = [a + b for a, b in itertools.combinations(rows, 2)]
        chained = torch.stack(list(itertools.chain(rows, pairs)))
        running = list(itertools.accumulate(rows, operator.add))
        grid = [(i, j) for i, j in itertools.product(range(2), repeat=2) if i <= j]
        windows = [a - b for a, b in itertools.pairwise(rows)]
        padded = list(itertools.zip_longest("ab", rows, fillvalue=None))
        first = list(itertools.islice(itertools.count(3), 2))
        return chained, running, grid, windows, padded, first, functools.reduce(torch.add, rows)
    return f, X, None


@style
def language_collections():
    def f(x):
        Point = collections.namedtuple("Point", "x y")
        d = collections.defaultdict(list)
        for i, row in enumerate(x):
            d[i % 2].append(row)
        q = collections.deque(maxlen=2)
        for row in x.unbind(1):
            q.append(row)
            q.rotate(1)
        o = collections.OrderedDict(a=1, b=2)
        o.move_to_end("a")
        c = collections.Counter("hello")
        chain = collections.ChainMap({"a": 1}, {"b": 2})
        p = Point(x, 2)
        return (dict(d), list(q), list(o), c.most_common(1), chain["b"], p.x * p.y)
    return f, X, None


@style
def language_functions():
    def outer(scale):
        count = 0

        def inner(x, /, *rest, power=2, **more):
            nonlocal count
            count += 1
            for r in rest:
                x = x + r
            return (x * scale) ** power + sum(more.values()) + count
        inner.count = lambda: count
        return inner

    def traced(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs) + 1
        return wrapper

    @traced
    def decorated(x, y=1):
        return x + y

    @functools.lru_cache(maxsize=None)
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def f(x):
        g = outer(0.5)
        part = functools.partial(g, power=1)
        return (g(x, 1, 2), part(x, extra=3), decorated(x, y=2), decorated.__name__, fib(10),
                (lambda *a, k=3: a[0] * k)(x), g.count())
    return f, X, None


@style
def language_comprehensions():
    def f(x):
        squares = {i: (x[i] ** 2).sum() for i in range(len(x)) if i != 5}
        names = {n.upper() for n in ("a", "b")}
        table = [[x[i, j] for j in range(3)] for i in range(2)]
        flat = [v for row in table for v in row]
        if (n := len(flat)) > 4:
            flat = flat[: n - 2]
        first, *middle, last = flat
        a, (b, c) = 1, (2, 3)
        return squares, names, torch.stack(flat), first + last, len(middle), a + b + c
    return f, X, None


@style
def language_strings():
    def f(x):
        shape = "x".join(map(str, x.shape))
        text = f"{shape!r:>8}|{x.dim():03d}|{1 / 3:.2f}|{'a' if x.shape[0] else 'b'}"
        parts = "conv1.weight".split(".", 1)
        return x * len(text), text, parts[-1].startswith("w"), "%s-%d" % ("a", 2), "{:>4}".format(3)
    return f, X, None


@style
def language_contexts():
    log = []

    @contextlib.contextmanager
    def scaled(by):
        log.append("in")
        try:
            yield by
        finally:
            log.append("out")

    def f(x):
        with scaled(3) as s, contextlib.nullcontext(2) as t:
            x = x * s * t
        with contextlib.ExitStack() as stack:
            n = stack.enter_context(scaled(4))
            stack.callback(log.append, "late")
            x = x + n
        return x
    return f, X, lambda: log


@style
def language_sorting():
    def f(x):
        items = [("b", 2), ("a", 3), ("c", 1)]
        ordered = sorted(items, key=lambda kv: -kv[1])
        items.sort(key=operator.itemgetter(0), reverse=True)
        order = [i for _, i in sorted((n, i) for i, n in enumerate([3, 1, 2]))]
        best = max(items, key=lambda kv: kv[1])
        return x[[0, 1]] * best[1], ordered, items, order, any(n > 2 for _, n in items), all([])
    return f, X, None


@style
def language_copies():
    class State:
        def __init__(self):
            self.items, self.t = [1, 2], torch.ones(3)

    state = State()

    def f(x):
        c = copy.copy(state)
        c.items = [*c.items, 3]
        d = copy.deepcopy(c.items)
        d[0] = 9
        return x + c.t, c.items, d, state.items
    return f, X, lambda: state


@style(captures=5)     # it looks at the length of a list
def language_containers_written():
    """Writes to lists, dicts, sets and objects outside, in order."""
    class Log:
        entries = []

        def __init__(self):
            self.n, self.by, self.seen = 0, {}, set()

    log, history = Log(), []

    def f(x):
        log.n += 1
        log.by.setdefault("k", []).append(x.sum())
        log.seen.add(x.shape)
        log.by["n"] = log.n
        Log.entries.append(len(history))
        history[len(history):] = [x.mean()]
        if len(history) > 2:
            del history[0]
            history.insert(0, "cut")
        return x * 2
    style_log = lambda: (log.by, sorted(map(tuple, log.seen)), Log.entries, history)
    return f, X[:1] * 5, style_log


@style(captures=2)
def language_numbers():
    """Python numbers that change from call to call."""
    def f(x, lr, n):
        scale = math.sqrt(lr) * (1 - 0.9 ** n)
        return x * scale + n // 3 + n % 3, round(lr, 2), max(n, 2), abs(-n), int(lr * 100)
    return f, [(X[0][0], 0.1 * i, 2 + i) for i in range(1, 7)], None


@style(captures=2)     # a counter
def language_modules():
    class Net(nn.Module):
        layers: Iterable[nn.Module]

        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])
            self.heads = nn.ModuleDict({"a": nn.Linear(3, 1), "b": nn.Linear(3, 2)})
            self.gain = nn.ParameterList([nn.Parameter(torch.ones(3)) for _ in range(2)])
            self.table = nn.ParameterDict({"s": nn.Parameter(torch.ones(1))})
            self.register_buffer("steps", torch.zeros((), dtype=torch.long))
            self.register_buffer("mask", torch.ones(3, 3).tril(), persistent=False)
            self.config = {"act": "relu"}
            self.calls = 0

        def forward(self, x, *, heads=("a", "b")):
            self.calls += 1
            self.steps += 1
            for i, layer in enumerate(self.layers[1:], start=1):
                x = getattr(F, self.config["act"])(layer(x)) @ self.mask
                if i < len(self.gain):
                    x = x * self.gain[i]
            out = {k: self.heads[k](x) for k in heads}
            total = sum(p.sum() for n, p in self.named_parameters() if "heads" not in n)
            n = sum(p.numel() for p in self.parameters() if p.requires_grad)
            return out, total * self.table["s"], n, [type(m).__name__ for m in self.children()]
    m = Net()
    return m, X, lambda: (m.steps, m.calls)
