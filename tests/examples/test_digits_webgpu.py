"""The digits example on the device: it learns what the CPU learns, and its weights travel."""

import pytest
import torch

from examples.digits import cli
from examples.digits.data import embedded
from examples.digits.model import DigitsNet, Trainer, predict


def trained(device, epochs):
    """The losses and the network, without dropout: its random bits differ between devices."""
    torch.manual_seed(0)
    digits = embedded().to(device)
    model = DigitsNet(digits.image_size).to(device)
    model.dropout.p = 0.0
    trainer = Trainer(model, digits, epochs=epochs, batch=64, lr=1e-3, seed=0)
    return [trainer.epoch() for _ in range(epochs)], predict(model, digits.test_images)


def test_learns_as_the_cpu_does():
    losses, predicted = trained("webgpu", 2)
    wanted_losses, wanted = trained("cpu", 2)
    assert losses == pytest.approx(wanted_losses, rel=1e-2)
    assert (predicted == wanted).float().mean() > 0.99


def test_weights_travel(tmp_path, capsys):
    torch.webgpu.reset_fallbacks()  # those of other tests are not the example's
    path = tmp_path / "weights.pt"
    options = ["--weights", str(path)]
    assert cli.main(["train", "--epochs", "6", "--require-accuracy", "0.9", *options]) == 0
    out = capsys.readouterr().out
    assert out.startswith("device webgpu: ")
    assert "ran on the CPU" not in out

    accuracy = []
    for device in ("webgpu", "cpu"):
        assert cli.main(["run", "--device", device, *options]) == 0
        out = capsys.readouterr().out
        accuracy.append(float(out.split("accuracy ")[1].split("%")[0]))
    # One image of 450 may fall to the other side of a tie.
    assert accuracy[0] == pytest.approx(accuracy[1], abs=0.3)
