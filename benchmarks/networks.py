"""Rows about networks that people train and run: training steps, inference and generation."""

import importlib.util
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .models import ResNet50, ViT
from .operators import SHORT, expect
from .registry import Skip, Workload, WrongResult, row
from .text_models import GPT2, Encoder, Llama
from .training import on_device, torch_device

NETWORKS = "Training steps of networks"
INFERENCE = "Inference"
# Between the first loss and the CPU's in float32, relative.
LOSS_TOLERANCE = {"float32": 1e-3, "float16": 1e-2, "bfloat16": 2e-2}
STEPS_TO_LEARN = 5
Loss = Callable[[], Tensor]


def tokens(*shape: int, vocabulary: int) -> Tensor:
    return torch.arange(math.prod(shape)).mul(7919).remainder(vocabulary).view(shape)


def of_tokens(
    model: nn.Module, batch: int, length: int, vocabulary: int
) -> tuple[nn.Module, tuple]:
    return model, (tokens(batch, length + 1, vocabulary=vocabulary),)


def of_images(model: nn.Module, batch: int, side: int, classes: int) -> tuple[nn.Module, tuple]:
    return model, (torch.randn(batch, 3, side, side), torch.arange(batch) % classes)


def resnet50(batch: int, side: int, width: int, classes: int):
    return of_images(ResNet50(width, classes), batch, side, classes)


def vit(batch: int, side: int, layers: int, classes: int):
    return of_images(ViT(layers, side, classes), batch, side, classes)


def gpt2(batch: int, length: int, layers: int, vocabulary: int):
    return of_tokens(GPT2(layers, vocabulary), batch, length, vocabulary)


def llama(batch: int, length: int, layers: int, vocabulary: int):
    return of_tokens(Llama(layers, vocabulary), batch, length, vocabulary)


def loss_of(model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    if len(inputs) == 1:
        return model.loss(*inputs)
    images, labels = inputs
    return F.cross_entropy(model(images), labels)


def training_row(name: str, build: Callable, *dtypes: str, tiny, small, full) -> None:
    """Rows of a network in float32 or, with autocast, in narrower numbers."""
    for dtype in dtypes:
        precision = "f32" if dtype == "float32" else f"AMP {SHORT[dtype]}"

        @row(
            f"{name}, {precision}",
            unit="ms",
            group=NETWORKS,
            what="forward, backward and fused AdamW; AMP: autocast, for float16 with GradScaler",
            tiny=[{**tiny, "dtype": dtype}],
            small=[{**small, "dtype": dtype}],
            full=[{**full, "dtype": dtype}],
        )
        def step(peer, dtype, **sizes):
            return training(peer, build, dtype, sizes)


def training(peer, build: Callable, dtype: str, sizes: dict[str, int]) -> Workload:
    device = torch_device(peer)
    torch.manual_seed(0)
    model, inputs = build(**sizes)
    with torch.no_grad():
        # The state of batch norms is the model's own afterwards as well: it does not matter here.
        wanted = loss_of(model, inputs).item()
    model.to(device)
    inputs = tuple(x.to(device) for x in inputs)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    scaler = torch.amp.GradScaler(device.type, enabled=dtype == "float16")
    narrow = None if dtype == "float32" else getattr(torch, dtype)

    def step() -> Tensor:
        optimizer.zero_grad()
        with torch.autocast(device.type, narrow, enabled=narrow is not None):
            loss = loss_of(model, inputs)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    def verify(loss: Tensor) -> None:
        on_device(peer, model, loss)
        first = loss.item()
        if not math.isclose(first, wanted, rel_tol=LOSS_TOLERANCE[dtype]):
            raise WrongResult(f"the loss is {first} where the CPU has {wanted}")
        for _ in range(STEPS_TO_LEARN):
            loss = step()
        if not loss.item() < first:
            raise WrongResult(f"the loss does not fall: {first}, then {loss.item()}")

    return Workload(step, verify)


training_row(
    "ResNet-50 b{batch}",
    resnet50,
    "float32",
    "float16",
    tiny={"batch": 2, "side": 32, "width": 2, "classes": 2},
    small={"batch": 4, "side": 64, "width": 8, "classes": 10},
    full={"batch": 32, "side": 224, "width": 64, "classes": 1000},
)
training_row(
    "GPT-2 small {batch}x{length}",
    gpt2,
    "float32",
    "bfloat16",
    "float16",
    tiny={"batch": 1, "length": 4, "layers": 1, "vocabulary": 11},
    small={"batch": 1, "length": 32, "layers": 1, "vocabulary": 503},
    full={"batch": 8, "length": 512, "layers": 12, "vocabulary": 50257},
)
training_row(
    "LLaMA of 219M {batch}x{length}",
    llama,
    "bfloat16",
    tiny={"batch": 1, "length": 4, "layers": 1, "vocabulary": 11},
    small={"batch": 1, "length": 32, "layers": 1, "vocabulary": 503},
    full={"batch": 4, "length": 1024, "layers": 12, "vocabulary": 32000},
)
training_row(
    "ViT-B/16 b{batch}",
    vit,
    "float16",
    tiny={"batch": 1, "side": 32, "layers": 1, "classes": 2},
    small={"batch": 1, "side": 64, "layers": 1, "classes": 10},
    full={"batch": 16, "side": 224, "layers": 12, "classes": 1000},
)


def inference_row(dtype: str, *batches: int) -> None:
    @row(
        f"MiniLM forward b{{batch}}, {SHORT[dtype]}",
        unit="ms",
        group=INFERENCE,
        what="6 layers of width 384 on 128 tokens",
        tiny=[{"batch": 2, "length": 4, "layers": 1, "vocabulary": 11}],
        small=[{"batch": b, "length": 16, "layers": 2, "vocabulary": 305} for b in batches],
        full=[{"batch": b, "length": 128, "layers": 6, "vocabulary": 30522} for b in batches],
    )
    def minilm(peer, batch, length, layers, vocabulary):
        device = torch_device(peer)
        torch.manual_seed(0)
        model = Encoder(layers, vocabulary).eval().requires_grad_(False)
        words = tokens(batch, length, vocabulary=vocabulary)
        wanted = model(words).numpy()
        model = model.to(device, getattr(torch, dtype))
        words = words.to(device)

        def verify(output: Tensor) -> None:
            peer.require_on_device(output)
            expect(output.cpu().float().numpy(), wanted, 1e-4 if dtype == "float32" else 2e-2)

        return Workload(lambda: model(words), verify)


inference_row("float32", 1, 32)
inference_row("float16", 32)


@row(
    "Qwen2.5-0.5B generate, f16",
    unit="tokens/s",
    group=INFERENCE,
    what="greedy generation by transformers' own loop, random weights of the shape",
    tiny=[{"layers": 1, "width": 28, "inner": 8, "vocabulary": 11, "prompt": 3, "new": 2}],
    small=[{"layers": 2, "width": 112, "inner": 128, "vocabulary": 500, "prompt": 8, "new": 8}],
    full=[
        {
            "layers": 24,
            "width": 896,
            "inner": 4864,
            "vocabulary": 151936,
            "prompt": 32,
            "new": 64,
        }
    ],
)
def generate(peer, layers, width, inner, vocabulary, prompt, new):
    device = torch_device(peer)
    if importlib.util.find_spec("transformers") is None:
        raise Skip("no module transformers")
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=14,
        num_key_value_heads=2,
        vocab_size=vocabulary,
        tie_word_embeddings=True,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = Qwen2ForCausalLM(config).eval().requires_grad_(False)
    words = tokens(1, prompt, vocabulary=vocabulary)
    wanted = model(words).logits.numpy()
    model = model.to(device, torch.float16)
    words = words.to(device)
    seen = torch.ones_like(words)

    def run() -> Tensor:
        return model.generate(words, attention_mask=seen, do_sample=False, max_new_tokens=new)

    def verify(output: Tensor) -> None:
        peer.require_on_device(output)
        if output.shape != (1, prompt + new):
            raise WrongResult(f"{output.shape[1] - prompt} tokens, not {new}")
        # Which token is the likeliest is a matter of rounding where weights are random.
        expect(model(words).logits.cpu().float().numpy(), wanted, 2e-2)

    return Workload(run, verify, new)
