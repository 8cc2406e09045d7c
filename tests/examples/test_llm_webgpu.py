"""The language model on the device: its modes agree, and a step asks the host for nothing."""

import pytest
import torch
from llm_network import network

from examples.llm import cli
from examples.llm.generation import Writer
from examples.llm.model import GPT, GPTDecoder
from examples.llm.modes import Mode
from examples.llm.text import encode, load
from examples.llm.training import Trainer

PROMPT = encode("The ")


def trainer_on(device, mode):
    torch._dynamo.reset()
    torch.manual_seed(0)
    text = load(None).train.to(device)
    model = GPT(1, 32, 2, 16).to(device)
    return Trainer(model, text, steps=10, batch=8, lr=1e-2, seed=0, mode=mode)


def writer_on(device, mode, temperature=0.0):
    torch._dynamo.reset()
    return Writer(GPTDecoder(network(1).to(device)), mode, temperature=temperature, top_k=20)


def written(writer, count=40):
    return [writer.read(PROMPT), *writer.tokens(count)]


def handed_over(function):
    """How many times `function` made the device wait for the host, and gave it something."""
    before = torch.webgpu.stats()
    function()
    after = torch.webgpu.stats()
    return tuple(after[name] - before[name] for name in ("readbacks", "uploads"))


def uploads_of(mode, steps):
    """A replay may upload its parameters, such as the place in a sequence of random numbers."""
    return range(steps + 1) if mode.graphs else range(1)


def test_the_modes_write_the_same_text():
    expected = written(writer_on("cpu", Mode.EAGER))
    assert len(set(expected)) > 3
    # More than the cache holds, and more than runs before a capture.
    assert {mode: written(writer_on("webgpu", mode)) for mode in Mode} == dict.fromkeys(
        Mode, expected
    )


@pytest.mark.parametrize("mode", list(Mode))
def test_only_the_token_is_read(mode):
    writer = writer_on("webgpu", mode, temperature=1.0)
    written(writer, 4)
    readbacks, uploads = handed_over(lambda: list(writer.tokens(10)))
    assert readbacks == 10 and uploads in uploads_of(mode, 10)


def test_graphs_draw_what_eager_steps_draw():
    expected = written(writer_on("webgpu", Mode.EAGER, temperature=1.0))
    assert written(writer_on("webgpu", Mode.GRAPHED, temperature=1.0)) == expected
    assert len(set(expected)) > 5


@pytest.mark.parametrize("mode", list(Mode))
def test_training(mode):
    """The losses of the CPU, and no step that waits for it or takes anything from it."""
    expected, trainer = trainer_on("cpu", Mode.EAGER), trainer_on("webgpu", mode)

    def steps(one, count):
        for _ in range(count):
            one.step()

    steps(expected, 10)
    steps(trainer, 4)
    readbacks, uploads = handed_over(lambda: steps(trainer, 6))
    assert readbacks == 0 and uploads in uploads_of(mode, 6)
    assert trainer.mean_loss(10) == pytest.approx(expected.mean_loss(10), rel=1e-3)


def test_commands(tmp_path, capsys):
    torch.webgpu.reset_fallbacks()
    path = str(tmp_path / "weights.safetensors")
    sizes = ["--layers", "1", "--width", "32", "--context", "16", "--batch", "8"]
    common = ["--weights", path, "--mode", "graphed"]
    assert cli.main(["train", *common, *sizes, "--steps", "60", "--require-loss", "3.5"]) == 0
    assert cli.main(["generate", *common, "--tokens", "20"]) == 0
    out = capsys.readouterr().out
    assert "tokens/s (graphed)" in out
    assert "ran on the CPU" not in out
