"""C functions of the standard library written as plain Python, which the machine interprets.

`POLYFILLS` maps the real callable to its stand-in.  They are looked at by the machine only; the
values they make behave like the real ones except for their type.
"""
from __future__ import annotations

# mypy: ignore-errors
import _collections
import _functools
import bisect
import collections
import functools
import heapq
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

POLYFILLS: dict[Any, Callable[..., Any]] = {}
MISSING = object()


def polyfill(*reals: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for real in reals:
            POLYFILLS[real] = function
        return function
    return add


# -- itertools


@polyfill(itertools.islice)
def islice(iterable, *args):
    cut = slice(*args)
    start, stop, step = cut.start or 0, cut.stop, 1 if cut.step is None else cut.step
    for number in (start, stop, step):
        if number is not None and (not isinstance(number, int) or number < 0):
            raise ValueError("Indices for islice() must be None or an integer: 0 <= x"
                             " <= sys.maxsize.")
    if step == 0:
        raise ValueError("Step for islice() must be a positive integer or None.")
    return slice_items(iter(iterable), start, stop, step)


def slice_items(iterator, start, stop, step):
    at, following = 0, start
    while stop is None or following < stop:
        while at < following:
            at += 1
            if next(iterator, MISSING) is MISSING:
                return
        item = next(iterator, MISSING)
        if item is MISSING:
            return
        at += 1
        following += step
        yield item
    while at < (stop or 0):
        at += 1
        if next(iterator, MISSING) is MISSING:
            return


@polyfill(itertools.takewhile)
def takewhile(predicate, iterable):
    return takewhile_items(predicate, iter(iterable))


def takewhile_items(predicate, iterable):
    for item in iterable:
        if not predicate(item):
            return
        yield item


@polyfill(itertools.dropwhile)
def dropwhile(predicate, iterable):
    return dropwhile_items(predicate, iter(iterable))


def dropwhile_items(predicate, iterator):
    for item in iterator:
        if not predicate(item):
            yield item
            break
    yield from iterator


@polyfill(itertools.accumulate)
def accumulate(iterable, func=None, *, initial=None):
    return accumulate_items(iter(iterable), func, initial)


def accumulate_items(iterator, func, initial):
    total = initial
    if initial is None:
        total = next(iterator, MISSING)
        if total is MISSING:
            return
    yield total
    for item in iterator:
        total = total + item if func is None else func(total, item)
        yield total


@polyfill(itertools.product)
def product(*iterables, repeat=1):
    return product_items([tuple(pool) for pool in iterables] * repeat)


def product_items(pools):
    results = [()]
    for pool in pools:
        results = [(*head, item) for head in results for item in pool]
    yield from results


@polyfill(itertools.permutations)
def permutations(iterable, r=None):
    return permutation_items(tuple(iterable), r)


def permutation_items(pool, r):
    r = len(pool) if r is None else r
    if r < 0:
        raise ValueError("r must be non-negative")
    yield from permuted(pool, (), r)


def permuted(pool, taken, r):
    if len(taken) == r:
        yield tuple([pool[i] for i in taken])
        return
    for i in range(len(pool)):
        if i not in taken:
            yield from permuted(pool, (*taken, i), r)


@polyfill(itertools.combinations)
def combinations(iterable, r):
    if r < 0:
        raise ValueError("r must be non-negative")
    return combined(tuple(iterable), 0, (), r, 1)


@polyfill(itertools.combinations_with_replacement)
def combinations_with_replacement(iterable, r):
    if r < 0:
        raise ValueError("r must be non-negative")
    return combined(tuple(iterable), 0, (), r, 0)


def combined(pool, start, head, r, step):
    if len(head) == r:
        yield head
        return
    for i in range(start, len(pool)):
        yield from combined(pool, i + step, (*head, pool[i]), r, step)


@polyfill(itertools.zip_longest)
def zip_longest(*iterables, fillvalue=None):
    return zip_longest_items([iter(iterable) for iterable in iterables], fillvalue)


def zip_longest_items(iterators, fillvalue):
    live = len(iterators)
    while True:
        row = []
        for i, iterator in enumerate(iterators):
            item = MISSING if iterator is None else next(iterator, MISSING)
            if item is MISSING:
                if iterator is not None:
                    iterators[i] = None
                    live -= 1
                item = fillvalue
            row.append(item)
        if not live:
            return
        yield tuple(row)


@polyfill(itertools.groupby)
def groupby(iterable, key=None):
    return groupby_items(iter(iterable), key)


def groupby_items(iterator, key):
    state = [next(iterator, MISSING), None]
    if state[0] is MISSING:
        return
    state[1] = state[0] if key is None else key(state[0])
    while state[0] is not MISSING:
        current = state[1]
        group = same_group(iterator, state, current, key)
        yield current, group
        for _ in group:
            continue


def same_group(iterator, state, current, key):
    while state[0] is not MISSING and state[1] == current:
        item = state[0]
        state[0] = next(iterator, MISSING)
        if state[0] is not MISSING:
            state[1] = state[0] if key is None else key(state[0])
        yield item


@polyfill(itertools.pairwise)
def pairwise(iterable):
    return pairwise_items(iter(iterable))


def pairwise_items(iterator):
    last = next(iterator, MISSING)
    if last is MISSING:
        return
    for item in iterator:
        yield last, item
        last = item


@polyfill(itertools.compress)
def compress(data, selectors):
    return compress_items(iter(data), iter(selectors))


def compress_items(data, selectors):
    for item, keep in zip(data, selectors, strict=False):
        if keep:
            yield item


@polyfill(itertools.cycle)
def cycle(iterable):
    return cycle_items(iter(iterable))


def cycle_items(iterable):
    saved = []
    for item in iterable:
        saved.append(item)
        yield item
    while saved:
        yield from saved


@polyfill(itertools.tee)
def tee(iterable, n=2):
    iterator = iter(iterable)
    queues = [collections.deque() for _ in range(n)]
    return tuple([tee_branch(iterator, queue, queues) for queue in queues])


def tee_branch(iterator, queue, queues):
    while True:
        if not queue:
            item = next(iterator, MISSING)
            if item is MISSING:
                return
            for other in queues:
                other.append(item)
        yield queue.popleft()


if hasattr(itertools, "batched"):
    @polyfill(itertools.batched)
    def batched(iterable, n, *, strict=False):
        if n < 1:
            raise ValueError("n must be at least one")
        return batched_items(iter(iterable), n, strict)

    def batched_items(iterable, n, strict):
        batch = []
        for item in iterable:
            batch.append(item)
            if len(batch) == n:
                yield tuple(batch)
                batch = []
        if batch:
            if strict:
                raise ValueError("batched(): incomplete batch")
            yield tuple(batch)


# -- operator


@polyfill(operator.itemgetter)
def itemgetter(item, *items):
    def get(whole):
        if not items:
            return whole[item]
        return (whole[item], *[whole[i] for i in items])
    return get


@polyfill(operator.attrgetter)
def attrgetter(attr, *attrs):
    def follow(obj, path):
        for name in path.split("."):
            obj = getattr(obj, name)
        return obj

    def get(obj):
        if not attrs:
            return follow(obj, attr)
        return (follow(obj, attr), *[follow(obj, a) for a in attrs])
    return get


@polyfill(operator.methodcaller)
def methodcaller(name, /, *args, **kwargs):
    def call(obj):
        return getattr(obj, name)(*args, **kwargs)
    return call


@polyfill(operator.concat)
def concat(left, right):
    return left + right


@polyfill(operator.countOf)
def count_of(whole, item):
    return sum([1 for part in whole if part is item or part == item])


@polyfill(operator.indexOf)
def index_of(whole, item):
    for i, part in enumerate(whole):
        if part is item or part == item:
            return i
    raise ValueError("sequence.index(x): x not in sequence")


# -- functools


@polyfill(_functools.cmp_to_key)
def cmp_to_key(mycmp):
    class K:
        __slots__ = ("obj",)

        def __init__(self, obj):
            self.obj = obj

        def __lt__(self, other):
            return mycmp(self.obj, other.obj) < 0

        def __eq__(self, other):
            return mycmp(self.obj, other.obj) == 0
        __hash__ = None
    return K


@polyfill(functools._lru_cache_wrapper)
def lru_cache_wrapper(user_function, maxsize, typed, info):
    cache = collections.OrderedDict()
    counts = [0, 0]

    def wrapper(*args, **kwargs):
        key = (args, tuple(kwargs.items()))
        if typed:
            key = (*key, tuple([type(a) for a in args]), tuple([type(v) for v in kwargs.values()]))
        found = cache.get(key, MISSING)
        if found is not MISSING:
            counts[0] += 1
            cache.move_to_end(key)
            return found
        found = user_function(*args, **kwargs)
        counts[1] += 1
        if maxsize != 0:
            cache[key] = found
        if maxsize is not None and len(cache) > maxsize:
            cache.popitem(last=False)
        return found

    def cache_info():
        return info(*counts, maxsize, len(cache))

    def cache_clear():
        cache.clear()
        counts[:] = [0, 0]
    wrapper.cache_info = cache_info
    wrapper.cache_clear = cache_clear
    return wrapper


@polyfill(functools.cached_property.__get__)
def cached_property_get(self, instance, owner=None):
    """Without the lock that 3.11 holds meanwhile."""
    if instance is None:
        return self
    if self.attrname is None:
        raise TypeError("Cannot use cached_property instance without calling __set_name__ on it.")
    cache = instance.__dict__
    found = cache.get(self.attrname, MISSING)
    if found is MISSING:
        found = cache[self.attrname] = self.func(instance)
    return found


@polyfill(functools.cached_property.__init__)
def cached_property_init(self, func):
    self.func = func
    self.attrname = None
    self.__doc__ = func.__doc__


# -- collections, heapq, math


@polyfill(_collections._count_elements)
def count_elements(mapping, iterable):
    get = mapping.get
    for item in iterable:
        mapping[item] = get(item, 0) + 1


@polyfill(heapq.heappush)
def heappush(heap, item):
    heap.append(item)
    sift_down(heap, 0, len(heap) - 1)


@polyfill(heapq.heappop)
def heappop(heap):
    last = heap.pop()
    if heap:
        first = heap[0]
        heap[0] = last
        sift_up(heap, 0)
        return first
    return last


@polyfill(heapq.heapify)
def heapify(heap):
    for i in reversed(range(len(heap) // 2)):
        sift_up(heap, i)


@polyfill(heapq.heappushpop)
def heappushpop(heap, item):
    if heap and heap[0] < item:
        item, heap[0] = heap[0], item
        sift_up(heap, 0)
    return item


@polyfill(heapq.heapreplace)
def heapreplace(heap, item):
    first = heap[0]
    heap[0] = item
    sift_up(heap, 0)
    return first


@polyfill(heapq.nlargest)
def nlargest(n, iterable, key=None):
    return sorted(iterable, key=key, reverse=True)[:n]


@polyfill(heapq.nsmallest)
def nsmallest(n, iterable, key=None):
    return sorted(iterable, key=key)[:n]


@polyfill(bisect.bisect_right)
def bisect_right(a, x, lo=0, hi=None, *, key=None):
    if lo < 0:
        raise ValueError("lo must be non-negative")
    hi = len(a) if hi is None else hi
    while lo < hi:
        middle = (lo + hi) // 2
        if x < (a[middle] if key is None else key(a[middle])):
            hi = middle
        else:
            lo = middle + 1
    return lo


@polyfill(bisect.bisect_left)
def bisect_left(a, x, lo=0, hi=None, *, key=None):
    if lo < 0:
        raise ValueError("lo must be non-negative")
    hi = len(a) if hi is None else hi
    while lo < hi:
        middle = (lo + hi) // 2
        if (a[middle] if key is None else key(a[middle])) < x:
            lo = middle + 1
        else:
            hi = middle
    return lo


@polyfill(bisect.insort_right)
def insort_right(a, x, lo=0, hi=None, *, key=None):
    a.insert(bisect_right(a, x if key is None else key(x), lo, hi, key=key), x)


@polyfill(bisect.insort_left)
def insort_left(a, x, lo=0, hi=None, *, key=None):
    a.insert(bisect_left(a, x if key is None else key(x), lo, hi, key=key), x)


def sift_down(heap, start, at):
    """Moves the item at `at` towards the root until its parent is not larger."""
    item = heap[at]
    while at > start:
        parent = (at - 1) // 2
        if not item < heap[parent]:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = item


def sift_up(heap, at):
    """Fills the hole at `at` with the smaller children down to a leaf, then sifts the item down."""
    end, start, item = len(heap), at, heap[at]
    child = 2 * at + 1
    while child < end:
        if child + 1 < end and not heap[child] < heap[child + 1]:
            child += 1
        heap[at] = heap[child]
        at = child
        child = 2 * at + 1
    heap[at] = item
    sift_down(heap, start, at)


@polyfill(math.prod)
def prod(iterable, *, start=1):
    for item in iterable:
        start = start * item
    return start
