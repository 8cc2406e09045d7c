"""The command line: which peers, which rows, which sizes."""

import argparse
import json
import sys
from contextlib import ExitStack
from pathlib import Path

from .peers import PEERS
from .peers.base import Unavailable
from .registry import SCALES, Row, parse_size, rows, size_text
from .report import Line, Tables, as_json
from .worker import Worker

SIZES = {"tiny": 1 << 16, "small": 64 << 20, "full": 1 << 30}
ROW_SECONDS = 300.0
EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    option = top.add_argument
    option("--peers", default=",".join(PEERS), help="columns, in this order (default: %(default)s)")
    option("--only", default="", metavar="TEXT", help="only rows whose group or name contains TEXT")
    option("--scale", choices=SCALES, help="default: full on a GPU, small on a software adapter")
    option("--size", type=parse_size, help="tensor of the bandwidth rows (default: 1GiB or 64MiB)")
    option("--timeout", type=float, default=ROW_SECONDS, help="seconds for one row of one peer")
    option("--json", type=Path, metavar="FILE", help="write the figures to FILE as well")
    option("--plot", type=Path, metavar="PNG", help="draw the ratios to the second peer")
    option("--list", action="store_true", help="list the rows and stop")
    return top


def selected(scale: str, size: int | None, only: str) -> list[Row]:
    table = rows(scale, size or SIZES[scale])
    return [row for row in table if only.lower() in f"{row.group}\n{row.name}".lower()]


def start(names: list[str], timeout: float, stack: ExitStack) -> dict[str, Worker]:
    workers = {}
    for name in names:
        try:
            workers[name] = Worker(name, timeout)
        except Unavailable as reason:
            print(f"- {name}: not here: {reason}")
        else:
            stack.callback(workers[name].stop)
            print(f"- {name}: {workers[name].introduction.description}")
    return workers


def default_scale(workers: dict[str, Worker]) -> str:
    """Peers share one scale: small if the device under test, or every device, is software."""
    judged = [workers["webgpu"]] if "webgpu" in workers else workers.values()
    hardware = any(not w.introduction.is_software for w in judged if w.name != "cpu")
    return "full" if hardware else "small"


def run(args: argparse.Namespace, names: list[str]) -> int:
    with ExitStack() as stack:
        print("# Benchmarks\n", flush=True)
        workers = start(names, args.timeout, stack)
        if not workers:
            print("error: none of these peers is here", file=sys.stderr)
            return EXIT_BAD_INPUT
        scale = args.scale or default_scale(workers)
        size = args.size or SIZES[scale]
        print(f"\nSizes: {scale}, bandwidth at {size_text(size)}. Figures: median ± interquartile")
        print("range. Each result is checked, value and device, before the clock starts. 'A / B'")
        print("is how many times faster A is than B; 'peak' the memory in use during a run, also")
        print("as a part of the second column's; 'first use' the first run, which compiles.")
        tables = Tables(list(workers))
        try:
            for row in selected(scale, size, args.only):
                results = {n: w.run(row.name, scale, size) for n, w in workers.items()}
                tables.add(Line(row, results))
        finally:
            tables.close()
            if args.json:
                descriptions = {n: w.introduction.description for n, w in workers.items()}
                document = as_json(descriptions, scale, tables.lines)
                args.json.write_text(json.dumps(document, indent=2) + "\n")
            if args.plot and tables.compared:
                tables.plot(args.plot)
        # A peer that cannot do something is a finding; the device under test must do everything.
        failed = any(line.results[tables.peers[0]].failed for line in tables.lines)
        return EXIT_FAILED if failed else 0


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    names = [name.strip() for name in args.peers.split(",") if name.strip()]
    if unknown := sorted(set(names) - set(PEERS)):
        print(f"error: no peer {', '.join(unknown)}; there are {', '.join(PEERS)}", file=sys.stderr)
        return EXIT_BAD_INPUT
    if not selected(args.scale or "full", args.size, args.only):
        print(f"error: no row's name contains {args.only!r}; see --list", file=sys.stderr)
        return EXIT_BAD_INPUT
    if args.list:
        for row in selected(args.scale or "full", args.size, args.only):
            print(f"{row.group}: {row.name} ({row.unit})")
        return 0
    try:
        return run(args, names)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
