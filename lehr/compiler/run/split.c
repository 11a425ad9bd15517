/* Products of float32 matrices on tiles of bfloat16 (x86 with AMX): every number is the sum of
   three bfloat16 numbers, x = h + m + l, exactly (8 + 8 + 8 bits, the first two rounded). Of the
   nine products of parts the six that are not below 2^-26 of the whole are summed in float32.
   Errors are those of a float32 product or smaller. Numbers for which that does not hold
   (infinities, NaN, 2^63 and more, below 2^-103 and not 0) are left to another gemm. Products of
   parts that are 0 in all numbers are skipped: the result is the same. Numbers that are bfloat16
   already are not taken apart at all. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORT __attribute__((visibility("default")))
#ifdef AMX
/* Rows of A, columns of B and terms of the sum (of three parts) that are packed at once, so that
   B's stay in the second cache. */
enum { ROWS = 2048, COLUMNS = 256, DEPTH = 384 };

/* The upper halves of the words of two vectors: one after the other, and in turn. */
#define JOIN \
  1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43, 45, 47, 49, \
      51, 53, 55, 57, 59, 61, 63
#define ZIP \
  1, 33, 3, 35, 5, 37, 7, 39, 9, 41, 11, 43, 13, 45, 15, 47, 17, 49, 19, 51, 21, 53, 23, 55, 25, \
      57, 27, 59, 29, 61, 31, 63

/* What was seen while packing: bits of the last parts (more than a bfloat16 number has, if not all
   is well) and of the third, the largest and smallest magnitudes (of bfloat16 numbers; 0 counts as
   largest of all to the latter). */
typedef struct {
  words rest, low;
  halves most, least;
} lehr_seen;

/* The nearest bfloat16 number to each: its bits in upper halves. */
AMX static inline words nearest(floats x) { return ((words)x + 0x8000) & 0xffff0000u; }

/* One tile of each of `parts` parts, from up to 16 `rows` and 32 terms (`depth` of them there).
   Terms are neighbours in memory, or, where `across`, rows are. `turn`: a tile's rows are pairs of
   terms. */
__attribute__((always_inline)) AMX static inline void block(const float *x, int64_t ld,
                                                            int64_t rows, int64_t depth, int across,
                                                            int turn, int parts, char *to,
                                                            lehr_seen *seen) {
  const floats zero = {0};
  lehr_seen s = *seen;
  for (int r = 0; r < 16; r++) {
    floats a = zero, b = zero;
    if (across) {
      if (2 * r < depth) a = head(x + 2 * r * ld, rows);
      if (2 * r + 1 < depth) b = head(x + (2 * r + 1) * ld, rows);
    } else if (r < rows) {
      a = head(x + r * ld, depth);
      b = head(x + r * ld + 16, depth - 16);
    }
    words p, first;
    for (int left = parts; left > 0; left--) {
      const words h = left > 1 ? nearest(a) : (words)a, i = left > 1 ? nearest(b) : (words)b;
      p = across ? PICK(halves, h, i, ZIP) : PICK(halves, h, i, JOIN);
      *(words *)(to + (parts - left) * PART + r * 64) = p;
      if (left == parts) first = p;
      if (left > 1) a -= (floats)h, b -= (floats)i;
    }
    s.rest |= (words)a | (words)b;
    if (parts == 3) s.low |= p;
    const halves size = (halves)first << 1;
    s.most = larger(s.most, size);
    s.least = smaller(s.least, size - 1);
  }
  *seen = s;
  if (turn)
    for (int p = 0; p < parts; p++) transpose(to + p * PART);
}

/* Panels of 32 rows; of each, steps of 32 terms; of each, `parts` (1 or 3) parts of two tiles.
   0 where a number is out of range or has more parts, else how many are there. */
__attribute__((always_inline)) AMX static inline int packed(const float *x, int64_t ld,
                                                            int64_t rows, int64_t depth,
                                                            int across, int turn, int parts,
                                                            char *to) {
  lehr_seen seen = {.least = (halves){0} - 1};
  int64_t steps = (depth + 31) / 32, groups = (rows + SIDE - 1) / SIDE * 2;
  for (int64_t q = 0; q < groups * steps; q++) { /* along memory */
    int64_t group = across ? q % groups : q / steps, step = across ? q / groups : q % steps;
    const float *at = x + (across ? step * 32 * ld + group * 16 : group * 16 * ld + step * 32);
    const float *next = at + (across ? 32 : 16) * ld;
    for (int i = across ? 32 : 16; i > 0; i--, next += ld) {
      __builtin_prefetch(next);
      if (!across) __builtin_prefetch(next + 16);
    }
    block(at, ld, rows - group * 16, depth - step * 32, across, turn, parts,
          to + (group / 2 * steps + step) * parts * PART + group % 2 * TILE, &seen);
    if (parts == 1 && any(seen.rest & 0xffff)) return 0;
  }
  /* Exponents 0 to 255, then 8 other bits. What is not the sum of its parts leaves a rest. */
  if (any((words)(seen.most >= (127 + 63) << 8)) || any((words)(seen.least < (127 - 103) << 8)) ||
      any(seen.rest & 0xffff))
    return 0;
  if (parts == 1) return 1;
  return any(seen.low & 0x7fff7fff) ? 3 : 2; /* -0 is 0 */
}

AMX static int pack(const float *x, int64_t ld, int64_t rows, int64_t depth, int across, int turn,
                    int parts, char *to) {
#define CASE(n, c) \
  if (parts == n && across == c) return packed(x, ld, rows, depth, c, turn, n, to);
  CASE(1, 0) CASE(1, 1) CASE(3, 0) CASE(3, 1)
  return 0;
}

/* 32 x 32 of C, from one panel of A and one of B. Small products first. `kept`: parts of B that are
   there, 1 where the others are 0. */
AMX static void tile(const char *a, const char *b, int64_t steps, int parts, int kept, float *c,
                     int64_t ldc, int add) {
  begin(c, ldc, add);
#define A(p) LOAD(4, a + p * PART, 64); LOAD(5, a + p * PART + TILE, 64);
#define B(p) LOAD(6, b + p * PART, 64); LOAD(7, b + p * PART + TILE, 64);
#define ADD \
  SUM(0, 4, 6); SUM(1, 4, 7); \
  SUM(2, 5, 6); SUM(3, 5, 7);
  if (parts == 1)
    for (; steps > 0; steps--, a += PART, b += PART) {
      A(0) B(0) ADD
    }
  else if (kept == 1)
    for (; steps > 0; steps--, a += 3 * PART, b += PART) {
      B(0) A(2) ADD A(1) ADD A(0) ADD
    }
  else if (parts == 2)
    for (; steps > 0; steps--, a += 3 * PART, b += 3 * PART) {
      A(1) B(0) ADD B(1) ADD A(0) ADD B(0) ADD
    }
  else
    for (; steps > 0; steps--, a += 3 * PART, b += 3 * PART) {
      A(2) B(0) ADD A(1) ADD B(1) ADD A(0) ADD B(2) ADD B(0) ADD
    }
  end(c, ldc);
}

/* A tile of which only `high` rows and `wide` columns are there. */
AMX static void corner(const char *a, const char *b, int64_t steps, int parts, int kept, float *c,
                       int64_t ldc, int add, int64_t high, int64_t wide) {
  float whole[SIDE * SIDE] __attribute__((aligned(64)));
  if (add)
    for (int64_t r = 0; r < high; r++) memcpy(whole + r * SIDE, c + r * ldc, wide * 4);
  tile(a, b, steps, parts, kept, whole, SIDE, add);
  for (int64_t r = 0; r < high; r++) memcpy(c + r * ldc, whole + r * SIDE, wide * 4);
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Memory for packed matrices: of each thread, until it ends. */
static pthread_key_t rooms;

static char *room(void) {
  size_t size = (size_t)(ROWS + COLUMNS) * DEPTH * 6, page = 1 << 21;
  char *have = pthread_getspecific(rooms);
  if (have) return have;
  size = (size + page - 1) / page * page;
  have = aligned_alloc(page, size);
  if (!have || pthread_setspecific(rooms, have)) return NULL;
  madvise(have, size, MADV_HUGEPAGE);
  return have;
}

/* A matrix B that is packed already: how many parts of each number are there (1 or 3), how many of
   them are not all 0, and the panels, of all terms. */
typedef struct {
  int64_t kept, parts;
  char pad[48], panels[];
} lehr_ready;

/* The product of matrices of numbers with up to `parts` (1 or 3) parts; 0 where one has more, or is
   out of range: C holds anything. */
AMX static int product(int parts, int64_t ta, int64_t tb, int64_t m, int64_t n, int64_t k,
                       const float *a, int64_t lda, const float *b, int64_t ldb, float *c,
                       int64_t ldc, char *left, const lehr_ready *ready, int64_t at) {
  int64_t most = 3 * DEPTH / parts, kept = ready ? ready->kept : parts;
  int64_t whole = (k + 31) / 32 * kept * PART; /* a panel of all terms */
  char *right = left + (int64_t)ROWS * DEPTH * 6;
  for (int64_t k0 = 0; k0 < k; k0 += most)
    for (int64_t m0 = 0; m0 < m; m0 += ROWS) {
      int64_t depth = least(k - k0, most), rows = least(m - m0, ROWS);
      int64_t steps = (depth + 31) / 32, panel = steps * parts * PART;
      const float *from = a + (ta ? k0 * lda + m0 : m0 * lda + k0);
      int some = pack(from, lda, rows, depth, ta, ta, parts, left);
      for (int64_t n0 = 0; n0 < n && some; n0 += COLUMNS) {
        int64_t columns = least(n - n0, COLUMNS);
        const char *y0 = right;
        int more;
        if (ready) {
          more = (int)ready->parts;
          y0 = ready->panels + (at + n0) / SIDE * whole + k0 / 32 * kept * PART;
        } else {
          from = b + (tb ? n0 * ldb + k0 : k0 * ldb + n0);
          more = pack(from, ldb, columns, depth, !tb, tb, parts, right);
        }
        int all = more > some ? more : some;
        if (!more) return 0;
        for (int64_t i = 0; i < rows; i += SIDE)
          for (int64_t j = 0; j < columns; j += SIDE) {
            const char *x = left + i / SIDE * panel;
            const char *y = y0 + j / SIDE * (ready ? whole : panel);
            float *to = c + (m0 + i) * ldc + n0 + j;
            int64_t high = least(rows - i, SIDE), wide = least(columns - j, SIDE);
            if (high == SIDE && wide == SIDE)
              tile(x, y, steps, all, (int)kept, to, ldc, k0 > 0);
            else
              corner(x, y, steps, all, (int)kept, to, ldc, k0 > 0, high, wide);
          }
      }
      if (!some) return 0;
    }
  return 1;
}

/* C = op(A) @ op(B) as in `lehr_runtime`. 0 where it was left to another gemm: C holds anything. */
AMX static int split(int64_t ta, int64_t tb, int64_t m, int64_t n, int64_t k, const float *a,
                     int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc,
                     const void *ready, int64_t at) {
  const lehr_ready *have = ready;
  char *memory = room();
  if (!memory || k == 0) return 0;
  tiles();
#define PRODUCT(parts) product(parts, ta, tb, m, n, k, a, lda, b, ldb, c, ldc, memory, have, at)
  int good = ((!have || have->kept == 1) && PRODUCT(1)) || PRODUCT(3);
  release();
  return good;
}

#endif

EXPORT int64_t lehr_worth(int64_t m, int64_t n, int64_t k) { return WORTH(m, n, k); }

/* Bytes of a packed matrix. */
EXPORT int64_t lehr_packed(int64_t n, int64_t k) {
#ifdef AMX
  return (int64_t)sizeof(lehr_ready) + (n + SIDE - 1) / SIDE * ((k + 31) / 32) * 3 * PART;
#endif
  return (void)n, (void)k, 0;
}

/* B (`tb`: transposed), n columns of k terms, as `split` takes it: packed into `to`. 0 where it
   holds numbers that `split` leaves to another gemm. */
EXPORT int64_t lehr_pack(const void *x, int64_t ld, int64_t wide, int64_t tb, int64_t n, int64_t k,
                         void *to) {
#ifdef AMX
  lehr_ready *made = to;
  made->kept = made->parts = 1;
  if (pack(x, ld, n, k, !tb, (int)tb, 1, made->panels)) return 1;
  made->kept = 3;
  made->parts = pack(x, ld, n, k, !tb, (int)tb, 3, made->panels);
  return (void)wide, made->parts != 0;
#endif
  return (void)x, (void)ld, (void)wide, (void)tb, (void)n, (void)k, (void)to, 0;
}

EXPORT void lehr_install(lehr_runtime *rt) {
  (void)rt;
#ifdef AMX
  if (!allowed() || pthread_key_create(&rooms, free)) return;
  rt->worth = lehr_worth; /* first: others may run products meanwhile */
  __atomic_store_n(&rt->packing, split, __ATOMIC_RELEASE);
#endif
}
