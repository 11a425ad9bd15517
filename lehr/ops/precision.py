"""Which precision autocast gives an op: one table, by the device type of its arguments.

lower    in the region's dtype
float32  in float32
promote  in the widest dtype that its arguments have: float32 or the region's
rounded  in float32, the result rounded to the region's dtype
parts    each op that it is made of as the table says

float64 is left alone. Any other op runs in the dtypes that it gets. PyTorch's lists, by the names
that ops have here: its kernels for processors sum and exponentiate bfloat16 in float32 inside, so
that these ops are not listed there; its linear algebra and Fourier transforms have no
half-precision kernels, so that they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lehr.base import dtype as dt

LOSSES = """
    nll_loss cross_entropy mse_loss l1_loss smooth_l1_loss huber_loss kl_div ctc_loss
    poisson_nll_loss hinge_embedding_loss soft_margin_loss margin_ranking_loss cosine_embedding_loss
    triplet_margin_loss multi_margin_loss multilabel_margin_loss binary_cross_entropy
    binary_cross_entropy_with_logits"""
PRODUCTS = """
    matmul mm bmm addmm addbmm baddbmm linear conv1d conv2d conv3d conv_transpose1d
    conv_transpose2d conv_transpose3d attention scaled_dot_product_attention"""
DECOMPOSITIONS = """
    linalg_inv linalg_inv_ex inverse linalg_solve linalg_tensorinv linalg_tensorsolve
    triangular_solve linalg_cholesky linalg_cholesky_ex cholesky cholesky_inverse cholesky_solve
    linalg_cond linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh linalg_householder_product
    linalg_lstsq linalg_matrix_rank linalg_qr qr linalg_svd linalg_svdvals svd pinverse lu_solve
    geqrf ormqr"""
TRANSFORMS = """
    fft_fft fft_fft2 fft_fftn fft_ifft fft_ifft2 fft_ifftn fft_rfft fft_rfft2 fft_rfftn fft_irfft
    fft_irfft2 fft_irfftn fft_hfft fft_ihfft stft"""

# Device type -> precision -> the ops.
TABLE: dict[str, dict[str, str]] = {
    "cpu": {
        "lower": PRODUCTS + " prelu linalg_vecdot affine_grid",
        "float32": LOSSES + DECOMPOSITIONS + TRANSFORMS + """
            prod trace polar quantile nanquantile cdist grid_sample grid_sampler_2d grid_sampler_3d
            view_as_complex avg_pool3d max_pool3d adaptive_avg_pool3d adaptive_max_pool3d
            adaptive_max_pool3d_with_indices max_unpool1d max_unpool2d max_unpool3d
            fractional_max_pool2d fractional_max_pool3d""",
        "promote": "cat stack index_copy",
        "rounded": "linalg_pinv",
        "parts": """einsum linalg_multi_dot chain_matmul linalg_matrix_power matrix_power cov
            corrcoef diff lp_pool3d nn_pad""",
    },
    "cuda": {
        "lower": PRODUCTS + """
            mv addmv addr einsum linalg_multi_dot chain_matmul convolution recurrent""",
        "float32": LOSSES + """
            reciprocal exp expm1 log log2 log10 log1p rsqrt pow tan asin acos sinh cosh erfinv
            softplus sum prod trace cumsum cumprod softmax log_softmax nn_softmax nn_log_softmax
            softmin layer_norm group_norm normalize multilabel_soft_margin_loss cosine_similarity
            cdist pdist polar""",
        "promote": """addcmul addcdiv cat stack atan2 dot bilinear tensordot grid_sample cross""",
    },
}

def _padding(x: Any, pad: Any, mode: str) -> str | None:
    # what goes round is made of slices; images reflected in three dimensions are not listed
    return "float32" if mode == "replicate" or (mode == "reflect" and len(pad) < 6) else None


def _neighbours(x: Any, *rest: Any) -> str | None:
    # more than one dimension beside the channels: avg_pool3d
    return "float32" if x.ndim > 3 else None


def _left(x: Any, dims: Any) -> list[Any]:
    places = {d % x.ndim for d in ([dims] if isinstance(dims, int) else dims)}
    return [n for d, n in enumerate(x.shape) if d not in places]


def _tensordot(a: Any, b: Any, dims: Any) -> str | None:
    # where one number comes out it is a sum of products
    if isinstance(dims, int):
        dims = range(a.ndim - dims, a.ndim), range(dims)
    return "lower" if any(n != 1 for n in _left(a, dims[0]) + _left(b, dims[1])) else None


def _inner(a: Any, b: Any) -> str | None:
    return _tensordot(a, b, (-1, -1)) if a.ndim and b.ndim else None


def _recurrent(gates: Any, h0: Any, c0: Any, *rest: Any) -> str:
    # a GRU's state keeps its dtype; so does an LSTM cell's, which hands over such gates
    kept = h0 if rest[-2] == "gru" else gates
    return "float32" if kept.dtype is dt.float32 and rest[-2] in ("gru", "lstm") else "lower"


# The same for ops of which it depends on the call: op -> (*bound) -> precision or None.
CALLS: dict[str, dict[str, Callable[..., str | None]]] = {
    "cpu": {"pad_around": _padding, "local_response_norm": _neighbours, "inner": _inner,
            "tensordot": _tensordot, "recurrent": _recurrent},
    "cuda": {},
}


def _rows(columns: dict[str, str]) -> dict[str, str]:
    return {op: precision for precision, ops in columns.items() for op in ops.split()}


# Device type -> op -> precision, or what tells it from a call.
PRECISION: dict[str, dict[str, str | Callable[..., str | None]]] = {
    device: {**_rows(columns), **CALLS[device]} for device, columns in TABLE.items()}


def precision_of(op: str, device: str, bound: tuple[Any, ...]) -> str | None:
    """The precision of an op's call; None where it is not listed."""
    found = PRECISION[device].get(op)
    return found(*bound) if callable(found) else found
