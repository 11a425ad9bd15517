/* Products of float32 matrices from packed panels, on processors with AVX-512 and without tiles: WIDE
   columns of B lie together, term after term, and up to HIGH rows of A. A's are packed at every call;
   B's may have been before. Every element is the sum of its products in order, TERMS of them at a
   time: the same bits for any block of C that it is computed in.

   With vectors of half the length (tiles of 6 by 16) it was slower than OpenBLAS by 2 to 28 % where B
   is packed at every call, so that those are not made for it. */
#ifdef __AVX512F__
/* Rows of tiles: each kernel takes the C compiler 20 ms. */
#define HEIGHTS(f) f(8) f(10) f(12) f(14)
/* Terms that are summed before they are added to C; rows of A, and columns of B where it is not
   packed yet, that are packed at once: B's stay in the second cache, A's in the third; tiles
   of A whose rows are neighbours in memory. */
enum { WIDE = 2 * LANES, LOW = 8, HIGH = 14, TERMS = 768, ROWS = 1024, COLUMNS = 128, GROUP = 4 };
#define EACH(i, n) UNROLL for (int i = 0; i < (n); i++)

/* Up to LANES rows, of which `wide` are kept, as columns of `to`, `step` apart. What is stored
   beside them is overwritten by the next term's, or lies between panels. */
static REGISTERS __attribute__((noinline)) void turned(const float *x, int64_t ld, int64_t rows,
                                                         int64_t depth, int64_t wide, float *to,
                                                         int64_t step) {
  const float *from[LANES];
  int64_t p = 0;
  EACH(i, LANES) from[i] = x + least(i, rows - 1) * ld; /* rows that are missing repeat the last */
  for (; p + LANES <= depth; p += LANES) {
    vec r[LANES];
    EACH(i, LANES) r[i] = *(const vec *)(from[i] + p);
    transpose(r);
    EACH(i, LANES) *(vec *)(to + (p + i) * step) = r[i];
  }
  for (; p < depth; p++)
    for (int64_t i = 0; i < wide; i++) to[p * step + i] = from[i][p];
}

/* Where tile `t` of `tiles` of a block of rows begins; its panel. */
static inline int64_t row_of(int64_t rows, int64_t tiles, int64_t t) {
  return least(rows, (rows + 1) / 2 * t / tiles * 2);
}
/* Rows of the kernel for a tile: one more than are there, or a few, where they are odd or few. */
static inline int64_t height(int64_t high) { return high < LOW ? LOW : high + high % 2; }
static inline float *panel_of(float *left, int64_t rows, int64_t tiles, int64_t t, int64_t depth) {
  return left + row_of(rows, tiles, t) * depth + t * LANES;
}

/* Panels of rows of A, `there` of them in memory. `across`: rows lie together, else terms. */
static __attribute__((noinline)) void pack_rows(const float *x, int64_t ld, int64_t rows,
                                                int64_t there, int64_t depth, int64_t across,
                                                int64_t tiles, float *left) {
  for (int64_t t = 0; t < tiles; t += GROUP) {
    const int64_t many = least(GROUP, tiles - t);
    int64_t begin[GROUP], high[GROUP], step[GROUP];
    float *to[GROUP];
    for (int64_t i = 0; i < many; i++) {
      begin[i] = row_of(rows, tiles, t + i), high[i] = row_of(rows, tiles, t + i + 1) - begin[i];
      step[i] = height(high[i]);
      to[i] = panel_of(left, rows, tiles, t + i, depth);
      if (!across) turned(x + begin[i] * ld, ld, high[i], depth, step[i], to[i], step[i]);
    }
    for (int64_t p = 0; p < depth && across; p++)
      for (int64_t i = 0; i < many; to[i] += step[i], i++) {
        const float *from = x + p * ld + begin[i];
        if (begin[i] + LANES <= there)
          *(vec *)to[i] = *(const vec *)from;
        else
          for (int64_t r = 0; r < step[i]; r++) to[i][r] = from[least(r, high[i] - 1)];
      }
  }
}

/* Panels of columns of B, `whole` numbers from one to the next. `across`: columns lie together. */
static __attribute__((noinline)) void pack_columns(const float *x, int64_t ld, int64_t n,
                                                   int64_t depth, int64_t across, float *to,
                                                   int64_t whole) {
  int64_t full = n / WIDE * WIDE;
  if (full < n) memset(to + full / WIDE * whole, 0, (size_t)(WIDE * depth * 4));
  if (!across)
    for (int64_t j = 0; j < n; j += LANES)
      turned(x + j * ld, ld, n - j, depth, LANES, to + j / WIDE * whole + j % WIDE, WIDE);
  else
    for (int64_t p = 0; p < depth; p++, x += ld, to += WIDE) { /* along memory */
      float *at = to;
      for (int64_t j = 0; j < full; j += WIDE, at += whole) {
        EACH(v, 2) {
          __builtin_prefetch(x + 4 * ld + j + v * LANES);
          *(vec *)(at + v * LANES) = *(const vec *)(x + j + v * LANES);
        }
      }
      for (int64_t j = 0; full + j < n; j++) at[j] = x[full + j];
    }
}

/* R rows of C by WIDE columns. `next`: memory that will be read next, `step` bytes of it a term. */
#define KERNEL(R)                                                                            \
  static REGISTERS __attribute__((noinline)) void rows_##R(                                  \
                                                 const float *a, const float *b, int64_t k,  \
                                                 float *c, int64_t ldc, int add,             \
                                                 const char *next, int64_t step) {           \
    vec sum[R][2];                                                                           \
    EACH(r, R) EACH(v, 2) sum[r][v] = (vec){0};                                              \
    for (; k > 0; k--, a += R, b += WIDE, next += step) {                                    \
      const vec x = *(const vec *)b, y = *(const vec *)(b + LANES);                          \
      __builtin_prefetch(next, 0, 2);                                                        \
      EACH(r, R) {                                                                           \
        sum[r][0] += x * a[r];                                                               \
        sum[r][1] += y * a[r];                                                               \
      }                                                                                      \
    }                                                                                        \
    if (add)                                                                                 \
      EACH(r, R) EACH(v, 2) sum[r][v] += *(const vec *)(c + r * ldc + v * LANES);            \
    EACH(r, R) EACH(v, 2) *(vec *)(c + r * ldc + v * LANES) = sum[r][v];                     \
  }
HEIGHTS(KERNEL)
#define NAME(R) rows_##R,
static void (*const kernels[])(const float *, const float *, int64_t, float *, int64_t, int,
                               const char *, int64_t) = {HEIGHTS(NAME)};

/* `high` rows by `wide` columns; of a tile that is not whole, what is there. */
static void tile(const float *a, const float *b, int64_t k, float *c, int64_t ldc, int add,
                 int64_t high, int64_t wide, const char *next, int64_t step) {
  if (high == height(high) && wide == WIDE) {
    kernels[(high - LOW) / 2](a, b, k, c, ldc, add, next, step);
    return;
  }
  float whole[HIGH * WIDE] = {0};
  for (int64_t r = 0; r < high && add; r++) memcpy(whole + r * WIDE, c + r * ldc, wide * 4);
  kernels[(height(high) - LOW) / 2](a, b, k, whole, WIDE, add, next, step);
  for (int64_t r = 0; r < high; r++) memcpy(c + r * ldc, whole + r * WIDE, wide * 4);
}

/* C = op(A) @ op(B) as in `lehr_runtime`. */
static int multiply(int64_t ta, int64_t tb, int64_t m, int64_t n, int64_t k, const float *a,
                    int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc,
                    const void *ready, int64_t at) {
  if (k == 0) return 0;
  /* Blocks of equal size. */
  const int64_t parts = (k + TERMS - 1) / TERMS, most = (k + parts - 1) / parts;
  const int64_t blocks = (m + ROWS - 1) / ROWS, tall = (m + blocks - 1) / blocks;
  float *left = scratch(0, (tall * (most + LANES) + LOW * most) * 4);
  float *right = ready ? NULL : scratch(1, COLUMNS * most * 4);
  for (int64_t k0 = 0; k0 < k; k0 += most)
    for (int64_t m0 = 0; m0 < m; m0 += tall) {
      const int64_t depth = least(k - k0, most), rows = least(m - m0, tall);
      const int64_t tiles = (rows + HIGH - 1) / HIGH;
      pack_rows(a + (ta ? k0 * lda + m0 : m0 * lda + k0), lda, rows, m - m0, depth, ta, tiles, left);
      for (int64_t n0 = 0; n0 < n; n0 += COLUMNS) {
        const int64_t columns = least(n - n0, COLUMNS);
        if (!ready)
          pack_columns(b + (tb ? n0 * ldb + k0 : k0 * ldb + n0), ldb, columns, depth, !tb, right,
                       WIDE * depth);
        for (int64_t j = 0; j < columns; j += WIDE) {
          const float *y = ready ? (const float *)ready + (at + n0 + j) * k + k0 * WIDE
                                 : right + j * depth;
          /* The next panel of a weight comes from memory meanwhile. */
          const int64_t step = ready && n0 + j + WIDE < n ? WIDE * 4 / tiles : 0;
          const char *next = (const char *)(step ? y + WIDE * k : y);
          for (int64_t t = 0; t < tiles; t++, next += step * depth) {
            const int64_t r0 = row_of(rows, tiles, t), high = row_of(rows, tiles, t + 1) - r0;
            tile(panel_of(left, rows, tiles, t, depth), y, depth, c + (m0 + r0) * ldc + n0 + j,
                 ldc, k0 > 0, high, least(columns - j, WIDE), next, step);
          }
        }
      }
    }
  return 1;
}
#endif

EXPORT int64_t lehr_worth(int64_t m, int64_t n, int64_t k) { return WORTH(m, n, k); }

/* Bytes of a packed matrix. */
EXPORT int64_t lehr_packed(int64_t n, int64_t k) {
#ifdef __AVX512F__
  return (n + WIDE - 1) / WIDE * WIDE * k * 4;
#endif
  return (void)n, (void)k, 0;
}

/* B (`tb`: transposed), n columns of k terms, packed into `to`. */
EXPORT int64_t lehr_pack(const void *x, int64_t ld, int64_t wide, int64_t tb, int64_t n, int64_t k,
                         void *to) {
#ifdef __AVX512F__
  pack_columns(x, ld, n, k, !tb, to, WIDE * k);
  return (void)wide, 1;
#endif
  return (void)x, (void)ld, (void)wide, (void)tb, (void)n, (void)k, (void)to, 0;
}

EXPORT void lehr_install(lehr_runtime *rt) {
  (void)rt;
#ifdef __AVX512F__
  rt->worth = lehr_worth; /* first: others may run products meanwhile */
  __atomic_store_n(&rt->packing, multiply, __ATOMIC_RELEASE);
#endif
}
