/* Bit patterns, half precision and conversions. Blocks are separated by blank lines; a program
   takes the blocks that it names, and what those name. */

#define LEHR_FN static inline __attribute__((always_inline, unused))

#if defined(__FMA__) || defined(__aarch64__)
#define LEHR_FMA(a, b, c) __builtin_fmaf(a, b, c)
#define LEHR_FMAD(a, b, c) __builtin_fma(a, b, c)
#else
#define LEHR_FMA(a, b, c) ((a) * (b) + (c))
#define LEHR_FMAD(a, b, c) ((a) * (b) + (c))
#endif

/* Asks for what a loop reads soon. Zen fetches rows ahead by itself: to ask
   costs softmax a tenth there, and wins nothing elsewhere. */
#if defined(__znver1__) || defined(__znver2__) || defined(__znver3__) || defined(__znver4__) || \
    defined(__znver5__)
#define LEHR_AHEAD(p) ((void)0)
#else
#define LEHR_AHEAD(p) __builtin_prefetch(p)
#endif

LEHR_FN uint32_t lehr_bits_f32(float x) {
  uint32_t b;
  __builtin_memcpy(&b, &x, 4);
  return b;
}

LEHR_FN float lehr_float_f32(uint32_t b) {
  float x;
  __builtin_memcpy(&x, &b, 4);
  return x;
}

LEHR_FN uint64_t lehr_bits_f64(double x) {
  uint64_t b;
  __builtin_memcpy(&b, &x, 8);
  return b;
}

LEHR_FN double lehr_float_f64(uint64_t b) {
  double x;
  __builtin_memcpy(&x, &b, 8);
  return x;
}

LEHR_FN float lehr_f32_of_bf16(uint16_t h) { return lehr_float_f32((uint32_t)h << 16); }

/* To the nearest, ties to even; a NaN stays one (its low bits may be all it has). */
LEHR_FN uint16_t lehr_bf16_of_f32(float x) {
  uint32_t b = lehr_bits_f32(x);
  uint32_t near = (b + 0x7fff + (b >> 16 & 1)) >> 16;
  return (uint16_t)(x != x ? (b >> 16 & 0x8000) | 0x7fc0 : near);
}

/* A half's exponent and mantissa, taken for a float's, are 2**-112 of its value; subnormals too. */
LEHR_FN float lehr_f32_of_f16(uint16_t h) {
  uint32_t body = (uint32_t)(h & 0x7fff) << 13, sign = (uint32_t)(h & 0x8000) << 16;
  uint32_t finite = lehr_bits_f32(lehr_float_f32(body) * 0x1p112f);
  return lehr_float_f32((body >= 0x0f800000 ? body | 0x7f800000 : finite) | sign);
}

/* Normal results are rounded in integers, subnormal ones by an addition that drops their bits. */
LEHR_FN uint16_t lehr_f16_of_f32(float x) {
  uint32_t b = lehr_bits_f32(x), sign = b >> 16 & 0x8000, a = b & 0x7fffffff;
  uint32_t normal = (a - (112u << 23) + 0xfff + (a >> 13 & 1)) >> 13;
  uint32_t small = lehr_bits_f32(lehr_float_f32(a) + 0.5f) - 0x3f000000;
  uint32_t h = a < 0x38800000 ? small : normal;
  h = a >= 0x477ff000 ? 0x7c00 : h;
  h = a > 0x7f800000 ? 0x7e00 : h;
  return (uint16_t)(h | sign);
}

/* A double as a float whose last bit is set where something was cut off ("round to odd"), so that
   rounding it again, to fewer bits, rounds the double. */
LEHR_FN float lehr_odd_f32(double x) {
  float y = (float)x, back = y;
  uint32_t b = lehr_bits_f32(y);
  double gap = (double)back - x;
  uint32_t away = (gap > 0) == (x > 0) && gap != 0 ? 1 : 0;
  b = (b - away) | (gap != 0 ? 1 : 0);
  return gap == gap && __builtin_fabsf(y) < __builtin_inff() ? lehr_float_f32(b) : y;
}

LEHR_FN uint16_t lehr_f16_of_f64(double x) { return lehr_f16_of_f32(lehr_odd_f32(x)); }

LEHR_FN uint16_t lehr_bf16_of_f64(double x) { return lehr_bf16_of_f32((float)x); }

/* Outside int64 the value is the processor's "indefinite"; NaN too. */
LEHR_FN int64_t lehr_i64_of_f32(float x) {
  return x >= -0x1p63f && x < 0x1p63f ? (int64_t)x : INT64_MIN;
}

LEHR_FN int64_t lehr_i64_of_f64(double x) {
  return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;
}
