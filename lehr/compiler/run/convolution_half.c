
/* Convolution of bfloat16 images whose channels lie together, its adjoint, and the gradient of its
   kernel: products of packed matrices, summed in float32. A row of a matrix is what a pixel of the
   result meets, part by part; it is copied into panels and never exists elsewhere. A part is a tap,
   or all taps together where their channels are too few to fill steps. Where panels are of no use,
   or a number is denormal, rows become float32 and the library multiplies them. Taps of a kernel
   follow each other in memory.

   Pixels of the result that meet the same taps are blocks of their own: those between the pixels of
   an image that an adjoint puts apart, and where images are small, those at borders. */
enum { BLOCK = 128, CHUNK = 4096, WIDTH = 64 }; /* pixels at once, for weights; channels of x */
enum { SLIM = 16, SMALL = 32 }; /* channels that do not fill steps; lengths whose borders count */
enum { SUMS = 1 << 20 }; /* bytes that stay in the second cache beside what is read */

/* The places of the result along a dimension, those together that meet the same taps. */
typedef struct {
  int64_t classes;
  int32_t *place, *edge; /* in this order; where each class begins */
  uint8_t *met;          /* [classes][kernel] */
} side;

typedef struct {
  const lehr_convolution *q;
  const lehr_runtime *rt;
  const char *x, *y;
  int32_t *meet[3]; /* [many][kernel] of each dimension: the place in x, or -1 */
  int32_t (*tap)[3]; /* where in the kernel each tap is, those together that a class meets */
  int32_t *order;    /* where among these each tap is */
  int32_t (*span)[2]; /* the first numbers of a run that a place along the last dimension meets */
  side sides[3];
  int64_t taps, pixels, first, count; /* of a chunk: its first pixel and how many */
  int64_t parts, in, run;             /* of a row; numbers of one; taps that lie together in x */
  int64_t steps, panel;               /* 32 numbers are a step of a part; bytes of a panel */
  int64_t width, groups; /* of blocks of a gradient: their numbers of a part, how many else */
  char *packed;
  float *made;
  int64_t in_up, out_up;
  int32_t (*at)[4];
  int32_t bad; /* a number that panels do not take was seen */
  int plain, apart; /* whether parts are blocks of their own */
} plan;

static int64_t up(int64_t n) { return (n + 31) / 32 * 32; }

/* A part of memory, or how much there has to be. */
static void *take(char **room, int64_t bytes) {
  char *made = *room;
  *room += (bytes + 63) / 64 * 64;
  return made;
}

/* Little work is done at once by the thread that asks for it. */
static void share(const lehr_runtime *rt, lehr_task task, plan *f, int64_t chunks) {
  double work = 2.0 * (double)f->q->in * (double)f->q->out * (double)f->taps * (double)f->pixels;
  if (work < 1e6)
    for (int64_t n = 0; n < chunks; n++) task(f, n, 0);
  else
    spread(rt, task, f, chunks);
}

/* Batch and place of some pixels of a class of y, dimensions in this order. */
static void places(const plan *f, const int32_t *class, const int *order, int64_t first,
                   int64_t count, int32_t (*at)[4]) {
  int64_t many[4] = {f->q->batch}, n[4];
  const int32_t *place[4] = {NULL};
  for (int d = 1; d < 4; d++) {
    const side *s = f->sides + d - 1;
    const int32_t *edge = s->edge + class[d - 1];
    place[d] = s->place + edge[0], many[d] = edge[1] - edge[0];
  }
  for (int i = 3; i >= 0; i--) n[order[i]] = first % many[order[i]], first /= many[order[i]];
  for (; count > 0; count--, at++) {
    at[0][0] = (int32_t)n[0];
    for (int d = 1; d < 4; d++) at[0][d] = place[d][n[d]];
    for (int i = 3; i >= 0 && ++n[order[i]] == many[order[i]]; i--) n[order[i]] = 0;
  }
}

static int64_t pixel(const int64_t *step, const int32_t *at) {
  return at[0] * step[0] + at[1] * step[1] + at[2] * step[2] + at[3] * step[3];
}

/* The channels that a pixel meets at a tap, or NULL. */
static inline const char *met(const plan *f, const int32_t *at, int64_t n) {
  const int64_t *k = f->q->kernel;
  const int32_t *tap = f->tap[n];
  const int32_t place[4] = {at[0], f->meet[0][at[1] * k[0] + tap[0]],
                            f->meet[1][at[2] * k[1] + tap[1]], f->meet[2][at[3] * k[2] + tap[2]]};
  if ((place[1] | place[2] | place[3]) < 0) return NULL;
  return f->x + 2 * pixel(f->q->x_step, place);
}

/* n numbers, zeros but for those from `low` to `high`, and nothing that matters up to 31 more. */
static inline void piece(const char *from, int64_t n, int64_t low, int64_t high, char *to) {
#if PACKED
  for (int64_t i = 0; i < n; i += 32) {
    const int64_t a = low > i ? low - i : 0, b = least(high - i, 32);
    const uint32_t here = a < b ? 0xffffffffu >> (32 - (b - a)) << a : 0;
    _mm512_storeu_si512(to + 2 * i, _mm512_maskz_loadu_epi16(here, from + 2 * i));
  }
#else
  memset(to, 0, 2 * (size_t)n);
  low = low < 0 ? 0 : low, high = least(high, n);
  if (low < high) memcpy(to + 2 * low, from + 2 * low, 2 * (size_t)(high - low));
#endif
}

/* Numbers `low` and on of a part of a pixel's row, n of them: where they lie, or NULL for zeros.
   Those of several taps are gathered in `own`, with zeros to the end of a step. */
static inline const char *numbers(const plan *f, const int32_t *at, int64_t part, int64_t low,
                                  int64_t n, char *own) {
  const lehr_convolution *q = f->q;
  const int64_t *k = q->kernel, in = q->in, many = f->run * in;
  if (!f->run) {
    const char *from = met(f, at, part);
    return from ? from + 2 * low : NULL;
  }
  piece(own, 32, 0, 0, own + 2 * (up(n) - 32));
  for (int64_t t = low / many * f->run; t * in < low + n; t += f->run) {
    const int32_t *tap = f->tap[t], last = at[3] * (int32_t)k[2] + tap[2];
    const int32_t place[4] = {
        at[0], f->meet[0][at[1] * k[0] + tap[0]], f->meet[1][at[2] * k[1] + tap[1]],
        f->run > 1 ? at[3] * (int32_t)q->stride[2] - (int32_t)q->pad[2] : f->meet[2][last]};
    const int64_t from = t * in < low ? low - t * in : 0, to = least(many, low + n - t * in);
    const int gone = (place[1] | place[2]) < 0 || f->span[last][1] == 0;
    const char *x = gone ? f->x : f->x + 2 * (pixel(q->x_step, place) + from);
    piece(x, to - from, f->span[last][0] - from, gone ? 0 : f->span[last][1] - from,
          own + 2 * (t * in + from - low));
  }
  return own;
}

/* Which elements of x the results meet along each dimension. */
static void meetings(plan *f, char **room) {
  const lehr_convolution *q = f->q;
  for (int d = 0; d < 3; d++) {
    f->meet[d] = take(room, q->many[d] * q->kernel[d] * 4);
    for (int64_t o = 0; o < q->many[d]; o++)
      for (int64_t k = 0; k < q->kernel[d]; k++) {
        int64_t s = q->stride[d], t = k * q->dilation[d], p = o * s - q->pad[d] + t;
        if (q->transposed) p = (o + q->pad[d] - t) % s ? -1 : (o + q->pad[d] - t) / s;
        f->meet[d][o * q->kernel[d] + k] = p < 0 || p >= q->size[d] ? -1 : (int32_t)p;
      }
  }
  if (!f->run) return;
  f->span = take(room, q->many[2] * q->kernel[2] * 8);
  for (int64_t n = 0; n < q->many[2] * q->kernel[2]; n += f->run) {
    int64_t low = 0, high = f->run;
    while (low < high && f->meet[2][n + low] < 0) low++;
    while (low < high && f->meet[2][n + high - 1] < 0) high--;
    f->span[n][0] = (int32_t)(low * q->in);
    f->span[n][1] = (int32_t)(low < high ? high * q->in : 0);
  }
}

static int alike(const plan *f, int d, int64_t o, int64_t p) {
  const int64_t k = f->q->kernel[d];
  for (int64_t t = 0; t < k; t++)
    if ((f->meet[d][o * k + t] ^ f->meet[d][p * k + t]) < 0) return 0;
  return 1;
}

/* Puts places together that meet the same taps, but for borders unless they count. */
static void classify(plan *f, int d, int borders) {
  side *s = f->sides + d;
  const int64_t many = f->q->many[d], k = f->q->kernel[d];
  const int64_t step = !borders && f->q->transposed ? f->q->stride[d] : 1;
  int32_t *edge = s->edge, *place = s->place, put = 0;
  s->classes = 0;
  memset(s->met, 0, (size_t)(many * k));
  for (int64_t o = 0; o < (borders ? many : least(step, many)); o++) {
    int seen = 0;
    for (int64_t c = 0; borders && c < s->classes && !seen; c++)
      seen = alike(f, d, o, place[edge[c]]);
    if (seen) continue;
    edge[s->classes] = put;
    for (int64_t p = o; p < many; p += step) {
      if (borders && !alike(f, d, o, p)) continue;
      place[put++] = (int32_t)p;
      for (int64_t t = 0; t < k; t++) s->met[s->classes * k + t] |= f->meet[d][p * k + t] >= 0;
    }
    s->classes++;
  }
  edge[s->classes] = put;
}

static int64_t blocks(int64_t pixels) { return (pixels + BLOCK - 1) / BLOCK; }

static int64_t classes(const plan *f) {
  return f->sides[0].classes * f->sides[1].classes * f->sides[2].classes;
}

/* The class of a number along each dimension; how many pixels it has. */
static int64_t class_of(const plan *f, int64_t n, int32_t *class) {
  int64_t many = f->q->batch;
  for (int d = 2; d >= 0; d--) {
    const side *s = f->sides + d;
    class[d] = (int32_t)(n % s->classes), n /= s->classes;
    many *= s->edge[class[d] + 1] - s->edge[class[d]];
  }
  return many;
}

/* The taps that a class meets, in order. */
static int64_t taps_of(const plan *f, const int32_t *class, int32_t *taps) {
  const int64_t *k = f->q->kernel;
  const side *s = f->sides;
  int64_t many = 0;
  for (int64_t t = 0; t < f->taps; t++)
    if (s[0].met[class[0] * k[0] + f->tap[t][0]] & s[1].met[class[1] * k[1] + f->tap[t][1]] &
        s[2].met[class[2] * k[2] + f->tap[t][2]])
      taps[many++] = (int32_t)t;
  return many;
}

/* The end of taps that lie together, from number n on. */
static int64_t stretch(const int32_t *taps, int64_t n, int64_t many) {
  for (n++; n < many && taps[n] == taps[n - 1] + 1;) n++;
  return n;
}

/* How long blocks of these classes take: rows times steps, how often sums are fetched, and the
   kernel, which takes as long as some rows of a step do. */
static double cost(const plan *f, int32_t *taps) {
#if PACKED
  const int64_t round = corner == by_dots ? 8 : SIDE, fetch = corner == by_dots ? 4 : 64;
#else
  const int64_t round = 1, fetch = 4;
#endif
  double sum = 0;
  int32_t class[3];
  for (int64_t n = 0; n < classes(f); n++) {
    const int64_t pixels = class_of(f, n, class), many = taps_of(f, class, taps);
    int64_t steps = many * f->steps;
    for (int64_t t = 0; t < many; t = stretch(taps, t, many)) steps += 2;
    const int64_t rows = (pixels + round - 1) / round * round;
    sum += (double)(rows + fetch * blocks(pixels)) * (double)steps;
  }
  return sum;
}

/* Orders taps and places: a tap belongs to one class of places that an adjoint puts apart. Then
   those at borders are put apart, if that pays. */
static void sort(plan *f, char **room, int borders) {
  const lehr_convolution *q = f->q;
  const int64_t *k = q->kernel;
  int32_t class[3], *taps = take(room, f->taps * 4), (*tap)[3] = take(room, f->taps * 12);
  int64_t put = 0;
  f->order = take(room, f->taps * 4), f->tap = tap;
  memset(f->order, -1, (size_t)f->taps * 4);
  for (int64_t t = 0; t < f->taps; t++) {
    tap[t][0] = (int32_t)(t / (k[1] * k[2]));
    tap[t][1] = (int32_t)(t / k[2] % k[1]), tap[t][2] = (int32_t)(t % k[2]);
  }
  for (int d = 0; d < 3; d++) {
    side *s = f->sides + d;
    s->place = take(room, q->many[d] * 4), s->edge = take(room, (q->many[d] + 1) * 4);
    s->met = take(room, q->many[d] * k[d]);
    classify(f, d, 0);
  }
  for (int64_t n = 0; q->transposed && !f->run && n < classes(f); n++) {
    class_of(f, n, class);
    for (int64_t i = 0, many = taps_of(f, class, taps); i < many; i++)
      f->order[taps[i]] = (int32_t)put++;
  }
  f->tap = take(room, f->taps * 12);
  for (int64_t t = 0; t < f->taps; t++) { /* those that nobody meets are last */
    if (f->order[t] < 0) f->order[t] = (int32_t)put++;
    memcpy(f->tap[f->order[t]], tap[t], 12);
  }
  if (f->run || f->pixels == 0 || !borders) return;
  const double usual = cost(f, taps);
  for (int d = 0; d < 3; d++)
    if (q->many[d] <= SMALL) classify(f, d, 1);
  if (cost(f, taps) < 0.97 * usual) return;
  for (int d = 0; d < 3; d++) classify(f, d, 0);
}

static void flag(plan *f, int bad) {
  if (bad) __atomic_store_n(&f->bad, 1, __ATOMIC_RELAXED);
}

#if PACKED
static inline __m512i lowest(__m512i low, __m512i x) { /* magnitudes less one: 0 is the largest */
  return _mm512_min_epu16(low, _mm512_sub_epi16(_mm512_slli_epi16(x, 1), _mm512_set1_epi16(1)));
}

static inline int denormal(__m512i low) {
  return _mm512_cmplt_epu16_mask(low, _mm512_set1_epi16(0xff)) != 0;
}

/* A panel of 32 columns of the kernel: of 16 of them and two input channels, up to 16 taps. */
static void pack_kernel(void *ctx, int64_t j, int64_t worker) {
  plan *f = ctx;
  const lehr_convolution *q = f->q;
  const uint16_t *w = (const uint16_t *)(const void *)q->w;
  char *to = f->packed + j * f->panel;
  __m512i low = _mm512_set1_epi16(-1), r[16];
  (void)worker;
  const int64_t many = least(q->out - j * 32, 32), *step = q->w_step;
  w += j * 32 * step[1];
  if (f->parts == 1 && f->taps == 1 && step[1] == 1) {
    flag(f, packed((const char *)w, step[2], 0, many, f->in, 1, 0, to, f->panel));
    return;
  }
  if (f->parts == 1) {
    uint16_t *rows = scratch(2, 64 * f->in);
    for (int64_t o = 0; o < many; o++)
      for (int64_t t = 0; t < f->taps; t++)
        for (int64_t i = 0; i < q->in; i++)
          rows[o * f->in + t * q->in + i] = w[o * step[1] + i * step[2] + t];
    flag(f, packed((char *)rows, f->in, 0, many, f->in, 0, 1, to, f->panel));
    return;
  }
  for (int64_t t0 = 0; t0 < f->taps; t0 += 16)
    for (int64_t n = 0; n < f->steps * 32; n++) {
      int64_t o = n / 16 % 2 * 16, i = n / 32 * 32 + n % 16 * 2;
      const uint16_t *from = w + o * step[1] + i * step[2] + t0;
      char *put = to + n / 32 * PART + n % 32 * 64;
      for (int l = 0; l < 16; l++, from += step[1]) {
        const __mmask16 here = o + l < many ? first(f->taps - t0) : 0;
        const __mmask16 one = i < q->in ? here : 0, two = i + 1 < q->in ? here : 0;
        const __m512i a = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(one, from));
        const __m512i b = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(two, from + step[2]));
        r[l] = _mm512_or_si512(a, _mm512_slli_epi32(b, 16));
        low = lowest(low, r[l]);
      }
      transpose(r);
      UNROLL for (int t = 0; t < 16; t++)
        if (t < f->taps - t0) _mm512_store_si512(put + f->order[t0 + t] * f->steps * PART, r[t]);
    }
  flag(f, denormal(low));
}

/* These parts of the rows of some pixels as panels. */
static int pack_rows(const plan *f, int64_t count, const int32_t (*at)[4], const int32_t *parts,
                     int64_t many, char *to) {
  __m512i low = _mm512_set1_epi16(-1);
  char own[f->run ? f->steps * 64 + 64 : 1];
  const __mmask32 part = (__mmask32)(0xffffffffu >> (31 - (f->in - 1) % 32));
  for (int64_t r = 0; r < count; r++) {
    char *row = to + r / 32 * many * f->steps * PART + r % 32 / 16 * TILE + r % 16 * 64;
    for (int64_t n = 0; n < many; n++) {
      const char *from = numbers(f, at[r], parts[n], 0, f->in, own);
      for (int64_t s = 0; s < f->steps; s++, row += PART) {
        const __mmask32 here = !from ? 0 : s + 1 < f->steps ? 0xffffffffu : part;
        const __m512i e = _mm512_maskz_loadu_epi16(here, from + s * 64);
        low = lowest(low, e);
        _mm512_store_si512(row, e);
      }
    }
  }
  return denormal(low);
}

/* Panels of 32 channels, whose terms are pixels: rows[n] begin with the first channel or are NULL.
   `turn`: as the left operand. */
static int pack_pixels(const char *const *rows, int64_t n, int64_t channels, int turn, char *to) {
  const __m512i zip = _mm512_load_si512(ZIP), none = _mm512_setzero_si512();
  __m512i low = _mm512_set1_epi16(-1), r[16];
  for (int64_t c = 0; c < channels; c += 32)
    for (int64_t s = 0; s < n; s += 32)
      for (int64_t half = 0; half < 2; half++, to += TILE) {
        const __mmask16 here = first(channels - c - half * 16);
        for (int i = 0; i < 16; i++) {
          int64_t u = s + 2 * i, v = u + 1, skip = 2 * c + half * 32;
          __m512i a = u < n && rows[u] ? NARROW(rows[u] + skip, here) : none;
          __m512i b = v < n && rows[v] ? NARROW(rows[v] + skip, here) : none;
          a = _mm512_inserti64x4(a, _mm512_castsi512_si256(b), 1);
          r[i] = _mm512_permutexvar_epi16(zip, a);
          low = lowest(low, r[i]);
        }
        if (turn) transpose(r);
        for (int i = 0; i < 16; i++) _mm512_store_si512(to + i * 64, r[i]);
      }
  return denormal(low);
}
#endif

/* A row of float32 numbers, zeros where there is none. */
static void widen(const char *from, int64_t n, float *to) {
  if (from)
    floats(from, n, 0, 1, n, to);
  else
    memset(to, 0, 4 * (size_t)n);
}

/* The kernel of a tap in float32: [part][out][in of a part]. */
static void widen_kernel(void *ctx, int64_t tap, int64_t worker) {
  plan *f = ctx;
  const lehr_convolution *q = f->q;
  const uint16_t *w = (const uint16_t *)(const void *)q->w + tap;
  float *to = f->made + f->order[tap] * (f->run ? 1 : q->out) * q->in;
  (void)worker;
  for (int64_t o = 0; o < q->out; o++)
    for (int64_t i = 0; i < q->in; i++) {
      const uint32_t bits = (uint32_t)w[o * q->w_step[1] + i * q->w_step[2]] << 16;
      memcpy(to + o * f->in + i, &bits, 4);
    }
}

/* The results of a block of pixels. */
static void convolve(void *ctx, int64_t chunk, int64_t worker) {
  plan *f = ctx;
  const lehr_convolution *q = f->q;
  const int order[4] = {0, 1, 2, 3};
  int32_t at[BLOCK][4], class[3], *parts = scratch(2, 4 * f->taps);
  int64_t ld = up(q->out), pixels, many = 1;
  float *sums = scratch(0, 4 * BLOCK * ld);
  (void)worker;
  if (f->bad && !f->plain) return;
  for (int64_t n = 0; pixels = class_of(f, n, class), chunk >= blocks(pixels); n++)
    chunk -= blocks(pixels);
  const int64_t from = chunk * BLOCK, count = least(BLOCK, pixels - from);
  places(f, class, order, from, count, at);
  parts[0] = 0;
  if (!f->run) many = taps_of(f, class, parts);
  if (many == 0) memset(sums, 0, (size_t)(4 * count * ld));
  if (f->plain) {
    float *rows = scratch(1, 4 * BLOCK * f->in);
    char own[f->run ? f->steps * 64 + 64 : 1];
    for (int64_t n = 0; n < many; n++) {
      for (int64_t i = 0; i < count; i++)
        widen(numbers(f, at[i], parts[n], 0, f->in, own), f->in, rows + i * f->in);
      f->rt->sgemm(0, 1, count, q->out, f->in, 1, rows, f->in, f->made + parts[n] * q->out * f->in,
                   f->in, n > 0, sums, ld);
    }
  }
#if PACKED
  else {
    const int64_t step = f->steps * PART, panel = many * step;
    char *rows = scratch(1, BLOCK / 32 * panel);
    flag(f, pack_rows(f, count, (const int32_t(*)[4])at, parts, many, rows));
    BEGIN;
    for (int64_t n = 0, end; n < many; n = end) {
      end = stretch(parts, n, many);
      panels(rows + n * step, panel, f->packed + parts[n] * step, f->panel, (end - n) * f->steps,
             sums, ld, n > 0, count, q->out);
    }
    END;
  }
#endif
  for (int64_t i = 0; i < count; i++)
    narrow(sums + i * ld, 1, q->out, (char *)f->y + 2 * pixel(q->y_step, at[i]));
}

/* Gradients of results as the left operand: a block of channels. */
static void pack_gradients(void *ctx, int64_t block, int64_t worker) {
  plan *f = ctx;
  const lehr_convolution *q = f->q;
  int64_t low = block * WIDTH, many = least(WIDTH, q->out - low);
  const char **rows = scratch(2, CHUNK * (int64_t)sizeof(char *));
  (void)worker;
  for (int64_t i = 0; i < f->count; i++) rows[i] = f->y + 2 * (pixel(q->y_step, f->at[i]) + low);
  if (f->plain)
    for (int64_t i = 0; i < f->count; i++)
      widen(rows[i], many, (float *)f->packed + i * q->out + low);
#if PACKED
  else
    flag(f, pack_pixels(rows, f->count, many, 1, f->packed + low / 32 * f->panel));
#endif
}

/* The sums of some numbers of an output channel, [part][out][width], in the kernel's layout. */
static void put(const plan *f, const float *sums, int64_t o, int64_t low, int64_t many) {
  const lehr_convolution *q = f->q;
  int64_t part = f->out_up * f->width;
  float *w = q->w + o * q->w_step[1] + (f->parts == 1 ? 0 : low * q->w_step[2]);
  sums += o * f->width;
  if (f->parts == 1) {
    int64_t t = low / q->in, i = low % q->in;
    for (int64_t n = 0; n < many; n++, i + 1 < q->in ? i++ : (i = 0, t++))
      w[i * q->w_step[2] + t] = sums[n];
    return;
  }
#if PACKED
  for (int64_t i = 0; i < many; i += 16)
    for (int64_t t0 = 0; t0 < f->taps; t0 += 16) {
      __m512i r[16];
      for (int t = 0; t < 16; t++)
        r[t] = t < f->taps - t0 ? _mm512_loadu_si512(sums + (t0 + t) * part + i)
                                : _mm512_setzero_si512();
      transpose(r);
      UNROLL for (int l = 0; l < 16; l++)
        if (i + l < many) {
          float *to = w + (i + l) * q->w_step[2] + t0;
          __builtin_prefetch(to + q->w_step[1], 1); /* of the next channel: it is far away */
          _mm512_mask_storeu_epi32(to, first(f->taps - t0), r[l]);
        }
    }
#else
  for (int64_t t = 0; t < f->taps; t++)
    for (int64_t i = 0; i < many; i++) w[i * q->w_step[2] + t] = sums[t * part + i];
#endif
}

/* Adds a chunk's share of the gradient of a block of the kernel: some numbers of every part and some
   output channels, whose sums go where they are wanted behind the last chunk, out of the cache; or
   of one part and all output channels. */
static void weigh(void *ctx, int64_t task, int64_t worker) {
  plan *f = ctx;
  const lehr_convolution *q = f->q;
  int64_t blocks = (f->in + f->width - 1) / f->width, block = task % blocks, group = task / blocks;
  int64_t low = block * f->width, many = least(f->width, f->in - low), add = f->first > 0;
  const char **rows = scratch(2, CHUNK * (int64_t)sizeof(char *));
  float *made = f->made + block * f->parts * f->out_up * f->width;
  char *own = f->run ? scratch(6, CHUNK * 64 + 64) : NULL; /* behind a row the next is written */
  (void)worker;
  if (f->bad && !f->plain) return;
  int64_t from = 0, to = 0; /* where there are any */
  for (int64_t part = f->apart ? group : 0; part < (f->apart ? group + 1 : f->parts); part++) {
    from = to = 0;
    for (int64_t i = 0; i < f->count; i++) {
      rows[i] = numbers(f, f->at[i], part, low, many, own + (f->run ? i * 64 : 0));
      if (rows[i]) from = to ? from : i / 32 * 32, to = i + 1;
    }
    float *c = made + part * f->out_up * f->width;
    if (f->plain) {
      float *x = scratch(1, 4 * CHUNK * WIDTH);
      for (int64_t i = 0; i < f->count; i++) widen(rows[i], many, x + i * many);
      f->rt->sgemm(1, 0, q->out, many, f->count, 1, (float *)f->packed, q->out, x, many, add, c,
                   f->width);
    }
#if PACKED
    else {
      const int64_t o0 = f->apart ? 0 : lehr_edge(q->out, f->groups, group);
      const int64_t o1 = f->apart ? q->out : lehr_edge(q->out, f->groups, group + 1);
      const int64_t panel = (to - from + 31) / 32 * PART;
      char *x = scratch(1, WIDTH / 32 * f->panel);
      flag(f, pack_pixels(rows + from, to - from, many, 0, x));
      BEGIN;
      for (int64_t o = o0; o < o1; o += 32)
        for (int64_t i = 0; i < many; i += 32)
          corner(f->packed + o / 32 * f->panel + from * 64, x + i / 32 * panel, panel / PART,
                 c + o * f->width + i, f->width, (int)add, least(o1 - o, 32), many - i, NULL);
      END;
      if (!f->apart && part + 1 == f->parts && f->first + f->count == f->pixels)
        for (int64_t o = o0; o < o1; o++) put(f, made, o, low, many);
    }
#endif
  }
}

/* All of an output channel. */
static void put_all(void *ctx, int64_t o, int64_t worker) {
  const plan *f = ctx;
  (void)worker;
  for (int64_t low = 0; low < f->in; low += f->width)
    put(f, f->made + low * f->parts * f->out_up, o, low, least(f->width, f->in - low));
}

/* What both begin with; the work of each group. */
static void each_group(const lehr_runtime *rt, const lehr_convolution *given, int itemsize,
                       void (*work)(plan *)) {
  lehr_convolution q = *given;
  plan f = {.q = &q, .rt = rt, .taps = q.kernel[0] * q.kernel[1] * q.kernel[2]};
  f.pixels = q.batch * q.many[0] * q.many[1] * q.many[2];
  f.parts = f.taps, f.in = q.in;
  if (q.in <= SLIM && f.taps > 1 &&
      (!q.transposed || (q.stride[0] == 1 && q.stride[1] == 1 && q.stride[2] == 1))) {
    const int together = !q.transposed && q.dilation[2] == 1 && q.x_step[3] == q.in;
    f.run = together ? q.kernel[2] : 1;
    f.parts = 1, f.in = f.taps * q.in;
  }
  f.in_up = up(f.in), f.out_up = up(q.out), f.steps = f.in_up / 32;
  int64_t bytes = 2048 + 8 * q.many[2] * q.kernel[2] + 32 * f.taps; /* of tables, and gaps */
  for (int d = 0; d < 3; d++) bytes += q.many[d] * (5 * q.kernel[d] + 8);
  char *room = scratch(7, bytes);
  meetings(&f, &room);
  sort(&f, &room, itemsize == 2);
  for (int64_t g = 0; g < q.groups; g++) {
    q.w = (float *)((char *)given->w + g * q.w_step[0] * itemsize);
    f.x = (const char *)given->x + 2 * g * q.in, f.y = (const char *)given->y + 2 * g * q.out;
    f.plain = !PACKED, f.bad = 0;
    work(&f);
    if (f.bad) f.plain = 1, work(&f);
  }
}

static void results(plan *f) {
  const lehr_convolution *q = f->q;
  int64_t chunks = 0;
  int32_t class[3];
  if (f->plain) {
    f->made = scratch(3, 4 * f->taps * q->out * q->in);
    share(f->rt, widen_kernel, f, f->taps);
  }
#if PACKED
  else {
    f->panel = f->parts * f->steps * PART;
    f->packed = scratch(3, f->out_up / 32 * f->panel);
    share(f->rt, pack_kernel, f, f->out_up / 32);
  }
#endif
  for (int64_t n = 0; n < classes(f); n++) chunks += blocks(class_of(f, n, class));
  share(f->rt, convolve, f, chunks);
}

/* Blocks are so large that their sums stay in the second cache from one chunk or tap to the next,
   and so many that each thread has some. Where few pixels are there, those of a place lie together:
   at a border whole steps of them meet nothing. */
static void gradients(plan *f) {
  const lehr_convolution *q = f->q;
  const int32_t all[3] = {0, 0, 0};
  const int together[4] = {1, 2, 3, 0}, apart[4] = {0, 1, 2, 3};
  f->width = f->run ? 32 : WIDTH;
  int64_t blocks = (f->in + f->width - 1) / f->width, size = 4 * f->parts * f->out_up * f->width;
  int64_t deep = up(least(CHUNK, f->pixels)), groups = (size + SUMS - 1) / SUMS;
  int64_t wanted = f->rt->threads == 1 ? 1 : 3 * f->rt->threads, high = f->out_up / 32;
  while (groups * blocks < wanted && groups < high) groups++;
  f->apart = f->plain || groups * blocks < least(wanted, f->parts * blocks);
  f->groups = f->apart ? f->parts : least(groups, high);
  f->made = scratch(3, size * blocks);
  f->packed = scratch(4, (f->plain ? 4 : 2) * f->out_up * deep);
  f->at = scratch(5, (int64_t)sizeof(*f->at) * deep);
  for (f->first = 0; f->first < f->pixels; f->first += CHUNK) {
    f->count = least(CHUNK, f->pixels - f->first);
    f->panel = up(f->count) * 64;
    places(f, all, f->pixels <= CHUNK ? together : apart, f->first, f->count, f->at);
    share(f->rt, pack_gradients, f, (q->out + WIDTH - 1) / WIDTH);
    share(f->rt, weigh, f, blocks * f->groups);
  }
  if (f->pixels == 0) memset(f->made, 0, (size_t)(size * blocks));
  if (f->pixels == 0 || f->apart) share(f->rt, put_all, f, q->out);
}

EXPORT void lehr_convolve_half(const lehr_runtime *rt, const lehr_convolution *q) {
  each_group(rt, q, 2, results);
}

EXPORT void lehr_convolve_weight_half(const lehr_runtime *rt, const lehr_convolution *q) {
  each_group(rt, q, 4, gradients);
}

EXPORT void lehr_install(lehr_runtime *rt) {
  prefer();
  rt->convolve_half = lehr_convolve_half;
  rt->convolve_weight_half = lehr_convolve_weight_half;
}
