/* Products of bfloat16 matrices, summed in float32: on tiles (AMX), by vectors of dot products
   (AVX512-BF16), else through the library's float32 product, a block at a time. An operand may be
   float32 in memory: it is rounded to the nearest bfloat16 number as it is read.

   Tiles and dot products take denormal numbers for 0, so a block with one goes to the library;
   results below 2^-126 come out as 0. */
/* Rows of A and terms that are packed at once, and columns of B where not all of it is, so that
   they stay in the second cache; the least rows worth a block of their own and those worth several
   (`emit/product.py` knows them, too); bytes of a block of C that stay there as well,
   and of one that a thread keeps memory for. */
enum { ROWS = 256, DEPTH = 1024, COLUMNS = 256, FEW = 96, TALL = 288, CACHED = 3 << 18,
       LENT = 4 << 20 };
/* Rows, columns and terms that become float32 at once, for the library. */
enum { BLOCK = 256 };

typedef struct {
  const lehr_runtime *rt;
  const lehr_half *q;
  int64_t tall, wide; /* blocks along m and along n of one matrix of the batch */
  int all;            /* whether B is packed already */
  int32_t bad;        /* a number of B that tiles do not take was seen */
} lehr_work;

#define AT(x) lehr_batch(q->batch, q->x##_step, i) /* where x begins in the batch */

/* Rows m0 to m1 and columns n0 to n1 by the library's product. */
static void plain(const lehr_work *w, const char *a, const char *b, float *c, int64_t m, int64_t n) {
  const lehr_half *q = w->q;
  float *left = scratch(0, 4 * BLOCK * BLOCK), *right = scratch(1, 4 * BLOCK * BLOCK);
  for (int64_t k0 = 0; k0 < q->k; k0 += BLOCK)
    for (int64_t n0 = 0; n0 < n; n0 += BLOCK) {
      int64_t k = least(q->k - k0, BLOCK), many = least(n - n0, BLOCK);
      const char *y = spot(b, q->tb ? n0 * q->ldb + k0 : k0 * q->ldb + n0, q->b_wide);
      floats(y, q->ldb, q->b_wide, q->tb ? many : k, q->tb ? k : many, right);
      for (int64_t m0 = 0; m0 < m; m0 += BLOCK) {
        int64_t rows = least(m - m0, BLOCK);
        const char *x = spot(a, q->ta ? k0 * q->lda + m0 : m0 * q->lda + k0, q->a_wide);
        floats(x, q->lda, q->a_wide, q->ta ? k : rows, q->ta ? rows : k, left);
        w->rt->sgemm(q->ta, q->tb, rows, many, k, 1, left, q->ta ? rows : k, right,
                     q->tb ? k : many, k0 > 0, c + m0 * q->ldc + n0, q->ldc);
      }
    }
}

#if PACKED
static int pack(const char *x, int64_t ld, int wide, int64_t rows, int64_t depth, int across,
                int turn, char *to, int64_t panel) {
#define CASE(w, c) \
  if (!wide == !w && across == c) return packed(x, ld, w, rows, depth, c, turn, to, panel);
  CASE(0, 0) CASE(0, 1) CASE(1, 0) CASE(1, 1)
  return 1;
}

/* Bytes of a panel of all terms. */
static int64_t panel_of(const lehr_half *q) {
  return (q->k + 31) / 32 * PART;
}

/* A block of C of any size; `ready`: the packed panels of B, or NULL. 0: C holds anything. */
static int product(const lehr_half *q, const char *a, const char *b, const char *ready, float *c,
                   int64_t m, int64_t n) {
  int64_t most = least(q->k, DEPTH), steps = (most + 31) / 32, good = 1;
  char *left = scratch(0, steps * PART * ROWS / SIDE);
  char *right = ready ? NULL : scratch(1, steps * PART * COLUMNS / SIDE);
  int64_t whole = panel_of(q);
  BEGIN;
  for (int64_t m0 = 0; m0 < m && good; m0 += ROWS)
    for (int64_t k0 = 0; k0 < q->k && good; k0 += DEPTH) {
      int64_t rows = least(m - m0, ROWS), depth = least(q->k - k0, DEPTH);
      const char *x = spot(a, q->ta ? k0 * q->lda + m0 : m0 * q->lda + k0, q->a_wide);
      steps = (depth + 31) / 32;
      good = !pack(x, q->lda, q->a_wide, rows, depth, q->ta, q->ta, left, steps * PART);
      if (ready) {
        panels(left, steps * PART, ready + k0 / 32 * PART, whole, steps, c + m0 * q->ldc, q->ldc,
               k0 > 0, rows, n);
        continue;
      }
      for (int64_t n0 = 0; n0 < n && good; n0 += COLUMNS) {
        int64_t many = least(n - n0, COLUMNS);
        const char *y = spot(b, q->tb ? n0 * q->ldb + k0 : k0 * q->ldb + n0, q->b_wide);
        good = !pack(y, q->ldb, q->b_wide, many, depth, !q->tb, q->tb, right, steps * PART);
        panels(left, steps * PART, right, steps * PART, steps, c + m0 * q->ldc + n0, q->ldc,
               k0 > 0, rows, many);
      }
    }
  END;
  return good;
}

/* Packs a share of the panels of B. */
static void prepare(void *ctx, int64_t chunk, int64_t worker) {
  lehr_work *w = ctx;
  const lehr_half *q = w->q;
  int64_t i = chunk / w->wide, whole = panel_of(q);
  int64_t from = lehr_edge(q->n, w->wide, chunk % w->wide);
  int64_t to = lehr_edge(q->n, w->wide, chunk % w->wide + 1);
  const char *b = spot(q->b, AT(b) + from * (q->tb ? q->ldb : 1), q->b_wide);
  char *put = (char *)q->packed + (i * ((q->n + SIDE - 1) / SIDE) + from / SIDE) * whole;
  (void)worker;
  if (pack(b, q->ldb, q->b_wide, to - from, q->k, !q->tb, q->tb, put, whole))
    __atomic_store_n(&w->bad, 1, __ATOMIC_RELAXED);
}
#endif

static void task(void *ctx, int64_t chunk, int64_t worker) {
  const lehr_work *w = ctx;
  const lehr_half *q = w->q;
  int64_t i = chunk / (w->tall * w->wide), row = chunk / w->wide % w->tall;
  int64_t column = chunk % w->wide;
  int64_t m0 = lehr_edge(q->m, w->tall, row), m1 = lehr_edge(q->m, w->tall, row + 1);
  int64_t n0 = lehr_edge(q->n, w->wide, column), n1 = lehr_edge(q->n, w->wide, column + 1);
  (void)worker;
  if (m0 == m1 || n0 == n1) return;
  const char *a = spot(q->a, AT(a) + m0 * (q->ta ? 1 : q->lda), q->a_wide);
  const char *b = spot(q->b, AT(b) + n0 * (q->tb ? q->ldb : 1), q->b_wide);
  float *c = (float *)q->c + AT(c) + m0 * q->ldc + n0;
  const int lent = q->lent && w->wide == 1 && (m1 - m0) * q->ldc <= LENT / 4;
  void *p[lent ? q->many : 1];
  if (lent) { /* `rows` finds its first row at the number of it */
    c = scratch(2, (m1 - m0) * q->ldc * 4);
    memcpy(p, q->p, sizeof p);
    p[q->lent - 1] = (char *)c - (i * q->m + m0) * q->ldc * 4;
  }
  int done = 0;
#if PACKED
  const char *ready = NULL;
  if (q->ready)
    ready = (const char *)q->ready + n0 / SIDE * panel_of(q);
  else if (w->all)
    ready = (const char *)q->packed + i * ((q->n + SIDE - 1) / SIDE) * panel_of(q);
  done = !w->bad && product(q, a, b, ready, c, m1 - m0, n1 - n0);
#endif
  if (!done) plain(w, a, b, c, m1 - m0, n1 - n0);
  if (q->rows && w->wide == 1) q->rows(lent ? p : q->p, i * q->m + m0, i * q->m + m1);
}

static void after(void *ctx, int64_t chunk, int64_t worker) {
  const lehr_work *w = ctx;
  const lehr_half *q = w->q;
  int64_t rows = q->batch[0] * q->batch[1] * q->batch[2] * q->batch[3] * q->m;
  (void)worker;
  q->rows(q->p, lehr_edge(rows, w->tall, chunk), lehr_edge(rows, w->tall, chunk + 1));
}

/* Blocks of rows are small enough for `rows` to find C in the second cache, and all of B is packed
   before; where there are few rows, blocks are columns, which pack what they read. */
EXPORT void lehr_product_half(const lehr_runtime *rt, const lehr_half *q) {
  int64_t batches = q->batch[0] * q->batch[1] * q->batch[2] * q->batch[3], threads = rt->threads;
  lehr_work w = {.rt = rt, .q = q, .tall = 1, .wide = 1};
  if (batches == 0 || q->m == 0 || q->n == 0) return;
  if (q->k == 0)
    for (int64_t i = 0; i < batches; i++)
      for (int64_t r = 0; r < q->m; r++)
        memset((float *)q->c + AT(c) + r * q->ldc, 0, (size_t)q->n * 4);
  double work = 2.0 * (double)batches * (double)q->m * (double)q->n * (double)q->k;
  int64_t tasks = work < 1e7 ? 1 : threads;
  int64_t high = least(ROWS, CACHED / 4 / q->n / SIDE * SIDE);
  high = high < FEW ? FEW : high;
  if (q->m > TALL)
    w.tall = (q->m + high - 1) / high;
  else if (batches == 1 && tasks > 1)
    w.wide = least(tasks, (q->n + FEW - 1) / FEW);
  if (batches * w.tall < tasks && w.wide == 1) w.tall = least(tasks, (q->m + FEW - 1) / FEW);
  if (q->m > TALL && batches % tasks) /* as many for each thread */
    w.tall = (w.tall + tasks - 1) / tasks * tasks;
#if PACKED
  if (q->packed && !q->ready && q->k && w.tall > 1) {
    lehr_work early = w;
    early.wide = tasks == 1 ? 1 : least(4 * tasks, (q->n + SIDE - 1) / SIDE);
    rt->parallel(prepare, &early, batches * early.wide);
    w.bad = early.bad;
    w.all = 1;
  }
#endif
  int64_t chunks = batches * w.tall * w.wide;
  if (tasks == 1)
    for (int64_t n = 0; n < chunks; n++) task(&w, n, 0);
  else
    rt->parallel(task, &w, chunks);
  if (q->rows && w.wide > 1) {
    w.tall = least(4 * tasks, (q->m * batches + 31) / 32);
    rt->parallel(after, &w, w.tall);
  }
}

/* Whether a product reads B packed, by sizes alone. */
EXPORT int64_t lehr_worth(int64_t m, int64_t n, int64_t k) { return (void)m, (void)n, (void)k, 1; }

/* Bytes of a packed matrix. */
EXPORT int64_t lehr_packed(int64_t n, int64_t k) {
#if PACKED
  return (n + SIDE - 1) / SIDE * ((k + 31) / 32) * PART;
#endif
  return (void)n, (void)k, 0;
}

/* B (`tb`: transposed; `wide`: float32), n columns of k terms, packed into `to`. 0 where it holds
   denormal numbers. */
EXPORT int64_t lehr_pack(const void *x, int64_t ld, int64_t wide, int64_t tb, int64_t n, int64_t k,
                         void *to) {
#if PACKED
  return !pack(x, ld, (int)wide, n, k, !tb, (int)tb, to, (k + 31) / 32 * PART);
#endif
  return (void)x, (void)ld, (void)wide, (void)tb, (void)n, (void)k, (void)to, 0;
}

EXPORT void lehr_install(lehr_runtime *rt) {
  prefer();
  rt->half = lehr_product_half;
}
