"""The two commands, `train` and `run`, and their options."""

import argparse
import sys
import time
from pathlib import Path

import torch
from tqdm import tqdm

from ..command import (
    DEFAULT,
    EXIT_NOT_LEARNED,
    UsageError,
    describe,
    exit_code,
    one_line,
    open_device,
    positive,
    report_fallbacks,
)
from .art import side_by_side
from .data import Digits, load
from .model import DigitsNet, Trainer, accuracy, predict

# MNIST has 45 times as many images as the embedded set.
EPOCHS = {"without --data": 20, "with it": 2}


def save_weights(model: DigitsNet, path: Path) -> None:
    """CPU tensors only, so that a machine without this device can load the file."""
    state = {name: tensor.cpu() for name, tensor in model.state_dict().items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(state, path)
    except (OSError, RuntimeError) as error:
        raise UsageError(f"cannot write the weights: {one_line(error)}") from error


def load_weights(model: DigitsNet, path: Path, device: torch.device) -> None:
    try:
        state = torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError as error:
        raise UsageError(f"{path} does not exist: run `train` first") from error
    # Damaged bytes can raise anything from the unpickler: IndexError, KeyError, AssertionError...
    except Exception as error:
        raise UsageError(f"{path} is not a readable weight file: {one_line(error)}") from error
    if not isinstance(state, dict):
        raise UsageError(f"{path} does not hold the weights of a network")
    try:
        model.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} holds the weights of another network") from error


def train(args: argparse.Namespace, device: torch.device, digits: Digits) -> int:
    epochs = args.epochs or EPOCHS["with it" if args.data else "without --data"]
    torch.manual_seed(args.seed)
    model = DigitsNet(digits.image_size).to(device)
    trainer = Trainer(model, digits, epochs=epochs, batch=args.batch, lr=args.lr, seed=args.seed)
    start = time.perf_counter()
    with tqdm(total=epochs * trainer.steps_per_epoch, unit="step") as bar:
        for epoch in range(1, epochs + 1):
            loss = trainer.epoch(on_step=bar.update)
            bar.set_postfix(loss=f"{loss:.4f}")
            bar.write(f"epoch {epoch:2d}/{epochs}  loss {loss:.4f}", file=sys.stdout)
    seconds = time.perf_counter() - start
    reached = accuracy(predict(model, digits.test_images), digits.test_labels)
    print(f"trained in {seconds:.1f} s")
    print(f"final loss {loss:.4f}, test accuracy {reached:.2%} ({len(digits.test_labels)} images)")
    report_fallbacks(device)
    save_weights(model, args.weights)
    print(f"weights saved to {args.weights}")
    if reached < args.require_accuracy:
        print(f"error: accuracy below the required {args.require_accuracy:.2%}", file=sys.stderr)
        return EXIT_NOT_LEARNED
    return 0


def run(args: argparse.Namespace, device: torch.device, digits: Digits) -> int:
    model = DigitsNet(digits.image_size).to(device)
    load_weights(model, args.weights, device)
    predicted = predict(model, digits.test_images)
    labels = digits.test_labels.cpu()
    wrong = (predicted != labels).nonzero().flatten().tolist()
    shown = [*range(min(args.show, len(labels)))]
    # The mistakes are the interesting ones: show one where there is one.
    if shown and wrong and wrong[0] not in shown:
        shown[-1] = wrong[0]
    captions = [
        f"{p} {'ok' if p == y else f'WRONG: is {y}'}"
        for p, y in ((predicted[i].item(), labels[i].item()) for i in shown)
    ]
    print(side_by_side([digits.test_images[i, 0].cpu() for i in shown], captions))
    reached = accuracy(predicted, labels)
    print(f"\naccuracy {reached:.2%} on {len(labels)} held-back images, {len(wrong)} wrong")
    report_fallbacks(device)
    return 0


def parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    option = common.add_argument
    option("--device", default="webgpu", help=f"any device that PyTorch knows {DEFAULT}")
    option("--data", type=Path, metavar="DIR", help="MNIST's four IDX files, plain or gzipped")
    option("--weights", type=Path, metavar="FILE", default=Path("digits-weights.pt"), help=DEFAULT)

    top = argparse.ArgumentParser(prog="python -m examples.digits", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)

    learn = commands.add_parser("train", parents=[common], help="train, test, save the weights")
    option = learn.add_argument
    option("--epochs", type=positive, help=" or ".join(f"{n} {k}" for k, n in EPOCHS.items()))
    option("--batch", type=positive, default=64, help=f"images per step {DEFAULT}")
    option("--lr", type=float, default=5e-3, help=f"AdamW's first learning rate {DEFAULT}")
    option("--seed", type=int, default=0, help=f"of weights, batches and dropout {DEFAULT}")
    option("--require-accuracy", type=float, default=0.97, help=f"exit 1 below it {DEFAULT}")
    learn.set_defaults(function=train)

    use = commands.add_parser("run", parents=[common], help="classify the held-back images")
    use.add_argument("--show", type=int, default=5, metavar="N", help=f"images to draw {DEFAULT}")
    use.set_defaults(function=run)
    return top


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)

    def command() -> int:
        device = open_device(args.device)
        print(f"device {describe(device)}")
        digits = load(args.data)
        counts = f"{len(digits.train_labels)} training, {len(digits.test_labels)} held-back images"
        print(f"data   {digits.name}: {counts}")
        return args.function(args, device, digits.to(device))

    return exit_code(command)
