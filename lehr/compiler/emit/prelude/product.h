/* Matrix products through the runtime's gemm, which is single-threaded: cut into tasks here. */

/* C = A @ B for every point of up to four batch dimensions. Steps and leading dimensions count
   elements. `rows`, if any, is run over rows of C, numbered through all batches, while those are in
   the cache; `p` is for it. */
typedef struct {
  int64_t batch[4], a_step[4], b_step[4], c_step[4];
  int64_t m, n, k, ta, tb, lda, ldb, ldc;
  const void *a, *b;
  void *c;
  lehr_kernel rows;
  void *const *p;
  const lehr_runtime *rt;
  int64_t tall, wide; /* blocks along m and along n */
  int64_t split;      /* whether the runtime's split product is worth trying */
  int64_t other;      /* whether oneDNN does it */
} lehr_product;

#define LEHR_AT(x) lehr_batch(q->batch, q->x##_step, i) /* where x begins in the batch */

/* A task is worth some 20 microseconds. Blocks of rows stay in the outer cache for `rows`; each
   block copies all of B once more, so that small ones cost more than they save. */
static __attribute__((unused)) void lehr_multiply(const lehr_runtime *rt, lehr_product *q,
                                                  lehr_task task, int64_t itemsize) {
  int64_t batches = q->batch[0] * q->batch[1] * q->batch[2] * q->batch[3];
  if (batches == 0 || q->m == 0 || q->n == 0) return;
  double work = 2.0 * (double)batches * (double)q->m * (double)q->n * (double)(q->k + 1);
  q->rt = rt;
  /* By sizes that do not depend on threads: the same bits on any number of them. Each of its blocks
     packs what it reads: few of them, along the longer side. */
  q->split = rt->split && !q->other && q->k >= 32 && q->m * q->n >= 64 * (q->m + q->n);
  /* A result that fits a cache can wait for `rows`: its blocks may be columns then. */
  const lehr_kernel rows = q->rows;
  const int64_t wait = rt->threads > 1 && q->split && q->n > q->m && q->m * q->n <= 1 << 19;
  if (wait) q->rows = 0;
  int64_t most = rt->threads > 1 ? (q->split ? 1 : 2) * rt->threads : 1;
  int64_t tasks = work > 2e6 * (double)most ? most : (int64_t)(work / 2e6) + 1;
  int64_t blocks = (tasks + batches - 1) / batches;
  q->wide = 1;
  q->tall = blocks < q->m / 48 + 1 ? blocks : q->m / 48 + 1;
  if (q->rows) {
    int64_t cached = (16 << 20) / (q->n * itemsize), height = cached < 768 ? 768 : cached;
    if (q->tall * height < q->m) q->tall = (q->m + height - 1) / height;
  } else if ((q->tall < blocks && q->n / 64 + 1 > q->tall) || (q->split && q->n > q->m)) {
    q->wide = blocks < q->n / 64 + 1 ? blocks : q->n / 64 + 1;
    q->tall = 1;
  }
  int64_t chunks = batches * q->tall * q->wide;
  if (rt->threads == 1 || tasks == 1)
    for (int64_t n = 0; n < chunks; n++) task(q, n, 0);
  else
    rt->parallel(task, q, chunks);
  if (wait && rows) lehr_spread(rt, rows, q->p, batches * q->m, 65536 / q->n + 1);
}

/* Block `n` of `blocks`, of whole sixteens: its begin. */
LEHR_FN int64_t lehr_edge(int64_t length, int64_t blocks, int64_t n) {
  int64_t at = (length + 15) / 16 * n / blocks * 16;
  return at < length ? at : length;
}

/* `done`: whether another product did the block. */
#define LEHR_GEMM(name, real, gemm, done) \
  static __attribute__((unused)) void name(void *ctx, int64_t chunk, int64_t worker) { \
    const lehr_product *q = ctx; \
    int64_t i = chunk / (q->tall * q->wide), row = chunk / q->wide % q->tall; \
    int64_t column = chunk % q->wide; \
    int64_t m0 = lehr_edge(q->m, q->tall, row), m1 = lehr_edge(q->m, q->tall, row + 1); \
    int64_t n0 = lehr_edge(q->n, q->wide, column), n1 = lehr_edge(q->n, q->wide, column + 1); \
    if (m0 == m1 || n0 == n1) return; \
    const real *a = (const real *)q->a + LEHR_AT(a) + m0 * (q->ta ? 1 : q->lda); \
    const real *b = (const real *)q->b + LEHR_AT(b) + n0 * (q->tb ? q->ldb : 1); \
    real *c = (real *)q->c + LEHR_AT(c) + m0 * q->ldc + n0; \
    (void)worker; \
    if (!(done)) \
      q->rt->gemm(q->ta, q->tb, m1 - m0, n1 - n0, q->k, 1, a, q->lda, b, q->ldb, 0, c, q->ldc); \
    if (q->rows) q->rows(q->p, i * q->m + m0, i * q->m + m1); \
  }

LEHR_GEMM(lehr_gemm_f32, float, sgemm,
          q->split && q->rt->split(q->ta, q->tb, m1 - m0, n1 - n0, q->k, a, q->lda, b, q->ldb, c,
                                   q->ldc))

LEHR_GEMM(lehr_gemm_onednn, float, sgemm,
          q->rt->onednn_product(q->ta, q->tb, m1 - m0, n1 - n0, q->k, a, q->lda, b, q->ldb, c,
                                q->ldc))

LEHR_GEMM(lehr_gemm_f64, double, dgemm, 0)
