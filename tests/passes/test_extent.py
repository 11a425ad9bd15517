"""What is known of integers, and checks that cannot fail or are made once for what is repeated."""

import numpy as np
import pytest

from lehr.compiler.graph.text import parse_graph, print_graph
from lehr.compiler.graph.verify import verify
from lehr.compiler.passes.extent import ALL, extent
from lehr.compiler.passes.simplify import simplify

LOW, HIGH = ALL
CASES = [
    ("%1 = clamp_min(%i, 2)", (2, HIGH)),
    ("%1 = clamp_max(%i, 5)", (LOW, 5)),
    ("%0 = clamp_min(%i, 0)\n%1 = clamp_max(%0, 5)", (0, 5)),
    ("%0 = clamp_min(%i, 9)\n%1 = clamp_max(%0, 5)", (5, 5)),
    ("%0 = clamp_max(%i, 5)\n%1 = add(%0, %0, 1)", ALL),        # may wrap
    ("%z = clamp_min(%i, -3)\n%0 = clamp_max(%z, 5)\n%1 = mul(%0, -2)", (-10, 6)),
    ("%z = clamp_min(%i, -3)\n%0 = clamp_max(%z, 5)\n%1 = add(%0, 7, 1)", (4, 12)),
    ("%z = clamp_min(%i, -3)\n%0 = clamp_max(%z, 5)\n%1 = add(%0, 7, 2)", ALL),
    ("%1 = add(%i, 1, 1)", ALL),
]


def graph(lines, shape="2,3", tail=(), result=None):
    made = [f"{line} : i64[2,3]" for line in lines.split("\n")] + list(tail)
    body = "\n  ".join(made)
    result = result or made[-1].split(" ")[0]
    return verify(parse_graph(f"graph g(%i: i64[{shape}]) {{\n  {body}\n"
                              f"  return outputs({result}) saved() grads() writebacks()\n}}"))


@pytest.mark.parametrize("lines, want", CASES)
def test_extent(lines, want):
    made = graph(lines)
    assert extent(made.results["outputs"][0]) == want
    low, high = want
    i = np.array([[-9, -3, 0], [4, 5, 1 << 40]])
    for line in lines.split("\n"):      # what numpy gives lies within
        name, args = line.split(" = ")[1].rstrip(")").split("(")
        number = int(args.split(", ")[1]) if "%" not in args.split(", ")[1] else i
        i = {"clamp_min": np.maximum, "clamp_max": np.minimum, "mul": np.multiply,
             "add": lambda a, b, n=int(args.split(", ")[-1]): a + n * b}[name](i, number)
    assert low <= i.min() and i.max() <= high


def checks(lines, size, wrap, shape="2,3"):
    made = graph(lines, shape, [f"%c = check_index(%1, {size}, {wrap}) : i64[]"], "%1")
    return print_graph(simplify(made)).count("check_index")


def test_checks():
    inside = "%0 = clamp_min(%i, 0)\n%1 = clamp_max(%0, 5)"
    assert checks(inside, 6, False) == 0
    assert checks(inside, 5, False) == 1
    below = "%0 = clamp_min(%i, -6)\n%1 = clamp_max(%0, 5)"
    assert checks(below, 6, True) == 0
    assert checks(below, 6, False) == checks(below, 5, True) == 1
    assert checks("%1 = clamp_min(%i, 0)", 6, False) == 1


def test_repeated_indices():
    made = graph("%1 = expand(%i, (2, 3))", "2,1", ["%c = check_index(%1, 7, False) : i64[]"], "%1")
    assert "check_index(%i, 7, False)" in print_graph(simplify(made))
