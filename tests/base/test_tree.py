import pickle
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from lehr.base import tree
from lehr.base.tree import TreeSpec, flatten, flatten_like, leaves, map_only, paths, unflatten


class Point(NamedTuple):
    x: object
    y: object


Pair = namedtuple("Pair", "first second")


class Sub(list):
    pass


@dataclass
class Batch:
    data: object
    label: object
    name: str = "b"
    cached: object = field(default=None, init=False)


@dataclass
class Plain:
    value: int


class Box:
    def __init__(self, items, tag):
        self.items, self.tag = items, tag


tree.register_dataclass(Batch, drop=("name",))
tree.register(
    Box,
    lambda box: (box.items, box.tag),
    lambda items, tag: Box(list(items), tag),
    lambda tag, count: [f".items[{i}]" for i in range(count)],
)

TREES = [
    (1, [1], "*"),
    (None, [None], "*"),
    ([], [], "[]"),
    ((), [], "()"),
    ((1,), [1], "(*,)"),
    ([1, (2, None)], [1, 2, None], "[*, (*, *)]"),
    ({"b": 1, "a": [2]}, [1, 2], "{'b': *, 'a': [*]}"),
    ({}, [], "{}"),
    (Point(1, [2]), [1, 2], "Point(.x*, .y[*])"),
    (Pair(3, 4), [3, 4], "Pair(.first*, .second*)"),
    (OrderedDict(z=1, a=2), [1, 2], "OrderedDict(['z']*, ['a']*)"),
    (defaultdict(list, {"k": 5}), [5], "defaultdict(['k']*)"),
    (deque([1, 2], maxlen=4), [1, 2], "deque([0]*, [1]*)"),
    (Batch(1, (2,), "n"), [1, 2], "Batch(.data*, .label(*,))"),
    (Plain(3), [Plain(3)], "*"),
    (Sub([1]), [Sub([1])], "*"),
    ("text", ["text"], "*"),
]


@pytest.mark.parametrize(("value", "want", "text"), TREES, ids=[str(case[0]) for case in TREES])
def test_flatten_and_back(value, want, text):
    found, spec = flatten(value)
    assert found == want
    assert spec.count == len(want)
    assert str(spec) == text
    back = unflatten(found, spec)
    assert back == value
    assert type(back) is type(value)
    again = flatten(back)[1]
    assert again == spec
    assert hash(again) == hash(spec)
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_order_and_details_survive():
    back = unflatten([10, 20], flatten({"b": 1, "a": 2})[1])
    assert list(back.items()) == [("b", 10), ("a", 20)]
    d = unflatten([1], flatten(defaultdict(list, k=0))[1])
    assert d["new"] == []
    q = unflatten([1, 2], flatten(deque([0, 0], maxlen=2))[1])
    assert q.maxlen == 2
    batch = unflatten([5, 6], flatten(Batch(1, 2, "name"))[1])
    assert (batch.data, batch.label, batch.name) == (5, 6, "name")
    box = tree.map(lambda v: v + 1, Box([1, 2], "t"))
    assert (box.items, box.tag) == ([2, 3], "t")


def test_specs_differ():
    different = [
        [1, 2],
        (1, 2),
        [1, [2]],
        {"a": 1, "b": 2},
        {"b": 1, "a": 2},
        Point(1, 2),
        Pair(1, 2),
        deque([1, 2]),
        deque([1, 2], 5),
        OrderedDict(a=1, b=2),
        Batch(1, 2, "p"),
        Batch(1, 2, "q"),
    ]
    specs = {flatten(value)[1] for value in different}
    assert len(specs) == len(different)
    assert flatten([1])[1] != "[*]"
    assert repr(flatten([1])[1]) == "TreeSpec([*])"
    assert flatten(1)[1].is_leaf
    assert not flatten([])[1].is_leaf


def test_is_leaf():
    found, spec = flatten({"a": (1, 2), "b": 3}, is_leaf=lambda v: isinstance(v, tuple))
    assert found == [(1, 2), 3]
    assert str(spec) == "{'a': *, 'b': *}"
    assert leaves([1, [2]], is_leaf=lambda v: True) == [[1, [2]]]
    assert tree.structure((1, 2)).count == 2


def test_map():
    assert tree.map(lambda v: v * 2, {"a": [1, 2], "b": (3,)}) == {"a": [2, 4], "b": (6,)}
    assert tree.map(lambda p, q: (p, q), [1, 2], [3, [4]]) == [(1, 3), (2, [4])]
    assert tree.map(lambda p, q: p - q, {"b": 1, "a": 2}, {"a": 5, "b": 7}) == {"b": -6, "a": -3}
    assert tree.map(lambda p, q: p + q, OrderedDict(a=1), {"a": 2}) == OrderedDict(a=3)
    assert map_only(int, lambda v: v + 1, [1, "s", (2.0, 3)]) == [2, "s", (2.0, 4)]


def test_paths():
    value = {"p": [1, Point(2, {3: 4})], "q": Batch(5, 6), "b": Box([7], 0)}
    assert paths(value) == [
        ("['p'][0]", 1),
        ("['p'][1].x", 2),
        ("['p'][1].y[3]", 4),
        ("['q'].data", 5),
        ("['q'].label", 6),
        ("['b'].items[0]", 7),
    ]
    assert paths(3) == [("", 3)]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"a": [1, (2,)]}, {"a": [1, [2]]}, r"at \['a'\]\[1\]: expected tuple, got list"),
        ([1, [2, 3]], [1, [2]], r"at \[1\]: expected 2 children, got 1"),
        ({"a": {"b": 1}}, {"a": {}}, r"at \['a'\]: missing key 'b'"),
        ({"a": 1}, {"a": 1, "c": 2}, r"at the root: unexpected key 'c'"),
        ([[1]], [5], r"at \[0\]: expected list, got int"),
        ([Batch(1, 2, "p")], [Batch(1, 2, "q")], r"at \[0\]: expected context"),
        ([deque([1])], [deque([1], 3)], r"at \[0\]: expected context None, got 3"),
    ],
)
def test_mismatches_name_the_place(first, second, message):
    with pytest.raises(ValueError, match=message):
        tree.map(lambda p, q: p, first, second)
    with pytest.raises(ValueError, match=message):
        flatten_like(flatten(first)[1], second)


def test_wrong_number_of_leaves():
    with pytest.raises(ValueError, match=r"1 leaves do not fit \[\*, \*\], which has 2"):
        unflatten([1], flatten([1, 2])[1])


def test_registration_errors():
    with pytest.raises(ValueError, match="Box is already"):
        tree.register(Box, lambda v: ((), None), lambda c, _: None)
    with pytest.raises(ValueError, match="list is already"):
        tree.register(list, lambda v: ((), None), lambda c, _: None)
    with pytest.raises(ValueError, match="Point is already"):
        tree.register(Point, lambda v: ((), None), lambda c, _: None)
    with pytest.raises(TypeError, match="no dataclass"):
        tree.register_dataclass(Box)
    with pytest.raises(ValueError, match="no init field 'colour'"):
        tree.register_dataclass(Plain, drop=("colour",))
    with pytest.raises(TypeError, match="Plain is not registered"):
        unflatten([1], TreeSpec(Plain, None, [tree.LEAF]))


def test_unhashable_context_names_the_type():
    class Odd:
        pass

    tree.register(Odd, lambda v: ((1,), []), lambda c, context: Odd())
    spec = flatten(Odd())[1]
    with pytest.raises(TypeError, match=r"context of .*Odd"):
        hash(spec)


def test_agrees_with_torch():
    pytree = pytest.importorskip("torch.utils._pytree")
    for value, _, _ in TREES:
        if isinstance(value, Batch | Box):
            continue
        assert leaves(value) == pytree.tree_leaves(value)
        doubled = pytree.tree_map(lambda v: (v,), value)
        assert tree.map(lambda v: (v,), value) == doubled
