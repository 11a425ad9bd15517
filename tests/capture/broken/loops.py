"""Breaks inside loops, comprehensions and generators' consumers."""

import itertools

import lehr as torch

from .case import LOG, case, given, note, t

TEN = t(1.0, 2.0)


@case(given(TEN, 4), given(TEN, 7), graphs=4, breaks=3)
def print_in_a_body(x, n):
    for i in range(n):
        x = x * 2
        print("step", i)
        x = x + 1
    return x


@case(given(TEN, 5), graphs=3, breaks=3, repeat=2)
def index_in_the_graph(x, n):
    for i in range(n):
        print("i", i)
        x = x * i + 1
    return x


@case(given([TEN, t(3.0, 4.0), t(5.0, 6.0)]), graphs=2, breaks=2, repeat=2)
def over_a_list_of_tensors(xs):
    total = 0
    for x in xs:
        total = total + x * 2
        print("x")
    return total


@case(given(TEN), graphs=5, breaks=4, repeat=2)
def appends_to_a_fresh_list(x):
    out = []
    for i in range(4):
        y = x * i
        print(len(out))
        out.append(y + 1)
    return out


@case(given(TEN, list), graphs=4, breaks=3, repeat=2)
def appends_to_a_given_list(x, out):
    for i in range(4):
        y = x * i
        print(i)
        out.append(y + 1)


@case(given(TEN), graphs=5, breaks=5, repeat=2)
def nested(x):
    for i in range(3):
        for _ in range(2):
            x = x + i
            print(i)
    return x


@case(given(t(1.0, 0.5)), given(t(50.0, 0.5)), given(t(200.0, 0.5)), graphs=4, breaks=4)
def while_on_data(x):
    steps = 0
    while float(x.abs().max()) < 100:
        x = x * 3
        steps += 1
    return x, steps


@case(given(t(1.0, 2.0)), given(t(3.0, 1.0)), graphs=2, breaks=2)
def leaves_early(x):
    for i in range(10):
        x = x * 2
        if x.sum() > 20:
            break
    else:
        return None
    return x, i


@case(given(t(1.0, 2.0)), graphs=4, breaks=4, repeat=2)
def continues(x):
    kept = []
    for i in range(4):
        y = x * (i - 1)
        if y.sum() > 0:
            continue
        kept.append(y + 1)
    return kept


@case(given(t(1.0, 2.0)), graphs=4, breaks=3, repeat=2)
def returns_from_inside(x):
    for i in range(5):
        x = x + 1
        print(i)
        if i == 2:
            return x * 2
    return x


@case(given(TEN), graphs=3, breaks=2, repeat=2)
def for_else(x):
    for i in range(3):
        x = x + 1
        print(i)
    else:
        x = x * 5
    return x


@case(given({"a": TEN, "b": t(3.0, 4.0)}), graphs=2, breaks=2, repeat=2)
def over_items(d):
    total = 0
    for k, v in d.items():
        total = total + v * 2
        print(k)
    return total


@case(given([TEN, t(3.0, 4.0)], [1.0, 2.0]), graphs=2, breaks=3, repeat=2)
def over_zip_and_enumerate(xs, ws):
    total = 0
    for i, (x, w) in enumerate(zip(xs, ws, strict=True)):
        total = total + x * w + i
        print(i)
    return total


@case(given(TEN), graphs=4, breaks={(3, 11): 4, None: 3}, repeat=2)
def comprehension(x):
    return [x * i + len([print(i)]) for i in range(3)]


@case(given(TEN), graphs=3, breaks={(3, 11): 5, None: 4}, repeat=2)
def comprehension_with_condition(x):
    y = x * 2
    return y, [x + i for i in range(4) if print("if", i) is None and i % 2]


@case(given(TEN), graphs=2, breaks={(3, 11): 6, None: 4}, repeat=2)
def dict_and_set_comprehensions(x):
    d = {i: x + i for i in range(2) if not print("d", i)}
    s = {i for i in range(2) if not print("s", i)}
    return d, s


@case(given(TEN), graphs=2, breaks={(3, 11): 3, None: 2}, repeat=2)
def comprehension_keeps_outer_names(x):
    i = "kept"
    a = [x * i for i in range(2) if print(i) is None]
    return a, i


def produce(x, n):
    for i in range(n):
        note("made", i)
        yield x * i


@case(given(TEN), graphs=2, breaks=3, repeat=2)
def consumer_of_a_generator(x):
    total = 0
    for y in produce(x, 3):
        total = total + y
        print("got")
    return total


def printing(x, n):
    for i in range(n):
        print("inside", i)
        yield x * i


@case(given(TEN), graphs=2, breaks=2, repeat=2)
def generator_that_breaks(x):
    total = x * 2
    for y in printing(x, 3):
        total = total + y
    return total


@case(given(TEN), graphs=1, breaks={(3, 13): 3, None: 5}, repeat=2)
def generator_with_send(x):
    def gen():
        held = 0
        while True:
            held = held + (yield held)

    g = gen()
    next(g)
    a = g.send(x)
    print("between")
    b = g.send(x)
    g.close()
    return a, b


@case(given(TEN), graphs=2, breaks={(3, 13): 3, None: 4}, repeat=2)
def generator_with_finally(x):
    def gen():
        try:
            yield x * 1
            yield x * 2
        finally:
            LOG.append("closed")

    g = gen()
    a = next(g)
    print("between")
    b = next(g)
    g.close()
    return a + b


@case(given(TEN), graphs=1, breaks={(3, 13): 3, None: 4}, repeat=2)
def generator_that_delegates(x):
    def inner():
        got = yield x * 1
        LOG.append(got)
        yield x * 2
        return "end"

    def gen():
        LOG.append((yield from inner()))

    g = gen()
    a = next(g)
    print("between")
    b = g.send("sent")
    return a, b, list(g)


@case(given(TEN), graphs=1, breaks=2, repeat=2)
def generator_expression(x):
    g = (x * i for i in range(3))
    a = next(g)
    print("between")
    return a, list(g)


@case(given(TEN), graphs=2, breaks=2, repeat=2)
def iterators_in_flight(x):
    a, b = iter([1, 2, 3]), itertools.count(5)
    c, d = iter({"k": 1, "l": 2}), map(note, [7, 8, 9])
    next(a), next(b), next(c), next(d)
    y = x * 2
    print("flight")
    return y + 1, list(a), next(b), list(c), list(d)


@case(given([3, 1, 2]), graphs=0, breaks=1, repeat=2)
def sorted_with_a_key_that_breaks(xs):
    def key(v):
        print("key", v)
        return -v

    return sorted(xs, key=key)


@case(given(TEN), graphs=0, breaks=1, repeat=2)
def unpacking_a_generator(x):
    a, b = (x * i + len([print(i)]) for i in range(2))
    return a, b


@case(given(TEN), graphs=3, breaks=3, repeat=2)
def sizes_that_change(x):
    for i in range(3):
        x = torch.cat([x, x[:1] * i])
        print(tuple(x.shape))
    return x
