/* Attention by tiles: softmax(q k^T * scale + mask) v and its gradients, for one block of columns at
   a time, so that scores exist only for a few rows (Dao et al., "FlashAttention", 2022; running
   maxima and sums: Milakov and Gimelshein, 2018). Sizes of rows are multiples of 16. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__)
#define LANES 16
#define MOST_V 4
#else
#define LANES 8
#define MOST_V 2
#endif
#define PANEL (MOST_V * LANES)
#define MOST_R 6
#define WIDE 512  /* columns of a block of scores in the forward */
#define BLOCK 256 /* and in the backward, */
#define ROWS 48   /* whose scores are kept for so many rows */
#define EXPORT __attribute__((visibility("default")))
#define UNROLL _Pragma("GCC unroll 16")

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t ints __attribute__((vector_size(4 * LANES), aligned(4)));

static float *scratch(int which, int64_t floats) {
  static __thread struct {
    float *at;
    int64_t size;
  } held[12];
  if (held[which].size < floats) {
    free(held[which].at);
    held[which].size = (floats + 1023) / 1024 * 1024;
    held[which].at = aligned_alloc(64, (size_t)held[which].size * 4);
    if (!held[which].at) abort();
  }
  return held[which].at;
}

static inline vec choose(ints test, vec yes, vec no) {
  return (vec)((test & (ints)yes) | (~test & (ints)no));
}

/* e^x for x that is not above 88: 2^n times a polynomial of the rest (coefficients of Cephes). */
static inline vec exponential(vec x) {
  const vec zero = {0}, most = zero + 12582912.0f;
  const ints small = x < zero - 87.3f;
  vec t = choose(small, zero, x), n = (t * 1.44269504f + most) - most;
  t = t - n * 0.693359375f;
  t = t + n * 2.12194440e-4f;
  vec p = zero + 1.9875691500e-4f;
  p = p * t + 1.3981999507e-3f;
  p = p * t + 8.3334519073e-3f;
  p = p * t + 4.1665795894e-2f;
  p = p * t + 1.6666665459e-1f;
  p = p * t + 5.0000001201e-1f;
  p = p * t * t + t + 1.0f;
  const ints power = (__builtin_convertvector(n, ints) + 127) << 23;
  vec scale;
  memcpy(&scale, &power, sizeof scale);
  return choose(small, zero, p * scale);
}

/* c (+)= a @ b over n products, R rows by V vectors. Of FLIPPED, a holds its transpose. */
#define TILE(name, R, V, AT)                                                                 \
  static __attribute__((noinline)) void name##_##R##_##V(                                    \
      const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc,       \
      int64_t n, int add) {                                                                  \
    vec sum[R][V];                                                                           \
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++) sum[r][v] =        \
        add ? *(const vec *)(c + r * ldc + v * LANES) : (vec){0};                            \
    for (int64_t k = 0; k < n; k++, b += ldb) {                                              \
      vec row[V];                                                                            \
      UNROLL for (int v = 0; v < V; v++) row[v] = *(const vec *)(b + v * LANES);             \
      UNROLL for (int r = 0; r < R; r++) {                                                   \
        vec e = (vec){0} + a[AT];                                                            \
        UNROLL for (int v = 0; v < V; v++) sum[r][v] += e * row[v];                          \
      }                                                                                      \
    }                                                                                        \
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++)                    \
        *(vec *)(c + r * ldc + v * LANES) = sum[r][v];                                       \
  }
typedef void (*tile)(const float *, int64_t, const float *, int64_t, float *, int64_t, int64_t,
                     int);
#define EACH_R(name, V, AT)                                                              \
  TILE(name, 1, V, AT) TILE(name, 2, V, AT) TILE(name, 3, V, AT) TILE(name, 4, V, AT)    \
  TILE(name, 5, V, AT) TILE(name, 6, V, AT)
#define NAMES(f, V) {f##_1_##V, f##_2_##V, f##_3_##V, f##_4_##V, f##_5_##V, f##_6_##V}
EACH_R(plain, 1, r *lda + k)
EACH_R(plain, 2, r *lda + k)
EACH_R(flipped, 1, k *lda + r)
EACH_R(flipped, 2, k *lda + r)
#if MOST_V == 4
EACH_R(plain, 4, r *lda + k)
EACH_R(flipped, 4, k *lda + r)
static const tile PLAIN[3][MOST_R] = {NAMES(plain, 1), NAMES(plain, 2), NAMES(plain, 4)};
static const tile FLIPPED[3][MOST_R] = {NAMES(flipped, 1), NAMES(flipped, 2), NAMES(flipped, 4)};
#else
static const tile PLAIN[2][MOST_R] = {NAMES(plain, 1), NAMES(plain, 2)};
static const tile FLIPPED[2][MOST_R] = {NAMES(flipped, 1), NAMES(flipped, 2)};
#endif

/* c [m, n] (+)= a [m, k] @ b [k, n], or of a [k, m]; n is a multiple of LANES. */
static void multiply(const tile (*tiles)[MOST_R], int64_t a_step, const float *a, int64_t lda,
                     const float *b, int64_t ldb, float *c, int64_t ldc, int64_t m, int64_t n,
                     int64_t k, int add) {
  int64_t high = (m + MOST_R - 1) / MOST_R;
  for (int64_t j = 0; j < n;) {
    int deep = n - j >= 4 * LANES && MOST_V == 4 ? 2 : n - j >= 2 * LANES ? 1 : 0;
    for (int64_t i = 0; i < high; i++) {
      int64_t from = m * i / high, to = m * (i + 1) / high;
      tiles[deep][to - from - 1](a + from * a_step, lda, b + j, ldb, c + from * ldc + j, ldc, k,
                                 add);
    }
    j += LANES << deep;
  }
}

static void rows_of(const float *from, int64_t step, int64_t n, int64_t size, float *to) {
  for (int64_t i = 0; i < n; i++) memcpy(to + i * size, from + i * step, 4 * (size_t)size);
}

/* n rows as panels [size][PANEL] of PANEL rows each; those that are missing are zero. */
static void columns_of(const float *from, int64_t step, int64_t n, int64_t size, float *to) {
  for (int64_t j = 0; j < n; j += PANEL, to += size * PANEL)
    for (int64_t v = 0; v < PANEL; v += LANES)
      for (int64_t i = 0; i < size; i++) {
        const float *at = from + (j + v) * step + i;
        int64_t left = n - j - v;
        vec e = {0};
        if (left >= LANES)
          UNROLL for (int l = 0; l < LANES; l++) e[l] = at[l * step];
        else
          for (int l = 0; l < left; l++) e[l] = at[l * step];
        *(vec *)(to + i * PANEL + v) = e;
      }
}

static int64_t at(const lehr_attention *q, const int64_t *step, int64_t n) {
  int64_t found = 0;
  for (int d = 3; d >= 0; d--) found += n % q->batch[d] * step[d], n /= q->batch[d];
  return found;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Scores of R rows and `width` columns of a block times the scale, masked; past `limit` columns
   -inf up to a whole vector. */
static void masked(const lehr_attention *q, float *s, const char *mask, int64_t row,
                   int64_t first, int64_t limit) {
  const float scale = q->scale;
  for (int64_t j = 0; j < limit; j++) s[j] *= scale;
  if (q->mask_kind == 1) {
    const uint8_t *m = (const uint8_t *)mask + row * q->mask_step[4] + first * q->mask_step[5];
    for (int64_t j = 0; j < limit; j++) s[j] = m[j * q->mask_step[5]] ? s[j] : -INFINITY;
  } else if (q->mask_kind == 2) {
    const float *m = (const float *)mask + row * q->mask_step[4] + first * q->mask_step[5];
    for (int64_t j = 0; j < limit; j++) s[j] += m[j * q->mask_step[5]];
  }
  for (int64_t j = limit; j % LANES; j++) s[j] = -INFINITY;
}

static const char *mask_of(const lehr_attention *q, int64_t n) {
  int64_t item = q->mask_kind == 1 ? 1 : 4;
  return q->mask_kind ? (const char *)q->mask + item * at(q, q->mask_step, n) : NULL;
}

static void scores(const float *a, int64_t lda, const float *panels, int64_t size, float *s,
                   int64_t lds, int64_t m, int64_t width) {
  for (int64_t j = 0; j < width; j += PANEL)
    PLAIN[MOST_V == 4 ? 2 : 1][m - 1](a, lda, panels + j * size, PANEL, s + j, lds, size, 0);
}

typedef struct {
  const lehr_attention *q;
  int64_t parts;
} plan;

static float greatest(const float *s, int64_t n) {
  vec top = (vec){0} - INFINITY;
  for (int64_t j = 0; j < n; j += LANES) {
    vec e = *(const vec *)(s + j);
    top = choose(e > top, e, top);
  }
  float most = top[0];
  for (int l = 1; l < LANES; l++) most = top[l] > most ? top[l] : most;
  return most;
}

static float sum_of(vec e) {
  float sum = 0;
  for (int l = 0; l < LANES; l++) sum += e[l];
  return sum;
}

static void attend(void *ctx, int64_t chunk, int64_t worker) {
  const plan *f = ctx;
  const lehr_attention *q = f->q;
  int64_t n = chunk / f->parts, part = chunk % f->parts;
  int64_t low = q->l * part / f->parts, high = q->l * (part + 1) / f->parts;
  const float *qs = q->q + at(q, q->q_step, n), *ks = q->k + at(q, q->k_step, n);
  const float *vs = q->v + at(q, q->v_step, n);
  const char *mask = mask_of(q, n);
  float *out = q->out + at(q, q->out_step, n), *lse = q->lse + at(q, q->lse_step, n);
  int64_t ldq = q->q_step[4], ldo = q->out_step[4];
  float *panels = scratch(0, WIDE * q->e), *rows = scratch(1, WIDE * q->ev);
  float *s = scratch(2, MOST_R * WIDE), *top = scratch(3, high - low), *sum = scratch(4, high - low);
  (void)worker;
  for (int64_t i = 0; i < high - low; i++) top[i] = -INFINITY, sum[i] = 0;
  for (int64_t first = 0; first < q->s && (!q->causal || first < high); first += WIDE) {
    int64_t wide = least(WIDE, q->s - first);
    columns_of(ks + first * q->k_step[4], q->k_step[4], wide, q->e, panels);
    rows_of(vs + first * q->v_step[4], q->v_step[4], wide, q->ev, rows);
    int64_t tiles = (high - low + MOST_R - 1) / MOST_R;
    for (int64_t t = 0; t < tiles; t++) {
      int64_t a = low + (high - low) * t / tiles, b = low + (high - low) * (t + 1) / tiles;
      int64_t width = q->causal ? least(wide, b - first) : wide;
      if (width <= 0) continue;
      scores(qs + a * ldq, ldq, panels, q->e, s, WIDE, b - a, width);
      for (int64_t i = a; i < b; i++) {
        float *row = s + (i - a) * WIDE, *o = out + i * ldo;
        int64_t limit = q->causal ? least(wide, i + 1 - first) : wide, j = 0;
        limit = limit < 0 ? 0 : limit;
        masked(q, row, mask, i, first, limit);
        float most = greatest(row, limit), before = top[i - low];
        most = most > before ? most : before;
        float base = most == -INFINITY ? 0 : most;
        vec total = {0};
        for (; j < limit; j += LANES) {
          vec e = exponential(*(vec *)(row + j) - base);
          *(vec *)(row + j) = e;
          total += e;
        }
        for (; j < width; j++) row[j] = 0;
        float factor = before == -INFINITY ? 0 : expf(before - base);
        if (first)
          for (int64_t c = 0; c < q->ev; c++) o[c] *= factor;
        top[i - low] = most;
        sum[i - low] = sum[i - low] * factor + sum_of(total);
      }
      multiply(PLAIN, WIDE, s, WIDE, rows, q->ev, out + a * ldo, ldo, b - a, q->ev, width,
               first > 0);
    }
  }
  for (int64_t i = low; i < high; i++) {
    float total = sum[i - low], *o = out + i * ldo;
    float scale = total == 0 ? 0 : 1 / total;
    for (int64_t c = 0; c < q->ev; c++) o[c] *= scale;
    lse[i * q->lse_step[4]] = total == 0 ? INFINITY : logf(total) + top[i - low];
  }
}

static int64_t batches(const lehr_attention *q) {
  return q->batch[0] * q->batch[1] * q->batch[2] * q->batch[3];
}

static void spread(const lehr_runtime *rt, lehr_task task, void *ctx, int64_t chunks) {
  if (rt->threads == 1 || chunks == 1)
    for (int64_t n = 0; n < chunks; n++) task(ctx, n, 0);
  else
    rt->parallel(task, ctx, chunks);
}

EXPORT void lehr_attend(const lehr_runtime *rt, const lehr_attention *q) {
  plan f = {q, 1};
  int64_t all = batches(q), most = (q->l + ROWS - 1) / ROWS;
  if (rt->threads > 1 && all < 3 * rt->threads) f.parts = least(most, 3 * rt->threads / all + 1);
  spread(rt, attend, &f, all * f.parts);
}

/* P and dS of R rows: exp(s - lse), and P times (dP - delta) times the scale. */
static void slopes(const lehr_attention *q, float *p, float *d, float lse, float delta,
                   int64_t limit, int64_t width) {
  int64_t j = 0;
  for (; j < limit; j += LANES) {
    vec e = exponential(*(vec *)(p + j) - lse);
    *(vec *)(p + j) = e;
    *(vec *)(d + j) = e * (*(vec *)(d + j) - delta) * q->scale;
  }
  for (j = limit; j < width; j++) p[j] = d[j] = 0;
}

static void attend_back(void *ctx, int64_t n, int64_t worker) {
  const lehr_attention *q = ctx;
  const float *qs = q->q + at(q, q->q_step, n), *ks = q->k + at(q, q->k_step, n);
  const float *vs = q->v + at(q, q->v_step, n), *gs = q->g + at(q, q->g_step, n);
  const float *out = q->out + at(q, q->out_step, n), *lse = q->lse + at(q, q->lse_step, n);
  const float *rise = q->rise ? q->rise + at(q, q->rise_step, n) : NULL;
  const char *mask = mask_of(q, n);
  float *dq = q->dq + at(q, q->dq_step, n), *dk = q->dk + at(q, q->dk_step, n);
  float *dv = q->dv + at(q, q->dv_step, n);
  int64_t e = q->e, ev = q->ev;
  float *keys = scratch(0, BLOCK * e), *values = scratch(1, BLOCK * ev);
  float *p = scratch(2, ROWS * BLOCK), *d = scratch(3, ROWS * BLOCK), *delta = scratch(4, q->l);
  float *rows = scratch(5, BLOCK * e), *sum_k = scratch(6, BLOCK * e);
  float *sum_v = scratch(7, BLOCK * ev), *q_rows = scratch(8, ROWS * e);
  float *g_rows = scratch(9, ROWS * ev);
  (void)worker;
  for (int64_t i = 0; i < q->l; i++) {
    const float *a = gs + i * q->g_step[4], *b = out + i * q->out_step[4];
    vec sum = {0};
    for (int64_t c = 0; c < ev; c += LANES) sum += *(const vec *)(a + c) * *(const vec *)(b + c);
    delta[i] = sum_of(sum) - (rise ? rise[i * q->rise_step[4]] : 0);
  }
  for (int64_t first = 0; first < q->s; first += BLOCK) {
    int64_t wide = least(BLOCK, q->s - first);
    columns_of(ks + first * q->k_step[4], q->k_step[4], wide, e, keys);
    columns_of(vs + first * q->v_step[4], q->v_step[4], wide, ev, values);
    rows_of(ks + first * q->k_step[4], q->k_step[4], wide, e, rows);
    memset(sum_k, 0, (size_t)(4 * wide * e));
    memset(sum_v, 0, (size_t)(4 * wide * ev));
    for (int64_t low = q->causal ? first / ROWS * ROWS : 0; low < q->l; low += ROWS) {
      int64_t many = least(ROWS, q->l - low), tiles = (many + MOST_R - 1) / MOST_R;
      int64_t width = q->causal ? least(wide, low + many - first) : wide;
      if (width <= 0) continue;
      rows_of(qs + low * q->q_step[4], q->q_step[4], many, e, q_rows);
      rows_of(gs + low * q->g_step[4], q->g_step[4], many, ev, g_rows);
      for (int64_t t = 0; t < tiles; t++) {
        int64_t a = many * t / tiles, b = many * (t + 1) / tiles;
        scores(q_rows + a * e, e, keys, e, p + a * BLOCK, BLOCK, b - a, width);
        scores(g_rows + a * ev, ev, values, ev, d + a * BLOCK, BLOCK, b - a, width);
        for (int64_t i = a; i < b; i++) {
          int64_t limit = q->causal ? least(wide, low + i + 1 - first) : wide;
          limit = limit < 0 ? 0 : limit;
          masked(q, p + i * BLOCK, mask, low + i, first, limit);
          slopes(q, p + i * BLOCK, d + i * BLOCK, lse[(low + i) * q->lse_step[4]],
                 delta[low + i], limit, width);
        }
      }
      multiply(FLIPPED, 1, p, BLOCK, g_rows, ev, sum_v, ev, width, ev, many, 1);
      multiply(FLIPPED, 1, d, BLOCK, q_rows, e, sum_k, e, width, e, many, 1);
      multiply(PLAIN, BLOCK, d, BLOCK, rows, e, dq + low * q->dq_step[4], q->dq_step[4], many, e,
               width, first > 0);
    }
    for (int64_t j = 0; j < wide; j++) {
      memcpy(dk + (first + j) * q->dk_step[4], sum_k + j * e, 4 * (size_t)e);
      memcpy(dv + (first + j) * q->dv_step[4], sum_v + j * ev, 4 * (size_t)ev);
    }
  }
}

EXPORT void lehr_attend_back(const lehr_runtime *rt, const lehr_attention *q) {
  spread(rt, attend_back, (void *)q, batches(q));
}

EXPORT void lehr_install(lehr_runtime *rt) {
  rt->attend = lehr_attend;
  rt->attend_back = lehr_attend_back;
}
