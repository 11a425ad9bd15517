/* bfloat16 numbers for templates: as float32 numbers, and packed into panels for products on tiles
   (AMX) or by vectors of dot products (AVX512-BF16), summed in float32. Where PACKED is 0, the
   processor has neither. Both take denormal numbers for 0, so packing tells of any. */
#ifdef AMX
#include <immintrin.h>

/* 16 x 16 words. */
AMX static inline void transpose(__m512i *r) {
  __m512i t[16];
  UNROLL for (int i = 0; i < 8; i++) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  UNROLL for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  UNROLL for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0xdd);
    t[8 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0xdd);
  }
  UNROLL for (int i = 0; i < 8; i++) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0x88);
    r[8 + i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0xdd);
  }
}

AMX static inline __mmask16 first(int64_t n) {
  return n >= 16 ? 0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1);
}
#endif

#if defined(AMX) && defined(__AVX512BF16__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define PACKED 1
#else
#define PACKED 0
#define BEGIN (void)0
#define END (void)0
#endif

/* The address of an element of an operand. */
static inline const char *spot(const void *x, int64_t n, int64_t wide) {
  return (const char *)x + n * (wide ? 4 : 2);
}

/* A rectangle as float32 numbers that bfloat16 has. */
static inline void floats(const char *x, int64_t ld, int64_t wide, int64_t rows, int64_t columns,
                   float *to) {
  for (int64_t r = 0; r < rows; r++)
    if (wide) {
      const char *from = x + r * ld * 4;
      for (int64_t c = 0; c < columns; c++) {
        uint32_t bits, up;
        memcpy(&bits, from + c * 4, 4);
        up = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
        bits = (bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : up;
        memcpy(to + r * columns + c, &bits, 4);
      }
    } else {
      const char *from = x + r * ld * 2;
      for (int64_t c = 0; c < columns; c++) {
        uint16_t half;
        memcpy(&half, from + c * 2, 2);
        uint32_t bits = (uint32_t)half << 16;
        memcpy(to + r * columns + c, &bits, 4);
      }
    }
}

/* float32 numbers times `scale`, rounded to the nearest bfloat16 numbers. */
static inline void narrow(const float *x, float scale, int64_t n, char *to) {
  uint16_t *put = (uint16_t *)(void *)to;
  for (int64_t j = 0; j < n; j++) {
    const float e = x[j] * scale;
    uint32_t bits;
    memcpy(&bits, &e, 4);
    put[j] = e == e ? (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16) : 0x7fc0;
  }
}

#if PACKED
static const uint16_t ZIP[32] __attribute__((aligned(64))) = {
    0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23,
    8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};

/* Sixteen numbers of a row of memory, those that `here` says, as bfloat16 in the lower half. */
#define NARROW(x, here) _mm512_castsi256_si512(_mm256_maskz_loadu_epi16(here, x))

/* A tile from up to 16 `rows` and 32 terms (`depth` of them there). Terms are neighbours in memory,
   or, where `across`, rows are. `turn`: the tile's rows are pairs of terms. Gives whether there is
   a denormal number. */
__attribute__((always_inline)) static inline int block(const char *x, int64_t ld, int wide,
                                                       int64_t rows, int64_t depth, int across,
                                                       int turn, char *to) {
  const __m512i zip = _mm512_load_si512(ZIP), one = _mm512_set1_epi16(1);
  const __m512i none = _mm512_setzero_si512();
  const __mmask16 here = first(across ? rows : depth), more = first(depth - 16);
  __m512i r[16], low = _mm512_set1_epi16(-1);
  __mmask16 denormal = 0;
  for (int i = 0; i < 16; i++) {
    int64_t u = across ? 2 * i : i, v = across ? 2 * i + 1 : i, end = across ? depth : rows;
    if (wide) {
      const float *p = (const float *)x + u * ld, *s = (const float *)x + v * ld;
      __m512 a = u < end ? _mm512_maskz_loadu_ps(here, p) : (__m512)none;
      __m512 b = v >= end ? (__m512)none
                 : across ? _mm512_maskz_loadu_ps(here, s)
                          : _mm512_maskz_loadu_ps(more, p + 16);
      denormal |= _mm512_fpclass_ps_mask(a, 0x20) | _mm512_fpclass_ps_mask(b, 0x20);
      r[i] = (__m512i)_mm512_cvtne2ps_pbh(b, a);
      if (across) r[i] = _mm512_permutexvar_epi16(zip, r[i]);
    } else {
      const uint16_t *p = (const uint16_t *)x + u * ld, *s = (const uint16_t *)x + v * ld;
      if (across) {
        __m512i a = u < end ? NARROW(p, here) : none, b = v < end ? NARROW(s, here) : none;
        r[i] = _mm512_permutexvar_epi16(
            zip, _mm512_inserti64x4(a, _mm512_castsi512_si256(b), 1));
      } else
        r[i] = u < end ? _mm512_maskz_loadu_epi16(here | (__mmask32)more << 16, p) : none;
      /* Magnitudes less one, twice: 0 is the largest. */
      low = _mm512_min_epu16(low, _mm512_sub_epi16(_mm512_slli_epi16(r[i], 1), one));
    }
  }
  if (turn) transpose(r);
  for (int i = 0; i < 16; i++) _mm512_store_si512(to + i * 64, r[i]);
  return denormal || _mm512_cmplt_epu16_mask(low, _mm512_set1_epi16(0xff));
}

/* Panels of 32 rows; of each, steps of 32 terms of two tiles, panels `panel` bytes apart. */
__attribute__((always_inline)) static inline int packed(const char *x, int64_t ld, int wide,
                                                        int64_t rows, int64_t depth, int across,
                                                        int turn, char *to, int64_t panel) {
  int64_t steps = (depth + 31) / 32, groups = (rows + SIDE - 1) / SIDE * 2;
  int bad = 0;
  for (int64_t n = 0; n < groups * steps; n++) { /* along memory */
    int64_t group = across ? n % groups : n / steps, step = across ? n / groups : n % steps;
    const char *from = spot(x, across ? step * 32 * ld + group * 16 : group * 16 * ld + step * 32,
                          wide);
    const char *next = from + (across ? 32 : 16) * ld * (wide ? 4 : 2);
    for (int i = across ? 32 : 16; i > 0; i--, next += ld * (wide ? 4 : 2)) {
      __builtin_prefetch(next);
      if (!across && wide) __builtin_prefetch(next + 64);
    }
    bad |= block(from, ld, wide, rows - group * 16, depth - step * 32, across, turn,
                 to + group / 2 * panel + step * PART + group % 2 * TILE);
  }
  return bad;
}

/* 32 x 32 of C, from `steps` steps of a panel of A and one of B; at least `high` rows (of 32) and
   `wide` columns of it. */
typedef void (*lehr_corner)(const char *a, const char *b, int64_t steps, float *c, int64_t ldc,
                            int add, int64_t high, int64_t wide, const char *next);

/* Eight rows of 16 or 32 columns at a time: sixteen sums are enough to hide how long one takes. */
__attribute__((always_inline)) static inline void dots(const char *a, const char *b, int64_t steps,
                                                       float *c, int64_t ldc, int add,
                                                       int64_t high, const int wide) {
  for (int64_t r = 0; r < high; r += 8) {
    __m512 sum[8][2];
    const char *x = a + r / 16 * TILE + r % 16 * 64, *y = b;
    float *to = c + r * ldc;
    UNROLL for (int i = 0; i < 8; i++)
      UNROLL for (int j = 0; j < wide; j++)
        sum[i][j] = add ? _mm512_loadu_ps(to + i * ldc + j * 16) : _mm512_setzero_ps();
    for (int64_t s = 0; s < steps; s++, x += PART, y += PART)
      for (int k = 0; k < 16; k++) {
        __m512bh u[2];
        UNROLL for (int j = 0; j < wide; j++)
          u[j] = (__m512bh)_mm512_load_si512(y + j * TILE + k * 64);
        UNROLL for (int i = 0; i < 8; i++) {
          int32_t pair; /* the last operand may come from memory */
          memcpy(&pair, x + i * 64 + k * 4, 4);
          __m512bh p = (__m512bh)_mm512_set1_epi32(pair);
          UNROLL for (int j = 0; j < wide; j++)
            sum[i][j] = _mm512_dpbf16_ps(sum[i][j], u[j], p);
        }
      }
    UNROLL for (int i = 0; i < 8; i++)
      UNROLL for (int j = 0; j < wide; j++) _mm512_storeu_ps(to + i * ldc + j * 16, sum[i][j]);
  }
}

static void by_dots(const char *a, const char *b, int64_t steps, float *c, int64_t ldc, int add,
                    int64_t high, int64_t wide, const char *next) {
  (void)next;
  if (wide > 16)
    dots(a, b, steps, c, ldc, add, high, 2);
  else
    dots(a, b, steps, c, ldc, add, high, 1);
}

static lehr_corner corner = by_dots;

#if defined(__AMX_BF16__)
static int has_tiles;
/* `next`: what is wanted next of B. */
static void by_tiles(const char *a, const char *b, int64_t steps, float *c, int64_t ldc, int add,
                     int64_t high, int64_t wide, const char *next) {
  (void)high, (void)wide;
  begin(c, ldc, add);
  for (; steps > 0; steps--, a += PART, b += PART) {
    LOAD(4, a, 64);
    LOAD(6, b, 64);
    if (next) {
      UNROLL for (int i = 0; i < 8; i++) __builtin_prefetch(next + i * 64, 0, 2);
      next += 512;
    }
    LOAD(7, b + TILE, 64);
    SUM(0, 4, 6);
    LOAD(5, a + TILE, 64);
    SUM(1, 4, 7);
    SUM(2, 5, 6);
    SUM(3, 5, 7);
  }
  end(c, ldc);
}
#define BEGIN if (has_tiles) tiles()
#define END if (has_tiles) release()
#else
#define BEGIN (void)0
#define END (void)0
#endif

/* Rows of packed panels of A times packed panels of B; only `m` by `n` of C are there. */
static inline void panels(const char *a, int64_t a_panel, const char *b, int64_t b_panel,
                          int64_t steps, float *c, int64_t ldc, int add, int64_t m, int64_t n) {
  float whole[SIDE * SIDE] __attribute__((aligned(64)));
  int64_t many = (m + SIDE - 1) / SIDE;
  for (int64_t j = 0; j < n; j += SIDE) {
    const char *y = b + j / SIDE * b_panel;
    /* Each tile asks for its share of the next panel, of four shares at least. */
    for (int64_t i = 0; i < many; i++) {
      int64_t high = least(m - i * SIDE, SIDE), wide = least(n - j, SIDE);
      const char *next = i < 4 && j + SIDE < n ? y + b_panel + i * steps * 512 : NULL;
      float *to = c + i * SIDE * ldc + j;
      if (high == SIDE && wide == SIDE) {
        corner(a + i * a_panel, y, steps, to, ldc, add, SIDE, SIDE, next);
        continue;
      }
      if (add)
        for (int64_t r = 0; r < high; r++) memcpy(whole + r * SIDE, to + r * ldc, (size_t)wide * 4);
      corner(a + i * a_panel, y, steps, whole, SIDE, add, high, wide, next);
      for (int64_t r = 0; r < high; r++) memcpy(to + r * ldc, whole + r * SIDE, (size_t)wide * 4);
    }
  }
}
#endif

/* Tiles where the system lets this process use them. */
static void prefer(void) {
#if PACKED && defined(__AMX_BF16__)
  has_tiles = allowed();
  if (has_tiles) corner = by_tiles;
#endif
}
