"""Program text in, C out: what one row, one column and one checked index look like."""

from lehr.compiler.emit import c
from tests.emit.harness import read, text

ROWS = text("x: param f32[s,64]", ["y: output f32[s,64]"], """
  kernel soft(i0: s; i1: 64, k0: 64) {
    # model.py:12 | y = x.exp() / x.exp().sum(-1)
    y[i0,i1] for (i1) = div.f32(exp.f32(x[i0,i1]), sum.f32[k0](exp.f32(x[i0,k0])), None)
  }""", "y").replace("program p(", "program p<s: 1..900>(")
ROWS_C = """\
/* model.py:12: y = x.exp() / x.exp().sum(-1) */
static void k_soft(void *const *p, int64_t from, int64_t to) {
  const float *restrict x = p[0];
  float *restrict y = p[1];
  for (int64_t i0 = from; i0 < to; i0++) {
    float row0[64];
    float acc0[32];
    for (int l = 0; l < 32; l++) {
      acc0[l] = 0.0f;
    }
    {
      int64_t k0_ = 0;
      for (; k0_ + 32 <= 64; k0_ += 32) {
        LEHR_AHEAD(x + i0 * 64 + k0_ + 1024);
        LEHR_AHEAD(x + i0 * 64 + k0_ + 1040);
        for (int l = 0; l < 32; l++) {
          const int64_t k0 = k0_ + l;
          const float u0 = lehr_exp_f32(x[i0 * 64 + k0]);
          acc0[l] = acc0[l] + u0;
          row0[k0] = u0;
        }
      }
    }
    for (int h = 16; h > 0; h /= 2) {
      for (int l = 0; l < h; l++) {
        acc0[l] = acc0[l] + acc0[l + h];
      }
    }
    const float u1 = acc0[0];
    for (int64_t k0 = 0; k0 < 64; k0++) {
      y[i0 * 64 + k0] = row0[k0] / u1;
    }
  }
}

LEHR_ENTRY k_p_0(void **ptr) {
  char *arena = ptr[0];
  const lehr_runtime *rt = ptr[1];
  const int64_t *size = ptr[2];
  lehr_fault *fault = ptr[3];
  const int64_t size_s = size[0];
  (void)arena, (void)rt, (void)size, (void)fault;
  {
    void *const p[] = {ptr[4], ptr[5]};
    lehr_spread(rt, k_soft, p, size_s, 30);
  }
}
"""
COLUMNS = text("x: param f32[7,100]", ["y: output f32[100]"], """
  kernel add_up(i0: 100; k0: 7) {
    y[i0] = sum.f32[k0](x[k0,i0])
  }""", "y")
COLUMNS_C = """\
static void k_add_up(void *const *p, int64_t from, int64_t to) {
  const float *restrict x = p[0];
  float *restrict y = p[1];
  for (int64_t block = from; block < to; block++) {
    const int64_t low = block * 64;
    const int64_t low_end = low + 64 < 100 ? low + 64 : 100;
    const int64_t width = low_end - low;
    float acc0[64];
    for (int64_t c = 0; c < width; c++) {
      acc0[c] = 0.0f;
    }
    for (int64_t k0 = 0; k0 < 7; k0++) {
      for (int64_t c = 0; c < width; c++) {
        const int64_t i0 = low + c;
        acc0[c] = acc0[c] + x[k0 * 100 + i0];
      }
    }
    for (int64_t c = 0; c < width; c++) {
      const int64_t i0 = low + c;
      y[i0] = acc0[c];
    }
  }
}
"""
PICK = text("t: param i64[5], x: param f32[9,40]", ["y: output f32[5,40]"], """
  kernel pick(i0: 5, i1: 40) {
    bind g0 below {9} wrap = t[i0]
    y[i0,i1] = x[g0,i1]
  }""", "y")
PICK_C = """\
  lehr_fault *fault = p[3];
  const int64_t place = (int64_t)p[4];
  for (int64_t i0 = from; i0 < to; i0++) {
    const int64_t width = 40;
    const int64_t at0 = lehr_index(t[i0], 9, 1, fault, place + 0);
    for (int64_t c = 0; c < width; c++) {
      const int64_t i1 = c;
      y[i0 * 40 + i1] = x[at0 * 40 + i1];
    }
  }
"""


def emitted(program):
    (source,) = c.emit(read(program)).sources
    return source + "\n"


def test_rows():
    assert emitted(ROWS).endswith(ROWS_C)


def test_columns():
    assert COLUMNS_C in emitted(COLUMNS)


def test_checked_index():
    assert PICK_C in emitted(PICK)
    assert "if (fault->kind) return;" in emitted(PICK)


def test_same_text_every_time():
    """Sources are cache keys: they do not depend on the process or on what was emitted before."""
    assert emitted(ROWS) == emitted(ROWS) and emitted(PICK) == emitted(PICK)
