"""How many dispatches compiled programs take: of kernels, and of products with what follows."""

import pytest
import torch
import torch.nn.functional as F
from compiled import DEVICE, check, dispatches
from torch import nn

WIDE = {"rtol": 1e-4, "atol": 1e-4}


def randn(*shape):
    return torch.randn(*shape).to(DEVICE)


def chain(x):
    return torch.relu(x.sin() * 2 + 1).sqrt() - x


def norm(x, weight, bias):
    return F.gelu(F.layer_norm(x, (768,), weight, bias))


def loss(logits, target):
    return F.cross_entropy(logits, target, reduction="none")


def layer(x, weight, bias):
    return torch.relu(x @ weight + bias)


def sum_and_product(x, y, z):
    total = x + y.t()
    return total, total.sin() * z


ONE_DISPATCH = {
    "chain": (chain, lambda: [randn(64, 128)]),
    "softmax": (lambda x: torch.softmax(x, -1), lambda: [randn(32, 1000)]),
    "layer norm and GELU": (norm, lambda: [randn(16, 768), randn(768), randn(768)]),
    "cross-entropy": (
        loss,
        lambda: [randn(64, 1000), torch.randint(0, 1000, (64,)).to(DEVICE)],
    ),
    "transposed operand": (sum_and_product, lambda: [randn(64, 64) for _ in range(3)]),
    "product, bias and ReLU": (layer, lambda: [randn(64, 96), randn(96, 128), randn(128)]),
}


@pytest.mark.parametrize("name", ONE_DISPATCH)
def test_one_dispatch(name):
    program, make = ONE_DISPATCH[name]
    args = make()
    assert dispatches(check(program, *args, tolerances=WIDE), *args) == 1


HIDDEN, HEADS, GROUPS, WIDTH, CONTEXT = 64, 4, 2, 16, 32


class Block(nn.Module):
    """A layer of LLaMA, which adds one token to a static cache of keys and values."""

    def __init__(self):
        super().__init__()

        def linear(inputs, outputs):
            return nn.Linear(inputs, outputs, bias=False)

        self.norms = nn.ModuleList([nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)])
        self.query = linear(HIDDEN, HEADS * WIDTH)
        self.key = linear(HIDDEN, GROUPS * WIDTH)
        self.value = linear(HIDDEN, GROUPS * WIDTH)
        self.output = linear(HEADS * WIDTH, HIDDEN)
        self.gate, self.up = linear(HIDDEN, 2 * HIDDEN), linear(HIDDEN, 2 * HIDDEN)
        self.down = linear(2 * HIDDEN, HIDDEN)

    def forward(self, x, keys, values, cos, sin, position):
        def heads(y, count):
            return y.view(1, 1, count, WIDTH).transpose(1, 2)

        def rotated(y):
            first, second = y.chunk(2, -1)
            return y * cos + torch.cat([-second, first], -1) * sin

        y = self.norms[0](x)
        query = rotated(heads(self.query(y), HEADS))
        keys.index_copy_(2, position, rotated(heads(self.key(y), GROUPS)))
        values.index_copy_(2, position, heads(self.value(y), GROUPS))
        mask = torch.arange(CONTEXT, device=x.device) <= position
        seen = F.scaled_dot_product_attention(
            query, keys, values, attn_mask=mask[None, None, None], enable_gqa=True
        )
        x = x + self.output(seen.transpose(1, 2).reshape(1, 1, HEADS * WIDTH))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


@pytest.fixture
def decoding():
    """The block compiled, and its arguments."""
    torch.manual_seed(0)
    cache = (1, GROUPS, CONTEXT, WIDTH)
    args = [randn(1, 1, HIDDEN), randn(*cache), randn(*cache), randn(WIDTH), randn(WIDTH)]
    args.append(torch.tensor([5], device=DEVICE))
    with torch.no_grad():
        yield check(Block().to(DEVICE), *args, tolerances=WIDE), args


def test_decoding(decoding):
    """2 norms; query, key and value, of which the value goes to the cache; rotary positions of
    query and key, of which the key goes there; 3 of attention; what it projects to; gate and up;
    down."""
    block, args = decoding
    assert dispatches(block, *args) <= 10


def test_adamw_over_forty_parameters():
    parameters = [torch.randn(8, 3 + n % 5).to(DEVICE).requires_grad_() for n in range(40)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.AdamW(parameters)
    step = torch.compile(optimizer.step)
    assert dispatches(step) <= 16
