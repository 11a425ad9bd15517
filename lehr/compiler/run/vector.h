/* Vectors of the machine's width, from memory of any alignment. */
#if defined(__AVX512F__)
#define LANES 16
#else
#define LANES 8
#endif

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t ints __attribute__((vector_size(4 * LANES), aligned(4)));

/* Lanes of x, then of y, by their numbers. */
#ifdef __clang__
#define SHUFFLE(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#else
#define SHUFFLE(x, y, ...) __builtin_shuffle(x, y, (ints){__VA_ARGS__})
#endif

/* Of templates that are compiled without much optimisation, in half the time, the functions that
   keep arrays of vectors in registers. */
#ifdef __clang__
#define REGISTERS
#else
#define REGISTERS __attribute__((optimize("O2")))
#endif
