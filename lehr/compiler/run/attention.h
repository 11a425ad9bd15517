/* Attention by tiles: softmax(q k^T * scale + mask) v and its gradients, for one block of columns
   at a time, so that scores exist only for a few rows (Dao et al., "FlashAttention", 2022; running
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
#define ROWS 48 /* at least, for one thread */
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

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

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

/* c (+)= a @ b over n products: `rows` rows, R at most, by `wide` vectors, V at most. Rows and
   vectors that are missing repeat the last row and the first vector. Of FLIPPED, a holds its
   transpose. */
#define TILE(name, R, V, ROW, STEP)                                                          \
  static __attribute__((noinline)) void name##_##R##_##V(                                    \
      const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc,       \
      int64_t n, int add, int64_t rows, int64_t wide) {                                      \
    vec sum[R][V];                                                                           \
    const float *at[R];                                                                      \
    int64_t off[V], last = rows - 1;                                                         \
    UNROLL for (int v = 0; v < V; v++) off[v] = v < wide ? v * LANES : 0;                    \
    UNROLL for (int r = 0; r < R; r++) {                                                     \
      at[r] = a + least(r, last) * (ROW);                                                    \
      UNROLL for (int v = 0; v < V; v++) sum[r][v] =                                         \
          add ? *(const vec *)(c + least(r, last) * ldc + off[v]) : (vec){0};                \
    }                                                                                        \
    for (int64_t k = 0; k < n; k++, b += ldb) {                                              \
      vec row[V];                                                                            \
      UNROLL for (int v = 0; v < V; v++) row[v] = *(const vec *)(b + off[v]);                \
      UNROLL for (int r = 0; r < R; r++) {                                                   \
        vec e = (vec){0} + at[r][k * (STEP)];                                                \
        UNROLL for (int v = 0; v < V; v++) sum[r][v] += e * row[v];                          \
      }                                                                                      \
    }                                                                                        \
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++)                    \
        *(vec *)(c + least(r, last) * ldc + off[v]) = sum[r][v];                             \
  }
typedef void (*tile)(const float *, int64_t, const float *, int64_t, float *, int64_t, int64_t,
                     int, int64_t, int64_t);
/* Few shapes, since each takes the C compiler as long as a kernel does. */
#define EACH_R(name, V, ROW, STEP) \
  TILE(name, 1, V, ROW, STEP) TILE(name, 3, V, ROW, STEP) TILE(name, 6, V, ROW, STEP)
#define NAMES(f, V) {f##_1_##V, f##_3_##V, f##_6_##V}
#if MOST_V == 4
#define TILES(name, ROW, STEP, table)                   \
  EACH_R(name, 2, ROW, STEP) EACH_R(name, 4, ROW, STEP) \
  static const tile table[2][3] = {NAMES(name, 2), NAMES(name, 4)};
#else
#define TILES(name, ROW, STEP, table) \
  EACH_R(name, 2, ROW, STEP)          \
  static const tile table[1][3] = {NAMES(name, 2)};
#endif
TILES(plain, lda, 1, PLAIN)

static int height(int64_t rows) { return rows > 3 ? 2 : rows > 1; }

/* c [m, n] (+)= a [m, k] @ b [k, n], or of a [k, m]; n is a multiple of LANES. */
static __attribute__((noinline)) void multiply(const tile (*tiles)[3], int64_t a_step,
                                               const float *a, int64_t lda, const float *b,
                                               int64_t ldb, float *c, int64_t ldc, int64_t m,
                                               int64_t n, int64_t k, int add) {
  for (int64_t j = 0; j < n;) {
    int deep = MOST_V == 4 && n - j > 2 * LANES;
    int64_t wide = least((n - j) / LANES, 2 << deep);
    for (int64_t i = 0; i < m; i += MOST_R) {
      int64_t rows = least(m - i, MOST_R);
      tiles[deep][height(rows)](a + i * a_step, lda, b + j, ldb, c + i * ldc + j, ldc, k, add,
                                rows, wide);
    }
    j += wide * LANES;
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
    PLAIN[MOST_V == 4][height(m)](a, lda, panels + j * size, PANEL, s + j, lds, size, 0, m,
                                  MOST_V);
}

static float sum_of(vec e) {
  float sum = 0;
  for (int l = 0; l < LANES; l++) sum += e[l];
  return sum;
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
