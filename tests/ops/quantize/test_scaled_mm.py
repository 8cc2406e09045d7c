"""Products of float8 matrices with scales: _scaled_mm and torch.nn.functional.scaled_mm."""

import pytest
import torch
from common import DEVICE, check_error, error_text, to_device
from torch.nn.functional import ScalingType, scaled_mm

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
E4M3FNUZ, E5M2FNUZ = torch.float8_e4m3fnuz, torch.float8_e5m2fnuz
TYPES = [E4M3, E5M2, E4M3FNUZ, E5M2FNUZ]
OUT = [torch.float32, torch.float16, torch.bfloat16, *TYPES]


def matrices(m, n, k, types=(E4M3, E4M3)):
    """The second with columns one after the other, as CUDA wants it."""
    return torch.randn(m, k).to(types[0]), torch.randn(n, k).to(types[1]).t()


def scales(m, n, kind):
    if kind == "rows":
        return torch.rand(m, 1) + 0.5, torch.rand(1, n) + 0.5
    return torch.tensor(0.75), torch.tensor([1.5])


def check(function, *args, **kwargs):
    """As the CPU, up to the order of sums: of float8, a step."""
    expected = function(*args, **kwargs)
    moved = {name: to_device(value) for name, value in kwargs.items()}
    actual = function(*to_device(args), **moved)
    assert actual.device.type == "webgpu"
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    steps = {E4M3: 2**-3, E5M2: 2**-2, torch.float32: 2e-6, torch.float16: 2**-10}
    steps |= {E4M3FNUZ: 2**-3, E5M2FNUZ: 2**-2}
    rtol = steps.get(expected.dtype, 2**-7)
    torch.testing.assert_close(actual.cpu().float(), expected.float(), rtol=rtol, atol=rtol * 2)


@pytest.mark.parametrize("kind", ["whole", "rows"])
@pytest.mark.parametrize("dtype", OUT)
@pytest.mark.parametrize("types", [(a, b) for a in TYPES for b in TYPES])
def test_products(types, dtype, kind):
    a, b = matrices(5, 7, 33, types)
    check(torch._scaled_mm, a, b, *scales(5, 7, kind), out_dtype=dtype)


@pytest.mark.parametrize("kind", ["whole", "rows"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bias(dtype, kind):
    a, b = matrices(17, 48, 64)
    bias = torch.randn(48, dtype=dtype)
    check(torch._scaled_mm, a, b, *scales(17, 48, kind), bias=bias, out_dtype=dtype)


def test_layouts_and_empty_sizes():
    a, b = matrices(6, 8, 32)
    one = torch.tensor(1.0)
    check(torch._scaled_mm, a, b.contiguous(), one, one)  # the result has the first one's type
    check(torch._scaled_mm, a[::2], b[:, 1:], one, one, out_dtype=torch.float32)
    for part in (a[:0], b), (a, b[:, :0]), (a[:, :0], b[:0]):
        check(torch._scaled_mm, *part, one, one, out_dtype=torch.float32)


def test_out():
    a, b = map(to_device, matrices(5, 7, 16))
    one = torch.ones((), device=DEVICE)
    for size in (0,), (5, 7):
        out = torch.empty(size, device=DEVICE)
        assert torch._scaled_mm(a, b, one, one, out_dtype=torch.float32, out=out) is out
        assert torch.equal(out, torch._scaled_mm(a, b, one, one, out_dtype=torch.float32))


def test_the_scale_of_a_float8_result():
    """It multiplies, as on CUDA. The CPU divides by it."""
    a, b = map(to_device, matrices(5, 7, 16))
    one, two = torch.ones((), device=DEVICE), torch.full((1,), 2.0, device=DEVICE)
    exact = torch._scaled_mm(a, b, one, one, out_dtype=torch.float32)
    scaled = torch._scaled_mm(a, b, one, one, scale_result=two, out_dtype=E4M3)
    assert torch.equal(scaled.float(), (exact * 2).to(E4M3).float())
    ignored = torch._scaled_mm(a, b, one, one, scale_result=two, out_dtype=torch.float32)
    assert torch.equal(ignored, exact)


ROWS, WHOLE = ScalingType.RowWise, ScalingType.TensorWise


@pytest.mark.parametrize("kind", ["whole", "rows"])
def test_functional(kind):
    a, b = matrices(5, 7, 33)
    recipe = ROWS if kind == "rows" else WHOLE
    x, y = scales(5, 7, kind)
    bias = torch.randn(7, dtype=torch.bfloat16)
    for options in ({}, {"bias": bias}, {"output_dtype": None}, {"contraction_dim": [1, 0]}):
        check(scaled_mm, a, b, x, recipe, y, recipe, **options)


ONE, FEW = torch.tensor(1.0), torch.ones(2)
A, B = matrices(5, 7, 16)


@pytest.mark.parametrize(
    "args",
    [
        (A[0], B, ONE, ONE),
        (A, B[0], ONE, ONE),
        (A, B.t(), ONE, ONE),
        (A.float(), B, ONE, ONE),
        (A, B.half(), ONE, ONE),
        (A, B, ONE.double(), ONE),
        (A, B, ONE, torch.ones(1, 7)),
        (A, B, torch.ones(5, 1), torch.ones(1, 6)),
        (A, B, torch.ones(1, 5).t(), torch.ones(1, 14)[:, ::2]),
        (A, B, ONE, ONE, FEW),
        (A, B, ONE, ONE, None, FEW),
        (A, B, ONE, ONE, None, ONE.double()),
    ],
)
def test_errors(args):
    check_error(torch._scaled_mm, *args)


@pytest.mark.parametrize(
    "args",
    [
        (A[0], B, ONE, WHOLE, ONE, WHOLE),
        (A, B[0], ONE, WHOLE, ONE, WHOLE),
        (A, B[:3], ONE, WHOLE, ONE, WHOLE),
        (A, B, FEW, WHOLE, ONE, WHOLE),
        (A, B, ONE, WHOLE, FEW, WHOLE),
        (A, B, torch.ones(5, 1), ROWS, torch.ones(1, 6), ROWS),
        (A, B, torch.ones(5, 1), ROWS, torch.ones(7), ROWS),
        (A, B, ONE, ScalingType.BlockWise1x128, ONE, ScalingType.BlockWise1x128),
        (A, B, ONE, WHOLE, ONE, WHOLE, None, None, FEW),
    ],
)
def test_errors_of_functional(args):
    check_error(scaled_mm, *args)


@pytest.mark.parametrize(
    "args",
    [
        (A.half(), B, ONE, WHOLE, ONE, WHOLE),
        (A, B, ONE, WHOLE, torch.ones(1, 7), ROWS),
        (A, B, torch.ones(4, 1), ROWS, torch.ones(1, 7), ROWS),
        (A, B, [ONE, ONE], [WHOLE], [ONE], [WHOLE]),
        (A, B, ONE, WHOLE, ONE, WHOLE, None, None, None, torch.float32, [0]),
        (A, B, ONE, WHOLE, ONE, WHOLE, None, None, None, torch.float32, [0, 1]),
    ],
)
def test_errors_that_versions_word_differently(args):
    (actual, _), (expected, _) = (error_text(scaled_mm, *x) for x in (to_device(args), args))
    assert actual is expected is ValueError


@pytest.mark.parametrize("orders", [(1, 0), (0, 1), (2, 2)])
def test_swizzled_scales_are_refused(orders):
    """Scales in the order of CUDA's blocks, which neither this device nor the CPU has."""
    x, one = matrices(16, 16, 16), torch.ones(())

    def product(a, b, one):
        swizzles = [[order] for order in orders]
        recipes = [[one], [0], swizzles[0], [one], [0], swizzles[1]]
        return torch._scaled_mm_v2(a, b, *recipes, None, torch.float32)

    for device in ("cpu", DEVICE):
        with pytest.raises(ValueError, match="does not support swizzle"):
            product(*(t.to(device) for t in (*x, one)))


def test_other_products_are_refused():
    x, one = to_device(matrices(16, 16, 16)), torch.ones((), device=DEVICE)
    with pytest.raises(ValueError, match="only supports contraction_dim"):
        scaled_mm(*x, one, WHOLE, one, WHOLE, contraction_dim=[0, 1])
    expected = scaled_mm(*x, one, WHOLE, one, WHOLE)
    assert torch.equal(scaled_mm(*x, one, WHOLE, one, WHOLE, contraction_dim=[-1, -2]), expected)


def test_compiled():
    a, b = map(to_device, matrices(16, 32, 64))
    x, y = map(to_device, scales(16, 32, "rows"))

    def product(a, b, x, y):
        return torch._scaled_mm(a, b, x, y, out_dtype=torch.float32) * 2

    torch.testing.assert_close(torch.compile(product)(a, b, x, y), product(a, b, x, y))


def test_autocast_leaves_the_sums_in_float32():
    """They are scaled afterwards; as halves they would overflow."""
    matrix = torch.full((16, 512), 400.0).to(torch.float8_e4m3fn).to(DEVICE)
    scale = torch.tensor(1e-3, device=DEVICE)
    with torch.autocast(DEVICE, dtype=torch.float16):
        product = torch._scaled_mm(matrix, matrix.t(), scale, scale, out_dtype=torch.float16)
    value = matrix[0, 0].float().item()
    torch.testing.assert_close(
        product.cpu().float(), torch.full((16, 16), 512 * (value * 1e-3) ** 2), rtol=1e-3, atol=0
    )
