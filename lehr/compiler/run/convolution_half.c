
/* Convolution of bfloat16 images whose channels lie together, its adjoint, and the gradient of its
   kernel: products of packed matrices, summed in float32. A row of a matrix is what a pixel of the
   result meets, tap by tap; it is copied into panels and never exists elsewhere. Where panels are
   of no use, or a number is denormal, rows become float32 and the library multiplies them. Taps of
   a kernel follow each other in memory. */
enum { BLOCK = 128, CHUNK = 4096, WIDTH = 64 }; /* pixels at once, for weights; channels of x */

typedef struct {
  const lehr_convolution *q;
  const lehr_runtime *rt;
  const char *x, *y;
  int32_t *meet[3]; /* [many][kernel] of each dimension: the place in x, or -1 */
  int32_t (*tap)[3]; /* where in the kernel each tap is */
  int64_t taps, pixels, first, count; /* of a chunk: its first pixel and how many */
  int64_t steps, panel;               /* 32 channels are a step of a tap; bytes of a panel */
  char *packed;
  float *made;
  int64_t in_up, out_up;
  int32_t (*at)[4];
  int32_t bad; /* a number that panels do not take was seen */
  int plain;
} plan;

static int64_t up(int64_t n) { return (n + 31) / 32 * 32; }

static void *keep(int64_t bytes) {
  void *made = aligned_alloc(4096, (size_t)((bytes + 4095) / 4096 * 4096));
  if (!made) abort();
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

/* Batch and place of some pixels of y. */
static void places(const lehr_convolution *q, int64_t first, int64_t count, int32_t (*at)[4]) {
  for (int64_t i = 0; i < count; i++) {
    int64_t p = first + i;
    for (int d = 3; d > 0; d--) at[i][d] = (int32_t)(p % q->many[d - 1]), p /= q->many[d - 1];
    at[i][0] = (int32_t)p;
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

/* Which elements of x the results meet along each dimension. */
static void meetings(plan *f) {
  const lehr_convolution *q = f->q;
  const int64_t *size = q->kernel;
  f->tap = keep(f->taps * (int64_t)sizeof(*f->tap));
  for (int64_t t = 0; t < f->taps; t++) {
    f->tap[t][0] = (int32_t)(t / (size[1] * size[2]));
    f->tap[t][1] = (int32_t)(t / size[2] % size[1]), f->tap[t][2] = (int32_t)(t % size[2]);
  }
  for (int d = 0; d < 3; d++) {
    f->meet[d] = keep(q->many[d] * q->kernel[d] * 4);
    for (int64_t o = 0; o < q->many[d]; o++)
      for (int64_t k = 0; k < q->kernel[d]; k++) {
        int64_t s = q->stride[d], t = k * q->dilation[d], p = o * s - q->pad[d] + t;
        if (q->transposed) p = (o + q->pad[d] - t) % s ? -1 : (o + q->pad[d] - t) / s;
        f->meet[d][o * q->kernel[d] + k] = p < 0 || p >= q->size[d] ? -1 : (int32_t)p;
      }
  }
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
  for (int64_t t0 = 0; t0 < f->taps; t0 += 16)
    for (int64_t n = 0; n < f->steps * 32; n++) {
      int64_t o = j * 32 + n / 16 % 2 * 16, i = n / 32 * 32 + n % 16 * 2;
      const uint16_t *from = w + o * q->w_step[1] + i * q->w_step[2] + t0;
      char *put = to + (t0 * f->steps + n / 32) * PART + n % 32 * 64;
      for (int l = 0; l < 16; l++, from += q->w_step[1]) {
        const __mmask16 here = o + l < q->out ? first(f->taps - t0) : 0;
        const __mmask16 one = i < q->in ? here : 0, two = i + 1 < q->in ? here : 0;
        const __m512i a = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(one, from));
        const __m512i b = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(two, from + q->w_step[2]));
        r[l] = _mm512_or_si512(a, _mm512_slli_epi32(b, 16));
        low = lowest(low, r[l]);
      }
      transpose(r);
      UNROLL for (int t = 0; t < 16; t++)
        if (t < f->taps - t0) _mm512_store_si512(put + t * f->steps * PART, r[t]);
    }
  flag(f, denormal(low));
}

/* The rows of some pixels as panels. */
static int pack_rows(const plan *f, int64_t count, const int32_t (*at)[4], char *to) {
  __m512i low = _mm512_set1_epi16(-1);
  const int64_t last = (f->q->in - 1) % 32 + 1;
  const __mmask32 part = (__mmask32)(0xffffffffu >> (32 - last));
  for (int64_t r = 0; r < count; r++) {
    char *row = to + r / 32 * f->panel + r % 32 / 16 * TILE + r % 16 * 64;
    for (int64_t t = 0; t < f->taps; t++) {
      const char *from = met(f, at[r], t);
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

/* The kernel of a tap, [out][in] in float32. */
static void widen_kernel(void *ctx, int64_t tap, int64_t worker) {
  plan *f = ctx;
  const lehr_convolution *q = f->q;
  const uint16_t *w = (const uint16_t *)(const void *)q->w + tap;
  float *to = f->made + tap * q->out * q->in;
  (void)worker;
  for (int64_t o = 0; o < q->out; o++)
    for (int64_t i = 0; i < q->in; i++) {
      const uint32_t bits = (uint32_t)w[o * q->w_step[1] + i * q->w_step[2]] << 16;
      memcpy(to + o * q->in + i, &bits, 4);
    }
}

/* The results of a block of pixels. */
static void convolve(void *ctx, int64_t chunk, int64_t worker) {
  plan *f = ctx;
  const lehr_convolution *q = f->q;
  int64_t from = chunk * BLOCK, count = least(BLOCK, f->pixels - from), ld = up(q->out);
  int32_t at[BLOCK][4];
  float *sums = scratch(0, 4 * BLOCK * ld);
  (void)worker;
  if (f->bad && !f->plain) return;
  places(q, from, count, at);
  if (f->plain) {
    float *rows = scratch(1, 4 * BLOCK * q->in);
    for (int64_t t = 0; t < f->taps; t++) {
      for (int64_t i = 0; i < count; i++) widen(met(f, at[i], t), q->in, rows + i * q->in);
      f->rt->sgemm(0, 1, count, q->out, q->in, 1, rows, q->in, f->made + t * q->out * q->in, q->in,
                   t > 0, sums, ld);
    }
  }
#if PACKED
  else {
    char *rows = scratch(1, BLOCK / 32 * f->panel);
    flag(f, pack_rows(f, count, (const int32_t(*)[4])at, rows));
    BEGIN;
    panels(rows, f->panel, f->packed, f->panel, f->panel / PART, sums, ld, 0, count, q->out);
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

/* Adds a chunk's part of the gradient of a tap's kernel, of a block of its input channels. */
static void weigh(void *ctx, int64_t task, int64_t worker) {
  plan *f = ctx;
  const lehr_convolution *q = f->q;
  int64_t blocks = (q->in + WIDTH - 1) / WIDTH, tap = task / blocks, low = task % blocks * WIDTH;
  int64_t many = least(WIDTH, q->in - low), add = f->first > 0;
  const char **rows = scratch(2, CHUNK * (int64_t)sizeof(char *));
  float *c = f->made + tap * f->out_up * f->in_up + low;
  (void)worker;
  if (f->bad && !f->plain) return;
  for (int64_t i = 0; i < f->count; i++) {
    const char *row = met(f, f->at[i], tap);
    rows[i] = row ? row + 2 * low : NULL;
  }
  if (f->plain) {
    float *x = scratch(1, 4 * CHUNK * WIDTH);
    for (int64_t i = 0; i < f->count; i++) widen(rows[i], many, x + i * many);
    f->rt->sgemm(1, 0, q->out, many, f->count, 1, (float *)f->packed, q->out, x, many, add, c,
                 f->in_up);
  }
#if PACKED
  else {
    char *x = scratch(1, WIDTH / 32 * f->panel);
    flag(f, pack_pixels(rows, f->count, many, 0, x));
    BEGIN;
    for (int64_t o = 0; o < q->out; o += 32)
      for (int64_t i = 0; i < many; i += 32)
        corner(f->packed + o / 32 * f->panel, x + i / 32 * f->panel, f->panel / PART,
               c + o * f->in_up + i, f->in_up, (int)add, NULL);
    END;
  }
#endif
}

/* The sums of one output channel, in the kernel's own layout. */
static void put(void *ctx, int64_t o, int64_t worker) {
  const plan *f = ctx;
  const lehr_convolution *q = f->q;
  const float *sums = f->made + o * f->in_up;
  int64_t tap = f->out_up * f->in_up;
  float *w = q->w + o * q->w_step[1];
  (void)worker;
#if PACKED
  for (int64_t i = 0; i < q->in; i += 16)
    for (int64_t t0 = 0; t0 < f->taps; t0 += 16) {
      __m512i r[16];
      for (int t = 0; t < 16; t++)
        r[t] = t < f->taps - t0 ? _mm512_loadu_si512(sums + (t0 + t) * tap + i)
                                : _mm512_setzero_si512();
      transpose(r);
      UNROLL for (int l = 0; l < 16; l++)
        if (i + l < q->in)
          _mm512_mask_storeu_epi32(w + (i + l) * q->w_step[2] + t0, first(f->taps - t0), r[l]);
    }
#else
  for (int64_t t = 0; t < f->taps; t++)
    for (int64_t i = 0; i < q->in; i++) w[i * q->w_step[2] + t] = sums[t * tap + i];
#endif
}

/* What both begin with; the work of each group. */
static void each_group(const lehr_runtime *rt, const lehr_convolution *given, int itemsize,
                       void (*work)(plan *)) {
  lehr_convolution q = *given;
  plan f = {.q = &q, .rt = rt, .taps = q.kernel[0] * q.kernel[1] * q.kernel[2]};
  f.pixels = q.batch * q.many[0] * q.many[1] * q.many[2];
  f.in_up = up(q.in), f.out_up = up(q.out), f.steps = f.in_up / 32;
  meetings(&f);
  for (int64_t g = 0; g < q.groups; g++) {
    q.w = (float *)((char *)given->w + g * q.w_step[0] * itemsize);
    f.x = (const char *)given->x + 2 * g * q.in, f.y = (const char *)given->y + 2 * g * q.out;
    f.plain = !PACKED, f.bad = 0;
    work(&f);
    if (f.bad) f.plain = 1, work(&f);
  }
  for (int d = 0; d < 3; d++) free(f.meet[d]);
  free(f.tap);
}

static void results(plan *f) {
  const lehr_convolution *q = f->q;
  if (f->plain) {
    f->made = scratch(3, 4 * f->taps * q->out * q->in);
    share(f->rt, widen_kernel, f, f->taps);
  }
#if PACKED
  else {
    f->panel = f->taps * f->steps * PART;
    f->packed = scratch(3, f->out_up / 32 * f->panel);
    share(f->rt, pack_kernel, f, f->out_up / 32);
  }
#endif
  share(f->rt, convolve, f, (f->pixels + BLOCK - 1) / BLOCK);
}

static void gradients(plan *f) {
  const lehr_convolution *q = f->q;
  int64_t wide = (q->in + WIDTH - 1) / WIDTH, deep = up(least(CHUNK, f->pixels));
  f->made = scratch(3, 4 * f->taps * f->out_up * f->in_up);
  f->packed = scratch(4, (f->plain ? 4 : 2) * f->out_up * deep);
  f->at = scratch(5, (int64_t)sizeof(*f->at) * deep);
  if (f->pixels == 0) memset(f->made, 0, 4 * (size_t)(f->taps * f->out_up * f->in_up));
  for (f->first = 0; f->first < f->pixels; f->first += CHUNK) {
    f->count = least(CHUNK, f->pixels - f->first);
    f->panel = up(f->count) * 64;
    places(q, f->first, f->count, f->at);
    share(f->rt, pack_gradients, f, (q->out + WIDTH - 1) / WIDTH);
    share(f->rt, weigh, f, f->taps * wide);
  }
  if (!f->bad || f->plain) share(f->rt, put, f, q->out);
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
