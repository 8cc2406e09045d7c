"""Attention of sequences of different lengths, against one call for each sequence."""

import pytest
import torch
import torch.nn.functional as F

varlen = pytest.importorskip("torch.nn.attention.varlen")

LENGTHS_Q = (3, 1, 5, 4)
LENGTHS_K = (4, 1, 7, 2)


def begins(lengths):
    return F.pad(torch.tensor(lengths).cumsum(0), (1, 0)).to("webgpu", torch.int32)


def one_by_one(q, k, v, lengths_q, lengths_k, window=(-1, -1), used=None, **options):
    """On the CPU, in float64."""
    outs = []
    parts = zip(q.split(lengths_q), k.split(lengths_k), v.split(lengths_k), strict=True)
    for number, (a, b, c) in enumerate(parts):
        count = len(b) if used is None else used[number]
        row = torch.arange(len(a))[:, None] + count - len(a)
        column = torch.arange(count)[None, :]
        mask = torch.ones(len(a), count, dtype=torch.bool)
        if window[0] >= 0:
            mask &= column >= row - window[0]
        if window[1] >= 0:
            mask &= column <= row + window[1]
        a, b, c = (x.transpose(0, 1) for x in (a, b[:count], c[:count]))
        outs.append(F.scaled_dot_product_attention(a, b, c, mask, **options).transpose(0, 1))
    return torch.cat(outs)


def operands(lengths_q, lengths_k, heads=2, heads_k=2):
    shapes = ((sum(lengths_q), heads, 8), *2 * ((sum(lengths_k), heads_k, 8),))
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


CASES = {
    "all": {},
    "causal": {"window": (-1, 0)},
    "window": {"window": (2, 1)},
    "left": {"window": (1, 0)},
    "scale": {"window": (-1, 0), "scale": 0.3},
    "groups": {"heads": 4, "enable_gqa": True},
    "used": {"used": (3, 1, 5, 2)},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("lengths", [LENGTHS_Q, LENGTHS_K], ids=["same", "others"])
def test_varlen_attn(case, lengths):
    options = dict(CASES[case])
    heads, window = options.pop("heads", 2), options.pop("window", (-1, -1))
    used = options.pop("used", None)
    if used is not None and lengths is LENGTHS_Q:
        used = (3, 1, 4, 2)
    known = torch.nn.attention.varlen.varlen_attn.__wrapped__.__kwdefaults__ or {}
    asked = {
        **options,
        **({"window_size": window} if window != (-1, -1) else {}),
        **({"seqused_k": torch.tensor(used, device="webgpu")} if used else {}),
    }
    if asked.keys() - known.keys():
        pytest.skip("this PyTorch has other arguments")
    reference = operands(LENGTHS_Q, lengths, heads)
    here = [x.detach().float().to("webgpu").requires_grad_() for x in reference]
    expected = one_by_one(*reference, LENGTHS_Q, lengths, window, used, **options)
    offsets = begins(LENGTHS_Q)
    offsets_k = offsets if lengths is LENGTHS_Q else begins(lengths)
    limits = (max(LENGTHS_Q), max(lengths))
    out = varlen.varlen_attn(*here, offsets, offsets_k, *limits, **asked)
    torch.testing.assert_close(out.cpu().double(), expected, rtol=1e-4, atol=1e-5)
    grad = torch.randn_like(expected)
    expected.backward(grad)
    out.backward(grad.float().to("webgpu"))
    for x, y in zip(here, reference, strict=True):
        torch.testing.assert_close(x.grad.cpu().double(), y.grad, rtol=1e-3, atol=1e-4)


def test_varlen_attn_into_a_tensor():
    if not hasattr(varlen, "varlen_attn_out"):
        pytest.skip("this PyTorch has no varlen_attn_out")
    q, k, v = (x.detach().half().to("webgpu") for x in operands(LENGTHS_Q, LENGTHS_Q))
    arguments = (q, k, v, begins(LENGTHS_Q), begins(LENGTHS_Q), 5, 5)
    out = torch.empty_like(q)
    assert varlen.varlen_attn_out(out, *arguments) is out
    assert torch.equal(out, varlen.varlen_attn(*arguments))


def test_what_varlen_attn_has_not():
    q, k, v = (x.detach().half().to("webgpu") for x in operands(LENGTHS_Q, LENGTHS_Q))
    arguments = (q, k, v, begins(LENGTHS_Q), begins(LENGTHS_Q), 5, 5)
    with pytest.raises(NotImplementedError, match=r"varlen_attn with `return_aux`.*flex_attention"):
        varlen.varlen_attn(*arguments, return_aux=varlen.AuxRequest(lse=True))
    with pytest.raises(ValueError, match="Hq=2 and Hkv=1"):
        varlen.varlen_attn(q, k[:, :1], v[:, :1], *arguments[3:])


@pytest.mark.parametrize("scale", [None, 0.5])
def test_jagged_tensors_with_a_causal_mask(scale):
    reference = operands(LENGTHS_Q, LENGTHS_Q)
    here = [x.detach().float().to("webgpu").requires_grad_() for x in reference]
    offsets = begins(LENGTHS_Q).long()
    jagged = [torch.nested.nested_tensor_from_jagged(x, offsets).transpose(1, 2) for x in here]
    out = F.scaled_dot_product_attention(*jagged, is_causal=True, scale=scale)
    assert out.is_nested and out.layout == torch.jagged and out.shape[:2] == (4, 2)
    expected = one_by_one(*reference, LENGTHS_Q, LENGTHS_Q, (-1, 0), scale=scale)
    values = out.transpose(1, 2).values()
    torch.testing.assert_close(values.cpu().double(), expected, rtol=1e-4, atol=1e-5)
    expected.sum().backward()
    values.sum().backward()
    for x, y in zip(here, reference, strict=True):
        torch.testing.assert_close(x.grad.cpu().double(), y.grad, rtol=1e-3, atol=1e-4)
