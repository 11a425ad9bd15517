/* Matrix products of float32 and float64, cut into tasks for the single-threaded gemms of a table. */
#define EXPORT __attribute__((visibility("default")))
typedef struct {
  const lehr_runtime *rt;
  const lehr_product *q;
  int64_t tall, wide; /* blocks along m and along n */
  int64_t packs;      /* whether the table's `packing` is worth trying */
  int64_t later;      /* whether `rows` waits for all of C */
  int64_t way;        /* of the table's thin product; -1: that is not for these sizes */
} cut;

#define AT(x) lehr_batch(q->batch, q->x##_step, i) /* where x begins in the batch */

/* The way of a product of few rows, columns or terms (as `thin` of emit/product.py), by sizes and
   layout alone: where packing is not worth it, measured beside OpenBLAS, which does not pack what
   is small. */
static int64_t way_of(const lehr_product *q) {
  const double work = (double)q->m * (double)q->n * (double)q->k;
  int64_t way = q->k <= 8 ? 0 : -1;
  if (q->n <= (q->ta ? 12 : 16)) way = LEHR_TURNED | (q->ta ? 0 : LEHR_ALONG);
  if (q->m <= q->n && q->m <= (q->tb ? 24 : 16)) way = q->tb ? LEHR_ALONG : 0;
  const double least = way & LEHR_ALONG ? 1 << 16 : 1 << 19;
  return q->kind == LEHR_F32 && way >= 0 && work > least ? way : -1;
}

static void piece(void *ctx, int64_t chunk, int64_t worker) {
  const cut *w = ctx;
  const lehr_product *q = w->q;
  int64_t i = chunk / (w->tall * w->wide), row = chunk / w->wide % w->tall;
  int64_t column = chunk % w->wide;
  int64_t m0 = lehr_edge(q->m, w->tall, row), m1 = lehr_edge(q->m, w->tall, row + 1);
  int64_t n0 = lehr_edge(q->n, w->wide, column), n1 = lehr_edge(q->n, w->wide, column + 1);
  int64_t from_a = AT(a) + m0 * (q->ta ? 1 : q->lda), from_b = AT(b) + n0 * (q->tb ? q->ldb : 1);
  int64_t to = AT(c) + m0 * q->ldc + n0;
  (void)worker;
  if (m0 == m1 || n0 == n1) return;
#define SIZES q->ta, q->tb, m1 - m0, n1 - n0, q->k
#define OPERANDS(real) (const real *)q->a + from_a, q->lda, (const real *)q->b + from_b, q->ldb
#define RESULT(real) (real *)q->c + to, q->ldc
  if (q->kind == LEHR_F64)
    w->rt->dgemm(SIZES, 1, OPERANDS(double), 0, RESULT(double));
  else if (w->way >= 0)
    w->rt->thin(w->way, SIZES, OPERANDS(float), RESULT(float));
  else if (!(q->kind == LEHR_ONEDNN
                 ? w->rt->onednn_product(SIZES, OPERANDS(float), RESULT(float))
                 : w->packs && w->rt->packing(SIZES, OPERANDS(float), RESULT(float), q->ready, n0)))
    w->rt->sgemm(SIZES, 1, OPERANDS(float), 0, RESULT(float));
  if (q->rows && !w->later) q->rows(q->p, i * q->m + m0, i * q->m + m1);
}

static void rest_of(void *ctx, int64_t chunk, int64_t worker) {
  const cut *w = ctx;
  const lehr_product *q = w->q;
  int64_t rows = q->batch[0] * q->batch[1] * q->batch[2] * q->batch[3] * q->m;
  (void)worker;
  q->rows(q->p, rows * chunk / w->tall, rows * (chunk + 1) / w->tall);
}

static void spread(const lehr_runtime *rt, lehr_task task, cut *w, int64_t chunks) {
  if (rt->threads == 1 || chunks == 1)
    for (int64_t n = 0; n < chunks; n++) task(w, n, 0);
  else
    rt->parallel(task, w, chunks);
}

/* A task is worth some 20 microseconds. Blocks of rows stay in the outer cache for `rows`; each
   block copies all of B once more, so that small ones cost more than they save. */
static void lehr_multiply(const lehr_runtime *rt, const lehr_product *q) {
  const int64_t batches = q->batch[0] * q->batch[1] * q->batch[2] * q->batch[3];
  if (batches == 0 || q->m == 0 || q->n == 0) return;
  double work = 2.0 * (double)batches * (double)q->m * (double)q->n * (double)(q->k + 1);
  cut w = {.rt = rt, .q = q, .wide = 1, .way = -1};
  /* By sizes that do not depend on threads: the same bits on any number of them. Each of its blocks
     packs what it reads: few of them, along the longer side. */
  w.packs = rt->packing && q->kind == LEHR_F32 && rt->worth(q->m, q->n, q->k);
  if (rt->thin && !w.packs) w.way = way_of(q);
  /* A result that fits a cache can wait for `rows`: its blocks may be columns then. */
  w.later = q->rows && rt->threads > 1 && (w.packs || w.way >= 0) && q->n > q->m &&
            q->m * q->n <= 1 << 19;
  int64_t most = rt->threads > 1 ? (w.packs ? 1 : 2) * rt->threads : 1;
  int64_t tasks = work > 2e6 * (double)most ? most : (int64_t)(work / 2e6) + 1;
  int64_t blocks = (tasks + batches - 1) / batches;
  w.tall = blocks < q->m / 48 + 1 ? blocks : q->m / 48 + 1;
  if (q->rows && !w.later) {
    int64_t cached = (16 << 20) / (q->n * (q->kind == LEHR_F64 ? 8 : 4));
    int64_t height = cached < 768 ? 768 : cached;
    if (w.tall * height < q->m) w.tall = (q->m + height - 1) / height;
  } else if ((w.tall < blocks && q->n / 64 + 1 > w.tall) || (w.packs && q->n > q->m)) {
    w.wide = blocks < q->n / 64 + 1 ? blocks : q->n / 64 + 1;
    w.tall = 1;
  }
  if (tasks == 1)
    for (int64_t n = 0; n < batches * w.tall * w.wide; n++) piece(&w, n, 0);
  else
    spread(rt, piece, &w, batches * w.tall * w.wide);
  if (w.later) {
    int64_t parts = batches * q->m / (65536 / q->n + 1);
    w.tall = parts < 1 ? 1 : parts < 4 * rt->threads ? parts : 4 * rt->threads;
    spread(rt, rest_of, &w, w.tall);
  }
}

/* For callers that have no C of their own. */
EXPORT void lehr_multiply_now(const lehr_runtime *rt, const lehr_product *q) {
  rt->product(rt, q);
}
