
/* The results of attention in bfloat16, rounded once: scores and sums are float32, and for the
   product with the values probabilities are the sums of two bfloat16 numbers (16 bits). Keys and
   values are packed for a whole matrix; scores exist for a few rows and a block of columns.
   Without packed products, and where a number is denormal or a value not finite (two parts of a
   probability times infinity are NaN), the library multiplies float32 copies. */
enum { WIDE = 512, HIGH = 96, HALVES = WIDE * 64 }; /* bytes of 32 rows of scores, packed */

typedef struct {
  const lehr_attention *q;
  const lehr_runtime *rt;
  int64_t parts;
} plan;

/* Operands of one matrix for rows `low` to `high`: packed, or, where `panel` is 0, float32. */
typedef struct {
  char *q, *k, *v;
  int64_t low, panel, panel_v; /* bytes of a panel of q and k, and of v */
} operands;

#if PACKED
/* Whether packed numbers are neither infinite nor NaN. */
static int bounded(const char *x, int64_t bytes) {
  __m512i most = _mm512_setzero_si512();
  for (int64_t i = 0; i < bytes; i += 64)
    most = _mm512_max_epu16(most, _mm512_slli_epi16(_mm512_load_si512(x + i), 1));
  return !_mm512_cmpge_epu16_mask(most, _mm512_set1_epi16((short)0xff00));
}

/* One function for both operands whose rows are packed: it takes the compiler long. */
static __attribute__((noinline)) int pack(const char *x, int64_t ld, int64_t rows, int64_t depth,
                                          int turn, char *to, int64_t panel) {
  return packed(x, ld, 0, rows, depth, 0, turn, to, panel);
}
#endif

static operands operands_of(const lehr_attention *q, int64_t n, int64_t low, int64_t high,
                            int64_t seen) {
  const char *qs = (const char *)q->q + 2 * (at(q, q->q_step, n) + low * q->q_step[4]);
  const char *ks = (const char *)q->k + 2 * at(q, q->k_step, n);
  const char *vs = (const char *)q->v + 2 * at(q, q->v_step, n);
  int64_t e = q->e, ev = q->ev, rows = high - low;
#if PACKED
  int64_t up = (ev + SIDE - 1) / SIDE, panel = (e + 31) / 32 * PART;
  operands o = {.low = low, .panel = panel, .panel_v = (seen + 31) / 32 * PART};
  o.q = scratch(0, (rows + SIDE - 1) / SIDE * panel);
  o.k = scratch(1, (seen + SIDE - 1) / SIDE * panel);
  o.v = scratch(2, up * o.panel_v);
  if (!pack(qs, q->q_step[4], rows, e, 0, o.q, panel) &&
      !pack(ks, q->k_step[4], seen, e, 1, o.k, panel) &&
      !packed(vs, q->v_step[4], 0, ev, seen, 1, 0, o.v, o.panel_v) && bounded(o.v, up * o.panel_v))
    return o;
#endif
  float *to_q = scratch(0, 4 * rows * e), *to_k = scratch(1, 4 * seen * e);
  float *to_v = scratch(2, 4 * seen * ev);
  floats(qs, q->q_step[4], 0, rows, e, to_q);
  floats(ks, q->k_step[4], 0, seen, e, to_k);
  floats(vs, q->v_step[4], 0, seen, ev, to_v);
  return (operands){.q = (char *)to_q, .k = (char *)to_k, .v = (char *)to_v, .low = low};
}

/* s [rows, width] = q k^T of rows from `a` and columns from `first`. */
static void scores(const plan *f, const operands *o, int64_t a, int64_t rows, int64_t first,
                   int64_t width, float *s) {
  int64_t e = f->q->e;
#if PACKED
  const char *left = o->q + (a - o->low) / SIDE * o->panel;
  for (int64_t j = 0; o->panel && j < width; j += SIDE)
    corner(left, o->k + (first + j) / SIDE * o->panel, o->panel / PART, s + j, WIDE, 0, rows,
           width - j, NULL);
  if (o->panel) return;
#endif
  f->rt->sgemm(0, 1, rows, width, e, 1, (float *)o->q + (a - o->low) * e, e,
               (float *)o->k + first * e, e, 0, s, WIDE);
}

#if PACKED
/* The first 16 bfloat16 numbers of a vector, or the others, as float32. */
#define SPREAD(x, half) \
  (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(x, half)), 16)

/* `exponential` of those numbers that `here` says, 0 for others. */
static inline __m512 powers(__mmask16 here, __m512 x) {
  const __m512 n = _mm512_roundscale_ps(x * 1.44269504f, _MM_FROUND_TO_NEAREST_INT);
  const __m512 t = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  __m512 p = t * 1.3981999507e-3f + 8.3334519073e-3f;
  p = p * t + 4.1665795894e-2f;
  p = p * t + 1.6666665459e-1f;
  p = p * t + 5.0000001201e-1f;
  p = p * t * t + t + 1.0f;
  here &= _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.3f), _CMP_NLT_UQ);
  return _mm512_maskz_scalef_ps(here, p, n);
}

/* `soften`, whose results go to panels: the nearest bfloat16 numbers to `to`, those nearest to the
   rest to `rest`; `steps` of 32 columns. */
static float soften_packed(const lehr_attention *q, float *s, const char *mask, int64_t row,
                           int64_t start, int64_t limit, int64_t steps, char *to, char *rest,
                           float *top, float *sum) {
  const float scale = q->mask_kind ? 1 : q->scale;
  if (q->mask_kind) masked(q, s, mask, row, start, limit);
  __m512 most = _mm512_set1_ps(*top), more = most, total = _mm512_setzero_ps();
  for (int64_t j = 0; j < limit; j += 32) { /* where a number is NaN, the other is taken */
    const __m512 a = _mm512_load_ps(s + j) * scale, b = _mm512_load_ps(s + j + 16) * scale;
    most = _mm512_mask_max_ps(most, first(limit - j), a, most);
    more = _mm512_mask_max_ps(more, first(limit - j - 16), b, more);
  }
  const float before = *top, now = _mm512_reduce_max_ps(_mm512_max_ps(most, more));
  const float base = now == -INFINITY ? 0 : now;
  for (int64_t j = 0; j < steps; j++, s += 32) {
    __m512 a = powers(first(limit - j * 32), _mm512_load_ps(s) * scale - base);
    __m512 b = powers(first(limit - j * 32 - 16), _mm512_load_ps(s + 16) * scale - base);
    total += a + b;
    const __m512i made = (__m512i)_mm512_cvtne2ps_pbh(b, a);
    _mm512_store_si512(to + j * PART, made);
    a -= SPREAD(made, 0), b -= SPREAD(made, 1);
    _mm512_store_si512(rest + j * PART, (__m512i)_mm512_cvtne2ps_pbh(b, a));
  }
  float factor = before == -INFINITY ? 0 : expf(before - base);
  *top = now;
  *sum = *sum * factor + _mm512_reduce_add_ps(total);
  return factor;
}
#endif

/* sums [rows, up] (+)= p v of columns from `first`: p is float32, or two packed matrices. */
static void gather(const plan *f, const operands *o, int64_t rows, int64_t first, int64_t width,
                   const void *p, float *sums, int64_t up) {
  int64_t ev = f->q->ev;
#if PACKED
  for (int64_t j = 0; o->panel && j < up; j += SIDE) {
    const char *right = o->v + j / SIDE * o->panel_v + first / 32 * PART;
    int64_t steps = (width + 31) / 32;
    corner(p, right, steps, sums + j, up, first > 0, rows, ev - j, NULL);
    corner((const char *)p + HALVES, right, steps, sums + j, up, 1, rows, ev - j, NULL);
  }
  if (o->panel) return;
#endif
  f->rt->sgemm(0, 0, rows, ev, width, 1, p, WIDE, (float *)o->v + first * ev, ev, first > 0, sums,
               up);
}

static void attend(void *ctx, int64_t chunk, int64_t worker) {
  const plan *f = ctx;
  const lehr_attention *q = f->q;
  int64_t n = chunk / f->parts, part = chunk % f->parts, blocks = (q->l + HIGH - 1) / HIGH;
  int64_t low = blocks * part / f->parts * HIGH;
  int64_t high = least(blocks * (part + 1) / f->parts * HIGH, q->l);
  int64_t seen = q->causal ? least(q->s, high) : q->s, up = (q->ev + 31) / 32 * 32;
  const char *mask = mask_of(q, n);
  char *out = (char *)q->out + 2 * at(q, q->out_step, n);
  float *lse = q->lse + at(q, q->lse_step, n), top[HIGH], sum[HIGH];
  char *p = scratch(3, 2 * HALVES);
  float *s = scratch(4, 4 * HIGH * WIDE), *sums = scratch(5, 4 * HIGH * up);
  const operands o = operands_of(q, n, low, high, seen);
  const int64_t step = o.panel ? 32 : HIGH;
  (void)worker;
  BEGIN;
  for (int64_t a = low; a < high; a += step) {
    int64_t rows = least(step, high - a), end = q->causal ? least(seen, a + rows) : seen;
    for (int64_t i = 0; i < rows; i++) top[i] = -INFINITY, sum[i] = 0;
    for (int64_t first = 0; first < end; first += WIDE) {
      int64_t wide = least(WIDE, end - first), whole = (wide + 31) / 32 * 32;
      scores(f, &o, a, rows, first, wide, s);
      for (int64_t i = 0; i < rows; i++) {
        int64_t limit = q->causal ? least(wide, a + i + 1 - first) : wide;
        limit = limit < 0 ? 0 : limit;
        float factor;
#if PACKED
        if (o.panel)
          factor = soften_packed(q, s + i * WIDE, mask, a + i, first, limit, whole / 32,
                                 p + i / 16 * TILE + i % 16 * 64,
                                 p + HALVES + i / 16 * TILE + i % 16 * 64, top + i, sum + i);
        else
#endif
          factor = soften(q, s + i * WIDE, mask, a + i, first, limit, whole, top + i, sum + i);
        for (int64_t c = 0; first && c < up; c++) sums[i * up + c] *= factor;
      }
      gather(f, &o, rows, first, wide, o.panel ? (void *)p : s, sums, up);
    }
    for (int64_t i = 0; i < rows; i++) {
      narrow(sums + i * up, sum[i] == 0 ? 0 : 1 / sum[i], q->ev,
             out + 2 * (a + i) * q->out_step[4]);
      lse[(a + i) * q->lse_step[4]] = logarithm(sum[i], top[i]);
    }
  }
  END;
}

EXPORT void lehr_attend_half(const lehr_runtime *rt, const lehr_attention *q) {
  plan f = {q, rt, parts_of(rt, q, HIGH)};
  spread(rt, attend, &f, batches(q) * f.parts);
}

EXPORT void lehr_install(lehr_runtime *rt) {
  prefer();
  rt->attend_half = lehr_attend_half;
}
