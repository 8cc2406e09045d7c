"""Which bfloat16 heads fit in float16, and with which powers of two: attention_ranges.wgsl and
attention_scales.wgsl. They run on any device."""

import pytest
import torch
from common import DEVICE

from torch_webgpu import _C

INF, NAN = float("inf"), float("nan")


def spanning(binades, *shape, top=0):
    """Magnitudes over so many binades, of which both ends occur."""
    exponents = torch.randint(0, binades, shape)
    exponents.view(-1)[0], exponents.view(-1)[-1] = 0, binades - 1
    x = (1 + torch.randint(0, 128, shape) / 128) * 2.0 ** (top - exponents.double())
    return (x * torch.randn(shape).sign()).bfloat16()


def scales(q, k, v, g=None, *, scale=0.125):
    """For each head: whether it fits, whether with subnormals, and the exponents of q, k, v, g."""
    moved = [None if t is None else t.to(DEVICE) for t in (q, k, v, g)]
    words, rows = _C._attention_scales(*moved[:3], scale, moved[3])
    words = words.cpu().view(*q.shape[:2])
    first, second = words & 0xFFFFFFFF, (words >> 32) & 0xFFFFFFFF
    tops = [((second >> (8 * i)) & 0xFF) - 127 for i in range(4)]
    return first & 1 == 1, first & 2 == 2, tops, rows


def exponents(x):
    return (x.float().abs().frexp().exponent - 1).long()


def tops_of(x):
    found = exponents(x).masked_fill(x == 0, -1000).flatten(2).max(-1).values
    return torch.where(found == -1000, 0, found)


@pytest.mark.parametrize("dims", [(64, 64), (8, 128), (80, 24)])
@pytest.mark.parametrize("lengths", [(1, 1), (130, 257), (300, 40)])
def test_tops(lengths, dims):
    shape = lambda n, d: (2, 3, n, d)  # noqa: E731
    factors = 2.0 ** torch.tensor([-20, 3, 11])[:, None, None]
    q = (torch.randn(shape(lengths[0], dims[0])) * factors).bfloat16()
    k = (torch.randn(shape(lengths[1], dims[0])) / factors).bfloat16()
    v = (torch.randn(shape(lengths[1], dims[1])) * factors.flip(0)).bfloat16()
    q[1, 1], v[0, 2] = 0, 0
    for layout in (lambda x: x, lambda x: x.transpose(1, 2).contiguous().transpose(1, 2)):
        fits, _, tops, _ = scales(*map(layout, (q, k, v)))
        assert fits.all()
        for found, tensor in zip(tops, (q, k, v), strict=False):
            assert torch.equal(found, tops_of(tensor))


@pytest.mark.parametrize("binades", [29, 30, 31, 33, 34, 90])
@pytest.mark.parametrize("operand", range(4))
def test_windows(binades, operand):
    """33 binades fit, 30 of them without subnormal numbers. In the forward pass, queries and keys
    may have more."""
    tensors = [torch.ones(1, 2, n, 64).bfloat16() for n in (40, 50, 50, 40)]
    tensors[operand][:, 1] = spanning(binades, *tensors[operand][:, 1].shape)
    fits, with_subnormals, *_ = scales(*tensors)
    assert fits.tolist() == [[True, binades <= 33]]
    assert with_subnormals.tolist() == [[False, binades > 30]]
    fits, with_subnormals, *_ = scales(*tensors[:3])
    assert fits.tolist() == [[True, operand != 2 or binades <= 33]]
    assert with_subnormals.tolist() == [[False, operand == 2 and binades > 30]]


def test_large_scores_need_exact_products():
    for exponent, exact in ((0, False), (9, False), (13, True), (14, True)):
        q = spanning(40, 1, 1, 40, 64, top=exponent)
        ones = torch.ones(1, 1, 50, 64).bfloat16()
        assert scales(q, ones, ones)[0].item() is not exact
        q = spanning(32, 1, 1, 40, 64, top=exponent)
        fits, with_subnormals, *_ = scales(q, ones, ones)
        assert fits.item() and with_subnormals.item() is exact


@pytest.mark.parametrize("value", [INF, -INF, NAN, 2.0**-130, 2.0**60, -(2.0**-60)])
@pytest.mark.parametrize("operand", range(4))
def test_what_does_not_fit(operand, value):
    tensors = [torch.randn(2, 3, n, 64).bfloat16() for n in (140, 150, 150, 140)]
    tensors[operand][1, 2, 139, 63] = value
    fits = scales(*tensors)[0]
    expected = torch.ones(2, 3, dtype=torch.bool)
    expected[1, 2] = False
    assert torch.equal(fits, expected)
    if operand < 3:
        may_flush = operand < 2 and abs(value) < 1
        assert torch.equal(scales(*tensors[:3])[0], expected | may_flush)


def test_extreme_magnitudes_do_not_fit():
    ones = torch.ones(1, 1, 4, 8).bfloat16()
    for exponent, scale in ((41, 1), (-41, 1), (0, 1e6), (0, 1e-6), (0, INF), (0, NAN)):
        assert not scales(ones * 2.0**exponent, ones, ones, scale=scale)[0]
    for exponent, scale in ((40, 1), (-40, 1), (0, 0.0), (0, -1e4), (0, 1e-4)):
        assert scales(ones, ones, ones * 2.0**exponent, scale=scale)[0]
    # Of queries and keys whose products are not large.
    for exponent, other in ((40, -40), (40, -30), (-40, 0)):
        assert scales(ones * 2.0**exponent, ones * 2.0**other, ones, scale=1)[0]
        assert scales(ones * 2.0**other, ones * 2.0**exponent, ones, scale=1)[0]
    for exponent, other in ((41, -30), (-41, 0)):
        assert not scales(ones * 2.0**exponent, ones * 2.0**other, ones, scale=1)[0]
        assert not scales(ones * 2.0**other, ones * 2.0**exponent, ones, scale=1)[0]
    assert not scales(ones, ones * 2.0**25, ones * 2.0**-10, ones * 2.0**-50)[0]
    assert not scales(ones, ones, ones * 2.0**25, ones * 2.0**25)[0]
    other = (ones * 2.0**25, ones * 2.0**-10, ones * 2.0**-30)
    assert scales(ones, *other, scale=2.0**-12)[0]
    assert not scales(ones, *other)[0]  # scores above 2^20


@pytest.mark.parametrize("backward", [False, True])
def test_scores_above_a_million_do_not_fit(backward):
    """In either pass: both need the same scores."""
    ones = torch.ones(1, 1, 4, 64).bfloat16()
    gradient = ones if backward else None
    for exponent, fits in ((14, True), (15, False), (30, False)):
        assert scales(ones * 2.0**exponent, ones, ones, gradient)[0].item() is fits
        assert scales(ones, ones * 2.0**exponent, ones, gradient)[0].item() is fits
    assert scales(ones * 2.0**30, ones, ones, gradient, scale=0.0)[0].item()


def test_heads_that_share_keys():
    """In the backward pass they are one; in the forward pass each is on its own."""
    q, g = (torch.randn(2, 6, 140, 64).bfloat16() for _ in range(2))
    k, v = (torch.randn(2, 2, 150, 64).bfloat16() for _ in range(2))
    q[0, 1, 130, 3] = INF
    q[1, 5] *= 64
    fits, _, tops, _ = scales(q, k, v)
    assert fits.tolist() == [[True, False, *[True] * 4], [True] * 6]
    assert tops[0][1, 5] == tops_of(q)[1, 5]
    fits, _, tops, _ = scales(q, k, v, g)
    assert fits.tolist() == [[*[False] * 3, *[True] * 3], [True] * 6]
    assert torch.equal(tops[3], tops_of(g).view(2, 2, 3).amax(2).repeat_interleave(3, 1))
    assert (tops[0][1, 3:] == tops_of(q)[1, 5]).all()
    assert torch.equal(tops[1], tops_of(k).repeat_interleave(3, 1))


def test_rows():
    """The largest magnitude in each row of the gradient, the smallest in each row of queries."""
    q, g = (torch.randn(2, 3, 140, 72).bfloat16() for _ in range(2))
    k, v = (torch.randn(2, 3, 50, 72).bfloat16() for _ in range(2))
    g *= 2.0 ** torch.randint(-8, 1, (2, 3, 140, 1))
    q[0, 0, :5] = 0
    g[1, 1, 7:9] = 0
    q[..., ::3] = 0
    words = scales(q, k, v, g)[3].cpu().view(2, 3, 140) >> 32
    largest = exponents(g).masked_fill(g == 0, -127).amax(-1) + 127
    smallest = exponents(q).masked_fill(q == 0, 128).amin(-1) + 127
    assert torch.equal(words & 0xFF, largest)
    assert torch.equal((words >> 8) & 0xFF, smallest)
