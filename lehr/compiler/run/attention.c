
/* The results of attention. */
#define WIDE 512 /* columns of a block of scores */

typedef struct {
  const lehr_attention *q;
  int64_t parts;
} plan;

/* Scores of one row from keys where they lie: few rows are not worth packing them. */
static void straight(const float *q, int64_t size, const float *keys, int64_t step, int64_t wide,
                     float *s) {
  for (int64_t j = 0; j < wide; j += LANES) {
    const float *at[LANES];
    vec sum[LANES];
    EACH(l, LANES) at[l] = keys + least(j + l, wide - 1) * step;
    EACH(l, LANES) sum[l] = (vec){0};
    for (int64_t c = 0; c < size; c += LANES) {
      vec e = *(const vec *)(q + c);
      EACH(l, LANES) sum[l] += e * *(const vec *)(at[l] + c);
    }
    *(vec *)(s + j) = settled(sum, LANES);
  }
}

static void attend(void *ctx, int64_t chunk, int64_t worker) {
  const plan *f = ctx;
  const lehr_attention *q = f->q;
  int64_t n = chunk / f->parts, part = chunk % f->parts;
  int64_t low = q->l * part / f->parts, high = q->l * (part + 1) / f->parts;
  const float *qs = matrix(q, q->q, q->q_step, n), *ks = matrix(q, q->k, q->k_step, n);
  const float *vs = matrix(q, q->v, q->v_step, n);
  const char *mask = mask_of(q, n);
  float *out = matrix(q, q->out, q->out_step, n), *lse = q->lse + at(q, q->lse_step, n);
  int64_t ldq = q->q_step[4], ldo = q->out_step[4];
  const int few = q->l < MOST_R;
  float *panels = few ? NULL : scratch(0, 4 * WIDE * q->e);
  float *packed = few ? NULL : scratch(1, 4 * WIDE * q->ev);
  float *s = scratch(2, 4 * MOST_R * WIDE);
  float *top = scratch(3, 4 * (high - low)), *sum = scratch(4, 4 * (high - low));
  (void)worker;
  for (int64_t i = 0; i < high - low; i++) top[i] = -INFINITY, sum[i] = 0;
  for (int64_t first = 0; first < q->s && (!q->causal || first < high); first += WIDE) {
    int64_t wide = least(WIDE, q->s - first);
    const float *keys = ks + first * q->k_step[4], *rows = vs + first * q->v_step[4];
    int64_t ldv = q->v_step[4];
    if (!few) {
      columns_of(keys, q->k_step[4], wide, q->e, panels);
      rows_of(rows, ldv, wide, q->ev, packed);
      rows = packed, ldv = q->ev;
    }
    for (int64_t a = low; a < high; a += MOST_R) {
      int64_t b = least(a + MOST_R, high);
      int64_t width = q->causal ? least(wide, b - first) : wide;
      if (width <= 0) continue;
      if (few)
        for (int64_t i = a; i < b; i++)
          straight(qs + i * ldq, q->e, keys, q->k_step[4], width, s + (i - a) * WIDE);
      else
        scores(qs + a * ldq, ldq, panels, q->e, s, WIDE, b - a, width);
      for (int64_t i = a; i < b; i++) {
        float *row = s + (i - a) * WIDE, *o = out + i * ldo;
        int64_t limit = q->causal ? least(wide, i + 1 - first) : wide;
        limit = limit < 0 ? 0 : limit;
        float factor = soften(q, row, mask, i, first, limit, width, top + i - low, sum + i - low);
        if (first)
          for (int64_t c = 0; c < q->ev; c++) o[c] *= factor;
      }
      multiply(PLAIN, WIDE, s, WIDE, rows, ldv, out + a * ldo, ldo, b - a, q->ev, width,
               first > 0);
    }
  }
  for (int64_t i = low; i < high; i++) {
    float total = sum[i - low], *o = out + i * ldo;
    float scale = total == 0 ? 0 : 1 / total;
    for (int64_t c = 0; c < q->ev; c++) o[c] *= scale;
    lse[i * q->lse_step[4]] = logarithm(total, top[i - low]);
  }
}

EXPORT void lehr_attend(const lehr_runtime *rt, const lehr_attention *q) {
  plan f = {q, parts_of(rt, q, ROWS)};
  spread(rt, attend, &f, batches(q) * f.parts);
}

EXPORT void lehr_install(lehr_runtime *rt) { rt->attend = lehr_attend; }
