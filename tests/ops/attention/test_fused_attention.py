"""scaled_dot_product_attention as one operator, with its gradients, against float64 on the CPU."""

import gc
import itertools
import math

import pytest
import torch
from common import DEVICE, FLOATS, needs_matrices, to_device
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

from torch_webgpu import _C
from torch_webgpu.wgsl import target

INF, NAN = float("inf"), float("nan")
# Of results and of gradients. Halves round their inputs, results and gradients, nothing in between.
NEAR = {
    torch.float32: ({"rtol": 1e-4, "atol": 1e-5}, {"rtol": 1e-3, "atol": 1e-4}),
    torch.float16: ({"rtol": 2e-3, "atol": 1e-3}, {"rtol": 1e-2, "atol": 5e-3}),
    torch.bfloat16: ({"rtol": 1e-2, "atol": 8e-3}, {"rtol": 5e-2, "atol": 4e-2}),
}


def inputs(batch, heads, queries, keys, dims, *, value_dims=None, key_heads=None, dtype=None):
    torch.manual_seed(queries * 1000 + keys + dims)
    key_heads = key_heads or heads
    shapes = [
        (batch, heads, queries, dims),
        (batch, key_heads, keys, dims),
        (batch, key_heads, keys, value_dims or dims),
    ]
    return [torch.randn(shape).to(dtype or torch.float32) for shape in shapes]


def attend(tensors, mask, weights, **options):
    """The result, and the gradients of its weighted sum for each tensor that requires one."""
    out = F.scaled_dot_product_attention(*tensors, attn_mask=mask, **options)
    wanted = [t for t in (*tensors, mask) if t is not None and t.requires_grad]
    if not wanted:
        return out.detach(), ()
    return out.detach(), torch.autograd.grad((out * weights).sum(), wanted)


def compare(tensors, mask=None, *, gradients=True, near=None, **options):
    """The fused operator, and no other, gives what the CPU gives in float64."""
    dtype = tensors[0].dtype
    tensors = [t.detach().requires_grad_(gradients) for t in tensors]
    exact = [t.detach().double().requires_grad_(gradients) for t in tensors]
    exact_mask = mask
    if mask is not None and mask.is_floating_point():
        exact_mask = mask.detach().double().requires_grad_(mask.requires_grad)
    out_shape = (*tensors[0].shape[:-1], tensors[2].shape[-1])
    weights = torch.linspace(-1, 1, math.prod(out_shape), dtype=torch.float64).reshape(out_shape)
    weights = weights.to(dtype)
    with sdpa_kernel(SDPBackend.MATH):
        expected, expected_gradients = attend(exact, exact_mask, weights.double(), **options)
    with sdpa_kernel(SDPBackend.OVERRIDEABLE):
        actual, actual_gradients = attend(
            to_device(tensors), to_device(mask), weights.to(DEVICE), **options
        )
    of_result, of_gradients = near or NEAR[dtype]
    assert actual.dtype == dtype and actual.device.type == DEVICE
    torch.testing.assert_close(actual.cpu().double(), expected, equal_nan=True, **of_result)
    assert len(actual_gradients) == len(expected_gradients)
    for one, other in zip(actual_gradients, expected_gradients, strict=True):
        torch.testing.assert_close(one.cpu().double(), other, equal_nan=True, **of_gradients)
    return actual


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("queries", "keys"),
    [(1, 1), (1, 37), (7, 13), (63, 64), (64, 65), (65, 31), (130, 17), (9, 300)],
)
def test_lengths(queries, keys, causal, dtype):
    compare(inputs(2, 3, queries, keys, 16, dtype=dtype), is_causal=causal)


@pytest.mark.parametrize(
    ("dims", "value_dims", "dtype"),
    [
        (1, 1, torch.float32),
        (3, 5, torch.bfloat16),
        (8, 64, torch.float32),
        (65, 24, torch.float32),
        (80, 128, torch.float16),
        (256, 256, torch.bfloat16),
    ],
)
def test_head_dimensions(dims, value_dims, dtype):
    compare(inputs(1, 2, 20, 41, dims, value_dims=value_dims, dtype=dtype))


@pytest.mark.parametrize("dims", [64, 128])
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_last_value_is_infinite(dims, dtype):
    """What lies behind it in a step of the keys adds nothing."""
    query, key, value = inputs(1, 2, 40, 41, dims, dtype=dtype)
    value[0, 0, 40, 3], value[0, 1, 40, 5] = INF, NAN
    compare([query, key, value], gradients=False)


@pytest.mark.parametrize("dims", [32, 100, 256])
def test_few_queries(dims):
    for queries, keys in ((1, 1), (1, 700), (3, 65), (8, 129)):
        tensors = inputs(2, 6, queries, keys, dims, key_heads=2)
        compare(tensors, gradients=False, enable_gqa=True)
        mask = torch.randn(2, 1, queries, keys)
        compare(tensors, mask, gradients=False, enable_gqa=True)
        compare(tensors, gradients=False, enable_gqa=True, is_causal=True)


@pytest.mark.parametrize("dtype", FLOATS)
def test_few_queries_over_many_splits(dtype):
    """Keys in splits, as on a device that needs many workgroups: see the count of dispatches."""
    tensors = inputs(1, 2, 2, 3000, 64, key_heads=1, dtype=dtype)
    device_tensors = to_device(tensors)
    compare(tensors, gradients=False, enable_gqa=True)
    short = [t[:, :, :200] for t in device_tensors]
    for arguments, dispatches in ((device_tensors, 2), (short, 1)):
        before = torch.webgpu.stats()["dispatches"]
        with sdpa_kernel(SDPBackend.OVERRIDEABLE):
            F.scaled_dot_product_attention(*arguments, enable_gqa=True)
        assert torch.webgpu.stats()["dispatches"] == before + dispatches


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("group", [1, 2, 6])
def test_groups_of_heads(group, dtype):
    tensors = inputs(2, 6, 33, 40, 24, key_heads=6 // group, dtype=dtype)
    compare(tensors, enable_gqa=True)
    compare(tensors, enable_gqa=True, is_causal=True)


MASKS = [(30, 45), (1, 45), (30, 1), (1, 1), (2, 1, 1, 45), (1, 3, 30, 45), (2, 3, 30, 45)]


@pytest.mark.parametrize("shape", MASKS)
def test_masks(shape):
    tensors = inputs(2, 3, 30, 45, 20)
    compare(tensors, torch.randn(shape))
    compare(tensors, torch.randn(shape) > -0.5)
    compare(tensors, torch.randn(shape[::-1]).permute(*range(len(shape))[::-1]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_masks_of_halves(dtype):
    compare(inputs(1, 2, 30, 45, 32, dtype=dtype), torch.randn(30, 45).to(dtype))
    compare(inputs(1, 2, 30, 45, 32, dtype=dtype), torch.randn(30, 45) > 0)


@pytest.mark.parametrize("shape", MASKS)
def test_gradient_of_a_mask(shape):
    compare(inputs(2, 3, 30, 45, 20), torch.randn(shape, requires_grad=True))


@pytest.mark.parametrize("dims", [64, 128])
def test_scores_that_grow_along_the_keys(dims):
    """The largest score of a query comes last, far above the first ones."""
    query, key, value = inputs(1, 2, 140, 150, dims, dtype=torch.float16)
    key = (3 * key.float() * torch.linspace(0, 6, 150)[:, None]).half()
    compare([3 * query, key, value], gradients=False)
    compare([3 * query, key, value], gradients=False, is_causal=True)


def test_a_gradient_that_repeats():
    """Of out.sum(): one number in memory."""
    tensors = inputs(1, 2, 20, 30, 16, dtype=torch.float16)
    results = []
    for device in ("cpu", DEVICE):
        moved = [t.to(device, copy=True).requires_grad_() for t in tensors]
        with sdpa_kernel([SDPBackend.OVERRIDEABLE, SDPBackend.MATH]):
            F.scaled_dot_product_attention(*moved).sum().backward()
        results.append([t.grad.cpu() for t in moved])
    torch.testing.assert_close(results[1], results[0], rtol=1e-2, atol=5e-3)


def test_a_gradient_that_is_not_aligned():
    tensors = inputs(1, 2, 20, 30, 16, dtype=torch.float16)
    whole = torch.randn(3 + 2 * 20 * 16).half()
    results = []
    for device in ("cpu", DEVICE):
        moved = [t.to(device, copy=True).requires_grad_() for t in tensors]
        with sdpa_kernel([SDPBackend.OVERRIDEABLE, SDPBackend.MATH]):
            out = F.scaled_dot_product_attention(*moved)
        out.backward(whole.to(device)[3:].view(out.shape))
        results.append([t.grad.cpu() for t in moved])
    torch.testing.assert_close(results[1], results[0], rtol=1e-2, atol=5e-3)


def test_scores_that_are_large():
    """Equal ones of 1e9: the weights are equal, too."""
    query = torch.full((1, 1, 20, 80), 30000.0).half()
    value = torch.randn(1, 1, 50, 80).half()
    with sdpa_kernel(SDPBackend.OVERRIDEABLE):
        out = F.scaled_dot_product_attention(
            *to_device([query, query[:, :, :1].expand(1, 1, 50, 80), value])
        )
    expected = value.double().mean(2, keepdim=True).expand(1, 1, 20, 80)
    torch.testing.assert_close(out.cpu().double(), expected, rtol=2e-3, atol=1e-3)


def test_scale():
    tensors = inputs(1, 2, 12, 30, 16)
    for scale in (0.0, 1.0, -0.7, 3.0):
        compare(tensors, scale=scale)


def layouts():
    """Views of (2, 3, 21, 16) whose strides and offsets differ."""
    yield "heads last", lambda s: torch.randn(2, s, 3, 16).transpose(1, 2)
    yield "one projection", lambda s: torch.randn(2, s, 3, 3 * 16)[..., 16:32].transpose(1, 2)
    yield "odd offset", lambda s: torch.randn(2, 3, s, 17)[..., 1:]
    yield "dimension strided", lambda s: torch.randn(2, 3, s, 32)[..., ::2]
    yield "dimension first", lambda s: torch.randn(2, 3, 16, s).transpose(2, 3)
    yield "rows strided", lambda s: torch.randn(2, 3, 2 * s, 16)[:, :, ::2]
    yield "expanded", lambda s: torch.randn(1, 3, 1, 16).expand(2, 3, s, 16)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", [pytest.param(make, id=name) for name, make in layouts()])
def test_layouts(layout, dtype):
    compare([layout(n).to(dtype) for n in (21, 33, 33)])
    compare([layout(n).to(dtype) for n in (2, 33, 33)], gradients=False)


def test_layout_of_the_result():
    """The order of the query's dimensions in memory, so that heads join without a copy."""
    query, key, value = (torch.randn(2, n, 3, 16).transpose(1, 2) for n in (21, 30, 30))
    out = compare([query, key, value])
    assert out.transpose(1, 2).is_contiguous()
    out = compare([query, key, value[..., :12]])
    assert out.transpose(1, 2).is_contiguous()
    inputs_ = to_device([t.detach().requires_grad_() for t in (query, key, value)])
    F.scaled_dot_product_attention(*inputs_).sum().backward()
    for tensor in inputs_:
        assert tensor.grad.stride() == torch.empty_like(tensor).stride()


def test_empty():
    for sizes in ((0, 2, 3, 4), (2, 0, 3, 4), (2, 2, 0, 4), (2, 2, 3, 0)):
        batch, heads, queries, keys = sizes
        compare(inputs(batch, heads, queries, keys, 8))


def test_rows_that_see_nothing():
    """Their results and gradients are zero."""
    tensors = inputs(1, 2, 70, 40, 16)
    mask = torch.rand(70, 40) > 0.3
    mask[::3] = False
    compare(tensors, mask)
    compare(tensors, torch.where(mask, 0.5, -INF))
    compare([t[:, :, :5] for t in tensors], mask[:5, :5])
    compare(tensors, torch.zeros(70, 40, dtype=torch.bool))


def test_lowest_masks():
    """Rows that are masked with the lowest number average, as in PyTorch."""
    tensors = inputs(1, 2, 20, 40, 16)
    mask = torch.zeros(20, 40)
    mask[:, 25:] = torch.finfo(torch.float32).min
    mask[3] = torch.finfo(torch.float32).min
    compare(tensors, mask)
    compare([tensors[0][:, :, :4], *tensors[1:]], mask[:4])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_where_all_keys_are_masked_by_a_large_number(dtype):
    """Beside the mask, such scores keep nothing of the products: the weights of a row are equal."""
    tensors = inputs(1, 2, 20, 40, 16, key_heads=1, dtype=dtype)
    mask = torch.zeros(1, 2, 20, 40, dtype=dtype)
    mask[:, :, 3] = torch.finfo(dtype).min
    compare(tensors, mask.requires_grad_(), enable_gqa=True)


def test_large_scores():
    """Beyond what exponentials without a maximum could hold, growing and falling along the keys."""
    query, key, value = inputs(1, 2, 70, 90, 16)
    ramp = torch.linspace(-40, 40, 90)[:, None]
    for factor in (ramp, -ramp, 300 * torch.ones(90, 1)):
        near = ({"rtol": 1e-3, "atol": 1e-3}, {"rtol": 1e-2, "atol": 5e-1})
        compare([query, key * factor, value], near=near)


@pytest.mark.parametrize("queries", [5, 40])
def test_nan_and_infinity(queries):
    query, key, value = inputs(1, 2, queries, 50, 16)
    bad = query.clone()
    bad[0, 0, 2, 3], bad[0, 1, 4, 0], bad[0, 1, 1, 5] = NAN, INF, -INF
    compare([bad, key, value], gradients=False)
    bad = key.clone()
    bad[0, 0, 49, 3] = NAN
    compare([query, bad, value], gradients=False)
    bad = value.clone()
    bad[0, 0, 3, 3], bad[0, 1, 48, 0] = NAN, INF
    compare([query, key, bad], gradients=False)
    mask = torch.randn(queries, 50)
    mask[1, 3], mask[2, 49] = NAN, INF
    compare([query, key, value], mask, gradients=False)


def test_causal_alignments():
    for queries, keys in ((12, 40), (40, 12), (33, 33)):
        tensors = inputs(2, 2, queries, keys, 16)
        for bias in (causal_upper_left(queries, keys), causal_lower_right(queries, keys)):
            with sdpa_kernel(SDPBackend.MATH):
                expected = F.scaled_dot_product_attention(
                    *(t.double() for t in tensors), attn_mask=bias._materialize()
                )
            with sdpa_kernel(SDPBackend.OVERRIDEABLE):
                actual = F.scaled_dot_product_attention(*to_device(tensors), attn_mask=bias)
            torch.testing.assert_close(actual.cpu().double(), expected, rtol=1e-4, atol=1e-5)


def test_longer():
    compare(inputs(1, 2, 700, 900, 64))
    compare(inputs(1, 2, 700, 900, 64, dtype=torch.float16), is_causal=True)


def test_log_sum_exp():
    query, key, value = inputs(2, 2, 40, 30, 16)
    scores = (query.double() @ key.double().mT) / 4
    result = torch.ops.aten._scaled_dot_product_fused_attention_overrideable(
        *to_device([query, key, value])
    )
    torch.testing.assert_close(result[1].cpu().double(), scores.logsumexp(-1), rtol=1e-5, atol=1e-5)
    assert result[4:6] == (40, 30)
    few = torch.ops.aten._scaled_dot_product_fused_attention_overrideable(
        *to_device([query[:, :, :3], key, value])
    )
    torch.testing.assert_close(few[1].cpu().double(), scores.logsumexp(-1)[..., :3])


@pytest.mark.parametrize("shape", [(2, 4, 30, 33), (1, 2, 3, 700)])
def test_same_bits_every_time(shape):
    tensors = to_device([t.requires_grad_() for t in inputs(*shape, 24)])
    runs = []
    for _ in range(3):
        with sdpa_kernel(SDPBackend.OVERRIDEABLE):
            out = F.scaled_dot_product_attention(*tensors)
        runs.append([out, *torch.autograd.grad(out.square().sum(), tensors)])
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(run, runs[0], strict=True))


@pytest.fixture
def force():
    """Sets the row of strategies.cpp that a pass takes."""
    yield _C._force_attention_strategy
    _C._force_attention_strategy("")


@pytest.mark.parametrize(
    ("queries", "dtype", "rows"),
    [
        (3, torch.float32, ()),
        (40, torch.float32, ()),
        (3, torch.float16, ()),
        (3, torch.float16, ("stream",)),
        (40, torch.float16, ()),
        (75, torch.float32, ("forward_blocks_32", "backward_blocks_32")),
        (40, torch.float32, ("forward_blocks_32", "backward_software")),
        (75, torch.float32, ("forward_blocks_128", "backward_blocks_128")),
        (75, torch.float32, ("forward_blocks_32", "backward_blocks_64_stored")),
        (75, torch.float16, ("forward_matrix_large",)),
        (75, torch.float16, ("forward_matrix", "backward_matrix")),
        (300, torch.float16, ("forward_matrix", "backward_matrix_stored")),
    ],
)
def test_dropout(queries, dtype, rows, force):
    """With the identity for values, the result shows which weights were dropped. Another call with
    the same seed drops the same ones, and so does its backward pass, also if it takes another
    kernel."""
    for row in rows:
        if "matrix" in row:
            needs_matrices()
        force(row)
    p = 0.3
    query, key, value = inputs(2, 4, queries, 96, 16, key_heads=2, dtype=dtype)
    ones = torch.eye(96, dtype=dtype).expand(2, 2, 96, 96)
    options = {"dropout_p": p, "enable_gqa": True}

    def run(*tensors):
        torch.manual_seed(5)
        with sdpa_kernel(SDPBackend.OVERRIDEABLE):
            return F.scaled_dot_product_attention(*tensors, **options)

    kept = run(*to_device([query, key, ones])).cpu() != 0
    assert abs(kept.double().mean() - (1 - p)) < 0.05
    assert not torch.equal(kept[:, 0], kept[:, 1]) and not torch.equal(kept[0], kept[1])
    leaves = to_device([t.requires_grad_() for t in (query, key, value)])
    exact = [t.detach().double().requires_grad_() for t in (query, key, value)]
    q, k, v = exact[0], *(t.repeat_interleave(2, 1) for t in exact[1:])
    expected = ((q @ k.mT / 4).softmax(-1) * kept / (1 - p)) @ v
    weights = torch.randn(expected.shape).to(dtype)
    of_result, of_gradients = NEAR[dtype]
    out = run(*leaves)
    torch.testing.assert_close(out.detach().cpu().double(), expected.detach(), **of_result)
    actual = torch.autograd.grad(out, leaves, weights.to(DEVICE))
    for one, other in zip(
        actual, torch.autograd.grad(expected, exact, weights.double()), strict=True
    ):
        torch.testing.assert_close(one.cpu().double(), other, **of_gradients)


# Rows of strategies.cpp that store weights and gradients of scores.
STORED = [
    ("backward_matrix_stored", torch.float16),
    ("backward_blocks_64_stored", torch.float32),
    ("backward_blocks_128_stored", torch.float32),
]


@pytest.mark.sampled(
    "backward_matrix_stored-dtype0-24-104-False",
    "backward_matrix_stored-dtype1-64-64-True",
    "backward_matrix_stored-dtype2-80-16-False",
    "backward_matrix_stored-dtype3-128-128-True",
    "backward_blocks_64_stored-dtype4-24-60-False",
    "backward_blocks_64_stored-dtype5-64-64-True",
    "backward_blocks_128_stored-dtype6-80-128-True",
)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("row", "dtype", "dims", "value_dims"),
    [
        ("backward_matrix_stored", torch.float16, 24, 104),
        ("backward_matrix_stored", torch.float16, 64, 64),
        ("backward_matrix_stored", torch.float16, 80, 16),
        ("backward_matrix_stored", torch.float16, 128, 128),
        ("backward_blocks_64_stored", torch.float32, 24, 60),
        ("backward_blocks_64_stored", torch.float32, 64, 64),
        ("backward_blocks_128_stored", torch.float32, 80, 128),
    ],
)
def test_stored_scores(row, dtype, dims, value_dims, causal, force):
    """Gradients of keys and values as products of what the kernel of the queries stored."""
    if "matrix" in row:
        needs_matrices()
    force(row)
    near = (NEAR[dtype][0], {"rtol": 1e-2, "atol": 1e-2}) if dtype == torch.float16 else None
    for queries, keys in ((1, 5), (40, 7), (130, 16), (131, 300), (300, 131), (385, 385)):
        tensors = inputs(2, 4, queries, keys, dims, value_dims=value_dims, key_heads=2, dtype=dtype)
        compare(tensors, enable_gqa=True, is_causal=causal, near=near)
        if not causal:
            mask = torch.rand(2, 1, queries, keys) > 0.3
            mask[:, :, ::7] = False  # rows that see nothing
            compare(tensors, mask, enable_gqa=True, near=near)


@pytest.mark.sampled(
    "backward_matrix_stored-dtype0-False",
    "backward_matrix_stored-dtype0-True",
    "backward_blocks_64_stored-dtype1-False",
    "backward_blocks_128_stored-dtype2-True",
)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("row", "dtype"), STORED)
def test_stored_scores_of_some_heads_after_the_others(row, dtype, causal, force):
    if "matrix" in row:
        needs_matrices()
    force(row)
    tensors = to_device(inputs(2, 6, 300, 260, 64, key_heads=3, dtype=dtype))
    leaves = [t.requires_grad_() for t in tensors]

    with sdpa_kernel(SDPBackend.OVERRIDEABLE):
        out = F.scaled_dot_product_attention(*leaves, enable_gqa=True, is_causal=causal)
    weights = torch.randn_like(out)

    def gradients():
        before = torch.webgpu.stats()["dispatches"]
        found = torch.autograd.grad(out, leaves, weights, retain_graph=True)
        return found, torch.webgpu.stats()["dispatches"] - before

    whole, dispatches = gradients()
    # A head takes 0.3 to 1 MiB: a binding has room for some of the twelve.
    with target(limits={"max_storage_binding_size": 3 << 20, "workgroups_to_fill": 8}):
        parts, more = gradients()
    assert more > dispatches + 1
    assert all(torch.equal(a, b) for a, b in zip(whole, parts, strict=True))


@pytest.mark.parametrize("dims", [64, 80, 128])
def test_walks_apart(dims, force):
    """In large calls on matrices, a second dispatch repeats the tiles of queries that failed."""
    needs_matrices()
    force("forward_matrix_large")
    query, key, value = inputs(1, 2, 300, 150, dims, dtype=torch.float16)
    for options in ({}, {"is_causal": True}, {"scale": -0.7}, {"scale": 0.0}):
        compare([query, key, value], gradients=False, **options)
    # The gradients show that the log-sum-exp is right. They are sums over many queries.
    near = (NEAR[torch.float16][0], {"rtol": 1e-2, "atol": 2e-2})
    for options in ({}, {"is_causal": True}):
        compare([query, key, value], near=near, **options)
    # The largest scores of the second tile of queries come last. The first does not overflow.
    growing = query.clone()
    growing[:, :, 128:256] *= 40
    later = (key.float() * torch.linspace(0.1, 3, 150)[:, None]).half()
    for options in ({}, {"is_causal": True}):
        compare([growing, later, value], gradients=False, **options)
    equal = torch.full_like(query, 30000.0)
    compare([equal, equal[:, :, :150], value], gradients=False)
    mask = torch.zeros(300, 150, dtype=torch.float16)
    mask[:, :20], mask[3], mask[200, 20:] = -INF, -INF, torch.finfo(torch.float16).min
    compare([query, key, value], mask, gradients=False)
    compare([query, key, value], mask == 0, gradients=False)
    lowest = torch.where(mask == 0, 0.0, torch.finfo(torch.float32).min)
    compare([query, key, value], lowest, gradients=False)
    for of, at, number in (
        (0, (0, 0, 2, 3), NAN),
        (1, (0, 1, 149, 5), INF),
        (2, (0, 0, 149, 7), INF),
    ):
        bad = [query.clone(), key.clone(), value.clone()]
        bad[of][at] = number
        compare(bad, gradients=False)


def test_dropout_draws_anew_and_may_drop_all():
    tensors = to_device(inputs(1, 2, 20, 30, 16))
    with sdpa_kernel(SDPBackend.OVERRIDEABLE):
        first = F.scaled_dot_product_attention(*tensors, dropout_p=0.5)
        second = F.scaled_dot_product_attention(*tensors, dropout_p=0.5)
        nothing = F.scaled_dot_product_attention(*tensors, dropout_p=1.0)
    assert not torch.equal(first, second)
    assert nothing.eq(0).all()


# ---- The kernels in blocks, which software adapters do not take


BLOCKS = [[name for name in names if "blocks" in name] for names in _C._attention_strategies()]
ROWS = [1, 31, 64, 67, 130]
COLUMNS = [1, 37, 64, 65, 129]


def takes(row, dims):
    """A row with 64 in its name takes heads of up to 64 dimensions."""
    return dims <= 64 or "64" not in row


@pytest.mark.parametrize(
    ("row", "dims"), [(row, n) for row in BLOCKS[0] for n in (32, 64, 128) if takes(row, n)]
)
def test_blocks(row, dims, force):
    force(row)
    for queries, keys in zip(ROWS, COLUMNS, strict=True):
        compare(inputs(1, 2, queries, keys, dims), gradients=False)
    for query_dims, value_dims in ((dims - 4, dims - 28), (dims - 28, dims)):
        compare(
            inputs(2, 4, 33, 70, query_dims, value_dims=value_dims, key_heads=2),
            gradients=False,
            enable_gqa=True,
        )
    layout = [torch.randn(2, n, 3, 3 * dims)[..., dims : 2 * dims] for n in (70, 33, 33)]
    compare([t.transpose(1, 2) for t in layout], gradients=False)


@pytest.mark.parametrize("row", BLOCKS[0])
def test_causal_blocks(row, force):
    force(row)
    for queries, keys in (*zip(ROWS, COLUMNS, strict=True), (65, 31), (200, 200)):
        compare(inputs(1, 2, queries, keys, 64), gradients=False, is_causal=True)


@pytest.mark.parametrize("row", BLOCKS[0])
def test_masks_of_blocks(row, force):
    """Rows that see nothing at first, or at all, and values beyond what differences can hold."""
    force(row)
    tensors = inputs(2, 2, 70, 90, 16)
    for shape in MASKS:
        sizes = [{30: 70, 45: 90, 3: 2}.get(n, n) for n in shape]
        compare(tensors, torch.randn(sizes), gradients=False)
    mask = torch.rand(70, 90) > 0.3
    mask[::3], mask[1::3, :80] = False, False
    compare(tensors, mask, gradients=False)
    mask = torch.zeros(70, 90)
    mask[:, :70] = mask[3] = torch.finfo(torch.float32).min
    mask[5, 3], mask[6, 89] = NAN, INF
    compare(tensors, mask, gradients=False)


@pytest.mark.parametrize("row", BLOCKS[0])
def test_numbers_of_blocks(row, force):
    force(row)
    query, key, value = inputs(1, 2, 70, 90, 16)
    for scale in (0.0, -0.7):
        compare([query, key, value], gradients=False, scale=scale)
    near = ({"rtol": 1e-3, "atol": 1e-3}, {})
    for factor in (torch.linspace(-40, 40, 90)[:, None], 300 * torch.ones(90, 1)):
        compare([query, key * factor, value], gradients=False, near=near)
    bad = [query.clone(), key.clone(), value.clone()]
    bad[0][0, 0, 2, 3], bad[0][0, 1, 4, 0], bad[0][0, 1, 1, 5] = NAN, INF, -INF
    compare([bad[0], key, value], gradients=False)
    bad[1][0, 0, 89, 3] = NAN
    compare([query, bad[1], value], gradients=False)
    bad[2][0, 0, 3, 3], bad[2][0, 1, 88, 0] = NAN, INF
    compare([query, key, bad[2]], gradients=False)
    result = torch.ops.aten._scaled_dot_product_fused_attention_overrideable(
        *to_device([query, key, value])
    )
    scores = (query.double() @ key.double().mT) / 4
    torch.testing.assert_close(result[1].cpu().double(), scores.logsumexp(-1), rtol=1e-5, atol=1e-5)


def test_layouts_of_blocks(force):
    force(BLOCKS[0][0])
    for _, layout in layouts():
        compare([layout(n) for n in (21, 33, 33)], gradients=False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_in_blocks(dtype, force):
    force(BLOCKS[0][0])
    for value_dims in (16, 15):
        tensors = inputs(2, 3, 33, 70, 16, value_dims=value_dims, dtype=dtype)
        compare(tensors, gradients=False)


def test_gradients_of_blocks(force):
    for row in BLOCKS[1]:
        force(row)
        for queries, keys in zip(ROWS, COLUMNS, strict=True):
            compare(inputs(1, 2, queries, keys, 60))


@pytest.mark.sampled(
    "backward_blocks_64_stored-32",
    "backward_blocks_64-32",
    "backward_blocks_128_stored-32",
    "backward_blocks_128-32",
    "backward_blocks_32-128",
)
@pytest.mark.parametrize(
    ("row", "dims"), [(row, n) for row in BLOCKS[1] for n in (32, 128) if takes(row, n)]
)
def test_gradients_of_causal_blocks(row, dims, force):
    force(row)
    for queries, keys in ((70, 90), (65, 31), (130, 130)):
        tensors = inputs(2, 4, queries, keys, dims, value_dims=dims - 4, key_heads=2)
        compare(tensors, is_causal=True, enable_gqa=True)


@pytest.mark.parametrize("row", BLOCKS[1])
def test_gradients_of_layouts_of_blocks(row, force):
    force(row)
    for _, layout in layouts():
        compare([layout(n) for n in (21, 33, 33)])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("row", BLOCKS[1])
@pytest.mark.parametrize("dtype", FLOATS)
def test_gradients_of_masked_blocks(dtype, row, force):
    """Some queries see nothing."""
    force(row)
    tensors = inputs(2, 3, 70, 90, 20, dtype=dtype)
    mask = torch.rand(70, 90) > 0.3
    mask[::3] = False
    compare(tensors, mask)
    compare(tensors, torch.randn(2, 1, 70, 90).to(dtype))


# ---- The kernels of few queries. Software adapters take attention_decode.wgsl only. They need some
# seconds for each form of the other: dtype, rows that share a head of keys, groups of 16 bytes that
# a lane has, and what else a call has.


FEW = ["decode", "stream"]
FEW_KEYS = [1, 15, 16, 17, 1000, 4097]


@pytest.mark.parametrize(
    ("row", "dtype", "dims"),
    [("decode", dtype, dims) for dtype in FLOATS for dims in (64, 80, 96, 128, 256)]
    + [("stream", torch.float16, dims) for dims in (64, 80, 128)]
    + [
        ("stream", torch.bfloat16, 96),
        ("stream", torch.float32, 16),
        ("stream", torch.float32, 36),
    ],
)
def test_dimensions_of_few_queries(row, dtype, dims, force):
    force(row)
    for keys in (17, 1000):
        compare(inputs(1, 2, 1, keys, dims, dtype=dtype), gradients=False)


@pytest.mark.parametrize("group", [1, 2, 4, 7, 16])
@pytest.mark.parametrize("row", FEW)
def test_keys_of_few_queries(row, group, force):
    force(row)
    for keys in FEW_KEYS:
        tensors = inputs(1, 2 * group, 1, keys, 32, key_heads=2, dtype=torch.float16)
        compare(tensors, gradients=False, enable_gqa=True)


@pytest.mark.parametrize("row", FEW)
def test_counts_of_few_queries(row, force):
    force(row)
    for queries in range(1, 9):
        for key_heads in (2, 1):
            tensors = inputs(2, 2, queries, 300, 32, key_heads=key_heads, dtype=torch.float16)
            compare(tensors, gradients=False, enable_gqa=True)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("row", FEW)
def test_masks_of_few_queries(row, dtype, force):
    """Rows that see nothing, at first or at all."""
    force(row)
    for keys in (41, 700):
        tensors = inputs(2, 4, 3, keys, 16, key_heads=2, dtype=dtype)
        mask = torch.rand(4, 3, keys) > 0.4
        mask[0, 1], mask[1, 0, : keys - 5], mask[2, 2, 3:] = False, False, False
        compare(tensors, mask, gradients=False, enable_gqa=True)
        compare(tensors, torch.where(mask, 0.5, -INF), gradients=False, enable_gqa=True)
        lowest = torch.zeros(3, keys)
        lowest[:, 10:] = lowest[1] = torch.finfo(torch.float32).min
        compare(tensors, lowest, gradients=False, enable_gqa=True)


@pytest.mark.parametrize("row", FEW)
def test_causal_few_queries(row, force):
    force(row)
    for queries, keys in ((1, 5), (3, 2), (8, 8), (7, 500)):
        tensors = inputs(1, 2, queries, keys, 32, dtype=torch.float16)
        compare(tensors, gradients=False, is_causal=True)


@pytest.mark.parametrize("value_dims", [8, 16, 32])
@pytest.mark.parametrize("row", FEW)
def test_value_dimensions_of_few_queries(row, value_dims, force):
    force(row)
    for dims in (8, 24):
        tensors = inputs(1, 2, 1, 70, dims, value_dims=value_dims, dtype=torch.float16)
        compare(tensors, gradients=False)


@pytest.mark.parametrize("row", FEW)
def test_layouts_of_few_queries(row, force):
    """Heads beside each other, and the filled part of a cache."""
    force(row)
    heads = [torch.randn(2, n, 4, 32).half().transpose(1, 2) for n in (1, 300, 300)]
    compare(heads, gradients=False)
    cache = [torch.randn(3, 4, 512, 32).half()[1:, :, :n] for n in (1, 270, 270)]
    compare(cache, gradients=False)
    expanded = [heads[0], *(t[:1].expand(2, 4, 300, 32) for t in heads[1:])]
    compare(expanded, gradients=False)


@pytest.mark.parametrize("row", FEW)
def test_numbers_of_few_queries(row, force):
    """NaN and infinity stay in the rows that see them, large scores do not overflow."""
    force(row)
    query, key, value = inputs(1, 2, 1, 50, 24, dtype=torch.float16)
    bad = key.clone()
    bad[0, 0, 49, 3], bad[0, 1, 20, 0] = NAN, INF
    compare([query, bad, value], gradients=False)
    bad = value.clone()
    bad[0, 0, 49, 3], bad[0, 1, 49, 0], bad[0, 1, 3, 1] = NAN, INF, -INF
    compare([query, key, bad], gradients=False)
    bad = query.clone()
    bad[0, 0, 0, 3] = NAN
    compare([bad, key, value], gradients=False)
    ramp = torch.linspace(-40, 40, 50)[:, None]
    for factor in (ramp, -ramp, torch.full((50, 1), 300.0)):
        near = ({"rtol": 4e-3, "atol": 4e-3}, {})
        compare([query, (key * factor).half(), value], gradients=False, near=near)
    result = torch.ops.aten._scaled_dot_product_fused_attention_overrideable(
        *to_device([query, key, value])
    )
    scores = (query.double() @ key.double().mT) / math.sqrt(24)
    torch.testing.assert_close(result[1].cpu().double(), scores.logsumexp(-1), rtol=1e-5, atol=1e-5)


def test_rows_that_are_no_whole_groups(force):
    force("stream")
    q, k, v = to_device(inputs(1, 2, 1, 20, 20, dtype=torch.float16))
    with (
        sdpa_kernel(SDPBackend.OVERRIDEABLE),
        pytest.raises(NotImplementedError, match="no kernel"),
    ):
        F.scaled_dot_product_attention(q, k, v)


# ---- Which way is taken


def choice(*tensors, **options):
    return torch._fused_sdp_choice(*tensors, **options)


def test_choice():
    q, k, v = to_device(inputs(2, 4, 90, 90, 16))
    fused, math_way = SDPBackend.OVERRIDEABLE.value, SDPBackend.MATH.value
    allowed = [SDPBackend.OVERRIDEABLE, SDPBackend.MATH]
    with sdpa_kernel(SDPBackend.OVERRIDEABLE):
        assert choice(q, k, v) == fused
        assert choice(q, k[:, :2], v[:, :2], enable_gqa=True) == fused
    with sdpa_kernel(SDPBackend.MATH):
        assert choice(q, k, v) == math_way
    with sdpa_kernel(allowed):
        assert choice(q.double(), k.double(), v.double()) == math_way
        assert choice(q[0], k[0], v[0]) == math_way
        assert choice(q, k[:, :2], v[:, :2]) == math_way
        wide = torch.randn(1, 1, 2, 257, device=DEVICE)
        assert choice(wide, wide, wide) == math_way


@pytest.mark.parametrize(
    "backends",
    [
        [SDPBackend.FLASH_ATTENTION],
        [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION],
    ],
)
@pytest.mark.filterwarnings("ignore:Flash, memory efficient")
def test_backends_of_other_devices(backends):
    tensors = to_device(inputs(1, 1, 4, 4, 8))
    with sdpa_kernel(backends), pytest.raises(RuntimeError, match="No available kernel"):
        F.scaled_dot_product_attention(*tensors)
    with sdpa_kernel([*backends, SDPBackend.MATH]):
        F.scaled_dot_product_attention(*tensors)


@pytest.mark.filterwarnings("ignore:Overrideable attention")
def test_what_the_kernels_do_not_take():
    tensors = to_device([t.double() for t in inputs(1, 1, 4, 4, 8)])
    with (
        sdpa_kernel(SDPBackend.OVERRIDEABLE),
        pytest.raises(RuntimeError, match="No available kernel"),
    ):
        F.scaled_dot_product_attention(*tensors)


def test_errors():
    q, k, v = to_device(inputs(1, 2, 4, 4, 8))
    op = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    with pytest.raises(NotImplementedError, match="four dimensions"):
        op(q[0], k[0], v[0])
    with pytest.raises(NotImplementedError, match="head dimension differ"):
        op(q, k[..., :4], v)
    with pytest.raises(NotImplementedError, match="all float32"):
        op(q, k.half(), v)
    with pytest.raises(NotImplementedError, match="mask"):
        op(q, k, v, torch.zeros(3, 4, device=DEVICE))
    out, lse, *_, seed, offset, _ = op(q, k, v)
    backward = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward
    wanted = [True, True, True, False]
    for g, o, rows in (
        (out[:, :, :2], out, lse),
        (out, out[..., :4], lse),
        (out, out, lse[..., :2]),
    ):
        with pytest.raises(RuntimeError, match="shape"):
            backward(g, q, k, v, None, wanted, o, rows, None, None, 4, 4, 0.0, False, seed, offset)
    for arguments in ((q, k.half(), v), (q, k[..., :4], v), (q[0, 0, 0], k, v)):
        host = [t.cpu() for t in arguments]
        with pytest.raises(RuntimeError):
            F.scaled_dot_product_attention(*host)
        with pytest.raises(RuntimeError):
            F.scaled_dot_product_attention(*arguments)
    with pytest.raises(RuntimeError, match="is_causal"):
        F.scaled_dot_product_attention(q, k, v, torch.zeros(4, 4, device=DEVICE), is_causal=True)
    torch.testing.assert_close((q + 1).cpu(), q.cpu() + 1)


# ---- Cost


def test_dispatches():
    tensors = to_device([t.requires_grad_() for t in inputs(2, 4, 90, 90, 16)])
    with sdpa_kernel(SDPBackend.OVERRIDEABLE):
        before = torch.webgpu.stats()["dispatches"]
        out = F.scaled_dot_product_attention(*tensors)
        assert torch.webgpu.stats()["dispatches"] == before + 1
        weights = torch.ones_like(out)
        before = torch.webgpu.stats()["dispatches"]
        torch.autograd.grad(out, tensors, weights)
        assert torch.webgpu.stats()["dispatches"] == before + 3


def test_memory_is_linear_in_length():
    peaks = []
    for length in (256, 512):
        gc.collect()  # what other tests left would be freed in between
        tensors = to_device([t.requires_grad_() for t in inputs(1, 2, length, length, 16)])
        torch.webgpu.synchronize()
        torch.webgpu.reset_peak_memory_stats()
        before = torch.webgpu.memory_allocated()
        with sdpa_kernel(SDPBackend.OVERRIDEABLE):
            F.scaled_dot_product_attention(*tensors).sum().backward()
        peaks.append(torch.webgpu.max_memory_allocated() - before)
        assert peaks[-1] < 12 * tensors[0].nbytes  # the scores alone would take length / 16 times
    assert peaks[1] <= 2.2 * peaks[0]


@pytest.mark.parametrize("mask", [None, (3, 4, 33, 40), (33, 40)])
def test_tensors_larger_than_a_binding(mask):
    tensors = inputs(3, 4, 33, 40, 16, key_heads=2)
    bias = None if mask is None else torch.randn(mask, requires_grad=True)
    with target(limits={"max_storage_binding_size": 8192}):
        compare(tensors, bias, enable_gqa=True)
    with target(limits={"max_elements": 3000}):
        compare(tensors, bias, enable_gqa=True)


def test_more_workgroups_than_a_dimension_holds():
    with target(limits={"max_workgroups_per_dimension": 11}):
        compare(inputs(3, 4, 130, 40, 16))
        compare(inputs(3, 4, 3, 40, 16))


@pytest.mark.parametrize("dims", [96, 200])
def test_tiles_of_other_devices(dims):
    tensors = inputs(1, 2, 70, 90, dims)
    with target("browser"):  # which has 16 KiB of workgroup memory
        compare(tensors, gradients=False)
        compare([tensors[0][:, :, :4], *tensors[1:]], gradients=False)


# ---- The world around


def test_module():
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    x = torch.randn(2, 19, 32)
    expected = module(x, x, x, need_weights=False)[0]
    actual = module.to(DEVICE)(*[x.to(DEVICE)] * 3, need_weights=False)[0]
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_with_the_tiles_of_gpus(causal):
    with target("browser"):
        compare(inputs(1, 4, 70, 75, 64, key_heads=2), is_causal=causal, enable_gqa=True)


def test_gpus_take_the_kernels():
    q, k, v = to_device(inputs(1, 2, 9, 9, 16))
    with target("browser"), sdpa_kernel([SDPBackend.OVERRIDEABLE, SDPBackend.MATH]):
        assert choice(q, k, v) == SDPBackend.OVERRIDEABLE.value


def test_transforms_with_the_choice_of_gpus():
    """vmap and forward-mode differentiation go to the composition."""
    q, k, v = inputs(6, 2, 9, 9, 16)
    expected = F.scaled_dot_product_attention(q, k, v)
    with sdpa_kernel(SDPBackend.MATH):
        _, expected_tangent = torch.func.jvp(
            lambda q: F.scaled_dot_product_attention(q, k, v), (q,), (k,)
        )
    grad = torch.func.grad(lambda q, k, v: F.scaled_dot_product_attention(q, k, v).square().sum())
    fives = [t.unflatten(0, (3, 2)) for t in (q, k, v)]
    expected_gradients = torch.vmap(grad)(*fives)
    q, k, v, fives = to_device(q), to_device(k), to_device(v), to_device(fives)
    with target("browser"):
        actual = torch.vmap(F.scaled_dot_product_attention)(*fives).flatten(0, 1)
        _, tangent = torch.func.jvp(lambda q: F.scaled_dot_product_attention(q, k, v), (q,), (k,))
        gradients = torch.vmap(grad)(*fives)
    for one, other in (
        (actual, expected),
        (tangent, expected_tangent),
        (gradients, expected_gradients),
    ):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-5)


def test_three_dimensions_and_vmap():
    tensors = inputs(3, 4, 20, 20, 16)
    expected = F.scaled_dot_product_attention(*tensors)
    for dims in itertools.product((0, 1), repeat=1):
        actual = torch.vmap(F.scaled_dot_product_attention, in_dims=dims[0], out_dims=dims[0])(
            *to_device(tensors)
        )
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)
