"""The inference path of nn.MultiheadAttention and nn.TransformerEncoder; weight norm."""

import copy

import pytest
import torch
from common import DEVICE, assert_same, check, check_error, check_gradients, to_device
from torch import nn

SOURCE_MASK = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
PADDING_MASK = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]], dtype=torch.bool)


def run_both(module, *args, **kwargs):
    """Results of an evaluated module on the device and on the CPU."""
    module = module.eval()
    moved = {name: to_device(value) for name, value in kwargs.items()}
    with torch.no_grad():
        expected = module(*args, **kwargs)
        actual = copy.deepcopy(module).to(DEVICE)(*to_device(args), **moved)
    return actual, expected


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize(
    "masks",
    [
        {},
        {"src_mask": SOURCE_MASK},
        {"src_key_padding_mask": PADDING_MASK},
        {"src_mask": SOURCE_MASK, "src_key_padding_mask": PADDING_MASK},
    ],
    ids=lambda masks: "+".join(masks) or "none",
)
def test_encoder_layer(norm_first, masks):
    layer = nn.TransformerEncoderLayer(
        16, 4, 32, batch_first=True, norm_first=norm_first, activation="gelu"
    )
    assert_same(*run_both(layer, torch.randn(2, 5, 16), **masks), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("masks", [{}, {"src_key_padding_mask": PADDING_MASK}])
def test_encoder(masks):
    # A padding mask makes it run on nested tensors; what is padded comes back as zeros.
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2)
    actual, expected = run_both(encoder, torch.randn(2, 5, 16), **masks)
    assert_same(actual, expected, atol=1e-5, rtol=1e-5)
    if masks:
        assert actual[0, 3:].count_nonzero().item() == 0


@pytest.mark.parametrize("kind", [torch.bool, torch.float32], ids=str)
def test_rows_that_are_masked_altogether(kind):
    """NaN in the fast path, zeros in scaled_dot_product_attention, as on the CPU."""
    padding = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 0, 1, 1]], dtype=torch.bool)
    source = torch.zeros(5, 5, dtype=torch.bool)
    source[1] = True
    if kind == torch.float32:
        padding = torch.zeros(2, 5).masked_fill(padding, float("-inf"))
        source = torch.zeros(5, 5).masked_fill(source, float("-inf"))
    x = torch.randn(2, 5, 16)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    for masks in ({"src_key_padding_mask": padding}, {"src_mask": source}):
        assert_same(*run_both(layer, x, **masks), atol=1e-5, rtol=1e-5)
    attention = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    moved = copy.deepcopy(attention).to(DEVICE)
    for masks in ({"key_padding_mask": padding}, {"attn_mask": source}):
        moved_masks = {name: mask.to(DEVICE) for name, mask in masks.items()}
        y = x.to(DEVICE)
        with torch.no_grad():
            expected, expected_weights = attention(x, x, x, **masks)
            actual, actual_weights = moved(y, y, y, **moved_masks)
        assert_same(actual, expected, atol=1e-5, rtol=1e-5)
        assert_same(actual_weights, expected_weights, atol=1e-5, rtol=1e-5)


def test_mask_with_gaps():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 1)
    mask = torch.tensor([[0, 1, 0, 1, 1], [0, 0, 0, 0, 0]], dtype=torch.bool)
    assert_same(
        *run_both(encoder, torch.randn(2, 5, 16), src_key_padding_mask=mask), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
def test_attention(average, need_weights):
    attention = nn.MultiheadAttention(12, 3, batch_first=True)
    x = torch.randn(2, 5, 12)
    (actual, actual_weights), (expected, expected_weights) = run_both(
        attention, x, x, x, need_weights=need_weights, average_attn_weights=average
    )
    assert_same(actual, expected, atol=1e-5, rtol=1e-5)
    if need_weights:
        assert_same(actual_weights, expected_weights, atol=1e-5, rtol=1e-5)
    else:
        assert actual_weights is None


def test_attention_of_wrong_shapes():
    def attention(q, k):
        weight, bias = q.new_zeros(36, 12), q.new_zeros(36)
        return torch._native_multi_head_attention(
            q, k, k, 12, 3, weight, bias, weight[:12], bias[:12]
        )

    check_error(attention, torch.randn(2, 5, 12), torch.randn(2, 4, 12))
    check_error(attention, torch.randn(2, 5, 8), torch.randn(2, 5, 8))


@pytest.mark.parametrize("mask_type", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_masked_softmax(mask_type, dtype):
    scores = torch.randn(2, 3, 5, 5).to(dtype)
    mask = {0: SOURCE_MASK, 1: PADDING_MASK, 2: SOURCE_MASK.expand(2, 3, 5, 5)}[mask_type]
    # The CPU rounds every step to halves.
    tolerances = {"atol": 1e-3, "rtol": 3e-3} if dtype == torch.float16 else {}
    check(lambda s, m: torch._masked_softmax(s, m, -1, mask_type), scores, mask, **tolerances)


def test_masked_softmax_gradient():
    scores = torch.randn(2, 3, 5, 5, requires_grad=True)
    mask = SOURCE_MASK.expand(2, 3, 5, 5)
    check_gradients(lambda s, m: torch._masked_softmax(s, m, -1, 2), scores, mask)
    # A row of which nothing is left.
    check(
        lambda s, m: torch._masked_softmax(s, m, -1, 2), scores.detach(), mask.logical_or(mask.mT)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("shape", "dim"), [((4, 6), 0), ((4, 6), 1), ((3, 2, 5), 0), ((7,), 0)])
def test_weight_norm(shape, dim, dtype):
    v = torch.randn(shape).to(dtype).requires_grad_()
    sizes = [1] * len(shape)
    sizes[dim] = shape[dim]
    g = torch.randn(sizes).to(dtype).requires_grad_()
    tolerances = {"atol": 2e-2, "rtol": 2e-2} if dtype == torch.bfloat16 else {}
    check_gradients(lambda v, g: torch._weight_norm(v, g, dim), v, g, **tolerances)


def test_weight_norm_in_a_module():
    module = nn.utils.parametrizations.weight_norm(nn.Linear(6, 4))
    assert_same(*run_both(module, torch.randn(3, 6)), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("average", [False, True])
def test_attention_of_nested_tensors(average):
    attention = nn.MultiheadAttention(12, 4, batch_first=True).eval().to(DEVICE)
    x = torch.randn(2, 5, 12, device=DEVICE)
    mask = PADDING_MASK.to(DEVICE)
    nested = torch._nested_tensor_from_mask(x, mask.logical_not())
    options = {"need_weights": True, "average_attn_weights": average}
    with torch.no_grad():
        actual, weights = attention(nested, nested, nested, **options)
        expected, expected_weights = attention(x, x, x, key_padding_mask=mask, **options)
    expected = expected.masked_fill(mask.unsqueeze(-1), 0)
    assert_same(actual.to_padded_tensor(0, x.shape), expected.cpu(), atol=1e-5, rtol=1e-5)
    assert_same(weights[1], expected_weights[1].cpu(), atol=1e-5, rtol=1e-5)


def test_empty_batch_with_a_padding_mask():
    check_error(torch._nested_tensor_from_mask, torch.empty(0, 7, 16), torch.ones(0, 7).bool())
