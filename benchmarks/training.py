"""Rows about training: steps, an epoch of the digits example, and the memory of a step."""

import math

import torch
from torch import Tensor

from examples.digits.data import load
from examples.digits.model import DigitsNet, Trainer

from .models import Step, step_on
from .peers.base import Peer
from .peers.torch_peer import TorchPeer
from .registry import Skip, Workload, WrongResult, every_scale, row
from .timing import Measurement

TRAINING = "Training"
MEMORY = "Memory"
MEMORY_STEPS = 3


def torch_device(peer: Peer) -> torch.device:
    if not isinstance(peer, TorchPeer):
        raise Skip("measured for PyTorch's devices only")
    return peer.device


def on_device(peer: TorchPeer, model: torch.nn.Module, loss: Tensor) -> None:
    for tensor in (*model.parameters(), loss):
        peer.require_on_device(tensor)


def step_workload(peer: Peer, network: str, width: int, batch: int) -> Workload:
    device = torch_device(peer)
    step = step_on(device, network, width, batch)

    def verify(loss: Tensor) -> None:
        on_device(peer, step.model, loss)
        # The second loss follows from the first step's gradients: both must agree.
        reference = step_on(torch.device("cpu"), network, width, batch)
        wanted = [reference().item(), reference().item()]
        losses = [loss.item(), step().item()]
        if not all(math.isclose(a, b, rel_tol=5e-3) for a, b in zip(losses, wanted, strict=True)):
            raise WrongResult(f"losses {losses} where the CPU has {wanted}")

    return Workload(step, verify)


@row(
    "MLP step, width {width}, batch {batch}",
    unit="ms",
    group=TRAINING,
    what="forward, backward and AdamW of a 3-layer perceptron",
    tiny=[{"width": 8, "batch": 4}],
    small=[{"width": 128, "batch": 64}],
    full=[{"width": 512, "batch": 128}],
)
def mlp_step(peer, width, batch):
    return step_workload(peer, "mlp", width, batch)


RESNET = {
    "tiny": [{"width": 2, "batch": 2}],
    "small": [{"width": 16, "batch": 4}],
    "full": [{"width": 64, "batch": 128}],
}


@row(
    "ResNet-18 step, width {width}, batch {batch}",
    unit="ms",
    group=TRAINING,
    what="forward, backward and SGD on 32x32 images",
    **RESNET,
)
def resnet_step(peer, width, batch):
    return step_workload(peer, "resnet", width, batch)


@row(
    "digits epoch",
    unit="ms",
    group=TRAINING,
    what="one epoch of examples.digits (1,347 images, batches of 64), with its one readback",
    **every_scale(),
)
def digits_epoch(peer):
    device = torch_device(peer)
    digits = load(None).to(device)
    torch.manual_seed(0)
    model = DigitsNet(digits.image_size).to(device)
    trainer = Trainer(model, digits, epochs=20, batch=64, lr=5e-3, seed=0)

    def verify(loss: float) -> None:
        on_device(peer, model, model.classify.bias)
        # The mean loss of the first epoch is close to ln 10 for a network that does not learn.
        if not (loss < 2.2 and trainer.epoch() < loss):
            raise WrongResult(f"the loss does not fall: {loss}")

    return Workload(trainer.epoch, verify)


@row(
    "reserved / live, ResNet-18 w{width} b{batch}",
    unit="x",
    group=MEMORY,
    what="max_memory_reserved() over max_memory_allocated() of three steps, from an empty cache",
    **RESNET,
)
def memory_overhead(peer, width, batch):
    device = torch_device(peer)
    memory = peer.module
    if not hasattr(memory, "max_memory_reserved"):
        raise Skip("this device keeps no such count")
    step: Step = step_on(device, "resnet", width, batch)
    # The optimizer's state exists from the first step on.
    step()
    peer.synchronize()
    memory.empty_cache()
    memory.reset_peak_memory_stats()
    for _ in range(MEMORY_STEPS):
        on_device(peer, step.model, step())
    peer.synchronize()
    return Measurement(memory.max_memory_reserved() / memory.max_memory_allocated())
