"""torchao: weights of 4 and 8 bits by `quantize_`, against dequantized weights in float64, and
optimizers whose states have as few."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

quantization = pytest.importorskip("torchao.quantization")
optimizers = pytest.importorskip("torchao.optim")
tile_packed = pytest.importorskip(
    "torchao.quantization.quantize_.workflows.int4.int4_tile_packed_to_4d_tensor"
)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def int4(group, **settings):
    return quantization.Int4WeightOnlyConfig(
        group_size=group,
        int4_packing_format="tile_packed_to_4d",
        set_inductor_config=False,
        **settings,
    )


def rounded(weight, group):
    """The weights after quantization, by torchao's own functions on the CPU."""
    rows, columns = weight.shape
    padded = nn.functional.pad(weight, (0, -columns % 1024, 0, -rows % 8))
    settings = {"quant_min": 0, "quant_max": 15}
    scale, zero = tile_packed._choose_qparams_affine_tinygemm(
        padded,
        tile_packed.MappingType.ASYMMETRIC,
        (1, group),
        torch.int32,
        scale_dtype=torch.bfloat16,
        zero_point_dtype=torch.bfloat16,
        **settings,
    )
    codes = tile_packed._quantize_affine_tinygemm(
        padded, (1, group), scale, zero, torch.int32, **settings
    )
    parts = (codes.double() - 8).unflatten(-1, (-1, group))
    scale, zero = (x.double().reshape(*parts.shape[:2], 1) for x in (scale, zero))
    return (parts * scale + zero).flatten(-2)[:rows, :columns]


@pytest.mark.parametrize("group", [32, 256])
# Whole tiles, and sizes that are padded.
@pytest.mark.parametrize(("columns", "rows"), [(1024, 64), (512, 37)])
@pytest.mark.parametrize("batch", [(1,), (2, 3), (40,)], ids=str)
def test_int4(group, columns, rows, batch):
    model = nn.Sequential(nn.Linear(columns, rows)).bfloat16()
    x = torch.randn(*batch, columns).bfloat16()
    weight, bias = model[0].weight.detach(), model[0].bias.detach().double()
    expected = x.double() @ rounded(weight, group).t() + bias
    model = model.to("webgpu")
    quantization.quantize_(model, int4(group))
    assert type(model[0].weight).__name__ == "Int4TilePackedTo4dTensor"
    assert model[0].weight.device.type == "webgpu"
    result = model(x.webgpu()).detach()
    assert result.dtype == torch.bfloat16
    # The product and the sum with the bias are rounded to bfloat16.
    error = (result.cpu().double() - expected).abs().max()
    assert error <= 8e-3 * expected.abs().max()
    # Quantization changed more than that.
    plain = x.double() @ weight.double().t() + bias
    assert (plain - expected).abs().max() > 2 * error


def test_refusals():
    with pytest.raises(NotImplementedError, match="made of bfloat16"):
        quantization.quantize_(nn.Sequential(nn.Linear(256, 64)).half().to("webgpu"), int4(64))
    with pytest.raises(NotImplementedError, match=r"not by .*hqq"):
        quantization.quantize_(
            nn.Sequential(nn.Linear(256, 64)).bfloat16().to("webgpu"),
            int4(64, int4_choose_qparams_algorithm="hqq"),
        )


def test_int8():
    model = nn.Sequential(nn.Linear(256, 40))
    x, weight = torch.randn(5, 256), model[0].weight.detach()
    model = model.to("webgpu")
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig(set_inductor_config=False))
    step = weight.abs().amax(1, keepdim=True).double() / 127.5
    expected = x.double() @ ((weight / step).round().clamp(-128, 127) * step).t()
    expected = expected + model[0].bias.detach().cpu()
    error = (model(x.webgpu()).detach().cpu() - expected).norm() / expected.norm()
    assert error < 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_float8(dtype):
    model = nn.Sequential(nn.Linear(256, 40)).to(dtype)
    x = torch.randn(5, 256, dtype=dtype)
    own = copy.deepcopy(model).to("webgpu")
    for each in (model, own):
        quantization.quantize_(each, quantization.Float8WeightOnlyConfig(set_inductor_config=False))
    assert own[0].weight.qdata.dtype == torch.float8_e4m3fn
    assert torch.equal(
        own[0].weight.qdata.cpu().view(torch.uint8), model[0].weight.qdata.view(torch.uint8)
    )
    assert_close(own(x.webgpu()).cpu(), model(x), rtol=1.6e-2, atol=1e-3)


@pytest.mark.parametrize("name", ["AdamW4bit", "AdamW8bit", "AdamWFp8", "Adam8bit"])
def test_optimizers(name):
    start = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
    x = torch.randn(16, 64)

    def losses(device):
        model, data = copy.deepcopy(start).to(device), x.to(device)
        optimizer = getattr(optimizers, name)(model.parameters(), lr=1e-2)
        found = []
        for _ in range(3):
            loss = (model(data) - data).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.item())
        state = optimizer.state[model[0].weight]["exp_avg"]
        assert state.device.type == device
        assert type(state).__name__.startswith("OptimState")
        return found

    expected = losses("cpu")
    # A value between two codes may take either.
    assert losses("webgpu") == pytest.approx(expected, rel=1e-3)
    assert expected[-1] < 0.7 * expected[0]
