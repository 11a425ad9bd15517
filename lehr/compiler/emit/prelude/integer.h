/* Integer arithmetic, for every width: LEHR_X(t, C, U, bits) makes lehr_x_t, where C is the type
   and U its unsigned form. Built with -fwrapv: signed arithmetic wraps. Division by zero gives 0
   here; callers that have to raise check the divisor. */

#define LEHR_ABS(t, C, U, bits) \
  LEHR_FN C lehr_abs_##t(C a) { return (C)(a < 0 ? -a : a); }

#define LEHR_MAXIMUM(t, C, U, bits) \
  LEHR_FN C lehr_maximum_##t(C a, C b) { return a > b ? a : b; }

#define LEHR_MINIMUM(t, C, U, bits) \
  LEHR_FN C lehr_minimum_##t(C a, C b) { return a < b ? a : b; }

/* The least number divided by -1 wraps to itself; the instruction would trap. */
#define LEHR_TRUNC_DIVIDE(t, C, U, bits) \
  LEHR_FN C lehr_trunc_divide_##t(C a, C b) { \
    int minus = (C)-1 < 0 && b == (C)-1; \
    C d = (C)(b == 0 || minus ? 1 : b), q = (C)(a / d); \
    return (C)(minus ? -a : b == 0 ? 0 : q); \
  }

#define LEHR_FMOD(t, C, U, bits) \
  LEHR_FN C lehr_fmod_##t(C a, C b) { \
    C d = (C)(b == 0 || ((C)-1 < 0 && b == (C)-1) ? 1 : b); \
    return (C)(a % d); \
  }

#define LEHR_FLOOR_DIVIDE(t, C, U, bits) \
  LEHR_FN C lehr_floor_divide_##t(C a, C b) { \
    int minus = (C)-1 < 0 && b == (C)-1; \
    C d = (C)(b == 0 || minus ? 1 : b), q = (C)(a / d), r = (C)(a - q * d); \
    q = (C)(q - (r != 0 && (r < 0) != (d < 0))); \
    return (C)(minus ? -a : b == 0 ? 0 : q); \
  }

#define LEHR_REMAINDER(t, C, U, bits) \
  LEHR_FN C lehr_remainder_##t(C a, C b) { \
    C d = (C)(b == 0 || ((C)-1 < 0 && b == (C)-1) ? 1 : b), r = (C)(a % d); \
    return (C)(r != 0 && (r < 0) != (d < 0) ? r + d : r); \
  }

/* A shift by the width or more, or by a negative amount, leaves nothing, or the sign. */
#define LEHR_SHL(t, C, U, bits) \
  LEHR_FN C lehr_shl_##t(C a, C b) { \
    U n = (U)b; \
    return (C)(n < bits ? (U)((U)a << (n & (bits - 1))) : 0); \
  }

#define LEHR_SHR(t, C, U, bits) \
  LEHR_FN C lehr_shr_##t(C a, C b) { \
    U n = (U)b; \
    return (C)(n < bits ? a >> (n & (bits - 1)) : a < 0 ? -1 : 0); \
  }

#define LEHR_GCD(t, C, U, bits) \
  static __attribute__((unused)) C lehr_gcd_##t(C a, C b) { \
    U x = (U)(a < 0 ? -a : a), y = (U)(b < 0 ? -b : b); \
    while (y != 0) { \
      U r = (U)(x % y); \
      x = y; \
      y = r; \
    } \
    return (C)x; \
  }

/* Wrapping; a negative power is 1 / a, truncated. */
#define LEHR_POW(t, C, U, bits) \
  static __attribute__((unused)) C lehr_pow_##t(C a, C b) { \
    if (b < 0) return (C)(a == 1 ? 1 : a == (C)-1 ? (b & 1 ? -1 : 1) : 0); \
    U r = 1, x = (U)a; \
    for (; b != 0; b = (C)(b >> 1)) { \
      if (b & 1) r = (U)(r * (uint64_t)x); \
      x = (U)(x * (uint64_t)x); \
    } \
    return (C)r; \
  }
