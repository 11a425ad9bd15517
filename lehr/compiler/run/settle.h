/* The sums of the lanes of several vectors at once. */
#define EACH(i, n) UNROLL for (int i = 0; i < (n); i++)

/* What is left of each vector's lanes is halved: of x in front, of y behind. */
#if LANES == 16
#define HALVES(f) \
  f(0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 8) \
  f(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27, 4) \
  f(0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29, 2) \
  f(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 1)
#define HALVE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, by)                            \
  FOLD(SHUFFLE(x, y, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) +                       \
       SHUFFLE(x, y, a + by, b + by, c + by, d + by, e + by, f + by, g + by, h + by, i + by, \
               j + by, k + by, l + by, m + by, n + by, o + by, p + by))
#else
#define HALVES(f) \
  f(0, 1, 2, 3, 8, 9, 10, 11, 4) f(0, 1, 4, 5, 8, 9, 12, 13, 2) f(0, 2, 4, 6, 8, 10, 12, 14, 1)
#define HALVE(a, b, c, d, e, f, g, h, by)                                                    \
  FOLD(SHUFFLE(x, y, a, b, c, d, e, f, g, h) +                                               \
       SHUFFLE(x, y, a + by, b + by, c + by, d + by, e + by, f + by, g + by, h + by))
#endif
#define FOLD(sum)                                                                            \
  left = left > 1 ? left / 2 : 1;                                                            \
  EACH(i, LANES / 2) if (i < left) {                                                         \
    const vec x = s[2 * i < count ? 2 * i : 0], y = s[2 * i + 1 < count ? 2 * i + 1 : 0];    \
    s[i] = sum;                                                                              \
  }

/* The sums of the lanes of each of `count` vectors, a power of 2 up to LANES. */
static inline __attribute__((always_inline)) vec settled(vec *s, const int count) {
  int left = count;
  HALVES(HALVE)
  return s[0];
}
