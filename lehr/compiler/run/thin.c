/* Products of float32 matrices that are not worth packing: of few rows, few columns or few terms,
   and small ones. Every number of a matrix is read from where it lies, once or a few times.

   An element of C depends on its row, its column and the way alone: sums along terms in lanes
   (LEHR_ALONG), or one term after the other, PART of them at a time. */
#define PART 512  /* terms of one sum; sums of parts are added */
#define AHEAD 8   /* rows of B that are asked for before they are needed */
#define STRIP 4   /* vectors of a strip of columns */

/* The first n numbers, zeros behind them; no other is read, or written. */
#if defined(__AVX512F__)
typedef uint16_t lanes;
static inline lanes first(int64_t n) {
  return n >= 16 ? 0xffff : n <= 0 ? 0 : (uint16_t)((1u << n) - 1);
}
static inline vec load(const float *x, lanes here) {
  vec found;
  __asm__("vmovups %2, %0%{%1%}%{z%}"
          : "=v"(found) : "Yk"(here), "m"(*(const float(*)[16])x));
  return found;
}
static inline void store(float *x, vec e, lanes here) {
  __asm__("vmovups %2, %0%{%1%}" : "+m"(*(float(*)[16])x) : "Yk"(here), "v"(e));
}
#else
typedef int64_t lanes;
static inline lanes first(int64_t n) { return n >= LANES ? LANES : n <= 0 ? 0 : n; }
static inline vec load(const float *x, lanes here) {
  vec found = {0};
  if (here == LANES) return *(const vec *)x;
  for (int64_t i = 0; i < here; i++) found[i] = x[i];
  return found;
}
static inline void store(float *x, vec e, lanes here) {
  if (here == LANES)
    *(vec *)x = e;
  else
    for (int64_t i = 0; i < here; i++) x[i] = e[i];
}
#endif

/* A is rows `ai` apart, terms `ap`; of B, rows `ld` lie apart and their numbers together; C is rows
   `ci` apart, columns `cj`. */
typedef struct {
  int64_t m, n, k, ai, ap, ld, ci, cj;
  const float *a, *b;
  float *c;
} thin;

/* One term after the other: up to R rows of C by `wide` columns, V vectors at most. Rows that are
   missing repeat the last one. */
#define ACROSS(R, V)                                                                         \
  static __attribute__((noinline)) void across_##R##_##V(                                    \
      const float *a, int64_t ai, int64_t ap, const float *b, int64_t ld, float *c,          \
      int64_t ldc, int64_t k, int add, int64_t rows, int64_t wide) {                         \
    vec sum[R][V];                                                                           \
    const float *at[R];                                                                      \
    lanes here[V];                                                                           \
    EACH(v, V) here[v] = first(wide - v * LANES);                                            \
    EACH(r, R) {                                                                             \
      at[r] = a + least(r, rows - 1) * ai;                                                   \
      EACH(v, V) sum[r][v] = (vec){0};                                                       \
    }                                                                                        \
    for (int64_t p = 0; p < k; p++, b += ld) {                                               \
      vec row[V];                                                                            \
      EACH(v, V) {                                                                           \
        row[v] = load(b + v * LANES, here[v]);                                               \
        __builtin_prefetch(b + AHEAD * ld + v * LANES);                                      \
      }                                                                                      \
      EACH(r, R) {                                                                           \
        EACH(v, V) sum[r][v] += *at[r] * row[v];                                             \
        at[r] += ap;                                                                         \
      }                                                                                      \
    }                                                                                        \
    EACH(r, R) if (r < rows) EACH(v, V) {                                                    \
      float *to = c + r * ldc + v * LANES;                                                   \
      if (add) sum[r][v] += load(to, here[v]);                                               \
      store(to, sum[r][v], here[v]);                                                         \
    }                                                                                        \
  }
ACROSS(8, 2)
ACROSS(4, 4)
ACROSS(1, 4)

typedef void (*tile)(const float *, int64_t, int64_t, const float *, int64_t, float *, int64_t,
                     int64_t, int, int64_t, int64_t);

/* A strip of columns, up to `high` rows of it. */
static void piece(const thin *q, tile f, int64_t high, int64_t i, int64_t j, int64_t wide) {
  int64_t rows = least(high, q->m - i), ldc = q->ci;
  float whole[8 * STRIP * LANES], *c = q->c + i * q->ci + j;
  if (q->cj != 1) c = whole, ldc = wide;
  for (int64_t p = 0; p < q->k; p += PART)
    f(q->a + i * q->ai + p * q->ap, q->ai, q->ap, q->b + p * q->ld + j, q->ld, c, ldc,
      least(PART, q->k - p), p > 0, rows, wide);
  if (q->cj != 1)
    for (int64_t r = 0; r < rows; r++)
      for (int64_t x = 0; x < wide; x++)
        q->c[(i + r) * q->ci + (j + x) * q->cj] = whole[r * wide + x];
}

static void across(const thin *q) {
  int64_t strip = q->m > 4 && q->m != 12 ? 2 : 4, high = strip == 2 ? 8 : q->m == 1 ? 1 : 4;
  tile f = strip == 2 ? across_8_2 : high == 1 ? across_1_4 : across_4_4;
  strip *= LANES;
  if (q->m > 64) /* few terms: B stays in a cache, C is written once */
    for (int64_t i = 0; i < q->m; i += high)
      for (int64_t j = 0; j < q->n; j += strip) piece(q, f, high, i, j, least(strip, q->n - j));
  else
    for (int64_t j = 0; j < q->n; j += strip)
      for (int64_t i = 0; i < q->m; i += high) piece(q, f, high, i, j, least(strip, q->n - j));
}

/* Terms in lanes: R rows of A by S of B. */
#define ALONG(R, S)                                                                          \
  static __attribute__((noinline)) void along_##R##_##S(const thin *q, int64_t i, int64_t j) { \
    vec sum[R][S];                                                                           \
    const float *a[R], *b[S];                                                                \
    EACH(r, R) a[r] = q->a + least(i + r, q->m - 1) * q->ai;                                 \
    EACH(s, S) b[s] = q->b + least(j + s, q->n - 1) * q->ld;                                 \
    EACH(r, R) EACH(s, S) sum[r][s] = (vec){0};                                              \
    int64_t p = 0;                                                                           \
    for (; p + LANES <= q->k; p += LANES) {                                                  \
      vec x[R];                                                                              \
      EACH(r, R) x[r] = *(const vec *)(a[r] + p);                                            \
      EACH(s, S) {                                                                           \
        vec y = *(const vec *)(b[s] + p);                                                    \
        EACH(r, R) sum[r][s] += x[r] * y;                                                    \
      }                                                                                      \
    }                                                                                        \
    if (p < q->k) {                                                                          \
      lanes here = first(q->k - p);                                                          \
      EACH(s, S) {                                                                           \
        vec y = load(b[s] + p, here);                                                        \
        EACH(r, R) sum[r][s] += load(a[r] + p, here) * y;                                    \
      }                                                                                      \
    }                                                                                        \
    float made[R * S];                                                                       \
    for (int n = 0; n < R * S; n += LANES) {                                                 \
      vec e = settled(&sum[0][0] + n, R * S < LANES ? R * S : LANES);                        \
      memcpy(made + n, &e, 4 * (R * S < LANES ? R * S : LANES));                             \
    }                                                                                        \
    EACH(r, R) if (i + r < q->m) EACH(s, S) if (j + s < q->n)                                \
        q->c[(i + r) * q->ci + (j + s) * q->cj] = made[r * S + s];                           \
  }

ALONG(4, 4)
ALONG(1, 4)

static void along(const thin *q) {
  for (int64_t j = 0; j < q->n; j += 4)
    if (q->m == 1)
      along_1_4(q, 0, j);
    else
      for (int64_t i = 0; i < q->m; i += 4) along_4_4(q, i, j);
}

/* C = op(A) @ op(B) as in `lehr_runtime`. */
static void multiply(int64_t way, int64_t ta, int64_t tb, int64_t m, int64_t n, int64_t k,
                     const float *a, int64_t lda, const float *b, int64_t ldb, float *c,
                     int64_t ldc) {
  thin q = {m, n, k, ta ? 1 : lda, ta ? lda : 1, ldb, ldc, 1, a, b, c};
  int64_t lies = tb;
  if (way & LEHR_TURNED) {
    q = (thin){n, m, k, tb ? ldb : 1, tb ? 1 : ldb, lda, 1, ldc, b, a, c};
    lies = !ta;
  }
  if (way & LEHR_ALONG) {
    if (q.ap != 1) {
      float *to = scratch(0, 4 * q.m * k);
      for (int64_t p = 0; p < k; p++)
        for (int64_t i = 0; i < q.m; i++) to[i * k + p] = q.a[i * q.ai + p * q.ap];
      q.a = to, q.ai = k, q.ap = 1;
    }
    along(&q);
    return;
  }
  if (lies) {
    int64_t ld = (q.n + LANES - 1) / LANES * LANES;
    float *to = scratch(0, 4 * k * ld);
    for (int64_t j = 0; j < q.n; j++)
      for (int64_t p = 0; p < k; p++) to[p * ld + j] = q.b[j * q.ld + p];
    q.b = to, q.ld = ld;
  }
  across(&q);
}

EXPORT void lehr_install(lehr_runtime *rt) { rt->thin = multiply; }
