/* Squares of a vector's lanes. */
/* Lane l of a row, of which every other d lanes are traded with the row d below: what comes of the
   upper row, of the lower one. Spelt out, they cost the compiler nothing. */
#define UPPER(l, d) ((l) & (d) ? LANES + ((l) ^ (d)) : (l))
#define LOWER(l, d) ((l) & (d) ? LANES + (l) : (l) ^ (d))
#define EIGHT(f, l, d) \
  f(l, d), f(l + 1, d), f(l + 2, d), f(l + 3, d), f(l + 4, d), f(l + 5, d), f(l + 6, d), f(l + 7, d)
#if LANES == 16
#define LIST(f, d) EIGHT(f, 0, d), EIGHT(f, 8, d)
#else
#define LIST(f, d) EIGHT(f, 0, d)
#endif
#define TRADE(d)                                         \
  UNROLL for (int i = 0; i < LANES; i++) if (!(i & d)) { \
    const vec a = r[i], b = r[i + d];                    \
    r[i] = SHUFFLE(a, b, LIST(UPPER, d));                 \
    r[i + d] = SHUFFLE(a, b, LIST(LOWER, d));             \
  }

/* Rows of a square become its columns: pairs of rows trade halves, then quarters, ... */
static inline __attribute__((always_inline)) void transpose(vec *r) {
  TRADE(1)
  TRADE(2)
  TRADE(4)
#if LANES == 16
  TRADE(8)
#endif
}
