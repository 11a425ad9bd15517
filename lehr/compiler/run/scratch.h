/* What every template needs: the memory of a thread, and words for compilers. */
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#ifndef UNROLL
#define UNROLL _Pragma("GCC unroll 16")
#endif

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static __attribute__((unused)) void spread(const lehr_runtime *rt, lehr_task task, void *ctx, int64_t chunks) {
  if (rt->threads == 1 || chunks == 1)
    for (int64_t n = 0; n < chunks; n++) task(ctx, n, 0);
  else
    rt->parallel(task, ctx, chunks);
}

/* Scratch memory of a thread: kept, since to map it anew costs more than to fill it. */
static __attribute__((unused)) void *scratch(int which, int64_t bytes) {
  static __thread struct {
    void *at;
    int64_t size;
  } held[12];
  if (held[which].size < bytes) {
    free(held[which].at);
    held[which].size = (bytes + 4095) / 4096 * 4096;
    held[which].at = aligned_alloc(4096, (size_t)held[which].size);
    if (!held[which].at) abort();
  }
  return held[which].at;
}
