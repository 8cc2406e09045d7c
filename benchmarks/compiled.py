"""Compares eager mode, torch.compile and graphs, on webgpu and, where there is one, on CUDA.

    python -m benchmarks.compiled [--scale small] [--only TEXT] [--peers webgpu,cuda,cpu]
                                  [--modes eager,compiled] [--json FILE]

Beside each figure stand the rates of a copy and of a row sum, timed in the same process right after
it: kernels that walk long rows vary by process and by machine, and these show by how much. What is
timed must agree with the CPU first.
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
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .peers.base import Unavailable
from .peers.torch_peer import TorchPeer, require_strict_float32
from .programs import EAGER, MODES, PROGRAMS, Mode, Program, random
from .report import number
from .timing import measure
from .worker import webgpu_registered

# What each device is measured in.
PEERS = {"webgpu": MODES, "cuda": MODES[:2], "cpu": (EAGER,)}
SCALES = ("small", "full")
SECONDS = {"small": 0.1, "full": 1.0}
PROGRAM_SECONDS = 900.0
# The first runs compile and make the state of optimizers; graphs are captured after them, and
# results are compared then.
RUNS_BEFORE = 2


# ---- One peer, in a process of its own ----


@dataclass
class Figures:
    """Microseconds by mode; GB/s of what is beside them; seconds of the first run, in which it
    compiles; why a mode has no figure."""

    us: dict[str, float] = field(default_factory=dict)
    spread: dict[str, float] = field(default_factory=dict)
    copy: dict[str, float] = field(default_factory=dict)
    row_sum: dict[str, float] = field(default_factory=dict)
    dispatches: dict[str, int] = field(default_factory=dict)
    compile_seconds: dict[str, float] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


class Bench:
    def __init__(self, peer: TorchPeer, scale: str, budget: float) -> None:
        self.peer = peer
        self.device = peer.device.type
        self.scale = scale
        self.budget = budget
        side = 8192 if scale == "full" else 1024
        self.beside = random(self.device, side, side)
        self.copied = torch.empty_like(self.beside)

    def sizes(self, program: Program) -> dict[str, int]:
        return getattr(program, self.scale)

    def seconds(self, run: Callable[[], object]):
        return measure(run, self.peer.synchronize, budget=self.budget)

    def dispatches(self, run: Callable[[], object]) -> int:
        if self.device != "webgpu":
            return 0
        self.peer.synchronize()
        before = torch.webgpu.stats()["dispatches"]
        run()
        return torch.webgpu.stats()["dispatches"] - before

    def prepared(self, mode: Mode, program: Program, figures: Figures) -> Callable:
        """What is to be timed, after the runs that come before it."""
        torch._dynamo.reset()
        run = program.setup(mode, self.device, **self.sizes(program))
        begin = time.perf_counter()
        for k in range(RUNS_BEFORE):
            run()
            self.peer.synchronize()
            if k == 0 and mode.compiles:
                figures.compile_seconds[mode.name] = time.perf_counter() - begin
        return captured(run) if mode.graphs else run

    def figure(self, mode: Mode, program: Program, figures: Figures, expected: list) -> None:
        run = self.prepared(mode, program, figures)
        require_close(run(), expected, program.tolerance)
        self.peer.require_no_fallback()
        name = mode.name
        figures.dispatches[name] = self.dispatches(run)
        took = self.seconds(run)
        figures.us[name] = took.median * 1e6
        figures.spread[name] = took.spread / took.median
        moved = self.beside.nbytes
        copy = self.seconds(lambda: self.copied.copy_(self.beside))
        figures.copy[name] = 2 * moved / copy.median / 1e9
        figures.row_sum[name] = moved / self.seconds(lambda: self.beside.sum(1)).median / 1e9

    def figures(self, program: Program, modes: list[Mode]) -> Figures:
        figures = Figures()
        expected = reference(program, self.sizes(program))
        for mode in modes:
            try:
                self.figure(mode, program, figures, expected)
            # Whatever a mode raises is its result; the others go on.
            except Exception as error:
                text = (str(error).strip() or repr(error)).splitlines()[0]
                figures.missing[mode.name] = f"{type(error).__name__}: {text}"[:200]
            gc.collect()
            self.peer.release()
        return figures


def captured(run: Callable[[], list[Tensor]]) -> Callable[[], list[Tensor]]:
    graph = torch.webgpu.Graph()
    with torch.webgpu.graph(graph):
        results = run()

    def replay() -> list[Tensor]:
        graph.replay()
        return results

    return replay


def reference(program: Program, sizes: dict[str, int]) -> list[Tensor]:
    """What the run that is compared gives on the CPU."""
    run = program.setup(EAGER, "cpu", **sizes)
    for _ in range(RUNS_BEFORE):
        run()
    return [tensor.clone() for tensor in run()]


def require_close(actual: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    for one, other in zip(actual, expected, strict=True):
        one, other = one.cpu().float(), other.float()
        error = (one - other).abs().max() / other.abs().max().clamp(1e-30)
        if not error.item() <= tolerance:  # a NaN is an error too
            raise ArithmeticError(f"differs from the CPU by {error.item():.1e}")


def serve(connection: Any, device: str) -> None:
    require_strict_float32()
    try:
        peer = TorchPeer(device)
    except Unavailable as reason:
        connection.send(str(reason))
        return
    connection.send((peer.describe(), peer.is_software()))
    programs = {program.name: program for program in PROGRAMS}
    bench = None
    while (request := connection.recv()) is not None:
        name, modes, scale, seconds = request
        bench = bench or Bench(peer, scale, seconds)
        connection.send(bench.figures(programs[name], modes))


class Peer:
    """A process that keeps what was measured in it apart from the other device."""

    def __init__(self, device: str, modes: list[str]) -> None:
        self.modes = [mode for mode in PEERS[device] if mode.name in modes]
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, device), daemon=True)
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

    def figures(self, name: str, scale: str, seconds: float) -> Figures:
        try:
            self.connection.send((name, self.modes, scale, seconds))
            answer = self.receive()
        except ConnectionError:
            answer = "its process has ended"
        if isinstance(answer, Figures):
            return answer
        self.process.kill()
        return Figures(missing={mode.name: answer for mode in self.modes})


# ---- The table ----

# Columns that say how many times faster the first is than the second.
COMPARED = (
    ("compiled / eager", ("webgpu", "compiled"), ("webgpu", "eager")),
    ("graphed / eager", ("webgpu", "graphed"), ("webgpu", "eager")),
    ("compiled / CUDA's", ("webgpu", "compiled"), ("cuda", "compiled")),
    ("graphed / CUDA eager", ("webgpu", "compiled-graphed"), ("cuda", "eager")),
)
Measured = dict[str, Figures]  # by peer


def cell(figures: Figures, mode: Mode) -> str:
    if mode.name not in figures.us:
        return "-"
    dispatches = figures.dispatches.get(mode.name)
    count = f" ({dispatches})" if dispatches else ""
    return f"{number(figures.us[mode.name])}{count}"


def beside(figures: Figures) -> str:
    """The lowest and the highest of the rates; modes differ in them by chance only."""
    return "/".join(
        "-".join(dict.fromkeys(number(end(rates.values())) for end in (min, max)))
        for rates in (figures.copy, figures.row_sum)
        if rates
    )


def ratio(row: Measured, one: tuple[str, str], other: tuple[str, str]) -> float | None:
    """How many times faster `one` is than `other`; each is a peer and a mode."""
    values = [row[peer].us.get(mode) if peer in row else None for peer, mode in (one, other)]
    return None if None in values else values[1] / values[0]


class Table:
    def __init__(self, peers: dict[str, Peer]) -> None:
        self.peers = peers
        there = {(device, mode.name) for device, peer in peers.items() for mode in peer.modes}
        self.compared = [(text, a, b) for text, a, b in COMPARED if {a, b} <= there]
        cells = ["us (dispatches)"]
        for device, peer in peers.items():
            cells += [f"{device} {mode.name}" for mode in peer.modes] + ["copy/row sum, GB/s"]
        cells += [text for text, _, _ in self.compared]
        self.line(cells)
        self.line(["---"] + ["--:"] * (len(cells) - 1))

    def line(self, cells: list[str]) -> None:
        first, *rest = cells
        print(f"| {first.ljust(36)} | {' | '.join(text.rjust(18) for text in rest)} |", flush=True)

    def row(self, name: str, row: Measured) -> None:
        cells = [name]
        for device, figures in row.items():
            cells += [cell(figures, mode) for mode in self.peers[device].modes] + [beside(figures)]
        times = [ratio(row, a, b) for _, a, b in self.compared]
        self.line(cells + ["" if value is None else f"{value:.2f}" for value in times])


def print_summary(rows: dict[str, Measured]) -> None:
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
    modes = ",".join(mode.name for mode in MODES)
    top.add_argument("--peers", default=",".join(PEERS), help="devices (default: %(default)s)")
    top.add_argument("--modes", default=modes, help="columns of a device (default: %(default)s)")
    top.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="TEXT",
        help="programs whose name contains TEXT; may be given several times",
    )
    top.add_argument("--scale", choices=SCALES, help="default: full, small on a software driver")
    top.add_argument("--seconds", type=float, help=f"for each figure (default: {SECONDS})")
    top.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE as well")
    return top


def problem(args: argparse.Namespace) -> str | None:
    """Why these options give no table."""
    for what, given, known in (
        ("peer", args.peers, PEERS),
        ("mode", args.modes, [mode.name for mode in MODES]),
    ):
        if unknown := sorted(set(given.split(",")) - set(known)):
            return f"no {what} {', '.join(unknown)}; there are {', '.join(known)}"
    if not selected(args.only):
        return f"no program's name contains {' or '.join(map(repr, args.only))}"
    return None


def selected(only: list[str]) -> list[str]:
    names = [program.name for program in PROGRAMS]
    return [n for n in names if not only or any(text.lower() in n.lower() for text in only)]


def start(devices: list[str], modes: list[str]) -> dict[str, Peer]:
    peers = {}
    for device in devices:
        try:
            peers[device] = Peer(device, modes)
            print(f"- {device}: {peers[device].description}")
        except LookupError as reason:
            print(f"- {device}: not here: {reason}")
    return peers


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    if text := problem(args):
        print(f"error: {text}", file=sys.stderr)
        return 2
    peers = start(args.peers.split(","), args.modes.split(","))
    if not peers:
        return 2
    software = next(iter(peers.values())).is_software
    scale = args.scale or ("small" if software else "full")
    print(f"- sizes: {scale}\n")
    table = Table(peers)
    rows: dict[str, Measured] = {}
    try:
        for name in selected(args.only):
            seconds = args.seconds or SECONDS[scale]
            rows[name] = {d: peer.figures(name, scale, seconds) for d, peer in peers.items()}
            table.row(name, rows[name])
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
    # Compiled anew in the first mode that compiles, and from Inductor's cache in the next.
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(KeyboardInterrupt):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        sys.exit(main())
