"""What the CPU's kernels refuse: numbers that do not fit, out= of another dtype or device."""

import pytest
import torch
import torch.nn.functional as F
from common import DEVICE, check, check_error, error_text

aten = torch.ops.aten


def matrix():
    return torch.arange(1.0, 10).reshape(3, 3)


NUMBERS = {
    "masked_fill": lambda x, v: x.masked_fill(x > 2, v),
    "threshold": lambda x, v: F.threshold(x, 0, v),
    "leaky_relu": lambda x, v: F.leaky_relu(x, v),
    "addcmul": lambda x, v: torch.addcmul(x, x, x, value=v),
    "lerp": lambda x, v: torch.lerp(x, x, v),
    "addmm": lambda x, v: torch.addmm(x, x, x, alpha=v),
    "addmv": lambda x, v: torch.addmv(x[0], x, x[0], beta=v),
    "baddbmm": lambda x, v: torch.baddbmm(x[None], x[None], x[None], alpha=v),
    "addr": lambda x, v: torch.addr(x, x[0], x[0], alpha=v),
    "index_add": lambda x, v: x.index_add(0, (x[0] > 9).long(), x, alpha=v),
}


@pytest.mark.parametrize("value", [1j, 1e300])
@pytest.mark.parametrize("function", NUMBERS.values(), ids=NUMBERS)
def test_numbers_that_do_not_fit(function, value):
    check_error(function, matrix(), value)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32])
def test_integers_that_do_not_fit(dtype):
    x = matrix().to(dtype)
    for value in (2**40, 1e12):
        check_error(lambda x, v: x.masked_fill(x > 2, v), x, value)
        check_error(lambda x, v: torch.addcmul(x, x, x, value=v), x, value)
    # What a negative number means to unsigned integers is known.
    check(lambda x: torch.sub(x, x, alpha=3), x)
    check(lambda x: x.masked_fill(x > 2, -1), x)


def test_numbers_that_fit():
    for value in (float("inf"), float("nan"), 3e38, 1 + 0j):
        check(lambda x, v: x.masked_fill(x > 2, v), matrix(), value)
    check_error(lambda x: x.masked_fill(x > 2, -1e9), matrix().half())
    check(lambda x: x.pow(1e300), matrix())


# An out= form, the dtypes it wants, and which of its results a function of `out` gets.
OUTPUTS = {
    "kthvalue": (lambda x, out: torch.kthvalue(x, 1, out=out), "fl"),
    "fft": (lambda x, out: torch.fft.fft(x, out=out[0]), "c"),
    "rfft2": (lambda x, out: torch.fft.rfft2(x, out=out[0]), "c"),
    "irfft": (lambda x, out: torch.fft.irfft(x + 0j, out=out[0]), "f"),
    "searchsorted": (lambda x, out: torch.searchsorted(x, x, out=out[0]), "l"),
    "bucketize": (lambda x, out: torch.bucketize(x, x[0], out=out[0]), "l"),
    "histc": (lambda x, out: torch.histc(x, 4, out=out[0]), "f"),
    "log_sigmoid": (lambda x, out: aten.log_sigmoid.out(x, out=out[0]), "f"),
    "batch_norm": (
        lambda x, out: torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5, out=out),
        "fff",
    ),
    "reflection_pad2d": (
        lambda x, out: aten.reflection_pad2d.out(x[None], [1, 1, 1, 1], out=out[0]),
        "f",
    ),
    "im2col": (
        lambda x, out: aten.im2col.out(x[None], [2, 2], [1, 1], [0, 0], [1, 1], out=out[0]),
        "f",
    ),
    "col2im": (
        lambda x, out: aten.col2im.out(
            x.new_ones(4, 4), [3, 3], [2, 2], [1, 1], [0, 0], [1, 1], out=out[0]
        ),
        "f",
    ),
    "binary_cross_entropy": (
        lambda x, out: aten.binary_cross_entropy.out(x / 9, x / 9, None, 1, out=out[0]),
        "f",
    ),
    "nll_loss2d": (
        lambda x, out: aten.nll_loss2d_forward.output(
            x[None, :, None],
            (x[None, :1] > 9).long(),
            None,
            1,
            -100,
            output=out[0],
            total_weight=out[1],
        ),
        "ff",
    ),
    "multi_margin_loss": (
        lambda x, out: aten.multi_margin_loss.out(x, (x[0] > 9).long(), out=out[0]),
        "f",
    ),
    "max_pool3d": (
        lambda x, out: aten.max_pool3d_with_indices.out(
            x[None, None], [1, 2, 2], out=out[0], indices=out[1]
        ),
        "fl",
    ),
    "max_unpool2d": (
        lambda x, out: aten.max_unpool2d.out(
            x[None], (x[None] * 0).long(), [4, 4], out=out[0]
        ),
        "f",
    ),
}  # fmt: skip
DTYPES = {"f": torch.float32, "l": torch.int64, "c": torch.complex64}


def empty(dtypes, device="cpu"):
    return [torch.empty(0, dtype=dtype, device=device) for dtype in dtypes]


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_of_another_device(name):
    function, letters = OUTPUTS[name]
    kind, text = error_text(function, matrix().to(DEVICE), empty(DTYPES[c] for c in letters))
    assert kind is RuntimeError
    # The second of fft with torch 2.15.
    messages = "Expected all tensors to be on the same device", "expects out tensor on device"
    assert any(message in text for message in messages)


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_of_another_dtype(name):
    function, letters = OUTPUTS[name]
    for k in range(len(letters)):
        for wrong in (torch.int16, torch.bool):
            dtypes = [DTYPES[c] for c in letters]
            dtypes[k] = wrong
            check_error(function, matrix(), empty(dtypes))


def test_median_into_another_dtype():
    x = matrix().to(DEVICE)
    with pytest.raises(RuntimeError, match="'indices' to have scalar type Long"):
        torch.median(x, 0, out=empty([torch.float32, torch.int32], DEVICE))
    with pytest.raises(RuntimeError, match="'values' to have the same type"):
        torch.nanmedian(x, 0, out=empty([torch.int64, torch.int64], DEVICE))


def test_kthvalue_into_its_input():
    x, indices = torch.arange(5.0), torch.empty((), dtype=torch.int64)
    check_error(lambda x, i: torch.kthvalue(x, 2, out=(x, i)), x, indices)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_targets_of_margin_losses(dtype):
    check_error(F.multi_margin_loss, matrix(), torch.ones(3, dtype=dtype))
    check_error(F.multilabel_margin_loss, matrix(), torch.ones(3, 3, dtype=dtype))
    weight = torch.ones(3, dtype=torch.float64)
    check_error(lambda x, t, w: F.multi_margin_loss(x, t, weight=w), matrix(),
                torch.ones(3, dtype=torch.int64), weight)  # fmt: skip


def test_dimensions_of_empty_scans():
    for scan in (torch.logcumsumexp, torch.cumsum, torch.cumprod):
        check_error(scan, torch.empty(0, 2), 3)


@pytest.mark.parametrize(
    ("to", "source"), [("webgpu", "webgpu"), ("webgpu", "cpu"), ("cpu", "webgpu")]
)
def test_copies_of_nothing_must_fit(to, source):
    def run(to, source):
        return torch.empty(2, 0, device=to).copy_(torch.ones(3, 1, 1, 1, device=source))

    assert error_text(run, to, source) == error_text(run, "cpu", "cpu")
    assert torch.empty(2, 0, device=to).copy_(torch.empty(1, 0, device=source)).shape == (2, 0)
    assert torch.empty(0, device=to).copy_(torch.ones(1, device=source)).shape == (0,)
