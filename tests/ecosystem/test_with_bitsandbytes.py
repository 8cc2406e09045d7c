"""bitsandbytes: quantization, layers of 4 and 8 bits, optimizers, and transformers with it.

Integers are the CPU's. bitsandbytes' CPU library finds codes of 8 bits by a table that is coarse in
places, so these are compared with the nearest values.
"""

import copy
import warnings

import pytest
import torch
from torch import nn

bnb = pytest.importorskip("bitsandbytes")
F = bnb.functional
cpu_ops = bnb.backends.cpu.ops
ops = torch.ops.bitsandbytes

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
# Relative to the greatest result: one rounding to the dtype, and some for sums.
CLOSE = {torch.float32: 4e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def close(actual, expected, dtype=None):
    assert actual.device.type == "webgpu"
    assert actual.shape == expected.shape
    assert dtype is None or actual.dtype == dtype
    error = (actual.cpu().double() - expected.double()).abs().max()
    assert error <= CLOSE[actual.dtype] * expected.double().abs().max().clamp(min=1e-30)


# ---- Operators


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
@pytest.mark.parametrize(
    ("block", "shape"), [(64, (96, 200)), (128, (33, 77)), (4096, (64, 100)), (32, (5, 5))]
)
def test_4_bits(dtype, kind, block, shape):
    a = torch.randn(shape).to(dtype)
    a.view(-1)[7] = 0
    a.view(-1)[-block:] *= 1e-3
    codes, absmax = ops.quantize_4bit(a, block, kind, torch.uint8)
    own, own_absmax = ops.quantize_4bit(a.webgpu(), block, kind, torch.uint8)
    assert torch.equal(own.cpu(), codes)
    assert torch.equal(own_absmax.cpu(), absmax)
    values = ops.dequantize_4bit(own, own_absmax, block, kind, shape, dtype)
    assert torch.equal(values.cpu(), ops.dequantize_4bit(codes, absmax, block, kind, shape, dtype))
    # Into a tensor that is given: one that starts in the middle of a word, and one with gaps.
    wide = torch.zeros(a.numel() + 1, dtype=dtype).webgpu()
    for out in (wide[1:].view(shape), torch.zeros((*shape[::-1],), dtype=dtype).webgpu().t()):
        ops.dequantize_4bit.out(own, own_absmax, block, kind, shape, dtype, out=out)
        assert torch.equal(out, values)
    assert wide[0] == 0


@pytest.mark.parametrize("storage", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_4_bits_in_other_storage(storage):
    a = torch.randn(40, 64)
    codes, state = F.quantize_4bit(a, quant_type="nf4", quant_storage=storage)
    own, own_state = F.quantize_4bit(a.webgpu(), quant_type="nf4", quant_storage=storage)
    assert own.dtype == storage
    assert torch.equal(own.cpu().view(torch.uint8), codes.view(torch.uint8))
    close(F.dequantize_4bit(own, own_state), F.dequantize_4bit(codes, state))


def nearest(a, code, block):
    """Codes and scales as the library's portable implementation defines them."""
    x = a.reshape(-1).float()
    scale = torch.stack([part.abs().max() for part in x.split(block)])
    parts = [
        part * (1.0 / m) if len(part) == block else part / m
        for part, m in zip(x.split(block), scale.clamp(min=1e-37), strict=True)
    ]
    middles = (code[:-1] + code[1:]) / 2
    return torch.bucketize(torch.cat(parts), middles).to(torch.uint8).view(a.shape), scale


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(("count", "block"), [(4096, 256), (1000, 256), (777, 64), (100, 7)])
def test_8_bits(dtype, signed, count, block):
    code = F.create_dynamic_map(signed)
    a = torch.randn(count).to(dtype)
    a = a if signed else a.abs()
    a[:block] = 0
    codes, absmax = nearest(a, code, block)
    own, own_absmax = ops.quantize_blockwise(a.webgpu(), code.webgpu(), block)
    assert torch.equal(own.cpu(), codes)
    assert torch.equal(own_absmax.cpu(), absmax)
    # The CPU's differ where a value is almost in the middle of two.
    coarse, _ = ops.quantize_blockwise(a, code, block)
    assert (codes.int() - coarse.int())[block:].abs().max() <= 1
    values = ops.dequantize_blockwise(own, own_absmax, code.webgpu(), block, dtype)
    assert torch.equal(values.cpu(), ops.dequantize_blockwise(codes, absmax, code, block, dtype))


def test_not_finite_values_stay_visible():
    a = torch.randn(4, 64)
    a[1, 5] = float("nan")
    a[2, 7] = float("inf")
    codes, absmax = ops.quantize_4bit(a, 64, "nf4", torch.uint8)
    own, own_absmax = ops.quantize_4bit(a.webgpu(), 64, "nf4", torch.uint8)
    assert torch.equal(own.cpu(), codes)
    assert torch.equal(own_absmax.cpu().isnan(), absmax.isnan())
    assert own_absmax[2].item() == float("inf")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("threshold", [0.0, 2.0])
@pytest.mark.parametrize("shape", [(5, 64), (40, 77), (1, 20)])
def test_rows_of_8_bits(dtype, threshold, shape):
    a = torch.randn(shape).to(dtype)
    a[-1] *= 10 if shape[0] == 1 else 0
    found = ops.int8_vectorwise_quant(a.webgpu(), threshold)
    for own, expected in zip(found, ops.int8_vectorwise_quant(a.clone(), threshold), strict=True):
        assert (own is None) == (expected is None)
        assert own is None or torch.equal(own.cpu(), expected)
    close(ops.int8_vectorwise_dequant(*found[:2]), found[0].cpu() * found[1].cpu()[:, None] / 127)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("with_bias", [True, False])
def test_products_of_8_bits(dtype, with_bias):
    a, b = (torch.randint(-127, 128, size, dtype=torch.int8) for size in ((3, 7, 64), (48, 64)))
    row, column = torch.rand(3, 7) + 0.1, torch.rand(48) + 0.1
    bias = torch.randn(48).to(dtype) if with_bias else None
    product = ops.int8_linear_matmul(a.webgpu(), b.webgpu())
    assert torch.equal(product.cpu(), (a.double() @ b.double().t()).int())
    out = torch.empty_like(product)
    ops.int8_linear_matmul.out(a.webgpu(), b.webgpu(), out=out)
    assert torch.equal(out, product)
    # The library's factor: 1 / 127^2 to four digits.
    expected = product.cpu().double() * row[..., None] * column * 6.200124e-5
    own_bias = None if bias is None else bias.webgpu()
    own = ops.int8_scaled_mm(a.webgpu(), b.webgpu(), row.webgpu(), column.webgpu(), own_bias, dtype)
    close(own, expected + (0 if bias is None else bias.double()), dtype)


# ---- 4-bit layers


def quantized(n, k, dtype, kind, nested, block=64):
    w = torch.randn(n, k).to(dtype)
    codes, state = F.quantize_4bit(w, quant_type=kind, compress_statistics=nested, blocksize=block)
    own_state = copy.deepcopy(state)
    own_state.to("webgpu")
    return codes, state, codes.webgpu(), own_state


@pytest.mark.parametrize(
    ("dtype", "kind", "nested"),
    [
        (torch.float32, "nf4", False),
        (torch.float16, "nf4", True),
        (torch.bfloat16, "fp4", True),
        (torch.float16, "fp4", False),
    ],
    ids=str,
)
@pytest.mark.parametrize("rows", [1, 7, 40, 100])
# Rows of whole blocks; rows that cut blocks and are longer than what is staged; of whole words of
# four; of odd lengths.
@pytest.mark.parametrize(("n", "k"), [(48, 256), (33, 1160), (17, 76), (9, 35)])
def test_products(dtype, kind, nested, rows, n, k):
    codes, state, own, own_state = quantized(n, k, dtype, kind, nested)
    x, bias = torch.randn(rows, k).to(dtype), torch.randn(n).to(dtype)
    expected = x.double() @ F.dequantize_4bit(codes, state).double().t()
    result = bnb.matmul_4bit(x.webgpu(), own, own_state)
    close(result, expected, dtype)
    result = bnb.matmul_4bit(x.webgpu(), own, own_state, bias=bias.webgpu())
    close(result, expected + bias.double(), dtype)


@pytest.mark.parametrize("block", [32, 64, 128, 256, 512, 1024, 2048, 4096])
def test_block_sizes(block):
    codes, state, own, own_state = quantized(24, 512, torch.float32, "nf4", False, block)
    x = torch.randn(2, 3, 512)
    # Not the library's own: on some CPUs it takes another block's scale where a block is 1024.
    halves = torch.stack([codes.view(-1) >> 4, codes.view(-1) & 15], -1).long()
    weight = (state.code[halves].view(-1, block) * state.absmax[:, None]).view(24, 512).double()
    close(bnb.matmul_4bit(x.webgpu(), own, own_state), x.double() @ weight.t())
    close(F.gemv_4bit(x[:1, :1].webgpu(), own, state=own_state), x[:1, :1].double() @ weight.t())


def test_weights_that_are_unpacked_in_parts():
    # 2^24 elements are unpacked at a time: this matrix has more.
    codes, state, own, own_state = quantized(8200, 2052, torch.float32, "nf4", False)
    x = torch.randn(65, 2052)
    bias = torch.randn(8200)
    expected = torch.addmm(bias, x, F.dequantize_4bit(codes, state).t())
    close(bnb.matmul_4bit(x.webgpu(), own, own_state, bias=bias.webgpu()), expected)


def test_no_rows_and_errors():
    _, _, own, state = quantized(16, 64, torch.float32, "nf4", False)
    assert bnb.matmul_4bit(torch.empty(0, 64).webgpu(), own, state).shape == (0, 16)
    x = torch.randn(1, 64).webgpu()
    with pytest.raises(RuntimeError, match="invalid blocksize 48"):
        ops.gemm_4bit(x, own, (16, 64), state.absmax, 48, "nf4")
    with pytest.raises(RuntimeError, match="quant_type must be 'nf4' or 'fp4', got 'nf5'"):
        ops.gemm_4bit(x, own, (16, 64), state.absmax, 64, "nf5")
    with pytest.raises(RuntimeError, match="does not go with weights"):
        ops.gemm_4bit(x, own, (16, 60), state.absmax, 64, "nf4")
    with pytest.raises(RuntimeError, match="do not lie in"):
        ops.gemm_4bit(x, own[:100], (16, 64), state.absmax, 64, "nf4")
    with pytest.raises(RuntimeError, match="16 scales, but absmax has 3"):
        ops.gemm_4bit(x, own, (16, 64), state.absmax[:3], 64, "nf4")
    with pytest.raises(RuntimeError, match="same device"):
        ops.gemm_4bit(x, own, (16, 64), state.absmax.cpu(), 64, "nf4")


def linear4(kind, nested, dtype, bias=True):
    return bnb.nn.Linear4bit(
        128, 96, bias, compute_dtype=dtype, compress_statistics=nested, quant_type=kind
    )


@pytest.mark.parametrize("kind", ["nf4", "fp4"])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_linear4(kind, nested, dtype, tmp_path):
    plain = nn.Linear(128, 96).to(dtype)
    layer = linear4(kind, nested, dtype)
    layer.load_state_dict(plain.state_dict())
    own = copy.deepcopy(layer).to("webgpu")
    assert own.weight.device.type == "webgpu"
    assert own.weight.dtype == torch.uint8
    weight = F.dequantize_4bit(own.weight.data, own.weight.quant_state).cpu().double()
    x = torch.randn(2, 5, 128).to(dtype)
    ours = x.webgpu().requires_grad_()
    result = own(ours)
    close(result, x.double() @ weight.t() + plain.bias.double(), dtype)
    gradient = torch.randn(2, 5, 96).to(dtype)
    result.backward(gradient.webgpu())
    close(ours.grad, gradient.double() @ weight, dtype)
    # The same as quantized on the CPU, up to the roundings of the scales' mean.
    on_cpu = copy.deepcopy(layer).to("cpu")
    assert torch.equal(own.weight.data.cpu(), on_cpu.weight.data)
    # Saved and loaded.
    torch.save(own.state_dict(), tmp_path / "layer.pt")
    state = torch.load(tmp_path / "layer.pt", map_location="webgpu", weights_only=True)
    other = linear4(kind, nested, dtype).to("webgpu")
    stats = {k[len("weight.") :]: v for k, v in state.items() if k.startswith("weight.")}
    other.weight = bnb.nn.Params4bit.from_prequantized(
        state["weight"], stats, device="webgpu", module=other
    )
    other.bias.data.copy_(state["bias"])
    assert torch.equal(other(x.webgpu()), own(x.webgpu()))
    # Back to the CPU.
    back = copy.deepcopy(own).to("cpu")
    assert torch.equal(back.weight.data, own.weight.data.cpu())


def test_embedding4():
    layer = bnb.nn.EmbeddingNF4(20, 64)
    layer.load_state_dict(nn.Embedding(20, 64).state_dict())
    own, other = copy.deepcopy(layer).to("webgpu"), copy.deepcopy(layer).to("cpu")
    indices = torch.randint(20, (3, 4))
    assert torch.equal(own(indices.webgpu()).cpu(), other(indices))


def test_finetuning_with_adapters():
    """QLoRA: gradients pass the frozen 4-bit layer to an adapter in front of it."""

    def losses(device):
        torch.manual_seed(3)
        adapter = nn.Sequential(nn.Linear(128, 8, bias=False), nn.Linear(8, 128, bias=False))
        layer = linear4("nf4", True, torch.float32)
        data, target = torch.randn(32, 128).to(device), torch.randn(32, 96).to(device)
        adapter, layer = adapter.to(device), layer.to(device)
        optimizer = torch.optim.Adam(adapter.parameters(), lr=1e-2)
        found = []
        for _ in range(6):
            loss = nn.functional.mse_loss(layer(data + adapter(data)), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    expected = losses("cpu")
    assert losses("webgpu") == pytest.approx(expected, rel=1e-4)
    assert expected[-1] < expected[0]


# ---- 8-bit layers


@pytest.mark.parametrize("threshold", [0.0, 3.0])
def test_linear8(threshold, tmp_path):
    plain = nn.Linear(64, 48).half()
    layer = bnb.nn.Linear8bitLt(64, 48, has_fp16_weights=False, threshold=threshold)
    layer.load_state_dict(plain.state_dict())
    own = copy.deepcopy(layer).to("webgpu").eval()
    assert own.weight.dtype == torch.int8
    other = copy.deepcopy(layer).to("cpu").eval()
    x = torch.randn(2, 9, 64).half()
    x[0, 0, 5] = 6
    result = own(x.webgpu())
    close(result, other(x), torch.float16)
    assert torch.equal(own.weight.data.cpu(), other.weight.data)
    torch.save(own.state_dict(), tmp_path / "layer.pt")
    again = bnb.nn.Linear8bitLt(64, 48, has_fp16_weights=False, threshold=threshold).to("webgpu")
    again.load_state_dict(torch.load(tmp_path / "layer.pt", weights_only=True))
    assert torch.equal(again.eval()(x.webgpu()), result)


@pytest.mark.parametrize("keeps_half", [False, True])
def test_gradients_of_linear8(keeps_half):
    plain = nn.Linear(64, 48).half()
    layer = bnb.nn.Linear8bitLt(64, 48, has_fp16_weights=keeps_half)
    layer.load_state_dict(plain.state_dict())
    layer = layer.half().to("webgpu")
    x, gradient = torch.randn(9, 64).half(), torch.randn(9, 48).half()
    ours = x.webgpu().requires_grad_()
    layer(ours).backward(gradient.webgpu())
    expected = gradient.double() @ plain.weight.double()
    # 8 bits for the weights, and for both factors of their gradient.
    assert (ours.grad.cpu() - expected).norm() < 0.01 * expected.norm()
    if keeps_half:
        # The library multiplies codes of the gradient's rows by scales of its columns.
        codes, _, _ = ops.int8_vectorwise_quant(gradient)
        scale = x.abs().amax(0).float()
        columns = torch.round(x * (127 / scale)).double()
        expected = codes.double().t() @ columns * 6.200124e-5
        expected = expected * gradient.abs().amax(0).double()[:, None] * scale
        close(layer.weight.grad, expected, torch.float16)


# ---- Optimizers

RULES = {
    "Adam": {"betas": (0.8, 0.95), "weight_decay": 0.05},
    "AdamW": {"weight_decay": 0.1},
    "AdEMAMix": {"weight_decay": 0.1},
    "SGD": {"momentum": 0.9, "weight_decay": 0.05},
    "Lion": {"weight_decay": 0.1},
    "RMSprop": {"weight_decay": 0.05},
    "Adagrad": {"weight_decay": 0.05},
    "LAMB": {"weight_decay": 0.05},
    "LARS": {"momentum": 0.9, "weight_decay": 0.05},
}


def run(make, shapes, dtype, device, steps=4):
    torch.manual_seed(5)
    parameters = [nn.Parameter(torch.randn(s).to(dtype).to(device)) for s in shapes]
    optimizer = make(parameters)
    for _ in range(steps):
        for p in parameters:
            p.grad = torch.randn(p.shape).to(dtype).to(device)
        optimizer.step()
    return [p.detach().cpu().float() for p in parameters], optimizer


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, torch.float32) for name in RULES), ("Adam", torch.float16), ("LAMB", torch.bfloat16)],
    ids=str,
)
@pytest.mark.parametrize("bits", [8, 32])
def test_optimizers(name, dtype, bits, monkeypatch):
    # Whole blocks, a partial one, no whole word, and one that is too small for 8 bits.
    shapes = [(64, 80), (5000,), (71, 73), (3, 5)]

    def make(parameters):
        make = getattr(bnb.optim, name if bits == 32 else f"{name}8bit")
        return make(parameters, lr=1e-2, **RULES[name])

    def quantize_nearest(a, code, absmax, out, block):
        codes, scales = nearest(a, code, block)
        out.copy_(codes)
        absmax.copy_(scales)

    monkeypatch.setattr(cpu_ops, "_quant_blockwise_fp32_direct", quantize_nearest)
    expected, _ = run(make, shapes, dtype, "cpu")
    found, optimizer = run(make, shapes, dtype, "webgpu")
    state = next(iter(optimizer.state.values()))
    assert state["state1"].device.type == "webgpu"
    assert state["state1"].dtype == (torch.uint8 if bits == 8 else torch.float32)
    for a, b in zip(found, expected, strict=True):
        error = (a - b).abs()
        scale = b.abs().max()
        # A state's code may be its neighbour where a rounding moves it over the middle.
        outliers = 0.002 if bits == 8 else 0.0
        assert (error > CLOSE[dtype] * scale).double().mean() <= outliers
        assert error.max() <= (0.02 if bits == 8 else CLOSE[dtype]) * scale


# Parameters of another order in memory than that of their indices.
LAYOUTS = {
    "channels_last": ((40, 24, 3, 3), lambda p: p.to(memory_format=torch.channels_last)),
    "transposed": ((80, 70), lambda p: p.t().contiguous().t()),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["Adam", "AdEMAMix", "SGD", "Lion"])
@pytest.mark.parametrize("bits", [8, 32])
@pytest.mark.parametrize("loaded", [False, True])
def test_optimizers_of_other_layouts(layout, name, bits, loaded, monkeypatch):
    shape, arrange = LAYOUTS[layout]
    values, *gradients = (torch.randn(shape) for _ in range(5))

    def quantize_nearest(a, code, absmax, out, block):
        codes, scales = nearest(a, code, block)
        out.copy_(codes)
        absmax.copy_(scales)

    monkeypatch.setattr(cpu_ops, "_quant_blockwise_fp32_direct", quantize_nearest)
    make = getattr(bnb.optim, name if bits == 32 else f"{name}8bit")

    def start(device, values):
        # As a model's: arranged, and then sent to the device.
        p = nn.Parameter(arrange(values.clone()).to(device))
        assert not p.is_contiguous()
        return p, make([p], lr=1e-2, **RULES[name])

    def steps(p, optimizer, gradients):
        for gradient in gradients:
            p.grad = arrange(gradient).to(p.device)
            optimizer.step()
        return p.detach().cpu()

    p, optimizer = start("cpu", values)
    middle = steps(p, optimizer, gradients[:2]).clone()
    if loaded:  # states of the CPU's optimizer, whose elements have its order
        own, own_optimizer = start("webgpu", middle)
        own_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        assert own_optimizer.state[own]["state1"].is_contiguous() == (name == "AdEMAMix")
    else:
        own, own_optimizer = start("webgpu", values)
        steps(own, own_optimizer, gradients[:2])
        assert own_optimizer.state[own]["state1"].is_contiguous()
    expected = steps(p, optimizer, gradients[2:])
    found = steps(own, own_optimizer, gradients[2:])
    error, scale = (found - expected).abs(), expected.abs().max()
    assert (error > CLOSE[torch.float32] * scale).double().mean() <= (0.002 if bits == 8 else 0)
    assert error.max() <= (0.02 if bits == 8 else CLOSE[torch.float32]) * scale


def test_paged_optimizers_keep_their_states_on_the_device():
    p = nn.Parameter(torch.randn(400, 300).webgpu())
    p.grad = torch.randn_like(p)
    optimizer = bnb.optim.PagedAdamW8bit([p])
    with pytest.warns(UserWarning, match="paged states lie in the device's memory"):
        optimizer.step()
    assert optimizer.state[p]["state1"].device.type == "webgpu"
    p.grad = torch.randn_like(p)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()


def test_optimizers_refuse_what_they_cannot_do():
    p = nn.Parameter(torch.randn(100, 100).webgpu())
    p.grad = torch.randn_like(p)
    with pytest.raises(NotImplementedError, match="skip_zeros"):
        bnb.optim.optimizer.Optimizer2State("adam", [p], skip_zeros=True).step()


# ---- The library and others


def test_the_entry_point_tells_the_library():
    from importlib.metadata import entry_points

    assert "webgpu" in bnb.supported_torch_devices
    (entry,) = (e for e in entry_points(group="bitsandbytes.backends") if e.name == "webgpu")
    assert entry.load()() is None  # a second time


# A version without a method that is adapted.
UNKNOWN = """
import torch, torch_webgpu, warnings
from torch_webgpu import _import_hook
_import_hook.when_imported(
    "bitsandbytes.optim.{module}", lambda module: delattr(module.{owner}, "{method}")
)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import bitsandbytes
(text,) = (str(w.message) for w in caught if "torch_webgpu" in str(w.message))
assert text == (
    f"bitsandbytes {{bitsandbytes.__version__}} is not known to this version of torch_webgpu: "
    "bitsandbytes: {owner} has no {method}"
), text
assert "webgpu" not in bitsandbytes.supported_torch_devices
optimizer = bitsandbytes.optim.optimizer.Optimizer8bit
# update_wrapper marks what is replaced.
assert not hasattr(vars(optimizer).get("get_state_buffer"), "__wrapped__")
"""


@pytest.mark.parametrize(
    ("module", "owner", "method"),
    [
        ("optimizer", "Optimizer8bit", "get_state_buffer"),
        pytest.param(
            *("ademamix", "AdEMAMix", "_get_state_double_buffer"), marks=pytest.mark.further
        ),
    ],
)
def test_unknown_versions_can_be_imported(check_python, module, owner, method):
    check_python(UNKNOWN.format(module=module, owner=owner, method=method))


@pytest.mark.parametrize(
    ("first", "value"),
    [
        ("torch_webgpu", ""),
        pytest.param("bitsandbytes", "0", marks=pytest.mark.further),
        pytest.param("torch_webgpu", "0", marks=pytest.mark.further),
        pytest.param("bitsandbytes", "", marks=pytest.mark.further),
    ],
)
def test_the_environment_leaves_the_library_as_it_is(check_python, first, value):
    check_python(
        f"import {first}, torch_webgpu, bitsandbytes\n"
        f"assert ('webgpu' in bitsandbytes.supported_torch_devices) == {value == ''}\n"
        "get = bitsandbytes.optim.optimizer.Optimizer8bit.get_state_buffer\n"
        f"assert hasattr(get, '__wrapped__') == {value == ''}",
        env={"TORCH_WEBGPU_INTEGRATIONS": value},
    )


@pytest.fixture
def language_model(tmp_path):
    """The folder of a small model of transformers."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    config = transformers.LlamaConfig(
        vocab_size=99,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("device_map", [None, "auto", "cpu"])
def test_transformers_chooses_the_device(bits, device_map, language_model, enable):
    import transformers

    enable("accelerate", "transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        language_model,
        device_map=device_map,
        dtype=torch.float32,
        quantization_config=transformers.BitsAndBytesConfig(
            load_in_4bit=bits == 4, load_in_8bit=bits == 8
        ),
    )
    kind = "cpu" if device_map == "cpu" else "webgpu"
    assert {p.device.type for p in model.parameters()} == {kind}
    made = model.generate(torch.randint(99, (1, 5)).to(kind), max_new_tokens=2, do_sample=False)
    assert made.shape == (1, 7)


def test_transformers_on_the_cpu_says_so(language_model, hardware):
    import transformers

    quantization = transformers.BitsAndBytesConfig(load_in_4bit=True)
    with pytest.warns(UserWarning, match=r"bitsandbytes' weights.*enable\('transformers'\)"):
        model = transformers.AutoModelForCausalLM.from_pretrained(
            language_model, quantization_config=quantization
        )
    assert model.device == torch.device("cpu")


@pytest.mark.parametrize("bits", [4, 8])
def test_transformers(bits, language_model, tmp_path):
    import transformers

    quantization = transformers.BitsAndBytesConfig(
        load_in_4bit=bits == 4,
        load_in_8bit=bits == 8,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.float32,
    )

    def load(path, **settings):
        return transformers.AutoModelForCausalLM.from_pretrained(
            path, device_map={"": "webgpu:0"}, dtype=torch.float32, **settings
        )

    model = load(language_model, quantization_config=quantization)
    layer = model.model.layers[0].mlp.up_proj
    assert type(layer).__name__ == ("Linear4bit" if bits == 4 else "Linear8bitLt")
    assert layer.weight.device.type == "webgpu"
    tokens = torch.randint(99, (2, 7))
    with torch.no_grad():
        logits = model(tokens.webgpu()).logits
    # A model of plain layers with the same weights.
    plain = transformers.LlamaForCausalLM.from_pretrained(language_model)
    for name, module in model.named_modules():
        if module is not model.lm_head and hasattr(module, "in_features"):
            weight = (
                F.dequantize_4bit(module.weight.data, module.weight.quant_state)
                if bits == 4
                else module.weight.data * (module.state.SCB[:, None] / 127)
            )
            plain.get_submodule(name).weight.data.copy_(weight.cpu())
    with torch.no_grad():
        expected = plain(tokens).logits
    error = (logits.cpu() - expected).norm() / expected.norm()
    assert error < (1e-5 if bits == 4 else 0.03)  # 8 bits: activations are quantized too
    made = model.generate(tokens.webgpu(), max_new_tokens=4, do_sample=False)
    assert made.shape == (2, 11)
    model.save_pretrained(tmp_path / "quantized")
    with torch.no_grad():
        again = load(tmp_path / "quantized")(tokens.webgpu()).logits
    assert torch.equal(again, logits)
