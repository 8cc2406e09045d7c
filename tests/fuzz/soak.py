"""Trains for a long time: memory must stay flat, losses equal to the CPU's. `make soak`."""

import argparse
import copy
import io
import itertools
import resource
import time
import warnings

import numpy as np
import torch
import torch.nn.functional as F
import tqdm
from torch import nn

DEVICE = "webgpu"
# Not 1: the CPU's batch_norm reads the gradient of one image in the wrong order if its strides are
# those of channels_last but for the first (torch 2.13).
BATCHES = (2, 3, 8, 13, 16, 32)
WARM_UP = 1000  # steps, in which pools and caches fill
ROUND = 25  # steps, after which the CPU takes the device's state: differences must not grow
CHECKPOINT = 4 * ROUND
TOLERANCE = 2e-3  # of a loss, relative to it
# Growth in bytes per 1000 steps that counts as none.
LIMITS = {"allocated": 4096, "reserved": 1 << 20, "resident": 4 << 20}


class Images(torch.utils.data.Dataset):
    """Noise with a bright bar, whose place is the class."""

    def __init__(self, count=512):
        generator = torch.Generator().manual_seed(0)
        self.labels = torch.randint(0, 4, (count,), generator=generator)
        self.images = torch.randn(count, 1, 12, 12, generator=generator) / 4
        for image, label in zip(self.images, self.labels, strict=True):
            image[0, 3 * label : 3 * label + 2] += 1

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        parts = (
            self.project(self.before(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        )
        attended = F.scaled_dot_product_attention(*parts)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.widen(self.after(x))))


class Model(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.GroupNorm(2, 8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, width, 3, stride=2, padding=1),
            nn.BatchNorm2d(width),
        )
        self.block = Block(width, 2)
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        x = self.stem(x).flatten(2).mT
        return self.head(self.block(x).mean(1))


def batches():
    """Of varying sizes, without end."""
    data = Images()
    for seed in itertools.count():
        generator = torch.Generator().manual_seed(seed)
        size = BATCHES[seed % len(BATCHES)]
        loader = torch.utils.data.DataLoader(data, size, shuffle=True, generator=generator)
        yield from itertools.islice(loader, 40)


def optimizer_of(model, number):
    if number % 2:
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def train(model, optimizer, images, labels):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss


def reload(model, optimizer):
    """Saves to a file in memory and loads into new objects."""
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    state = torch.load(file, map_location=DEVICE)
    fresh = Model().to(DEVICE)
    fresh.load_state_dict(state["model"])
    again = type(optimizer)(fresh.parameters(), lr=0.1)
    again.load_state_dict(state["optimizer"])
    return fresh, again


def follow(model, optimizer, number):
    """The model and its optimizer on the CPU, in the state that the device's have."""
    twin = Model()
    twin.load_state_dict(model.state_dict())
    other = optimizer_of(twin, number)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    return twin, other


def memory():
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * resource.getpagesize()
    return {
        "allocated": torch.webgpu.memory_allocated(),
        "reserved": torch.webgpu.memory_reserved(),
        "resident": resident,
    }


def slope(samples, name):
    """Bytes per 1000 steps, by least squares over the samples after the warm-up."""
    steps = np.array([step for step, _ in samples], dtype=float)
    values = np.array([found[name] for _, found in samples], dtype=float)
    return np.polyfit(steps, values, 1)[0] * 1000


def soak(minutes, steps=None, progress=True):
    """What was wrong, as a list of lines."""
    torch.manual_seed(0)
    model, wrong, samples, number = Model().to(DEVICE), [], [], 0
    optimizer = optimizer_of(model, number)
    stop = time.monotonic() + 60 * minutes
    for step, (images, labels) in enumerate(
        tqdm.tqdm(batches(), unit="step", disable=not progress)
    ):
        if step % CHECKPOINT == 0 and step:
            model, optimizer = reload(model, optimizer)
            if step % (4 * CHECKPOINT) == 0:  # learnt by then
                number += 1
                model = Model().to(DEVICE)
                optimizer = optimizer_of(model, number)
        if step % ROUND == 0:
            if step >= WARM_UP:
                samples.append((step, memory()))
            if time.monotonic() > stop or step == steps:
                break
            twin, other = follow(model, optimizer, number)
        loss = train(model, optimizer, images.to(DEVICE), labels.to(DEVICE))
        wanted, got = train(twin, other, images, labels).item(), loss.item()
        del loss
        if not abs(got - wanted) <= TOLERANCE * max(abs(wanted), 0.05):
            wrong.append(f"step {step}: loss {got}, on the CPU {wanted}")
            if len(wrong) > 10:
                break
    if len(samples) >= 4:
        for name, limit in LIMITS.items():
            growth = slope(samples, name)
            print(f"{name}: {samples[-1][1][name]} bytes, {growth:+.0f} per 1000 steps")
            if growth > limit:
                wrong.append(f"{name} memory grows by {growth:.0f} bytes per 1000 steps")
    print(f"{step} steps, the last loss {got:.4f}")
    return wrong


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20, metavar="M", help="(%(default)s)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.webgpu.set_fallback_mode("error")

    wrong = soak(options.minutes)
    print("\n".join(wrong) or "flat memory, losses equal to the CPU's")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
