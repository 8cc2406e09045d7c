"""Each peer lives in a process of its own, so that one that crashes or hangs costs one row."""

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

from .peers import PEERS
from .peers.base import Peer, Unavailable
from .peers.torch_peer import require_strict_float32
from .registry import UNITS, Row, Skip, Workload, WrongResult, rows
from .timing import Measurement, measure

START_SECONDS = 120


@dataclass(frozen=True)
class Introduction:
    description: str
    is_software: bool


@dataclass(frozen=True)
class Result:
    """The figure of one row for one peer, or the reason why there is none."""

    value: float | None = None
    spread: float | None = None
    # Seconds of the first run, which compiles what is not compiled yet.
    first: float | None = None
    # Bytes during a run: in use, and taken from the device.
    allocated: int | None = None
    reserved: int | None = None
    skipped: str = ""
    failed: str = ""


def figure(row: Row, peer: Peer) -> Result:
    """Sets up, checks, and only then times."""
    workload = row.setup(peer, **row.arguments)
    if isinstance(workload, Measurement):
        return Result(workload.median, workload.spread)
    assert isinstance(workload, Workload)
    peer.synchronize()
    start = time.perf_counter()
    output = workload.run()
    peer.synchronize()
    first = time.perf_counter() - start
    workload.verify(output)
    del output
    peak = peer.peak_bytes(workload.run) or (None, None)
    seconds = measure(workload.run, peer.synchronize, enqueue_only=row.enqueue_only)
    value = UNITS[row.unit](workload.amount, seconds.median)
    # To first order the relative spread of a rate is that of the time.
    return Result(value, value * seconds.spread / seconds.median, first, *peak)


def run_row(row: Row, peer: Peer) -> Result:
    try:
        return figure(row, peer)
    except Skip as reason:
        return Result(skipped=str(reason))
    except WrongResult as reason:
        return Result(failed=f"not timed: {reason}")
    # Whatever a peer raises is that row's result; the other rows go on.
    except Exception as error:
        text = (str(error).strip() or repr(error)).splitlines()[0]
        return Result(failed=f"{type(error).__name__}: {text}")
    finally:
        peer.release()


def _serve(connection: Connection, name: str) -> None:
    # Ctrl-C reaches the whole process group; the parent decides what happens then.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    require_strict_float32()
    try:
        peer = PEERS[name]()
    except Unavailable as reason:
        connection.send(Unavailable(str(reason)))
        return
    connection.send(Introduction(peer.describe(), peer.is_software()))
    while (request := connection.recv()) is not None:
        row_name, scale, size = request
        table = {row.name: row for row in rows(scale, size)}
        connection.send(run_row(table[row_name], peer))


@contextlib.contextmanager
def webgpu_registered(wanted: bool) -> Iterator[None]:
    """Whether `import torch` registers webgpu in a process started inside.

    PyTorch's autograd knows one accelerator per process: where webgpu is registered, CUDA's
    backward fails, so the other peers must not have it.
    """
    name = "TORCH_WEBGPU_AUTOLOAD"
    before = os.environ.get(name)
    os.environ[name] = "1" if wanted else "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


class Worker:
    """A peer in its process; started again for the next row when it has died."""

    def __init__(self, name: str, timeout: float) -> None:
        self.name = name
        self.timeout = timeout
        self.introduction = self._start()

    def _start(self) -> Introduction:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self.name), daemon=True)
        with webgpu_registered(self.name == "webgpu"):
            self._process.start()
        # Ours alone is left open here, so that the worker's death reads as the end of the pipe.
        theirs.close()
        answer = self._receive(START_SECONDS)
        if isinstance(answer, Unavailable):
            raise answer
        return answer

    def _receive(self, timeout: float):
        """The next answer; Unavailable if there will be none."""
        try:
            if self._connection.poll(timeout):
                return self._connection.recv()
            reason = f"no answer within {timeout:g} s"
        # An end of file, or a reset when it died with a request unread.
        except (EOFError, ConnectionError):
            self._process.join()
            reason = f"its process ended with status {self._process.exitcode}"
        self.stop()
        raise Unavailable(reason)

    def run(self, row_name: str, scale: str, size: int) -> Result:
        try:
            if not self._process.is_alive():
                self._start()
            self._connection.send((row_name, scale, size))
            return self._receive(self.timeout)
        except (Unavailable, ConnectionError) as reason:
            return Result(failed=str(reason))

    def stop(self) -> None:
        self._process.kill()
        self._process.join()
