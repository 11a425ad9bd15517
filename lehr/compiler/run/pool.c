/* A thread pool for loops of a few microseconds and for loaded machines.

   The caller never waits for a worker to wake up: it opens a gate, works through the chunks
   itself, and closes the gate when no chunk is left. Workers that came in by then are waited for;
   those that come later find the gate closed and go back to sleep. Hence no worker touches a job
   after its call returned, and a machine with no free processor loses nothing.

   To wake a sleeping thread on another processor costs the waker much (14 us on a virtual machine
   where a nap of that processor ends in the host). So sleepers are called only for work worth
   several times what calling them took lately, and ever more rarely if nobody comes. Workers look
   out for the next job before they sleep, for long where the last jobs followed each other soon,
   and hardly at all where they did not.

   gate: bit 31 = open, bits 0..30 = workers within. Only the owner (`busy`) opens and closes it. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#ifdef __linux__
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define EXPORT __attribute__((visibility("default")))
#define MOST 512
#define OPEN 0x80000000u

typedef _Atomic uint32_t word;
/* A range of chunks, alone on its cache line: its thread takes from it first, then the others. */
typedef struct {
  _Atomic int64_t next;
  int64_t end;
  char pad[48];
} range;
/* What a job took when it ran last, in nanoseconds of one thread. */
typedef struct {
  lehr_task task;
  int64_t chunks, cost;
} memory;

static lehr_runtime table;
static struct {
  word busy __attribute__((aligned(64)));  /* 1 while a call owns the pool */
  word gate __attribute__((aligned(64)));
  word epoch __attribute__((aligned(64))); /* changes with every job; workers sleep on it */
  word asleep;                             /* workers that sleep or are about to */
  word stop;
  word waiting; /* the caller sleeps on the gate */
  lehr_task task;
  void *ctx;
  _Atomic int cpu;      /* where the caller runs, -1 unknown */
  int64_t parts;        /* ranges of this job, one for each thread; a range may be empty */
  _Atomic int64_t help; /* workers that this job can still use */
  /* The owner's notes, in nanoseconds. */
  int64_t began, ended, alone; /* the job's begin; the last one's end; recent time without help */
  int64_t call_cost, call_next, call_wait;
  memory past[256];
  int64_t started;
  _Atomic int64_t wanted, spin;
  pthread_t threads[MOST];
  range ranges[MOST];
} pool = {.wanted = 1, .spin = 50000, .call_cost = 5000};
static _Thread_local int inside;

/* Sleep while *at == value; wake up to n sleepers. */
#ifdef __linux__
static void doze(word *at, uint32_t value) {
  syscall(SYS_futex, at, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}
static void wake(word *at, int n) { syscall(SYS_futex, at, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0); }
static void bell_reset(void) {}
static int here(void) { return sched_getcpu(); }
/* Let this thread run on all of the process's processors but one. */
static void avoid(int cpu) {
  cpu_set_t set;
  if (sched_getaffinity(getpid(), sizeof set, &set)) return;
  CPU_CLR(cpu, &set);
  if (CPU_COUNT(&set)) sched_setaffinity(0, sizeof set, &set);
}
#else
static int here(void) { return -1; }
static void avoid(int cpu) { (void)cpu; }
static pthread_mutex_t bell_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t bell = PTHREAD_COND_INITIALIZER;
static void doze(word *at, uint32_t value) {
  pthread_mutex_lock(&bell_lock);
  if (atomic_load(at) == value) pthread_cond_wait(&bell, &bell_lock);
  pthread_mutex_unlock(&bell_lock);
}
static void wake(word *at, int n) {
  (void)at, (void)n;
  pthread_mutex_lock(&bell_lock);
  pthread_cond_broadcast(&bell);
  pthread_mutex_unlock(&bell_lock);
}
static void bell_reset(void) {
  pthread_mutex_init(&bell_lock, NULL);
  pthread_cond_init(&bell, NULL);
}
#endif

static inline void rest(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* Look at *at for up to `limit` nanoseconds, until it is not `value`. */
static int spin(word *at, uint32_t value, int64_t limit) {
  if (atomic_load_explicit(at, memory_order_acquire) != value) return 1;
  if (limit <= 0) return 0;
  int64_t end = now() + limit;
  do {
    for (int i = 0; i < 16; i++) {
      if (atomic_load_explicit(at, memory_order_acquire) != value) return 1;
      rest();
    }
  } while (now() < end);
  return 0;
}

/* Sleepers call each other, two at a time: on many processors the owner has better to do. */
static void call_two(void) {
  int64_t help = atomic_load(&pool.help);
  if (help > 0 && atomic_load(&pool.asleep)) wake(&pool.epoch, help < 2 ? 1 : 2);
}

/* The owner calls sleepers if `left` nanoseconds of work are worth it. */
static void call(int64_t left) {
  if (left < 3 * pool.call_cost || !atomic_load(&pool.asleep)) return;
  if (atomic_load(&pool.help) <= 0) return;
  int64_t before = now();
  if (before < pool.call_next) return;
  call_two();
  int64_t after = now();
  pool.call_cost += (after - before - pool.call_cost) / 8;
  pool.call_wait = pool.call_wait < 50000 ? 50000 : pool.call_wait * 2;
  if (pool.call_wait > 5000000) pool.call_wait = 5000000;
  pool.call_next = after + pool.call_wait;
}

static void work(int64_t me) {
  int64_t parts = pool.parts, done = 0, all = pool.ranges[parts - 1].end;
  for (int64_t i = 0; i < parts; i++) {
    range *r = &pool.ranges[me + i < parts ? me + i : me + i - parts];
    for (;;) {
      if (atomic_load_explicit(&r->next, memory_order_relaxed) >= r->end) break;
      int64_t chunk = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed);
      if (chunk >= r->end) break;
      pool.task(pool.ctx, chunk, me);
      done++;
      if (!me && atomic_load_explicit(&pool.asleep, memory_order_relaxed))
        call((now() - pool.began) / done * (all - done));
    }
  }
}

/* Where other programs keep all processors busy, the system wakes workers on the caller's own: a
   worker there only keeps the caller from work. It moves to the others, to get a fair share. */
static int in_the_way(int64_t *moved) {
  int cpu = here();
  if (cpu < 0 || cpu != atomic_load(&pool.cpu)) return 0;
  if (now() - *moved < 1000000) return 1;
  avoid(cpu);
  *moved = now();
  return here() == cpu;
}

static void *worker(void *arg) {
  int64_t me = (int64_t)(intptr_t)arg, limit = pool.spin, since = now(), moved = 0;
  uint32_t seen = 0;
  inside = 1;
  for (;;) {
    uint32_t epoch = atomic_load(&pool.epoch);
    if (epoch == seen && (in_the_way(&moved) || !spin(&pool.epoch, seen, limit))) {
      atomic_fetch_add(&pool.asleep, 1);
      while (atomic_load(&pool.epoch) == seen) doze(&pool.epoch, seen);
      atomic_fetch_sub(&pool.asleep, 1);
    }
    seen = atomic_load(&pool.epoch);
    if (atomic_load(&pool.stop)) return NULL;
    limit = now() - since < pool.spin ? pool.spin : limit / 2 > 2000 ? limit / 2 : 2000;
    if (limit > pool.spin) limit = pool.spin;
    uint32_t gate = in_the_way(&moved) ? 0 : atomic_load(&pool.gate);
    while (gate & OPEN)
      if (atomic_compare_exchange_weak(&pool.gate, &gate, gate + 1)) {
        atomic_fetch_sub(&pool.help, 1);
        call_two();
        work(me);
        /* The last one out of a closed gate rings for a caller that sleeps. */
        if (atomic_fetch_sub(&pool.gate, 1) == 1 && atomic_load(&pool.waiting))
          wake(&pool.gate, INT_MAX);
        break;
      }
    since = now();
  }
}

/* Start what is missing. Fewer threads than wanted is no error. Signals stay with the caller. */
static void start(void) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  for (; pool.started < pool.wanted - 1; pool.started++) {
    int64_t me = pool.started + 1;
    if (pthread_create(&pool.threads[me], NULL, worker, (void *)(intptr_t)me)) {
      pool.wanted = me;
      break;
    }
#ifdef __linux__
    pthread_setname_np(pool.threads[me], "lehr");
#endif
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static int own(void) {
  uint32_t none = 0;
  return atomic_compare_exchange_strong(&pool.busy, &none, 1);
}

/* Close the gate and wait until the workers within are out. */
static void finish(void) {
  uint32_t gate = atomic_fetch_and(&pool.gate, ~OPEN) & ~OPEN;
  while (gate) {
    if (!spin(&pool.gate, gate, pool.spin)) {
      atomic_store(&pool.waiting, 1);
      if (atomic_load(&pool.gate) == gate) doze(&pool.gate, gate);
      atomic_store(&pool.waiting, 0);
    }
    gate = atomic_load(&pool.gate);
  }
}

static void parallel(lehr_task task, void *ctx, int64_t chunks) {
  if (chunks <= 1 || pool.wanted <= 1 || inside || !own()) {
    for (int64_t chunk = 0; chunk < chunks; chunk++) task(ctx, chunk, 0);
    return;
  }
  if (pool.started < pool.wanted - 1) start();
  int64_t parts = pool.started + 1, most = (parts < chunks ? parts : chunks) - 1;
  pool.task = task, pool.ctx = ctx, pool.parts = parts;
  for (int64_t i = 0; i < parts; i++) {
    atomic_store_explicit(&pool.ranges[i].next, chunks * i / parts, memory_order_relaxed);
    pool.ranges[i].end = chunks * (i + 1) / parts;
  }
  uintptr_t hash = ((uintptr_t)task >> 4) * 31 + (uintptr_t)chunks;
  memory *past = &pool.past[(hash ^ hash >> 8) % 256];
  int64_t cost = past->task == task && past->chunks == chunks ? past->cost : 0;
  pool.began = now();
  if (pool.began - pool.ended > 100000) pool.alone = 0;
  inside = 1;
  atomic_store(&pool.help, most);
  atomic_store(&pool.cpu, here());
  atomic_store(&pool.gate, OPEN);
  atomic_fetch_add(&pool.epoch, 1);
  call(cost + pool.alone);
  work(0);
  finish();
  inside = 0;
  pool.ended = now();
  int64_t spent = pool.ended - pool.began, helpers = most - atomic_load(&pool.help);
  if (helpers > 0) pool.call_wait = pool.call_next = pool.alone = 0;
  else pool.alone += spent;
  *past = (memory){task, chunks, spent * (1 + (helpers > 0 ? helpers : 0))};
  atomic_store_explicit(&pool.busy, 0, memory_order_release);
}

/* The number of threads from now on; the number in force, -1 from within a task. */
EXPORT int64_t lehr_resize(int64_t threads, int64_t spin_ns) {
  if (inside) return -1;
  struct timespec pause = {0, 100000};
  while (!own()) nanosleep(&pause, NULL);
  threads = threads < 1 ? 1 : threads > MOST ? MOST : threads;
  if (threads - 1 < pool.started) {
    atomic_store(&pool.stop, 1);
    atomic_fetch_add(&pool.epoch, 1);
    wake(&pool.epoch, INT_MAX);
    for (int64_t i = 1; i <= pool.started; i++) pthread_join(pool.threads[i], NULL);
    atomic_store(&pool.stop, 0);
    pool.started = 0;
  }
  pool.wanted = threads;
  __atomic_store_n(&table.threads, threads, __ATOMIC_RELAXED);
  if (spin_ns >= 0) pool.spin = spin_ns;
  atomic_store(&pool.busy, 0);
  return threads;
}

EXPORT int64_t lehr_started(void) { return pool.started; }

/* A forked child has the forking thread alone: no workers, no job, no owner. */
static void forked(void) {
  atomic_store(&pool.busy, 0);
  atomic_store(&pool.gate, 0);
  atomic_store(&pool.asleep, 0);
  atomic_store(&pool.stop, 0);
  atomic_store(&pool.waiting, 0);
  pool.started = 0;
  inside = 0;
  bell_reset();
}

/* The library's cblas, with 32-bit or 64-bit integers. It takes no rows that overlap, nor empty
   sums (it would print a complaint and leave C alone): such products are done by the loops. */
#define ROW 101
#define OP(t) (111 + (int)(t)) /* 111 as it is, 112 transposed */
static int fits(int64_t *ld, int64_t rows, int64_t columns) {
  if (rows == 1 && *ld < columns) *ld = columns;
  return rows > 0 && columns > 0 && *ld >= columns;
}
static int small(int64_t m, int64_t n, int64_t k, int64_t a, int64_t b, int64_t c) {
  return m <= INT32_MAX && n <= INT32_MAX && k <= INT32_MAX && a <= INT32_MAX && b <= INT32_MAX &&
         c <= INT32_MAX;
}
#define GEMM(name, real)                                                                       \
  static void (*name##_32)(int, int, int, int32_t, int32_t, int32_t, real, const real *,       \
                           int32_t, const real *, int32_t, real, real *, int32_t);             \
  static void (*name##_64)(int, int, int, int64_t, int64_t, int64_t, real, const real *,       \
                           int64_t, const real *, int64_t, real, real *, int64_t);             \
  static void name(int64_t ta, int64_t tb, int64_t m, int64_t n, int64_t k, real alpha,        \
                   const real *a, int64_t lda, const real *b, int64_t ldb, real beta, real *c, \
                   int64_t ldc) {                                                              \
    int64_t la = lda, lb = ldb, lc = ldc;                                                      \
    int fit = fits(&la, ta ? k : m, ta ? m : k) && fits(&lb, tb ? n : k, tb ? k : n) &&        \
              fits(&lc, m, n);                                                                 \
    if (fit && name##_64)                                                                      \
      name##_64(ROW, OP(ta), OP(tb), m, n, k, alpha, a, la, b, lb, beta, c, lc);               \
    else if (fit && name##_32 && small(m, n, k, la, lb, lc))                                   \
      name##_32(ROW, OP(ta), OP(tb), (int32_t)m, (int32_t)n, (int32_t)k, alpha, a,             \
                (int32_t)la, b, (int32_t)lb, beta, c, (int32_t)lc);                            \
    else                                                                                       \
      for (int64_t i = 0; i < m; i++) {                                                        \
        real *row = c + i * ldc;                                                               \
        for (int64_t j = 0; j < n; j++) row[j] = beta == 0 ? 0 : beta * row[j];                \
        for (int64_t p = 0; p < k; p++) {                                                      \
          real x = alpha * (ta ? a[p * lda + i] : a[i * lda + p]);                             \
          if (tb)                                                                              \
            for (int64_t j = 0; j < n; j++) row[j] += x * b[j * ldb + p];                      \
          else                                                                                 \
            for (int64_t j = 0; j < n; j++) row[j] += x * b[p * ldb + j];                      \
        }                                                                                      \
      }                                                                                        \
  }
GEMM(sgemm, float)
GEMM(dgemm, double)

/* Called once. bits: 32 or 64, the size of the library's integers; 0: there is no library. */
EXPORT lehr_runtime *lehr_setup(int64_t bits, void *single, void *twice) {
  if (!table.parallel) pthread_atfork(NULL, NULL, forked);
  sgemm_32 = NULL, sgemm_64 = NULL, dgemm_32 = NULL, dgemm_64 = NULL;
  if (bits == 32) *(void **)&sgemm_32 = single, *(void **)&dgemm_32 = twice;
  if (bits == 64) *(void **)&sgemm_64 = single, *(void **)&dgemm_64 = twice;
  table.parallel = parallel;
  table.sgemm = sgemm;
  table.dgemm = dgemm;
  table.product = lehr_multiply;
  table.threads = pool.wanted;
  return &table;
}
