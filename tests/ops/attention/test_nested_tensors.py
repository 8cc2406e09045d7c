"""Tensors of sequences of different lengths, torch.nested: strided and jagged, against the CPU."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

DEVICE = "webgpu"
LAYOUTS = [torch.strided, torch.jagged]
pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.parametrize("layout", LAYOUTS, ids=["strided", "jagged"]),
]


def nested(layout, *shape, device="cpu", lengths=(3, 5, 1, 4), seed=0):
    """Sequences [length, *shape], with gradients, and the nested tensor of them."""
    torch.manual_seed(seed)
    parts = [torch.randn(n, *shape).to(device).requires_grad_() for n in lengths]
    return parts, torch.nested.as_nested_tensor(parts, layout=layout)


def compare(layout, function, *shapes):
    """The function's results, and the gradients of their sums of squares, are the CPU's."""
    seen = []
    for device in (DEVICE, "cpu"):
        made = [nested(layout, *s, device=device, seed=k) for k, s in enumerate(shapes)]
        result = function(*(tensor for _, tensor in made))
        results = list(result.unbind()) if result.is_nested else [result]
        assert all(r.device.type == device for r in results)
        sum(r.square().sum() for r in results).backward()
        seen.append([*results, *(p.grad for parts, _ in made for p in parts)])
    for one, other in zip(*seen, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert_close(one.detach().cpu(), other.detach(), rtol=1e-4, atol=1e-4)


UNARY = {
    "abs": torch.abs,
    "neg": torch.neg,
    "relu": torch.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "sin": torch.sin,
    "cos": torch.cos,
    "scalar": lambda x: x * 3 / 2,
    "softmax": lambda x: torch.softmax(x, -1),
    "transpose": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "squeeze": lambda x: x.unsqueeze(-1).squeeze(-1),
    "clone": torch.clone,
    "sum": lambda x: x.sum(-1, keepdim=True),
    "padded": lambda x: torch.nested.to_padded_tensor(x, 0.5),
    "padded further": lambda x: torch.nested.to_padded_tensor(x, 0.5, (4, 7, 8)),
}


@pytest.mark.parametrize("name", UNARY)
def test_one_operand(name, layout):
    if name in ("padded further", "sum") and layout is torch.jagged:
        pytest.skip("PyTorch has no such padding, and no such gradient, of jagged tensors")
    compare(layout, UNARY[name], (8,))


BINARY = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}


@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name, layout):
    # Jagged tensors fit only if they share their offsets.
    compare(layout, lambda x: BINARY[name](x, x * x + 1), (8,))


# PyTorch has no gradient of these, or one of its own CPU kernels.
FORWARD = {
    "tanh": torch.tanh,
    "chunk": lambda x: x.chunk(2, -1)[1],
    "mask": lambda x: x.masked_fill(x > 0, 2.0),
    "greater": lambda x: x.gt(0),
    "at least": lambda x: x.ge(0),
    "equal": lambda x: x.eq(0),
    "isnan": torch.isnan,
    "zeros": lambda x: torch.zeros_like(x),
}


@pytest.mark.parametrize("name", FORWARD)
def test_results_without_gradients(name, layout):
    with torch.no_grad():
        actual, expected = (
            FORWARD[name](nested(layout, 8, device=d)[1].detach()) for d in (DEVICE, "cpu")
        )
        for one, other in zip(actual.unbind(), expected.unbind(), strict=True):
            assert_close(one.cpu(), other)


@pytest.mark.parametrize("module", [torch.nn.Linear(8, 6), torch.nn.LayerNorm(8)], ids=str)
def test_modules(module, layout):
    modules = {"cpu": module, DEVICE: copy.deepcopy(module).to(DEVICE)}
    for each in modules.values():
        each.zero_grad()
    compare(layout, lambda x: modules[x.device.type](x), (8,))
    for one, other in zip(*(m.parameters() for m in modules.values()), strict=True):
        assert_close(other.grad.cpu(), one.grad, rtol=1e-4, atol=1e-4)


def test_products(layout):
    if layout is torch.strided:
        compare(layout, lambda x: torch.matmul(x, x.transpose(1, 2)), (8,))
        return
    torch.manual_seed(3)
    weight = torch.randn(8, 5)
    compare(layout, lambda x: torch.matmul(x, weight.to(x.device)), (8,))


def test_attention(layout):
    parts, x = nested(layout, 2, 8, device=DEVICE)
    heads = x.transpose(1, 2)
    if layout is torch.strided:
        heads = heads.contiguous()
    out = F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2)
    for part, result in zip(parts, out.unbind(), strict=True):
        one = part.detach().cpu().transpose(0, 1)[None]
        expected = F.scaled_dot_product_attention(one, one, one)
        assert_close(result.detach().cpu(), expected[0].transpose(0, 1), rtol=1e-4, atol=1e-5)
    sum(r.square().sum() for r in out.unbind()).backward()
    for part in parts:
        one = part.detach().cpu().requires_grad_()
        h = one.transpose(0, 1)[None]
        F.scaled_dot_product_attention(h, h, h).square().sum().backward()
        assert_close(part.grad.cpu(), one.grad, rtol=1e-3, atol=1e-4)


def test_copies_between_devices_and_text(layout):
    parts, x = nested(layout, 2)
    moved = x.to(DEVICE)
    assert moved.device.type == DEVICE and moved.layout == layout
    for part, there, back in zip(parts, moved.unbind(), moved.cpu().unbind(), strict=True):
        assert_close(there.cpu(), part)
        assert_close(back, part)
    assert "nested" in repr(moved).lower()


def test_sequences_without_rows(layout):
    _, x = nested(layout, 2, device=DEVICE, lengths=(0, 2, 0))
    padded = torch.nested.to_padded_tensor(x.detach(), -1.0).cpu()
    assert padded.shape == (3, 2, 2)
    assert padded[[0, 2]].eq(-1).all() and padded[1].ne(-1).all()


def test_jagged_conversions(layout):
    if layout is not torch.jagged:
        pytest.skip("of jagged tensors")
    offsets = torch.tensor([0, 2, 2, 7, 8])
    values = torch.randn(8, 3)
    to_padded = torch.ops.aten._jagged_to_padded_dense_forward
    to_jagged = torch.ops.aten._padded_dense_to_jagged_forward
    for longest in (5, 9):  # the CPU does not cut
        padded = to_padded(values, [offsets], [longest], 2.0)
        actual = to_padded(values.to(DEVICE), [offsets.to(DEVICE)], [longest], 2.0)
        assert_close(actual.cpu(), padded)
        for total in (None, 8):
            back = to_jagged(padded.to(DEVICE), [offsets.to(DEVICE)], total)
            assert_close(back.cpu(), values)
    cut = to_padded(values.to(DEVICE), [offsets.to(DEVICE)], [3], 0.0).cpu()
    assert_close(cut[2], values[2:5])
    back = to_jagged(cut.to(DEVICE), [offsets.to(DEVICE)], 8).cpu()
    assert_close(back[2:5], values[2:5])
    assert back[5:7].eq(0).all()
    with pytest.raises(RuntimeError, match="on the device of its values"):
        to_padded(values.to(DEVICE), [offsets], [5], 0.0)
    with pytest.raises(RuntimeError, match="a row of sequences for each of 4"):
        to_jagged(padded[:2].to(DEVICE), [offsets.to(DEVICE)], 8)
    with pytest.raises(NotImplementedError, match="only one dimension"):
        to_padded(values.to(DEVICE), [offsets.to(DEVICE)] * 2, [5, 5], 0.0)


def test_sums_that_the_cpu_refuses(layout):
    if layout is torch.jagged:
        pytest.skip("jagged tensors have more sums")
    _, x = nested(layout, 8, device=DEVICE)
    for dims, keepdim, message in (
        ((1, 2), True, "a single dimension"),
        (-1, False, "keepdim=True"),
        (1, True, "across the last dimension"),
    ):
        with pytest.raises(RuntimeError, match=message):
            x.sum(dims, keepdim=keepdim)


def test_norms_of_other_sizes_are_refused(layout):
    _, x = nested(layout, 8, device=DEVICE)
    with pytest.raises(RuntimeError, match="normalized_shape"):
        F.layer_norm(x, (4,), torch.ones(4, device=DEVICE), torch.ones(4, device=DEVICE))


# Dense operands that PyTorch broadcasts over strided sequences: shape of a sequence after its
# length, and of the operand.
DENSE = {"rows": ((6,), (4, 1, 6)), "numbers": ((), (4, 1))}


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("op", [torch.add, torch.mul], ids=["add", "mul"])
def test_dense_operands(layout, op, name):
    """PyTorch has these for CUDA alone: what each sequence gives with its operand is right."""
    if layout is torch.jagged:
        pytest.skip("jagged tensors broadcast in Python")
    shape, dense = DENSE[name]
    parts, _ = nested(layout, *shape)
    _, x = nested(layout, *shape, device=DEVICE)
    torch.manual_seed(3)
    other = torch.randn(dense)
    found = op(x.detach(), other.to(DEVICE)).unbind()
    for one, part, row in zip(found, parts, other, strict=True):
        assert_close(one.cpu(), op(part.detach(), row))


def test_dense_operands_for_heads(layout):
    """[C, 1, 1] for sequences [C, *, *], as masks by heads are."""
    if layout is torch.jagged:
        pytest.skip("has one dimension of different lengths")
    parts = [torch.randn(3, n, n + 1) for n in (2, 4)]
    weight = torch.randn(3, 1, 1)
    for op in (torch.add, torch.mul):
        made = torch.nested.nested_tensor([part.to(DEVICE) for part in parts])
        found = op(made, weight.to(DEVICE)).unbind()
        for one, part in zip(found, parts, strict=True):
            assert_close(one.cpu(), op(part, weight))


def test_dense_operands_that_do_not_fit(layout):
    _, x = nested(layout, 6, device=DEVICE)
    with pytest.raises(RuntimeError):
        torch.add(x, torch.randn(3, 1, 6, device=DEVICE))


def test_sizes_on_the_device(layout):
    if layout is torch.jagged:
        pytest.skip("is made of offsets instead")
    padded = torch.randn(2, 3, 4)
    sizes = torch.tensor([[2, 4], [3, 4]])
    for where in ("cpu", DEVICE):
        made = torch._nested_from_padded(padded.to(DEVICE), sizes.to(where))
        for one, part, rows in zip(made.unbind(), padded, (2, 3), strict=True):
            assert_close(one.cpu(), part[:rows])
    with pytest.raises(RuntimeError, match="matrix of int64"):
        torch._nested_from_padded(padded.to(DEVICE), sizes[0])
