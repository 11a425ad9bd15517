/* Images [n][c][p] with other steps of n and c, and [n][p][c], each made of the other. */
typedef struct {
  float *apart, *together;
  const float *bias; /* added to [n][c][p], a number for each c, or NULL */
  int64_t n, c, p, n_step, c_step, back;
} lehr_turn;

static void square(const float *from, int64_t from_step, float *to, int64_t to_step,
                   const float *bias) {
  vec r[LANES];
  UNROLL for (int i = 0; i < LANES; i++) r[i] = *(const vec *)(from + i * from_step);
  if (bias)
    UNROLL for (int i = 0; i < LANES; i++) r[i] += *(const vec *)bias;
  transpose(r);
  UNROLL for (int i = 0; i < LANES; i++) *(vec *)(to + i * to_step) = r[i];
}

static void turn(void *ctx, int64_t chunk, int64_t worker) {
  const lehr_turn *q = ctx;
  int64_t parts = (q->p + 255) / 256, n = chunk / parts, low = chunk % parts * 256;
  int64_t high = least(low + 256, q->p), whole = low + (high - low) / LANES * LANES, c = 0;
  float *a = q->apart + n * q->n_step, *b = q->together + n * q->p * q->c;
  (void)worker;
  for (; c + LANES <= q->c; c += LANES) {
    const float *bias = q->back && q->bias ? q->bias + c : NULL;
    for (int64_t p = low; p < whole; p += LANES) {
      float *rows = a + c * q->c_step + p, *pixels = b + p * q->c + c;
      if (q->back)
        square(pixels, q->c, rows, q->c_step, bias);
      else
        square(rows, q->c_step, pixels, q->c, NULL);
    }
  }
  for (int64_t k = 0; k < q->c; k++)
    for (int64_t p = k < c ? whole : low; p < high; p++)
      if (q->back)
        a[k * q->c_step + p] = b[p * q->c + k] + (q->bias ? q->bias[k] : 0);
      else
        b[p * q->c + k] = a[k * q->c_step + p];
}

static __attribute__((unused)) void turn_images(const lehr_runtime *rt, lehr_turn *q) {
  spread(rt, turn, q, q->n * ((q->p + 255) / 256));
}

/* Images of a convolution that have their channels apart. */
static __attribute__((unused)) void turn_side(const lehr_runtime *rt, const lehr_convolution *q,
                                              const float *apart, int y, int64_t back) {
  const int64_t *size = y ? q->many : q->size, *step = y ? q->y_turn : q->x_turn;
  lehr_turn t = {.apart = (float *)apart, .together = y ? q->y : (float *)q->x, .n = q->batch,
                 .c = q->groups * (y ? q->out : q->in), .p = size[0] * size[1] * size[2],
                 .n_step = step[0], .c_step = step[1], .back = back, .bias = q->y_bias};
  if (apart) turn_images(rt, &t);
}

#define TURN_IN(rt, q) turn_side(rt, q, (q)->x_from, 0, 0), turn_side(rt, q, (q)->y_from, 1, 0)
#define TURN_OUT(rt, q) turn_side(rt, q, (q)->y_into, 1, 1)
