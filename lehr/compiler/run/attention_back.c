
/* The gradients of attention. */
#define BLOCK 256 /* columns of a block of scores, which are kept for ROWS rows */

TILES(flipped, 1, lda, FLIPPED)

/* P and dS of R rows: exp(s - lse), and P times (dP - delta) times the scale. */
static void slopes(const lehr_attention *q, float *p, float *d, float lse, float delta,
                   int64_t limit, int64_t width) {
  int64_t j = 0;
  for (; j < limit; j += LANES) {
    vec e = exponential(*(vec *)(p + j) - lse);
    *(vec *)(p + j) = e;
    *(vec *)(d + j) = e * (*(vec *)(d + j) - delta) * q->scale;
  }
  for (j = limit; j < width; j++) p[j] = d[j] = 0;
}

static void attend_back(void *ctx, int64_t n, int64_t worker) {
  const lehr_attention *q = ctx;
  const float *qs = matrix(q, q->q, q->q_step, n), *ks = matrix(q, q->k, q->k_step, n);
  const float *vs = matrix(q, q->v, q->v_step, n), *gs = matrix(q, q->g, q->g_step, n);
  const float *out = matrix(q, q->out, q->out_step, n), *lse = q->lse + at(q, q->lse_step, n);
  const float *rise = q->rise ? q->rise + at(q, q->rise_step, n) : NULL;
  const char *mask = mask_of(q, n);
  float *dq = matrix(q, q->dq, q->dq_step, n), *dk = matrix(q, q->dk, q->dk_step, n);
  float *dv = matrix(q, q->dv, q->dv_step, n);
  int64_t e = q->e, ev = q->ev;
  float *keys = scratch(0, 4 * BLOCK * e), *values = scratch(1, 4 * BLOCK * ev);
  float *p = scratch(2, 4 * ROWS * BLOCK), *d = scratch(3, 4 * ROWS * BLOCK);
  float *delta = scratch(4, 4 * q->l);
  float *rows = scratch(5, 4 * BLOCK * e), *sum_k = scratch(6, 4 * BLOCK * e);
  float *sum_v = scratch(7, 4 * BLOCK * ev), *q_rows = scratch(8, 4 * ROWS * e);
  float *g_rows = scratch(9, 4 * ROWS * ev);
  (void)worker;
  for (int64_t i = 0; i < q->l; i++) {
    const float *a = gs + i * q->g_step[4], *b = out + i * q->out_step[4];
    vec sum = {0};
    for (int64_t c = 0; c < ev; c += LANES) sum += *(const vec *)(a + c) * *(const vec *)(b + c);
    delta[i] = sum_of(sum) - (rise ? rise[i * q->rise_step[4]] : 0);
  }
  for (int64_t first = 0; first < q->s; first += BLOCK) {
    int64_t wide = least(BLOCK, q->s - first);
    columns_of(ks + first * q->k_step[4], q->k_step[4], wide, e, keys);
    columns_of(vs + first * q->v_step[4], q->v_step[4], wide, ev, values);
    rows_of(ks + first * q->k_step[4], q->k_step[4], wide, e, rows);
    memset(sum_k, 0, (size_t)(4 * wide * e));
    memset(sum_v, 0, (size_t)(4 * wide * ev));
    for (int64_t low = q->causal ? first / ROWS * ROWS : 0; low < q->l; low += ROWS) {
      int64_t many = least(ROWS, q->l - low);
      int64_t width = q->causal ? least(wide, low + many - first) : wide;
      if (width <= 0) continue;
      rows_of(qs + low * q->q_step[4], q->q_step[4], many, e, q_rows);
      rows_of(gs + low * q->g_step[4], q->g_step[4], many, ev, g_rows);
      for (int64_t a = 0; a < many; a += MOST_R) {
        int64_t b = least(a + MOST_R, many);
        scores(q_rows + a * e, e, keys, e, p + a * BLOCK, BLOCK, b - a, width);
        scores(g_rows + a * ev, ev, values, ev, d + a * BLOCK, BLOCK, b - a, width);
        for (int64_t i = a; i < b; i++) {
          int64_t limit = q->causal ? least(wide, low + i + 1 - first) : wide;
          limit = limit < 0 ? 0 : limit;
          masked(q, p + i * BLOCK, mask, low + i, first, limit);
          slopes(q, p + i * BLOCK, d + i * BLOCK, lse[(low + i) * q->lse_step[4]],
                 delta[low + i], limit, width);
        }
      }
      multiply(FLIPPED, 1, p, BLOCK, g_rows, ev, sum_v, ev, width, ev, many, 1);
      multiply(FLIPPED, 1, d, BLOCK, q_rows, e, sum_k, e, width, e, many, 1);
      multiply(PLAIN, BLOCK, d, BLOCK, rows, e, dq + low * q->dq_step[4], q->dq_step[4], many, e,
               width, first > 0);
    }
    for (int64_t j = 0; j < wide; j++) {
      memcpy(dk + (first + j) * q->dk_step[4], sum_k + j * e, 4 * (size_t)e);
      memcpy(dv + (first + j) * q->dv_step[4], sum_v + j * ev, 4 * (size_t)ev);
    }
  }
}

EXPORT void lehr_attend_back(const lehr_runtime *rt, const lehr_attention *q) {
  spread(rt, attend_back, (void *)q, batches(q));
}

EXPORT void lehr_install(lehr_runtime *rt) { rt->attend_back = lehr_attend_back; }
