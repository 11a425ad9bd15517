
/* Whether all words are as a table says: see word.py. */
EXPORT int lehr_same(const uint64_t *t) {
  for (;;) {
    uint64_t n = *t++;
    if (!n) return 1;
    for (uint64_t i = 0; i < n; i++, t += 2)
      if (*(const uint64_t *)t[0] != t[1]) return 0;
  }
}
