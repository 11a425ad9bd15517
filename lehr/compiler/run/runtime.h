/* What generated C may call: one table of function pointers, passed to every kernel.
   Sizes are 64-bit; matrices are row-major. */
#include <stdint.h>

typedef void (*lehr_task)(void *ctx, int64_t chunk, int64_t worker);

typedef struct lehr_runtime {
  /* Runs task(ctx, chunk, worker) once for each chunk in [0, chunks), on up to `threads` threads,
     and returns when all are done. `worker` in [0, threads) is a different number in each thread
     that takes part. A call from within a task, or while another thread's call runs, is done by
     the caller alone, as worker 0. Chunk c goes to the same thread as in the last call where that
     thread is free: neighbours share a cache. */
  void (*parallel)(lehr_task task, void *ctx, int64_t chunks);
  /* C = alpha * op(A) @ op(B) + beta * C; op transposes where ta, tb are 1. C is m by n, k summed
     over. With beta = 0, C is not read. One thread, the caller's. */
  void (*sgemm)(int64_t ta, int64_t tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
  void (*dgemm)(int64_t ta, int64_t tb, int64_t m, int64_t n, int64_t k, double alpha,
                const double *a, int64_t lda, const double *b, int64_t ldb, double beta, double *c,
                int64_t ldc);
  int64_t threads; /* read it at every call: it may change between calls */
} lehr_runtime;
