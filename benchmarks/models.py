"""The networks whose training steps are measured."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .text_models import Block


def mlp(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(784, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, 10),
    )


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut (He et al., 2015, arXiv:1512.03385, figure 5 left)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18 as it is used on 32x32 images: a 3x3 stem instead of 7x7 and pooling.

    With `width` 64 the standard one (11.2 million parameters); smaller widths for slow devices.
    """

    def __init__(self, width: int, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        blocks: list[nn.Module] = []
        inputs = width
        for stage in range(4):
            for block in range(2):
                outputs, stride = width << stage, 2 if stage > 0 and block == 0 else 1
                blocks.append(BasicBlock(inputs, outputs, stride))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.classify = nn.Linear(inputs, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.blocks(F.relu(self.norm(self.stem(images))))
        return self.classify(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut (the same paper, figure 5 right)."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            *convolved(inputs, width, 1),
            nn.ReLU(),
            *convolved(width, width, 3, stride),
            nn.ReLU(),
            *convolved(width, outputs, 1),
        )
        # A block begins as its shortcut, as is usual for training; else 16 of them make what
        # rounding does to the first steps larger than what is to be compared.
        nn.init.zeros_(self.body[-1].weight)
        changes = stride != 1 or inputs != outputs
        self.shortcut = nn.Sequential(*convolved(inputs, outputs, 1, stride) if changes else ())

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


def convolved(inputs: int, outputs: int, size: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outputs)]


class ResNet50(nn.Module):
    """ResNet-50; the standard one (25.6 million parameters) has width 64 and 1,000 classes."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        layers = [*convolved(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
        inputs = width
        for stage, blocks in enumerate((3, 4, 6, 3)):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(Bottleneck(inputs, width << stage, stride))
                inputs = 4 * width << stage
        self.body = nn.Sequential(*layers)
        self.classify = nn.Linear(inputs, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.classify(self.body(images).mean((2, 3)))


class ViT(nn.Module):
    """With 12 layers of width 768 and patches of 16, ViT-B/16 (arXiv:2010.11929, table 1)."""

    def __init__(
        self,
        layers: int,
        side: int,
        classes: int,
        width: int = 768,
        heads: int = 12,
        patch: int = 16,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, width) * 0.02)
        blocks = (Block(width, heads, gpt=True, causal=False) for _ in range(layers))
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(width)
        self.classify = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1).to(x.dtype), x], 1) + self.places
        return self.classify(self.norm(self.blocks(x)[:, 0]))


class Step:
    """One training step of `model` on one fixed batch; called, it returns the loss."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: type[torch.optim.Optimizer],
        lr: float,
        inputs: Tensor,
        labels: Tensor,
    ) -> None:
        self.model = model
        self.optimizer = optimizer(model.parameters(), lr=lr)
        self.inputs, self.labels = inputs, labels

    def __call__(self) -> Tensor:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(self.inputs), self.labels)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def step_on(device: torch.device, network: str, width: int, batch: int) -> Step:
    """The same weights and batch on every device: both are made on the CPU."""
    torch.manual_seed(0)
    labels = torch.randint(0, 10, (batch,)).to(device)
    if network == "mlp":
        inputs, model = torch.randn(batch, 784), mlp(width)
        return Step(model.to(device), torch.optim.AdamW, 1e-3, inputs.to(device), labels)
    inputs, model = torch.randn(batch, 3, 32, 32), ResNet18(width)
    return Step(model.to(device), torch.optim.SGD, 0.01, inputs.to(device), labels)
