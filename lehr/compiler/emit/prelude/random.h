/* Philox4x32-10, see lehr.base.philox: word i of (key, offset) is lane i % 4 of block i / 4. */

LEHR_FN void lehr_rounds(uint64_t key, uint32_t *a, uint32_t *b, uint32_t *c, uint32_t *d) {
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
#pragma GCC unroll 10
  for (int r = 0; r < 10; r++) {
    uint64_t p = (uint64_t)*a * 0xd2511f53u, q = (uint64_t)*c * 0xcd9e8d57u;
    *a = (uint32_t)(q >> 32) ^ *b ^ k0;
    *b = (uint32_t)q;
    *c = (uint32_t)(p >> 32) ^ *d ^ k1;
    *d = (uint32_t)p;
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
}

LEHR_FN int64_t lehr_word(int64_t key, int64_t offset, int64_t index) {
  uint64_t block = (uint64_t)index >> 2;
  uint32_t a = (uint32_t)block, b = (uint32_t)(block >> 32);
  uint32_t c = (uint32_t)offset, d = (uint32_t)((uint64_t)offset >> 32);
  lehr_rounds((uint64_t)key, &a, &b, &c, &d);
  return index & 2 ? (index & 1 ? d : c) : (index & 1 ? b : a);
}

/* Words [start, start + count) into `out`, which has room for count + 67; returns where the first
   one lies. Whole blocks are made, sixteen at a time. */
static __attribute__((unused)) const uint32_t *lehr_words(int64_t key, int64_t offset,
                                                          int64_t start, int64_t count,
                                                          uint32_t *restrict out) {
  uint64_t first = (uint64_t)start >> 2, blocks = (uint64_t)((start & 3) + count + 3) >> 2;
  for (uint64_t at = 0; at < blocks; at += 16) {
    uint32_t *restrict to = out + 4 * at;
    for (int l = 0; l < 16; l++) {
      uint64_t block = first + at + (uint64_t)l;
      uint32_t a = (uint32_t)block, b = (uint32_t)(block >> 32);
      uint32_t c = (uint32_t)offset, d = (uint32_t)((uint64_t)offset >> 32);
      lehr_rounds((uint64_t)key, &a, &b, &c, &d);
      to[4 * l] = a;
      to[4 * l + 1] = b;
      to[4 * l + 2] = c;
      to[4 * l + 3] = d;
    }
  }
  return out + (start & 3);
}
