"""LSTM and GRU: layers and cells, forward and gradients."""

import copy

import pytest
import torch
from common import DEVICE, FLOATS, assert_same, check_error, to_device
from torch import nn
from torch.nn.utils import rnn

HALF_TOLERANCES = {
    torch.float32: {},
    torch.float16: {"rtol": 1e-2, "atol": 1e-2},
    torch.bfloat16: {"rtol": 5e-2, "atol": 8e-2},
}


def tensors_of(results):
    """The tensors in nested tuples, packed sequences included."""
    if isinstance(results, torch.Tensor):
        return [results]
    return [t for r in results if r is not None for t in tensors_of(r)]


def run(module, inputs, packed_lengths=None):
    """Results, and gradients of inputs and parameters."""
    if packed_lengths is not None:
        first = rnn.pack_padded_sequence(inputs[0], packed_lengths, enforce_sorted=False)
        results = tensors_of(module(first, *inputs[1:]))
        results = [t for t in results if t.is_floating_point()]
    else:
        results = tensors_of(module(*inputs))
    total = 0
    for one in results:
        # Weights that differ by element: errors cannot cancel.
        weights = torch.linspace(0.5, 1.5, one.numel()).reshape(one.shape)
        total = total + (one * weights.to(one.device, one.dtype)).sum()
    leaves = tensors_of(inputs) + list(module.parameters())
    return [r.detach() for r in results], torch.autograd.grad(total, leaves)


def check_module(module, inputs, packed_lengths=None, **tolerances):
    """The module gives on the device what a copy of it gives on the CPU."""
    for leaf in tensors_of(inputs):
        leaf.requires_grad_()
    moved = copy.deepcopy(module).to(DEVICE)
    actual = run(moved, to_device(inputs), packed_lengths)
    assert_same(actual, run(module, inputs, packed_lengths), **tolerances)


LAYERS = {
    "plain": {},
    "no_bias": {"bias": False},
    "batch_first": {"batch_first": True},
    "bidirectional": {"bidirectional": True},
    "two_layers": {"num_layers": 2, "bidirectional": True, "bias": False},
}


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS.keys())
def test_layer(kind, options):
    check_module(kind(5, 7, **options), (torch.randn(4, 3, 5),))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_initial_state(kind):
    # The state is a view with strides of its own.
    h = torch.randn(3, 2, 7).transpose(0, 1)
    c = torch.randn(7, 3, 2).permute(2, 1, 0)
    state = (h, c) if kind is nn.LSTM else h
    check_module(kind(5, 7, num_layers=2), (torch.randn(4, 3, 5), state))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("batch", [None, 0, 1])
def test_batch(kind, batch):
    size = (4, 5) if batch is None else (4, batch, 5)
    check_module(kind(5, 7), (torch.randn(size),))


@pytest.mark.parametrize("bidirectional", [False, True])
def test_projection(bidirectional):
    module = nn.LSTM(5, 7, num_layers=2, proj_size=3, bidirectional=bidirectional)
    check_module(module, (torch.randn(4, 2, 5),))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_packed_sequence(kind, bidirectional):
    module = kind(5, 7, num_layers=2, bidirectional=bidirectional)
    check_module(module, (torch.randn(6, 3, 5),), packed_lengths=[2, 6, 4])


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", FLOATS)
def test_cell(kind, bias, dtype):
    # 35 elements of a half type: the last word is half full.
    h, c = torch.randn(2, 5, 7).to(dtype).unbind()
    state = (h.clone(), c.clone()) if kind is nn.LSTMCell else h.clone()
    module = kind(3, 7, bias=bias).to(dtype)
    check_module(module, (torch.randn(5, 3).to(dtype), state), **HALF_TOLERANCES[dtype])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_layer(kind, dtype):
    module = kind(5, 300).to(dtype)
    check_module(module, (torch.randn(3, 2, 5).to(dtype),), **HALF_TOLERANCES[dtype])


@pytest.fixture
def silent_fallbacks():
    mode = torch.webgpu.get_fallback_mode()
    torch.webgpu.reset_fallbacks()
    torch.webgpu.set_fallback_mode("silent")
    yield
    torch.webgpu.set_fallback_mode(mode)
    torch.webgpu.reset_fallbacks()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("options", [{}, {"bias": False, "bidirectional": True}])
def test_float64(silent_fallbacks, kind, options):
    # The CPU has no such cells to fall back to: they are composed of operators that do.
    check_module(kind(5, 7, **options).double(), (torch.randn(3, 2, 5, dtype=torch.float64),))
    assert torch.webgpu.fallbacks()


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
def test_complex(kind):
    # Composed too. PyTorch has no gradient of the fused cells for complex numbers.
    module = kind(3, 7, dtype=torch.complex64)
    x = torch.randn(5, 3, dtype=torch.complex64)
    with torch.no_grad():
        assert_same(copy.deepcopy(module).to(DEVICE)(x.to(DEVICE)), module(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("outputs", [(0,), (1,)])
def test_one_gradient_missing(outputs):
    module = nn.LSTMCell(3, 7)
    picked = copy.deepcopy(module)
    x = torch.randn(5, 3)

    def gradients(cell, x):
        results = cell(x)
        return torch.autograd.grad(sum(results[k].sum() for k in outputs), list(cell.parameters()))

    assert_same(gradients(picked.to(DEVICE), x.to(DEVICE)), gradients(module, x))


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
def test_second_derivative(kind):
    module = kind(3, 4)
    x = torch.randn(2, 3)

    def second(cell, x):
        x = x.detach().requires_grad_()
        result = tensors_of(cell(x))[0]
        (first,) = torch.autograd.grad(result.sin().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), [x, *cell.parameters()])

    actual = second(copy.deepcopy(module).to(DEVICE), x.to(DEVICE))
    assert_same(actual, second(module, x))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_dropout(kind):
    # Between the layers; it is off in evaluation, and changes results in training.
    module = kind(5, 7, num_layers=2, dropout=0.5)
    x = torch.randn(4, 3, 5)
    moved = copy.deepcopy(module).to(DEVICE)
    first, second = (moved(x.to(DEVICE))[0] for _ in range(2))
    assert not torch.equal(first, second)
    first.sum().backward()
    assert all(p.grad.isfinite().all() for p in moved.parameters())
    assert_same(moved.eval()(x.to(DEVICE))[0].detach(), module.eval()(x)[0].detach())


def test_strided_gates():
    gates = torch.randn(12, 3, device=DEVICE).t()
    state = torch.randn(3, 3, device=DEVICE).t()
    bias = torch.randn(24, device=DEVICE)[::2]
    lstm = torch.ops.aten._thnn_fused_lstm_cell
    dense = [t.contiguous() for t in (gates, gates, state, bias, bias)]
    assert_same(lstm(gates, gates, state, bias, bias), [t.cpu() for t in lstm(*dense)])


def test_training_learns():
    # The sign of the first element is to be remembered over the sequence.
    torch.manual_seed(1)
    x = torch.randn(4, 32, 1)
    target = (x[0] > 0).float()
    module, head = nn.LSTM(1, 8).to(DEVICE), nn.Linear(8, 1).to(DEVICE)
    optimizer = torch.optim.Adam([*module.parameters(), *head.parameters()], lr=0.1)
    x, target = x.to(DEVICE), target.to(DEVICE)
    losses = []
    for _ in range(30):
        out = head(module(x)[0][-1])
        loss = nn.functional.binary_cross_entropy_with_logits(out, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_errors():
    def cell(x, h, c):
        return torch.ops.aten._thnn_fused_lstm_cell(x, h, c)

    gates, state = torch.randn(3, 8, device=DEVICE), torch.randn(3, 2, device=DEVICE)
    with pytest.raises(RuntimeError, match="same size"):
        cell(gates, gates[:2], state)
    with pytest.raises(RuntimeError, match="to have 6 elements"):
        cell(gates, gates, state[:2])
    with pytest.raises(RuntimeError, match="expected scalar type Float but found Half"):
        cell(gates, gates, state.half())
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        cell(gates.long(), gates.long(), state.long())
    weights = [torch.randn(8, 5), torch.randn(8, 2)]
    check_error(lambda x, h, c, *w: torch.lstm_cell(x, (h, c), *w), torch.randn(3, 4),
                torch.randn(3, 2), torch.randn(3, 2), *weights)  # fmt: skip
