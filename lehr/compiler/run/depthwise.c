/* Convolution in groups of as many channels as come out of it, 1 to 16 of them, of channels-last
   images: forward, adjoint, and the gradient of the kernel.

   A vector is LANES neighbouring channels, of whole groups. Each lane meets the channels of its
   group one after the other: where there are several, the vector's lanes are shuffled, or, where a
   vector is of one group, are copies of one channel. Results
   along a row that meet the same taps are summed in registers, STRIP of them at a time. Channels
   that are left over make a vector with some of those before, or one whose other lanes count
   nothing where there are too few channels for one.

   Where an image's block of channels fits a cache, a thread works on a copy of it, whose pixels lie
   STEP apart: no two of them share a place of the cache, and their addresses are plain numbers.
   What a result is summed of, and in which order, is the same. */
#define STRIP 8 /* results along a row */
#define LONG 14 /* of a copy */
#define STEP 16 /* floats of a pixel there, no fewer than LANES or the channels of a group */
#define FITS (2 << 20) /* bytes */
#define FEW 9     /* taps: no more are not worth a copy of what has its channels together */
#define PARTS 16


static inline vec shuffled(vec a, ints by) {
#if defined(__clang__)
  vec e;
  UNROLL for (int l = 0; l < LANES; l++) e[l] = a[by[l]];
  return e;
#else
  return __builtin_shuffle(a, by);
#endif
}

/* A tap of a row: elements from a result's first window element, and its place in the kernel. */
typedef struct {
  int64_t x, tap;
} hit;

typedef struct {
  const lehr_convolution *q;
  const span *spans; /* of the last dimension */
  int64_t count, rows, parts; /* of the rows */
  int64_t channels, blocks, wide, taps, span; /* wide: parts of blocks; span: floats of a block */
  float *w;          /* [blocks][taps][in][LANES], of gradients [parts] of them */
  ints by[8];        /* which lane each lane meets */
  const span *tall;  /* of the dimension before */
  int64_t tall_count;
} plan;

/* Where a block of channels begins. */
static inline int64_t block_at(const plan *f, int64_t b) {
  int64_t last = f->channels - LANES;
  return last < 0 ? 0 : least(b * LANES, last);
}

/* Where the channels that a block meets begin. */
static inline int64_t met_at(const plan *f, int64_t at) {
  return f->q->in < LANES ? at : at / f->q->in * f->q->in;
}

/* A vector of channels; a[limit] and on must not be read. */
static inline vec taken(const float *a, int64_t channels, const float *limit) {
  if (a + LANES <= limit) return *(const vec *)a;
  vec e = {0};
  memcpy(&e, a, 4 * (size_t)least(channels, LANES));
  return e;
}

/* One past the last element of images. */
static const float *end_of(const float *x, const int64_t *step, const int64_t *size,
                           int64_t batch, int64_t channels) {
  x += (batch - 1) * step[0] + channels;
  for (int d = 0; d < 3; d++) x += (size[d] - 1) * step[d + 1];
  return x;
}

#define ROW(R)                                                                               \
  static __attribute__((noinline)) void row_##R(                                             \
      const plan *f, const hit *hits, int64_t count, const float *x, int64_t x_step,         \
      const float *w, float *y, int64_t y_step, int64_t n, const float *limit) {             \
    vec sum[R];                                                                              \
    int64_t at[R], in = f->q->in;                                                            \
    UNROLL for (int r = 0; r < R; r++) at[r] = least(r, n - 1) * x_step, sum[r] = (vec){0};  \
    for (int64_t i = 0; i < count; i++) {                                                    \
      const float *a = x + hits[i].x, *b = w + hits[i].tap * in * LANES;                     \
      vec e[R], slow[R];                                                                     \
      if (in >= LANES) {                                                                     \
        for (int64_t j = 0; j < in; j += 4)                                                  \
          UNROLL for (int k = 0; k < 4; k++, b += LANES)                                     \
            UNROLL for (int r = 0; r < R; r++) sum[r] += a[at[r] + j + k] * *(const vec *)b; \
        continue;                                                                            \
      }                                                                                      \
      if (a + at[R - 1] + LANES <= limit) {                                                  \
        UNROLL for (int r = 0; r < R; r++) e[r] = *(const vec *)(a + at[r]);                 \
      } else {                                                                               \
        for (int r = 0; r < R; r++) slow[r] = taken(a + at[r], f->channels, limit);          \
        UNROLL for (int r = 0; r < R; r++) e[r] = slow[r];                                   \
      }                                                                                      \
      if (in == 1)                                                                           \
        UNROLL for (int r = 0; r < R; r++) sum[r] += e[r] * *(const vec *)b;                 \
      else                                                                                   \
        for (int64_t j = 0; j < in; j++, b += LANES) {                                       \
          ints by = f->by[j];                                                                \
          UNROLL for (int r = 0; r < R; r++) sum[r] += shuffled(e[r], by) * *(const vec *)b; \
        }                                                                                    \
    }                                                                                        \
    if (f->channels >= LANES) {                                                              \
      UNROLL for (int r = 0; r < R; r++) *(vec *)(y + least(r, n - 1) * y_step) = sum[r];    \
    } else {                                                                                 \
      vec made[R]; /* an index that varies would keep the sums in memory */                  \
      UNROLL for (int r = 0; r < R; r++) made[r] = sum[r];                                   \
      for (int64_t r = 0; r < n; r++) memcpy(y + r * y_step, &made[r], 4 * (size_t)f->channels);\
    }                                                                                        \
  }
ROW(1)
ROW(4)
ROW(8)

/* The same of a copy. What lies behind its last row may be read. */
#define LINE(R)                                                                              \
  static __attribute__((noinline)) void line_##R(                                            \
      const plan *f, const hit *hits, int64_t count, const float *x, const float *w,         \
      float *y, int64_t y_step, int64_t n) {                                                 \
    vec sum[R];                                                                              \
    int64_t in = f->q->in;                                                                   \
    UNROLL for (int r = 0; r < R; r++) sum[r] = (vec){0};                                    \
    for (int64_t i = 0; i < count; i++) {                                                    \
      const float *a = x + hits[i].x, *b = w + hits[i].tap * in * LANES;                     \
      if (in >= LANES) {                                                                     \
        for (int64_t j = 0; j < in; j += 4, a += 4)                                          \
          UNROLL for (int k = 0; k < 4; k++, b += LANES) {                                   \
            vec by = *(const vec *)b;                                                        \
            UNROLL for (int r = 0; r < R; r++) sum[r] += a[r * STEP + k] * by;               \
          }                                                                                  \
      } else if (in == 1) {                                                                  \
        vec by = *(const vec *)b;                                                            \
        UNROLL for (int r = 0; r < R; r++) sum[r] += *(const vec *)(a + r * STEP) * by;      \
      } else {                                                                               \
        for (int64_t j = 0; j < in; j++, b += LANES) {                                       \
          ints at = f->by[j];                                                                \
          vec by = *(const vec *)b;                                                          \
          UNROLL for (int r = 0; r < R; r++) sum[r] +=                                       \
              shuffled(*(const vec *)(a + r * STEP), at) * by;                               \
        }                                                                                    \
      }                                                                                      \
    }                                                                                        \
    UNROLL for (int r = 0; r < R; r++) if (r < n) *(vec *)(y + r * y_step) = sum[r];         \
  }
LINE(8)
LINE(14)

/* The taps that a span of row (o0, o1) meets. */
static int64_t hits_of(const lehr_convolution *q, const span *a, const span *b, const span *c,
                       hit *made) {
  const int64_t *k = q->kernel, *s = q->x_step + 1;
  int64_t n = 0;
  for (int64_t i = 0; i < a->taps; i++)
    for (int64_t j = 0; j < b->taps; j++)
      for (int64_t l = 0; l < c->taps; l++)
        made[n++] = (hit){
            (a->at + i * a->tap_at) * s[0] + (b->at + j * b->tap_at) * s[1] +
                (c->at + l * c->tap_at) * s[2],
            ((a->low + i * a->tap_step) * k[1] + b->low + j * b->tap_step) * k[2] + c->low +
                l * c->tap_step};
  return n;
}

/* Rows of results, numbered through the batch and two dimensions; of each span of one, what it
   does. */
typedef void (*strip)(const plan *f, int64_t piece, const hit *hits, int64_t count,
                      const span *c, const float *x, float *y, float *w);

static void rows_of(const plan *f, int64_t chunk, strip does, float *w) {
  const lehr_convolution *q = f->q;
  int64_t part = chunk / f->wide, piece = chunk % f->wide;
  hit *hits = scratch(0, (f->taps + 1) * (int64_t)sizeof(hit));
  for (int64_t i = f->rows * part / f->parts; i < f->rows * (part + 1) / f->parts; i++) {
    int64_t image = i / q->many[1] / q->many[0];
    span a = meet(q, 0, i / q->many[1] % q->many[0]), b = meet(q, 1, i % q->many[1]);
    const float *x = q->x + image * q->x_step[0];
    float *y = q->y + image * q->y_step[0] + a.first * q->y_step[1] + b.first * q->y_step[2];
    for (int64_t s = 0; s < f->count; s++) {
      const span *c = f->spans + s;
      does(f, piece, hits, hits_of(q, &a, &b, c, hits), c, x, y, w);
    }
  }
}

#define FROM(piece) (f->blocks * (piece) / f->wide)

static void sum(const plan *f, int64_t piece, const hit *hits, int64_t count, const span *c,
                const float *x, float *y, float *w) {
  const lehr_convolution *q = f->q;
  const float *limit = end_of(q->x, q->x_step, q->size, q->batch, f->channels);
  int64_t x_step = c->step_at * q->x_step[3], y_step = c->step * q->y_step[3];
  y += c->first * q->y_step[3];
  for (int64_t b = FROM(piece); b < FROM(piece + 1); b++) { /* its weights stay in the cache */
    int64_t at = block_at(f, b), from = met_at(f, at);
    for (int64_t i = 0; i < c->count; i += STRIP) {
      int64_t n = least(c->count - i, STRIP);
      (n == 1 ? row_1 : n <= 4 ? row_4 : row_8)(
          f, hits, count, x + i * x_step + from, x_step, w + b * f->span, y + i * y_step + at,
          y_step, n, limit);
    }
  }
}

static void correlate(void *ctx, int64_t chunk, int64_t worker) {
  const plan *f = ctx;
  (void)worker;
  rows_of(f, chunk, sum, f->w);
}

static int64_t pixels_of(const int64_t *size) { return size[0] * size[1] * size[2]; }

static void dense(int64_t *step, const int64_t *size, int64_t pixel) {
  step[3] = pixel;
  for (int d = 3; d > 0; d--) step[d - 1] = step[d] * size[d - 1];
}

/* `count` channels of an image that has them `apart`, together in `to`; `back`: from there. */
static void turn_block(float *apart, int64_t step, float *to, int64_t to_step, int64_t pixels,
                       int64_t count, int back, const float *bias) {
  int64_t whole = pixels / LANES * LANES;
  for (int64_t c = 0; c < count; c += LANES)
    for (int64_t p = 0; p < whole; p += LANES) {
      float *a = apart + c * step + p, *b = to + p * to_step + c;
      square(back ? b : a, back ? to_step : step, back ? a : b, back ? step : to_step,
             bias ? bias + c : NULL);
    }
  for (int64_t p = whole; p < pixels; p++)
    for (int64_t c = 0; c < count; c++)
      if (back)
        apart[c * step + p] = to[p * to_step + c] + (bias ? bias[c] : 0);
      else
        to[p * to_step + c] = apart[c * step + p];
}

/* A copy of a block of an image's channels, and what lies between its pixels. */
static const float *copy_of(const float *x, const int64_t *x_step, const float *apart,
                            const int64_t *turn, const int64_t *size, int64_t image,
                            int64_t channel, int64_t count, int which) {
  float *made = scratch(which, (pixels_of(size) + LONG) * STEP * 4), *to = made;
  if (apart) {
    turn_block((float *)apart + image * turn[0] + channel * turn[1], turn[1], made, STEP,
               pixels_of(size), count, 0, NULL);
    return made;
  }
  for (int64_t i = 0; i < size[0]; i++)
    for (int64_t j = 0; j < size[1]; j++) {
      const float *from = x + image * x_step[0] + i * x_step[1] + j * x_step[2] + channel;
      for (int64_t k = 0; k < size[2]; k++, to += STEP, from += x_step[3])
        for (int64_t c = 0; c < count; c += LANES) *(vec *)(to + c) = *(const vec *)(from + c);
    }
  return made;
}

/* n results, a way apart. */
static void strips(const plan *f, const hit *hits, int64_t count, const float *x, int64_t x_step,
                   float *y, int64_t y_step, int64_t n, const float *limit) {
  for (int64_t i = 0, m; i < n; i += m) {
    m = least(n - i, x_step == STEP && n - i > STRIP ? LONG : STRIP);
    if (x_step == STEP && n > 4)
      (m > STRIP ? line_14 : line_8)(f, hits, count, x + i * STEP, f->w, y + i * y_step, y_step, m);
    else
      (m == 1 ? row_1 : m <= 4 ? row_4 : row_8)(
          f, hits, count, x + i * x_step, x_step, f->w, y + i * y_step, y_step, m, limit);
  }
}

/* All results of a block: along rows or, where few of a row meet the same taps, down columns. */
static void whole_block(const plan *f) {
  const lehr_convolution *q = f->q;
  const float *limit = end_of(q->x, q->x_step, q->size, 1, f->channels);
  const int64_t *xs = q->x_step, *ys = q->y_step;
  hit *hits = scratch(0, (f->taps + 1) * (int64_t)sizeof(hit));
  for (int64_t i = 0; i < q->many[0]; i++) {
    span a = meet(q, 0, i);
    for (const span *b = f->tall; b < f->tall + f->tall_count; b++)
      for (const span *c = f->spans; c < f->spans + f->count; c++) {
        int64_t count = hits_of(q, &a, b, c, hits);
        int down = c->count < 4 && b->count > c->count;
        const span *d = down ? b : c, *e = down ? c : b;
        int64_t k = 2 + !down, l = 2 + down;
        float *y = q->y + a.first * ys[1] + b->first * ys[2] + c->first * ys[3];
        for (int64_t j = 0; j < e->count; j++)
          strips(f, hits, count, q->x + j * e->step_at * xs[l], d->step_at * xs[k],
                 y + j * e->step * ys[l], d->step * ys[k], d->count, limit);
      }
  }
}

/* A block of channels of an image. */
static void correlate_block(void *ctx, int64_t chunk, int64_t worker) {
  plan f = *(const plan *)ctx;
  lehr_convolution q = *f.q;
  int64_t image = chunk / f.blocks, b = chunk % f.blocks, at = block_at(&f, b);
  int64_t count = q.in < LANES ? LANES : q.in, pixels = pixels_of(q.many);
  (void)worker;
  if (q.x_from || f.taps * q.in > FEW) {
    q.x = copy_of(q.x, q.x_step, q.x_from, q.x_turn, q.size, image, met_at(&f, at), count, 1);
    dense(q.x_step, q.size, STEP);
  } else {
    q.x += image * q.x_step[0] + met_at(&f, at);
  }
  if (q.y_into) {
    q.y = scratch(2, pixels * LANES * 4);
    dense(q.y_step, q.many, LANES);
  } else {
    q.y += image * q.y_step[0] + at;
  }
  q.batch = 1;
  f.w += b * f.span;
  f.q = &q, f.channels = count;
  whole_block(&f);
  if (q.y_into)
    turn_block(q.y_into + image * q.y_turn[0] + at * q.y_turn[1], q.y_turn[1], q.y, LANES, pixels,
               LANES, 1, q.y_bias ? q.y_bias + at : NULL);
}

/* Whether threads are to work on copies of blocks. */
static int by_block(const lehr_runtime *rt, const plan *f) {
  int64_t tasks = f->q->batch * f->blocks;
  int64_t bytes = (pixels_of(f->q->size) + pixels_of(f->q->many)) * STEP * 4;
  return f->channels >= LANES && bytes <= FITS && (rt->threads == 1 || tasks >= 2 * rt->threads);
}

/* Adds e * x over n results in a row to the gradients of T taps; `LOAD`s vectors. */
#define TAPS(name, T, LOAD)                                                                  \
  static __attribute__((noinline)) void name##_##T(                                          \
      const plan *f, const hit *hits, const float *x, int64_t x_step, const float *x_limit,  \
      const float *g, int64_t g_step, const float *g_limit, int64_t n, float *w) {           \
    int64_t in = f->q->in;                                                                   \
    (void)x_limit, (void)g_limit;                                                            \
    for (int64_t j = 0; j < in; j++) {                                                       \
      vec sums[T];                                                                           \
      const float *at[T];                                                                    \
      ints by = f->by[j];                                                                    \
      UNROLL for (int t = 0; t < T; t++) at[t] = x + hits[t].x;                              \
      UNROLL for (int t = 0; t < T; t++) sums[t] =                                           \
          *(const vec *)(w + (hits[t].tap * in + j) * LANES);                                \
      if (in == 1)                                                                           \
        for (int64_t i = 0; i < n; i++) {                                                    \
          vec e = LOAD(g + i * g_step, g_limit);                                             \
          UNROLL for (int t = 0; t < T; t++) sums[t] += e * LOAD(at[t] + i * x_step, x_limit);\
        }                                                                                    \
      else                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                    \
          vec e = LOAD(g + i * g_step, g_limit);                                             \
          UNROLL for (int t = 0; t < T; t++) sums[t] +=                                      \
              e * shuffled(LOAD(at[t] + i * x_step, x_limit), by);                           \
        }                                                                                    \
      UNROLL for (int t = 0; t < T; t++) *(vec *)(w + (hits[t].tap * in + j) * LANES) =      \
          sums[t];                                                                           \
    }                                                                                        \
  }
#define WHOLE(a, limit) (*(const vec *)(a))
#define PART(a, limit) taken(a, f->channels, limit)
TAPS(whole, 1, WHOLE)
TAPS(whole, 3, WHOLE)
TAPS(whole, 6, WHOLE)
TAPS(part, 1, PART)

/* The same of a tap, where a vector is of one group. */
static __attribute__((noinline)) void group_of(const float *x, int64_t x_step, const float *g,
                                               int64_t g_step, int64_t n, int64_t in, float *w) {
  for (int64_t j = 0; j < in; j += 8, w += 8 * LANES) {
    vec sums[8];
    UNROLL for (int k = 0; k < 8; k++) sums[k] = *(const vec *)(w + k * LANES);
    for (int64_t i = 0; i < n; i++) {
      vec e = *(const vec *)(g + i * g_step);
      UNROLL for (int k = 0; k < 8; k++) sums[k] += e * x[i * x_step + j + k];
    }
    UNROLL for (int k = 0; k < 8; k++) *(vec *)(w + k * LANES) = sums[k];
  }
}

static void gather(const plan *f, int64_t piece, const hit *hits, int64_t count, const span *c,
                   const float *x, float *y, float *w) {
  const lehr_convolution *q = f->q;
  const float *x_limit = end_of(q->x, q->x_step, q->size, q->batch, f->channels);
  const float *g_limit = end_of(q->y, q->y_step, q->many, q->batch, f->channels);
  y += c->first * q->y_step[3];
  for (int64_t b = FROM(piece); b < FROM(piece + 1); b++) {
    int64_t at = block_at(f, b);
    int64_t x_step = c->step_at * q->x_step[3], y_step = c->step * q->y_step[3];
    if (q->in >= LANES) {
      for (int64_t t = 0; t < count; t++)
        group_of(x + met_at(f, at) + hits[t].x, x_step, y + at, y_step, c->count, q->in,
                 w + b * f->span + hits[t].tap * q->in * LANES);
      continue;
    }
    for (int64_t t = 0, many; t < count; t += many) {
      many = f->channels < LANES ? 1 : count - t >= 6 ? 6 : count - t >= 3 ? 3 : 1;
      (f->channels < LANES ? part_1 : many == 6 ? whole_6 : many == 3 ? whole_3 : whole_1)(
          f, hits + t, x + at, x_step, x_limit, y + at, y_step, g_limit, c->count,
          w + b * f->span);
    }
  }
}

static void weigh(void *ctx, int64_t chunk, int64_t worker) {
  const plan *f = ctx;
  (void)worker;
  rows_of(f, chunk, gather, f->w + chunk / f->wide * f->blocks * f->span);
}

/* Which lane holds channel `j` of the group of each lane. */
static void begin(plan *f, const lehr_convolution *q) {
  const int64_t *k = q->kernel;
  f->q = q;
  f->channels = q->groups * q->in;
  f->blocks = (f->channels + LANES - 1) / LANES;
  f->taps = k[0] * k[1] * k[2];
  f->span = f->taps * q->in * LANES;
  f->rows = q->batch * q->many[0] * q->many[1];
  for (int j = 0; j < q->in && q->in < LANES; j++)
    for (int l = 0; l < LANES; l++) f->by[j][l] = (int32_t)(l / q->in * q->in + j);
  span *made = malloc((size_t)(q->many[1] + q->many[2] + 1) * sizeof(span));
  if (!made) abort();
  f->count = spans(q, 2, made);
  f->spans = made;
  f->tall = made + q->many[2];
  f->tall_count = spans(q, 1, made + q->many[2]);
}

/* Zeros, from the begin of a line of the cache. */
static float *room(int64_t floats) {
  size_t bytes = ((size_t)floats * 4 + 64) / 64 * 64;
  float *made = aligned_alloc(64, bytes);
  if (!made) abort();
  return memset(made, 0, bytes);
}

/* Where in the kernel the numbers of a block begin, [tap][channel that is met][lane]: `to` gets the
   place of each lane's, -1 for one without a channel. */
static void lanes_of(const plan *f, int64_t b, int64_t *to) {
  const lehr_convolution *q = f->q;
  for (int64_t l = 0; l < LANES; l++) {
    int64_t c = block_at(f, b) + l;
    to[l] = c < f->channels ? c / q->in * q->w_step[0] + c % q->in * q->w_step[1] : -1;
  }
}

/* How far its channel and tap number `n` lie from there. */
static int64_t place_of(const plan *f, int64_t n) {
  const int64_t *k = f->q->kernel, *s = f->q->w_step;
  int64_t j = n % f->q->in, t = n / f->q->in;
  return j * s[2] + t / (k[1] * k[2]) * s[3] + t / k[2] % k[1] * s[4] + t % k[2] * s[5];
}

static double work_of(const plan *f) {
  return (double)f->rows * (double)f->q->many[2] * (double)(f->channels * f->taps * f->q->in);
}

/* How many tasks to make: of some 10 microseconds or more. */
static int64_t tasks_of(const lehr_runtime *rt, const plan *f) {
  if (rt->threads == 1) return 1;
  return least(4 * rt->threads, (int64_t)(work_of(f) / 2.5e5) + 1);
}

/* y = the convolution of x with w, or its adjoint. */
EXPORT void lehr_convolve_narrow(const lehr_runtime *rt, const lehr_convolution *q) {
  plan f;
  begin(&f, q);
  f.parts = least(tasks_of(rt, &f), f.rows);
  f.wide = f.parts ? least((tasks_of(rt, &f) + f.parts - 1) / f.parts, f.blocks) : 1;
  f.w = room(f.blocks * f.span);
  for (int64_t b = 0; b < f.blocks; b++) {
    int64_t at[LANES];
    lanes_of(&f, b, at);
    for (int64_t n = 0; n < f.taps * q->in; n++) {
      const float *from = q->w + place_of(&f, n);
      float *to = f.w + b * f.span + n * LANES;
      for (int l = 0; l < LANES; l++) to[l] = at[l] < 0 ? 0 : from[at[l]];
    }
  }
  if (f.parts && by_block(rt, &f)) {
    spread(rt, correlate_block, &f, q->batch * f.blocks);
  } else {
    TURN_IN(rt, q);
    if (f.parts) spread(rt, correlate, &f, f.parts * f.wide);
    TURN_OUT(rt, q);
  }
  free(f.w);
  free((void *)f.spans);
}

/* w = the gradient of the plain convolution's kernel, from x and the result's gradient y. Rows are
   cut into parts by sizes alone: sums do not depend on the number of threads. */
EXPORT void lehr_convolve_weight_narrow(const lehr_runtime *rt, const lehr_convolution *q) {
  plan f;
  begin(&f, q);
  TURN_IN(rt, q);
  int64_t all = f.blocks * f.span, parts = least((int64_t)(work_of(&f) / 5e5) + 1, PARTS);
  f.parts = least(parts, f.rows);
  f.wide = f.parts ? least((tasks_of(rt, &f) + f.parts - 1) / f.parts, f.blocks) : 1;
  f.w = room(f.parts * all);
  if (f.parts) spread(rt, weigh, &f, f.parts * f.wide);
  for (int64_t b = 0; b < f.blocks; b++) {
    int64_t at[LANES];
    lanes_of(&f, b, at);
    for (int64_t n = 0; n < f.taps * q->in; n++) {
      vec total = {0};
      for (int64_t p = 0; p < f.parts; p++)
        total += *(const vec *)(f.w + p * all + b * f.span + n * LANES);
      for (int l = 0; l < LANES; l++)
        if (at[l] >= 0) q->w[place_of(&f, n) + at[l]] = total[l];
    }
  }
  free(f.w);
  free((void *)f.spans);
}

EXPORT void lehr_install(lehr_runtime *rt) {
  rt->convolve_narrow = lehr_convolve_narrow;
  rt->convolve_weight_narrow = lehr_convolve_weight_narrow;
}
