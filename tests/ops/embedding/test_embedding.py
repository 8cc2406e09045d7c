"""Embeddings."""

import pytest
import torch
from common import DEVICE, assert_same, check, check_error, check_gradients


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"scale_grad_by_freq": True}])
def test_embedding(dtype, options):
    weight = torch.randn(10, 6).to(dtype).requires_grad_()
    index = torch.randint(0, 10, (3, 7))
    embed = torch.nn.functional.embedding
    # The CPU rounds after every addition.
    near = {} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    check_gradients(lambda i, w: embed(i, w, **options), index, weight, **near)
    check_gradients(lambda i, w: embed(i.int().t(), w, **options), index, weight, **near)


def test_deterministic_gradient():
    weight = torch.randn(4, 3).requires_grad_()
    torch.use_deterministic_algorithms(True)
    try:
        check_gradients(torch.nn.functional.embedding, torch.randint(0, 4, (50,)), weight)
    finally:
        torch.use_deterministic_algorithms(False)


def test_many_halves_do_not_stall():
    """4096 ones: a running sum kept in bfloat16 would stop at 256."""
    weight = torch.zeros(2, 1, dtype=torch.bfloat16, device="webgpu").requires_grad_()
    index = torch.zeros(4096, dtype=torch.int64, device="webgpu")
    torch.nn.functional.embedding(index, weight).sum().backward()
    assert weight.grad[0].item() == 4096


def test_no_indices():
    weight = torch.randn(4, 3).requires_grad_()
    empty = torch.empty(0, dtype=torch.int64)
    check_gradients(torch.nn.functional.embedding, empty, weight)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 1}, {"include_last_offset": True}])
def test_embedding_bag(mode, options):
    bag = torch.nn.functional.embedding_bag
    weight = torch.randn(9, 5).requires_grad_()
    index = torch.randint(0, 9, (12,))
    offsets = torch.tensor([0, 3, 3, 10, 12])
    check_gradients(lambda i, o, w: bag(i, w, o, mode=mode, **options), index, offsets, weight)
    matrix = {k: v for k, v in options.items() if k == "padding_idx"}
    check_gradients(lambda i, w: bag(i.view(3, 4), w, mode=mode, **matrix), index, weight)


def test_weighted_bags():
    bag = torch.nn.functional.embedding_bag
    weight = torch.randn(9, 5).requires_grad_()
    amounts = torch.randn(6).requires_grad_()
    index, offsets = torch.randint(0, 9, (6,)), torch.tensor([0, 2])
    check_gradients(
        lambda i, o, w, a: bag(i, w, o, mode="sum", per_sample_weights=a),
        index,
        offsets,
        weight,
        amounts,
    )
    check_error(lambda i, o, w: bag(i.view(2, 3), w, o), index, offsets, weight.detach())


def test_bags_scaled_by_frequency():
    """A bag per index is an embedding. (The CPU divides by the counts of other indices.)"""
    index = torch.randint(0, 4, (9,), device=DEVICE)
    weight = torch.randn(4, 3, device=DEVICE, requires_grad=True)
    amounts = torch.randn(9, 3, device=DEVICE)
    gradients = []
    for function in (torch.nn.functional.embedding_bag, torch.nn.functional.embedding):
        columns = index.unsqueeze(1) if function.__name__ == "embedding_bag" else index
        options = {"mode": "sum"} if function.__name__ == "embedding_bag" else {}
        out = function(columns, weight, scale_grad_by_freq=True, **options)
        gradients += torch.autograd.grad((out * amounts).sum(), weight)
    assert_same(gradients[0], gradients[1].cpu())


def test_norm_limit():
    weight = torch.randn(6, 4) * 3
    index = torch.tensor([[1, 3], [3, 0]])
    check(lambda i, w: torch.embedding_renorm_(w.clone(), i, 1.5, 2.0), index, weight)
    check(lambda i, w: torch.embedding_renorm_(w.clone(), i, 1.5, 1.0), index, weight)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 1)])
def test_indices_of_bags(shape):
    weight = torch.randn(9, 5)
    index, offsets = torch.randint(0, 9, shape), torch.tensor([0])
    bag = lambda w, i, o: torch._embedding_bag(w, i, o)[0]  # noqa: E731
    (check if len(shape) == 2 else check_error)(bag, weight, index, offsets)
