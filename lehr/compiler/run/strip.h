/* Products of float32 matrices for attention: strips of R rows by V vectors in registers. */
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
        UNROLL for (int v = 0; v < V; v++) sum[r][v] += at[r][k * (STEP)] * row[v];          \
      }                                                                                      \
    }                                                                                        \
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++)                    \
        *(vec *)(c + least(r, last) * ldc + off[v]) = sum[r][v];                             \
  }
typedef void (*tile)(const float *, int64_t, const float *, int64_t, float *, int64_t, int64_t,
                     int, int64_t, int64_t);
/* Few shapes, since each takes the C compiler as long as a kernel does. */
#define EACH_R(name, V, ROW, STEP) TILE(name, 1, V, ROW, STEP) TILE(name, 6, V, ROW, STEP)
#define NAMES(f, V) {f##_1_##V, f##_6_##V}
#if MOST_V == 4
#define TILES(name, ROW, STEP, table)                   \
  EACH_R(name, 2, ROW, STEP) EACH_R(name, 4, ROW, STEP) \
  static const tile table[2][2] = {NAMES(name, 2), NAMES(name, 4)};
#else
#define TILES(name, ROW, STEP, table) \
  EACH_R(name, 2, ROW, STEP)          \
  static const tile table[1][2] = {NAMES(name, 2)};
#endif
TILES(plain, lda, 1, PLAIN)

static int height(int64_t rows) { return rows > 1; }

/* c [m, n] (+)= a [m, k] @ b [k, n], or of a [k, m]; n is a multiple of LANES. */
static __attribute__((noinline)) void multiply(const tile (*tiles)[2], int64_t a_step,
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

static void scores(const float *a, int64_t lda, const float *panels, int64_t size, float *s,
                   int64_t lds, int64_t m, int64_t width) {
  for (int64_t j = 0; j < width; j += PANEL)
    PLAIN[MOST_V == 4][height(m)](a, lda, panels + j * size, PANEL, s + j, lds, size, 0, m,
                                  MOST_V);
}
