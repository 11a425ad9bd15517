"""Lists, dicts, sets, tuples, deques and their kin."""

import collections


def p_list_methods(log):
    a = [3, 1, 2]
    a.append(5)
    a.extend([7, 8])
    a.extend(x for x in (9,))
    a.insert(0, "i")
    a.insert(-1, "j")
    out = [
        a.pop(),
        a.pop(0),
        a.index(2),
        a.count(1),
        a.copy(),
        len(a),
        a + [0],
        a * 2,
        5 in a,
        "zz" in a,
    ]
    a.remove("j")
    a.reverse()
    out.append(a[:])
    a.sort()
    out.append(a[:])
    a.sort(key=lambda x: -x)
    out.append(a[:])
    a.clear()
    return out, a, bool(a)


def p_list_errors(log):
    out = []
    for f in (
        lambda: [].pop(),
        lambda: [1].pop(5),
        lambda: [1].remove(2),
        lambda: [1].index(5),
        lambda: [1].append(),
        lambda: [1].append(1, 2),
        lambda: [1].extend(5),
        lambda: [1] + (2,),
        lambda: [1].insert("a", 1),
        lambda: [3, "a"].sort(),
        lambda: [1].sort(5),
        lambda: list.append(5, 1),
        lambda: [1].nope(),
        lambda: [1, 2][1, 2],
        lambda: [0].pop("x"),
    ):
        try:
            out.append(f())
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out


def p_nested_lists(log):
    grid = [[0] * 3 for _ in range(2)]
    grid[0][1] = 5
    shared = [[]] * 3
    shared[0].append(1)
    t = ([1],)
    t[0].append(2)
    grid[1][:] = [7, 8, 9]
    grid[0] += [1]
    return grid, shared, t, [list(r) for r in zip(*grid)]


def p_list_comparison(log):
    return (
        [1, 2] == [1, 2],
        [1, 2] < [1, 3],
        [1] < [1, 0],
        [] == (),
        [1, [2]] == [1, [2]],
        [2] >= [1, 9],
        [1] != [1],
        (1, "a") == (1, "a"),
    )


def p_self_reference(log):
    a = [1]
    a.append(a)
    d = {}
    d["me"] = d
    b = [a]
    return repr(a), repr(d), a[1] is a, repr(b), len(a)


def p_tuple_methods(log):
    t = (1, 2, 3, 2)
    return (
        t.count(2),
        t.index(3),
        t + (4,),
        t * 2,
        t[1:],
        t[-1],
        len(t),
        2 in t,
        (1,) < (2,),
        hash((1, 2)) == hash((1, 2)),
        tuple([1]),
        tuple("ab"),
        (),
        ((1, 2), 3)[0][1],
        sorted(t),
        max(t),
        {(1, 2): "k"}[(1, 2)],
        (*t, *[9]),
    )


def p_dict_methods(log):
    d = {"a": 1, "b": 2}
    d["c"] = 3
    out = [
        d.get("a"),
        d.get("z"),
        d.get("z", 0),
        d.setdefault("a", 9),
        d.setdefault("d", 4),
        d.pop("b"),
        d.pop("zz", None),
        list(d),
        list(d.items()),
        list(d.values()),
        len(d),
        "a" in d,
        d.copy(),
        {**d, "e": 5},
        d | {"f": 6},
        dict(a=1),
        dict([("x", 1)]),
        dict({"y": 2}, z=3),
    ]
    d.update({"a": 100}, q=7)
    d.update([("r", 8)])
    d |= {"s": 9}
    out.append(d.popitem())
    del d["a"]
    out += [
        d,
        d == {"c": 3, "d": 4, "q": 7, "r": 8},
        dict.fromkeys("ab", 0),
        {k: v for v, k in enumerate("xy")},
        list(reversed(d)),
    ]
    d.clear()
    return out, d


def p_dict_order(log):
    d = {}
    for k in "cab":
        d[k] = 1
    d["c"] = 2
    del d["a"]
    d["a"] = 3
    return list(d.items()), list({1: "a", True: "b", 1.0: "c"}.items())


def p_dict_keys_kinds(log):
    class K:
        def __init__(self, v):
            self.v = v

        def __hash__(self):
            log.append(("hash", self.v))
            return hash(self.v)

        def __eq__(self, o):
            log.append("eq")
            return isinstance(o, K) and self.v == o.v

    class Plain:
        pass

    p, q = Plain(), Plain()
    d = {
        K(1): "a",
        (1, 2): "t",
        None: "n",
        1.5: "f",
        b"b": "b",
        p: "p",
        len: "len",
        int: "int",
        frozenset([1]): "fs",
    }
    d[K(1)] = "again"
    return (
        d[K(1)],
        d[(1, 2)],
        d[None],
        d[p],
        q in d,
        d[len],
        d[int],
        d[frozenset([1])],
        len(d),
        d.get(K(2)),
        ((1, K(3)) in d),
    )


def p_dict_views(log):
    d = {"a": 1, "b": 2}
    k, v, i = d.keys(), d.values(), d.items()
    d["c"] = 3
    return (
        list(k),
        list(v),
        list(i),
        len(k),
        "a" in k,
        3 in v,
        ("c", 3) in i,
        k & {"a", "z"},
        sorted(k | {"q"}),
        sorted(k - {"a"}),
        k == {"a", "b", "c"},
        repr(k),
        repr(v),
        repr(i),
        k.isdisjoint(["x"]),
        sorted(k ^ {"a", "n"}),
        {"a"} <= k,
        [*k],
        dict(i),
        max(v),
    )


def p_dict_errors(log):
    out = []
    for f in (
        lambda: {}["x"],
        lambda: {}.pop("x"),
        lambda: {}.popitem(),
        lambda: {}.update(5),
        lambda: {}.update([1]),
        lambda: dict([(1,)]),
        lambda: {[]: 1},
        lambda: {}.get(),
        lambda: {} < {},
        lambda: {}.nope,
        lambda: dict(1, 2),
        lambda: {**5},
        lambda: {}.pop(),
    ):
        try:
            out.append(f())
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    d = {}
    try:
        del d["q"]
    except KeyError as e:
        out.append(e.args)
    return out


def p_set_methods(log):
    s = {3, 1}
    s.add(2)
    s.add(1)
    s.discard(9)
    out = [
        sorted(s),
        1 in s,
        len(s),
        sorted(s | {7}),
        s & {1, 9},
        sorted(s - {1}),
        sorted(s ^ {1, 5}),
        {1} < s,
        s >= {1, 2},
        s == {1, 2, 3},
        s != set(),
        sorted(s.union([8], (9,))),
        s.intersection([1, 2], [2]),
        sorted(s.difference([1])),
        sorted(s.symmetric_difference([1, 4])),
        s.isdisjoint([9]),
        {1}.issubset(s),
        s.issuperset([1]),
        set("aab") == {"a", "b"},
        frozenset([1, 2]) == {1, 2},
        bool(set()),
        sorted({x % 3 for x in range(9)}),
    ]
    s.remove(1)
    s.update([10], {11})
    s -= {2}
    s |= {4}
    s &= {4, 10, 11, 3}
    s ^= {3}
    out.append(sorted(s))
    t = s.copy()
    s.clear()
    x = {5}
    out += [
        s,
        sorted(t),
        x.pop(),
        x,
        {frozenset([1])} == {frozenset([1])},
        {frozenset([2]): 1}[frozenset([2])],
        {1} in [{1}],
        {2} in {frozenset([2])},
    ]
    return out


def p_set_errors(log):
    out = []
    for f in (
        lambda: set().pop(),
        lambda: {1}.remove(2),
        lambda: {1} | [2],
        lambda: {1} < 5,
        lambda: {[]},
        lambda: set(5),
        lambda: {1}.union(5),
        lambda: frozenset([1]).add(1),
        lambda: hash({1}),
        lambda: {1}[0],
    ):
        try:
            out.append(f())
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out


def p_deque(log):
    d = collections.deque([1, 2, 3], maxlen=4)
    d.append(4)
    d.append(5)
    d.appendleft(0)
    out = [list(d), d[0], d[-1], len(d), 2 in d, d.maxlen, d.pop(), d.popleft(), repr(d)]
    d.extend([7, 8])
    d.extendleft([9])
    d.rotate(1)
    out += [
        list(d),
        list(reversed(d)),
        d.index(7),
        d.count(7),
        d == collections.deque(d, maxlen=4),
        bool(collections.deque()),
    ]
    d[0] = "z"
    d.remove(7) if hasattr(d, "remove") and False else None
    d.clear()
    try:
        d.pop()
    except IndexError as e:
        out.append(str(e))
    try:
        d[3]
    except IndexError as e:
        out.append(str(e))
    return out


def p_defaultdict(log):
    d = collections.defaultdict(list)
    d["a"].append(1)
    d["b"]
    e = collections.defaultdict(int, x=5)
    for c in "hello":
        e[c] += 1
    f = collections.defaultdict(lambda: collections.defaultdict(int))
    f["p"]["q"] += 2
    out = [
        dict(d),
        dict(e),
        f["p"]["q"],
        "zz" in d,
        d.get("zz"),
        repr(d),
        d.default_factory is list,
        d.copy() == d,
    ]
    try:
        collections.defaultdict()["k"]
    except KeyError as x:
        out.append(x.args)
    try:
        collections.defaultdict(5)
    except TypeError as x:
        out.append(str(x))
    return out


def p_ordereddict(log):
    d = collections.OrderedDict([("a", 1), ("b", 2), ("c", 3)])
    d.move_to_end("a")
    d.move_to_end("c", last=False)
    out = [
        list(d.items()),
        d.popitem(),
        d.popitem(last=False),
        repr(d),
        d == {"b": 2},
        collections.OrderedDict(x=1, y=2) == collections.OrderedDict(y=2, x=1),
    ]
    try:
        d.move_to_end("zz")
    except KeyError as e:
        out.append(e.args)
    return out


def p_counter(log):
    c = collections.Counter("abracadabra")
    d = collections.Counter(a=1, z=2)
    out = [
        c.most_common(2),
        c["a"],
        c["nope"],
        sum(c.values()),
        sorted(c.elements())[:3],
        c + d,
        c - d,
        (c & d),
        sorted((c | d).items()),
    ]
    c.update("aa")
    c.subtract(["b"])
    return out, c["a"], c["b"], c.total()


def p_chainmap(log):
    m = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
    m["c"] = 4
    return m["a"], m["b"], sorted(m), len(m), m.maps[0], m.new_child({"a": 9})["a"], "b" in m


def p_userdict(log):
    class U(collections.UserDict):
        def __setitem__(self, k, v):
            super().__setitem__(k.upper(), v)

    u = U(a=1)
    u["b"] = 2
    return dict(u), "A" in u, len(u), u.get("B")


def p_heapq(log):
    import heapq

    h = []
    for x in (5, 1, 4, 2, 3):
        heapq.heappush(h, x)
    out = [heapq.heappop(h), heapq.heappushpop(h, 0), heapq.heapreplace(h, 9)]
    k = [(3, "c"), (1, "a"), (2, "b")]
    heapq.heapify(k)
    return (
        out,
        [heapq.heappop(h) for _ in range(len(h))],
        k[0],
        heapq.nlargest(2, [1, 5, 3]),
        heapq.nsmallest(2, [4, 1, 3], key=lambda x: -x),
    )


def p_bisect(log):
    import bisect

    a = [1, 3, 5]
    return bisect.bisect_left(a, 3), bisect.bisect(a, 4)


def p_simple_namespace(log):
    import types

    s = types.SimpleNamespace(a=1, b=[2])
    s.c = s.a + 5
    s.b.append(3)
    return s.a, s.b, s.c, sorted(vars(s))


def p_star_building(log):
    a, d = [1, 2], {"x": 1}
    return (
        [*a, *"bc", *range(2)],
        (*a,),
        {*a, 3} == {1, 2, 3},
        {**d, "y": 2, **{"x": 5}},
        [*d],
        [*d.items()],
    )


def p_mutable_defaults_and_aliases(log):
    a = {"k": []}
    b = a
    b["k"].append(1)
    c = dict(a)
    c["k"].append(2)
    c["new"] = 1
    return a, c, a["k"] is c["k"]


def p_in_operator(log):
    return (
        1 in [1, 2],
        "a" in {"a": 1},
        5 in (x for x in (4, 5)),
        "bc" in "abcd",
        None in [None],
        [1] in [[1]],
        2 not in {1},
        1.0 in [1],
        (1, 2) in [(1, 2)],
        float("nan") in [1],
    )


def p_nan_identity(log):
    n = float("nan")
    a = [n]
    return n in a, n == n, a == a, a.index(n), a.count(n), {n: 1}[n]


def p_sum_of_lists(log):
    return sum([[1], [2, 3]], []), sum(((1,), (2,)), ()), sum([1, 2.5])


def p_enumerate_dict_zip(log):
    d = {"a": [1, 2], "b": [3, 4]}
    return (
        [(i, k, v) for i, (k, v) in enumerate(d.items())],
        {k: sum(v) for k, v in d.items()},
        list(zip(*d.values())),
        dict(zip(d, range(5))),
        [k for k in d if d[k][0] > 1],
    )


def p_iterate_and_modify_copy(log):
    d = {i: i for i in range(5)}
    for k in list(d):
        if k % 2:
            del d[k]
    a = [1, 2, 3, 4]
    for x in a[:]:
        if x % 2:
            a.remove(x)
    return d, a


def p_matrix(log):
    m = [[1, 2], [3, 4]]
    t = list(map(list, zip(*m)))
    p = [[sum(a * b for a, b in zip(r, c)) for c in zip(*t)] for r in m]
    return t, p, [x for r in m for x in r], sum(map(sum, m))


def p_bytes_and_bytearray(log):
    b = bytes(range(5))
    return (
        b[1:3],
        b.find(2),
        [x for x in b],
        b"".join([b"a", b"b"]),
        b"a b".split(),
        bytes("é", "utf8"),
        b > b"",
        b"abc".upper(),
    )


def p_range_use(log):
    r = range(2, 20, 3)
    return (
        list(r),
        r[1],
        r[-1],
        len(r),
        5 in r,
        6 in r,
        r.index(8),
        r.count(2),
        r[1:3],
        r.start,
        r.stop,
        r.step,
        range(0) == range(2, 1),
        max(r),
        sum(r),
        [*reversed(r)],
    )


def p_group_by_key(log):
    words = ["apple", "bob", "cat", "avocado", "bee"]
    groups = {}
    for w in words:
        groups.setdefault(w[0], []).append(w)
    return (
        groups,
        sorted(groups.items(), key=lambda kv: (-len(kv[1]), kv[0])),
        max(groups, key=lambda k: len(groups[k])),
    )


def p_flatten(log):
    def flat(x):
        return [y for z in x for y in (flat(z) if isinstance(z, (list, tuple)) else [z])]

    return flat([1, [2, (3, [4])], []])


def p_tree_map(log):
    def tree(f, t):
        if isinstance(t, dict):
            return {k: tree(f, v) for k, v in t.items()}
        if isinstance(t, (list, tuple)):
            return type(t)(tree(f, v) for v in t)
        return f(t)

    return tree(lambda x: x + 1, {"a": 1, "b": [2, (3, 4)], "c": {}})


def p_mappingproxy(log):
    import types

    d = {"a": 1}
    m = types.MappingProxyType(d)
    d["b"] = 2
    out = [m["a"], len(m), list(m), m.get("z", 0), "b" in m]
    try:
        m["c"] = 1
    except TypeError as e:
        out.append(str(e))
    return out


def p_views_beside_sets(log):
    ds = [{}, {"a": 1}, {"a": [2]}, {"a": 1, "b": 2}, {1: "a"}]
    others = [set(), {"a"}, {("a", 1)}, frozenset(), ds[1].items(), ds[2].items(), ds[3].keys(),
              [1], ds[1].values()]
    tests = [lambda p, q: p == q, lambda p, q: p != q, lambda p, q: p <= q, lambda p, q: p < q,
             lambda p, q: p >= q, lambda p, q: p > q, lambda p, q: q >= p, lambda p, q: q == p]
    out = []
    for d in ds:
        for o in others:
            for v in (d.keys(), d.items(), d.values()):
                for test in tests:
                    try:
                        out.append(test(v, o))
                    except TypeError as e:
                        out.append(str(e))
    return out
