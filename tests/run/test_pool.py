"""The thread pool: every chunk once, from many threads, nested, resized, forked; and idle."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from lehr.base.options import Options
from lehr.compiler.run import blas, library
from lehr.compiler.run import pool as module

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler on this machine"
)

# `storm` runs jobs and counts what goes wrong: a chunk not run exactly once, a worker number out of
# range or in two threads at once, an inner job that is not done when its call returns.
STORM = """
#include <stdatomic.h>
#include <string.h>
#define EXPORT __attribute__((visibility("default")))
typedef struct {
  lehr_runtime *run;
  int64_t nested, weight, wrong, threads;
  _Atomic int busy[512];
  int64_t hits[256];
} job;
static void count(void *ctx, int64_t chunk, int64_t worker) { ((int64_t *)ctx)[chunk]++; }
static void task(void *ctx, int64_t chunk, int64_t worker) {
  job *j = ctx;
  if (worker < 0 || worker >= j->threads || atomic_exchange(&j->busy[worker], 1)) j->wrong++;
  j->hits[chunk]++;
  for (volatile int64_t i = 0; i < j->weight * (chunk % 5); i++);
  if (j->nested) {
    int64_t inner[7] = {0};
    j->run->parallel(count, inner, 7);
    for (int i = 0; i < 7; i++) j->wrong += inner[i] != 1;
  }
  atomic_store(&j->busy[worker], 0);
}
EXPORT int64_t storm(lehr_runtime *run, int64_t reps, int64_t nested, int64_t weight,
                     int64_t most) {
  int64_t wrong = 0;
  for (int64_t r = 0; r < reps; r++) {
    job j;
    memset(&j, 0, sizeof j);
    int64_t chunks = r * 7 % 97;
    j.run = run, j.nested = nested, j.weight = weight, j.threads = most;
    run->parallel(task, &j, chunks);
    for (int64_t i = 0; i < 256; i++) wrong += j.hits[i] != (i < chunks);
    wrong += j.wrong;
    memset(&j, 0xff, sizeof j); /* whoever comes late crashes */
  }
  return wrong;
}
static void who(void *ctx, int64_t chunk, int64_t worker) {
  atomic_fetch_add(&((_Atomic int64_t *)ctx)[worker], 1);
  for (volatile int64_t i = 0; i < 200000; i++);
}
EXPORT void share(lehr_runtime *run, int64_t *seen, int64_t chunks) {
  run->parallel(who, seen, chunks);
}
EXPORT void product(lehr_runtime *run, int64_t *size, double *alpha, void **data, int64_t twice) {
  int64_t *s = size;
  if (twice)
    run->dgemm(s[0], s[1], s[2], s[3], s[4], alpha[0], data[0], s[5], data[1], s[6], alpha[1],
               data[2], s[7]);
  else
    run->sgemm(s[0], s[1], s[2], s[3], s[4], alpha[0], data[0], s[5], data[1], s[6], alpha[1],
               data[2], s[7]);
}
"""


@pytest.fixture(scope="module")
def lib():
    return library.build([module.header() + STORM], "storm", Options())


@pytest.fixture
def pool():
    """The process's pool; its threads and patience are put back afterwards."""
    found = module.pool()
    before = found.threads
    yield found
    found.resize(before, 50_000)


@pytest.fixture
def storm(lib, pool):
    function = lib.function("storm", ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 4)
    return lambda reps, nested=0, weight=0, most=512: function(
        pool.table, reps, nested, weight, most
    )


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("spin", [0, 50_000])
@pytest.mark.parametrize("nested", [0, 1])
def test_every_chunk_runs_once(storm, pool, threads, spin, nested):
    pool.resize(threads, spin)
    assert storm(400, nested, 20, threads) == 0
    assert storm(30, nested, 20_000, threads) == 0


def test_eight_python_threads_at_once(storm, pool):
    pool.resize(3)
    wrong, start = [], threading.Barrier(8)

    def body(n):
        start.wait()
        wrong.append(storm(400, n % 2, 100, 3))

    threads = [threading.Thread(target=body, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [0] * 8


def test_resizing_while_jobs_run(storm, pool):
    stop, wrong = threading.Event(), []

    def body():
        while not stop.is_set():
            wrong.append(storm(50, 0, 50))

    threads = [threading.Thread(target=body) for _ in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(40):
        pool.resize(1 + turn % 5)
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong and not any(wrong)


def test_workers_take_part(lib, pool):
    pool.resize(2)
    share = lib.function("share", None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    seen = np.zeros(512, np.int64)
    for _ in range(200):
        share(pool.table, seen.ctypes.data, 64)
        if seen[1]:
            break
    assert seen[1] > 0 and seen[2:].sum() == 0 and seen.sum() % 64 == 0
    assert pool.started == 1


def test_one_thread_starts_nothing_and_runs_in_order(pool):
    pool.resize(1)
    order = []
    pool.parallel(lambda chunk, worker: order.append((chunk, worker)), 50)
    assert order == [(n, 0) for n in range(50)] and pool.started == 0


def test_threads_start_with_the_first_job(pool, storm):
    pool.resize(1)
    pool.resize(4)
    assert pool.started == 0
    storm(5)
    assert pool.started == 3


def test_no_chunk_is_no_work(pool):
    pool.parallel(lambda chunk, worker: 1 / 0, 0)


def test_resizing_from_within_a_task_is_refused(pool):
    pool.resize(2)
    errors = []

    def task(chunk, worker):
        try:
            pool.resize(3)
        except RuntimeError as error:
            errors.append(str(error))

    pool.parallel(task, 8)
    assert len(errors) == 8 and "within a kernel" in errors[0]


def in_child(body):
    """Runs body() in a forked child; its exit status."""
    child = os.fork()
    if not child:
        status = 99
        try:
            signal.alarm(60)
            status = int(body())
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own(storm, pool):
    pool.resize(3)
    storm(20, 0, 100)
    assert pool.started == 2

    def body():
        if pool.started != 0:
            return 50
        wrong = storm(100, 1, 100, 3)
        return wrong if pool.started == 2 else 51

    assert in_child(body) == 0
    assert storm(100, 1, 100, 3) == 0


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_while_another_thread_runs_a_job(storm, pool):
    pool.resize(3)
    stop, wrong = threading.Event(), []

    def body():
        while not stop.is_set():
            wrong.append(storm(20, 0, 2000, 3))

    thread = threading.Thread(target=body)
    thread.start()
    try:
        for _ in range(15):
            assert in_child(lambda: storm(50, 0, 100, 3)) == 0
    finally:
        stop.set()
        thread.join()
    assert wrong and not any(wrong)


def test_idle_threads_burn_nothing(storm, pool):
    pool.resize(4)
    storm(50, 0, 100)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.01


def test_signals_stay_with_the_callers_thread(storm, pool):
    pool.resize(3)
    storm(20, 0, 100)
    caught = []
    old = signal.signal(signal.SIGUSR1, lambda *_: caught.append(threading.current_thread()))
    try:
        for _ in range(20):
            os.kill(os.getpid(), signal.SIGUSR1)
            storm(2, 0, 100)
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert caught and set(caught) == {threading.main_thread()}


def test_a_job_costs_little_where_there_is_one_thread(lib, pool):
    """1-thread mode is a plain loop: far below a microsecond a job over calling the task."""
    pool.resize(1)
    share = lib.function("storm", ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 4)
    best = min(timed(lambda: share(pool.table, 1, 0, 0, 1)) for _ in range(200))
    assert best < 50e-6


def timed(body):
    start = time.perf_counter()
    body()
    return time.perf_counter() - start


# The number of threads.


def test_set_and_get_num_threads(pool, monkeypatch):
    monkeypatch.setattr(module, "_wanted", 0)
    module.set_num_threads(3)
    assert module.get_num_threads() == 3 == pool.threads
    assert ctypes.c_int64.from_address(pool.table + 24).value == 3  # runtime.h: threads
    for bad in (0, -1):
        with pytest.raises(ValueError, match="positive"):
            module.set_num_threads(bad)


def test_num_threads_from_options_and_machine(use, monkeypatch):
    monkeypatch.setattr(module, "_wanted", 0)
    use(threads=5)
    assert module.get_num_threads() == 5
    use(threads=0)
    assert 1 <= module.get_num_threads() <= (os.cpu_count() or 1)


# Matrix products through the table.

KINDS = [np.float32, np.float64]


def multiply(lib, table, a, b, c, ta, tb, alpha, beta):
    m, n = c.shape
    k = a.shape[0] if ta else a.shape[1]
    size = np.array([ta, tb, m, n, k, *(x.strides[0] // x.itemsize for x in (a, b, c))], np.int64)
    data = (ctypes.c_void_p * 3)(*(x.ctypes.data for x in (a, b, c)))
    factors = np.array([alpha, beta], np.float64)
    function = lib.function("product", None, *[ctypes.c_void_p] * 4, ctypes.c_int64)
    function(table, size.ctypes.data, factors.ctypes.data, data, c.dtype == np.float64)


@pytest.fixture(params=["library", "none"])
def table(request, pool):
    """The table with the BLAS found, and with none: the loops of pool.c."""
    setup = library.build(
        [module.header() + module.text("product.c") + module.text("pool.c")], "pool",
        extra=("-pthread", "-D_GNU_SOURCE")
    ).function("lehr_setup", ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * 3)
    found = blas.blas() if request.param == "library" else None
    if request.param == "library" and found is None:
        pytest.skip("no BLAS that lehr knows")
    return setup(found.bits, found.sgemm, found.dgemm, 0) if found else setup(0, None, None, 0)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize(("ta", "tb"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("shape", [(5, 7, 3), (1, 9, 4), (3, 1, 1), (4, 4, 0)])
def test_products(lib, table, dtype, ta, tb, shape):
    m, n, k = shape
    rng = np.random.default_rng(0)
    wide = lambda rows, columns: rng.standard_normal((rows, columns + 2)).astype(dtype)[:, :columns]
    a, b, c = wide(*((k, m) if ta else (m, k))), wide(*((n, k) if tb else (k, n))), wide(m, n)
    exact = (a.T if ta else a).astype(float) @ (b.T if tb else b).astype(float)
    for alpha, beta in [(1.0, 0.0), (0.5, 1.0), (-1.0, 2.0)]:
        out = wide(m, n)
        out[:] = np.nan if beta == 0 else c
        multiply(lib, table, a, b, out, ta, tb, alpha, beta)
        expected = alpha * exact + (beta * c if beta else 0)
        np.testing.assert_allclose(out, expected, rtol=0, atol=30 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", KINDS)
def test_products_with_repeated_rows_and_single_rows(lib, table, dtype):
    """Leading dimensions below the width: a broadcast row, a row of one with any stride."""
    row = np.arange(1, 4, dtype=dtype)
    same = np.lib.stride_tricks.as_strided(row, (5, 3), (0, row.itemsize))
    single = np.lib.stride_tricks.as_strided(row, (1, 3), (row.itemsize, row.itemsize))
    b = np.arange(12, dtype=dtype).reshape(3, 4)
    for a in (same, single):
        out = np.full((len(a), 4), np.nan, dtype)
        multiply(lib, table, a, b, out, 0, 0, 1.0, 0.0)
        np.testing.assert_array_equal(out, a @ b)


@pytest.mark.parametrize("given", [None, "20"])
def test_threads_of_openblas_do_not_look_out_for_work_for_long(given):
    env = {k: v for k, v in os.environ.items() if k != "OPENBLAS_THREAD_TIMEOUT"}
    env |= {} if given is None else {"OPENBLAS_THREAD_TIMEOUT": given}
    code = "import lehr, os; print(os.environ['OPENBLAS_THREAD_TIMEOUT'])"
    made = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True,
                          check=True)
    assert made.stdout.strip() == (given or "16")
