/* Faults, and work spread over the threads of the runtime. */

/* Entry functions only fill in tables and call: to optimise them takes longer than the kernels. */
#ifdef __clang__
#define LEHR_ENTRY __attribute__((visibility("default"), noinline, optnone)) void
#else
#define LEHR_ENTRY __attribute__((visibility("default"), noinline, optimize("O0"))) void
#endif

/* What stopped a call: kind 0 nothing, 1 an index out of bounds, 2 an integer division by zero,
   3 oneDNN left a call undone. `place` numbers the operation. The first fault is kept. */
typedef struct {
  int64_t kind, place, value, bound;
} lehr_fault;

static __attribute__((noinline, cold, unused)) void lehr_fail(lehr_fault *fault, int64_t kind,
                                                              int64_t place, int64_t value,
                                                              int64_t bound) {
  int64_t none = 0;
  if (__atomic_compare_exchange_n(&fault->kind, &none, kind, 0, __ATOMIC_RELAXED,
                                  __ATOMIC_RELAXED)) {
    fault->place = place;
    fault->value = value;
    fault->bound = bound;
  }
}

/* A checked index: `value`, plus `bound` where negative and `wrap`. 0 after a fault. */
LEHR_FN int64_t lehr_index(int64_t value, int64_t bound, int wrap, lehr_fault *fault,
                           int64_t place) {
  int64_t i = wrap && value < 0 ? value + bound : value;
  if (__builtin_expect((uint64_t)i >= (uint64_t)bound, 0)) {
    lehr_fail(fault, 1, place, value, bound);
    return 0;
  }
  return i;
}

/* A checked divisor of integers. */
LEHR_FN int64_t lehr_divisor(int64_t value, lehr_fault *fault, int64_t place) {
  if (__builtin_expect(value == 0, 0)) lehr_fail(fault, 2, place, 0, 0);
  return value;
}

/* A kernel does the units [from, to) of its work; `p` holds what it reads and writes. */
typedef void (*lehr_kernel)(void *const *p, int64_t from, int64_t to);

/* A kernel over all its units. `grain`: units that are worth a chunk of their own. */
typedef struct {
  lehr_kernel run;
  void *const *p;
  int64_t total, grain, first, chunks;
} lehr_job;

static __attribute__((unused)) void lehr_chunk(void *ctx, int64_t chunk, int64_t worker) {
  const lehr_job *job = ctx;
  int64_t share = job->total / job->chunks, more = job->total % job->chunks;
  int64_t from = chunk * share + (chunk < more ? chunk : more);
  (void)worker;
  job->run(job->p, from, from + share + (chunk < more));
}

/* Four chunks a thread at most: threads that come late find work left. */
LEHR_FN int64_t lehr_chunks(const lehr_runtime *rt, int64_t total, int64_t grain) {
  int64_t n = total / grain, most = rt->threads > 1 ? 4 * rt->threads : 1;
  return n < 1 ? 1 : n < most ? n : most;
}

static __attribute__((unused)) void lehr_spread(const lehr_runtime *rt, lehr_kernel run,
                                                void *const *p, int64_t total, int64_t grain) {
  lehr_job job = {run, p, total, grain, 0, lehr_chunks(rt, total, grain)};
  if (total <= 0) return;
  if (job.chunks == 1)
    run(p, 0, total);
  else
    rt->parallel(lehr_chunk, &job, job.chunks);
}

typedef struct {
  lehr_job *jobs;
  int64_t count;
} lehr_jobs;

static __attribute__((unused)) void lehr_any_chunk(void *ctx, int64_t chunk, int64_t worker) {
  const lehr_jobs *all = ctx;
  int64_t low = 0, high = all->count - 1;
  while (low < high) {
    int64_t middle = (low + high + 1) / 2;
    if (all->jobs[middle].first <= chunk)
      low = middle;
    else
      high = middle - 1;
  }
  lehr_chunk(&all->jobs[low], chunk - all->jobs[low].first, worker);
}

/* Several kernels that do not depend on each other, at once. */
static __attribute__((unused)) void lehr_spread_all(const lehr_runtime *rt, lehr_job *jobs,
                                                    int64_t count) {
  lehr_jobs all = {jobs, 0};
  int64_t chunks = 0, work = 0; /* work in sixteenths of a grain */
  for (int64_t n = 0; n < count; n++) {
    if (jobs[n].total <= 0) continue;
    lehr_job *job = &jobs[all.count++];
    *job = jobs[n];
    job->first = chunks;
    job->chunks = lehr_chunks(rt, job->total, job->grain);
    chunks += job->chunks;
    work += 16 * job->total / job->grain;
  }
  if (rt->threads > 1 && work > 32)
    rt->parallel(lehr_any_chunk, &all, chunks);
  else
    for (int64_t n = 0; n < all.count; n++) jobs[n].run(jobs[n].p, 0, jobs[n].total);
}
