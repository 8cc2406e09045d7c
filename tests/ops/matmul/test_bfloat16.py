"""Products of bfloat16 matrices whose elements span many binades, and what the matrix units need
to know of them (csrc/ops/matmul/gemm_ranges.wgsl)."""

import math

import pytest
import torch
from common import DEVICE, needs_matrices

import torch_webgpu

BLOCK = 128


def wide(*shape, binades, top=0.0):
    """Magnitudes from 2^(top - binades) to 2^top."""
    exponents = top - binades * torch.rand(shape, dtype=torch.float64)
    return (torch.exp2(exponents) * torch.randn(shape).sign()).bfloat16()


def with_special(x, *given):
    x = x.clone()
    places = torch.randperm(x.numel())[: len(given)]
    x.view(-1)[places] = torch.tensor(given, dtype=x.dtype)
    return x


# ---- Ranges, and the copies of what lies in one window


def word(block):
    """The largest finite magnitude, the smallest other than zero, and whether any is not finite."""
    magnitudes = block.contiguous().view(torch.int16).int() & 0x7FFF
    is_finite = magnitudes < 0x7F80
    special = 0 if is_finite.all() else 1 << 31
    finite = magnitudes[is_finite & (magnitudes > 0)]
    if finite.numel() == 0:
        return special | 0x7FFF
    return special | int(finite.max()) << 16 | int(finite.min())


def words(rows):
    """Of a matrix, or a batch of them, with K along the last dimension."""
    rows = rows if rows.dim() == 3 else rows[None]
    return [
        word(block)
        for matrix in rows
        for band in matrix.split(BLOCK)
        for block in band.split(BLOCK, dim=-1)
    ]


def check_ranges(a, b, *, on_device=None):
    x, y = on_device or (a.to(DEVICE), b.to(DEVICE))
    ranges, *halves = torch_webgpu._C._product_halves(x, y)
    assert (ranges.cpu().long() & 0xFFFFFFFF).tolist() == words(a) + words(b.mT)
    for rows, copy in zip((a, b.mT), halves, strict=True):
        check_halves(rows if rows.dim() == 3 else rows[None], copy.cpu())


def check_halves(rows, copy):
    """A copy has K first. Numbers within 30 binades of a band's largest finite magnitude are exact,
    times a power of two. The rest is zero."""
    assert copy.shape == (rows.shape[0], rows.shape[2], -(-rows.shape[1] // 8) * 8)
    bands = zip(rows.split(BLOCK, dim=1), copy.split(BLOCK, dim=2), strict=True)
    for band, half in ((x, y) for pair in bands for x, y in zip(*pair, strict=True)):
        finite = torch.where(band.isfinite(), band, 0).double()
        exponents = torch.frexp(finite).exponent - 1
        top = exponents[finite != 0].max().item() if finite.any() else 0
        expected = torch.where(exponents > top - 30, finite, 0) * 2.0 ** (15 - top)
        assert torch.equal(half[:, : band.shape[0]].double(), expected.mT)
        assert not half[:, band.shape[0] :].any()


@pytest.mark.parametrize("size", [(1, 1, 1), (128, 128, 128), (130, 257, 40), (33, 300, 129)])
def test_ranges(size):
    torch.manual_seed(0)
    m, k, n = size
    a, b = wide(m, k, binades=200, top=100), wide(k, n, binades=30)
    check_ranges(a, b)
    check_ranges(a.mT.contiguous().mT, b.mT.contiguous().mT)
    check_ranges(torch.zeros_like(a), b)
    check_ranges(wide(m, k, binades=20), wide(k, n, binades=25, top=90))


def test_ranges_of_views():
    torch.manual_seed(0)
    a, b = wide(3, 301, 161, binades=60), wide(3, 150, 40, binades=60)
    x, y = a.to(DEVICE), b.to(DEVICE)
    for a_of, b_of in [
        (lambda t: t[:, 1::2, 11:], lambda t: t),
        (lambda t: t[:, 3:133, 8:158], lambda t: t[:, :, 3:]),
        (lambda t: t[1, :5, :150], lambda t: t[2]),
        (lambda t: t[:, :130, :75], lambda t: t[:, ::2]),
    ]:
        check_ranges(a_of(a), b_of(b), on_device=(a_of(x), b_of(y)))
    # What lies beside a view does not count.
    a[:, :, 150:] = math.inf
    x = a.to(DEVICE)
    check_ranges(a[:, :, :150], b, on_device=(x[:, :, :150], y))


def test_a_matrix_for_the_whole_batch_has_one_range():
    torch.manual_seed(0)
    a, b = wide(140, 70, binades=20), wide(4, 70, 30, binades=20)
    x = a.to(DEVICE).expand(4, 140, 70)
    ranges, half, _ = torch_webgpu._C._product_halves(x, b.to(DEVICE))
    assert (ranges.cpu().long() & 0xFFFFFFFF).tolist() == words(a) + words(b.mT)
    check_halves(a[None], half.cpu())


def test_ranges_of_special_values():
    torch.manual_seed(0)
    a, b = wide(130, 140, binades=10), wide(140, 20, binades=10)
    least = torch.finfo(torch.bfloat16).smallest_normal / 128
    for given in [(math.inf,), (-math.nan,), (least, 3.38e38), (-0.0,), (-math.inf, math.nan)]:
        check_ranges(with_special(a, *given), with_special(b, *given))
    check_ranges(torch.full_like(a, math.nan), torch.full_like(b, least))


# ---- Products

# K of 520 is cut into pieces, of which the second starts inside a block of 128.
SIZES = [(130, 200, 72), (64, 520, 96), (33, 71, 17), (136, 544, 136)]
ROWS = ["", "matrix_bf16", "matrix_bf16_copies", "tiles_64"]


@pytest.fixture(params=ROWS)
def row(request):
    if request.param.startswith("matrix_"):
        needs_matrices()
    torch.manual_seed(0)
    torch_webgpu._C._force_product_strategy(request.param)
    yield request.param
    torch_webgpu._C._force_product_strategy("")


def check_product(a, b):
    """Of normal float32 results; smaller ones may be flushed to zero."""
    actual = torch.empty(a.shape[0], b.shape[1], device=DEVICE)
    torch_webgpu._C.FusedProduct()(actual, a.to(DEVICE), b.to(DEVICE))
    x, y = a.double(), b.double()
    expected = x @ y
    finite = [torch.where(t.isfinite(), t, 0).abs() for t in (x, y)]
    bound = 2.0**-23 * (a.shape[1] + 4) * (finite[0] @ finite[1])
    bound += a.shape[1] * 2.0**-126
    is_near = (actual.cpu().double() - expected).abs() <= bound
    is_same = actual.cpu().double() == expected
    assert (is_near | is_same | (actual.cpu().isnan() & expected.isnan())).all()


@pytest.mark.parametrize("binades", [10, 29, 31, 60, 100])
def test_products_of_wide_matrices(row, binades):
    for m, k, n in SIZES:
        check_product(wide(m, k, binades=binades), torch.randn(k, n).bfloat16())
        check_product(torch.randn(m, k).bfloat16(), wide(k, n, binades=binades, top=20))
        check_product(wide(m, k, binades=binades), wide(k, n, binades=binades / 4))


def test_products_of_small_and_large_matrices(row):
    for m, k, n in SIZES:
        a, b = torch.randn(m, k), torch.randn(k, n)
        for left, right in [(1e-12, 1), (1e30, 1e-20), (1e-20, 1e30), (1e-30, 1), (0, 1)]:
            check_product((a * left).bfloat16(), (b * right).bfloat16())


def test_rows_of_falling_magnitude(row):
    for m, k, n in SIZES:
        rows = torch.exp2(-torch.arange(m) / 2)[:, None]
        check_product((torch.randn(m, k) * rows).bfloat16(), torch.randn(k, n).bfloat16())


def test_a_few_low_elements(row):
    a, b = torch.randn(130, 520).bfloat16(), torch.randn(520, 72).bfloat16()
    a[3, 300], b[7, 9] = 1e-20, 1e-25
    check_product(a, b)
    check_product(b.mT, a.mT)
    a[5] = 1e-18  # a row of low elements only
    check_product(a, b)


def test_infinities_and_nan(row):
    for m, k, n in SIZES:
        for binades in (10, 70):
            a, b = wide(m, k, binades=binades), wide(k, n, binades=binades / 2)
            a[0, :5] = 0
            check_product(with_special(a, math.inf), b)
            check_product(with_special(a, -math.inf, math.nan), with_special(b, math.inf))
            check_product(with_special(a, 0.0, -0.0), with_special(b, math.nan))
