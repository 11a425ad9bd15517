/* Matrix products and convolutions by oneDNN (version 3), whose functions are looked up when this is
   connected to an installed library: no header of it is needed.

   Products are of one block and one thread, the caller's: the runtime's pool cuts them. Convolutions
   are of all threads, those of oneDNN's own OpenMP. Primitives are made once for sizes and layouts,
   and kept; memory that they work in is each thread's own. */
#include <dlfcn.h>
#include <pthread.h>

/* What dnnl_types.h calls these. */
enum { CPU = 1, IN_ORDER = 1, ANY = 1, BF16 = 2, F32 = 3, TRAINING = 64, DIRECT = 1, USER = 1 };
enum { IMPLEMENTATION = 8, SRC_MD = 129, DIFF_SRC_MD, WEIGHTS_MD, DIFF_WEIGHTS_MD, DST_MD,
       DIFF_DST_MD, SCRATCH_MD = 136 };
enum { SRC = 1, DST = 17, WEIGHTS = 33, SCRATCH = 80, DIFF_SRC = 129, DIFF_DST = 145,
       DIFF_WEIGHTS = 161 };
enum { KEY = 32, BUCKETS = 512, MOST = 2048 };
/* Memory of a thread: operands and scratch of a primitive, then scratch of reorders. */
enum { WORK = 3, BLOCK, PACKED, ROOMS };

typedef void *object;
typedef struct {
  int argument;
  object memory;
} given;

#define FUNCTIONS(F)                                                                              \
  F(dnnl_engine_create, (object *, int, size_t))                                                  \
  F(dnnl_stream_create, (object *, object, unsigned))                                             \
  F(dnnl_stream_wait, (object))                                                                   \
  F(dnnl_memory_desc_create_with_strides, (object *, int, const int64_t *, int, const int64_t *)) \
  F(dnnl_memory_desc_create_with_tag, (object *, int, const int64_t *, int, int))                 \
  F(dnnl_memory_desc_clone, (object *, object))                                                   \
  F(dnnl_memory_desc_destroy, (object))                                                           \
  F(dnnl_memory_desc_equal, (object, object))                                                     \
  F(dnnl_memory_create, (object *, object, object, void *))                                       \
  F(dnnl_memory_destroy, (object))                                                                \
  F(dnnl_primitive_attr_create, (object *))                                                       \
  F(dnnl_primitive_attr_set_scratchpad_mode, (object, int))                                       \
  F(dnnl_primitive_desc_query, (object, int, int, void *))                                        \
  F(dnnl_primitive_desc_destroy, (object))                                                        \
  F(dnnl_primitive_create, (object *, object))                                                    \
  F(dnnl_primitive_destroy, (object))                                                             \
  F(dnnl_primitive_execute, (object, object, int, const given *))                                 \
  F(dnnl_matmul_primitive_desc_create, (object *, object, object, object, object, object, object)) \
  F(dnnl_reorder_primitive_desc_create, (object *, object, object, object, object, object))       \
  F(dnnl_convolution_forward_primitive_desc_create,                                               \
    (object *, object, int, int, object, object, object, object, const int64_t *,                 \
     const int64_t *, const int64_t *, const int64_t *, object))                                  \
  F(dnnl_convolution_backward_data_primitive_desc_create,                                         \
    (object *, object, int, object, object, object, const int64_t *, const int64_t *,             \
     const int64_t *, const int64_t *, object, object))                                           \
  F(dnnl_convolution_backward_weights_primitive_desc_create,                                      \
    (object *, object, int, object, object, object, object, const int64_t *, const int64_t *,     \
     const int64_t *, const int64_t *, object, object))                                           \
  F(omp_get_max_threads, (void))
#define DECLARED(name, arguments) static int(*name) arguments;
FUNCTIONS(DECLARED)
static size_t (*dnnl_memory_desc_get_size)(object);
static object (*dnnl_primitive_desc_query_md)(object, int, int);
static void (*omp_set_num_threads)(int);

static object engine, attributes;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static int forked; /* OpenMP's threads are not there any more, and it does not know */

/* One operand: the caller's layout `own`, the primitive's `made`, and what turns one into the other,
   NULL where they are the same. */
typedef struct {
  object own, made, turn, turn_space;
  int argument, half, out;
} operand;

typedef struct op {
  struct op *next;
  int64_t key[KEY];
  object primitive, space;
  operand of[3];
} op;

static op *table[BUCKETS];
static int64_t many;

static object stream(void) {
  static __thread object own;
  if (!own && dnnl_stream_create(&own, engine, IN_ORDER)) own = NULL;
  return own;
}

static void forget(op *x) {
  for (int i = 0; i < 3; i++) {
    if (x->of[i].own) dnnl_memory_desc_destroy(x->of[i].own);
    if (x->of[i].made) dnnl_memory_desc_destroy(x->of[i].made);
    if (x->of[i].turn) dnnl_primitive_destroy(x->of[i].turn);
    if (x->of[i].turn_space) dnnl_memory_desc_destroy(x->of[i].turn_space);
  }
  if (x->space) dnnl_memory_desc_destroy(x->space);
  if (x->primitive) dnnl_primitive_destroy(x->primitive);
  free(x);
}

static int64_t size(object md) { return (int64_t)dnnl_memory_desc_get_size(md); }

/* A copy of a layout that a description of a primitive knows. */
static object known(object pd, int what) {
  object md = dnnl_primitive_desc_query_md(pd, what, 0), copy = NULL;
  return md && !dnnl_memory_desc_clone(&copy, md) ? copy : NULL;
}

/* Whether a description is of one of oneDNN's plain loops, which nobody should wait for. */
static int slow(object pd) {
  const char *name = NULL;
  return dnnl_primitive_desc_query(pd, IMPLEMENTATION, 0, &name) || !name || strstr(name, "ref");
}

static int finish(op *x, object pd) {
  x->space = known(pd, SCRATCH_MD);
  return !dnnl_primitive_create(&x->primitive, pd) && x->space;
}

/* Reorders between an operand's two layouts. */
static int turning(operand *o) {
  object pd = NULL, from = o->out ? o->made : o->own, to = o->out ? o->own : o->made;
  if (dnnl_memory_desc_equal(from, to)) return 1;
  if (dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, attributes)) return 0;
  o->turn_space = known(pd, SCRATCH_MD);
  int good = !dnnl_primitive_create(&o->turn, pd) && o->turn_space;
  dnnl_primitive_desc_destroy(pd);
  return good;
}

static int execute(object primitive, object layout, void *space, int count, const int *argument,
                   const object *md, void *const *at) {
  given all[4];
  object done = stream();
  int good = done != NULL, n = 0;
  for (; n < count && good; n++) {
    all[n].argument = argument[n];
    good = !dnnl_memory_create(&all[n].memory, md[n], engine, at[n]);
    if (!good) break;
  }
  if (good) {
    all[n].argument = SCRATCH;
    good = !dnnl_memory_create(&all[n].memory, layout, engine, space);
    n += good;
  }
  good = good && !dnnl_primitive_execute(primitive, done, n, all) && !dnnl_stream_wait(done);
  while (n) dnnl_memory_destroy(all[--n].memory);
  return good;
}

static int run(const op *x, void *const *at) {
  int argument[3];
  object md[3];
  void *place[3];
  int good = 1;
  for (int i = 0; i < 3 && good; i++) {
    const operand *o = &x->of[i];
    argument[i] = o->argument, md[i] = o->made, place[i] = at[i];
    if (!o->turn) continue;
    place[i] = scratch(i, size(o->made));
    void *space = scratch(ROOMS + i, size(o->turn_space) + 1);
    good = place[i] && space;
    const int both[] = {SRC, DST};
    const object layouts[] = {o->own, o->made};
    void *const places[] = {at[i], place[i]};
    if (!o->out) good = good && execute(o->turn, o->turn_space, space, 2, both, layouts, places);
  }
  void *space = scratch(WORK, size(x->space) + 1);
  good = good && space && execute(x->primitive, x->space, space, 3, argument, md, place);
  for (int i = 0; i < 3 && good; i++) {
    const operand *o = &x->of[i];
    if (!o->turn || !o->out) continue;
    const int both[] = {SRC, DST};
    const object layouts[] = {o->made, o->own};
    void *const places[] = {place[i], at[i]};
    good = execute(o->turn, o->turn_space, scratch(ROOMS + i, 1), 2, both, layouts, places);
  }
  return good;
}

/* The primitive of a key, made by `make` where there is none, put to `use`. */
static int found(const int64_t *key, int (*make)(op *), int threads,
                 int (*use)(const op *, void *const *), void *const *at) {
  uint64_t hash = 0;
  for (int i = 0; i < KEY; i++) hash = (hash ^ (uint64_t)key[i]) * 0x9e3779b97f4a7c15u;
  op **bucket = &table[(hash >> 32) % BUCKETS], *x;
  int before = omp_get_max_threads(), good = 0;
  if (before != threads) omp_set_num_threads(threads);
  pthread_rwlock_rdlock(&lock);
  for (;;) {
    for (x = *bucket; x && memcmp(x->key, key, sizeof x->key); x = x->next) {}
    if (x) break;
    pthread_rwlock_unlock(&lock);
    x = calloc(1, sizeof *x);
    if (x) memcpy(x->key, key, sizeof x->key);
    if (!x || !make(x)) {
      if (x) forget(x);
      if (before != threads) omp_set_num_threads(before);
      return 0;
    }
    pthread_rwlock_wrlock(&lock);
    if (many++ >= MOST) { /* nobody is within: the lock is ours alone */
      for (int i = 0; i < BUCKETS; i++)
        while (table[i]) {
          op *next = table[i]->next;
          forget(table[i]);
          table[i] = next;
        }
      many = 1;
    }
    x->next = *bucket;
    *bucket = x;
    pthread_rwlock_unlock(&lock);
    pthread_rwlock_rdlock(&lock);
  }
  good = use(x, at);
  pthread_rwlock_unlock(&lock);
  if (before != threads) omp_set_num_threads(before);
  return good;
}

/* Products of float32 matrices */

enum { TA, TB, M, N, K, LDA, LDB, LDC, A_WIDE, B_WIDE, MAIN, CREW, KIND = KEY - 1 };
enum { SINGLE, HALF, IMAGES };

/* The leading dimension of a matrix of `rows` rows: of a single one it says nothing. */
static int64_t leading(int64_t given, int64_t rows, int64_t columns) {
  return rows == 1 ? columns : given;
}

static void sizes(int64_t *key, int64_t ta, int64_t tb, int64_t m, int64_t n, int64_t k,
                  int64_t lda, int64_t ldb, int64_t ldc) {
  key[TA] = ta, key[TB] = tb, key[M] = m, key[N] = n, key[K] = k;
  key[LDA] = leading(lda, ta ? k : m, ta ? m : k);
  key[LDB] = leading(ldb, tb ? n : k, tb ? k : n);
  key[LDC] = leading(ldc, m, n);
}

static int matrix(object *md, int64_t rows, int64_t columns, int64_t turned, int64_t ld, int type) {
  int64_t many[] = {rows, columns}, step[] = {turned ? 1 : ld, turned ? ld : 1};
  return dnnl_memory_desc_create_with_strides(md, 2, many, type, step);
}

static void multiplied(op *x) {
  x->of[0].argument = SRC, x->of[1].argument = WEIGHTS, x->of[2].argument = DST;
}

static void zeros(float *c, int64_t m, int64_t n, int64_t ldc) {
  for (int64_t i = 0; i < m; i++) memset(c + i * ldc, 0, (size_t)n * 4);
}

static int make_single(op *x) {
  const int64_t *s = x->key;
  object pd = NULL, *a = &x->of[0].made, *b = &x->of[1].made, *c = &x->of[2].made;
  multiplied(x);
  int bad = matrix(a, s[M], s[K], s[TA], s[LDA], F32) ||
            matrix(b, s[K], s[N], s[TB], s[LDB], F32) || matrix(c, s[M], s[N], 0, s[LDC], F32) ||
            dnnl_matmul_primitive_desc_create(&pd, engine, *a, *b, NULL, *c, attributes);
  bad = bad || !finish(x, pd);
  if (pd) dnnl_primitive_desc_destroy(pd);
  return !bad;
}

static int product(int64_t ta, int64_t tb, int64_t m, int64_t n, int64_t k, const float *a,
                   int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc) {
  int64_t key[KEY] = {[KIND] = SINGLE};
  void *const at[] = {(void *)a, (void *)b, c};
  if (k == 0) zeros(c, m, n, ldc);
  sizes(key, ta, tb, m, n, k, lda, ldb, ldc);
  return k == 0 || found(key, make_single, 1, run, at);
}

/* Products of bfloat16 matrices: blocks of rows that stay in the second cache for what follows, by
   a B that was reordered once for all of them. */

enum { FEW = 96, TALL = 288, CACHED = 3 << 18, LENT = 4 << 20 };

/* MAIN is 0 where B is read as it lies; else the rows of the block for which its layout was chosen,
   which all others take over. Float32 operands are rounded as they are reordered. All is of one
   thread, but for the reorder of B, which is of CREW. */
static int make_half(op *x) {
  const int64_t *s = x->key;
  operand *a = &x->of[0], *b = &x->of[1], *c = &x->of[2];
  object pd = NULL, first = NULL, whole[3] = {0}, any = NULL;
  const int64_t whole_size[] = {s[K], s[N]};
  multiplied(x);
  int bad = matrix(&a->own, s[M], s[K], s[TA], s[LDA], s[A_WIDE] ? F32 : BF16) ||
            matrix(&a->made, s[M], s[K], s[TA] && !s[A_WIDE], s[A_WIDE] ? s[K] : s[LDA], BF16) ||
            matrix(&b->own, s[K], s[N], s[TB], s[LDB], s[B_WIDE] ? F32 : BF16) ||
            matrix(&c->own, s[M], s[N], 0, s[LDC], F32) ||
            matrix(&c->made, s[M], s[N], 0, s[LDC], F32) ||
            dnnl_memory_desc_create_with_tag(&any, 2, whole_size, BF16, ANY);
  if (!bad && (s[MAIN] || s[B_WIDE])) {
    int64_t m = s[MAIN] ? s[MAIN] : s[M];
    bad = matrix(&whole[0], m, s[K], 0, s[K], BF16) || matrix(&whole[2], m, s[N], 0, s[LDC], F32) ||
          dnnl_matmul_primitive_desc_create(&first, engine, whole[0], any, NULL, whole[2],
                                            attributes);
    if (!bad) bad = !(b->made = known(first, WEIGHTS_MD));
  } else if (!bad)
    bad = dnnl_memory_desc_clone(&b->made, b->own);
  c->out = 1;
  bad = bad || !turning(a);
  if (s[MAIN]) omp_set_num_threads((int)s[CREW]);
  bad = bad || !turning(b);
  omp_set_num_threads(1);
  bad = bad ||
        dnnl_matmul_primitive_desc_create(&pd, engine, a->made, b->made, NULL, c->made, attributes);
  bad = bad || slow(pd) || !finish(x, pd);
  object rest[] = {whole[0], whole[2], any};
  for (int i = 0; i < 3; i++)
    if (rest[i]) dnnl_memory_desc_destroy(rest[i]);
  if (first) dnnl_primitive_desc_destroy(first);
  if (pd) dnnl_primitive_desc_destroy(pd);
  return !bad;
}

typedef struct {
  const lehr_runtime *rt;
  const lehr_half *q;
  int64_t high, tall, wide; /* rows of a block; blocks along m and n of a matrix of the batch */
  int64_t crew;             /* OpenMP's threads that reorder B */
  char *packed;             /* all of B, `each` bytes for a matrix, or NULL */
  size_t each;
  int undone;
} work;

#define AT(x) lehr_batch(q->batch, q->x##_step, i) /* where x begins in the batch */

static void *element(const void *x, int64_t n, int64_t wide) {
  return (char *)x + n * (wide ? 4 : 2);
}

static void half_key(const work *w, int64_t m, int64_t n, int64_t *key) {
  const lehr_half *q = w->q;
  key[KIND] = HALF, key[A_WIDE] = q->a_wide, key[B_WIDE] = q->b_wide;
  sizes(key, q->ta, q->tb, m, n, q->k, q->lda, q->ldb, q->ldc);
  if (w->each) key[MAIN] = w->high, key[CREW] = w->crew;
}

/* Reorders all of B into memory of the caller's thread: `at` is B, the number of its matrices, and
   a place for the address and the size of one. */
static int pack(const op *x, void *const *at) {
  const work *w = at[0];
  const lehr_half *q = w->q;
  int64_t batches = q->batch[0] * q->batch[1] * q->batch[2] * q->batch[3];
  if (!x->of[1].turn) return 1; /* B is as good as it lies */
  size_t each = ((size_t)size(x->of[1].made) + 63) / 64 * 64;
  char *to = scratch(PACKED, (int64_t)each * batches);
  void *space = scratch(ROOMS + 1, size(x->of[1].turn_space) + 1);
  int good = to && space;
  omp_set_num_threads((int)w->crew);
  for (int64_t i = 0; i < batches && good; i++) {
    const int both[] = {SRC, DST};
    const object layouts[] = {x->of[1].own, x->of[1].made};
    void *const places[] = {element(q->b, AT(b), q->b_wide), to + (size_t)i * each};
    good = execute(x->of[1].turn, x->of[1].turn_space, space, 2, both, layouts, places);
  }
  omp_set_num_threads(1);
  *(size_t *)at[1] = each;
  *(char **)at[2] = to;
  return good;
}

/* A block; `at`: A, packed B, C. */
static int ready(const op *x, void *const *at) {
  op now = *x;
  now.of[1].turn = NULL;
  return run(&now, at);
}

static void block(void *ctx, int64_t chunk, int64_t worker) {
  work *w = ctx;
  const lehr_half *q = w->q;
  int64_t i = chunk / (w->tall * w->wide), column = chunk % w->wide;
  int64_t m0 = chunk / w->wide % w->tall * w->high, m1 = least(m0 + w->high, q->m);
  int64_t n0 = (q->n + 31) / 32 * column / w->wide * 32;
  int64_t n1 = least((q->n + 31) / 32 * (column + 1) / w->wide * 32, q->n);
  (void)worker;
  if (n0 >= n1) return;
  void *a = element(q->a, AT(a) + m0 * (q->ta ? 1 : q->lda), q->a_wide);
  void *b = element(q->b, AT(b) + n0 * (q->tb ? q->ldb : 1), q->b_wide);
  float *c = (float *)q->c + AT(c) + m0 * q->ldc + n0;
  const int lent = q->lent && w->wide == 1 && (m1 - m0) * q->ldc <= LENT / 4;
  void *p[lent ? q->many : 1];
  if (lent) { /* `rows` finds its first row at the number of it */
    c = scratch(BLOCK, (m1 - m0) * q->ldc * 4);
    memcpy(p, q->p, sizeof p);
    p[q->lent - 1] = (char *)c - (i * q->m + m0) * q->ldc * 4;
  }
  int64_t key[KEY] = {0};
  half_key(w, m1 - m0, n1 - n0, key);
  int good = c != NULL;
  void *const at[] = {a, w->packed ? w->packed + (size_t)i * w->each : b, c};
  if (good && q->k) good = found(key, make_half, 1, w->packed ? ready : run, at);
  else if (good) zeros(c, m1 - m0, n1 - n0, q->ldc);
  if (!good) __atomic_store_n(&w->undone, 1, __ATOMIC_RELAXED);
  else if (q->rows && w->wide == 1)
    q->rows(lent ? p : q->p, i * q->m + m0, i * q->m + m1);
}

static void after(void *ctx, int64_t chunk, int64_t worker) {
  const work *w = ctx;
  const lehr_half *q = w->q;
  int64_t rows = q->batch[0] * q->batch[1] * q->batch[2] * q->batch[3] * q->m;
  (void)worker;
  q->rows(q->p, rows * chunk / w->tall, rows * (chunk + 1) / w->tall);
}

static int half(const lehr_runtime *rt, const lehr_half *q) {
  int64_t batches = q->batch[0] * q->batch[1] * q->batch[2] * q->batch[3];
  work w = {.rt = rt, .q = q, .high = q->m, .tall = 1, .wide = 1};
  if (batches == 0 || q->m == 0 || q->n == 0) return 1;
  double done = 2.0 * (double)batches * (double)q->m * (double)q->n * (double)q->k;
  int64_t tasks = done < 1e7 ? 1 : rt->threads;
  if (q->m > TALL) {
    int64_t high = CACHED / 4 / q->n / 32 * 32;
    w.high = high < FEW ? FEW : high > 256 ? 256 : high;
  } else if (batches == 1)
    w.wide = least(tasks, (q->n + FEW - 1) / FEW);
  w.tall = (q->m + w.high - 1) / w.high;
  if (w.tall > 1 && q->k) {
    int64_t key[KEY] = {0};
    size_t each = 1;
    w.each = 1;
    w.crew = forked || tasks == 1 ? 1 : rt->threads;
    half_key(&w, w.high, q->n, key);
    void *const at[] = {&w, &each, &w.packed};
    if (!found(key, make_half, 1, pack, at)) return 0;
    w.each = each;
  }
  int64_t chunks = batches * w.tall * w.wide;
  if (tasks == 1)
    for (int64_t n = 0; n < chunks; n++) block(&w, n, 0);
  else
    rt->parallel(block, &w, chunks);
  if (q->rows && w.wide > 1 && !w.undone) {
    w.tall = least(4 * tasks, (q->m * batches + 31) / 32);
    rt->parallel(after, &w, w.tall);
  }
  return !w.undone;
}

/* Convolutions: the direction, numbers of threads, dimensions and halves, then the sizes. */

enum { FORWARD, DATA, WEIGHT };
enum { WAY = 0, THREADS = 1, RANK = 2, HALVES = 3, BATCH = 4, GROUPS = 5, IN = 6, OUT = 7, SIZE = 8,
       MANY = 11, KERNEL = 14, STRIDE = 17, PAD = 20, DILATION = 23, STEPS = 26 };

/* Dense images with channels together. */
static int images(object *md, const int64_t *s, int64_t channels, const int64_t *size, int half) {
  int64_t rank = s[RANK], dims[5] = {s[BATCH], channels}, steps[5] = {0, 1}, step = channels;
  for (int64_t d = rank - 1; d >= 0; d--) {
    dims[2 + d] = size[d], steps[2 + d] = step;
    step *= size[d];
  }
  steps[0] = step;
  return dnnl_memory_desc_create_with_strides(md, (int)rank + 2, dims, half ? BF16 : F32, steps);
}

static int described(const int64_t *s, const object *md, object *pd) {
  int64_t rank = s[RANK], dilation[3], after[3];
  const int64_t *size = s + SIZE, *count = s + MANY;
  for (int64_t d = 0; d < rank; d++) {
    dilation[d] = s[DILATION + d] - 1;
    after[d] = (count[d] - 1) * s[STRIDE + d] + (s[KERNEL + d] - 1) * s[DILATION + d] + 1 -
               size[d] - s[PAD + d];
  }
  object hint = NULL;
  if (dnnl_convolution_forward_primitive_desc_create(
          s[WAY] == FORWARD ? pd : &hint, engine, TRAINING, DIRECT, md[0], md[1], NULL, md[2],
          s + STRIDE, dilation, s + PAD, after, attributes))
    return 0;
  if (s[WAY] == FORWARD) return 1;
  int bad = s[WAY] == DATA
                ? dnnl_convolution_backward_data_primitive_desc_create(
                      pd, engine, DIRECT, md[0], md[1], md[2], s + STRIDE, dilation, s + PAD,
                      after, hint, attributes)
                : dnnl_convolution_backward_weights_primitive_desc_create(
                      pd, engine, DIRECT, md[0], md[1], NULL, md[2], s + STRIDE, dilation, s + PAD,
                      after, hint, attributes);
  dnnl_primitive_desc_destroy(hint);
  return !bad;
}

static int make_convolution(op *x) {
  static const int arguments[3][3] = {
      {SRC, WEIGHTS, DST}, {DIFF_SRC, WEIGHTS, DIFF_DST}, {SRC, DIFF_WEIGHTS, DIFF_DST}};
  static const int layouts[3][3] = {{SRC_MD, WEIGHTS_MD, DST_MD},
                                    {DIFF_SRC_MD, WEIGHTS_MD, DIFF_DST_MD},
                                    {SRC_MD, DIFF_WEIGHTS_MD, DIFF_DST_MD}};
  static const int results[] = {2, 0, 1}; /* by direction */
  const int64_t *s = x->key, *steps = s + STEPS;
  int64_t rank = s[RANK], grouped = s[GROUPS] > 1, way = s[WAY];
  int64_t dims[6] = {s[GROUPS], s[OUT], s[IN]}, images_dims[5], wide;
  for (int64_t d = 0; d < rank; d++) dims[3 + d] = s[KERNEL + d];
  for (int i = 0; i < 3; i++) {
    x->of[i].argument = arguments[way][i];
    x->of[i].out = results[way] == i;
    x->of[i].half = s[HALVES] >> i & 1;
  }
  int skip = !grouped, count = (int)rank + 3 - skip;
  int bad = images(&x->of[0].own, s, s[GROUPS] * s[IN], s + SIZE, x->of[0].half) ||
            dnnl_memory_desc_create_with_strides(&x->of[1].own, count, dims + skip,
                                                 x->of[1].half ? BF16 : F32, steps + skip) ||
            images(&x->of[2].own, s, s[GROUPS] * s[OUT], s + MANY, x->of[2].half);
  if (bad) return 0;
  /* Kernels in a layout of oneDNN's choice; images, too, where it has nothing good for theirs. */
  object pd = NULL, any[3] = {0};
  int good = 1;
  for (int i = 0; i < 3 && good; i++) {
    const int64_t *of = dims + skip;
    if (i != 1) {
      wide = i ? s[GROUPS] * s[OUT] : s[GROUPS] * s[IN];
      images_dims[0] = s[BATCH], images_dims[1] = wide;
      memcpy(images_dims + 2, s + (i ? MANY : SIZE), sizeof(int64_t) * (size_t)rank);
      of = images_dims;
    }
    good = !dnnl_memory_desc_create_with_tag(&any[i], i == 1 ? count : (int)rank + 2, of,
                                             x->of[i].half ? BF16 : F32, ANY);
  }
  const object plain[] = {x->of[0].own, any[1], x->of[2].own};
  if (good && (!described(s, plain, &pd) || slow(pd))) {
    object other = NULL;
    if (described(s, any, &other) && (!pd || !slow(other))) {
      if (pd) dnnl_primitive_desc_destroy(pd);
      pd = other;
    } else if (other)
      dnnl_primitive_desc_destroy(other);
  }
  good = good && pd && finish(x, pd);
  for (int i = 0; i < 3 && good; i++) {
    x->of[i].made = known(pd, layouts[way][i]);
    good = x->of[i].made && turning(&x->of[i]);
  }
  for (int i = 0; i < 3; i++)
    if (any[i]) dnnl_memory_desc_destroy(any[i]);
  if (pd) dnnl_primitive_desc_destroy(pd);
  return good;
}

/* Dimensions that are not there come first in the record, and are left out. */
static int convolve(const lehr_runtime *rt, const lehr_onednn *r) {
  const lehr_convolution *q = &r->q;
  int skip = 0;
  while (skip < 2 && q->size[skip] == 1 && q->many[skip] == 1 && q->kernel[skip] == 1 &&
         q->stride[skip] == 1 && q->pad[skip] == 0)
    skip++;
  int64_t adjoint = q->transposed;
  int64_t key[KEY] = {[WAY] = r->gradient ? WEIGHT : adjoint ? DATA : FORWARD,
                      [KIND] = IMAGES, [THREADS] = forked ? 1 : rt->threads, [RANK] = 3 - skip, [BATCH] = q->batch,
                      [GROUPS] = q->groups, [IN] = adjoint ? q->out : q->in,
                      [OUT] = adjoint ? q->in : q->out};
  int64_t x_half = r->x_half, y_half = r->y_half;
  key[HALVES] = (adjoint ? y_half : x_half) | r->w_half << 1 | (adjoint ? x_half : y_half) << 2;
  for (int d = skip; d < 3; d++) {
    key[SIZE + d - skip] = adjoint ? q->many[d] : q->size[d];
    key[MANY + d - skip] = adjoint ? q->size[d] : q->many[d];
    key[KERNEL + d - skip] = q->kernel[d];
    key[STRIDE + d - skip] = q->stride[d];
    key[PAD + d - skip] = q->pad[d];
    key[DILATION + d - skip] = q->dilation[d];
    key[STEPS + 3 + d - skip] = q->w_step[3 + d];
  }
  key[STEPS] = q->w_step[0];
  key[STEPS + 1] = q->w_step[adjoint ? 2 : 1];
  key[STEPS + 2] = q->w_step[adjoint ? 1 : 2];
  void *x = (void *)q->x, *at[] = {adjoint ? q->y : x, q->w, adjoint ? x : q->y};
  return found(key, make_convolution, (int)key[THREADS], run, at);
}

static void after_fork(void) {
  pthread_rwlock_t fresh = PTHREAD_RWLOCK_INITIALIZER;
  memcpy(&lock, &fresh, sizeof lock);
  forked = 1;
}

/* The name of a function that the library has not; "" where it has all, and works. */
EXPORT const char *lehr_connect(void *library) {
#define FOUND(name, arguments) \
  if (!(name = dlsym(library, #name))) return #name;
  FUNCTIONS(FOUND)
  FOUND(dnnl_memory_desc_get_size, )
  FOUND(dnnl_primitive_desc_query_md, )
  FOUND(omp_set_num_threads, )
  if (engine) return "";
  if (dnnl_engine_create(&engine, CPU, 0)) return "an engine for the processor";
  if (dnnl_primitive_attr_create(&attributes)) return "attributes";
  if (dnnl_primitive_attr_set_scratchpad_mode(attributes, USER)) return "scratch memory of ours";
  pthread_atfork(NULL, NULL, after_fork);
  return "";
}

EXPORT void lehr_install(lehr_runtime *rt) {
  rt->onednn_product = product;
  rt->onednn_half = half;
  rt->onednn_convolve = convolve;
}
