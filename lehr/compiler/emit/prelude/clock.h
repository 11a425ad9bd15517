/* The time, in nanoseconds from some moment on. */
#include <time.h>
static inline int64_t lehr_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
