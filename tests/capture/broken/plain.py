"""Breaks at single places: calls, branches, reads of data, returns."""

import math

import numpy as np

import lehr as torch

from .case import case, given, leaf, t

TEN = t(1.0, 2.0)
PAIR = [given(t(1.0, 2.0)), given(t(-3.0, 1.0)), given(t(4.0, -1.0)), given(t(-1.0, -1.0))]


@case(given(TEN), graphs=2, breaks=1, repeat=3)
def print_in_the_middle(x):
    y = x * 2
    print("y", tuple(y.shape))
    return y + 1


@case(given(TEN), graphs=1, breaks=1, repeat=3)
def print_first(x):
    print("first")
    return x * 2 + 1


@case(given(TEN), graphs=1, breaks=1, repeat=3)
def print_last(x):
    y = x * 2 + 1
    print("last")
    return y


@case(given(TEN), graphs=0, breaks=1, repeat=2)
def print_only(x):
    print("only")


@case(given(TEN), given(t(1.0)), graphs=4, breaks=8, repeat=2)
def print_of_values(x):
    y = x * 2
    print("sum", float(y.sum()), y.tolist())
    z = y - 1
    print(z.max().item())
    return z


@case(*PAIR, graphs=3, breaks=1)
def branch(x):
    if x.sum() > 0:
        return x * 2
    return x - 1


@case(*PAIR, graphs=3, breaks=1)
def branch_inverted(x):
    y = 1.0
    if not (x.sum() > 0):
        y = 2.0
    return x * y


@case(*PAIR, graphs={(3, 13): 5, None: 4}, breaks=2)
def branch_of_two(x):
    if x[0] > 0 and x[1] > 0:
        return x * 2
    return x - 1


@case(*PAIR, graphs=2, breaks=1)
def branch_or_value(x):
    return (x.sum() > 0) or x * 3


@case(*PAIR, graphs=3, breaks=1)
def branch_expression(x):
    y = x + 1
    return (y * 2 if y.sum() > 1 else y * 3) + x


@case(*PAIR, graphs=2, breaks=1)
def bool_of_a_tensor(x):
    flag = bool((x > 0).all())
    return x * 2, flag


@case(*PAIR, graphs=2, breaks=1)
def item_in_arithmetic(x):
    scale = x.sum().item()
    return x * scale + scale


@case(*PAIR, graphs=2, breaks=1)
def item_compared(x):
    return x if x.max().item() > 100 else x * 2


@case(*PAIR, graphs=3, breaks=1)
def to_list(x):
    first, second = (x * 2).tolist()
    return x + first, second


@case(given(t(1.0, 2.0, 3.0), t(2, dtype=torch.int64)), graphs=2, breaks=1, repeat=2)
def size_from_data(x, n):
    k = int(n.sum())
    return x[:k] * k


@case(given(t(1.0, 0.0, 3.0)), given(t(0.0, 0.0, 3.0)), graphs=3, breaks=1)
def nonzero(x):
    where = (x * 2).nonzero()
    return where * 2, where.shape[0]


@case(given(t(1.0, 0.0, 3.0)), given(t(0.0, 0.0, 3.0)), graphs=3, breaks=1)
def mask_select(x):
    kept = x[x > 0]
    return kept.sum() + x


@case(*PAIR, graphs=2, breaks=2)
def through_numpy(x):
    y = x * 2
    a = np.sort(y.numpy())
    return torch.from_numpy(a) + x


@case(*PAIR, graphs=2, breaks=1)
def numpy_writes(x):
    y = x + 0
    y.numpy()[0] = 7.0
    return y * 2


@case(*PAIR, graphs=2, breaks=2)
def converted_to_numpy(x):
    a = (x * 2).numpy()
    return a.dtype.name, x * 3


@case(given(TEN, 0.5), given(TEN, 0.25), graphs=2, breaks=0)
def library_calls_that_fold(x, p):
    y = x * p
    q = math.fsum([p, p])
    s = str.__new__(str, p)
    open_ = id(y) > 0
    return y + q, s, open_


@case(given(TEN), graphs=2, breaks=1, repeat=2)
def in_an_argument_list(x):
    return torch.stack([x * 2, x + len([print("arg")]), x - 1])


@case(given(TEN), graphs=2, breaks=2, repeat=2)
def in_keyword_arguments(x):
    return dict(a=x * 2, b=print("b"), c=x + 1, **{"d": print("d")})  # noqa: C408


@case(given(TEN), graphs=2, breaks=1, repeat=2)
def in_a_format(x):
    y = x * 2
    text = f"{y.sum().item():>8.3f}|{tuple(y.shape)}"
    return y + 1, text


@case(*PAIR, graphs=2, breaks=3)
def printed_float(x):
    y = x * 2
    print(f"{y.sum().item():.2f}")
    return y.relu()


@case(given(TEN), graphs=2, breaks=1, repeat=2)
def in_a_subscript(x):
    table = {"k": x * 2}
    return table[{None: "k"}[print("sub")]] + 1


@case(given(TEN), graphs=2, breaks=1, repeat=2)
def in_a_lambda_default(x):
    y = x * 2
    f = lambda v, scale=print("default"): v * 2 if scale is None else v
    return f(y)


@case(given(TEN), graphs=2, breaks=1, repeat=2)
def requested(x):
    y = x * 2
    torch.compiler.graph_break()
    return y + 1


@case(given(leaf(1.0, 2.0)), graphs=2, breaks=1, repeat=2)
def gradients_flow_through(x):
    y = x * x
    print("grad", y.requires_grad)
    z = y * 3
    return z.sum()


@case(given(leaf(1.0, 2.0)), graphs=2, breaks=1, repeat=2)
def views_flow_through(x):
    y = (x * 2).reshape(2, 1)
    print("view")
    return y.t() + 1, y


@case(given(TEN), graphs=2, breaks=1, repeat=2)
def constants_flow_through(x):
    a, b, c, d = 1, "s", None, (1, [2.0, {"k": x * 2}])
    print("constants")
    return a, b, c, d, x + a
