/* Vectors for packing panels of tiles: the compiler's own, and what those cannot say is one
   instruction each (see `amx.h`). */
#ifdef AMX
typedef float floats __attribute__((vector_size(64)));
typedef uint32_t words __attribute__((vector_size(64)));
typedef uint16_t halves __attribute__((vector_size(64)));

/* Elements of x, then of y, by their numbers. */
#ifdef __clang__
#define PICK(type, x, y, ...) ((words)__builtin_shufflevector((type)(x), (type)(y), __VA_ARGS__))
#else
#define PICK(type, x, y, ...) ((words)__builtin_shuffle((type)(x), (type)(y), (type){__VA_ARGS__}))
#endif
#define LOW32 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define HIGH32 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define LOW64 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define HIGH64 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define EVEN128 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27
#define ODD128 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31

/* 16 x 16 words, where they lie. */
AMX __attribute__((noinline, unused)) static void transpose(char *at) {
  words *r = (words *)at, s[16], t[16];
#define EACH(n) _Pragma("GCC unroll 16") for (int i = 0; i < n; i++)
  EACH(8) {
    t[2 * i] = PICK(words, r[2 * i], r[2 * i + 1], LOW32);
    t[2 * i + 1] = PICK(words, r[2 * i], r[2 * i + 1], HIGH32);
  }
  EACH(4) {
    s[4 * i] = PICK(words, t[4 * i], t[4 * i + 2], LOW64);
    s[4 * i + 1] = PICK(words, t[4 * i], t[4 * i + 2], HIGH64);
    s[4 * i + 2] = PICK(words, t[4 * i + 1], t[4 * i + 3], LOW64);
    s[4 * i + 3] = PICK(words, t[4 * i + 1], t[4 * i + 3], HIGH64);
  }
  EACH(4) {
    t[i] = PICK(words, s[i], s[4 + i], EVEN128);
    t[4 + i] = PICK(words, s[i], s[4 + i], ODD128);
    t[8 + i] = PICK(words, s[8 + i], s[12 + i], EVEN128);
    t[12 + i] = PICK(words, s[8 + i], s[12 + i], ODD128);
  }
  EACH(8) {
    r[i] = PICK(words, t[i], t[8 + i], EVEN128);
    r[8 + i] = PICK(words, t[i], t[8 + i], ODD128);
  }
#undef EACH
}

/* The first n of 16 numbers, zeros behind them; no other is read. */
AMX static inline floats head(const float *x, int64_t n) {
  const uint16_t here = n >= 16 ? 0xffff : n <= 0 ? 0 : (uint16_t)((1u << n) - 1);
  floats found;
  __asm__("vmovups %2, %0%{%1%}%{z%}" : "=v"(found) : "Yk"(here), "m"(*(const float(*)[16])x));
  return found;
}

AMX static inline halves larger(halves x, halves y) {
  __asm__("vpmaxuw %1, %0, %0" : "+v"(x) : "v"(y));
  return x;
}

AMX static inline halves smaller(halves x, halves y) {
  __asm__("vpminuw %1, %0, %0" : "+v"(x) : "v"(y));
  return x;
}

/* Whether a bit is there in a vector. */
AMX static inline int any(words x) {
  uint16_t found;
  __asm__("vptestmd %1, %1, %0" : "=Yk"(found) : "v"(x));
  return found != 0;
}
#endif
