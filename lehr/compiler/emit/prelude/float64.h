/* Double precision: the C library's functions, through builtins. */

LEHR_FN double lehr_exp_f64(double x) { return __builtin_exp(x); }

LEHR_FN double lehr_exp2_f64(double x) { return __builtin_exp2(x); }

LEHR_FN double lehr_expm1_f64(double x) { return __builtin_expm1(x); }

LEHR_FN double lehr_log_f64(double x) { return __builtin_log(x); }

LEHR_FN double lehr_log2_f64(double x) { return __builtin_log2(x); }

LEHR_FN double lehr_log10_f64(double x) { return __builtin_log10(x); }

LEHR_FN double lehr_log1p_f64(double x) { return __builtin_log1p(x); }

LEHR_FN double lehr_sqrt_f64(double x) { return __builtin_sqrt(x); }

LEHR_FN double lehr_pow_f64(double x, double y) { return __builtin_pow(x, y); }

LEHR_FN double lehr_sin_f64(double x) { return __builtin_sin(x); }

LEHR_FN double lehr_cos_f64(double x) { return __builtin_cos(x); }

LEHR_FN double lehr_tan_f64(double x) { return __builtin_tan(x); }

LEHR_FN double lehr_asin_f64(double x) { return __builtin_asin(x); }

LEHR_FN double lehr_acos_f64(double x) { return __builtin_acos(x); }

LEHR_FN double lehr_atan_f64(double x) { return __builtin_atan(x); }

LEHR_FN double lehr_atan2_f64(double y, double x) { return __builtin_atan2(y, x); }

LEHR_FN double lehr_sinh_f64(double x) { return __builtin_sinh(x); }

LEHR_FN double lehr_cosh_f64(double x) { return __builtin_cosh(x); }

LEHR_FN double lehr_tanh_f64(double x) { return __builtin_tanh(x); }

LEHR_FN double lehr_asinh_f64(double x) { return __builtin_asinh(x); }

LEHR_FN double lehr_acosh_f64(double x) { return __builtin_acosh(x); }

LEHR_FN double lehr_atanh_f64(double x) { return __builtin_atanh(x); }

LEHR_FN double lehr_hypot_f64(double x, double y) { return __builtin_hypot(x, y); }

LEHR_FN double lehr_erf_f64(double x) { return __builtin_erf(x); }

LEHR_FN double lehr_erfc_f64(double x) { return __builtin_erfc(x); }

LEHR_FN double lehr_lgamma_f64(double x) { return __builtin_lgamma(x); }

LEHR_FN double lehr_abs_f64(double x) { return __builtin_fabs(x); }

LEHR_FN double lehr_copysign_f64(double x, double y) { return __builtin_copysign(x, y); }

LEHR_FN int lehr_signbit_f64(double x) { return (int)(lehr_bits_f64(x) >> 63); }

LEHR_FN double lehr_floor_f64(double x) { return __builtin_floor(x); }

LEHR_FN double lehr_ceil_f64(double x) { return __builtin_ceil(x); }

LEHR_FN double lehr_trunc_f64(double x) { return __builtin_trunc(x); }

LEHR_FN double lehr_rint_f64(double x) { return __builtin_rint(x); }

LEHR_FN double lehr_maximum_f64(double a, double b) { return (a > b) | (a != a) ? a : b; }

LEHR_FN double lehr_minimum_f64(double a, double b) { return (a < b) | (a != a) ? a : b; }

LEHR_FN double lehr_fmod_f64(double a, double b) { return __builtin_fmod(a, b); }

/* The sign of the divisor; a zero takes it too. */
LEHR_FN double lehr_remainder_f64(double a, double b) {
  double r = __builtin_fmod(a, b);
  double moved = (r < 0) != (b < 0) ? r + b : r;
  return r != 0 ? moved : __builtin_copysign(r, b);
}

/* From the remainder, so that it fits it; the quotient itself may round up to the next number. */
LEHR_FN double lehr_floor_divide_f64(double a, double b) {
  double r = __builtin_fmod(a, b), q = (a - r) / b;
  q = r != 0 && (r < 0) != (b < 0) ? q - 1 : q;
  double whole = __builtin_floor(q);
  whole = q - whole > 0.5 ? whole + 1 : whole;
  whole = q != 0 ? whole : __builtin_copysign(0.0, a / b);
  return b == 0 ? a / b : whole;
}

LEHR_FN double lehr_trunc_divide_f64(double a, double b) { return __builtin_trunc(a / b); }
