"""Changes before and after breaks: containers, attributes, globals, tensors in place."""

import collections

import lehr as torch

from .case import LOG, case, given, leaf, t

TEN = t(1.0, 2.0)
COUNTER = {"n": 0}
TOTAL = 0


class Meter:
    def __init__(self):
        self.calls, self.last, self.items = 0, None, []


@case(given(TEN, list, dict, Meter), graphs=2, breaks=1, repeat=3)
def before_and_after(x, xs, d, meter):
    y = x.relu()
    xs.append(y.sum())
    d["n"] = d.get("n", 0) + 1
    meter.calls += 1
    print(len(xs), d["n"], meter.calls)
    d["y"] = y
    meter.calls += 1
    meter.last = y
    meter.items.append(y + 1)
    xs.insert(0, "first")
    return y * 2


@case(given(TEN), graphs=4, breaks=2, repeat=3)
def globals_change(x):
    global TOTAL
    TOTAL += 1
    COUNTER["n"] += 1
    y = x * 2
    print(TOTAL - TOTAL, COUNTER["n"] - COUNTER["n"])
    TOTAL += 1
    COUNTER["n"] += 1
    return y + 1


@case(given([1, 2, 3], {"a": 1, "b": 2}, {3}), graphs=0, breaks=1, repeat=2)
def containers_are_seen_by_the_call(xs, d, s):
    xs.pop()
    del d["a"]
    s.add(4)
    print(xs, d, sorted(s))
    xs.reverse()
    d["c"] = 3
    s.discard(3)
    return xs, d, s


@case(given(TEN), graphs=2, breaks=2, repeat=2)
def in_place_before_and_after(x):
    x.mul_(2)
    print(x.tolist())
    x.add_(1)
    return x.sum()


@case(given(t([1.0, 2.0], [3.0, 4.0])), graphs=2, breaks=1, repeat=2)
def views_in_place(x):
    row, col = x[0], x[:, 1]
    row.mul_(2)
    print("views")
    col.add_(1)
    return row, col


@case(given(TEN), graphs=2, breaks=1, repeat=2)
def in_place_on_a_fresh_tensor(x):
    y = x * 2
    v = y[:1]
    print("fresh")
    v.zero_()
    y += 1
    return y, v


@case(given(leaf(1.0, 2.0)), graphs=2, breaks=2, repeat=2)
def in_place_with_gradients(x):
    y = x * 2
    print("grad")
    y.mul_(3)
    return y.sum()


@case(given(leaf(1.0, 2.0)), graphs=3, breaks=3, repeat=2)
def backward_behind_a_break(x):
    y = (x * x).sum()
    print("loss")
    y.backward()
    g = x.grad * 2
    print("step")
    with torch.no_grad():
        x.sub_(g)
    x.grad = None
    return y


@case(given(leaf(1.0, 2.0)), graphs=2, breaks=1, repeat=2)
def backward_before_a_break(x):
    y = (x * x).sum()
    y.backward()
    print("done", x.grad is None)
    return x.grad * 2


@case(given(leaf(1.0, 2.0)), graphs=2, breaks=1, repeat=2)
def detached_across_a_break(x):
    y = x * 2
    z = y.detach()
    print(z.requires_grad)
    return z + 1, y * 3


@case(given(lambda: collections.deque([1], maxlen=3), lambda: collections.OrderedDict(a=1)),
      graphs=0, breaks=1, repeat=2)
def other_containers(q, d):
    q.append(2)
    d["b"] = 2
    d.move_to_end("a")
    print(list(q), list(d))
    q.extend([3, 4])
    d["c"] = 5
    return q, d


@case(given(TEN, lambda: [1]), graphs=2, breaks=1, repeat=2)
def aliases_stay_aliases(x, xs):
    a = b = [x * 2]
    pair = (a, xs, xs)
    print("alias")
    b.append(x + 1)
    xs.append(2)
    return a, b, pair


@case(given(TEN), graphs=2, breaks=1, repeat=2)
def cycles_survive(x):
    a = [x * 2]
    a.append(a)
    print("cycle")
    return a[1][1][0] + 1, a[1] is a


@case(given(TEN), graphs=2, breaks=1, repeat=2)
def deleted_and_unbound(x):
    y = x * 2
    del x
    if y is None:
        never = 1
    print("names")
    try:
        return never
    except UnboundLocalError as error:
        LOG.append(str(error))
    try:
        return x
    except UnboundLocalError as error:
        return y + 1, str(error)


@case(given(TEN), graphs=1, breaks=1, repeat=2)
def locals_are_whole(x):
    y = x * 2
    unused = 5
    found = sorted(locals())
    print("locals", sorted(locals()))
    return found, y, sorted(locals())


@case(given(TEN), graphs=1, breaks=1, repeat=2)
def the_same_tensor_twice(x):
    y = x * 2
    pair = [y, y]
    print("same")
    return pair[0] is pair[1], pair, y
