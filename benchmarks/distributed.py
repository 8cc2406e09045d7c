"""How a training step scales over processes that have a device each.

    python -m benchmarks.distributed [--processes 1,2] [--scale small] [--batch N]
                                     [--adapters 0,1] [--json FILE]

A step of ResNet-50 under DistributedDataParallel, forward, backward and SGD, with the same batch in
each process, so that twice the processes do twice the work. Each process takes the next device
where there are several, or the next of --adapters (TORCH_WEBGPU_ADAPTER). The first loss must be
the CPU's, and in the end the processes must have equal parameters, else there is no figure.
"""

import argparse
import contextlib
import datetime
import json
import math
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from torch_webgpu.distributed import Statistics, statistics

from .networks import LOSS_TOLERANCE, loss_of, resnet50
from .registry import WrongResult
from .timing import Measurement
from .worker import webgpu_registered

SCALES = {
    "tiny": {"batch": 2, "side": 32, "width": 2, "classes": 2},
    "small": {"batch": 4, "side": 64, "width": 8, "classes": 10},
    "full": {"batch": 32, "side": 224, "width": 64, "classes": 1000},
}
SAMPLES = 5
SAMPLE_SECONDS = {"tiny": 0.0, "small": 0.5, "full": 1.0}
MOST_STEPS = 100
WARM_UP_STEPS = 3
TIMEOUT_SECONDS = 900.0
EXIT_FAILED = 1

NOTES = """
'exposed' is what a step takes longer than one without communication (`no_sync`). 'communication'
is the time from the reading of a bucket of gradients until its mean is in the device's stream,
summed over the buckets of a step; 'hidden' is the part of it that is not exposed. 'wire' is what
the machine's network interfaces sent in a step, for all processes and with loopback. 'scaling' is
images per second against as many times those of one process."""


@dataclass
class Figures:
    """Seconds and bytes of a step; those of the slowest process."""

    processes: int
    devices: list[str]
    batch: int  # of each process
    step: float
    spread: float
    alone: float  # without communication
    communication: float
    gradients: int
    staged: float  # between device and host memory, both ways
    wire: float | None  # None where the system does not tell

    @property
    def images_per_second(self) -> float:
        return self.processes * self.batch / self.step

    @property
    def exposed(self) -> float:
        return max(0.0, self.step - self.alone)

    @property
    def hidden(self) -> float:
        if not self.communication:
            return math.nan
        return max(0.0, 1 - self.exposed / self.communication)


# ---- One process of several


def wire_bytes() -> int | None:
    """Bytes sent over all network interfaces since the machine was started."""
    try:
        lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    except OSError:
        return None
    return sum(int(line.partition(":")[2].split()[8]) for line in lines)


def communicated(start: Statistics, end: Statistics) -> tuple[float, int]:
    """Seconds, and bytes between device and host memory."""
    seconds = sum(end[name] - start[name] for name in ("reading", "communicating", "writing"))
    staged = sum(end[name] - start[name] for name in ("bytes_read", "bytes_written"))
    return seconds, staged


def slowest(value: float) -> float:
    values = [0.0] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return max(values)


def timed(step: Callable[[], object], sample_seconds: float) -> tuple[Measurement, int]:
    """Seconds of a step, and how many were made. All processes make the same number."""

    def sample(steps: int) -> float:
        torch.webgpu.synchronize()
        dist.barrier()
        start = time.perf_counter()
        for _ in range(steps):
            step()
        torch.webgpu.synchronize()
        return slowest(time.perf_counter() - start) / steps

    for _ in range(WARM_UP_STEPS):
        once = sample(1)
    steps = max(1, min(MOST_STEPS, math.ceil(sample_seconds / once)))
    return Measurement.of([sample(steps) for _ in range(SAMPLES)]), steps * SAMPLES


def check_equal_parameters(model: nn.Module) -> None:
    own = [parameter.detach().cpu() for parameter in model.parameters()]
    for mine in own:
        others = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(others, mine)
        if not all(torch.equal(mine, other) for other in others):
            raise WrongResult("the processes have different parameters")


def train(rank: int, processes: int, scale: str, sizes: dict[str, int]) -> Figures:
    device = torch.device("webgpu", rank % torch.webgpu.device_count())
    torch.webgpu.set_device(device)
    torch.manual_seed(0)
    model, inputs = resnet50(**sizes)
    with torch.no_grad():
        wanted = loss_of(model, inputs).item()
    model = nn.parallel.DistributedDataParallel(model.to(device))
    inputs = tuple(x.to(device) for x in inputs)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, inputs)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def step_alone() -> None:
        with model.no_sync():
            step()

    first = step().item()
    if not math.isclose(first, wanted, rel_tol=LOSS_TOLERANCE["float32"]):
        raise WrongResult(f"the loss is {first} where the CPU has {wanted}")
    for _ in range(WARM_UP_STEPS):
        step()
    before, sent_before = statistics(), wire_bytes()
    together, steps = timed(step, SAMPLE_SECONDS[scale])
    steps += WARM_UP_STEPS
    communication, staged = communicated(before, statistics())
    sent = wire_bytes()
    check_equal_parameters(model)
    alone, _ = timed(step_alone, SAMPLE_SECONDS[scale])
    devices = [""] * processes
    dist.all_gather_object(devices, torch.webgpu.get_device_name(device))
    return Figures(
        processes=processes,
        devices=devices,
        batch=sizes["batch"],
        step=together.median,
        spread=together.spread,
        alone=alone.median,
        communication=slowest(communication / steps),
        gradients=sum(p.nbytes for p in model.parameters() if p.requires_grad),
        staged=staged / steps,
        wire=None if sent is None or sent_before is None else (sent - sent_before) / steps,
    )


def serve(connection: Connection, rank: int, processes: int, store: str, scale: str, sizes) -> None:
    try:
        dist.init_process_group(
            init_method=f"file://{store}",
            rank=rank,
            world_size=processes,
            timeout=datetime.timedelta(seconds=TIMEOUT_SECONDS),
        )
        connection.send(train(rank, processes, scale, sizes))
        dist.destroy_process_group()
    # Whatever went wrong in a process is the row's result.
    except Exception as error:
        connection.send(f"rank {rank}: {type(error).__name__}: {error}")


# ---- The command line


@contextlib.contextmanager
def adapter(name: str | None):
    """The adapter of processes that are started inside."""
    variable = "TORCH_WEBGPU_ADAPTER"
    before = os.environ.get(variable)
    if name is not None:
        os.environ[variable] = name
    try:
        yield
    finally:
        if before is not None:
            os.environ[variable] = before
        elif name is not None:
            del os.environ[variable]


def run(processes: int, adapters: list[str], scale: str, sizes: dict[str, int]) -> Figures | str:
    """The figures of rank 0, or what went wrong."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as directory:
        started = []
        for rank in range(processes):
            ours, theirs = context.Pipe()
            arguments = (theirs, rank, processes, f"{directory}/store", scale, sizes)
            process = context.Process(target=serve, args=arguments, daemon=True)
            name = adapters[rank % len(adapters)] if adapters else None
            with webgpu_registered(True), adapter(name):
                process.start()
            theirs.close()
            started.append((process, ours))
        try:
            answers: list[Figures | str] = []
            for rank, (_, connection) in enumerate(started):
                try:
                    answered = connection.poll(TIMEOUT_SECONDS)
                    answers.append(connection.recv() if answered else f"rank {rank}: no answer")
                except EOFError:
                    answers.append(f"rank {rank} ended without an answer")
                if isinstance(answers[-1], str):
                    return answers[-1]  # the others wait for it
            return answers[0]
        finally:
            for process, _ in started:
                process.join(10)
                process.kill()


def line(figures: Figures, one: Figures | None) -> str:
    scaling = "-"
    if one is not None:
        scaling = f"{figures.images_per_second / (figures.processes * one.images_per_second):.2f}"
    wire = "-" if figures.wire is None else f"{figures.wire / 1e6:.1f}"
    cells = [
        str(figures.processes),
        f"{figures.step * 1e3:.1f} ± {figures.spread * 1e3:.1f}",
        f"{figures.images_per_second:.1f}",
        scaling,
        f"{figures.exposed * 1e3:.1f}",
        f"{figures.communication * 1e3:.1f}",
        "-" if math.isnan(figures.hidden) else f"{figures.hidden:.0%}",
        f"{figures.gradients / 1e6:.1f}",
        f"{figures.staged / 1e6:.1f}",
        wire,
    ]
    return f"| {' | '.join(cells)} |"


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m benchmarks.distributed", description=(__doc__ or "").partition("\n")[0]
    )
    option = top.add_argument
    option("--processes", default="1,2", help="how many at a time (default: %(default)s)")
    option("--scale", choices=SCALES, help="default: full on a GPU, small on a software adapter")
    option("--batch", type=int, help="images of each process, instead of the scale's")
    option("--adapters", default="", metavar="A,B", help="adapters of the processes, in turn")
    option("--json", type=Path, metavar="FILE", help="write the figures to FILE as well")
    return top


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    adapters = [name for name in args.adapters.split(",") if name]
    software = all(found["type"] == "software" for found in torch.webgpu.list_adapters())
    scale = args.scale or ("small" if software else "full")
    sizes = SCALES[scale] if args.batch is None else {**SCALES[scale], "batch": args.batch}
    print(f"# Scaling of ResNet-50 ({scale}: {sizes})\n")
    print(
        "| Processes | step, ms | images/s | scaling | exposed, ms | communication, ms | hidden ",
        end="",
    )
    print("| gradients, MB | staged, MB | wire, MB |")
    print("|---" * 10 + "|", flush=True)
    rows: list[Figures] = []
    failed = False
    for processes in (int(text) for text in args.processes.split(",")):
        figures = run(processes, adapters, scale, sizes)
        if isinstance(figures, str):
            print(f"| {processes} | failed: {figures} |" + " |" * 8, flush=True)
            failed = True
            continue
        rows.append(figures)
        one = next((row for row in rows if row.processes == 1), None)
        print(line(figures, one), flush=True)
    print(NOTES)
    for row in rows:
        print(f"\n{row.processes}: {', '.join(row.devices)}")
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    return EXIT_FAILED if failed else 0


if __name__ == "__main__":
    sys.exit(main())
