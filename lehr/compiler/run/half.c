/* Products of bfloat16 matrices, summed in float32: on tiles (AMX), by vectors of dot products
   (AVX512-BF16), else through the library's float32 product, a block at a time. An operand may be
   float32 in memory: it is rounded to the nearest bfloat16 number as it is read.

   Tiles and dot products take denormal numbers for 0, so a block with one goes to the library;
   results below 2^-126 come out as 0. */
#include <stdlib.h>
#include <string.h>
#if defined(AMX) && defined(__AVX512BF16__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define PACKED 1
#else
#define PACKED 0
#endif

#define EXPORT __attribute__((visibility("default")))
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

static inline int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t place(const lehr_half *q, const int64_t *step, int64_t i) {
  int64_t at = 0;
  for (int d = 3; d >= 0; d--) {
    at += i % q->batch[d] * step[d];
    i /= q->batch[d];
  }
  return at;
}

/* Block `n` of `blocks`, of whole panels: its begin. */
static int64_t edge(int64_t length, int64_t blocks, int64_t n) {
  return least((length + 31) / 32 * n / blocks * 32, length);
}

/* The address of an element of an operand. */
static const char *at(const void *x, int64_t n, int64_t wide) {
  return (const char *)x + n * (wide ? 4 : 2);
}

static float *room(int which, int64_t bytes) {
  static __thread struct {
    void *at;
    int64_t size;
  } held[3];
  if (held[which].size < bytes) {
    free(held[which].at);
    held[which].size = (bytes + 4095) / 4096 * 4096;
    held[which].at = aligned_alloc(4096, (size_t)held[which].size);
    if (!held[which].at) abort();
  }
  return held[which].at;
}

/* A rectangle as float32 numbers that bfloat16 has. */
static void floats(const char *x, int64_t ld, int64_t wide, int64_t rows, int64_t columns,
                   float *to) {
  for (int64_t r = 0; r < rows; r++)
    if (wide) {
      const char *from = x + r * ld * 4;
      for (int64_t c = 0; c < columns; c++) {
        uint32_t bits, up;
        memcpy(&bits, from + c * 4, 4);
        up = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
        bits = (bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : up;
        memcpy(to + r * columns + c, &bits, 4);
      }
    } else {
      const char *from = x + r * ld * 2;
      for (int64_t c = 0; c < columns; c++) {
        uint16_t half;
        memcpy(&half, from + c * 2, 2);
        uint32_t bits = (uint32_t)half << 16;
        memcpy(to + r * columns + c, &bits, 4);
      }
    }
}

/* Rows m0 to m1 and columns n0 to n1 by the library's product. */
static void plain(const lehr_work *w, const char *a, const char *b, float *c, int64_t m, int64_t n) {
  const lehr_half *q = w->q;
  float *left = room(0, 4 * BLOCK * BLOCK), *right = room(1, 4 * BLOCK * BLOCK);
  for (int64_t k0 = 0; k0 < q->k; k0 += BLOCK)
    for (int64_t n0 = 0; n0 < n; n0 += BLOCK) {
      int64_t k = least(q->k - k0, BLOCK), many = least(n - n0, BLOCK);
      const char *y = at(b, q->tb ? n0 * q->ldb + k0 : k0 * q->ldb + n0, q->b_wide);
      floats(y, q->ldb, q->b_wide, q->tb ? many : k, q->tb ? k : many, right);
      for (int64_t m0 = 0; m0 < m; m0 += BLOCK) {
        int64_t rows = least(m - m0, BLOCK);
        const char *x = at(a, q->ta ? k0 * q->lda + m0 : m0 * q->lda + k0, q->a_wide);
        floats(x, q->lda, q->a_wide, q->ta ? k : rows, q->ta ? rows : k, left);
        w->rt->sgemm(q->ta, q->tb, rows, many, k, 1, left, q->ta ? rows : k, right,
                     q->tb ? k : many, k0 > 0, c + m0 * q->ldc + n0, q->ldc);
      }
    }
}

#if PACKED
static const uint16_t ZIP[32] __attribute__((aligned(64))) = {
    0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23,
    8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};

/* Sixteen numbers of a row of memory, those that `here` says, as bfloat16 in the lower half. */
#define NARROW(x, here) _mm512_castsi256_si512(_mm256_maskz_loadu_epi16(here, x))

/* A tile from up to 16 `rows` and 32 terms (`depth` of them there). Terms are neighbours in memory,
   or, where `across`, rows are. `turn`: the tile's rows are pairs of terms. Gives whether there is
   a denormal number. */
__attribute__((always_inline)) static inline int block(const char *x, int64_t ld, int wide,
                                                       int64_t rows, int64_t depth, int across,
                                                       int turn, char *to) {
  const __m512i zip = _mm512_load_si512(ZIP), one = _mm512_set1_epi16(1);
  const __m512i none = _mm512_setzero_si512();
  const __mmask16 here = first(across ? rows : depth), more = first(depth - 16);
  __m512i r[16], low = _mm512_set1_epi16(-1);
  __mmask16 denormal = 0;
  for (int i = 0; i < 16; i++) {
    int64_t u = across ? 2 * i : i, v = across ? 2 * i + 1 : i, end = across ? depth : rows;
    if (wide) {
      const float *p = (const float *)x + u * ld, *s = (const float *)x + v * ld;
      __m512 a = u < end ? _mm512_maskz_loadu_ps(here, p) : (__m512)none;
      __m512 b = v >= end ? (__m512)none
                 : across ? _mm512_maskz_loadu_ps(here, s)
                          : _mm512_maskz_loadu_ps(more, p + 16);
      denormal |= _mm512_fpclass_ps_mask(a, 0x20) | _mm512_fpclass_ps_mask(b, 0x20);
      r[i] = (__m512i)_mm512_cvtne2ps_pbh(b, a);
      if (across) r[i] = _mm512_permutexvar_epi16(zip, r[i]);
    } else {
      const uint16_t *p = (const uint16_t *)x + u * ld, *s = (const uint16_t *)x + v * ld;
      if (across) {
        __m512i a = u < end ? NARROW(p, here) : none, b = v < end ? NARROW(s, here) : none;
        r[i] = _mm512_permutexvar_epi16(
            zip, _mm512_inserti64x4(a, _mm512_castsi512_si256(b), 1));
      } else
        r[i] = u < end ? _mm512_maskz_loadu_epi16(here | (__mmask32)more << 16, p) : none;
      /* Magnitudes less one, twice: 0 is the largest. */
      low = _mm512_min_epu16(low, _mm512_sub_epi16(_mm512_slli_epi16(r[i], 1), one));
    }
  }
  if (turn) transpose(r);
  for (int i = 0; i < 16; i++) _mm512_store_si512(to + i * 64, r[i]);
  return denormal || _mm512_cmplt_epu16_mask(low, _mm512_set1_epi16(0xff));
}

/* Panels of 32 rows; of each, steps of 32 terms of two tiles, panels `panel` bytes apart. */
__attribute__((always_inline)) static inline int packed(const char *x, int64_t ld, int wide,
                                                        int64_t rows, int64_t depth, int across,
                                                        int turn, char *to, int64_t panel) {
  int64_t steps = (depth + 31) / 32, groups = (rows + SIDE - 1) / SIDE * 2;
  int bad = 0;
  for (int64_t n = 0; n < groups * steps; n++) { /* along memory */
    int64_t group = across ? n % groups : n / steps, step = across ? n / groups : n % steps;
    const char *from = at(x, across ? step * 32 * ld + group * 16 : group * 16 * ld + step * 32,
                          wide);
    const char *next = from + (across ? 32 : 16) * ld * (wide ? 4 : 2);
    for (int i = across ? 32 : 16; i > 0; i--, next += ld * (wide ? 4 : 2)) {
      __builtin_prefetch(next);
      if (!across && wide) __builtin_prefetch(next + 64);
    }
    bad |= block(from, ld, wide, rows - group * 16, depth - step * 32, across, turn,
                 to + group / 2 * panel + step * PART + group % 2 * TILE);
  }
  return bad;
}

static int pack(const char *x, int64_t ld, int wide, int64_t rows, int64_t depth, int across,
                int turn, char *to, int64_t panel) {
#define CASE(w, c, t) \
  if (!wide == !w && across == c && turn == t) \
    return packed(x, ld, w, rows, depth, c, t, to, panel);
  CASE(0, 0, 0) CASE(0, 0, 1) CASE(0, 1, 0) CASE(0, 1, 1)
  CASE(1, 0, 0) CASE(1, 0, 1) CASE(1, 1, 0) CASE(1, 1, 1)
  return 1;
}

/* Bytes of a panel of all terms. */
static int64_t panel_of(const lehr_half *q) {
  return (q->k + 31) / 32 * PART;
}

/* 32 x 32 of C, from `steps` steps of a panel of A and one of B. */
typedef void (*lehr_corner)(const char *a, const char *b, int64_t steps, float *c, int64_t ldc,
                            int add, const char *next);

static void by_dots(const char *a, const char *b, int64_t steps, float *c, int64_t ldc, int add,
                    const char *next) {
  (void)next;
  for (int half = 0; half < 4; half++) {
    __m512 sum[8][2];
    const char *x = a + half / 2 * TILE + half % 2 * 512, *y = b;
    float *to = c + half * 8 * ldc;
    UNROLL for (int i = 0; i < 8; i++)
      UNROLL for (int j = 0; j < 2; j++)
        sum[i][j] = add ? _mm512_loadu_ps(to + i * ldc + j * 16) : _mm512_setzero_ps();
    for (int64_t s = 0; s < steps; s++, x += PART, y += PART)
      for (int k = 0; k < 16; k++) {
        __m512bh u = (__m512bh)_mm512_load_si512(y + k * 64);
        __m512bh v = (__m512bh)_mm512_load_si512(y + TILE + k * 64);
        UNROLL for (int i = 0; i < 8; i++) {
          int32_t pair;
          memcpy(&pair, x + i * 64 + k * 4, 4);
          __m512bh p = (__m512bh)_mm512_set1_epi32(pair);
          sum[i][0] = _mm512_dpbf16_ps(sum[i][0], p, u);
          sum[i][1] = _mm512_dpbf16_ps(sum[i][1], p, v);
        }
      }
    UNROLL for (int i = 0; i < 8; i++)
      UNROLL for (int j = 0; j < 2; j++) _mm512_storeu_ps(to + i * ldc + j * 16, sum[i][j]);
  }
}

static lehr_corner corner = by_dots;

#if defined(__AMX_BF16__)
static int has_tiles;
/* `next`: what is wanted next of B. */
static void by_tiles(const char *a, const char *b, int64_t steps, float *c, int64_t ldc, int add,
                     const char *next) {
  int64_t row = ldc * 4;
  if (add) {
    _tile_loadd(0, c, row);
    _tile_loadd(1, c + 16, row);
    _tile_loadd(2, c + 16 * ldc, row);
    _tile_loadd(3, c + 16 * ldc + 16, row);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (; steps > 0; steps--, a += PART, b += PART) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    if (next) {
      UNROLL for (int i = 0; i < 8; i++) __builtin_prefetch(next + i * 64, 0, 2);
      next += 512;
    }
    _tile_loadd(7, b + TILE, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, a + TILE, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, row);
  _tile_stored(1, c + 16, row);
  _tile_stored(2, c + 16 * ldc, row);
  _tile_stored(3, c + 16 * ldc + 16, row);
}
#define BEGIN if (has_tiles) tiles()
#define END if (has_tiles) _tile_release()
#else
#define BEGIN (void)0
#define END (void)0
#endif

/* Rows of packed panels of A times packed panels of B; only `m` by `n` of C are there. */
static void panels(const char *a, int64_t a_panel, const char *b, int64_t b_panel, int64_t steps,
                   float *c, int64_t ldc, int add, int64_t m, int64_t n) {
  float whole[SIDE * SIDE] __attribute__((aligned(64)));
  int64_t many = (m + SIDE - 1) / SIDE;
  for (int64_t j = 0; j < n; j += SIDE) {
    const char *y = b + j / SIDE * b_panel;
    /* Each tile asks for its share of the next panel, of four shares at least. */
    for (int64_t i = 0; i < many; i++) {
      int64_t high = least(m - i * SIDE, SIDE), wide = least(n - j, SIDE);
      const char *next = i < 4 && j + SIDE < n ? y + b_panel + i * steps * 512 : NULL;
      float *to = c + i * SIDE * ldc + j;
      if (high == SIDE && wide == SIDE) {
        corner(a + i * a_panel, y, steps, to, ldc, add, next);
        continue;
      }
      if (add)
        for (int64_t r = 0; r < high; r++) memcpy(whole + r * SIDE, to + r * ldc, (size_t)wide * 4);
      corner(a + i * a_panel, y, steps, whole, SIDE, add, next);
      for (int64_t r = 0; r < high; r++) memcpy(to + r * ldc, whole + r * SIDE, (size_t)wide * 4);
    }
  }
}

/* A block of C of any size; `ready`: the packed panels of B, or NULL. 0: C holds anything. */
static int product(const lehr_half *q, const char *a, const char *b, const char *ready, float *c,
                   int64_t m, int64_t n) {
  int64_t most = least(q->k, DEPTH), steps = (most + 31) / 32, good = 1;
  char *left = (char *)room(0, steps * PART * ROWS / SIDE);
  char *right = ready ? NULL : (char *)room(1, steps * PART * COLUMNS / SIDE);
  int64_t whole = panel_of(q);
  BEGIN;
  for (int64_t m0 = 0; m0 < m && good; m0 += ROWS)
    for (int64_t k0 = 0; k0 < q->k && good; k0 += DEPTH) {
      int64_t rows = least(m - m0, ROWS), depth = least(q->k - k0, DEPTH);
      const char *x = at(a, q->ta ? k0 * q->lda + m0 : m0 * q->lda + k0, q->a_wide);
      steps = (depth + 31) / 32;
      good = !pack(x, q->lda, q->a_wide, rows, depth, q->ta, q->ta, left, steps * PART);
      if (ready) {
        panels(left, steps * PART, ready + k0 / 32 * PART, whole, steps, c + m0 * q->ldc, q->ldc,
               k0 > 0, rows, n);
        continue;
      }
      for (int64_t n0 = 0; n0 < n && good; n0 += COLUMNS) {
        int64_t many = least(n - n0, COLUMNS);
        const char *y = at(b, q->tb ? n0 * q->ldb + k0 : k0 * q->ldb + n0, q->b_wide);
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
  int64_t from = edge(q->n, w->wide, chunk % w->wide), to = edge(q->n, w->wide, chunk % w->wide + 1);
  const char *b = at(q->b, place(q, q->b_step, i) + from * (q->tb ? q->ldb : 1), q->b_wide);
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
  int64_t m0 = edge(q->m, w->tall, row), m1 = edge(q->m, w->tall, row + 1);
  int64_t n0 = edge(q->n, w->wide, column), n1 = edge(q->n, w->wide, column + 1);
  (void)worker;
  if (m0 == m1 || n0 == n1) return;
  const char *a = at(q->a, place(q, q->a_step, i) + m0 * (q->ta ? 1 : q->lda), q->a_wide);
  const char *b = at(q->b, place(q, q->b_step, i) + n0 * (q->tb ? q->ldb : 1), q->b_wide);
  float *c = (float *)q->c + place(q, q->c_step, i) + m0 * q->ldc + n0;
  const int lent = q->lent && w->wide == 1 && (m1 - m0) * q->ldc <= LENT / 4;
  void *p[lent ? q->many : 1];
  if (lent) { /* `rows` finds its first row at the number of it */
    c = room(2, (m1 - m0) * q->ldc * 4);
    memcpy(p, q->p, sizeof p);
    p[q->lent - 1] = (char *)c - (i * q->m + m0) * q->ldc * 4;
  }
  int done = 0;
#if PACKED
  const char *ready = NULL;
  if (w->all) ready = (const char *)q->packed + i * ((q->n + SIDE - 1) / SIDE) * panel_of(q);
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
  q->rows(q->p, edge(rows, w->tall, chunk), edge(rows, w->tall, chunk + 1));
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
        memset((float *)q->c + place(q, q->c_step, i) + r * q->ldc, 0, (size_t)q->n * 4);
  double work = 2.0 * (double)batches * (double)q->m * (double)q->n * (double)q->k;
  int64_t tasks = work < 1e7 ? 1 : threads;
  int64_t high = least(ROWS, CACHED / 4 / q->n / SIDE * SIDE);
  high = high < FEW ? FEW : high;
  if (q->m > TALL)
    w.tall = (q->m + high - 1) / high;
  else if (batches == 1 && tasks > 1)
    w.wide = least(tasks, (q->n + FEW - 1) / FEW);
  if (batches * w.tall < tasks && w.wide == 1) w.tall = least(tasks, (q->m + FEW - 1) / FEW);
#if PACKED
  if (q->packed && q->k && w.tall > 1) {
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

EXPORT void lehr_install(lehr_runtime *rt) {
#if PACKED && defined(__AMX_BF16__)
  has_tiles = allowed();
  if (has_tiles) corner = by_tiles;
#endif
  rt->half = lehr_product_half;
}
