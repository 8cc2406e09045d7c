"""Compares eager mode with torch.compile, on webgpu and, where there is one, on CUDA.

    python -m benchmarks.compiled [--scale small] [--only TEXT] [--peers webgpu,cuda] [--json FILE]

The programs move memory more than they compute. Beside each figure stand the rates of a copy and of
a row sum, timed in the same process right after it: kernels that walk long rows vary by process and
by machine, and these show by how much. What is compiled must agree with eager mode first.
"""

import argparse
import contextlib
import gc
import json
import math
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .report import number
from .timing import measure
from .worker import webgpu_registered

PEERS = ("webgpu", "cuda")
MODES = ("eager", "compiled")
SCALES = ("small", "full")
PROGRAM_SECONDS = 900.0
Compiler = Callable[[Callable], Callable]


@dataclass(frozen=True)
class Program:
    """`setup(compiler, device, **sizes)` returns what runs once, and whose tensors are compared."""

    name: str
    setup: Callable[..., Callable[[], list[Tensor]]]
    small: dict[str, int]
    full: dict[str, int]
    tolerance: float = 1e-4
    memory_bound: bool = True


PROGRAMS: list[Program] = []


def program(name: str, *, small: dict[str, int], full: dict[str, int], **options: Any) -> Callable:
    def register(setup: Callable) -> Callable:
        PROGRAMS.append(Program(name, setup, small, full, **options))
        return setup

    return register


def random(device: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """The same numbers on every device: a few from the host, repeated with different factors."""
    generator = torch.Generator().manual_seed(len(shape))
    count = math.prod(shape)
    some = torch.randn(min(count, 1 << 16), generator=generator).to(device)
    rows = -(-count // some.numel())
    factors = torch.linspace(0.5, 1.5, rows, device=device)[:, None]
    return (some * factors).flatten()[:count].view(shape).to(dtype)


def of_inputs(compiler: Compiler, function: Callable, *inputs: Tensor) -> Callable:
    compiled = compiler(function)

    @torch.no_grad()
    def run() -> list[Tensor]:
        return [compiled(*inputs)]

    return run


def ten_steps(x: Tensor) -> Tensor:
    y = x * 2 + 1
    y = y.relu() - 0.5
    y = y * x + x
    y = y.abs() * 0.25
    return (y - x).clamp(-3, 3)


@program("chain of 10, f32", small={"n": 1 << 22}, full={"n": 1 << 24})
def chain(compiler, device, n):
    return of_inputs(compiler, ten_steps, random(device, n))


@program("chain of 10, f16", small={"n": 1 << 22}, full={"n": 1 << 26}, tolerance=2e-2)
def half_chain(compiler, device, n):
    return of_inputs(compiler, ten_steps, random(device, n, dtype=torch.float16))


@program("sin, exp, tanh, sigmoid", small={"n": 1 << 20}, full={"n": 1 << 24})
def transcendental(compiler, device, n):
    def function(x):
        return x.sin().exp().tanh().sigmoid()

    return of_inputs(compiler, function, random(device, n))


@program("bias + GELU", small={"rows": 1024, "n": 1024}, full={"rows": 16384, "n": 4096})
def bias_gelu(compiler, device, rows, n):
    return of_inputs(
        compiler, lambda x, b: F.gelu(x + b), random(device, rows, n), random(device, n)
    )


@program("softmax", small={"rows": 1024, "n": 1024}, full={"rows": 8192, "n": 8192})
def softmax(compiler, device, rows, n):
    return of_inputs(compiler, lambda x: x.softmax(-1), random(device, rows, n))


@program("layer norm + GELU", small={"rows": 1024, "n": 1024}, full={"rows": 8192, "n": 4096})
def norm_gelu(compiler, device, rows, n):
    def function(x, weight, bias):
        return F.gelu(F.layer_norm(x, weight.shape, weight, bias))

    inputs = random(device, rows, n), random(device, n), random(device, n)
    return of_inputs(compiler, function, *inputs)


@program(
    "RMS norm, f16",
    small={"rows": 1024, "n": 1024},
    full={"rows": 8192, "n": 4096},
    tolerance=2e-2,
)
def rms_norm(compiler, device, rows, n):
    def function(x, weight):
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        return (wide * scale).to(x.dtype) * weight

    inputs = random(device, rows, n, dtype=torch.float16), random(device, n, dtype=torch.float16)
    return of_inputs(compiler, function, *inputs)


@program("row sum", small={"rows": 1024, "n": 1024}, full={"rows": 8192, "n": 8192}, tolerance=1e-3)
def row_sum(compiler, device, rows, n):
    return of_inputs(compiler, lambda x: x.sum(1), random(device, rows, n))


@program(
    "column sum", small={"rows": 1024, "n": 1024}, full={"rows": 8192, "n": 8192}, tolerance=1e-3
)
def column_sum(compiler, device, rows, n):
    return of_inputs(compiler, lambda x: x.sum(0), random(device, rows, n))


@program("transposed add", small={"n": 1024}, full={"n": 8192})
def transposed_add(compiler, device, n):
    return of_inputs(compiler, lambda x, y: x + y.t(), random(device, n, n), random(device, n, n))


@program(
    "cross entropy, forward and backward",
    small={"rows": 128, "classes": 5025},
    full={"rows": 4096, "classes": 50257},
)
def cross_entropy(compiler, device, rows, classes):
    loss_of = compiler(F.cross_entropy)
    logits = random(device, rows, classes).requires_grad_()
    target = (torch.arange(rows) * 37 % classes).to(device)

    def run():
        loss = loss_of(logits, target)
        return [loss.detach(), *torch.autograd.grad(loss, logits)]

    return run


def gpt2_shapes(width: int, vocabulary: int, blocks: int = 12) -> list[tuple[int, ...]]:
    block = [(width,)] * 4 + [(width, 3 * width), (3 * width,), (width, width), (width,)]
    block += [(width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return [(vocabulary, width), (1024, width), *block * blocks, (width,), (width,)]


@program(
    "AdamW, 148 tensors",
    small={"width": 32, "vocabulary": 501},
    full={"width": 768, "vocabulary": 50257},
    memory_bound=False,
)
def adamw(compiler, device, width, vocabulary):
    parameters = [random(device, *s).requires_grad_() for s in gpt2_shapes(width, vocabulary)]
    for parameter in parameters:
        parameter.grad = parameter.detach().sin()
    step = compiler(torch.optim.AdamW(parameters, lr=1e-3).step)

    def run():
        step()
        return [parameter.detach() for parameter in parameters[:16]]

    return run


def eager(function: Callable) -> Callable:
    return function


def compiled(function: Callable) -> Callable:
    torch._dynamo.reset()
    return torch.compile(function)


# ---- One peer, in a process of its own ----


@dataclass
class Figures:
    """Microseconds by mode; GB/s of what is beside them; why a mode has no figure."""

    us: dict[str, float] = field(default_factory=dict)
    spread: dict[str, float] = field(default_factory=dict)
    copy: dict[str, float] = field(default_factory=dict)
    row_sum: dict[str, float] = field(default_factory=dict)
    dispatches: dict[str, int] = field(default_factory=dict)
    compile_seconds: float = 0.0
    missing: dict[str, str] = field(default_factory=dict)


class Bench:
    def __init__(self, device: str, scale: str, budget: float) -> None:
        self.device = device
        self.module = getattr(torch, device)
        self.scale = scale
        self.budget = budget
        side = 8192 if scale == "full" else 1024
        self.beside = random(device, side, side)
        self.copied = torch.empty_like(self.beside)

    def seconds(self, run: Callable[[], object]):
        return measure(run, self.module.synchronize, budget=self.budget)

    def dispatches(self, run: Callable[[], object]) -> int:
        if self.device != "webgpu":
            return 0
        self.module.synchronize()
        before = self.module.stats()["dispatches"]
        run()
        return self.module.stats()["dispatches"] - before

    def figures(self, program: Program) -> Figures:
        figures = Figures()
        sizes = getattr(program, self.scale)
        expected: list[Tensor] = []
        for mode, compiler in zip(MODES, (eager, compiled), strict=True):
            try:
                run = program.setup(compiler, self.device, **sizes)
                begin = time.perf_counter()
                actual = run()
                self.module.synchronize()
                if mode == "eager":
                    expected = [tensor.clone() for tensor in actual]
                else:
                    figures.compile_seconds = time.perf_counter() - begin
                    require_close(actual, expected, program.tolerance)
                del actual
                figures.dispatches[mode] = self.dispatches(run)
                took = self.seconds(run)
                figures.us[mode] = took.median * 1e6
                figures.spread[mode] = took.spread / took.median
                moved = self.beside.nbytes
                copy = self.seconds(lambda: self.copied.copy_(self.beside))
                figures.copy[mode] = 2 * moved / copy.median / 1e9
                figures.row_sum[mode] = (
                    moved / self.seconds(lambda: self.beside.sum(1)).median / 1e9
                )
            # Whatever a mode raises is its result; the others go on.
            except Exception as error:
                text = (str(error).strip() or repr(error)).splitlines()[0]
                figures.missing[mode] = f"{type(error).__name__}: {text}"[:200]
            run = None
            gc.collect()
            self.module.empty_cache()
        return figures


def require_close(actual: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    for one, other in zip(actual, expected, strict=True):
        error = (one.float() - other.float()).abs().max() / other.float().abs().max().clamp(1e-30)
        if not error.item() <= tolerance:  # a NaN is an error too
            raise ArithmeticError(f"differs from eager mode by {error.item():.1e}")


def describe(device: str) -> tuple[str, bool]:
    """What the peer is, and whether it is a software driver. Raises if it is not there."""
    torch.empty(1, device=device)
    properties = getattr(torch, device).get_device_properties(0)
    name = getattr(properties, "adapter", "") or properties.name
    return f"torch {torch.__version__}, {name}", getattr(properties, "type", "") == "software"


def serve(connection: Any, device: str, seconds: float) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    try:
        connection.send(describe(device))
    # AssertionError is what a build without CUDA raises.
    except (RuntimeError, AssertionError) as error:
        connection.send(str(error).splitlines()[0])
        return
    bench = None
    programs = {program.name: program for program in PROGRAMS}
    while (request := connection.recv()) is not None:
        name, scale = request
        bench = bench or Bench(device, scale, seconds)
        connection.send(bench.figures(programs[name]))


class Peer:
    """A process that keeps what was measured in it apart from the other device."""

    def __init__(self, device: str, seconds: float) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, device, seconds), daemon=True)
        with webgpu_registered(device == "webgpu"):
            self.process.start()
        theirs.close()
        answer = self.receive()
        if isinstance(answer, str):
            raise LookupError(answer)
        self.description, self.is_software = answer

    def receive(self) -> Any:
        try:
            if self.connection.poll(PROGRAM_SECONDS):
                return self.connection.recv()
            return f"no answer within {PROGRAM_SECONDS:g} s"
        except (EOFError, ConnectionError):
            self.process.join()
            return f"its process ended with status {self.process.exitcode}"

    def figures(self, name: str, scale: str) -> Figures:
        try:
            self.connection.send((name, scale))
            answer = self.receive()
        except ConnectionError:
            answer = "its process has ended"
        if isinstance(answer, Figures):
            return answer
        self.process.kill()
        return Figures(missing=dict.fromkeys(MODES, answer))


# ---- The table ----


def cell(figures: Figures, mode: str) -> str:
    if mode not in figures.us:
        return "-"
    dispatches = figures.dispatches.get(mode)
    count = f" ({dispatches})" if dispatches else ""
    return f"{figures.us[mode]:.0f}{count}"


def beside(figures: Figures) -> str:
    rates = [
        f"{number(figures.copy[mode])}/{number(figures.row_sum[mode])}"
        for mode in MODES
        if mode in figures.row_sum
    ]
    return ", ".join(rates) or "-"


def ratio(row: dict[str, Figures], one: tuple[str, str], other: tuple[str, str]) -> float | None:
    """How many times faster `one` is than `other`; each is a peer and a mode."""
    values = [row[peer].us.get(mode) if peer in row else None for peer, mode in (one, other)]
    return None if None in values else values[1] / values[0]


def print_line(cells: list[str]) -> None:
    first, *rest = cells
    print(f"| {first.ljust(36)} | {' | '.join(text.rjust(18) for text in rest)} |", flush=True)


def heading(peers: list[str]) -> None:
    cells = ["us (dispatches)"]
    for peer in peers:
        cells += [f"{peer} {mode}" for mode in MODES] + [f"{peer} copy/row sum"]
    print_line([*cells, "compiled / eager", "/ CUDA Inductor"])
    print_line(["---"] + ["--:"] * (len(cells) + 1))


def print_row(name: str, row: dict[str, Figures]) -> None:
    cells = [name]
    for figures in row.values():
        cells += [cell(figures, mode) for mode in MODES] + [beside(figures)]
    first = next(iter(row))
    for other in ((first, "eager"), ("cuda", "compiled")):
        times = ratio(row, (first, "compiled"), other) if other != (first, "compiled") else None
        cells.append("" if times is None else f"{times:.2f}")
    print_line(cells)


def print_summary(rows: dict[str, dict[str, Figures]]) -> None:
    bound = [program.name for program in PROGRAMS if program.memory_bound and program.name in rows]
    ratios = [ratio(rows[n], ("webgpu", "compiled"), ("cuda", "compiled")) for n in bound]
    known = [value for value in ratios if value is not None]
    if known:
        mean = math.exp(sum(map(math.log, known)) / len(known))
        print(
            f"\nMemory-bound programs against CUDA Inductor: geometric mean {mean:.2f}, "
            f"lowest {min(known):.2f}, {len(known)} of {len(bound)} programs."
        )
    for name, row in rows.items():
        for peer, figures in row.items():
            for mode, reason in figures.missing.items():
                print(f"- {name}, {peer} {mode}: {reason}")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m benchmarks.compiled", description=__doc__)
    top.add_argument("--peers", default=",".join(PEERS), help="devices (default: %(default)s)")
    top.add_argument("--only", default="", metavar="TEXT", help="programs whose name contains TEXT")
    top.add_argument("--scale", choices=SCALES, help="default: full, small on a software driver")
    top.add_argument("--seconds", type=float, default=1.0, help="for each figure")
    top.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE as well")
    return top


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    names = [program.name for program in PROGRAMS if args.only.lower() in program.name.lower()]
    if not names:
        print(f"error: no program's name contains {args.only!r}", file=sys.stderr)
        return 2
    peers: dict[str, Peer] = {}
    for device in args.peers.split(","):
        try:
            peers[device] = Peer(device, args.seconds)
            print(f"- {device}: {peers[device].description}")
        except LookupError as reason:
            print(f"- {device}: not here: {reason}")
    if not peers:
        return 2
    software = next(iter(peers.values())).is_software
    scale = args.scale or ("small" if software else "full")
    print(f"- sizes: {scale}\n")
    heading(list(peers))
    rows: dict[str, dict[str, Figures]] = {}
    try:
        for name in names:
            rows[name] = {device: peer.figures(name, scale) for device, peer in peers.items()}
            print_row(name, rows[name])
        print_summary(rows)
    finally:
        if args.json:
            document = {
                "machine": platform.platform(),
                "scale": scale,
                "peers": {device: peer.description for device, peer in peers.items()},
                "rows": {n: {p: asdict(f) for p, f in row.items()} for n, row in rows.items()},
            }
            args.json.write_text(json.dumps(document, indent=2) + "\n")
        for peer in peers.values():
            peer.process.kill()
    failed = any("webgpu" in row and row["webgpu"].missing for row in rows.values())
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ.setdefault("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
