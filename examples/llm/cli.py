"""The two commands, `train` and `generate`, and their options."""

import argparse
import json
import sys
import time
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
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
from .generation import Writer
from .model import GPT, GPTDecoder
from .modes import Mode, Repeated
from .pretrained import DTYPES, PretrainedDecoder, load_pretrained, stops
from .text import Bytes, load
from .training import Trainer, held_back_loss

REPORTS = 10
STEPS_TO_WARM_UP = Repeated.RUNS_BEFORE_CAPTURE + 1
CONFIG = "config"  # the name in the file's metadata


def save_model(model: GPT, path: Path) -> None:
    """A safetensors file, with the sizes of the network in its metadata."""
    state = {name: tensor.cpu() for name, tensor in model.state_dict().items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(state, path, metadata={CONFIG: json.dumps(model.config)})
    except (OSError, SafetensorError) as error:
        raise UsageError(f"cannot write the weights: {one_line(error)}") from error


def load_model(path: Path, device: torch.device) -> GPT:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise UsageError(f"{path} does not exist: run `train` first") from error
    except (OSError, SafetensorError) as error:
        raise UsageError(f"{path} is not a readable safetensors file: {one_line(error)}") from error
    try:
        model = GPT(**json.loads(metadata[CONFIG]))
        model.load_state_dict(state)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UsageError(f"{path} holds the weights of another network") from error
    return model.to(device)


def train(args: argparse.Namespace, device: torch.device) -> int:
    corpus = load(args.text)
    print(f"text   {corpus.name}: {len(corpus.train)} bytes, {len(corpus.held_back)} held back")
    if len(corpus.held_back) <= args.context:
        raise UsageError(f"{corpus.name} is too short for a context of {args.context}")
    corpus = corpus.to(device)
    torch.manual_seed(args.seed)
    try:
        model = GPT(args.layers, args.width, args.heads, args.context).to(device)
    except ValueError as error:  # the sizes do not fit each other
        raise UsageError(str(error)) from error
    parameters = sum(p.numel() for p in model.parameters())
    print(f"model  {parameters} parameters, {args.mode.value}")
    trainer = Trainer(
        model,
        corpus.train,
        steps=args.steps,
        batch=args.batch,
        lr=args.lr,
        seed=args.seed,
        mode=args.mode,
    )
    start = warm = time.perf_counter()
    every = -(-args.steps // REPORTS)
    with tqdm(total=args.steps, unit="step") as bar:
        for step in range(1, args.steps + 1):
            trainer.step()
            bar.update()
            if step % every == 0 or step == args.steps:
                loss = trainer.mean_loss((step - 1) % every + 1)
                bar.set_postfix(loss=f"{loss:.3f}")
                bar.write(f"step {step:4d}/{args.steps}  loss {loss:.3f}", file=sys.stdout)
            if step == every:
                warm = time.perf_counter()
    now = time.perf_counter()
    per_second = (args.steps - every) * args.batch * args.context / max(now - warm, 1e-9)
    print(f"trained in {now - start:.1f} s, after step {every} {per_second:.0f} tokens/s")
    reached = held_back_loss(model, corpus.held_back)
    print(f"loss on the held-back text {reached:.3f}")
    report_fallbacks(device)
    save_model(model, args.weights)
    print(f"weights saved to {args.weights}")
    if not reached <= args.require_loss:  # a NaN is above it too
        print(f"error: loss above the required {args.require_loss:.3f}", file=sys.stderr)
        return EXIT_NOT_LEARNED
    return 0


def generate(args: argparse.Namespace, device: torch.device) -> int:
    if not args.prompt:
        raise UsageError("the prompt is empty")
    if args.model is None:
        decoder, tokens, ends = GPTDecoder(load_model(args.weights, device)), Bytes(), frozenset()
        prompt = tokens.encode(args.prompt, chat=args.chat)
    else:
        model, tokens = load_pretrained(args.model, device, args.dtype)
        prompt = tokens.encode(args.prompt, chat=args.chat)
        decoder = PretrainedDecoder(model, len(prompt) + args.tokens)
        ends = stops(model)
    torch.manual_seed(args.seed)
    writer = Writer(decoder, args.mode, temperature=args.temperature, top_k=args.top_k)
    pieces = tokens.pieces()
    written = [] if args.chat else [args.prompt]

    def show(piece: str) -> None:
        written.append(piece)
        if args.stream:
            print(piece, end="", flush=True)

    if args.stream:
        print("".join(written), end="", flush=True)
    start = time.perf_counter()
    token = writer.read(prompt)
    first = time.perf_counter() - start
    times = []
    with tqdm(total=args.tokens, initial=1, unit="token", disable=args.stream) as bar:
        following = writer.tokens(args.tokens - 1)
        while token is not None and token not in ends:
            show(pieces.add(token))
            token = next(following, None)
            if token is not None:
                times.append(time.perf_counter())
                bar.update()
    show(pieces.end())
    print("" if args.stream else "".join(written))
    print(f"\nfirst token after {first:.2f} s", end="")
    # The first steps compile and capture; the clock starts after them.
    if len(times) > STEPS_TO_WARM_UP + 1:
        counted = times[STEPS_TO_WARM_UP:]
        per_second = (len(counted) - 1) / (counted[-1] - counted[0])
        print(f", then {per_second:.1f} tokens/s ({args.mode.value})", end="")
    print()
    report_fallbacks(device)
    return 0


def between(low: float, high: float, kind: type = float):
    def parse(text: str):
        value = kind(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{value} is not from {low} to {high}")
        return value

    return parse


def parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    option = common.add_argument
    option("--device", default="webgpu", help=f"any device that PyTorch knows {DEFAULT}")
    option(
        "--mode",
        type=Mode,
        default=Mode.EAGER,
        metavar="|".join(mode.value for mode in Mode),
        help="how steps run (default: eager); graphs need webgpu",
    )
    option("--weights", type=Path, metavar="FILE", default=Path("llm.safetensors"), help=DEFAULT)
    option("--seed", type=int, default=0, help=f"of weights, batches and choices {DEFAULT}")

    top = argparse.ArgumentParser(prog="python -m examples.llm", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)

    learn = commands.add_parser("train", parents=[common], help="train, measure, save the weights")
    option = learn.add_argument
    option("--text", type=Path, metavar="FILE", help="UTF-8 (default: Python's language reference)")
    option("--steps", type=positive, default=200, help=DEFAULT)
    option("--batch", type=positive, default=16, help=f"windows of text a step {DEFAULT}")
    option("--lr", type=float, default=3e-3, help=f"AdamW's highest learning rate {DEFAULT}")
    option("--layers", type=positive, default=2, help=DEFAULT)
    option("--width", type=positive, default=64, help=DEFAULT)
    option("--heads", type=positive, default=4, help=DEFAULT)
    option("--context", type=positive, default=64, help=f"tokens that are seen {DEFAULT}")
    option("--require-loss", type=float, default=2.5, help=f"exit 1 above it {DEFAULT}")
    learn.set_defaults(function=train)

    use = commands.add_parser("generate", parents=[common], help="continue a text")
    option = use.add_argument
    option(
        "--model",
        type=Path,
        metavar="DIR",
        help="a language model in Hugging Face's layout, instead of --weights (needs transformers)",
    )
    option("--dtype", choices=list(DTYPES), default="auto", help=f"of --model {DEFAULT}")
    option("--prompt", default="The ", help=DEFAULT)
    option("--chat", action="store_true", help="the prompt is a user's turn (with --model)")
    option(
        "--tokens", type=positive, default=200, help=f"to write; bytes without --model {DEFAULT}"
    )
    option("--temperature", type=between(0, 100), default=0.7, help=f"0 is greedy {DEFAULT}")
    option("--top-k", type=positive, default=40, help=DEFAULT)
    option("--stream", action="store_true", help="print the text as it comes, without a bar")
    use.set_defaults(function=generate)
    return top


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)

    def command() -> int:
        device = open_device(args.device)
        if args.mode.graphs and device.type != "webgpu":
            raise UsageError(f"--mode {args.mode.value} needs --device webgpu")
        print(f"device {describe(device)}")
        return args.function(args, device)

    return exit_code(command)
