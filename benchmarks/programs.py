"""The programs that are compared in eager mode, compiled and in graphs; each is one function."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .models import ResNet50, mlp
from .text_models import GPT2, Encoder, QwenDecoder


@dataclass(frozen=True)
class Mode:
    """A way to run a program: as it is, compiled, captured in a graph, or both."""

    name: str
    compiles: bool = False
    graphs: bool = False

    def __call__(self, function: Callable) -> Callable:
        return torch.compile(function) if self.compiles else function


EAGER = Mode("eager")
COMPILED = Mode("compiled", compiles=True)
MODES = (
    EAGER,
    COMPILED,
    Mode("graphed", graphs=True),
    Mode("compiled-graphed", compiles=True, graphs=True),
)


@dataclass(frozen=True)
class Program:
    """`setup(mode, device, **sizes)` returns what runs once, and whose tensors are compared.

    What is to be compiled, `setup` passes through `mode`. It must not read tensors on the host.
    """

    name: str
    setup: Callable[..., Callable[[], list[Tensor]]]
    small: dict[str, int]
    full: dict[str, int]
    tolerance: float = 1e-4
    memory_bound: bool = True


PROGRAMS: list[Program] = []


def program(name: str, *, small: dict[str, int], full: dict[str, int], **options: Any) -> Callable:
    def register(setup: Callable) -> Callable:
        PROGRAMS.append(Program(name, setup, small, full, **options))
        return setup

    return register


def random(device: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """The same numbers on every device: a few from the host, repeated with different factors."""
    generator = torch.Generator().manual_seed(len(shape))
    count = math.prod(shape)
    some = torch.randn(min(count, 1 << 16), generator=generator).to(device)
    rows = -(-count // some.numel())
    factors = torch.linspace(0.5, 1.5, rows, device=device)[:, None]
    return (some * factors).flatten()[:count].view(shape).to(dtype)


def of_inputs(mode: Mode, function: Callable, *inputs: Tensor) -> Callable:
    compiled = mode(function)

    @torch.no_grad()
    def run() -> list[Tensor]:
        return [compiled(*inputs)]

    return run


def ten_steps(x: Tensor) -> Tensor:
    y = x * 2 + 1
    y = y.relu() - 0.5
    y = y * x + x
    y = y.abs() * 0.25
    return (y - x).clamp(-3, 3)


@program("chain of 10, f32", small={"n": 1 << 20}, full={"n": 1 << 24})
def chain(mode, device, n):
    return of_inputs(mode, ten_steps, random(device, n))


@program("chain of 10, short", small={"n": 1 << 12}, full={"n": 1 << 16}, memory_bound=False)
def short_chain(mode, device, n):
    return of_inputs(mode, ten_steps, random(device, n))


@program("chain of 10, f16", small={"n": 1 << 20}, full={"n": 1 << 26}, tolerance=2e-2)
def half_chain(mode, device, n):
    return of_inputs(mode, ten_steps, random(device, n, dtype=torch.float16))


@program("sin, exp, tanh, sigmoid", small={"n": 1 << 20}, full={"n": 1 << 24})
def transcendental(mode, device, n):
    def function(x):
        return x.sin().exp().tanh().sigmoid()

    return of_inputs(mode, function, random(device, n))


@program("bias + GELU", small={"rows": 1024, "n": 1024}, full={"rows": 16384, "n": 4096})
def bias_gelu(mode, device, rows, n):
    return of_inputs(mode, lambda x, b: F.gelu(x + b), random(device, rows, n), random(device, n))


@program("softmax", small={"rows": 1024, "n": 1024}, full={"rows": 8192, "n": 8192})
def softmax(mode, device, rows, n):
    return of_inputs(mode, lambda x: x.softmax(-1), random(device, rows, n))


@program("layer norm + GELU", small={"rows": 1024, "n": 1024}, full={"rows": 8192, "n": 4096})
def norm_gelu(mode, device, rows, n):
    def function(x, weight, bias):
        return F.gelu(F.layer_norm(x, weight.shape, weight, bias))

    inputs = random(device, rows, n), random(device, n), random(device, n)
    return of_inputs(mode, function, *inputs)


@program(
    "RMS norm, f16",
    small={"rows": 1024, "n": 1024},
    full={"rows": 8192, "n": 4096},
    tolerance=2e-2,
)
def rms_norm(mode, device, rows, n):
    def function(x, weight):
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        return (wide * scale).to(x.dtype) * weight

    inputs = random(device, rows, n, dtype=torch.float16), random(device, n, dtype=torch.float16)
    return of_inputs(mode, function, *inputs)


@program("row sum", small={"rows": 1024, "n": 1024}, full={"rows": 8192, "n": 8192}, tolerance=1e-3)
def row_sum(mode, device, rows, n):
    return of_inputs(mode, lambda x: x.sum(1), random(device, rows, n))


@program(
    "column sum", small={"rows": 1024, "n": 1024}, full={"rows": 8192, "n": 8192}, tolerance=1e-3
)
def column_sum(mode, device, rows, n):
    return of_inputs(mode, lambda x: x.sum(0), random(device, rows, n))


@program("transposed add", small={"n": 1024}, full={"n": 8192})
def transposed_add(mode, device, n):
    return of_inputs(mode, lambda x, y: x + y.t(), random(device, n, n), random(device, n, n))


@program(
    "cross entropy, forward and backward",
    small={"rows": 128, "classes": 5025},
    full={"rows": 4096, "classes": 50257},
)
def cross_entropy(mode, device, rows, classes):
    loss_of = mode(F.cross_entropy)
    logits = random(device, rows, classes).requires_grad_()
    target = (torch.arange(rows) * 37 % classes).to(device)

    def run():
        loss = loss_of(logits, target)
        return [loss.detach(), *torch.autograd.grad(loss, logits)]

    return run


# ---- Optimizers and networks ----


def tokens_on(device: str, *shape: int, vocabulary: int) -> Tensor:
    return (torch.arange(math.prod(shape)) * 7919 % vocabulary).view(shape).to(device)


def adamw(mode: Mode, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """In a graph, steps are counted on the device. What is not compiled is best fused then: else
    there are several operators for the count of each tensor."""
    fused = mode.graphs and not mode.compiles
    return torch.optim.AdamW(parameters, lr=1e-4, capturable=mode.graphs, fused=fused or None)


def gpt2_shapes(width: int, vocabulary: int, blocks: int) -> list[tuple[int, ...]]:
    block = [(width,)] * 4 + [(width, 3 * width), (3 * width,), (width, width), (width,)]
    block += [(width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return [(vocabulary, width), (1024, width), *block * blocks, (width,), (width,)]


@program(
    "AdamW, GPT-2's tensors",
    small={"width": 32, "vocabulary": 501, "blocks": 2},
    full={"width": 768, "vocabulary": 50257, "blocks": 12},
    memory_bound=False,
)
def adamw_step(mode, device, width, vocabulary, blocks):
    shapes = gpt2_shapes(width, vocabulary, blocks)
    parameters = [random(device, *shape).requires_grad_() for shape in shapes]
    for parameter in parameters:
        parameter.grad = parameter.detach().sin()
    step = mode(adamw(mode, parameters).step)

    def run():
        step()
        return [parameter.detach() for parameter in parameters[:16]]

    return run


def training(mode: Mode, optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor]) -> Callable:
    """What is compared is the loss, which later steps have from earlier ones."""
    loss_of, update = mode(loss), mode(optimizer.step)

    def run():
        optimizer.zero_grad()
        value = loss_of()
        value.backward()
        update()
        return [value.detach()]

    return run


def classified(model: nn.Module, images: Tensor) -> Callable[[], Tensor]:
    labels = (torch.arange(len(images)) % 10).to(images.device)
    return lambda: F.cross_entropy(model(images), labels)


def network(name: str, **options: Any) -> Callable:
    return program(name, tolerance=1e-3, memory_bound=False, **options)


@network("MLP step", small={"width": 128, "batch": 64}, full={"width": 512, "batch": 128})
def mlp_step(mode, device, width, batch):
    torch.manual_seed(0)
    model = mlp(width).to(device)
    loss = classified(model, random(device, batch, 784))
    return training(mode, adamw(mode, model.parameters()), loss)


MINILM = {"length": 128, "layers": 6, "vocabulary": 30522}
SMALL_MINILM = {"length": 16, "layers": 2, "vocabulary": 305}


@network("MiniLM, batch 1", small={**SMALL_MINILM, "batch": 1}, full={**MINILM, "batch": 1})
@network("MiniLM, batch 32", small={**SMALL_MINILM, "batch": 8}, full={**MINILM, "batch": 32})
def minilm(mode, device, batch, length, layers, vocabulary):
    torch.manual_seed(0)
    model = Encoder(layers, vocabulary).to(device).eval()
    return of_inputs(mode, model, tokens_on(device, batch, length, vocabulary=vocabulary))


@network(
    "GPT-2 small step",
    small={"batch": 1, "length": 32, "layers": 1, "vocabulary": 503},
    full={"batch": 8, "length": 512, "layers": 12, "vocabulary": 50257},
)
def gpt2_step(mode, device, batch, length, layers, vocabulary):
    torch.manual_seed(0)
    model = GPT2(layers, vocabulary).to(device)
    tokens = tokens_on(device, batch, length + 1, vocabulary=vocabulary)
    return training(mode, adamw(mode, model.parameters()), lambda: model.loss(tokens))


@network(
    "ResNet-50 step",
    small={"batch": 4, "side": 64, "width": 8, "classes": 10},
    full={"batch": 32, "side": 224, "width": 64, "classes": 1000},
)
def resnet50_step(mode, device, batch, side, width, classes):
    torch.manual_seed(0)
    model = ResNet50(width, classes).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return training(mode, optimizer, classified(model, random(device, batch, 3, side, side)))


@program(
    "Qwen2.5-0.5B decode, f16",
    small={"length": 64, "layers": 1, "vocabulary": 1519},
    full={"length": 1024, "layers": 24, "vocabulary": 151936},
    tolerance=2e-2,
    memory_bound=False,
)
def qwen_decode(mode, device, length, layers, vocabulary):
    torch.manual_seed(0)
    model = QwenDecoder(layers, vocabulary, length).half().to(device).eval()
    token = tokens_on(device, 1, 1, vocabulary=vocabulary)
    return of_inputs(mode, model, token, torch.tensor([length - 1], device=device))
