"""Attention of bfloat16 on the float16 matrices of a GPU (csrc/ops/attention/scales.wgsl), against
float64 on the CPU."""

import pytest
import torch
from common import DEVICE, needs_matrices, to_device
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from torch_webgpu import _C

INF, NAN = float("inf"), float("nan")
FORWARD = "forward_matrix_bf16"
BACKWARD = ("backward_matrix_bf16", "backward_matrix_bf16_stored")
# Errors of results and of gradients, relative to the norms of whole heads. The rounding of results
# to bfloat16 alone makes them 1.7e-3.
NEAR = (2.5e-3, 4e-3)


@pytest.fixture(autouse=True, params=BACKWARD)
def matrices(request):
    needs_matrices()
    torch.manual_seed(0)
    for row in (FORWARD, request.param):
        _C._force_attention_strategy(row)
    yield
    _C._force_attention_strategy("")


def inputs(batch, heads, queries, keys, dims, *, value_dims=None, key_heads=None):
    key_heads = key_heads or heads
    shapes = [
        (batch, heads, queries, dims),
        (batch, key_heads, keys, dims),
        (batch, key_heads, keys, value_dims or dims),
    ]
    return [torch.randn(shape).bfloat16() for shape in shapes]


def attend(tensors, mask, weights, **options):
    """The result, and the gradients of its weighted sum."""
    leaves = [t.detach().requires_grad_() for t in tensors]
    out = F.scaled_dot_product_attention(*leaves, attn_mask=mask, **options)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), leaves)]


def both(tensors, mask=None, *, weights=None, **options):
    """Result and gradients for query, key and value, as the device and as float64 has them."""
    if weights is None:
        weights = torch.randn(*tensors[0].shape[:-1], tensors[2].shape[-1]).bfloat16()
    exact_mask = mask.double() if mask is not None and mask.is_floating_point() else mask
    with sdpa_kernel(SDPBackend.MATH):
        exact = [t.double() for t in tensors]
        expected = attend(exact, exact_mask, weights.double(), **options)
    with sdpa_kernel(SDPBackend.OVERRIDEABLE):
        actual = attend(to_device(tensors), to_device(mask), weights.to(DEVICE), **options)
    assert all(t.dtype == torch.bfloat16 and t.device.type == DEVICE for t in actual)
    return [t.cpu().double() for t in actual], expected


def assert_near(actual, expected, limit, dims=(-2, -1)):
    """By norms, of whole heads or of the dimensions given. What is zero is so exactly."""
    error = (actual - expected).norm(dim=dims)
    size = expected.norm(dim=dims)
    assert actual.isfinite().all()
    assert (error <= limit * size).all(), (error / size).max()


def compare(tensors, mask=None, *, near=NEAR, **options):
    actual, expected = both(tensors, mask, **options)
    for one, other, limit in zip(actual, expected, (near[0], *[near[1]] * 3), strict=True):
        assert_near(one, other, limit)


# ---- Heads that fit


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("dims", "value_dims"), [(64, 64), (80, 80), (128, 128), (24, 104)])
@pytest.mark.parametrize(("queries", "keys"), [(3, 5), (33, 70), (131, 150), (300, 257)])
def test_sizes(queries, keys, dims, value_dims, causal):
    # With few keys, gradients of scores cancel down to the rounding of the result, in all kernels.
    near = (NEAR[0], 2e-2) if keys < 10 else NEAR
    tensors = inputs(2, 2, queries, keys, dims, value_dims=value_dims)
    compare(tensors, is_causal=causal, near=near)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries", [70, 270])
def test_groups_of_heads(queries, causal):
    tensors = inputs(2, 6, queries, 75, 64, key_heads=2)
    # The heads that share keys have magnitudes of their own.
    tensors[0] *= torch.tensor([1, 2**-5, 1.5, 2, 1, 2**-9])[:, None, None]
    weights = torch.randn(2, 6, queries, 64) * torch.tensor([1, 1, 2**-9, 1, 32, 1])[:, None, None]
    compare(tensors, weights=weights.bfloat16(), enable_gqa=True, is_causal=causal)


@pytest.mark.parametrize("shape", [(70, 75), (2, 1, 70, 75), (1, 3, 70, 1)])
def test_masks(shape):
    tensors = inputs(2, 3, 70, 75, 64)
    compare(tensors, torch.randn(shape).bfloat16())
    compare(tensors, torch.randn(shape))
    mask = torch.rand(70, 75) > 0.3
    mask[::3] = False  # rows that see nothing
    compare(tensors, mask)


@pytest.mark.parametrize("value", [-1e4, -1e9, torch.finfo(torch.bfloat16).min])
def test_rows_that_a_large_number_masks(value):
    """What products add to such a number is lost in part or wholly, and decides the weights."""
    tensors = inputs(1, 2, 70, 75, 64)
    mask = torch.zeros(70, 75)
    mask[:, 60:] = mask[3] = value
    actual, expected = both(tensors, mask)
    rows = [i for i in range(70) if i != 3]  # float32 has other weights in that one than float64
    assert_near(actual[0][:, :, rows], expected[0][:, :, rows], NEAR[0])
    assert_near(actual[1][:, :, rows], expected[1][:, :, rows], NEAR[1])
    assert all(t.isfinite().all() for t in actual)


def test_dropout():
    """With the identity for values, the result shows which weights were dropped."""
    p, keys = 0.3, 88
    query, key, value = inputs(2, 4, 75, keys, 64, key_heads=2)
    ones = torch.eye(keys).bfloat16().expand(2, 2, keys, keys)

    def run(*tensors):
        torch.manual_seed(5)
        with sdpa_kernel(SDPBackend.OVERRIDEABLE):
            return F.scaled_dot_product_attention(*tensors, dropout_p=p, enable_gqa=True)

    kept = run(*to_device([query, key, ones.contiguous()])).cpu() != 0
    assert abs(kept.double().mean() - (1 - p)) < 0.05
    leaves = to_device([t.requires_grad_() for t in (query, key, value)])
    exact = [t.detach().double().requires_grad_() for t in (query, key, value)]
    q, k, v = exact[0], *(t.repeat_interleave(2, 1) for t in exact[1:])
    expected = ((q @ k.mT / 8).softmax(-1) * kept / (1 - p)) @ v
    weights = torch.randn(expected.shape).bfloat16()
    out = run(*leaves)
    assert_near(out.detach().cpu().double(), expected.detach(), NEAR[0])
    actual = torch.autograd.grad(out, leaves, weights.to(DEVICE))
    wanted = torch.autograd.grad(expected, exact, weights.double())
    for one, other in zip(actual, wanted, strict=True):
        assert_near(one.cpu().double(), other, NEAR[1])


def test_layouts():
    tensors = [torch.randn(2, n, 3, 64).bfloat16().transpose(1, 2) for n in (70, 75, 75)]
    compare(tensors)
    weights = torch.randn(1 + 2 * 3 * 70 * 64).bfloat16()[1:].view(2, 3, 70, 64)  # is not aligned
    compare(tensors, weights=weights)
    compare(tensors, weights=torch.ones(1).bfloat16().expand(2, 3, 70, 64))
    packed = torch.randn(2, 70, 3, 3 * 64).bfloat16()  # of one projection
    compare([t.transpose(1, 2) for t in packed.split(64, -1)], is_causal=True)


@pytest.mark.parametrize("exponents", [(20, -20, 5, -25), (-30, 30, -30, 30), (0, 0, -35, 30)])
def test_magnitudes(exponents):
    """Of query, key, value and gradient."""
    tensors = [t * 2.0**n for t, n in zip(inputs(1, 2, 70, 75, 64), exponents[:3], strict=True)]
    compare(tensors, weights=torch.randn(1, 2, 70, 64).bfloat16() * 2.0 ** exponents[3])


@pytest.mark.parametrize("scale", [0.0, -0.7, 1e-3, 1e-20])
def test_scale(scale):
    compare(inputs(1, 2, 70, 75, 64), scale=scale, near=(NEAR[0], 8e-3))


def test_zeros():
    for name in range(4):
        tensors = inputs(1, 3, 70, 75, 64)
        weights = torch.randn(1, 3, 70, 64).bfloat16()
        [*tensors, weights][name][:, 1] = 0
        weights[:, :, 5:20] = 0
        # Where values are zero, so are the gradients of scores but for the rounding of results.
        compare(tensors, weights=weights)


def diagonal(heads, length):
    """Queries and keys of which each sees its own alone: other weights are 0 in float32."""
    return (32 * torch.eye(64)[:length]).bfloat16().expand(1, heads, length, 64).contiguous()


def spanning(binades, *shape, top=0):
    """Magnitudes of 8 significant bits over so many binades, of which both ends occur."""
    exponents = torch.randint(0, binades, shape)
    exponents.view(-1)[0], exponents.view(-1)[1] = 0, binades - 1
    x = (1 + torch.randint(0, 128, shape) / 128) * 2.0 ** (top - exponents.double())
    return (x * torch.randn(shape).sign()).bfloat16()


@pytest.mark.parametrize("binades", [30, 31, 33, 34, 60])
@pytest.mark.parametrize("top", [0, -20, 25])
def test_small_values_are_exact(binades, top):
    """Each query gets one row of values, and each value the gradient of one row. From 34 binades
    on, the blocks compute it."""
    x = diagonal(2, 64)
    values = spanning(binades, 1, 2, 64, 64, top=top)
    weights = spanning(binades, 1, 2, 64, 64, top=top)
    actual, _ = both([x, x, values], weights=weights)
    assert torch.equal(actual[0], values.double())
    assert torch.equal(actual[3], weights.double())


def test_small_keys_and_queries_count_in_gradients():
    """Columns of keys and queries far below others: their gradients' columns follow."""
    tensors = inputs(1, 2, 70, 75, 64)
    tensors[0][..., 1::2] *= 2.0**-15
    tensors[1][..., 1::2] *= 2.0**-15
    actual, expected = both(tensors)
    for one, other in zip(actual[1:3], expected[1:3], strict=True):
        assert_near(one, other, 2 * NEAR[1], -2)  # each column


@pytest.mark.parametrize(("queries", "least"), [(70, 2.0**-20), (330, 2.0**-15)])
def test_rows_of_small_gradients(queries, least):
    tensors = inputs(1, 2, queries, queries + 5, 64)
    scale = torch.ones(queries, 1)
    scale[::3] = 2.0**-12
    scale[40] = scale[64:] = least
    weights = (torch.randn(1, 2, queries, 64) * scale).bfloat16()
    for causal in (False, True):
        actual, expected = both(tensors, weights=weights, is_causal=causal)
        first = 1 if causal else 0  # the gradient of a single weight of 1 is all rounding
        assert_near(actual[1][:, :, first:], expected[1][:, :, first:], 5 * NEAR[1], -1)
        for one, other in zip(actual, expected, strict=True):
            assert_near(one, other, NEAR[1])
    # Keys that only rows of small gradients see.
    actual, expected = both(
        [tensors[0], *(t[:, :, :queries] for t in tensors[1:])], weights=weights, is_causal=True
    )
    for one, other in zip(actual[2:], expected[2:], strict=True):
        assert_near(one, other, 10 * NEAR[1], -1)


# ---- Large scores


@pytest.mark.parametrize("dims", [64, 128])
def test_scores_that_grow_along_the_keys(dims):
    query, key, value = inputs(1, 2, 140, 150, dims)
    key = (key * torch.linspace(0, 6, 150)[:, None]).bfloat16()
    compare([3 * query, key, value], near=(3e-3, 1e-2))
    compare([3 * query, key, value], near=(3e-3, 1e-2), is_causal=True)


def test_scores_that_are_large():
    """Equal ones of 8e7: the weights are equal, too."""
    query = torch.full((1, 1, 20, 80), 3000.0).bfloat16()
    value = torch.randn(1, 1, 50, 80).bfloat16()
    weights = torch.randn(1, 1, 20, 80).bfloat16()
    actual, expected = both([query, query[:, :, :1].expand(1, 1, 50, 80), value], weights=weights)
    assert_near(actual[0], value.double().mean(2, keepdim=True).expand(1, 1, 20, 80), NEAR[0])
    assert_near(actual[3], expected[3], NEAR[1])
    assert actual[1].isfinite().all() and actual[2].isfinite().all()


def test_small_elements_beside_large_scores():
    """What float16 cannot hold decides: products of large and small elements are all that differs
    between the keys."""
    query, key, value = inputs(1, 1, 70, 75, 64)
    query = query.sign() * 2.0**12
    key = (key * 2.0**-12).bfloat16()
    query[..., 0], key[..., 0] = 0, 2.0**19
    actual, expected = both([query, key, value])
    # The gradient of the queries' first elements is 2^19 times a sum that cancels.
    actual[1][..., 0] = expected[1][..., 0] = 0
    for one, other, limit in zip(actual, expected, (NEAR[0], *[NEAR[1]] * 3), strict=True):
        assert_near(one, other, limit)


def test_log_sum_exp():
    query, key, value = inputs(2, 2, 40, 30, 64)
    scores = (query.double() @ key.double().mT) / 8
    result = torch.ops.aten._scaled_dot_product_fused_attention_overrideable(
        *to_device([query, key, value])
    )
    torch.testing.assert_close(result[1].cpu().double(), scores.logsumexp(-1), rtol=1e-5, atol=1e-5)


# ---- Heads that do not fit, beside others


def unfit(which, heads):
    """Of `heads` (of any operand), the second and the fourth one."""
    for head, kind in zip((1, 3), which, strict=True):
        x = heads[:, head]
        if kind == "wide":
            x.copy_((x.sign() * 2.0 ** (120 * torch.rand(x.shape) - 60)).bfloat16())
        elif kind == "subnormal":
            x[0, 3, 5] = 2.0**-130
        else:
            x[0, 3, 5] = kind


@pytest.mark.parametrize("kinds", [("wide", INF), (NAN, "subnormal")])
@pytest.mark.parametrize("operand", [0, 1, 2, 3])
def test_heads_that_do_not_fit(operand, kinds):
    tensors = inputs(1, 5, 70, 75, 64)
    weights = torch.randn(1, 5, 70, 64).bfloat16()
    unfit(kinds, [*tensors, weights][operand])
    actual, expected = both(tensors, weights=weights)
    fitting = [0, 2, 4]
    limits = (NEAR[0], *[NEAR[1]] * 3)
    for one, other, limit in zip(actual, expected, limits, strict=True):
        assert_near(one[:, fitting], other[:, fitting], limit)
    for head, kind in zip((1, 3), kinds, strict=True):
        out, wanted = actual[0][0, head], expected[0][0, head]
        if kind == "wide" and operand < 2:
            assert out.isfinite().all()  # scores of 2^60 are off in any case
            continue
        assert torch.equal(out.isfinite(), wanted.isfinite())
        sound = wanted.isfinite().all(-1)
        assert_near(out[sound], wanted[sound], 2 * NEAR[0], -1)


@pytest.mark.parametrize("operand", [0, 2, 3])
def test_groups_of_heads_that_do_not_fit(operand):
    """Keys and values get the gradients of all heads that share them."""
    tensors = inputs(2, 6, 70, 75, 64, key_heads=2)
    weights = torch.randn(2, 6, 70, 64).bfloat16()
    one_head = [*tensors, weights][operand][0, 1]
    one_head[0, :2] = torch.tensor([2.0**-50, -(2.0**-50)])
    compare(tensors, weights=weights, enable_gqa=True)
    compare(tensors, weights=weights, enable_gqa=True, is_causal=True)


@pytest.mark.parametrize("dims", [64, 128])
def test_walks_apart(dims):
    """A second dispatch repeats the tiles of queries that failed: here one of some heads."""
    _C._force_attention_strategy("forward_matrix_bf16_large")
    query, key, value = inputs(1, 5, 300, 270, dims)
    query[:, :3, 128:256] *= 40
    key *= torch.linspace(0.1, 3, 270)[:, None].bfloat16()
    unfit(("wide", INF), value)
    for options in ({}, {"is_causal": True}):
        actual, expected = both([query, key, value], **options)
        assert_near(actual[0][:, [0, 2, 4]], expected[0][:, [0, 2, 4]], NEAR[0])


# ---- The world around


def test_same_bits_every_time():
    tensors = inputs(1, 3, 70, 75, 64)
    tensors[2][:, 1, 0, 0] = 2.0**-70
    weights = torch.randn(1, 3, 70, 64).bfloat16()
    runs = [both(tensors, weights=weights)[0] for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def test_graphs():
    tensors = to_device(inputs(1, 3, 70, 75, 64))

    def run():
        with sdpa_kernel(SDPBackend.OVERRIDEABLE):
            return F.scaled_dot_product_attention(*tensors)

    run()
    graph = torch.webgpu.Graph()
    with torch.webgpu.graph(graph):
        out = run()
    for scale in (1.0, 2.0**-30):
        tensors[2].copy_(torch.randn(1, 3, 75, 64) * scale)
        tensors[2][:, 1, 0, 0] = 1.0 / scale  # the head does not fit
        graph.replay()
        assert torch.equal(out.cpu(), run().cpu())


def test_which_calls_take_it():
    """Large ones: two dispatches more find out which heads fit, three convert them, and both
    kernels run."""
    _C._force_attention_strategy("")
    for heads, length, count in ((2, 64, 1), (64, 256, 4), (64, 257, 7)):
        tensors = to_device(inputs(1, heads, length, length, 64))
        with sdpa_kernel(SDPBackend.OVERRIDEABLE):
            before = torch.webgpu.stats()["dispatches"]
            F.scaled_dot_product_attention(*tensors)
        assert torch.webgpu.stats()["dispatches"] == before + count
