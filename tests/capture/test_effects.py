"""Writes to objects that existed before the call: nothing until the replay, then all of it."""

import collections
import copy
import types

import pytest

from lehr.compiler.capture.machine import Machine
from lehr.compiler.capture.rebuild import Rebuilder, replay


class Thing:
    total = 0
    tags = ["class"]

    def __init__(self, **attrs):
        self.__dict__.update(attrs)

    def bump(self, by=1):
        self.n = getattr(self, "n", 0) + by
        return self

    @property
    def double(self):
        return self.n * 2

    @double.setter
    def double(self, value):
        self.n = value // 2


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a = 1


class Tracked:
    def __setattr__(self, name, value):
        object.__setattr__(self, "log", [*self.__dict__.get("log", []), name])
        object.__setattr__(self, name, value)


class Items(list):
    pass


VALUE = 10


def setup():
    shared = [1, 2, 3]
    thing = Thing(n=1, items=shared, child=Thing(n=5), table={"a": [0]})
    counter = collections.Counter("aab")
    return types.SimpleNamespace(
        nums=[1, 2, 3],
        same=shared,
        thing=thing,
        d={"a": 1, "b": 2},
        nested={"x": {"y": [1]}},
        s={1, 2, 3},
        dq=collections.deque([1, 2, 3], maxlen=4),
        od=collections.OrderedDict(a=1, b=2, c=3),
        dd=collections.defaultdict(list, k=[1]),
        slotted=Slotted(),
        tracked=Tracked(),
        items=Items([1]),
        counter=counter,
        frozen=(1, [2]),
        grid=[[1, 2], [3, 4]],
    )


def w_append(w):
    w.nums.append(4)
    w.nums.extend([5, 6])
    w.nums.insert(0, "first")
    return list(w.nums), len(w.nums)


def w_list_all(w):
    a = w.nums
    a[0] = "x"
    a[1:2] = ["y", "z"]
    del a[-1]
    a.append(a[0])
    a.reverse()
    a *= 2
    a.pop()
    a.remove("x")
    a.sort(key=str)
    a += ["end"]
    return a, a.index("end")


def w_clear_and_refill(w):
    old = list(w.nums)
    w.nums.clear()
    for x in old:
        w.nums.append(x * 2)


def w_alias(w):
    w.thing.items.append(9)
    return w.same[-1], w.same is w.thing.items, len(w.same)


def w_dict(w):
    w.d["c"] = 3
    w.d["a"] += 10
    del w.d["b"]
    w.d.update(z=1, a=5)
    w.d.setdefault("q", []).append(1)
    return list(w.d.items()), w.d.pop("z")


def w_dict_order(w):
    v = w.d.pop("a")
    w.d["new"] = 1
    w.d["a"] = v
    return list(w.d)


def w_nested(w):
    w.nested["x"]["y"].append(2)
    w.nested["x"]["z"] = w.nested["x"]["y"]
    w.nested["w"] = {"deep": [w.nums]}
    w.nested["w"]["deep"][0].append("through")


def w_attributes(w):
    t = w.thing
    t.n += 1
    t.new = [1]
    t.new.append(2)
    t.child.bump().bump(5)
    t.double = 100
    del t.items
    t.table["a"].append(t.n)
    return t.n, t.double, t.child.n, hasattr(t, "items")


def w_new_object_stored(w):
    node = Thing(n=0, parent=w.thing)
    node.self = node
    w.thing.node = node
    node.n = 7
    return w.thing.node is node, w.thing.node.parent is w.thing


def w_class_attributes(w):
    Thing.total += 5
    Thing.tags.append("x")
    w.thing.total = Thing.total + 1
    Thing.added = "new"
    return Thing.total, w.thing.total, w.thing.added


def w_globals(w):
    global VALUE
    VALUE += 1
    before = VALUE
    VALUE = before * 2
    return VALUE


def w_set(w):
    w.s.add(9)
    w.s.discard(1)
    w.s |= {20}
    w.s -= {2}
    w.s.update([30])
    return sorted(w.s), 9 in w.s


def w_set_pop(w):
    w.s.clear()
    w.s.add("only")
    return w.s.pop(), len(w.s)


def w_deque(w):
    w.dq.append(4)
    w.dq.append(5)
    w.dq.appendleft(0)
    w.dq.rotate(1)
    w.dq[0] = "z"
    return list(w.dq), w.dq.pop(), w.dq.popleft()


def w_ordered(w):
    w.od.move_to_end("a")
    w.od["d"] = 4
    del w.od["b"]
    w.od.move_to_end("d", last=False)
    return list(w.od)


def w_defaultdict(w):
    w.dd["k"].append(2)
    w.dd["new"].append(3)
    w.dd["empty"]
    return dict(w.dd)


def w_slots(w):
    w.slotted.b = 5
    w.slotted.a += 1
    del w.slotted.a
    return w.slotted.b, hasattr(w.slotted, "a")


def w_setattr_hook(w):
    w.tracked.x = 1
    w.tracked.y = w.tracked.x + 1
    return w.tracked.log


def w_subclass(w):
    w.items.append(2)
    w.items.name = "n"
    w.items += [3]
    return list(w.items), w.items.name


def w_counter(w):
    w.counter["a"] += 1
    w.counter.update("zz")
    return w.counter["zz"], w.counter.most_common(1)


def w_swap(w):
    w.nums, w.d = w.d, w.nums
    w.nums["moved"] = w.d
    return w.d


def w_in_tuple(w):
    w.frozen[1].append(3)
    return w.frozen


def w_grid(w):
    for row in w.grid:
        for i in range(len(row)):
            row[i] *= 10
    w.grid.append([sum(r) for r in w.grid])
    a, b, c = w.grid
    a[0], b[0] = b[0], a[0]


def w_conditional(w):
    for x in w.nums:
        if x % 2:
            w.d[x] = x
    if "a" in w.d and not w.thing.table.get("zz"):
        w.thing.flag = True


def w_through_closure(w):
    n = 0

    def add(x):
        nonlocal n
        n += x
        w.nums.append(n)

    for i in range(3):
        add(i)
    return n


def w_error_midway(w):
    w.nums.append("kept")
    try:
        w.d["zzz"]
    except KeyError:
        w.nums.append("handled")
    w.thing.n = 1 / 0


def w_dict_attribute(w):
    w.thing.__dict__["direct"] = 1
    w.thing.__dict__.update(more=2)
    vars(w.thing)["n"] = 50
    return w.thing.direct, w.thing.n


def w_generator_writes(w):
    def gen():
        for i in range(3):
            w.nums.append(i)
            yield i

    return list(zip(gen(), "ab", strict=False)), w.nums


def w_context_manager(w):
    class Guard:
        def __enter__(self):
            w.nums.append("enter")

        def __exit__(self, *a):
            w.nums.append("exit")
            return True

    with Guard():
        w.nums.append("body")
        raise ValueError


def w_method_kept(w):
    push = w.nums.append
    push(1)
    f = w.thing.bump
    f(10)
    return w.thing.n


def w_setattr_builtin(w):
    for i, name in enumerate(["p", "q"]):
        setattr(w.thing, name, i)
    delattr(w.thing, "p")
    return getattr(w.thing, "p", "gone"), w.thing.q


def w_copy_semantics(w):
    a = w.nums.copy()
    b = w.nums[:]
    c = [*w.nums]
    a.append("a")
    b.append("b")
    c.append("c")
    d = dict(w.d)
    d["copy"] = 1
    e = copy.copy(w.nested)
    e["shallow"] = 1
    return a, b, c, d, w.nums


def w_sort_in_place(w):
    w.nums.sort(reverse=True)
    w.grid.sort(key=lambda r: -r[0])
    return w.nums


def w_delete_and_recreate(w):
    del w.thing.n
    w.thing.n = "again"
    del w.d["a"]
    w.d["a"] = "back"
    return list(w.d.items()), w.thing.n


def w_store_function(w):
    def f(x):
        return x + len(w.nums)

    w.thing.f = f
    w.d["f"] = f
    w.nums.append(1)
    return w.thing.f(1)


CASES = [value for name, value in list(globals().items()) if name.startswith("w_")]


def picture(value, seen=None):
    seen = {} if seen is None else seen
    if id(value) in seen:
        return f"<{seen[id(value)]}>"
    if isinstance(value, (int, float, str, type(None))):
        return value
    seen[id(value)] = len(seen)
    if isinstance(value, (list, tuple, collections.deque)):
        return [
            type(value).__name__,
            *[picture(v, seen) for v in value],
            picture(getattr(value, "__dict__", None), seen),
        ]
    if isinstance(value, dict):
        return [
            type(value).__name__,
            *[(picture(k, seen), picture(v, seen)) for k, v in value.items()],
        ]
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    if isinstance(value, types.FunctionType):
        return value.__qualname__, value(1)
    if isinstance(value, Slotted):
        return [getattr(value, n, "unbound") for n in Slotted.__slots__]
    return type(value).__name__, picture(vars(value), seen)


def world(w):
    space = {k: v for k, v in vars(Thing).items() if k in ("total", "tags", "added")}
    return picture([w, space, VALUE])


@pytest.fixture(autouse=True)
def restored():
    yield from reset()


def reset():
    global VALUE
    yield
    VALUE = 10
    Thing.total = 0
    Thing.tags[:] = ["class"]
    if hasattr(Thing, "added"):
        del Thing.added


def attempt(action):
    try:
        return picture(action())
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("case", CASES, ids=lambda f: f.__name__)
def test_replay_leaves_the_world_as_a_native_run_does(case):
    first = setup()
    native = attempt(lambda: case(first)), world(first)
    list(reset())
    second = setup()
    before = world(second)
    machine = Machine()
    outcome = machine.capture(case, (second,))
    assert world(second) == before, "a capture must not touch real objects"
    rebuilder = Rebuilder(machine)
    replay(machine.effects, rebuilder)

    def result():
        if outcome.fault is not None:
            raise rebuilder(outcome.fault)
        return rebuilder(outcome.value)

    assert (attempt(result), world(second)) == native


def test_identity_is_kept_across_result_and_effects():
    w = setup()

    def f(w):
        new = [1]
        w.thing.new = new
        w.d["new"] = new
        return new, w.nums

    new, nums = Machine().run(f, (w,))
    assert w.thing.new is new and w.d["new"] is new and nums is w.nums


def test_effects_are_in_program_order():
    w = setup()
    machine = Machine()
    machine.capture(w_nested, (w,))
    assert [e.kind for e in machine.effects] == [
        "list.append",
        "dict.setitem",
        "dict.setitem",
        "list.append",
    ]


def test_objects_made_by_the_program_leave_no_effects():
    def f():
        a, d = [1], {}
        a.append(2)
        d["k"] = a
        t = Thing(n=1)
        t.bump()
        return d

    machine = Machine()
    machine.capture(f)
    assert machine.effects == []


def test_a_capture_can_be_thrown_away():
    w = setup()
    before = world(w)
    for case in CASES:
        machine = Machine()
        machine.capture(case, (w,))
    assert world(w) == before
