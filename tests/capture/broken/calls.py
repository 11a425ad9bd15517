"""Breaks in callees, closures, methods, classes; what reaches whom."""

import functools

import lehr as torch
from lehr import nn

from .case import LOG, case, given, leaf, note, t

TEN = t(1.0, 2.0)


def noisy(x, scale=2):
    y = x * scale
    print("noisy", scale)
    return y + 1


@case(given(TEN), graphs=4, breaks=2, repeat=2)
def callee(x):
    return noisy(x + 1) * 3


@case(given(TEN), graphs=6, breaks=3, repeat=2)
def callee_of_a_callee(x):
    def middle(v):
        return noisy(v * 2) * 2

    return middle(x + 1) * 3


@case(given(TEN), graphs=4, breaks=3, repeat=2)
def callee_called_twice(x):
    return noisy(noisy(x + 1)) * 3


@case(given(TEN), graphs=4, breaks=2, repeat=2)
def callee_with_keywords(x):
    return noisy(x=x + 1, scale=3) * 3


@case(given(TEN), graphs=4, breaks=2, repeat=2)
def callee_with_stars(x):
    return noisy(*[x + 1], **{"scale": 3}) * 3


@case(given(TEN), graphs=2, breaks=1, repeat=2)
def callee_through_partial(x):
    return functools.partial(noisy, scale=5)(x + 1) * 3


@case(given(TEN), graphs=3, breaks=4, repeat=2)
def callee_is_a_closure(x):
    count = 0

    def inner(v):
        nonlocal count
        count += 1
        print("inner", count)
        return v * count

    y = inner(x + 1)
    z = inner(y)
    return z, count


@case(given(TEN), graphs=2, breaks=1, repeat=2)
def cells_are_shared(x):
    total = x * 0

    def add(v):
        nonlocal total
        total = total + v

    add(x)
    print("between")
    add(x * 2)
    total = total + 1
    return total, add


@case(given(TEN), graphs=1, breaks=1, repeat=2)
def closures_are_fresh_each_call(x):
    y = x * 2
    print("make")
    return lambda: y


@case(given(TEN), graphs=2, breaks=1, repeat=2)
def argument_is_a_cell(x):
    x = x * 2
    get = lambda: x
    print("cell")
    x = get() + 1
    return get(), x


class Base:
    def __init__(self, scale):
        self.scale, self.calls = scale, []

    def run(self, x):
        y = x * self.scale
        print("run", self.scale)
        self.calls.append(len(self.calls))
        return y + 1


class Derived(Base):
    def run(self, x):
        y = super().run(x + 1)
        keep = lambda: self.scale
        print("derived")
        return super().run(y) * keep()


@case(given(lambda: Base(2), TEN), graphs=4, breaks=2, repeat=2)
def method(b, x):
    return b.run(x + 1) * 2, b


@case(given(lambda: Derived(2), TEN), graphs=7, breaks=5, repeat=2)
def method_with_super(b, x):
    return b.run(x + 1) * 2, b


@case(given(TEN), graphs=2, breaks=1, repeat=2)
def object_is_made_inside(x):
    b = Base(x.shape[0])
    b.seen = x * 2
    print("made", b.scale)
    b.seen = b.seen + 1
    return b


class Loud:
    def __init__(self, value):
        print("init")
        self.value = value

    @property
    def doubled(self):
        print("property")
        return self.value * 2

    def __add__(self, other):
        print("add")
        return self.value + other

    def __getitem__(self, i):
        print("item", i)
        return self.value[i]

    def __len__(self):
        print("len")
        return 2

    def __setattr__(self, name, value):
        print("set", name)
        super().__setattr__(name, value)


@case(given(TEN), graphs=2, breaks=1, repeat=2)
def constructor_that_breaks(x):
    y = x * 2
    b = Loud(y)
    return b.value + 1


@case(given(lambda: None, TEN), graphs=4, breaks=6, repeat=2)
def special_methods_that_break(_, x):
    a = Loud(x * 2)
    y = a.doubled + 1
    z = (a + y) * 2
    a.other = z
    return a[0] + z, len(a), a.other


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 3), nn.Linear(3, 2)
        with torch.no_grad():
            for i, p in enumerate(self.parameters()):
                p.copy_(torch.arange(p.numel()).reshape(p.shape) * 0.1 - i * 0.2)

    def forward(self, x):
        y = self.first(x).relu()
        print("between", tuple(y.shape))
        return self.second(y)


@case(given(Net, TEN), graphs=3, breaks=4, repeat=2)
def module(net, x):
    return net(x).sum()


@case(given(Net, TEN), graphs=4, breaks=5, repeat=2)
def module_and_its_gradients(net, x):
    loss = (net(x + 1) ** 2).sum()
    loss.backward()
    return loss, [p.grad for p in net.parameters()]


def recursive(x, n):
    if n == 0:
        print("bottom")
        return x
    return recursive(x + n, n - 1) * 2


@case(given(TEN), graphs=3, breaks=4, repeat=2)
def recursion(x):
    return recursive(x, 4)


@case(given(TEN), graphs=2, breaks=1, repeat=2)
def callback_of_a_library(x):
    def key(i):
        print("key", i)
        return -i

    y = x * 2
    order = sorted([1, 0], key=key)
    return y[order[0]] + 1


@torch.compiler.disable
def kept_out(x):
    LOG.append(float(x.sum()))
    return x * 2


@case(given(TEN), graphs=2, breaks=1, repeat=2)
def disabled(x):
    return kept_out(x + 1) * 3


@case(given(TEN), graphs=4, breaks=3, repeat=2)
def class_made_inside(x):
    class Local:
        scale = 3

        def run(self, v):
            return v * self.scale

    y = Local().run(x)
    print("class")
    return Local().run(y), Local.__name__


@case(given(TEN), graphs=0, breaks=0, repeat=2)
def import_inside(x):
    y = x * 2
    import this_module_is_not_there_at_all  # noqa: F401

    return y


@case(given(TEN), graphs=2, breaks=1, repeat=2)
def star_arguments(x, *rest, k=3, **more):
    y = x * k
    print(rest, k, more)
    rest = (*rest, y)
    return rest, k, more, y + 1
