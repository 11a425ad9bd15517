/* What generated C may call: one table of function pointers, passed to every kernel.
   Sizes are 64-bit; matrices are row-major. */
#include <stdint.h>

typedef void (*lehr_task)(void *ctx, int64_t chunk, int64_t worker);

/* A convolution of images whose channels lie together; `transposed`: its adjoint. Steps count
   elements, `in` and `out` the channels of a group. w is read, or written as a gradient. For the
   functions that end in half, x, y and a kernel that is read are bfloat16; those that end in narrow
   take groups of 1, 2, 4, 8 or 16 channels, of which as many come. */
typedef struct lehr_convolution {
  const float *x;
  float *w, *y;
  int64_t batch, groups, in, out, transposed;
  int64_t size[3], many[3], kernel[3], stride[3], pad[3], dilation[3]; /* many: of y */
  int64_t x_step[4], y_step[4]; /* batch, then the dimensions */
  int64_t w_step[6];            /* group, out, in, then the dimensions */
  /* Images [batch][channel][pixel], steps of batch and channel: where given, x or y is made of them
     first, or `y_into` of y at the end. Not for half. */
  const float *x_from, *y_from;
  float *y_into;
  int64_t x_turn[2], y_turn[2];
  const float *y_bias; /* added to y_into, a number for each channel, or NULL */
} lehr_convolution;

/* Attention over up to four batch dimensions; steps are of those and of a row, whose elements lie
   together. mask_kind: 0 none, 1 bytes that are true or not, 2 floats to add. `g`, `rise`: the
   gradients of out and lse, `rise` may be NULL. Matrices are float32, bfloat16 for attend_half. */
typedef struct lehr_attention {
  const void *q, *k, *v, *g, *mask;
  void *out, *dq, *dk, *dv;
  const float *rise;
  float *lse;
  int64_t batch[4], l, s, e, ev, causal, mask_kind;
  int64_t q_step[5], k_step[5], v_step[5], g_step[5], rise_step[5], mask_step[6];
  int64_t out_step[5], lse_step[5], dq_step[5], dk_step[5], dv_step[5];
  float scale;
} lehr_attention;

/* C = A @ B for every point of up to four batch dimensions, of bfloat16 numbers summed in float32;
   op transposes where ta, tb are 1. a_wide, b_wide: the operand is float32, to be rounded first.
   Steps and leading dimensions count elements. `rows`, if any, is run over rows of C, numbered
   through all batches, once they are there; `p`, `many` pointers, is for it. Where nobody else
   reads C, `lent` is the number of its pointer there, from 1: blocks of C may lie anywhere then,
   rows ldc apart. `packed`: memory for all of B in bfloat16, sizes of matrices rounded up to 32, or
   NULL where m is small. `ready`: what the template's `lehr_pack` has made of B, the same at every
   point of the batch, or NULL. */
typedef struct lehr_half {
  int64_t batch[4], a_step[4], b_step[4], c_step[4];
  int64_t m, n, k, ta, tb, lda, ldb, ldc, a_wide, b_wide;
  const void *a, *b;
  void *c; /* float32 */
  void (*rows)(void *const *p, int64_t begin, int64_t end);
  void *const *p;
  int64_t many, lent;
  void *packed;
  const void *ready;
} lehr_half;

/* C = A @ B of float32 or float64 numbers, for every point of up to four batch dimensions. Steps and
   leading dimensions count elements. `rows`, if any, is run over rows of C, numbered through all
   batches, while those are in the cache; `p` is for it. `ready` as above, for `packing`. */
enum { LEHR_F32, LEHR_F64, LEHR_ONEDNN /* float32, by oneDNN */ };
typedef struct lehr_product {
  int64_t batch[4], a_step[4], b_step[4], c_step[4];
  int64_t kind, m, n, k, ta, tb, lda, ldb, ldc;
  const void *a, *b;
  void *c;
  void (*rows)(void *const *p, int64_t begin, int64_t end);
  void *const *p;
  const void *ready;
} lehr_product;

/* A convolution by oneDNN, of dense images; `gradient`: w is the gradient to write. The others tell
   which operands are bfloat16. */
typedef struct lehr_onednn {
  lehr_convolution q;
  int64_t gradient, x_half, w_half, y_half;
} lehr_onednn;

/* Where number `i` of up to four batch dimensions begins. */
static inline __attribute__((unused)) int64_t lehr_batch(const int64_t *batch, const int64_t *step,
                                                         int64_t i) {
  int64_t at = 0, d = 3;
  for (; d > 0 && i >= batch[d]; d--)
    if (batch[d] > 1) { /* a division takes as long as a small product */
      at += i % batch[d] * step[d];
      i /= batch[d];
    }
  return at + i * step[d];
}

/* Block `n` of `blocks`, of whole panels of packed matrices: its begin. */
static inline __attribute__((unused)) int64_t lehr_edge(int64_t length, int64_t blocks, int64_t n) {
  int64_t at = (length + 31) / 32 * n / blocks * 32;
  return at < length ? at : length;
}

enum { LEHR_ALONG = 1, LEHR_TURNED = 2 };
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
  /* sgemm with alpha = 1, beta = 0 by another way, for matrices that are worth it; NULL where this
     machine has none (the template "split", else "panels"). 0: left undone (C holds anything),
     sgemm has to do it. `ready`: a packed matrix of which B is columns `at` (a multiple of 32) and
     on, or NULL. */
  int (*packing)(int64_t ta, int64_t tb, int64_t m, int64_t n, int64_t k, const float *a,
                 int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc, const void *ready,
                 int64_t at);
  void (*product)(const struct lehr_runtime *rt, const lehr_product *q);
  /* sgemm with alpha = 1, beta = 0 where packing takes longer than the product does (the template
     "thin"). way: LEHR_ALONG where the terms of the longer operand lie together, LEHR_TURNED where
     that is A. */
  void (*thin)(int64_t way, int64_t ta, int64_t tb, int64_t m, int64_t n, int64_t k, const float *a,
               int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc);
  /* Templates: there once their library is loaded (lehr.compiler.run.template). */
  void (*convolve)(const struct lehr_runtime *rt, const lehr_convolution *q);
  void (*convolve_weight)(const struct lehr_runtime *rt, const lehr_convolution *q);
  void (*convolve_half)(const struct lehr_runtime *rt, const lehr_convolution *q);
  void (*convolve_weight_half)(const struct lehr_runtime *rt, const lehr_convolution *q);
  void (*attend)(const struct lehr_runtime *rt, const lehr_attention *q);
  void (*attend_half)(const struct lehr_runtime *rt, const lehr_attention *q);
  void (*attend_back)(const struct lehr_runtime *rt, const lehr_attention *q);
  void (*half)(const struct lehr_runtime *rt, const lehr_half *q);
  /* The same by oneDNN: `split`, `half`, and convolutions; 0 where they are left undone. */
  int (*onednn_product)(int64_t ta, int64_t tb, int64_t m, int64_t n, int64_t k, const float *a,
                        int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc);
  int (*onednn_half)(const struct lehr_runtime *rt, const lehr_half *q);
  int (*onednn_convolve)(const struct lehr_runtime *rt, const lehr_onednn *q);
  void (*convolve_narrow)(const struct lehr_runtime *rt, const lehr_convolution *q);
  void (*convolve_weight_narrow)(const struct lehr_runtime *rt, const lehr_convolution *q);
  int64_t (*worth)(int64_t m, int64_t n, int64_t k); /* whether `packing` is, for such sizes */
} lehr_runtime;
