"""Losses, their reductions and gradients."""

import pytest
import torch
import torch.nn.functional as F
from common import DEVICE, FLOATS, check, check_error, check_gradients, to_device

REDUCTIONS = ("none", "mean", "sum")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(7, 5), (5,), (3, 5, 4, 6), (3, 5, 4), (2, 5, 2, 3, 2)])
def test_nll_loss(shape, reduction):
    x = torch.randn(shape, requires_grad=True)
    classes = 5
    label = torch.randint(classes, shape[:1] + shape[2:] if len(shape) > 1 else ())
    weight = torch.rand(classes)
    for options in ({}, {"ignore_index": 2}):
        check_gradients(
            lambda t, y, o=options: F.nll_loss(t, y, reduction=reduction, **o), x, label
        )
    check_gradients(
        lambda t, y, w: F.nll_loss(t, y, w, ignore_index=1, reduction=reduction), x, label, weight
    )
    function = torch.ops.aten.nll_loss_forward if len(shape) <= 2 else None
    if function is not None:
        check(
            lambda t, y: function(t, y, None, REDUCTIONS.index(reduction), -100), x.detach(), label
        )


@pytest.mark.parametrize("dtype", FLOATS)
def test_nll_loss_dtypes(dtype):
    x = torch.randn(6, 5).to(dtype).requires_grad_()
    label = torch.randint(5, (6,))
    tolerance = {"rtol": 1e-2, "atol": 1e-2} if dtype != torch.float32 else {}
    for reduction in REDUCTIONS:
        check_gradients(
            lambda t, y, r=reduction: F.nll_loss(t, y, reduction=r), x, label, **tolerance
        )
    check(lambda t, y: F.nll_loss(t, y), x.detach(), label.to(torch.uint8), **tolerance)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_nll_loss_of_many(reduction):
    """More terms than one workgroup sums up."""
    x = torch.randn(2, 3, 100, 120, requires_grad=True)
    label = torch.randint(3, (2, 100, 120))
    check_gradients(
        lambda t, y, w: F.nll_loss(t, y, w, ignore_index=0, reduction=reduction),
        x,
        label,
        torch.rand(3),
        rtol=1e-5,
        atol=1e-5,
    )


def test_nll_loss_strides_and_nothing():
    x = torch.randn(4, 5, 6, 8)[1:, ..., ::2].requires_grad_()
    label = torch.randint(5, (6, 3, 4)).transpose(0, 1)
    check_gradients(lambda t, y: F.nll_loss(t, y), x, label)

    def channels_last(t, y):  # the CPU's gradient takes contiguous inputs only
        if t.device.type == "webgpu":
            t = t.contiguous(memory_format=torch.channels_last)
        return F.nll_loss(t, y)

    check_gradients(channels_last, x, label)
    for reduction in REDUCTIONS:
        empty = torch.empty(0, 4, requires_grad=True)
        none = torch.empty(0, dtype=torch.int64)
        check_gradients(lambda t, y, r=reduction: F.nll_loss(t, y, reduction=r), empty, none)
    check(lambda t, y: F.nll_loss(t, y, ignore_index=1), torch.randn(3, 2), torch.ones(3).long())


@pytest.mark.parametrize("bad", [-1, 5, 2**40])
@pytest.mark.parametrize("shape", [(4,), (4, 2, 2)])
def test_target_out_of_bounds(shape, bad):
    label = torch.zeros(shape, dtype=torch.int64)
    label.view(-1)[1] = bad
    x = torch.randn(4, 5, *shape[1:])
    F.nll_loss(*to_device([x, label]))
    with pytest.raises(IndexError, match=r"nll_loss.*out of bounds"):
        torch.webgpu.synchronize()
    torch.webgpu.synchronize()  # reported once


def test_nll_loss_errors():
    x = torch.randn(4, 5)
    check_error(lambda t, y: F.nll_loss(t, y), x, torch.zeros(3, dtype=torch.int64))
    check_error(lambda t, y: F.nll_loss(t, y), x, torch.zeros(4, dtype=torch.int32))
    check_error(
        lambda t, y: F.nll_loss(t, y, torch.ones(2, device=t.device)), x, torch.zeros(4).long()
    )
    check_error(lambda t, y: F.nll_loss(t, y), torch.randn(2, 5, 3, 3), torch.zeros(2, 3, 2).long())


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy(reduction):
    x = torch.rand(4, 5).requires_grad_()
    target = torch.rand(4, 5)
    check_gradients(lambda t, y: F.binary_cross_entropy(t, y, reduction=reduction), x, target)
    check_gradients(
        lambda t, y, w: F.binary_cross_entropy(t, y, w, reduction=reduction),
        x,
        target,
        torch.rand(5),
    )
    edge = torch.tensor([0.0, 1.0, 0.0, 1.0])
    label = torch.tensor([0.0, 1.0, 1.0, 0.0])
    check(lambda t, y: F.binary_cross_entropy(t, y, reduction=reduction), edge, label)


def test_binary_cross_entropy_keeps_strides():
    p, t = torch.rand(5, 4).mT, torch.ones(4, 5)
    losses = F.binary_cross_entropy(to_device(p), to_device(t), reduction="none")
    assert losses.stride() == F.binary_cross_entropy(p, t, reduction="none").stride() == (1, 4)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(6, 5), (5,)])
def test_margin_losses(shape, reduction):
    x = torch.randn(shape, requires_grad=True)
    label = torch.randint(5, shape[:-1])
    for options in ({}, {"p": 2, "margin": 0.7}):
        check_gradients(
            lambda t, y, o=options: F.multi_margin_loss(t, y, reduction=reduction, **o), x, label
        )
    check_gradients(
        lambda t, y, w: F.multi_margin_loss(t, y, weight=w, reduction=reduction),
        x,
        label,
        torch.rand(5),
    )
    labels = torch.randint(-1, 5, shape)  # with repetitions and classes behind the end of the list
    function = lambda t, y: F.multilabel_margin_loss(t, y, reduction=reduction)  # noqa: E731
    check_gradients(function, x, labels)
    check(
        lambda t, y: torch.ops.aten.multilabel_margin_loss_forward(t, y, 1)[1], x.detach(), labels
    )


COMPOSITE = {
    "mse_loss": {},
    "l1_loss": {},
    "smooth_l1_loss": {"beta": 0.5},
    "huber_loss": {"delta": 0.5},
    "soft_margin_loss": {},
    "binary_cross_entropy_with_logits": {},
    "kl_div": {},
    "poisson_nll_loss": {},
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", COMPOSITE)
def test_losses_of_shared_pieces(name, reduction):
    function = getattr(F, name)
    options = COMPOSITE[name] | {"reduction": reduction}
    x = torch.randn(3, 4, requires_grad=True)
    target = torch.rand(3, 4).round() if "margin" in name else torch.rand(3, 4)
    check_gradients(lambda t, y: function(t, y, **options), x, target)


@pytest.mark.parametrize("wrong", [1.5, -0.1, float("nan")])
@pytest.mark.parametrize("which", ["input", "target"])
def test_binary_cross_entropy_refuses_what_is_no_probability(wrong, which):
    values = {"input": torch.rand(300), "target": torch.rand(300)}
    values[which][211] = wrong
    with pytest.raises(RuntimeError, match=f"all elements of {which} should be between 0 and 1"):
        F.binary_cross_entropy(values["input"].webgpu(), values["target"].webgpu()).item()


def test_assert_async():
    torch._assert_async(torch.tensor(True).webgpu())
    torch._assert_async(torch.tensor([2.5]).webgpu(), "not told")
    torch.webgpu.synchronize()
    torch._assert_async(torch.tensor(0).webgpu(), "told later")
    with pytest.raises(RuntimeError, match="told later"):
        torch.webgpu.synchronize()
    check_error(torch._assert_async, torch.ones(2))
    check_error(torch._assert_async, torch.empty(0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_class_weights_of_another_dtype(dtype):
    with pytest.raises(RuntimeError, match="expected scalar type Float but found"):
        F.nll_loss(
            torch.randn(2, 3, device=DEVICE),
            torch.tensor([0, 2], device=DEVICE),
            torch.ones(3, dtype=dtype, device=DEVICE),
        )
