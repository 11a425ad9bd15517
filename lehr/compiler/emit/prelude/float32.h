/* Single precision. Polynomials and no branches, so that compilers vectorise whole loops; NaN,
   infinities, zeros' signs and subnormal numbers come out right. Coefficients are minimax fits.
   Where a function is seldom used, it is computed in double precision and rounded once. */

/* exp in double precision, to 2**-45: all of a float, once rounded. */
LEHR_FN double lehr_wide_exp(double x) {
  double y = x < -700.0 ? -700.0 : x;
  y = y > 700.0 ? 700.0 : y;
  double shifted = y * 1.4426950408889634 + 6755399441055744.0, n = shifted - 6755399441055744.0;
  double r = LEHR_FMAD(n, -0.69314718055994530942, y);
  double p = LEHR_FMAD(2.7641812872850161e-06, r, 2.488232258192138e-05);
  p = LEHR_FMAD(p, r, 0.00019841168097702846);
  p = LEHR_FMAD(p, r, 0.0013888807467749913);
  p = LEHR_FMAD(p, r, 0.0083333333843686047);
  p = LEHR_FMAD(p, r, 0.04166666698992337);
  p = LEHR_FMAD(p, r, 0.16666666666579075);
  p = LEHR_FMAD(p, r, 0.49999999999601935);
  p = LEHR_FMAD(p * r, r, r) + 1.0;
  return p * lehr_float_f64((lehr_bits_f64(shifted) + 1023) << 52);
}

/* log of a positive double. The infinity at 0 is no constant that a branch could be made for. */
LEHR_FN double lehr_wide_log(double x) {
  uint64_t b = lehr_bits_f64(x) - 0x3fe6a09e667f3bcdu;
  double e = (double)((int32_t)(b >> 32) >> 20);
  double m = lehr_float_f64((b & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu);
  double s = (m - 1.0) / (m + 1.0), t = s * s;
  double p = LEHR_FMAD(0.16819578108594971, t, 0.18123660487626708);
  p = LEHR_FMAD(p, t, 0.22223371210638468);
  p = LEHR_FMAD(p, t, 0.28571417135483917);
  p = LEHR_FMAD(p, t, 0.40000000052240098);
  p = LEHR_FMAD(p, t, 0.6666666666658726);
  double y = LEHR_FMAD(e, 0.69314718055994530942, LEHR_FMAD(p * t, s, s + s));
  uint64_t none = -(uint64_t)(x == 0);
  y = lehr_float_f64((lehr_bits_f64(y) & ~none) | (none & 0xfff0000000000000u));
  return x < __builtin_inf() ? y : x;
}

/* exp(x) = 4**n * (1 + r + r*r*p(r)), x = 2*n*log(2) + r. The power is applied in two halves: the
   result may be subnormal, or 2**127 times something. What the shift by 127 leaves in the low bits
   is the exponent field of 2**n. */
LEHR_FN float lehr_exp_f32(float x) {
  float shifted = LEHR_FMA(x, 0.7213475204f, 12583039.0f), n = shifted - 12583039.0f;
  float r = LEHR_FMA(n, -1.38629150390625f, x);
  r = LEHR_FMA(n, -2.85721353e-6f, r);
  float p = LEHR_FMA(2.4439985e-5f, r, 2.0109906e-4f);
  p = LEHR_FMA(p, r, 1.3893706e-3f);
  p = LEHR_FMA(p, r, 8.332527e-3f);
  p = LEHR_FMA(p, r, 4.1666526e-2f);
  p = LEHR_FMA(p, r, 1.6666675e-1f);
  p = LEHR_FMA(p, r, 0.5f);
  p = LEHR_FMA(p * r, r, r) + 1.0f;
  float s = lehr_float_f32(lehr_bits_f32(shifted) << 23), y = p * s * s;
  y = x < -104.0f ? 0.0f : y;
  return x > 89.0f ? __builtin_inff() : y;
}

LEHR_FN float lehr_exp2_f32(float x) {
  float y = x < -151.0f ? -151.0f : x;
  y = y > 129.0f ? 129.0f : y;
  float shifted = y + 12582912.0f, r = y - (shifted - 12582912.0f);
  float p = LEHR_FMA(1.5314947e-5f, r, 1.5467113e-4f);
  p = LEHR_FMA(p, r, 1.3333431e-3f);
  p = LEHR_FMA(p, r, 9.618036e-3f);
  p = LEHR_FMA(p, r, 5.550411e-2f);
  p = LEHR_FMA(p, r, 2.402265e-1f);
  p = LEHR_FMA(p, r, 6.931472e-1f);
  p = LEHR_FMA(p, r, 1.0f);
  int32_t i = (int32_t)(lehr_bits_f32(shifted) - 0x4b400000u), half = i >> 1;
  return p * lehr_float_f32((uint32_t)(half + 127) << 23)
    * lehr_float_f32((uint32_t)(i - half + 127) << 23);
}

/* 2**n * q + (2**n - 1) with q = exp(r) - 1, halved all through: 2**128 is no float. */
LEHR_FN float lehr_expm1_f32(float x) {
  float y = x < -60.0f ? -60.0f : x;
  y = y > 89.0f ? 89.0f : y;
  float shifted = LEHR_FMA(y, 1.442695041f, 12582912.0f), n = shifted - 12582912.0f;
  float r = LEHR_FMA(n, -0.693145751953125f, y);
  r = LEHR_FMA(n, -1.428606765e-6f, r);
  float p = LEHR_FMA(1.9912705e-4f, r, 1.3941044e-3f);
  p = LEHR_FMA(p, r, 8.333276e-3f);
  p = LEHR_FMA(p, r, 4.1666355e-2f);
  p = LEHR_FMA(p, r, 1.6666667e-1f);
  p = LEHR_FMA(p, r, 0.5f);
  float q = LEHR_FMA(p * r, r, r);
  float s = lehr_float_f32((lehr_bits_f32(shifted) - 0x4b400000u + 126) << 23);
  float z = LEHR_FMA(s, q, s - 0.5f);
  return __builtin_fabsf(x) < 1e-8f ? x : z + z;
}

/* x = 2**e * (1 + f) with 1 + f around 1; returns f, e in *e. Subnormals are scaled up first. */
LEHR_FN float lehr_split_f32(float x, float *e) {
  int tiny = x < 0x1p-126f;
  uint32_t b = lehr_bits_f32(tiny ? x * 0x1p23f : x) - 0x3f3504f3u;
  *e = (float)((int32_t)b >> 23) - (tiny ? 23.0f : 0.0f);
  return lehr_float_f32((b & 0x7fffff) + 0x3f3504f3u) - 1.0f;
}

/* log at the ends of its domain, `y` elsewhere. */
LEHR_FN float lehr_ends_f32(float x, float y) {
  y = x == 0 ? -__builtin_inff() : y;
  y = x < 0 ? __builtin_nanf("") : y;
  return x < __builtin_inff() ? y : x;
}

/* log(1 + f) + e*log(2). */
LEHR_FN float lehr_logsum_f32(float f, float e) {
  float p = LEHR_FMA(-6.151452e-2f, f, 1.0743423e-1f);
  p = LEHR_FMA(p, f, -1.0794063e-1f);
  p = LEHR_FMA(p, f, 1.1012047e-1f);
  p = LEHR_FMA(p, f, -1.2425089e-1f);
  p = LEHR_FMA(p, f, 1.4286944e-1f);
  p = LEHR_FMA(p, f, -1.6669434e-1f);
  p = LEHR_FMA(p, f, 2.0000036e-1f);
  p = LEHR_FMA(p, f, -2.4999966e-1f);
  p = LEHR_FMA(p, f, 3.3333334e-1f);
  float s = f * f;
  p = LEHR_FMA(e, 1.428606765e-6f, p * s * f);
  p = LEHR_FMA(s, -0.5f, p);
  return LEHR_FMA(e, 0.693145751953125f, p + f);
}

LEHR_FN float lehr_log_f32(float x) {
  float e, f = lehr_split_f32(x, &e);
  return lehr_ends_f32(x, lehr_logsum_f32(f, e));
}

LEHR_FN float lehr_log2_f32(float x) {
  float e, f = lehr_split_f32(x, &e);
  float p = LEHR_FMA(-1.12971656e-1f, f, 1.878252e-1f);
  p = LEHR_FMA(p, f, -1.9061325e-1f);
  p = LEHR_FMA(p, f, 2.042963e-1f);
  p = LEHR_FMA(p, f, -2.3963654e-1f);
  p = LEHR_FMA(p, f, 2.8858525e-1f);
  p = LEHR_FMA(p, f, -3.6069643e-1f);
  p = LEHR_FMA(p, f, 4.808979e-1f);
  p = LEHR_FMA(p, f, -7.2134733e-1f);
  p = LEHR_FMA(p, f, 4.4269502e-1f);
  return lehr_ends_f32(x, e + LEHR_FMA(p, f, f));
}

LEHR_FN float lehr_log10_f32(float x) {
  return lehr_ends_f32(x, (float)(lehr_wide_log(x) * 0.43429448190325182765));
}

/* log(u) with u = 1 + x rounded; what the rounding lost is added to f. */
LEHR_FN float lehr_log1p_f32(float x) {
  float u = 1.0f + x, lost = x > 1.0f ? 1.0f - (u - x) : x - (u - 1.0f);
  float e, f = lehr_split_f32(u, &e);
  int32_t n = e < 64.0f ? (int32_t)e : 64;
  float scale = lehr_float_f32((uint32_t)(127 - n) << 23);
  float y = lehr_ends_f32(u, lehr_logsum_f32(f + lost * scale, e));
  return __builtin_fabsf(x) < 1e-8f ? x : y;
}

LEHR_FN float lehr_sqrt_f32(float x) { return __builtin_sqrtf(x); }

/* A polynomial below 0.55, 1 - 2 / (exp(2x) + 1) above. */
LEHR_FN float lehr_tanh_f32(float x) {
  float a = __builtin_fabsf(x), t = x * x, e = lehr_exp_f32(a + a);
  float p = LEHR_FMA(2.3986888e-3f, t, -8.41654e-3f);
  p = LEHR_FMA(p, t, 2.178369e-2f);
  p = LEHR_FMA(p, t, -5.3959783e-2f);
  p = LEHR_FMA(p, t, 1.3333295e-1f);
  p = LEHR_FMA(p, t, -3.333333e-1f);
  float y = a < 0.55f ? LEHR_FMA(p * t, a, a) : 1.0f - 2.0f / (e + 1.0f);
  return __builtin_copysignf(y, x);
}

/* A polynomial below 1, 1 - exp(log(erfc(x))) above. */
LEHR_FN float lehr_erf_f32(float x) {
  float a = __builtin_fabsf(x), t = x * x, c = a > 4.0f ? 4.0f : a;
  float p = LEHR_FMA(7.889115e-5f, t, -8.02084e-4f);
  p = LEHR_FMA(p, t, 5.189535e-3f);
  p = LEHR_FMA(p, t, -2.6854444e-2f);
  p = LEHR_FMA(p, t, 1.12836e-1f);
  p = LEHR_FMA(p, t, -3.7612626e-1f);
  p = LEHR_FMA(p, t, 1.2837917e-1f);
  float q = LEHR_FMA(-2.1686952e-5f, c, 4.4133764e-4f);
  q = LEHR_FMA(q, c, -4.2045685e-3f);
  q = LEHR_FMA(q, c, 2.5208276e-2f);
  q = LEHR_FMA(q, c, -1.0841861e-1f);
  q = LEHR_FMA(q, c, -6.3321984e-1f);
  q = LEHR_FMA(q, c, -1.1295785f);
  q = LEHR_FMA(q, c, 1.880438e-4f);
  float y = a < 1.0f ? LEHR_FMA(p, a, a) : 1.0f - lehr_exp_f32(q);
  return __builtin_copysignf(y, x);
}

/* exp(y * log |x|), negative where x is and y is odd. What makes a result special goes into the
   exponent, by conditions that mostly end with a constant y: chosen at the end, it would be a branch
   around everything, and the loop no vectors. */
LEHR_FN float lehr_pow_f32(float x, float y) {
  float a = __builtin_fabsf(x), half = y * 0.5f;
  int whole = y == __builtin_truncf(y), odd = whole & (half != __builtin_truncf(half));
  int one = (y == 0.0f) | ((a == 1.0f) & (__builtin_fabsf(y) == __builtin_inff()))
          | ((x == 1.0f) & (y != y));
  int none = (x < 0) & (a < __builtin_inff()) & !whole & (y == y);
  double e = one ? 0.0 : (double)y * lehr_wide_log(a);
  e = lehr_float_f64(lehr_bits_f64(e) | (-(uint64_t)none & 0x7ff8000000000000u)); /* NaN */
  float r = (float)lehr_wide_exp(e);
  return odd ? __builtin_copysignf(r, x) : r;
}

/* 2**e / (2*pi) modulo 1 for e = -24 .. 104, as a fraction of 2**96: 64 bits and 32 more. */
static const uint64_t lehr_turns[129] = {
  0x00000028be60db93u, 0x000000517cc1b727u, 0x000000a2f9836e4eu, 0x00000145f306dc9cu,
  0x0000028be60db939u, 0x00000517cc1b7272u, 0x00000a2f9836e4e4u, 0x0000145f306dc9c8u,
  0x000028be60db9391u, 0x0000517cc1b72722u, 0x0000a2f9836e4e44u, 0x000145f306dc9c88u,
  0x00028be60db93910u, 0x000517cc1b727220u, 0x000a2f9836e4e441u, 0x00145f306dc9c882u,
  0x0028be60db939105u, 0x00517cc1b727220au, 0x00a2f9836e4e4415u, 0x0145f306dc9c882au,
  0x028be60db9391054u, 0x0517cc1b727220a9u, 0x0a2f9836e4e44152u, 0x145f306dc9c882a5u,
  0x28be60db9391054au, 0x517cc1b727220a94u, 0xa2f9836e4e441529u, 0x45f306dc9c882a53u,
  0x8be60db9391054a7u, 0x17cc1b727220a94fu, 0x2f9836e4e441529fu, 0x5f306dc9c882a53fu,
  0xbe60db9391054a7fu, 0x7cc1b727220a94feu, 0xf9836e4e441529fcu, 0xf306dc9c882a53f8u,
  0xe60db9391054a7f0u, 0xcc1b727220a94fe1u, 0x9836e4e441529fc2u, 0x306dc9c882a53f84u,
  0x60db9391054a7f09u, 0xc1b727220a94fe13u, 0x836e4e441529fc27u, 0x06dc9c882a53f84eu,
  0x0db9391054a7f09du, 0x1b727220a94fe13au, 0x36e4e441529fc275u, 0x6dc9c882a53f84eau,
  0xdb9391054a7f09d5u, 0xb727220a94fe13abu, 0x6e4e441529fc2757u, 0xdc9c882a53f84eafu,
  0xb9391054a7f09d5fu, 0x727220a94fe13abeu, 0xe4e441529fc2757du, 0xc9c882a53f84eafau,
  0x9391054a7f09d5f4u, 0x27220a94fe13abe8u, 0x4e441529fc2757d1u, 0x9c882a53f84eafa3u,
  0x391054a7f09d5f47u, 0x7220a94fe13abe8fu, 0xe441529fc2757d1fu, 0xc882a53f84eafa3eu,
  0x91054a7f09d5f47du, 0x220a94fe13abe8fau, 0x441529fc2757d1f5u, 0x882a53f84eafa3eau,
  0x1054a7f09d5f47d4u, 0x20a94fe13abe8fa9u, 0x41529fc2757d1f53u, 0x82a53f84eafa3ea6u,
  0x054a7f09d5f47d4du, 0x0a94fe13abe8fa9au, 0x1529fc2757d1f534u, 0x2a53f84eafa3ea69u,
  0x54a7f09d5f47d4d3u, 0xa94fe13abe8fa9a6u, 0x529fc2757d1f534du, 0xa53f84eafa3ea69bu,
  0x4a7f09d5f47d4d37u, 0x94fe13abe8fa9a6eu, 0x29fc2757d1f534ddu, 0x53f84eafa3ea69bbu,
  0xa7f09d5f47d4d377u, 0x4fe13abe8fa9a6eeu, 0x9fc2757d1f534ddcu, 0x3f84eafa3ea69bb8u,
  0x7f09d5f47d4d3770u, 0xfe13abe8fa9a6ee0u, 0xfc2757d1f534ddc0u, 0xf84eafa3ea69bb81u,
  0xf09d5f47d4d37703u, 0xe13abe8fa9a6ee06u, 0xc2757d1f534ddc0du, 0x84eafa3ea69bb81bu,
  0x09d5f47d4d377036u, 0x13abe8fa9a6ee06du, 0x2757d1f534ddc0dbu, 0x4eafa3ea69bb81b6u,
  0x9d5f47d4d377036du, 0x3abe8fa9a6ee06dbu, 0x757d1f534ddc0db6u, 0xeafa3ea69bb81b6cu,
  0xd5f47d4d377036d8u, 0xabe8fa9a6ee06db1u, 0x57d1f534ddc0db62u, 0xafa3ea69bb81b6c5u,
  0x5f47d4d377036d8au, 0xbe8fa9a6ee06db14u, 0x7d1f534ddc0db629u, 0xfa3ea69bb81b6c52u,
  0xf47d4d377036d8a5u, 0xe8fa9a6ee06db14au, 0xd1f534ddc0db6295u, 0xa3ea69bb81b6c52bu,
  0x47d4d377036d8a56u, 0x8fa9a6ee06db14acu, 0x1f534ddc0db62959u, 0x3ea69bb81b6c52b3u,
  0x7d4d377036d8a566u, 0xfa9a6ee06db14accu, 0xf534ddc0db629599u, 0xea69bb81b6c52b32u,
  0xd4d377036d8a5664u, 0xa9a6ee06db14acc9u, 0x534ddc0db6295993u, 0xa69bb81b6c52b327u,
  0x4d377036d8a5664fu};

static const uint32_t lehr_more_turns[129] = {
  0x91054a7fu, 0x220a94feu, 0x441529fcu, 0x882a53f8u, 0x1054a7f0u, 0x20a94fe1u, 0x41529fc2u,
  0x82a53f84u, 0x054a7f09u, 0x0a94fe13u, 0x1529fc27u, 0x2a53f84eu, 0x54a7f09du, 0xa94fe13au,
  0x529fc275u, 0xa53f84eau, 0x4a7f09d5u, 0x94fe13abu, 0x29fc2757u, 0x53f84eafu, 0xa7f09d5fu,
  0x4fe13abeu, 0x9fc2757du, 0x3f84eafau, 0x7f09d5f4u, 0xfe13abe8u, 0xfc2757d1u, 0xf84eafa3u,
  0xf09d5f47u, 0xe13abe8fu, 0xc2757d1fu, 0x84eafa3eu, 0x09d5f47du, 0x13abe8fau, 0x2757d1f5u,
  0x4eafa3eau, 0x9d5f47d4u, 0x3abe8fa9u, 0x757d1f53u, 0xeafa3ea6u, 0xd5f47d4du, 0xabe8fa9au,
  0x57d1f534u, 0xafa3ea69u, 0x5f47d4d3u, 0xbe8fa9a6u, 0x7d1f534du, 0xfa3ea69bu, 0xf47d4d37u,
  0xe8fa9a6eu, 0xd1f534ddu, 0xa3ea69bbu, 0x47d4d377u, 0x8fa9a6eeu, 0x1f534ddcu, 0x3ea69bb8u,
  0x7d4d3770u, 0xfa9a6ee0u, 0xf534ddc0u, 0xea69bb81u, 0xd4d37703u, 0xa9a6ee06u, 0x534ddc0du,
  0xa69bb81bu, 0x4d377036u, 0x9a6ee06du, 0x34ddc0dbu, 0x69bb81b6u, 0xd377036du, 0xa6ee06dbu,
  0x4ddc0db6u, 0x9bb81b6cu, 0x377036d8u, 0x6ee06db1u, 0xddc0db62u, 0xbb81b6c5u, 0x77036d8au,
  0xee06db14u, 0xdc0db629u, 0xb81b6c52u, 0x7036d8a5u, 0xe06db14au, 0xc0db6295u, 0x81b6c52bu,
  0x036d8a56u, 0x06db14acu, 0x0db62959u, 0x1b6c52b3u, 0x36d8a566u, 0x6db14accu, 0xdb629599u,
  0xb6c52b32u, 0x6d8a5664u, 0xdb14acc9u, 0xb6295993u, 0x6c52b327u, 0xd8a5664fu, 0xb14acc9eu,
  0x6295993cu, 0xc52b3278u, 0x8a5664f1u, 0x14acc9e2u, 0x295993c4u, 0x52b32788u, 0xa5664f10u,
  0x4acc9e21u, 0x95993c43u, 0x2b327887u, 0x5664f10eu, 0xacc9e21cu, 0x5993c439u, 0xb3278872u,
  0x664f10e4u, 0xcc9e21c8u, 0x993c4390u, 0x32788720u, 0x64f10e41u, 0xc9e21c82u, 0x93c43904u,
  0x27887208u, 0x4f10e410u, 0x9e21c820u, 0x3c439041u, 0x78872083u, 0xf10e4107u, 0xe21c820fu,
  0xc439041fu, 0x8872083fu, 0x10e4107fu};

/* |x| / (pi/2) = quadrant + rest with rest in [-1/2, 1/2], in integers, so exact for every float
   from 1/2 on. Returns the rest in radians. */
LEHR_FN double lehr_turn_f32(float x, int32_t *quadrant) {
  uint32_t b = lehr_bits_f32(x) & 0x7fffffff;
  int32_t e = (int32_t)(b >> 23) - 126;
  e = e < 0 ? 0 : e > 128 ? 128 : e;
  uint64_t m = (b & 0x7fffff) | 0x800000;
  uint64_t f = m * lehr_turns[e] + (m * lehr_more_turns[e] >> 32);
  int64_t q = (int64_t)(f + 0x2000000000000000u) >> 62;
  *quadrant = (int32_t)q;
  return (double)(int64_t)(f - ((uint64_t)q << 62)) * 3.4061215800304615e-19;
}

LEHR_FN float lehr_sinpoly_f32(float r) {
  float t = r * r;
  float p = LEHR_FMA(2.7183041e-6f, t, -1.9839335e-4f);
  p = LEHR_FMA(p, t, 8.333329e-3f);
  p = LEHR_FMA(p, t, -1.6666667e-1f);
  return LEHR_FMA(p * t, r, r);
}

LEHR_FN float lehr_cospoly_f32(float r) {
  float t = r * r;
  float p = LEHR_FMA(-2.7210166e-7f, t, 2.479952e-5f);
  p = LEHR_FMA(p, t, -1.3888883e-3f);
  p = LEHR_FMA(p, t, 4.1666668e-2f);
  p = LEHR_FMA(p, t, -0.5f);
  return LEHR_FMA(p, t, 1.0f);
}

LEHR_FN float lehr_sin_f32(float x) {
  int32_t q;
  float a = __builtin_fabsf(x), r = (float)lehr_turn_f32(x, &q);
  float y = q & 1 ? lehr_cospoly_f32(r) : lehr_sinpoly_f32(r);
  y = q & 2 ? -y : y;
  y = a < 0.78f ? lehr_sinpoly_f32(a) : y;
  y = x < 0 ? -y : y;
  y = a < 1e-4f ? x : y;
  return a < __builtin_inff() ? y : x - x;
}

LEHR_FN float lehr_cos_f32(float x) {
  int32_t q;
  float a = __builtin_fabsf(x), r = (float)lehr_turn_f32(x, &q);
  float y = q & 1 ? lehr_sinpoly_f32(r) : lehr_cospoly_f32(r);
  y = (q + 1) & 2 ? -y : y;
  y = a < 0.78f ? lehr_cospoly_f32(a) : y;
  return a < __builtin_inff() ? y : x - x;
}

LEHR_FN float lehr_tan_f32(float x) {
  int32_t q;
  float a = __builtin_fabsf(x);
  double r = lehr_turn_f32(x, &q);
  r = a < 0.78f ? (double)a : r;
  q = a < 0.78f ? 0 : q;
  double t = r * r;
  double s = LEHR_FMAD(-2.4761624373940359e-08, t, 2.7555357396241064e-06);
  s = LEHR_FMAD(s, t, -0.00019841263821463687);
  s = LEHR_FMAD(s, t, 0.0083333333252694868);
  s = LEHR_FMAD(s, t, -0.16666666666631588);
  s = LEHR_FMAD(s * t, r, r);
  double c = LEHR_FMAD(2.0647846427830698e-09, t, -2.7555569186593242e-07);
  c = LEHR_FMAD(c, t, 2.4801580985539492e-05);
  c = LEHR_FMAD(c, t, -0.0013888888878313408);
  c = LEHR_FMAD(c, t, 0.041666666666602618);
  c = LEHR_FMAD(c * t, t, LEHR_FMAD(t, -0.5, 1.0));
  float y = (float)((q & 1 ? -c : s) / (q & 1 ? s : c));
  y = x < 0 ? -y : y;
  y = a < 1e-4f ? x : y;
  return a < __builtin_inff() ? y : x - x;
}

/* atan of a number in [0, 1]. */
LEHR_FN double lehr_wide_atan(double x) {
  double t = x * x;
  double p = LEHR_FMAD(0.00044917651422447379, t, -0.0033771184490147058);
  p = LEHR_FMAD(p, t, 0.011910724767574408);
  p = LEHR_FMAD(p, t, -0.026745475287202322);
  p = LEHR_FMAD(p, t, 0.044366446591816711);
  p = LEHR_FMAD(p, t, -0.060686555728758008);
  p = LEHR_FMAD(p, t, 0.075153689297338955);
  p = LEHR_FMAD(p, t, -0.09054950568902756);
  p = LEHR_FMAD(p, t, 0.11106369242550616);
  p = LEHR_FMAD(p, t, -0.14285343304763062);
  p = LEHR_FMAD(p, t, 0.19999985331340073);
  p = LEHR_FMAD(p, t, -0.3333333313018616);
  return LEHR_FMAD(p * t, x, x);
}

LEHR_FN float lehr_atan_f32(float x) {
  double a = __builtin_fabsf(x), y = lehr_wide_atan(a > 1.0 ? 1.0 / a : a);
  y = a > 1.0 ? 1.57079632679489661923 - y : y;
  return __builtin_fabsf(x) < 1e-4f ? x : __builtin_copysignf((float)y, x);
}

LEHR_FN float lehr_atan2_f32(float y, float x) {
  float ax = __builtin_fabsf(x), ay = __builtin_fabsf(y);
  float low = ax < ay ? ax : ay, high = ax < ay ? ay : ax;
  double ratio = low == high ? 1.0 : (double)low / (double)high;
  double r = lehr_wide_atan(high == 0 ? 0.0 : ratio);
  r = ay > ax ? 1.57079632679489661923 - r : r;
  r = lehr_bits_f32(x) >> 31 ? 3.14159265358979323846 - r : r;
  float z = __builtin_copysignf((float)r, y);
  return (x != x) | (y != y) ? x + y : z;
}

/* asin of a number in [0, 1]: above 1/2 by pi/2 - 2*asin(sqrt((1 - x) / 2)). */
LEHR_FN double lehr_wide_asin(double x) {
  double far = (1.0 - x) * 0.5, t = x > 0.5 ? far : x * x, s = x > 0.5 ? __builtin_sqrt(far) : x;
  double p = LEHR_FMAD(0.032957191226536037, t, 0.001934054841822733);
  p = LEHR_FMAD(p, t, 0.020664458462936193);
  p = LEHR_FMAD(p, t, 0.021861955617292352);
  p = LEHR_FMAD(p, t, 0.030426953739278773);
  p = LEHR_FMAD(p, t, 0.044640681436743455);
  p = LEHR_FMAD(p, t, 0.075000050587615427);
  p = LEHR_FMAD(p, t, 0.16666666626575383);
  double y = LEHR_FMAD(p * t, s, s);
  return x > 0.5 ? 1.57079632679489661923 - 2.0 * y : y;
}

LEHR_FN float lehr_asin_f32(float x) {
  float a = __builtin_fabsf(x), y = __builtin_copysignf((float)lehr_wide_asin(a), x);
  return a < 1e-4f ? x : a <= 1.0f ? y : __builtin_nanf("");
}

/* 2*asin(sqrt((1 - x) / 2)): no cancellation at 1. */
LEHR_FN float lehr_acos_f32(float x) {
  double a = __builtin_fabsf(x), s = lehr_wide_asin(__builtin_sqrt((1.0 - a) * 0.5)) * 2.0;
  float y = (float)(x < 0 ? 3.14159265358979323846 - s : s);
  return a <= 1.0 ? y : __builtin_nanf("");
}

LEHR_FN float lehr_sinh_f32(float x) {
  double a = x, t = a * a, e = lehr_wide_exp(a);
  double p = LEHR_FMAD(2.7710985011649029e-06, t, 0.00019840945480399796);
  p = LEHR_FMAD(p, t, 0.008333333603053843);
  p = LEHR_FMAD(p, t, 0.1666666666596959);
  float y = (float)(t < 0.25 ? LEHR_FMAD(p * t, a, a) : (e - 1.0 / e) * 0.5);
  return __builtin_fabsf(x) < 1e-4f ? x : y;
}

LEHR_FN float lehr_cosh_f32(float x) {
  double e = lehr_wide_exp(x);
  return (float)((e + 1.0 / e) * 0.5);
}

LEHR_FN float lehr_asinh_f32(float x) {
  double a = __builtin_fabsf(x), t = a * a;
  double y = lehr_wide_log(a + __builtin_sqrt(t + 1.0));
  y = a < 0.01 ? a * (1.0 + t * (t * 0.075 - 0.16666666666666667)) : y;
  return __builtin_fabsf(x) < 1e-4f ? x : __builtin_copysignf((float)y, x);
}

LEHR_FN float lehr_acosh_f32(float x) {
  double a = x, t = a - 1.0, d = t + __builtin_sqrt(t * (a + 1.0)), u = 1.0 + d;
  double y = lehr_wide_log(u) + (d < 1.0 ? (d - (u - 1.0)) / u : 0.0);
  return x >= 1.0f ? (x < __builtin_inff() ? (float)y : x) : __builtin_nanf("");
}

LEHR_FN float lehr_atanh_f32(float x) {
  double a = __builtin_fabsf(x), t = a * a;
  double y = 0.5 * lehr_wide_log((1.0 + a) / (1.0 - a));
  y = a < 0.01 ? a * (1.0 + t * (0.33333333333333333 + t * 0.2)) : y;
  y = a > 1.0 ? __builtin_nan("") : y;
  return __builtin_fabsf(x) < 1e-4f ? x : __builtin_copysignf((float)y, x);
}

LEHR_FN float lehr_hypot_f32(float x, float y) {
  float ax = __builtin_fabsf(x), ay = __builtin_fabsf(y), inf = __builtin_inff();
  float r = (float)__builtin_sqrt((double)x * x + (double)y * y);
  return (ax == inf) | (ay == inf) ? inf : r;
}

/* exp(-x*x) * g / (1 + 2x) for x >= 0, g a polynomial of (x - 2) / (x + 2). */
LEHR_FN float lehr_erfc_f32(float x) {
  double a = __builtin_fabsf(x), c = a > 11.0 ? 11.0 : a, s = (c - 2.0) / (c + 2.0);
  double p = LEHR_FMAD(-1.1275477e-05, s, -5.8809129224266954e-06);
  p = LEHR_FMAD(p, s, 0.00011895099611058179);
  p = LEHR_FMAD(p, s, 0.00019886817497668285);
  p = LEHR_FMAD(p, s, -0.00043660311714217176);
  p = LEHR_FMAD(p, s, -0.0014503590486253228);
  p = LEHR_FMAD(p, s, 0.0012663807032515634);
  p = LEHR_FMAD(p, s, 0.0087207068972148857);
  p = LEHR_FMAD(p, s, -0.0080333078772241162);
  p = LEHR_FMAD(p, s, -0.054219753619431259);
  p = LEHR_FMAD(p, s, 0.16405123403807073);
  p = LEHR_FMAD(p, s, -0.16603040872093489);
  p = LEHR_FMAD(p, s, -0.092763825660973867);
  p = LEHR_FMAD(p, s, 1.2769783816307438);
  double y = lehr_wide_exp(-c * c) * p / (1.0 + 2.0 * c);
  return x != x ? x : (float)(x < 0 ? 2.0 - y : y);
}

LEHR_FN float lehr_lgamma_f32(float x) { return (float)__builtin_lgamma((double)x); }

LEHR_FN float lehr_abs_f32(float x) { return __builtin_fabsf(x); }

LEHR_FN float lehr_copysign_f32(float x, float y) { return __builtin_copysignf(x, y); }

LEHR_FN int lehr_signbit_f32(float x) { return (int)(lehr_bits_f32(x) >> 31); }

LEHR_FN float lehr_floor_f32(float x) { return __builtin_floorf(x); }

LEHR_FN float lehr_ceil_f32(float x) { return __builtin_ceilf(x); }

LEHR_FN float lehr_trunc_f32(float x) { return __builtin_truncf(x); }

LEHR_FN float lehr_rint_f32(float x) { return __builtin_rintf(x); }

LEHR_FN float lehr_maximum_f32(float a, float b) { return (a > b) | (a != a) ? a : b; }

LEHR_FN float lehr_minimum_f32(float a, float b) { return (a < b) | (a != a) ? a : b; }

LEHR_FN float lehr_fmod_f32(float a, float b) { return __builtin_fmodf(a, b); }

/* The sign of the divisor; a zero takes it too. */
LEHR_FN float lehr_remainder_f32(float a, float b) {
  float r = __builtin_fmodf(a, b);
  float moved = (r < 0) != (b < 0) ? r + b : r;
  return r != 0 ? moved : __builtin_copysignf(r, b);
}

/* From the remainder, so that it fits it; the quotient itself may round up to the next number. */
LEHR_FN float lehr_floor_divide_f32(float a, float b) {
  float r = __builtin_fmodf(a, b), q = (a - r) / b;
  q = r != 0 && (r < 0) != (b < 0) ? q - 1 : q;
  float whole = __builtin_floorf(q);
  whole = q - whole > 0.5f ? whole + 1 : whole;
  whole = q != 0 ? whole : __builtin_copysignf(0.0f, a / b);
  return b == 0 ? a / b : whole;
}

LEHR_FN float lehr_trunc_divide_f32(float a, float b) { return __builtin_truncf(a / b); }
