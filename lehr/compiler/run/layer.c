/* Normalisations, maxima of windows and gelu of float32 arrays, for eager calls: what numpy does in ten passes
   over memory is done in one or two here. */
#include <math.h>

#define WAYS 2    /* sums that run beside each other */
#define COLUMNS 64 /* columns that are summed together */

typedef double wide __attribute__((vector_size(8 * LANES)));


/* An array [a][b][c] with statistics over a and c, one for each b. w, bias: a number for each b, or
   (`inner`) for each c, or NULL. In the gradient, mean and var are given and g is y's gradient. */
typedef struct {
  const float *x, *g, *w, *bias;
  float *y, *mean, *var;
  int64_t a, b, c, inner, center, parts;
  double eps;
} lehr_norm;

/* The sum of s * t over n numbers, in double precision: t is x - m, s what `kind` says. */
enum { ONE, SELF, GIVEN, GIVEN_ALONE };
static inline __attribute__((always_inline)) double sums(int kind, const float *x, float m,
                                                         const float *g, const float *w,
                                                         int64_t n) {
  wide sum[WAYS] = {{0}};
  double left = 0;
  int64_t i = 0;
  for (; i + WAYS * LANES <= n; i += WAYS * LANES)
    UNROLL for (int k = 0; k < WAYS; k++) {
      int64_t at = i + k * LANES;
      vec t = kind == GIVEN_ALONE ? (vec){0} : *(const vec *)(x + at) - m;
      vec s = {0};
      if (kind >= GIVEN) s = w ? *(const vec *)(g + at) * *(const vec *)(w + at)
                               : *(const vec *)(g + at);
      vec v = kind == ONE ? t : kind == SELF ? t * t : kind == GIVEN ? s * t : s;
      sum[k] += __builtin_convertvector(v, wide);
    }
  for (; i < n; i++) {
    float t = kind == GIVEN_ALONE ? 0 : x[i] - m, s = 0;
    if (kind >= GIVEN) s = w ? g[i] * w[i] : g[i];
    left += kind == ONE ? t : kind == SELF ? t * t : kind == GIVEN ? s * t : s;
  }
  for (int k = 0; k < WAYS; k++)
    for (int l = 0; l < LANES; l++) left += sum[k][l];
  return left;
}

/* mean and var of one b whose numbers lie in runs of c. */
static void measure(const lehr_norm *q, int64_t b) {
  const float *x = q->x + b * q->c;
  int64_t step = q->b * q->c;
  double n = (double)(q->a * q->c), mean = 0, var = 0;
  for (int64_t a = 0; q->center && a < q->a; a++) mean += sums(ONE, x + a * step, 0, 0, 0, q->c);
  mean /= n;
  float m = (float)mean;
  for (int64_t a = 0; a < q->a; a++) var += sums(SELF, x + a * step, m, 0, 0, q->c);
  q->mean[b] = m;
  var = var / n - (mean - m) * (mean - m);
  q->var[b] = (float)(var < 0 ? 0 : var);
}

static void norm_runs(void *ctx, int64_t chunk, int64_t worker) {
  const lehr_norm *q = ctx;
  (void)worker;
  for (int64_t b = q->b * chunk / q->parts; b < q->b * (chunk + 1) / q->parts; b++) {
    measure(q, b);
    float r = (float)(1 / sqrt((double)q->var[b] + q->eps)), m = q->mean[b];
    float w = q->w && !q->inner ? q->w[b] : 1, bias = q->bias && !q->inner ? q->bias[b] : 0;
    float scale = r * w;
    for (int64_t a = 0; a < q->a; a++) {
      const float *x = q->x + (a * q->b + b) * q->c;
      float *y = q->y + (a * q->b + b) * q->c;
      if (q->inner && q->w && q->bias)
        for (int64_t c = 0; c < q->c; c++) y[c] = (x[c] - m) * r * q->w[c] + q->bias[c];
      else if (q->inner && q->w)
        for (int64_t c = 0; c < q->c; c++) y[c] = (x[c] - m) * r * q->w[c];
      else if (q->inner && q->bias)
        for (int64_t c = 0; c < q->c; c++) y[c] = (x[c] - m) * r + q->bias[c];
      else
        for (int64_t c = 0; c < q->c; c++) y[c] = (x[c] - m) * scale + bias;
    }
  }
}

/* The same for single numbers (c = 1): up to COLUMNS neighbours at a time. */
static void norm_columns(void *ctx, int64_t chunk, int64_t worker) {
  const lehr_norm *q = ctx;
  int64_t low = chunk * COLUMNS, many = least(COLUMNS, q->b - low);
  double sum[COLUMNS] = {0}, n = (double)q->a;
  float mean[COLUMNS] = {0}, scale[COLUMNS], bias[COLUMNS];
  (void)worker;
  if (q->center) {
    for (int64_t a = 0; a < q->a; a++)
      for (int64_t j = 0; j < many; j++) sum[j] += q->x[a * q->b + low + j];
    for (int64_t j = 0; j < many; j++) mean[j] = (float)(sum[j] /= n);
  }
  double square[COLUMNS] = {0};
  for (int64_t a = 0; a < q->a; a++)
    for (int64_t j = 0; j < many; j++) {
      float t = q->x[a * q->b + low + j] - mean[j];
      square[j] += (double)(t * t);
    }
  for (int64_t j = 0; j < many; j++) {
    double var = square[j] / n - (sum[j] - mean[j]) * (sum[j] - mean[j]);
    q->mean[low + j] = mean[j];
    q->var[low + j] = (float)(var < 0 ? 0 : var);
    scale[j] = (float)(1 / sqrt((double)q->var[low + j] + q->eps)) * (q->w ? q->w[low + j] : 1);
    bias[j] = q->bias ? q->bias[low + j] : 0;
  }
  for (int64_t a = 0; a < q->a; a++)
    for (int64_t j = 0; j < many; j++) {
      int64_t at = a * q->b + low + j;
      q->y[at] = (q->x[at] - mean[j]) * scale[j] + bias[j];
    }
}

EXPORT void lehr_standardize(const lehr_runtime *rt, lehr_norm *q) {
  q->parts = q->c == 1 ? (q->b + COLUMNS - 1) / COLUMNS : least(q->b, 4 * rt->threads);
  spread(rt, q->c == 1 ? norm_columns : norm_runs, q, q->parts);
}

/* y = r (h - mean(h) - r^2 (x - m) mean(h (x - m))), h = g w, r = 1 / sqrt(var + eps). */
static void back_runs(void *ctx, int64_t chunk, int64_t worker) {
  const lehr_norm *q = ctx;
  const float *wc = q->inner ? q->w : NULL;
  double n = (double)(q->a * q->c);
  (void)worker;
  for (int64_t b = q->b * chunk / q->parts; b < q->b * (chunk + 1) / q->parts; b++) {
    double one = 0, two = 0, r = 1 / sqrt((double)q->var[b] + q->eps);
    float m = q->center ? q->mean[b] : 0, w = q->w && !q->inner ? q->w[b] : 1;
    for (int64_t a = 0; a < q->a; a++) {
      int64_t at = (a * q->b + b) * q->c;
      if (q->center) one += sums(GIVEN_ALONE, q->x + at, m, q->g + at, wc, q->c);
      two += sums(GIVEN, q->x + at, m, q->g + at, wc, q->c);
    }
    float h = (float)(w * r), less = (float)(w * r * one / n), slope = (float)(w * r * r * r * two / n);
    for (int64_t a = 0; a < q->a; a++) {
      const float *x = q->x + (a * q->b + b) * q->c, *g = q->g + (a * q->b + b) * q->c;
      float *y = q->y + (a * q->b + b) * q->c;
      if (wc)
        for (int64_t c = 0; c < q->c; c++) y[c] = g[c] * wc[c] * h - less - (x[c] - m) * slope;
      else
        for (int64_t c = 0; c < q->c; c++) y[c] = g[c] * h - less - (x[c] - m) * slope;
    }
  }
}

static void back_columns(void *ctx, int64_t chunk, int64_t worker) {
  const lehr_norm *q = ctx;
  int64_t low = chunk * COLUMNS, many = least(COLUMNS, q->b - low);
  double one[COLUMNS] = {0}, two[COLUMNS] = {0}, n = (double)q->a;
  float m[COLUMNS] = {0}, h[COLUMNS], less[COLUMNS], slope[COLUMNS];
  (void)worker;
  for (int64_t j = 0; q->center && j < many; j++) m[j] = q->mean[low + j];
  for (int64_t a = 0; a < q->a; a++)
    for (int64_t j = 0; j < many; j++) {
      int64_t at = a * q->b + low + j;
      one[j] += q->g[at];
      two[j] += (double)(q->g[at] * (q->x[at] - m[j]));
    }
  for (int64_t j = 0; j < many; j++) {
    double r = 1 / sqrt((double)q->var[low + j] + q->eps), w = q->w ? q->w[low + j] : 1;
    h[j] = (float)(w * r);
    less[j] = q->center ? (float)(w * r * one[j] / n) : 0;
    slope[j] = (float)(w * r * r * r * two[j] / n);
  }
  for (int64_t a = 0; a < q->a; a++)
    for (int64_t j = 0; j < many; j++) {
      int64_t at = a * q->b + low + j;
      q->y[at] = q->g[at] * h[j] - less[j] - (q->x[at] - m[j]) * slope[j];
    }
}

EXPORT void lehr_standardize_back(const lehr_runtime *rt, lehr_norm *q) {
  q->parts = q->c == 1 ? (q->b + COLUMNS - 1) / COLUMNS : least(q->b, 4 * rt->threads);
  spread(rt, q->c == 1 ? back_columns : back_runs, q, q->parts);
}

/* The gradient of w where there is one for each b: y[b] = sum of g (x - m) r. */
static void scale_runs(void *ctx, int64_t chunk, int64_t worker) {
  const lehr_norm *q = ctx;
  (void)worker;
  for (int64_t b = q->b * chunk / q->parts; b < q->b * (chunk + 1) / q->parts; b++) {
    double two = 0, r = 1 / sqrt((double)q->var[b] + q->eps);
    float m = q->center ? q->mean[b] : 0;
    for (int64_t a = 0; a < q->a; a++) {
      int64_t at = (a * q->b + b) * q->c;
      two += sums(GIVEN, q->x + at, m, q->g + at, NULL, q->c);
    }
    q->y[b] = (float)(two * r);
  }
}

/* Where there is one for each c (a = 1): y[c] = sum over b of g (x - m[b]) r[b]. */
static void scale_columns(void *ctx, int64_t chunk, int64_t worker) {
  const lehr_norm *q = ctx;
  int64_t low = chunk * COLUMNS, many = least(COLUMNS, q->c - low);
  double two[COLUMNS] = {0};
  (void)worker;
  for (int64_t b = 0; b < q->b; b++) {
    const float *x = q->x + b * q->c + low, *g = q->g + b * q->c + low;
    float m = q->center ? q->mean[b] : 0, r = q->bias[b]; /* bias: r of each b */
    for (int64_t j = 0; j < many; j++) two[j] += (double)(g[j] * ((x[j] - m) * r));
  }
  for (int64_t j = 0; j < many; j++) q->y[low + j] = (float)two[j];
}

EXPORT void lehr_standardize_scale(const lehr_runtime *rt, lehr_norm *q) {
  q->parts = q->inner ? (q->c + COLUMNS - 1) / COLUMNS : least(q->b, 4 * rt->threads);
  spread(rt, q->inner ? scale_columns : scale_runs, q, q->parts);
}

/* Maxima over windows of `planes` images; `place`, if there, is the index of each window's maximum
   in its image: the first of equals, the first NaN. Every window holds an element of the image. */
typedef struct {
  const float *x;
  float *y;
  int64_t *place;
  int64_t planes, size[3], many[3], kernel[3], stride[3], pad[3], dilation[3], parts;
} lehr_pool;

/* The taps [low, high) of window o along dimension d that lie in the image. */
static void inside(const lehr_pool *q, int d, int64_t o, int64_t *low, int64_t *high) {
  int64_t first = o * q->stride[d] - q->pad[d], e = q->dilation[d];
  *low = first < 0 ? (e - 1 - first) / e : 0;
  int64_t most = (q->size[d] - first + e - 1) / e;
  *high = most < q->kernel[d] ? most : q->kernel[d];
}

#define BETTER(v, best) ((v) > (best) || ((v) != (v) && (best) == (best)))

/* One window, cut off by the border of the image or not. */
static void window(const lehr_pool *q, const float *x, const int64_t *o, float *value,
                   int64_t *place) {
  const int64_t *e = q->dilation, *s = q->size;
  int64_t low[3], high[3], from[3];
  for (int d = 0; d < 3; d++) {
    inside(q, d, o[d], &low[d], &high[d]);
    from[d] = o[d] * q->stride[d] - q->pad[d];
  }
  int64_t at = ((from[0] + low[0] * e[0]) * s[1] + from[1] + low[1] * e[1]) * s[2] + from[2] +
               low[2] * e[2];
  float best = x[at];
  for (int64_t i = low[0]; i < high[0]; i++)
    for (int64_t j = low[1]; j < high[1]; j++)
      for (int64_t k = low[2]; k < high[2]; k++) {
        int64_t p = ((from[0] + i * e[0]) * s[1] + from[1] + j * e[1]) * s[2] + from[2] + k * e[2];
        int better = BETTER(x[p], best);
        best = better ? x[p] : best;
        at = better ? p : at;
      }
  *value = best;
  *place = at;
}

/* Whole windows beside each other, L of them; x: where the first begins, index: of that; taps: what
   to add to either. Elements 0, 2, 4, .. come from two vectors, and nothing beyond the last. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define PAIRS
#endif
#endif
#define EVEN_4 0, 2, 5, 7
#define EVEN_8 0, 2, 4, 6, 9, 11, 13, 15
#define EVEN_16 0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31
#ifdef PAIRS
#define EVERY_OTHER(L, v) __builtin_shufflevector(*(const float##L *)(v), \
                                                  *(const float##L *)((v) + L - 1), EVEN_##L)
#else
#define EVERY_OTHER(L, v) some_##L(v, 2)
#endif
#define WINDOWS(L)                                                                              \
  typedef float float##L __attribute__((vector_size(4 * L), aligned(4)));                       \
  typedef int32_t int##L __attribute__((vector_size(4 * L), aligned(4)));                       \
  static inline __attribute__((always_inline)) float##L some_##L(const float *v, int64_t step) { \
    float##L e = {0};                                                                           \
    for (int l = 0; l < L; l++) e[l] = v[l * step];                                             \
    return e;                                                                                   \
  }                                                                                             \
  static inline __attribute__((always_inline)) void windows_##L(                                \
      const float *x, int32_t index, const int32_t *taps, int64_t many, int64_t step,           \
      float *best, int32_t *at) {                                                               \
    float##L f = {0};                                                                           \
    int##L p = {0}, line = {0};                                                                 \
    for (int64_t t = 0; t < many; t++) {                                                        \
      const float *v = x + taps[t];                                                             \
      float##L e = step == 1 ? *(const float##L *)v : step == 2 ? EVERY_OTHER(L, v)             \
                                                                : some_##L(v, step);            \
      int##L m = (e > f) | ((e != e) & (f == f));                                               \
      if (t == 0) m = (int##L){0} - 1;                                                          \
      f = (float##L)((m & (int##L)e) | (~m & (int##L)f));                                       \
      p = (m & taps[t]) | (~m & p);                                                             \
    }                                                                                           \
    for (int l = 0; l < L; l++) line[l] = index + l * (int32_t)step;                            \
    *(float##L *)best = f;                                                                      \
    *(int##L *)at = p + line;                                                                   \
  }
WINDOWS(4)
WINDOWS(8)
WINDOWS(16)

/* n whole windows in a row; the last vector of them may overlap the one before. */
static inline __attribute__((always_inline)) void whole(const float *x, int32_t index,
                                                        const int32_t *taps, int64_t many,
                                                        int64_t n, int64_t step, float *best,
                                                        int32_t *at) {
  int64_t lanes = n >= 16 ? 16 : n >= 8 ? 8 : n >= 4 ? 4 : 1;
  for (int64_t i = 0; i < n; i += lanes) {
    int64_t c = i + lanes <= n ? i : n - lanes;
    const float *v = x + c * step;
    int32_t first = index + (int32_t)(c * step);
    if (lanes == 16) windows_16(v, first, taps, many, step, best + c, at + c);
    else if (lanes == 8) windows_8(v, first, taps, many, step, best + c, at + c);
    else if (lanes == 4) windows_4(v, first, taps, many, step, best + c, at + c);
    else {
      best[c] = *v, at[c] = first;
      for (int64_t t = 1; t < many; t++)
        if (BETTER(v[taps[t]], best[c])) best[c] = v[taps[t]], at[c] = first + taps[t];
    }
  }
}

/* The windows [low, high) along dimension d that lie in the image as a whole. */
static void middle(const lehr_pool *q, int d, int64_t *low, int64_t *high) {
  int64_t a, b;
  for (*low = 0; *low < q->many[d]; ++*low) {
    inside(q, d, *low, &a, &b);
    if (a == 0 && b == q->kernel[d]) break;
  }
  for (*high = q->many[d]; *high > *low; --*high) {
    inside(q, d, *high - 1, &a, &b);
    if (a == 0 && b == q->kernel[d]) break;
  }
}

#define ROW 256
static void pool_planes(void *ctx, int64_t chunk, int64_t worker) {
  const lehr_pool *q = ctx;
  const int64_t *m = q->many, *e = q->dilation, *s = q->size, *k = q->kernel;
  int64_t low[3], high[3], count = k[0] * k[1] * k[2];
  int32_t taps[count], at[ROW];
  float best[ROW];
  (void)worker;
  for (int d = 0; d < 3; d++) middle(q, d, &low[d], &high[d]);
  for (int64_t t = 0; t < count; t++)
    taps[t] = (int32_t)((t / (k[1] * k[2]) * e[0] * s[1] + t / k[2] % k[1] * e[1]) * s[2] +
                        t % k[2] * e[2]);
  for (int64_t p = q->planes * chunk / q->parts; p < q->planes * (chunk + 1) / q->parts; p++) {
    const float *x = q->x + p * s[0] * s[1] * s[2];
    int64_t o[3], to = p * m[0] * m[1] * m[2];
    for (o[0] = 0; o[0] < m[0]; o[0]++)
      for (o[1] = 0; o[1] < m[1]; o[1]++, to += m[2]) {
        int all = o[0] >= low[0] && o[0] < high[0] && o[1] >= low[1] && o[1] < high[1];
        int64_t left = all ? low[2] : m[2], right = all ? high[2] : m[2], place;
        for (o[2] = 0; o[2] < m[2]; o[2]++) {
          if (o[2] == left && left < right) o[2] = right;
          if (o[2] == m[2]) break;
          float value;
          window(q, x, o, &value, &place);
          if (q->y) q->y[to + o[2]] = value;
          if (q->place) q->place[to + o[2]] = place;
        }
        for (int64_t n, c = left; c < right; c += n) {
          int64_t first = ((o[0] * q->stride[0] - q->pad[0]) * s[1] + o[1] * q->stride[1] -
                           q->pad[1]) * s[2] + c * q->stride[2] - q->pad[2];
          n = least(ROW, right - c);
          if (q->stride[2] == 1) whole(x + first, (int32_t)first, taps, count, n, 1, best, at);
          else if (q->stride[2] == 2) whole(x + first, (int32_t)first, taps, count, n, 2, best, at);
          else whole(x + first, (int32_t)first, taps, count, n, q->stride[2], best, at);
          if (q->y) memcpy(q->y + to + c, best, 4 * (size_t)n);
          if (q->place)
            for (int64_t i = 0; i < n; i++) q->place[to + c + i] = at[i];
        }
      }
  }
}

EXPORT void lehr_max_pool(const lehr_runtime *rt, lehr_pool *q) {
  q->parts = least(q->planes, 4 * rt->threads);
  spread(rt, pool_planes, q, q->parts);
}

/* y [planes][size], zeros to which each window's x is added at its place. */
static void unpool_planes(void *ctx, int64_t chunk, int64_t worker) {
  const lehr_pool *q = ctx;
  int64_t size = q->size[0] * q->size[1] * q->size[2], many = q->many[0] * q->many[1] * q->many[2];
  (void)worker;
  for (int64_t p = q->planes * chunk / q->parts; p < q->planes * (chunk + 1) / q->parts; p++) {
    float *y = q->y + p * size;
    memset(y, 0, 4 * (size_t)size);
    for (int64_t i = p * many; i < (p + 1) * many; i++)
      if ((uint64_t)q->place[i] < (uint64_t)size) y[q->place[i]] += q->x[i];
  }
}

EXPORT void lehr_max_unpool(const lehr_runtime *rt, lehr_pool *q) {
  q->parts = least(q->planes, 4 * rt->threads);
  spread(rt, unpool_planes, q, q->parts);
}

/* y = a function of n numbers x, times g in gradients. erf(x) = x p(x x) / q(x x) for |x| < edge,
   p and q of TERMS coefficients; +-1 beyond. */
enum { ERF, GELU, GELU_BACK, GELU_TANH, GELU_TANH_BACK };
#define TERMS 6
typedef struct {
  const float *x, *g, *p, *q;
  float *y;
  int64_t n, kind, parts;
  float edge, cube, scale; /* tanh(scale (x + cube x^3)) stands for erf(x / sqrt 2) */
} lehr_map;

#define ALWAYS static inline __attribute__((always_inline))
#define PICK(m, a, b) ((vec)(((m) & (ints)(a)) | (~(m) & (ints)(b))))

ALWAYS vec erf_of(const lehr_map *q, vec x) {
  vec z = x * x, a = (vec){0} + q->p[TERMS - 1], b = (vec){0} + q->q[TERMS - 1];
  UNROLL for (int i = TERMS - 2; i >= 0; i--) a = a * z + q->p[i], b = b * z + q->q[i];
  vec one = PICK(x < 0, (vec){0} - 1, (vec){0} + 1), made = x * a / b;
  return PICK((x >= q->edge) | (x <= -q->edge) | (made > 1) | (made < -1), one, made);
}

/* exp(x), to 1e-7; 0 below -87, infinite above 88. NaN gives anything. */
ALWAYS vec exp_of(vec x) {
  ints low = x < -87, high = x > 88;
  x = PICK(low | high, (vec){0}, x);
  vec t = x * 1.44269504f + 12582912.f, n = t - 12582912.f; /* n: the nearest integer */
  vec r = x - n * 0.693359375f + n * 2.12194440e-4f, e = (vec){0} + 1.98412698e-4f;
  e = e * r + 1.38888889e-3f;
  e = e * r + 8.33333333e-3f;
  e = e * r + 4.16666667e-2f;
  e = e * r + 1.66666667e-1f;
  e = e * r + 0.5f;
  e = e * r * r + r + 1;
  e = (vec)((ints)e + ((ints)t << 23));
  return PICK(low, (vec){0}, PICK(high, (vec){0} + INFINITY, e));
}

ALWAYS vec map(const lehr_map *q, int kind, vec x, vec g) {
  if (kind == ERF) return erf_of(q, x);
  if (kind == GELU) return (erf_of(q, x * 0.707106781f) + 1) * 0.5f * x;
  if (kind == GELU_TANH || kind == GELU_TANH_BACK) {
    /* (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)) */
    vec z = x * x, e = exp_of((z * (-2 * q->scale * q->cube) - 2 * q->scale) * x);
    vec s = PICK(x != x, x, 1 / (1 + e));
    if (kind == GELU_TANH) return PICK((x > 0) & (x < 16), x - x * (e * s), x * s);
    vec rise = PICK(x > 0, e * s * s, s * (1 - s)); /* s (1 - s), where s is next to 1, too */
    return g * (s + x * rise * (z * (6 * q->scale * q->cube) + 2 * q->scale));
  }
  vec density = exp_of(x * x * -0.5f) * 0.398942280f;
  return g * ((erf_of(q, x * 0.707106781f) + 1) * 0.5f + x * density);
}

ALWAYS void map_part(const lehr_map *q, int kind, int64_t low, int64_t high) {
  int64_t i = low;
  for (; i + LANES <= high; i += LANES)
    *(vec *)(q->y + i) = map(q, kind, *(const vec *)(q->x + i),
                             q->g ? *(const vec *)(q->g + i) : (vec){0});
  if (i == high) return;
  vec x = {0}, g = {0};
  memcpy(&x, q->x + i, 4 * (size_t)(high - i));
  if (q->g) memcpy(&g, q->g + i, 4 * (size_t)(high - i));
  x = map(q, kind, x, g);
  memcpy(q->y + i, &x, 4 * (size_t)(high - i));
}

static void map_chunk(void *ctx, int64_t chunk, int64_t worker) {
  const lehr_map *q = ctx;
  int64_t vectors = (q->n + LANES - 1) / LANES, low = vectors * chunk / q->parts * LANES;
  int64_t high = least(q->n, vectors * (chunk + 1) / q->parts * LANES);
  (void)worker;
  if (q->kind == ERF) map_part(q, ERF, low, high);
  else if (q->kind == GELU) map_part(q, GELU, low, high);
  else if (q->kind == GELU_BACK) map_part(q, GELU_BACK, low, high);
  else if (q->kind == GELU_TANH) map_part(q, GELU_TANH, low, high);
  else map_part(q, GELU_TANH_BACK, low, high);
}

EXPORT void lehr_map_numbers(const lehr_runtime *rt, lehr_map *q) {
  q->parts = rt->threads == 1 ? 1 : least(4 * rt->threads, q->n / 8192 + 1);
  spread(rt, map_chunk, q, q->parts);
}

EXPORT void lehr_install(lehr_runtime *rt) { (void)rt; }
