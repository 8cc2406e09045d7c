"""The network, and the two loops around it."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .data import Digits


class DigitsNet(nn.Module):
    """Two convolutions and a linear layer: 9,930 parameters for 8x8 images.

    Small on purpose: on a software GPU each dispatch and each pipeline has its price.
    """

    def __init__(self, image_size: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        # 8x8 digits lose too much when pooled between the convolutions; MNIST's do not.
        self.pool_early = image_size >= 16
        side = image_size // (4 if self.pool_early else 2)
        self.dropout = nn.Dropout(0.25)
        self.classify = nn.Linear(32 * side * side, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.conv1(images))
        if self.pool_early:
            x = F.max_pool2d(x, 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.classify(self.dropout(x.flatten(1)))


class Trainer:
    """AdamW over a data set whose tensors already lie on the model's device."""

    def __init__(
        self, model: nn.Module, digits: Digits, *, epochs: int, batch: int, lr: float, seed: int
    ) -> None:
        self.model = model
        self.batch = batch
        self.images, self.labels = digits.train_images, digits.train_labels
        self.steps_per_epoch = -(-len(self.labels) // batch)
        self.generator = torch.Generator().manual_seed(seed)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
            self.optimizer, max(1, epochs * self.steps_per_epoch)
        )

    def epoch(self, on_step: Callable[[], object] = lambda: None) -> float:
        """One pass over the shuffled training images; returns the mean loss."""
        self.model.train()
        count = len(self.labels)
        # Drawn on the CPU so that every device sees the same batches; gathered on the device.
        order = torch.randperm(count, generator=self.generator).to(self.labels.device)
        total = torch.zeros((), device=self.labels.device)
        for indices in order.split(self.batch):
            loss = F.cross_entropy(self.model(self.images[indices]), self.labels[indices])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            # Summed on the device: reading every loss back would make each step wait for it.
            total += loss.detach() * len(indices)
            on_step()
        return total.item() / count


@torch.no_grad()
def predict(model: nn.Module, images: Tensor, batch: int = 512) -> Tensor:
    """The predicted digit of each image, on the CPU."""
    model.eval()
    return torch.cat([model(part).argmax(1).cpu() for part in images.split(batch)])


def accuracy(predicted: Tensor, labels: Tensor) -> float:
    return (predicted == labels.cpu()).float().mean().item()
