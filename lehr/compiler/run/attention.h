/* Attention by tiles: softmax(q k^T * scale + mask) v and its gradients, for one block of columns
   at a time, so that scores exist only for a few rows (Dao et al., "FlashAttention", 2022; running
   maxima and sums: Milakov and Gimelshein, 2018). Sizes of float32 rows are multiples of 16. */
#include <math.h>

#if defined(__AVX512F__)
#define MOST_V 4
#else
#define MOST_V 2
#endif
#define PANEL (MOST_V * LANES)
#define MOST_R 6
#define ROWS 48 /* at least, for one thread */

static inline vec choose(ints test, vec yes, vec no) {
  return (vec)((test & (ints)yes) | (~test & (ints)no));
}

/* e^x for x that is not above 88: 2^n times a polynomial of the rest (coefficients of Cephes). */
static inline vec exponential(vec x) {
  const vec zero = {0}, most = zero + 12582912.0f;
  const ints small = x < zero - 87.3f;
  vec t = choose(small, zero, x), n = (t * 1.44269504f + most) - most;
  t = t - n * 0.693359375f;
  t = t + n * 2.12194440e-4f;
  vec p = zero + 1.9875691500e-4f;
  p = p * t + 1.3981999507e-3f;
  p = p * t + 8.3334519073e-3f;
  p = p * t + 4.1665795894e-2f;
  p = p * t + 1.6666665459e-1f;
  p = p * t + 5.0000001201e-1f;
  p = p * t * t + t + 1.0f;
  const ints power = (__builtin_convertvector(n, ints) + 127) << 23;
  vec scale;
  memcpy(&scale, &power, sizeof scale);
  return choose(small, zero, p * scale);
}

static int64_t at(const lehr_attention *q, const int64_t *step, int64_t n) {
  int64_t found = 0;
  for (int d = 3; d >= 0; d--) found += n % q->batch[d] * step[d], n /= q->batch[d];
  return found;
}

/* Where a float32 matrix begins. */
static inline float *matrix(const lehr_attention *q, const void *x, const int64_t *step,
                            int64_t n) {
  return (float *)x + at(q, step, n);
}

/* Scores of R rows and `width` columns of a block times the scale, masked; past `limit` columns
   -inf up to a whole vector. */
static void masked(const lehr_attention *q, float *s, const char *mask, int64_t row,
                   int64_t first, int64_t limit) {
  const float scale = q->scale;
  for (int64_t j = 0; j < limit; j++) s[j] *= scale;
  if (q->mask_kind == 1) {
    const uint8_t *m = (const uint8_t *)mask + row * q->mask_step[4] + first * q->mask_step[5];
    for (int64_t j = 0; j < limit; j++) s[j] = m[j * q->mask_step[5]] ? s[j] : -INFINITY;
  } else if (q->mask_kind == 2) {
    const float *m = (const float *)mask + row * q->mask_step[4] + first * q->mask_step[5];
    for (int64_t j = 0; j < limit; j++) s[j] += m[j * q->mask_step[5]];
  }
  for (int64_t j = limit; j % LANES; j++) s[j] = -INFINITY;
}

static const char *mask_of(const lehr_attention *q, int64_t n) {
  int64_t item = q->mask_kind == 1 ? 1 : 4;
  return q->mask_kind ? (const char *)q->mask + item * at(q, q->mask_step, n) : NULL;
}

static float sum_of(vec e) {
  float sum = 0;
  for (int l = 0; l < LANES; l++) sum += e[l];
  return sum;
}

static int64_t batches(const lehr_attention *q) {
  return q->batch[0] * q->batch[1] * q->batch[2] * q->batch[3];
}


static float greatest(const float *s, int64_t n) {
  vec top = (vec){0} - INFINITY;
  for (int64_t j = 0; j < n; j += LANES) {
    vec e = *(const vec *)(s + j);
    top = choose(e > top, e, top);
  }
  float most = top[0];
  for (int l = 1; l < LANES; l++) most = top[l] > most ? top[l] : most;
  return most;
}

/* The softmax of a row so far: scores of a block become e^(s - top), zeros from `limit` to `width`;
   gives the factor of what was summed before. */
static inline float soften(const lehr_attention *q, float *s, const char *mask, int64_t row,
                           int64_t first, int64_t limit, int64_t width, float *top, float *sum) {
  int64_t j = 0;
  masked(q, s, mask, row, first, limit);
  float most = greatest(s, limit), before = *top;
  most = most > before ? most : before;
  float base = most == -INFINITY ? 0 : most;
  vec total = {0};
  for (; j < limit; j += LANES) {
    vec e = exponential(*(vec *)(s + j) - base);
    *(vec *)(s + j) = e;
    total += e;
  }
  for (; j < width; j++) s[j] = 0;
  float factor = before == -INFINITY ? 0 : expf(before - base);
  *top = most;
  *sum = *sum * factor + sum_of(total);
  return factor;
}

/* Into how many parts the rows of one matrix go, of at least `rows`. */
static inline int64_t parts_of(const lehr_runtime *rt, const lehr_attention *q, int64_t rows) {
  int64_t all = batches(q), most = (q->l + rows - 1) / rows;
  return rt->threads > 1 && all < 3 * rt->threads ? least(most, 3 * rt->threads / all + 1) : 1;
}

static inline float logarithm(float sum, float top) {
  return sum == 0 ? INFINITY : logf(sum) + top;
}
