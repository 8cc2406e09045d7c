"""The two commands of the digits example, on the CPU: what they print, save and refuse."""

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from command_lines import on_cpu
from command_lines import refused as refuse
from idx_files import write_set

from examples.command import EXIT_BAD_INPUT, EXIT_INTERRUPTED, EXIT_NOT_LEARNED
from examples.digits import cli
from examples.digits.data import embedded
from examples.digits.model import DigitsNet, Trainer, accuracy, predict

ROOT = Path(__file__).parents[2]


@pytest.fixture
def weights(tmp_path):
    """A well-formed weight file of an untrained network."""
    path = tmp_path / "weights.pt"
    cli.save_weights(DigitsNet(8), path)
    return path


command = functools.partial(on_cpu, cli.main)
refused = functools.partial(refuse, cli.main)


def test_split_is_stratified_and_complete():
    digits = embedded()
    train, test = (labels.bincount() for labels in (digits.train_labels, digits.test_labels))
    assert (train + test).sum() == 1797
    share = test / (train + test)
    assert (share > 0.23).all()
    assert (share < 0.27).all()


def test_split_is_the_same_in_every_process():
    first, second = embedded(), embedded()
    assert torch.equal(first.test_images, second.test_images)


def test_training_learns():
    torch.manual_seed(0)
    digits = embedded()
    model = DigitsNet(digits.image_size)
    trainer = Trainer(model, digits, epochs=5, batch=64, lr=5e-3, seed=0)
    losses = [trainer.epoch() for _ in range(5)]
    assert losses[-1] < 0.3 * losses[0]
    assert accuracy(predict(model, digits.test_images), digits.test_labels) > 0.93


def test_train_then_run(tmp_path, capsys):
    path = tmp_path / "new" / "weights.pt"
    assert command("train", "--weights", path) == 0
    out = capsys.readouterr().out
    assert "test accuracy 9" in out
    assert "epoch 20/20" in out
    state = torch.load(path, weights_only=True)
    assert {tensor.device.type for tensor in state.values()} == {"cpu"}

    assert command("run", "--weights", path, "--show", 3) == 0
    out = capsys.readouterr().out
    assert out.count(" ok") + out.count("WRONG") == 3
    assert "on 450 held-back images" in out


def test_same_seed_same_weights(tmp_path):
    paths = [tmp_path / "a.pt", tmp_path / "b.pt"]
    for path in paths:
        command("train", "--epochs", 1, "--seed", 5, "--weights", path)
    first, second = (torch.load(path, weights_only=True) for path in paths)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_low_accuracy_is_a_failure(tmp_path, capsys):
    path = tmp_path / "weights.pt"
    args = ("--epochs", 1, "--require-accuracy", 0.999, "--weights", path)
    assert command("train", *args) == EXIT_NOT_LEARNED
    assert "below the required 99.90%" in capsys.readouterr().err


def test_idx_files_train_and_run(tmp_path, capsys):
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 10
    write_set(tmp_path, rng.integers(0, 256, (40, 28, 28)), labels, suffix=".gz")
    common = ("--data", tmp_path, "--weights", tmp_path / "weights.pt")
    assert command("train", "--require-accuracy", 0, *common) == 0
    assert command("run", *common) == 0
    assert "on 40 held-back images" in capsys.readouterr().out


@pytest.mark.parametrize("keep", [0, 3, 100, 0.5, 0.99])
def test_truncated_weights(weights, capsys, keep):
    data = weights.read_bytes()
    weights.write_bytes(data[: keep if isinstance(keep, int) else int(keep * len(data))])
    assert "not a readable weight file" in refused(capsys, "run", "--weights", weights)


def test_text_for_weights(weights, capsys):
    weights.write_text("these are not weights\n" * 100)
    assert "not a readable weight file" in refused(capsys, "run", "--weights", weights)


@pytest.mark.parametrize(
    "content", [[1, 2], {"classify.bias": torch.zeros(10)}, {"a": 1}, DigitsNet(28).state_dict()]
)
def test_weights_of_something_else(weights, capsys, content):
    torch.save(content, weights)
    assert "weights of a" in refused(capsys, "run", "--weights", weights)


def test_missing_weights(tmp_path, capsys):
    assert "run `train` first" in refused(capsys, "run", "--weights", tmp_path / "none.pt")


def test_unwritable_weights(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "weights.pt"
    err = refused(capsys, "train", "--epochs", 1, "--weights", path)
    assert "cannot write the weights" in err


def test_missing_data(tmp_path, capsys):
    assert "train-images" in refused(capsys, "train", "--data", tmp_path)


def test_unknown_device_shows_pytorchs_reason(capsys):
    assert cli.main(["run", "--device", "abacus"]) == EXIT_BAD_INPUT
    assert "abacus" in capsys.readouterr().err


def test_interrupt_exits_130(tmp_path):
    args = ["train", "--device", "cpu", "--epochs", "100000", "--weights", tmp_path / "w.pt"]
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "examples.digits", *map(str, args)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that starts the tests in the background has them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        # The first epoch's line says that training is under way.
        while not process.stdout.readline().startswith("epoch"):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == EXIT_INTERRUPTED
    assert "Traceback" not in err
