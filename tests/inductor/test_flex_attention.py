"""torch.nn.attention.flex_attention, eager and compiled, against eager mode on the CPU."""

import pytest
import torch
from torch.nn.attention.flex_attention import (
    AuxRequest,
    BlockMask,
    create_block_mask,
    flex_attention,
    noop_mask,
)
from torch.testing import assert_close

import torch_webgpu
from torch_webgpu.inductor import flex

DEVICE = "webgpu"
BATCH, HEADS, QUERIES, KEYS, DIMS = 2, 4, 96, 80, 16
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


def causal(b, h, q, k):
    return q >= k


def relative(score, b, h, q, k):
    return score + (q - k) * 0.1


def soft_cap(score, b, h, q, k):
    return torch.tanh(score / 2) * 2


def bands(tensors):
    slopes = tensors["slopes"]
    return lambda score, b, h, q, k: score + slopes[h] * (k - q).abs()


def table(tensors):
    bias = tensors["bias"]
    return lambda score, b, h, q, k: score * 2 + bias[h, q, k]


def documents(tensors):
    ids, keys = tensors["ids"], tensors["key_ids"]
    return lambda b, h, q, k: (ids[b, q] == keys[b, k]) & (q >= k - 20)


CASES = {
    "plain": (None, None),
    "relative": (lambda _: relative, None),
    "soft cap, causal": (lambda _: soft_cap, lambda _: causal),
    "slopes, documents": (bands, documents),
    "table": (table, None),
}


def tensors(device):
    torch.manual_seed(1)
    made = {
        "slopes": torch.rand(HEADS) - 0.5,
        "bias": torch.randn(HEADS, QUERIES, KEYS),
        "ids": torch.randint(0, 3, (BATCH, QUERIES)),
        "key_ids": torch.randint(0, 3, (BATCH, KEYS)),
    }
    return {name: x.to(device) for name, x in made.items()}


def attend(case, device, dtype, call, shared=1, needs=("slopes", "bias")):
    """The result, its logarithms, and the gradients of what is wanted."""
    torch.manual_seed(0)
    given = [
        torch.randn(BATCH, HEADS // group, length, DIMS, dtype=torch.float32)
        .to(dtype)
        .to(device)
        .requires_grad_()
        for group, length in ((1, QUERIES), (shared, KEYS), (shared, KEYS))
    ]
    captured = tensors(device)
    for name in needs:
        captured[name] = captured[name].requires_grad_()
    make_score, make_mask = CASES[case]
    mask = make_mask and create_block_mask(
        make_mask(captured), BATCH, None, QUERIES, KEYS, device=device, BLOCK_SIZE=32
    )
    out, aux = call(
        *given,
        score_mod=make_score and make_score(captured),
        block_mask=mask,
        enable_gqa=shared > 1,
        return_aux=AuxRequest(lse=True),
    )
    logarithms = aux.lse
    seen = torch.where(logarithms.isinf(), 0, logarithms)
    (out.float().square().sum() + seen.sum()).backward()
    gradients = [x.grad for x in (*given, *(captured[name] for name in needs))]
    return [out, logarithms, *gradients]


# The CPU of PyTorch has no gradients of flex_attention, but its eager formula has.
def reference(*args, **kwargs):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *_: None)
        return flex_attention(*args, **kwargs)


@pytest.fixture
def kernels(monkeypatch):
    """Compiled calls take the kernels, as on a GPU. The result counts them."""
    taken = []
    original = flex._with_kernels

    def with_kernels(*args):
        taken.append(original(*args))
        return taken[-1]

    monkeypatch.setattr(flex, "_prefers_kernels", lambda: True)
    monkeypatch.setattr(flex, "_with_kernels", with_kernels)
    torch._dynamo.reset()
    yield taken
    torch._dynamo.reset()


def compiled(**options):
    return torch.compile(flex_attention, fullgraph=True, **options)


@pytest.mark.sampled(
    "plain-eager",
    "relative-eager",
    "soft cap, causal-eager",
    "slopes, documents-eager",
    "table-eager",
    "table-compiled",
)
@pytest.mark.parametrize(
    ("case", "mode"),
    [
        *((case, "eager") for case in CASES),
        ("slopes, documents", "compiled"),
        ("table", "compiled"),
    ],
)
def test_results_and_gradients(case, mode):
    check(case, flex_attention if mode == "eager" else compiled())


@pytest.mark.sampled("plain-False", "relative-True", "soft cap, causal-False", "table-False")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_results_and_gradients_of_kernels(kernels, case, dynamic):
    check(case, compiled(dynamic=dynamic), needs=())
    assert len(kernels) == 2 and None not in kernels


def test_gradients_of_captured_tensors_need_the_scores(kernels):
    check("table", compiled())
    forward, backward = kernels
    assert forward is not None and backward is None


def check(case, call, **options):
    actual = attend(case, "webgpu", torch.float32, call, **options)
    expected = attend(case, "cpu", torch.float64, reference, **options)
    for one, other in zip(actual, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert one.shape == other.shape
            assert_close(one.cpu().double(), other.double(), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(
    ("dtype", "mode"), [(torch.float16, "compiled"), (torch.bfloat16, "eager")]
)
def test_shared_heads_in_half_precision(dtype, mode):
    call = flex_attention if mode == "eager" else torch.compile(flex_attention, fullgraph=True)
    actual = attend("soft cap, causal", "webgpu", dtype, call, shared=2, needs=())
    expected = attend("soft cap, causal", "cpu", torch.float64, reference, shared=2, needs=())
    assert_close_in_halves(actual, expected, dtype)


def assert_close_in_halves(actual, expected, dtype):
    limit = 8 * torch.finfo(dtype).eps
    assert actual[0].dtype == dtype
    for one, other in zip(actual, expected, strict=True):
        assert_close(one.cpu().double(), other, rtol=limit, atol=limit * other.abs().max().item())


def test_rows_that_see_no_key():
    def odd(b, h, q, k):
        return q % 2 == 1

    q, k, v = (torch.randn(1, 2, 32, 8, device="webgpu", requires_grad=True) for _ in range(3))
    mask = create_block_mask(odd, None, None, 32, 32, device="webgpu", BLOCK_SIZE=32)
    out = torch.compile(flex_attention)(q, k, v, block_mask=mask)
    out.sum().backward()
    assert out[:, :, ::2].eq(0).all() and q.grad[:, :, ::2].eq(0).all()
    assert out[:, :, 1::2].ne(0).any()
    assert all(x.grad.isfinite().all() for x in (q, k, v))


def test_autocast_casts_the_operands():
    q, k, v = (torch.randn(1, 2, 32, 16, device="webgpu") for _ in range(3))
    with torch.autocast("webgpu", dtype=torch.float16):
        out = flex_attention(q, k, v, score_mod=relative)
    assert out.dtype == torch.float16
    assert_close(out.float(), flex_attention(q, k, v, score_mod=relative), rtol=1e-2, atol=1e-2)


def test_captured_tensors_without_gradients():
    shared = [torch.randn(1, 2, 32, 16) for _ in range(3)]
    slopes, factor = torch.tensor([0.5, 2.0]), torch.tensor([1.5])
    results = []
    for call, device in ((torch.compile(flex_attention), DEVICE), (reference, "cpu")):
        given = [x.to(device).requires_grad_() for x in shared]
        a, b = slopes.to(device), factor.to(device).requires_grad_()
        with torch.autocast(device, torch.float16, enabled=device == DEVICE):
            out = call(*given, score_mod=lambda s, _, h, i, j, a=a, b=b: s * b[0] + a[h] * (i - j))
        out.float().square().sum().backward()
        results.append([out, *(x.grad for x in given), b.grad])
    for one, other in zip(*results, strict=True):
        limit = 2e-2 * other.abs().max().item()
        assert_close(one.cpu().float(), other, rtol=2e-2, atol=limit)


def test_blocks_that_the_mask_function_does_not_imply():
    counts = torch.tensor([[[1, 2, 0]]], dtype=torch.int32)
    indices = torch.tensor([[[[2, 0, 1], [0, 2, 1], [0, 1, 2]]]], dtype=torch.int32)
    full_counts = torch.tensor([[[0, 1, 1]]], dtype=torch.int32)
    full_indices = torch.tensor([[[[0, 1, 2], [1, 0, 2], [1, 0, 2]]]], dtype=torch.int32)
    lists = (counts, indices, full_counts, full_indices)

    def odd(b, h, q, k):
        return k % 2 == 1

    q, k, v = (torch.randn(2, 2, 90, 16) for _ in range(3))
    seen = torch.zeros(90, 90, dtype=torch.bool)
    for row in range(3):
        at = slice(32 * row, 32 * row + 32)
        for block in indices[0, 0, row, : counts[0, 0, row]].tolist():
            seen[at, 32 * block + 1 : 32 * block + 32 : 2] = True
        for block in full_indices[0, 0, row, : full_counts[0, 0, row]].tolist():
            seen[at, 32 * block : 32 * block + 32] = True
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, seen)
    mask = BlockMask.from_kv_blocks(
        *(x.to(DEVICE) for x in lists), BLOCK_SIZE=32, mask_mod=odd, seq_lengths=(90, 90)
    )
    out = torch.compile(flex_attention)(*(x.to(DEVICE) for x in (q, k, v)), block_mask=mask)
    assert_close(out.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_lengths_that_vary():
    compiled = torch.compile(flex_attention, dynamic=True, fullgraph=True)
    for length in (32, 45):
        q, k, v = (torch.randn(1, 2, length, 16, device="webgpu") for _ in range(3))
        assert_close(
            compiled(q, k, v, score_mod=relative), flex_attention(q, k, v, score_mod=relative)
        )


def test_a_model_with_the_operator_inside():
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.project = torch.nn.Linear(32, 96)
            self.slopes = torch.nn.Parameter(torch.linspace(0.1, 1, 4))

        def forward(self, x, mask: BlockMask):
            q, k, v = self.project(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
            bias = self.slopes
            score = lambda s, b, h, i, j: s + bias[h] * (j - i)  # noqa: E731
            return flex_attention(q, k, v, score_mod=score, block_mask=mask).sum(1)

    torch.manual_seed(0)
    block = Block().to("webgpu")
    x = torch.randn(2, 64, 32, device="webgpu")
    mask = create_block_mask(causal, None, None, 64, 64, device="webgpu")
    results = []
    for call in (block, torch.compile(block, fullgraph=True)):
        block.zero_grad()
        out = call(x, mask)
        out.square().sum().backward()
        results.append([out, *(p.grad for p in block.parameters())])
    for one, other in zip(*results, strict=True):
        assert_close(one, other, rtol=1e-4, atol=1e-3)


def test_other_devices_are_refused_as_before():
    q = torch.randn(1, 1, 16, 16, device="meta")
    with pytest.raises(ValueError, match="only supported on"):
        flex_attention(q, q, q)
    x = torch.randn(1, 1, 16, 16, requires_grad=True)
    with pytest.raises(NotImplementedError, match="backward on CPU"):
        flex_attention(x, x, x)


def test_a_mask_of_another_device_is_refused():
    q = torch.randn(1, 1, 128, 16, device="webgpu")
    mask = create_block_mask(noop_mask, None, None, 128, 128, device="cpu")
    with pytest.raises(RuntimeError, match="same device"):
        flex_attention(q, q, q, block_mask=mask)


@pytest.mark.sampled("dtype1")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_shared_heads_of_kernels(kernels, dtype):
    actual = attend("soft cap, causal", "webgpu", dtype, compiled(), shared=2, needs=())
    expected = attend("soft cap, causal", "cpu", torch.float64, reference, shared=2, needs=())
    assert_close_in_halves(actual, expected, dtype)
    assert len(kernels) == 2 and None not in kernels


# Blocks that tiles fit in, those that they do not, and a mask whose blocks say more than mask_mod.
@pytest.mark.sampled("128", "size2")
@pytest.mark.parametrize("size", [128, 48, (16, 80)])
def test_blocks_decide_in_kernels(kernels, size):
    rows, columns = size if isinstance(size, tuple) else (size, size)
    shape = 2, 1, -(-200 // rows), -(-230 // columns)
    torch.manual_seed(0)
    state = torch.randint(0, 3, shape)
    counts, indices = lists(state == 1)
    mask = BlockMask.from_kv_blocks(counts, indices, *lists(state == 2), size, causal, (200, 230))
    q, g = torch.randn(2, 2, 200, 40), torch.randn(2, 2, 200, 40)
    k, v = torch.randn(2, 2, 230, 40), torch.randn(2, 2, 230, 40)
    given = [x.to(DEVICE).requires_grad_() for x in (q, k, v)]
    out = compiled()(*given, block_mask=mask)
    out.backward(g.to(DEVICE))
    spread = state.repeat_interleave(rows, 2).repeat_interleave(columns, 3)[..., :200, :230]
    seen = torch.arange(200)[:, None] >= torch.arange(230)
    seen = (spread == 2) | ((spread == 1) & seen)
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    scores = (exact[0] @ exact[1].mT / 40**0.5).masked_fill(~seen, -torch.inf)
    unseen = ~seen.any(-1, keepdim=True)
    expected = scores.masked_fill(unseen, 0).softmax(-1).masked_fill(unseen, 0) @ exact[2]
    expected.backward(g.double())
    assert_close(out.cpu().double(), expected, rtol=1e-4, atol=1e-5)
    for one, other in zip(given, exact, strict=True):
        assert_close(one.grad.cpu().double(), other.grad, rtol=1e-4, atol=1e-4)
    assert len(kernels) == 2 and None not in kernels


def lists(listed):
    """The counts and indices of a block mask, for those that are true."""
    indices = listed.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    return listed.sum(-1).int().to(DEVICE), indices.int().to(DEVICE)


FORWARD = ["forward_32", "forward_blocks_32", "forward_blocks_64", "forward_software"]


@pytest.mark.sampled(
    "forward_32", "forward_blocks_64", "forward_software", "backward_32", "backward_blocks_64"
)
@pytest.mark.parametrize("row", [*FORWARD, "backward_32", "backward_64", "backward_blocks_64"])
def test_each_way_takes_programs(kernels, row):
    """The kernels of a software adapter besides those that a GPU takes."""
    torch_webgpu._C._force_attention_strategy(row)
    try:
        check("slopes, documents", compiled(), needs=())
    finally:
        torch_webgpu._C._force_attention_strategy("")
    assert len(kernels) == 2 and None not in kernels


def test_captured_tensors_of_every_size(kernels):
    def score(score, b, h, q, k):
        return score * halves[h, q] + torch.where(flags[k], bytes_[q], -bytes_[k])

    def mask(b, h, q, k):
        return q + 3 * k >= offset

    halves = (torch.rand(3, 71).half() + 1).to(DEVICE)[1:, 1:]  # starts within a word
    flags = (torch.rand(90) > 0.5).to(DEVICE)[7:]
    bytes_ = torch.randint(-4, 4, (201,), dtype=torch.int8).to(DEVICE)[1::2]
    offset = 40
    q, k, v = (torch.randn(1, 2, n, 16, device=DEVICE) for n in (70, 80, 80))
    blocks = create_block_mask(mask, None, None, 70, 80, device=DEVICE, BLOCK_SIZE=32)
    out = compiled()(q, k, v, score_mod=score, block_mask=blocks)
    expected = flex_attention(q, k, v, score_mod=score, block_mask=blocks)
    assert_close(out, expected, rtol=1e-4, atol=1e-5)
    assert len(kernels) == 1 and None not in kernels


def test_what_kernels_do_not_take(kernels):
    tables = [torch.randn(32, device=DEVICE) for _ in range(4)]

    def score(score, b, h, q, k):
        return score + tables[0][q] + tables[1][k] + tables[2][q] * tables[3][k]

    q, k, v = (torch.randn(1, 2, 32, 16, device=DEVICE) for _ in range(3))
    out = compiled()(q, k, v, score_mod=score)
    assert_close(out, flex_attention(q, k, v, score_mod=score), rtol=1e-4, atol=1e-5)
    few = compiled()(q[:, :, :4], k, v, score_mod=relative)
    assert_close(few, flex_attention(q[:, :, :4], k, v, score_mod=relative), rtol=1e-4, atol=1e-5)
    assert kernels == [None, None]


def operands(batch=1, heads=2, queries=48, keys=50):
    torch.manual_seed(0)
    return [torch.randn(batch, heads, n, 16, device=DEVICE) for n in (queries, keys, keys)]


@pytest.mark.sampled("2147483648")
@pytest.mark.parametrize("limit", [2**31 - 1, 2**31, 2**32, 2**33, -(2**33)])
def test_integers_beyond_32_bits(kernels, limit):
    """Places are int64 in eager mode, and int32 in the kernels."""
    q, k, v = operands()
    number = [limit]
    masks = [lambda b, h, q, k: q - k <= number[0]]  # a constant, from the second value on an input
    # From torch 2.15 on, PyTorch itself refuses an upper bound below those of int32.
    if limit > 0 or torch.__version__ < "2.15":
        masks.append(lambda b, h, q, k: (q - k).clamp(max=limit) >= 3)
    for mask in masks:
        for number[0] in (limit, 5, limit - 1):
            blocks = create_block_mask(mask, None, None, 48, 50, device=DEVICE)
            out = compiled()(q, k, v, block_mask=blocks)
            expected = flex_attention(q, k, v, block_mask=blocks)
            assert_close(out, expected, rtol=1e-4, atol=1e-5)


READS = {
    "view": lambda t, q, k: t.view(-1)[q * 50 + k],
    "squeeze": lambda t, q, k: t.unsqueeze(0).squeeze(0)[q, k],
    "repeat": lambda t, q, k: t.repeat(1, 2)[q, k + 50],
    "tril": lambda t, q, k: t.tril()[q, k],
    "diff": lambda t, q, k: t.diff(dim=1)[q, k % 49],
}


@pytest.mark.sampled("view-True", "repeat-False", "diff-False")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("read", READS)
def test_captured_tensors_that_the_program_rearranges(kernels, read, dynamic):
    table = torch.randn(48, 50, device=DEVICE)

    def score(score, b, h, q, k):
        return score + READS[read](table, q, k)

    q, k, v = operands()
    out = compiled(dynamic=dynamic)(q, k, v, score_mod=score)
    assert_close(out, flex_attention(q, k, v, score_mod=score), rtol=1e-4, atol=1e-5)


@pytest.mark.sampled(2, 1)
@pytest.mark.parametrize("shape", [(2, 1), (1, 2), (4, 2), (3, 4)])
def test_batches_and_heads_start_again_with_those_of_the_mask(kernels, shape):
    q, k, v = operands(4, 4)
    ids = torch.randint(0, 2, (*shape, 50), device=DEVICE)

    def mask(b, h, q, k):
        return ids[b % shape[0], h % shape[1], k] == 1

    blocks = create_block_mask(mask, *shape, 48, 50, device=DEVICE, BLOCK_SIZE=16)
    out = compiled()(q, k, v, block_mask=blocks)
    assert_close(out, flex_attention(q, k, v, block_mask=blocks), rtol=1e-4, atol=1e-5)
    assert kernels and None not in kernels


def test_logarithms_have_gradients_without_a_program(kernels):
    given = [x.requires_grad_() for x in operands()]
    out, aux = compiled()(*given, return_aux=AuxRequest(lse=True))
    (out.sum() * 1e-6 + (aux.lse * 10).sum()).backward()
    exact = [x.detach().cpu().double().requires_grad_() for x in given]
    scores = exact[0] @ exact[1].mT / 4
    assert_close(aux.lse.cpu().double(), scores.logsumexp(-1), rtol=1e-5, atol=1e-5)
    ((scores.softmax(-1) @ exact[2]).sum() * 1e-6 + (scores.logsumexp(-1) * 10).sum()).backward()
    for one, other in zip(given, exact, strict=True):
        assert_close(one.grad.cpu().double(), other.grad, rtol=1e-4, atol=1e-4)
    assert len(kernels) == 2 and None not in kernels


def test_frozen_parameters_are_captured():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = torch.nn.Parameter(torch.randn(50, device=DEVICE))

        def forward(self, q, k, v):
            return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + self.bias[j])

    model, given = Model(), operands()
    with torch.no_grad(), torch._inductor.config.patch(freezing=True):
        actual = torch.compile(model, fullgraph=True)(*given)
        assert_close(actual, model(*given), rtol=1e-4, atol=1e-5)


def test_flash_kernels_are_refused():
    with pytest.raises(Exception, match="flash attention cannot be used"):
        compiled()(*operands(), kernel_options={"BACKEND": "FLASH"})


def test_arguments_that_do_not_fit_are_refused():
    op = torch.ops.torch_webgpu.flex_attention
    q, k, v = (torch.randn(1, 2, 32, 16, device=DEVICE) for _ in range(3))
    blocks = torch.ones(1, 1, 1, 2, dtype=torch.int32, device=DEVICE)
    for captured, numbers, block_mask, size in (
        ([torch.ones(2)], [], None, 16),  # of another device
        ([q] * 4, [], None, 16),
        ([torch.empty(0, device=DEVICE)], [], None, 16),
        ([], [1 << 31], None, 16),
        ([], [1] * 9, None, 16),
        ([], [], blocks, 16),  # covers 16 queries
        ([], [], blocks, 0),
        ([], [], blocks.float(), 32),
    ):
        with pytest.raises(RuntimeError, match="flex_attention"):
            op(q, k, v, captured, numbers, block_mask, size, size, "", "result = q >= k;", 1.0)
    with pytest.raises(NotImplementedError, match="batch, heads"):
        op(q, k[:, :, :8], v, [], [], None, 1, 1, "", "", 1.0)
    backward = torch.ops.torch_webgpu.flex_attention_backward
    lse = torch.zeros(1, 2, 32, device=DEVICE)
    for g, out in ((q, q[:, :, :16]), (q.half(), q), (q, q.half()), (q[..., :8], q)):
        with pytest.raises(RuntimeError, match="another shape, dtype or device"):
            backward(g, None, q, k, v, out, lse, [], [], None, 1, 1, "", "", "", 1.0)
