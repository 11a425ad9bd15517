/* Convolution of channels-last images, its adjoint, and the gradient of its kernel.

   No windows are copied: tiles of R pixels by V vectors of channels are kept in registers while the
   products are summed straight from the rows of the image (Georganas et al., "Anatomy of
   high-performance deep learning convolutions on SIMD architectures", 2018). Along each dimension,
   results that meet the same taps of the kernel form a span; a class of pixels is one span of each
   dimension, so that neither padding nor the zeros between strided elements are ever multiplied. */
#if defined(__AVX512F__)
#define MOST_V 4
#else
#define MOST_V 2
#endif
#define PANEL (MOST_V * LANES)
#define CHUNK 128 /* pixels whose gradients stay in the inner cache */


/* n products in a row: x and w are where they begin, in elements from a pixel and the panel. */
typedef struct {
  int64_t x, w, n;
} run;

#define TILE(R, V)                                                                          \
  static __attribute__((noinline)) void tile_##R##_##V(                                     \
      const float *const *rows, const run *runs, int64_t count, const float *w,             \
      float *const *y, int64_t columns) {                                                   \
    vec sum[R][V];                                                                          \
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++) sum[r][v] =       \
        (vec){0};                                                                           \
    for (int64_t i = 0; i < count; i++) {                                                   \
      const float *at[R], *b = w + runs[i].w * (V * LANES);                                 \
      UNROLL for (int r = 0; r < R; r++) at[r] = rows[r] + runs[i].x;                       \
      for (int64_t c = 0; c < runs[i].n; c++, b += V * LANES) {                             \
        vec row[V];                                                                         \
        UNROLL for (int v = 0; v < V; v++) row[v] = *(const vec *)(b + v * LANES);          \
        UNROLL for (int r = 0; r < R; r++) {                                                \
          UNROLL for (int v = 0; v < V; v++) sum[r][v] += at[r][c] * row[v];                \
        }                                                                                   \
      }                                                                                     \
    }                                                                                       \
    if (columns == V * LANES) {                                                             \
      UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++)                 \
          *(vec *)(y[r] + v * LANES) = sum[r][v];                                           \
    } else {                                                                                \
      UNROLL for (int r = 0; r < R; r++) memcpy(y[r], sum[r], 4 * (size_t)columns);         \
    }                                                                                       \
  }

/* Adds x[at + r] * g[of + column] over `count` pixels to R rows of sums. */
#define OUTER(R, V)                                                                         \
  static __attribute__((noinline)) void outer_##R##_##V(                                    \
      const float *x, const int64_t *at, const float *g, const int32_t *of, int64_t count,  \
      float *sums) {                                                                        \
    vec sum[R][V];                                                                          \
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++) sum[r][v] =       \
        *(vec *)(sums + (r * V + v) * LANES);                                               \
    for (int64_t i = 0; i < count; i++) {                                                   \
      const float *a = x + at[i], *b = g + of[i];                                           \
      vec row[V];                                                                           \
      UNROLL for (int v = 0; v < V; v++) row[v] = *(const vec *)(b + v * LANES);            \
      UNROLL for (int r = 0; r < R; r++) {                                                  \
        UNROLL for (int v = 0; v < V; v++) sum[r][v] += a[r] * row[v];                      \
      }                                                                                     \
    }                                                                                       \
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++)                   \
        *(vec *)(sums + (r * V + v) * LANES) = sum[r][v];                                   \
  }

/* As a tile, of more rows than there are registers for their addresses: several products of a row
   at a time. */
#define LONG(R, V, N)                                                                       \
  static __attribute__((noinline)) void tile_##R##_##V(                                     \
      const float *const *rows, const run *runs, int64_t count, const float *w,             \
      float *const *y, int64_t columns) {                                                   \
    vec sum[R][V];                                                                          \
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++) sum[r][v] =       \
        (vec){0};                                                                           \
    for (int64_t i = 0; i < count; i++) {                                                   \
      const float *b = w + runs[i].w * (V * LANES);                                         \
      int64_t c = runs[i].x, end = c + runs[i].n;                                           \
      for (; c + N <= end; c += N, b += N * V * LANES) {                                    \
        vec row[N][V];                                                                      \
        UNROLL for (int n = 0; n < N; n++) UNROLL for (int v = 0; v < V; v++)               \
            row[n][v] = *(const vec *)(b + (n * V + v) * LANES);                            \
        UNROLL for (int r = 0; r < R; r++) {                                                \
          const float *at = rows[r] + c;                                                    \
          UNROLL for (int n = 0; n < N; n++) UNROLL for (int v = 0; v < V; v++)             \
              sum[r][v] += at[n] * row[n][v];                                               \
        }                                                                                   \
      }                                                                                     \
      for (; c < end; c++, b += V * LANES)                                                  \
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++)               \
            sum[r][v] += rows[r][c] * *(const vec *)(b + v * LANES);                        \
    }                                                                                       \
    vec made[R][V]; /* sums whose address is taken would be kept in memory */               \
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++) made[r][v] =      \
        sum[r][v];                                                                          \
    for (int r = 0; r < R; r++) memcpy(y[r], made[r], 4 * (size_t)columns);                 \
  }

typedef void (*tile)(const float *const *, const run *, int64_t, const float *, float *const *,
                     int64_t);
typedef void (*outer)(const float *, const int64_t *, const float *, const int32_t *, int64_t,
                      float *);
/* Few shapes, since each takes the C compiler some time. A tile of fewer rows than a shape has
   repeats the last; gradients take exact shapes, one after the other. */
#if MOST_V == 4
#define MOST 12
#define SHAPES 6
LONG(12, 1, 4)
LONG(12, 2, 2)
#define EACH(F, V) F(1, V) F(2, V) F(4, V)
#define ALL(F, V) EACH(F, V) F(3, V) F(5, V) F(6, V)
EACH(TILE, 1)
EACH(TILE, 2)
ALL(TILE, 4)
EACH(OUTER, 1)
EACH(OUTER, 2)
OUTER(12, 1)
OUTER(12, 2)
ALL(OUTER, 4)
#define NARROW(f, V) {f##_1_##V, f##_2_##V, f##_4_##V, f##_12_##V}
#define NAMES(f, V) {f##_1_##V, f##_2_##V, f##_3_##V, f##_4_##V, f##_5_##V, f##_6_##V}
static const int64_t HEIGHTS[3][SHAPES] = {{1, 2, 4, 12}, {1, 2, 4, 12}, {1, 2, 3, 4, 5, 6}};
static const int LAST[3] = {3, 3, 5};
static const tile TILES[3][SHAPES] = {NARROW(tile, 1), NARROW(tile, 2), NAMES(tile, 4)};
static const outer OUTERS[3][SHAPES] = {NARROW(outer, 1), NARROW(outer, 2), NAMES(outer, 4)};
#else
#define MOST 5
#define SHAPES 5
#define ALL(F, V) F(1, V) F(2, V) F(3, V) F(4, V) F(5, V)
ALL(TILE, 1)
ALL(TILE, 2)
ALL(OUTER, 1)
ALL(OUTER, 2)
#define NAMES(f, V) {f##_1_##V, f##_2_##V, f##_3_##V, f##_4_##V, f##_5_##V}
static const int64_t HEIGHTS[2][SHAPES] = {{1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}};
static const int LAST[2] = {4, 4};
static const tile TILES[2][SHAPES] = {NAMES(tile, 1), NAMES(tile, 2)};
static const outer OUTERS[2][SHAPES] = {NAMES(outer, 1), NAMES(outer, 2)};
#endif

/* log2 of the vectors that a number of columns takes. */
static int depth(int64_t columns) {
  return columns <= LANES ? 0 : columns <= 2 * LANES ? 1 : 2;
}

/* The rows of the highest tile of some depth. */
static int64_t highest(int64_t deep) { return HEIGHTS[deep][LAST[deep]]; }

/* The kernel's columns [from, from + columns) of a group as [taps][in][width], read in the order in
   which it lies in memory. */
static void pack(const lehr_convolution *q, const float *w, int64_t columns, int64_t width,
                 float *panel) {
  const int64_t *k = q->kernel, *s = q->w_step + 1, taps = k[0] * k[1] * k[2];
  const int64_t pieces = width / LANES, rows = s[0] < s[1];
  for (int64_t n = 0; n < pieces * q->in; n++) {
    int64_t v = (rows ? n % pieces : n / q->in) * LANES, c = rows ? n / pieces : n % q->in;
    int64_t left = columns - v, many = left < LANES ? left : LANES;
    float *to = panel + c * width + v;
    for (int64_t t = 0; t < taps; t++, to += q->in * width) {
      const float *from = w + v * s[0] + c * s[1] + t / (k[1] * k[2]) * s[2] +
                          t / k[2] % k[1] * s[3] + t % k[2] * s[4];
      vec e = {0};
      if (many == LANES)
        UNROLL for (int l = 0; l < LANES; l++) e[l] = from[l * s[0]];
      else
        for (int l = 0; l < many; l++) e[l] = from[l * s[0]];
      *(vec *)to = e;
    }
  }
}

typedef struct {
  const lehr_convolution *q;
  const span *spans[3];
  int64_t count[3], tiles, panels, parts;
} plan;

/* The taps of a class as runs; neighbours in both memories are one. */
static int64_t runs_of(const lehr_convolution *q, const span *const *a, run *made) {
  const int64_t *k = q->kernel, *s = q->x_step + 1;
  int64_t n = 0;
  for (int64_t i = 0; i < a[0]->taps; i++)
    for (int64_t j = 0; j < a[1]->taps; j++)
      for (int64_t l = 0; l < a[2]->taps; l++) {
        int64_t t = ((a[0]->low + i * a[0]->tap_step) * k[1] + a[1]->low + j * a[1]->tap_step) *
                        k[2] + a[2]->low + l * a[2]->tap_step;
        run r = {(a[0]->at + i * a[0]->tap_at) * s[0] + (a[1]->at + j * a[1]->tap_at) * s[1] +
                     (a[2]->at + l * a[2]->tap_at) * s[2], t * q->in, q->in};
        if (n && made[n - 1].x + made[n - 1].n == r.x && made[n - 1].w + made[n - 1].n == r.w)
          made[n - 1].n += r.n;
        else
          made[n++] = r;
      }
  return n;
}

static int64_t pixels(const lehr_convolution *q, const span *const *a) {
  return q->batch * a[0]->count * a[1]->count * a[2]->count;
}

/* Where the next `n` pixels of a class lie; `at` counts (image, and the three spans). */
static void place(const lehr_convolution *q, const span *const *a, int64_t *at, int64_t n,
                  const float *x, float *y, const float **rows, float **to) {
  for (int64_t r = 0; r < n; r++) {
    rows[r] = x + at[0] * q->x_step[0];
    to[r] = y + at[0] * q->y_step[0];
    for (int d = 0; d < 3; d++) {
      rows[r] += at[d + 1] * a[d]->step_at * q->x_step[d + 1];
      to[r] += (a[d]->first + at[d + 1] * a[d]->step) * q->y_step[d + 1];
    }
    for (int d = 3; d >= 0 && ++at[d] == (d ? a[d - 1]->count : q->batch) && d; d--) at[d] = 0;
  }
}

static void correlate(void *ctx, int64_t chunk, int64_t worker) {
  const plan *f = ctx;
  const lehr_convolution *q = f->q;
  int64_t part = chunk % f->parts, first = chunk / f->parts % f->panels * PANEL;
  int64_t group = chunk / f->parts / f->panels;
  int64_t columns = q->out - first < PANEL ? q->out - first : PANEL, deep = depth(columns);
  int64_t taps = q->kernel[0] * q->kernel[1] * q->kernel[2], width = LANES << deep;
  float *panel = scratch(0, taps * q->in * width * 4);
  run *runs = scratch(1, taps * (int64_t)sizeof(run));
  const float *x = q->x + group * q->in;
  float *y = q->y + group * q->out + first;
  (void)worker;
  pack(q, q->w + group * q->w_step[0] + first * q->w_step[1], columns, width, panel);
  int64_t from = f->tiles * part / f->parts, to = f->tiles * (part + 1) / f->parts, low = 0;
  for (int64_t i = 0; i < f->count[0] * f->count[1] * f->count[2] && low < to; i++) {
    const span *a[3] = {f->spans[0] + i / f->count[2] / f->count[1],
                        f->spans[1] + i / f->count[2] % f->count[1], f->spans[2] + i % f->count[2]};
    int64_t all = pixels(q, a), most = highest(deep);
    int64_t tiles = (all + most - 1) / most, high = low + tiles;
    if (high > from) {
      int64_t count = runs_of(q, a, runs), t = from > low ? from - low : 0;
      int64_t at[4], p = all * t / tiles;
      for (int d = 2; d >= 0; d--) at[d + 1] = p % a[d]->count, p /= a[d]->count;
      at[0] = p;
      for (; t < tiles && low + t < to; t++) {
        int64_t n = all * (t + 1) / tiles - all * t / tiles;
        const float *rows[MOST];
        float *out[MOST];
        int shape = 0;
        place(q, a, at, n, x, y, rows, out);
        while (HEIGHTS[deep][shape] < n) shape++;
        for (; n < HEIGHTS[deep][shape]; n++) rows[n] = rows[n - 1], out[n] = out[n - 1];
        TILES[deep][shape](rows, runs, count, panel, out, columns);
      }
    }
    low = high;
  }
}

/* How many tasks to make of `works` equal ones that cost `work` multiplications in all. */
static int64_t parts_of(const lehr_runtime *rt, int64_t works, double work) {
  if (rt->threads == 1) return 1;
  int64_t want = 3 * rt->threads, most = (int64_t)(work / 1e6) + 1;
  want = want < most ? want : most;
  return works >= want ? 1 : (want + works - 1) / works;
}

/* y = the convolution of x with w, or its adjoint. */
EXPORT void lehr_convolve(const lehr_runtime *rt, const lehr_convolution *q) {
  plan f = {.q = q, .panels = (q->out + PANEL - 1) / PANEL};
  int64_t whole = q->many[0] + q->many[1] + q->many[2];
  span *made = malloc((size_t)whole * sizeof(span)), *at = made;
  double work = (double)q->groups * (double)q->out * (double)q->in;
  if (!made) abort();
  TURN_IN(rt, q);
  for (int d = 0; d < 3; d++) {
    f.spans[d] = at;
    f.count[d] = spans(q, d, at);
    at += f.count[d];
    work *= (double)(q->many[d] * q->kernel[d]);
  }
  int64_t most = highest(depth(q->out < PANEL ? q->out : PANEL));
  for (int64_t i = 0; i < f.count[0] * f.count[1] * f.count[2]; i++) {
    const span *a[3] = {f.spans[0] + i / f.count[2] / f.count[1],
                        f.spans[1] + i / f.count[2] % f.count[1], f.spans[2] + i % f.count[2]};
    f.tiles += (pixels(q, a) + most - 1) / most;
  }
  f.parts = parts_of(rt, q->groups * f.panels, work * (double)q->batch);
  f.parts = f.parts < f.tiles ? f.parts : f.tiles;
  if (f.parts) spread(rt, correlate, &f, q->groups * f.panels * f.parts);
  TURN_OUT(rt, q);
  free(made);
}

/* Adds to sums[many][width] what pixels of a chunk, in that order, have at a tap that they meet. */
static void add(const lehr_convolution *q, const float *x, const int64_t *tap, int64_t many,
                const int64_t *at, int32_t (*place)[CHUNK], const int32_t *order, int64_t n,
                int64_t width, int deep, const float *rows, float *sums) {
  int64_t met[CHUNK], count = 0, shift = 0, reach[3];
  int32_t of[CHUNK];
  for (int d = 0; d < 3; d++) {
    reach[d] = tap[d] * q->dilation[d];
    shift += reach[d] * q->x_step[d + 1];
  }
  for (int64_t j = 0; j < n; j++) {
    int64_t i = order[j];
    met[count] = at[i] + shift;
    of[count] = (int32_t)(i * width);
    count += ((uint64_t)(place[0][i] + reach[0]) < (uint64_t)q->size[0]) &
             ((uint64_t)(place[1][i] + reach[1]) < (uint64_t)q->size[1]) &
             ((uint64_t)(place[2][i] + reach[2]) < (uint64_t)q->size[2]);
  }
  if (count == 0) return;
  int64_t most = highest(deep), tiles = (many + most - 1) / most, even = LAST[deep] + 1 == most;
  for (int64_t j = 0, a = 0, n; a < many; j++, a += n) {
    int shape = LAST[deep];
    n = even ? many * (j + 1) / tiles - a : many - a;
    while (HEIGHTS[deep][shape] > n) shape--;
    n = HEIGHTS[deep][shape];
    OUTERS[deep][shape](x + a, met, rows, of, count, sums + a * width);
  }
}

/* The gradient of some columns and input channels of the kernel. */
static void weigh(void *ctx, int64_t chunk, int64_t worker) {
  const plan *f = ctx;
  const lehr_convolution *q = f->q;
  const int64_t *k = q->kernel, *m = q->many, *xs = q->x_step, *ws = q->w_step;
  int64_t part = chunk % f->parts, first = chunk / f->parts % f->panels * PANEL;
  int64_t group = chunk / f->parts / f->panels;
  int64_t columns = q->out - first < PANEL ? q->out - first : PANEL, deep = depth(columns);
  int64_t taps = k[0] * k[1] * k[2], width = LANES << deep, all = q->batch * m[0] * m[1] * m[2];
  int64_t low = q->in * part / f->parts, many = q->in * (part + 1) / f->parts - low;
  float *sums = scratch(0, taps * many * width * 4), *rows = scratch(1, CHUNK * width * 4);
  const float *x = q->x + group * q->in + low, *g = q->y + group * q->out + first;
  int64_t at[CHUNK];
  int32_t place[3][CHUNK], order[CHUNK];
  /* Taps along a row, and their channels, follow each other in memory: they are one long sum, for
     pixels that meet them all. Those come first, also where a task has a part of the channels: the
     order of a sum does not depend on threads. */
  int parted = k[2] > 1 && q->dilation[2] == 1 && q->in == xs[3], joined = parted && many == q->in;
  (void)worker;
  if (many == 0) return;
  memset(sums, 0, (size_t)(taps * many * width * 4));
  memset(rows, 0, (size_t)(CHUNK * width * 4));
  for (int64_t start = 0; start < all; start += CHUNK) {
    int64_t n = all - start < CHUNK ? all - start : CHUNK, c[4], p = start;
    for (int d = 2; d >= 0; d--) c[d + 1] = p % m[d], p /= m[d];
    c[0] = p;
    for (int64_t i = 0; i < n; i++) {
      const float *from = g + c[0] * q->y_step[0];
      at[i] = c[0] * xs[0];
      for (int d = 0; d < 3; d++) {
        from += c[d + 1] * q->y_step[d + 1];
        place[d][i] = (int32_t)(c[d + 1] * q->stride[d] - q->pad[d]);
        at[i] += place[d][i] * xs[d + 1];
      }
      memcpy(rows + i * width, from, 4 * (size_t)columns);
      for (int d = 3; d >= 0 && ++c[d] == (d ? m[d - 1] : q->batch) && d; d--) c[d] = 0;
    }
    int64_t whole = 0, last = n;
    for (int64_t i = 0; i < n; i++)
      if (!parted || (place[2][i] >= 0 && place[2][i] + k[2] <= q->size[2]))
        order[whole++] = (int32_t)i;
      else
        order[--last] = (int32_t)i;
    for (int64_t t = 0; t < taps; t++) {
      int64_t tap[3] = {t / (k[1] * k[2]), t / k[2] % k[1], t % k[2]};
      float *sum = sums + t * many * width;
      if (!joined || tap[2] == 0)
        add(q, x, tap, joined ? k[2] * many : many, at, place, order, whole, width, deep, rows,
            sum);
      if (whole < n)
        add(q, x, tap, many, at, place, order + whole, n - whole, width, deep, rows, sum);
    }
  }
  float *w = q->w + group * ws[0] + first * ws[1] + low * ws[2];
  for (int64_t v = 0; v < columns; v += LANES) {
    int64_t left = columns - v, lanes = left < LANES ? left : LANES;
    for (int64_t c = 0; c < many; c++)
      for (int64_t t = 0; t < taps; t++) {
        float *to = w + v * ws[1] + c * ws[2] + t / (k[1] * k[2]) * ws[3] +
                    t / k[2] % k[1] * ws[4] + t % k[2] * ws[5];
        const float *from = sums + (t * many + c) * width + v;
        for (int64_t l = 0; l < lanes; l++) to[l * ws[1]] = from[l];
      }
  }
}

/* w = the gradient of the plain convolution's kernel, from x and the result's gradient y. */
EXPORT void lehr_convolve_weight(const lehr_runtime *rt, const lehr_convolution *q) {
  plan f = {.q = q, .panels = (q->out + PANEL - 1) / PANEL};
  double work = (double)q->groups * (double)q->out * (double)q->in * (double)q->batch;
  for (int d = 0; d < 3; d++) work *= (double)(q->many[d] * q->kernel[d]);
  f.parts = parts_of(rt, q->groups * f.panels, work);
  int64_t most = (q->in + 7) / 8; /* a task of few channels has few sums for what it reads */
  f.parts = f.parts < most ? f.parts : most;
  TURN_IN(rt, q);
  spread(rt, weigh, &f, q->groups * f.panels * f.parts);
}

EXPORT void lehr_turn_images(const lehr_runtime *rt, lehr_turn *q) {
  turn_images(rt, q);
}

EXPORT void lehr_install(lehr_runtime *rt) {
  rt->convolve = lehr_convolve;
  rt->convolve_weight = lehr_convolve_weight;
}
