"""The training loop."""

import math

import torch
from torch import Tensor

from .model import GPT
from .modes import Mode, Repeated

WARM_UP = 0.05  # of the steps, in which the learning rate rises
HELD_BACK_WINDOWS = 32


def learning_rates(highest: float, steps: int) -> Tensor:
    """Of each step: a short rise, then half a cosine down to a tenth."""
    rise = max(1, round(WARM_UP * steps))

    def factor(step: int) -> float:
        fall = max(0, step - rise) / max(1, steps - rise)
        return min((step + 1) / rise, 0.55 + 0.45 * math.cos(math.pi * fall))

    return torch.tensor([highest * factor(step) for step in range(steps)])


class Trainer:
    """AdamW over random windows of a text that lies on the model's device.

    Which windows and which learning rate a step uses, it looks up on the device by its number: a
    step takes nothing from the host, so that a graph of it is one replay a step.
    """

    def __init__(
        self, model: GPT, text: Tensor, *, steps: int, batch: int, lr: float, seed: int, mode: Mode
    ) -> None:
        device = text.device
        self.model, self.text = model, text
        self.window = torch.arange(model.context + 1, device=device)
        # Drawn on the CPU so that every device sees the same batches.
        generator = torch.Generator().manual_seed(seed)
        choices = len(text) - model.context
        self.starts = torch.randint(choices, (steps, batch), generator=generator).to(device)
        self.rates = learning_rates(lr, steps).to(device)
        self.rate = self.rates[0].clone()
        self.number = torch.zeros(1, dtype=torch.long, device=device)
        self.total = torch.zeros((), device=device)
        # The step count lies on the device too where PyTorch can have it there. Fused is fewer
        # kernels, which torch.compile makes by itself.
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=self.rate,
            capturable=device.type not in ("cpu", "mps"),
            fused=not mode.compiles,
        )
        self.loss_of = mode.compile(model.loss)
        self.update = mode.compile(self.optimizer.step)
        self.step = Repeated(self._step, mode)

    def _step(self) -> None:
        starts = self.starts.index_select(0, self.number).view(-1, 1)
        self.rate.copy_(self.rates.index_select(0, self.number)[0])
        loss = self.loss_of(self.text[starts + self.window])
        self.optimizer.zero_grad()
        loss.backward()
        self.update()
        # Summed on the device: reading every loss back would make each step wait for it.
        self.total += loss.detach()
        self.number += 1

    def mean_loss(self, steps: int) -> float:
        """Of the last `steps`, which are those since the last call."""
        mean = self.total.item() / steps
        self.total.zero_()
        return mean


@torch.no_grad()
def held_back_loss(model: GPT, text: Tensor) -> float:
    """The mean over windows that lie evenly in the text."""
    window = torch.arange(model.context + 1, device=text.device)
    last = len(text) - model.context - 1
    starts = torch.linspace(0, last, HELD_BACK_WINDOWS).long().to(text.device)
    return model.loss(text[starts[:, None] + window]).item()
