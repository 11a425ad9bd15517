"""Where lehr's values differ from PyTorch's (the table in docs/run.md): lehr's are the right ones.

Every test knows the right value without PyTorch, and finds PyTorch's no nearer to it.
"""

import numpy as np
import pytest

import lehr

torch = pytest.importorskip("torch")
F, TF = lehr.nn.functional, torch.nn.functional
RNG = np.random.default_rng(5)


def bfloat16(a):
    """(lehr's tensor, torch's, the very numbers in float64)."""
    have = lehr.from_numpy(a.astype(np.float32)).bfloat16()
    return (have, torch.from_numpy(a.astype(np.float32)).bfloat16(),
            have.float().numpy().astype(np.float64))


def off(have, want):
    """The largest distance, infinite where something is not a number."""
    d = np.abs(have.double().numpy() - want)
    return np.inf if np.isnan(d).any() else d.max()


# mpmath, 30 digits
BESSEL = [("bessel_j0", 5.576059452216908, 0.018942641694877758),
          ("bessel_j0", -5.4215280659972755, -0.033781312788260553),
          ("bessel_j0", 7.380839390984031, 0.28064812858567402),
          ("bessel_y1", 5.576059452216908, -0.048985993321099448),
          ("bessel_y1", 7.380839390984031, -0.27551339467144906)]


@pytest.mark.parametrize(("name", "x", "want"), BESSEL)
def test_bessel_functions_beyond_their_first_zeros(name, x, want):
    have = getattr(lehr.special, name)(lehr.tensor([x], dtype=lehr.float64))
    theirs = getattr(torch.special, name)(torch.tensor([x], dtype=torch.float64))
    assert off(have, want) < 1e-15 < 1e-9 < off(theirs, want)


def test_as_strided_scatter_gives_the_input_the_gradient_of_what_it_kept():
    def run(lib):
        x = lib.ones(4, dtype=lib.float64, requires_grad=True)
        src = lib.ones(2, dtype=lib.float64, requires_grad=True)
        y = lib.as_strided_scatter(x, src, (2,), (2,), 0)
        return [g.tolist() for g in lib.autograd.grad(y, (x, src), lib.arange(1., 5.).double())]

    assert run(lehr) == [[0, 2, 0, 4], [1, 3]]
    assert run(torch)[0] == [1, 0, 3, 0]
    x, src = lehr.randn(6).double().requires_grad_(), lehr.randn(2).double().requires_grad_()
    assert lehr.autograd.gradcheck(lambda a, b: lehr.as_strided_scatter(a, b, (2,), (3,), 1),
                                   (x, src))


def test_as_strided_beyond_a_part_gives_all_that_it_read_a_gradient():
    def run(lib):
        x = lib.ones(6, dtype=lib.float64, requires_grad=True)
        (x[1:3].as_strided((3,), (1,), 2) * lib.arange(1.0, 4.0)).sum().backward()
        return x.grad.tolist()

    assert run(lehr) == [0, 0, 1, 2, 3, 0]
    assert run(torch) == [0, 0, 1, 0, 0, 0]
    x = lehr.randn(6).double().requires_grad_()
    assert lehr.autograd.gradcheck(lambda a: a[1:3].as_strided((3,), (1,), 2), (x,))


def test_counts_of_bfloat16_numbers():
    x, theirs, wide = bfloat16(RNG.uniform(-5, 5, 400))
    want, _ = np.histogram(wide, 20, (wide.min(), wide.max()))
    exact = torch.histc(torch.from_numpy(wide), 20).numpy()
    np.testing.assert_array_equal(exact, want)
    assert off(lehr.histc(x, 20), want) == 0 < off(torch.histc(theirs, 20), want)


def test_exponentials_of_bfloat16_matrices():
    x, theirs, wide = bfloat16(RNG.standard_normal((5, 5)))
    want = torch.linalg.matrix_exp(torch.from_numpy(wide)).numpy()
    assert off(lehr.matrix_exp(x), want) < np.abs(want).max() / 128
    assert off(lehr.matrix_exp(x), want) <= off(torch.matrix_exp(theirs), want)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_samples_of_bfloat16_grids(mode, padding):
    x, theirs, wide = bfloat16(RNG.standard_normal((2, 3, 16, 16)))
    grid, their_grid, wide_grid = bfloat16(RNG.uniform(-1.5, 1.5, (2, 12, 12, 2)))
    want = TF.grid_sample(torch.from_numpy(wide), torch.from_numpy(wide_grid), mode, padding,
                          False).numpy()
    have = off(F.grid_sample(x, grid, mode, padding, False), want)
    assert have <= np.abs(want).max() / 256
    assert have <= off(TF.grid_sample(theirs, their_grid, mode, padding, False), want)


def test_dropout_of_attention_keeps_the_mean_and_drops_the_share():
    """Other bits than PyTorch's: every weight is 0 or twice its value, one in two is 0, and the
    mean over many draws is what no dropout gives."""
    lehr.manual_seed(0)
    n = 64
    q, k = (lehr.randn(1, 2, n, 8).double() for _ in range(2))
    v = lehr.eye(n).double().expand(1, 2, n, n).contiguous()  # the result is the weights
    weights = F.scaled_dot_product_attention(q, k, v)
    total, kept, draws = 0, 0, 200
    for _ in range(draws):
        made = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
        there = made != 0
        assert lehr.allclose(made[there], 2 * weights[there])
        total, kept = total + made, kept + there.double().mean().item()
    # standard errors: of the share, and of each mean (a weight times a fair coin of 0 and 2)
    assert abs(kept / draws - 0.5) < 5 * 0.5 / (2 * n * n * draws) ** 0.5
    away = ((total / draws - weights) / weights * draws ** 0.5)
    assert abs(away.mean().item()) < 5 / (2 * n * n) ** 0.5 and abs(away.std().item() - 1) < 0.05


def test_bilinear_under_autocast_rounds_nothing():
    x, y, w = (RNG.standard_normal(s).astype(np.float32) for s in ((6, 8), (6, 7), (3, 8, 7)))
    want = np.einsum("ni,oij,nj->no", x, w, y, dtype=np.float64)
    made = []
    for lib, functional in ((lehr, F), (torch, TF)):
        with lib.autocast("cpu"):
            made.append(functional.bilinear(*map(lib.from_numpy, (x, y, w))))
    assert [str(t.dtype) for t in made] == ["torch.float32"] * 2
    assert off(made[0], want) < 1e-5 < 1e-3 < off(made[1], want)


def test_cells_of_projected_lstms_under_autocast():
    """The one dtype that differs: torch's other LSTM layers, and lehr's, round cells, too."""
    def cells(lib, size):
        with lib.autocast("cpu"):
            return str(lib.nn.LSTM(3, 4, proj_size=size)(lib.zeros(5, 2, 3))[1][1].dtype)

    assert [cells(lehr, n) for n in (0, 2)] == ["torch.bfloat16"] * 2
    assert [cells(torch, n) for n in (0, 2)] == ["torch.bfloat16", "torch.float32"]


def test_weights_that_an_autocast_region_writes():
    def product(lib):
        w, x = lib.ones(2, 3, requires_grad=True), lib.ones(1, 3)
        with lib.autocast("cpu"):
            lib.nn.functional.linear(x, w)
            with lib.no_grad():
                w.add_(1)
            return lib.nn.functional.linear(x, w).tolist()

    assert product(lehr) == [[6.0, 6.0]] != product(torch)
