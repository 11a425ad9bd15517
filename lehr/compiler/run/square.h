/* Squares of a vector's lanes. */
/* Rows of a square become its columns: pairs of rows trade halves, then quarters, ... */
static inline __attribute__((always_inline)) void transpose(vec *r) {
  UNROLL for (int d = 1; d < LANES; d *= 2) {
    ints low, high;
    UNROLL for (int l = 0; l < LANES; l++) {
      low[l] = l & d ? LANES + (l ^ d) : l;
      high[l] = l & d ? LANES + l : l ^ d;
    }
    UNROLL for (int i = 0; i < LANES; i++) if (!(i & d)) {
      vec a = r[i], b = r[i + d];
#if defined(__clang__)
      vec both[2] = {a, b};
      const float *from = (const float *)both;
      UNROLL for (int l = 0; l < LANES; l++) r[i][l] = from[low[l]], r[i + d][l] = from[high[l]];
#else
      r[i] = __builtin_shuffle(a, b, low);
      r[i + d] = __builtin_shuffle(a, b, high);
#endif
    }
  }
}
