"""Random writes to containers that existed before the call: same result and same state after."""

import collections
import random

import pytest

from lehr.compiler.capture.machine import Machine
from lehr.compiler.capture.rebuild import Rebuilder, replay

SEEDS = range(120)


class Box:
    kind = "box"

    def __init__(self):
        self.n, self.items, self.link = 1, [1, 2], None


class Slim:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a, self.b = 1, [2]


def setup():
    shared = [1, 2, 3]
    box, other = Box(), Box()
    box.link = other
    return {
        "xs": [1, 2, 3, 4],
        "ys": shared,
        "zs": shared,
        "d": {"a": 1, "b": [1], "c": {"x": 1}},
        "s": {1, 2, 3},
        "q": collections.deque([1, 2, 3], maxlen=5),
        "o": collections.OrderedDict(a=1, b=2, c=3),
        "dd": collections.defaultdict(list, a=[0]),
        "box": box,
        "other": other,
        "slim": Slim(),
        "log": [],
    }


LISTS = ["w['xs']", "w['ys']", "w['zs']", "w['d']['b']", "w['box'].items", "w['other'].items"]
DICTS = ["w['d']", "w['d']['c']", "w['o']", "w['dd']", "w['box'].__dict__"]
VALUES = ["1", "'v'", "[0]", "len(w['xs'])", "w['ys']", "{}", "new", "w['box'].n", "(1, [2])"]
KEYS = ["'a'", "'b'", "'k'", "1", "(1, 2)"]
LIST_WRITES = [
    "{c}.append({v})", "{c}.extend([{v}, 5])", "{c}.insert(1, {v})", "{c}.pop()", "{c}.pop(0)",
    "{c}[0] = {v}", "{c}[1:2] = [{v}, {v}]", "del {c}[0]", "{c}.reverse()", "{c}.clear()",
    "{c} += [{v}]", "{c}.remove(1)", "{c}.sort(key=str)", "{c}[::2] = []", "{c} *= 2",
]
DICT_WRITES = [
    "{c}[{k}] = {v}", "del {c}[{k}]", "{c}.pop({k}, None)", "{c}.update(p={v})", "{c}.clear()",
    "{c}.setdefault({k}, {v})", "{c} |= {{'m': {v}}}", "log({c}.get({k}))", "log({k} in {c})",
]
OTHERS = [
    "w['s'].add({n})", "w['s'].discard({n})", "w['s'] -= {{1}}", "w['s'].update([8, 9])",
    "w['q'].append({v})", "w['q'].appendleft({v})", "w['q'].popleft()", "w['q'].rotate(1)",
    "w['o'].move_to_end('a')", "w['dd']['n'].append({v})", "w['box'].n += 1", "w['box'].new = {v}",
    "del w['box'].n", "w['box'].link.n = {v}", "Box.kind = {v}", "w['slim'].a = {v}",
    "del w['slim'].b", "new.append({v})", "w['box'].link, w['other'] = w['other'], w['box'].link",
    "log(sorted(map(str, w['s'])))", "log([type(x).__name__ for x in w['xs']])", "log(Box.kind)",
    "for x in list(w['ys']): w['xs'].append(x)", "log(w['box'].link is w['other'])",
]


def write(r):
    """One statement that changes or looks at something."""
    parts = {"v": r.choice(VALUES), "k": r.choice(KEYS), "n": str(r.randrange(5))}
    kind = r.randrange(3)
    if kind == 0:
        return r.choice(LIST_WRITES).format(c=r.choice(LISTS), **parts)
    if kind == 1:
        return r.choice(DICT_WRITES).format(c=r.choice(DICTS), **parts)
    return r.choice(OTHERS).format(**parts)


def build(seed):
    r = random.Random(seed)
    lines = ["def main(w):", "    new = []", "    log = w['log'].append"]
    for _ in range(r.randint(3, 14)):
        lines += ["    try:", f"        {write(r)}", "    except Exception as e:",
                  "        log((type(e).__name__, str(e)))"]
    lines.append(f"    return new, {r.choice(LISTS)}, {r.choice(DICTS)}")
    text = "\n".join(lines)
    scope = {"Box": Box}
    exec(compile(text, f"<generated {seed}>", "exec"), scope)
    return scope["main"], text


def picture(value, seen):
    """Structure, content and identity."""
    if isinstance(value, (int, float, str, type(None), type)):
        return value
    if isinstance(value, tuple):    # constants: equal ones may be one object or not
        return [picture(v, seen) for v in value]
    if id(value) in seen:
        return f"<{seen[id(value)]}>"
    seen[id(value)] = len(seen)
    name = type(value).__name__
    if isinstance(value, dict):
        return name, [(picture(k, seen), picture(v, seen)) for k, v in value.items()]
    if isinstance(value, (set, frozenset)):
        return name, sorted(map(str, value))
    if isinstance(value, (list, collections.deque)):
        return name, [picture(v, seen) for v in value]
    if isinstance(value, Slim):
        return name, [picture(getattr(value, n, "unbound"), seen) for n in Slim.__slots__]
    return name, picture(vars(value), seen)


def run(action):
    try:
        return action()
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_writes(seed):
    main, text = build(seed)
    Box.kind = "box"
    w = setup()
    native = picture([run(lambda: main(w)), w, Box.kind], {})
    Box.kind = "box"
    w = setup()
    before = picture([w, Box.kind], {})
    machine = Machine()
    outcome = machine.capture(main, (w,))
    assert picture([w, Box.kind], {}) == before
    rebuilder = Rebuilder(machine)
    replay(machine.effects, rebuilder)

    def result():
        if outcome.fault is not None:
            raise rebuilder(outcome.fault)
        return rebuilder(outcome.value)
    assert picture([run(result), w, Box.kind], {}) == native, text
    Box.kind = "box"
