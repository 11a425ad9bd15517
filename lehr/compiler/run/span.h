/* Convolutions: which results meet the same taps of a kernel. */
/* Results first, first + step, ... (count of them) along a dimension: they meet the taps low,
   low + tap_step, ... (taps of them). The first result meets the first tap at element `at`; the next
   result does `step_at` further, the next tap `tap_at`. */
typedef struct {
  int64_t first, step, count, low, tap_step, taps, at, step_at, tap_at;
} span;

static span meet(const lehr_convolution *q, int d, int64_t o) {
  int64_t s = q->stride[d], p = q->pad[d], e = q->dilation[d];
  span a = {o, q->transposed ? s : 1, 1, 0, 1, 0, 0, q->transposed ? 1 : s, 0};
  for (int64_t t = 0; t < q->kernel[d]; t++) {
    int64_t i = q->transposed ? o + p - t * e : o * s - p + t * e;
    if (q->transposed) {
      if (i < 0 || i % s) continue;
      i /= s;
    }
    if (i < 0 || i >= q->size[d]) continue;
    if (a.taps == 0) a.low = t, a.at = i;
    if (a.taps == 1) a.tap_step = t - a.low, a.tap_at = i - a.at;
    a.taps++;
  }
  return a;
}

/* All results of a dimension as spans; `made` has room for one of each. */
static int64_t spans(const lehr_convolution *q, int d, span *made) {
  int64_t n = 0, step = q->transposed ? q->stride[d] : 1;
  for (int64_t r = 0; r < step && r < q->many[d]; r++) {
    int64_t from = n;
    for (int64_t o = r; o < q->many[d]; o += step) {
      span a = meet(q, d, o), *b = &made[n - 1];
      if (n > from && a.low == b->low && a.taps == b->taps && a.tap_step == b->tap_step &&
          (!a.taps || a.at == b->at + b->count * b->step_at))
        b->count++;
      else
        made[n++] = a;
    }
  }
  return n;
}
