/* Tiles of bfloat16 numbers (x86 with AMX) and their layout in packed matrices. Instructions are
   spelt out: <immintrin.h> takes a C compiler longer than all that is done here. */
#if defined(__x86_64__) && (__GNUC__ >= 11 || __clang_major__ >= 12) && defined(__linux__)
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl")))
/* Rows of two tiles, bytes of one and of both: panels of SIDE rows lie in steps of 32 terms. */
enum { SIDE = 32, TILE = 1024, PART = 2 * TILE };

#define LOAD(tile, at, row) \
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile \
                   : : "r"((const void *)(at)), "r"((int64_t)(row)) : "memory")
#define STORE(tile, at, row) \
  __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" \
                   : : "r"((void *)(at)), "r"((int64_t)(row)) : "memory")
#define CLEAR(tile) __asm__ volatile("tilezero %%tmm" #tile : :)
#define SUM(to, x, y) __asm__ volatile("tdpbf16ps %%tmm" #y ", %%tmm" #x ", %%tmm" #to : :)

/* Tiles for this thread, all of 16 rows of 64 bytes; `release` gives them back. */
AMX static inline void tiles(void) {
  struct {
    uint8_t palette, start, none[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } shape = {.palette = 1};
  for (int i = 0; i < 8; i++) shape.bytes[i] = 64, shape.rows[i] = 16;
  __asm__ volatile("ldtilecfg %0" : : "m"(shape) : "memory");
}

AMX static inline void release(void) { __asm__ volatile("tilerelease" : :); }

/* Whether the system lets this process use tiles. */
static inline int allowed(void) {
  enum { REQUEST = 0x1023, TILES = 18 }; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
  return !syscall(SYS_arch_prctl, REQUEST, TILES);
}

/* Tiles 0 to 3 are 32 x 32 sums: begun, with those of C if `add`, and put there. */
AMX static inline void begin(const float *c, int64_t ldc, int add) {
  if (add) {
    LOAD(0, c, ldc * 4);
    LOAD(1, c + 16, ldc * 4);
    LOAD(2, c + 16 * ldc, ldc * 4);
    LOAD(3, c + 16 * ldc + 16, ldc * 4);
  } else {
    CLEAR(0);
    CLEAR(1);
    CLEAR(2);
    CLEAR(3);
  }
}

AMX static inline void end(float *c, int64_t ldc) {
  STORE(0, c, ldc * 4);
  STORE(1, c + 16, ldc * 4);
  STORE(2, c + 16 * ldc, ldc * 4);
  STORE(3, c + 16 * ldc + 16, ldc * 4);
}
#endif
