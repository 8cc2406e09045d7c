"""ctc_loss: values, gradients, lengths, repeated labels and impossible targets."""

import pytest
import torch
import torch.nn.functional as F
from common import check, check_error, check_gradients

LOSS = torch.ops.aten._ctc_loss


def problem(steps=12, batches=4, classes=6, longest=5, seed=0):
    torch.manual_seed(seed)
    x = torch.randn(steps, batches, classes).log_softmax(2)
    targets = torch.randint(1, classes, (batches, longest))
    return x, targets


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_padded_targets(reduction, dtype):
    x, targets = problem()
    loss = lambda x, t: F.ctc_loss(  # noqa: E731
        x, t, [12, 11, 9, 12], [5, 3, 0, 1], reduction=reduction
    )
    check_gradients(loss, x.requires_grad_(), targets.to(dtype), rtol=1e-4, atol=1e-5)


def test_concatenated_targets_and_other_blank():
    x, targets = problem()
    lengths = [4, 3, 2, 5]
    joined = torch.cat([row[:n] for row, n in zip(targets, lengths, strict=True)]) - 1
    loss = lambda x, t: F.ctc_loss(  # noqa: E731
        x, t, [12, 11, 10, 12], lengths, blank=5, reduction="none"
    )
    check_gradients(loss, x.requires_grad_(), joined, rtol=1e-4, atol=1e-5)


def test_lengths_as_tensors():
    x, targets = problem()
    lengths = torch.tensor([12, 8, 9, 10]), torch.tensor([5, 2, 3, 4])
    check_gradients(F.ctc_loss, x.requires_grad_(), targets, *lengths, rtol=1e-4, atol=1e-5)


def test_repeated_labels_and_strides():
    x, _ = problem(steps=20, batches=3)
    targets = torch.tensor([[1, 1, 2, 1, 1], [3, 3, 3, 3, 3], [2, 4, 2, 4, 2]])
    loss = lambda x, t: F.ctc_loss(x, t, [20] * 3, [5] * 3, reduction="none")  # noqa: E731
    check_gradients(loss, x.requires_grad_(), targets, rtol=1e-4, atol=1e-5)
    batch_first = x.detach().transpose(0, 1).contiguous().requires_grad_()
    check_gradients(
        lambda x, t: loss(x.transpose(0, 1), t), batch_first, targets, rtol=1e-4, atol=1e-5
    )
    check(lambda x, t: F.ctc_loss(x[:, 0], t[0], (20,), (5,)), x.detach(), targets)


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_impossible_targets(zero_infinity):
    x, targets = problem()
    loss = lambda x, t: LOSS(x, t, [12, 2, 0, 0], [5, 4, 0, 2], 0, zero_infinity)[0]  # noqa: E731
    check_gradients(loss, x.requires_grad_(), targets, rtol=1e-4, atol=1e-5)
    certain = x.detach().clone()
    certain[3, 0, 2:4] = -float("inf")
    check_gradients(loss, certain.requires_grad_(), targets, rtol=1e-4, atol=1e-5)


def test_more_states_than_a_workgroup_has_invocations():
    x, targets = problem(steps=400, batches=2, classes=300, longest=180)
    loss = lambda x, t: F.ctc_loss(x, t, [400, 390], [180, 150])  # noqa: E731
    check_gradients(loss, x.requires_grad_(), targets, rtol=1e-3, atol=1e-5)


def test_errors():
    x, targets = problem()
    full, lengths = [12] * 4, [5] * 4
    check_error(lambda x, t: LOSS(x[0], t, full, lengths), x, targets)
    check_error(lambda x, t: LOSS(x, t, full, lengths, 6), x, targets)
    check_error(lambda x, t: LOSS(x, t, full[:2], lengths), x, targets)
    check_error(lambda x, t: LOSS(x, t, full, lengths[:2]), x, targets)
    check_error(lambda x, t: LOSS(x, t, [13] * 4, lengths), x, targets)
    check_error(lambda x, t: LOSS(x, t, [-1] * 4, lengths), x, targets)
    check_error(lambda x, t: LOSS(x, t, full, [-1] * 4), x, targets)
    check_error(lambda x, t: LOSS(x[:, :0], t[:0], [], []), x, targets)
    check_error(lambda x, t: LOSS(x.half(), t, full, lengths), x, targets)
    for call in (
        lambda x, t: LOSS(x, t, full, [6] * 4),
        lambda x, t: LOSS(x, t[:2], full, lengths),
        lambda x, t: LOSS(x, t.flatten()[:8], full, lengths),
    ):
        with pytest.raises(RuntimeError, match="Expected tensor to have size"):
            call(x.webgpu(), targets.webgpu())
