"""The two commands of the language model on the CPU, and what the network and its cache compute."""

import functools
import json

import pytest
import torch
from command_lines import on_cpu
from command_lines import refused as refuse
from llm_network import network
from safetensors.torch import load_file, save_file

from examples.command import EXIT_NOT_LEARNED
from examples.llm import cli, text
from examples.llm.generation import Writer, choose
from examples.llm.model import GPT, GPTDecoder
from examples.llm.modes import Mode
from examples.llm.training import Trainer, learning_rates

SMALL = ("--layers", 1, "--width", 32, "--heads", 2, "--context", 16, "--batch", 8)


command = functools.partial(on_cpu, cli.main)
refused = functools.partial(refuse, cli.main)


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "weights.safetensors"
    cli.save_model(network(), path)
    return path


def test_train_then_generate(tmp_path, capsys):
    path = tmp_path / "new" / "weights.safetensors"
    options = ("--steps", 60, "--require-loss", 3.5, "--weights", path)
    assert command("train", *SMALL, *options) == 0
    out = capsys.readouterr().out
    losses = [float(line.split()[-1]) for line in out.splitlines() if line.startswith("step")]
    assert len(losses) == 10 and losses[-1] < losses[0] - 1
    assert "tokens/s" in out
    assert load_file(path)["embed.weight"].shape == (256, 32)

    options = ("--tokens", 30, "--weights", path)
    assert command("generate", *options) == 0
    captured = capsys.readouterr()
    assert "The " in captured.out and "tokens/s (eager)" in captured.out
    assert "30/30" in captured.err
    assert command("generate", "--stream", *options) == 0
    streamed = capsys.readouterr()
    # Same seed, same text, and no bar in between.
    assert streamed.out.split("first token")[0] == captured.out.split("first token")[0]
    assert "30/30" not in streamed.err


def test_high_loss_is_a_failure(tmp_path, capsys):
    options = ("--steps", 2, "--weights", tmp_path / "weights.safetensors")
    assert command("train", *SMALL, "--require-loss", 1, *options) == EXIT_NOT_LEARNED
    assert "above the required 1.000" in capsys.readouterr().err


def test_text_of_ones_own(tmp_path, capsys):
    path = tmp_path / "own.txt"
    path.write_text("äbc" * 300)
    options = ("--text", path, "--steps", 40, "--weights", tmp_path / "weights.safetensors")
    assert command("train", *SMALL, "--require-loss", 2, *options) == 0
    assert "1140 bytes, 60 held back" in capsys.readouterr().out


def test_embedded_text_is_english():
    corpus = text.load(None)
    assert len(corpus.train) > 200_000
    assert "statement" in bytes(corpus.train.tolist()).decode(errors="replace")


def test_cached_steps_equal_one_pass():
    model = network()
    tokens = torch.randint(0, 256, (1, 16))
    positions = torch.arange(16)
    with torch.no_grad():
        expected = model(tokens, positions)
        caches = model.caches()
        logits = [model(tokens[:, :5], positions[:5], caches)]
        for k in range(5, 16):
            logits.append(model(tokens[:, k : k + 1], positions[k : k + 1], caches))
    torch.testing.assert_close(torch.cat(logits, 1), expected)


def test_a_full_cache_is_the_end_of_the_text():
    """What a layer stores depends on nothing before it if the layer is the first, and rotary
    positions are relative: so the end of the text alone gives the same."""
    model = network(layers=1)
    tokens = torch.randint(0, 256, (1, 50))
    with torch.no_grad():
        caches = model.caches()
        for k in range(50):
            logits = model(tokens[:, k : k + 1], torch.tensor([k]), caches)
        expected = model(tokens[:, -16:], torch.arange(16))[:, -1:]
    torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-4)


def test_a_long_prompt_is_cut():
    prompt = torch.randint(0, 256, (40,))

    def written(part):
        writer = Writer(GPTDecoder(network()), Mode.EAGER, temperature=0, top_k=1)
        return [writer.read(part), *writer.tokens(5)]

    assert written(prompt) == written(prompt[-16:])


def test_choices_have_the_models_probabilities():
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -9.0])
    chosen = choose(logits.expand(20000, 5), temperature=0.8, top_k=3).flatten()
    share = chosen.bincount(minlength=5) / len(chosen)
    expected = torch.cat([(logits[:3] / 0.8).softmax(0), torch.zeros(2)])
    torch.testing.assert_close(share, expected, rtol=0, atol=0.015)
    assert choose(logits[None], 0, 3).tolist() == [[0]]


def test_learning_rates_rise_and_fall():
    rates = learning_rates(1.0, 100)
    assert rates.argmax() in (4, 5) and rates.max() == 1
    assert rates[0] == pytest.approx(0.2) and rates[-1] == pytest.approx(0.1, abs=0.01)


def test_same_seed_same_losses():
    def losses():
        torch.manual_seed(3)
        corpus, model = text.load(None), GPT(1, 32, 2, 16)
        trainer = Trainer(model, corpus.train, steps=3, batch=4, lr=1e-3, seed=5, mode=Mode.EAGER)
        for _ in range(3):
            trainer.step()
        return trainer.mean_loss(3)

    assert losses() == losses()


@pytest.mark.parametrize("keep", [0, 3, 100, 0.5, 0.99])
def test_truncated_weights(weights, capsys, keep):
    data = weights.read_bytes()
    weights.write_bytes(data[: keep if isinstance(keep, int) else int(keep * len(data))])
    assert "not a readable safetensors" in refused(capsys, "generate", "--weights", weights)


@pytest.mark.parametrize(
    "config", [None, "no json", "[1]", '{"layers": 2}', json.dumps(network(1).config), '"a"']
)
def test_weights_of_something_else(weights, capsys, config):
    save_file(load_file(weights), weights, metadata=config and {"config": config})
    assert "another network" in refused(capsys, "generate", "--weights", weights)


def test_what_cannot_be_used(weights, tmp_path, capsys):
    assert "run `train` first" in refused(capsys, "generate", "--weights", tmp_path / "none")
    assert "prompt is empty" in refused(capsys, "generate", "--weights", weights, "--prompt", "")
    assert "is for --model" in refused(capsys, "generate", "--weights", weights, "--chat")
    assert "needs --device webgpu" in refused(capsys, "train", "--mode", "graphed")
    assert "not readable text" in refused(capsys, "train", "--text", tmp_path / "none")
    (tmp_path / "short").write_text("short")
    assert "too short" in refused(capsys, "train", "--text", tmp_path / "short")
    assert "not a multiple" in refused(capsys, "train", "--heads", 5)
    (tmp_path / "file").write_text("")
    options = ("--steps", 1, "--weights", tmp_path / "file" / "weights")
    assert "cannot write" in refused(capsys, "train", *SMALL, *options)


@pytest.mark.parametrize("option", [("--top-k", "0"), ("--temperature", "-1"), ("--mode", "fast")])
def test_options_out_of_range(option, capsys):
    with pytest.raises(SystemExit):
        command("generate", *option)
    assert option[0] in capsys.readouterr().err
