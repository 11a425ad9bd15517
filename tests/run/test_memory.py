"""Host memory: sizes, reuse, what goes back to the system, threads, forks, views that stay."""

import ctypes
import gc
import os
import random
import threading

import numpy as np
import pytest

from lehr.compiler.run import memory
from lehr.compiler.run.memory import Arena, Pool, capacity

MIB = 1 << 20


@pytest.fixture
def pool():
    return Pool()


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_size_classes():
    assert [capacity(n) for n in (0, 1, 64, 65, 1000)] == [64, 64, 64, 128, 1024]
    last = 0
    for size in [*range(1, 5000), *(random.Random(0).randrange(1 << 40) for _ in range(2000))]:
        rounded = capacity(size)
        assert size <= rounded <= max(size + 64, size * 9 / 8) and rounded % 64 == 0
        assert capacity(rounded) == rounded
    for size in range(1, 100_000, 37):
        assert capacity(size) >= last
        last = capacity(size)


@pytest.mark.parametrize("size", [0, 1, 100, 4096, MIB - 1, MIB, 3 * MIB + 5])
def test_a_lease_is_aligned_and_writable(pool, size):
    buffer = pool.lease(size)
    assert buffer.address % 64 == 0 and buffer.size >= size
    assert buffer.array.ctypes.data == buffer.address and len(buffer.array) == buffer.size
    buffer.array[:] = 7
    assert pool.stats()["allocated"] == size
    pool.release(buffer)


def test_a_released_buffer_is_leased_again(pool):
    for size, again in [(1000, 990), (2 * MIB, 2 * MIB - 5)]:
        first = pool.lease(size)
        pool.release(first)
        assert pool.lease(again) is first
    assert pool.stats()["fresh"] == 2


def test_the_last_released_comes_first(pool):
    one, two = pool.lease(100), pool.lease(100)
    pool.release(one)
    pool.release(two)
    assert pool.lease(100) is two and pool.lease(100) is one


def test_the_next_class_up_serves_too(pool):
    big = pool.lease(capacity(1000) + 1)
    pool.release(big)
    assert pool.lease(1000) is big


def test_leases_out_at_once_are_different_memory(pool):
    out = [pool.lease(100) for _ in range(50)]
    for n, buffer in enumerate(out):
        buffer.array[:] = n
    assert [int(buffer.array[99]) for buffer in out] == list(range(50))


def test_releasing_twice_is_an_error(pool):
    buffer = pool.lease(10)
    pool.release(buffer)
    with pytest.raises(RuntimeError, match="released before"):
        pool.release(buffer)


@pytest.mark.parametrize(
    "view",
    [
        lambda array: array,
        lambda array: array[10:20],
        lambda array: array[:40].view(np.float32).reshape(2, 5)[1],
        memoryview,
        lambda array: np.asarray(memoryview(array)),
        lambda array: np.from_dlpack(array),
    ],
)
@pytest.mark.parametrize("size", [100, 2 * MIB])
def test_memory_that_somebody_sees_is_not_leased_again(pool, view, size):
    buffer = pool.lease(size)
    buffer.array[:] = 1
    seen = view(buffer.array)
    pool.release(buffer)
    other = pool.lease(size)
    assert other is not buffer and other.address != buffer.address
    other.array[:] = 2
    assert np.asarray(seen).view(np.uint8).max() == 1
    assert pool.stats()["allocated"] == size and pool.stats()["reserved"] == capacity(size)


def test_views_that_are_gone_do_not_matter(pool):
    buffer = pool.lease(100)
    view = buffer.array[:40].view(np.float32)
    view += 1
    del view
    pool.release(buffer)
    assert pool.lease(100) is buffer


def test_statistics(pool):
    one, two = pool.lease(1000), pool.lease(MIB)
    pool.release(one)
    stats = pool.stats()
    assert stats["allocated"] == MIB and stats["peak"] == MIB + 1000
    assert stats["reserved"] == capacity(1000) + MIB
    assert (stats["leases"], stats["fresh"]) == (2, 2)
    pool.reset_peak()
    assert pool.stats()["peak"] == MIB
    pool.release(two)
    assert pool.stats()["allocated"] == 0 and pool.stats()["peak"] == MIB
    assert "1.00 MiB" in pool.summary() and "leases    2" in pool.summary()


def test_kept_memory_follows_the_use(pool):
    """After a phase with large buffers is over, they go back to the system."""
    large = [pool.lease(48 * MIB) for _ in range(4)]
    for buffer in large:
        pool.release(buffer)
    del large, buffer
    assert pool.stats()["reserved"] == 192 * MIB  # the next step would want them again
    for _ in range(3 * 256):
        pool.release(pool.lease(MIB))
    assert pool.stats()["reserved"] <= 64 * MIB


def test_a_steady_loop_needs_no_new_memory(pool):
    sizes = [random.Random(1).randrange(1, 4 * MIB) for _ in range(30)]
    for turn in range(60):
        out = [pool.lease(size) for size in sizes]
        for buffer in out:
            pool.release(buffer)
        if turn == 0:
            first = pool.stats()["fresh"]
    assert pool.stats()["fresh"] == first <= len(sizes)


def test_returned_memory_is_not_resident(pool):
    buffer = pool.lease(64 * MIB)
    buffer.array[:] = 1
    high = resident()
    pool.release(buffer)
    del buffer
    assert pool.trim() == 64 * MIB and pool.stats()["reserved"] == 0
    assert high - resident() > 56 * MIB


def test_trim_spares_what_is_leased_and_drops_the_longest_unused_first(pool):
    held, old, young = (pool.lease(n * MIB) for n in (1, 2, 3))
    pool.release(old)
    pool.release(young)
    assert pool.trim(4 * MIB) == 2 * MIB
    assert pool.lease(3 * MIB) is young
    held.array[:] = 1
    assert pool.trim() == 0 and pool.stats()["reserved"] == 4 * MIB


def test_100_000_leases_do_not_grow_the_process(pool):
    generator = random.Random(2)
    sizes = [generator.choice([64, 1000, 5000, 70_000, MIB, 2 * MIB]) for _ in range(97)]
    held = []
    arena = Arena(pool, 300_000, 20)

    def run(count):
        for n in range(count):
            buffer = pool.lease(sizes[n % 97])
            buffer.array[:1] = 1
            held.append(buffer)
            if len(held) > 6:
                pool.release(held.pop(n % 6))
            if n % 10 == 0:
                arena.release(arena.lease())

    run(5000)
    gc.collect()
    before = resident()
    run(100_000)
    gc.collect()
    assert resident() - before < MIB


def test_lack_of_memory_frees_what_is_kept_and_then_says_so(pool, monkeypatch):
    pool.release(pool.lease(8 * MIB))
    with pytest.raises(MemoryError):
        pool.lease(1 << 60)
    assert pool.stats()["reserved"] == 0 and pool.stats()["allocated"] == 0


def test_threads(pool):
    errors = []

    def body(seed):
        generator = random.Random(seed)
        held = []
        for _ in range(3000):
            if held and generator.random() < 0.5:
                buffer, mark = held.pop(generator.randrange(len(held)))
                if buffer.array[0] != mark or buffer.array[buffer.asked - 1] != mark:
                    errors.append(seed)
                pool.release(buffer)
            else:
                buffer = pool.lease(generator.randrange(1, 3000))
                mark = generator.randrange(256)
                buffer.array[:] = mark
                held.append((buffer, mark))
        while held:
            pool.release(held.pop()[0])

    threads = [threading.Thread(target=body, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and pool.stats()["allocated"] == 0
    kept = sum(buffer.size for stack in pool._free.values() for buffer in stack)
    assert kept == pool.stats()["reserved"]


def test_finalizers_may_lease_and_release_at_any_time(pool):
    class Cell:
        def __init__(self):
            self.me, self.buffer = self, pool.lease(100)

        def __del__(self):
            pool.release(pool.lease(200))
            pool.release(self.buffer)

    old = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(500):
            Cell()
            pool.release(pool.lease(100))
    finally:
        gc.set_threshold(*old)
    gc.collect()
    assert pool.stats()["allocated"] == 0


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_starts_anew(pool):
    mine = pool.lease(1000)
    pool.release(pool.lease(5000))
    hold = threading.Event()
    ready = threading.Event()

    def body():
        with pool._lock:  # as if within a lease when the process forks
            ready.set()
            hold.wait()

    thread = threading.Thread(target=body)
    thread.start()
    ready.wait()
    child = os.fork()
    if not child:
        status = 1
        try:
            ok = pool.stats()["reserved"] == 0
            pool.release(mine)  # the parent's: nothing happens
            ok &= pool.stats()["allocated"] == 0
            buffer = pool.lease(1000)
            ok &= buffer.address != mine.address
            pool.release(buffer)
            status = 0 if ok else 2
        finally:
            os._exit(status)
    hold.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    pool.release(mine)
    assert pool.stats()["allocated"] == 0


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("size", [1000, 3 << 20])
def test_what_a_forked_child_writes_is_its_own(pool, size):
    mine = pool.lease(size)
    mine.array[:] = 1
    child = os.fork()
    if not child:
        mine.array[:] = 2
        os._exit(int(mine.array[-1]) - 2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (mine.array == 1).all()
    pool.release(mine)


# Arenas.


def test_an_arena_is_leased_per_call(pool):
    arena = Arena(pool, 1000, slots=5, base=2)
    one, two = arena.lease(), arena.lease()  # two forwards before one backward
    assert one.pointers[2] == one.buffer.address != two.buffer.address == two.pointers[2]
    assert len(one.pointers) == 5 and isinstance(one.pointers, ctypes.Array)
    one.pointers[0] = 123
    arena.release(one)
    again = arena.lease()
    assert again is one and again.pointers[0] == 123
    assert pool.stats()["allocated"] == 2000


def test_executables_share_memory(pool):
    arenas = [Arena(pool, MIB, 1) for _ in range(24)]
    for arena in arenas:
        arena.release(arena.lease())
    assert pool.stats()["reserved"] == MIB


def test_an_arena_of_nothing_leases_nothing(pool):
    arena = Arena(pool, 0, 3)
    frame = arena.lease()
    assert frame.buffer is None and frame.pointers[0] is None
    arena.release(frame)
    assert pool.stats()["leases"] == 0


def test_the_process_has_one_host_pool():
    assert isinstance(memory.host, Pool)
