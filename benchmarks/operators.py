"""Rows about single operators. Every peer runs the same function through its own `ops`."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from .peers.base import Peer
from .peers.torch_peer import reference
from .registry import Skip, Workload, WrongResult, every_scale, row

SMALL_OPS = "Host cost of small operators"
BANDWIDTH = "Memory bandwidth"
# Largest error over the largest value of the reference, which is computed in float64. TF32 (3e-4)
# would not pass for float32.
TOLERANCE = {"float32": 5e-5, "float16": 5e-3, "bfloat16": 3e-2}
SHORT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
CHAIN = {"tiny": [{"length": 5}], "small": [{"length": 1000}], "full": [{"length": 1000}]}


def random(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype)


def ramp(size: int) -> np.ndarray:
    """`size` bytes of float32 that cost little to make and differ from their neighbours."""
    return (np.arange(size // 4) % 1021).astype(np.float32)


def expect(actual: np.ndarray, wanted: np.ndarray, tolerance: float) -> None:
    if actual.shape != wanted.shape:
        raise WrongResult(f"shape {actual.shape}, not {wanted.shape}")
    error = np.abs(actual - wanted).max() / max(np.abs(wanted).max(), 1e-30)
    # Written so that a NaN is an error too.
    if not error <= tolerance:
        raise WrongResult(f"relative error {error:.2e}, more than {tolerance:.0e}")


# What is compared of large inputs and outputs: an index for each input and for each output.
Part = tuple[tuple[Any, ...], tuple[Any, ...]]


def operator(
    peer: Peer,
    function: Callable,
    *inputs: np.ndarray,
    amount: float,
    dtype: str = "",
    which: Sequence[int] = (),
    with_forward: bool = True,
    stepwise: bool = False,
    parts: Sequence[Part] = (),
    tolerance: float | None = None,
) -> Workload:
    """`function(ops, *inputs)` on the peer's device, checked against float64 on the CPU.

    With `which`, the gradients of the inputs with these numbers; `with_forward` if the function is
    to be timed as well. `dtype` is that of the device's tensors where it is not the inputs'. With
    `parts`, only these are checked: the function of parts of the inputs is those of the outputs.
    """
    dtype = dtype or inputs[0].dtype.name
    handles = [peer.array(value, dtype) for value in inputs]
    if which:
        run = peer.compile_gradients(function, handles, which, with_forward=with_forward)
    else:
        run = peer.compile(function, handles, stepwise=stepwise)
    rounded = [torch.from_numpy(x).to(getattr(torch, dtype)).double().numpy() for x in inputs]
    outputs = len(which) or 1

    def verify(result: Any) -> None:
        results = result if which else [result]
        for each in results:
            peer.require_on_device(each)
        arrays = [peer.to_numpy(each) for each in results]
        for of_inputs, of_outputs in parts or [(((),) * len(inputs), ((),) * outputs)]:
            some = [x[index] for x, index in zip(rounded, of_inputs, strict=True)]
            wanted = reference(function, some, which)
            for array, index, want in zip(arrays, of_outputs, wanted, strict=True):
                expect(array[index], want, tolerance or TOLERANCE[dtype])

    return Workload(run, verify, amount)


def chain(peer: Peer, length: int, in_place: bool) -> Workload:
    def out_of_place_chain(ops, x, y):
        for _ in range(length):
            x = ops.step(x + y)
        return x

    def in_place_chain(ops, x, y):
        for _ in range(length):
            x = ops.add_(x, y)
        return x

    function = in_place_chain if in_place else out_of_place_chain
    x, y = random(1024), random(1024, seed=1)
    return operator(peer, function, x, y, amount=length, stepwise=True)


def chain_rows(form: str, in_place: bool) -> None:
    adds = "dependent float32 adds of 1,024 elements each, time over their number (1,000)"
    ends = {
        "enqueue": f"{adds}, until the last one is accepted",
        "finish": f"{adds}, until the one synchronization at the end returns",
    }
    for end, what in ends.items():
        row(
            f"{form}: to {end}",
            unit="us/op",
            group=SMALL_OPS,
            what=what,
            enqueue_only=end == "enqueue",
            **CHAIN,
        )(lambda peer, length: chain(peer, length, in_place))


chain_rows("x = x + y", in_place=False)
chain_rows("x.add_(y)", in_place=True)

# Fractions of --size.
WHOLE = every_scale(size=1)
QUARTER = every_scale(size=0.25)


@row("copy {size}", unit="GB/s", group=BANDWIDTH, what="bytes read and written by clone()", **WHOLE)
def copy(peer, size):
    return operator(peer, lambda ops, x: ops.copy(x), ramp(size), amount=2 * size)


@row("add {size}", unit="GB/s", group=BANDWIDTH, what="bytes read and written by x + 1", **WHOLE)
def add(peer, size):
    return operator(peer, lambda ops, x: x + 1.0, ramp(size), amount=2 * size)


@row("sum {size}", unit="GB/s", group=BANDWIDTH, what="bytes read by a full sum()", **WHOLE)
def full_sum(peer, size):
    return operator(peer, lambda ops, x: ops.sum(x), ramp(size), amount=size)


ROWS = {"tiny": [{"n": 8}], "small": [{"n": 1024}], "full": [{"n": 8192}]}


def each(choices: dict[str, list[Any]], sizes: dict[str, list[dict]]) -> dict[str, list[dict]]:
    """The sizes with each combination of the choices of further arguments."""
    combined = [
        dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())
    ]
    return {scale: [{**s, **c} for c in combined for s in sizes[scale]] for scale in sizes}


HALVES = {"dtype": ["float32", "float16"]}


@row(
    "softmax {dtype} {n} x {n}",
    unit="GB/s",
    group=BANDWIDTH,
    what="bytes read and written by a softmax of each row",
    **each(HALVES, ROWS),
)
def softmax(peer, n, dtype):
    amount = 2 * bytes_of(dtype) * n * n
    return operator(peer, lambda ops, x: ops.softmax(x), random(n, n, dtype=dtype), amount=amount)


BACKWARD = {"direction": ["forward", "backward"]}


@row(
    "layer norm {dtype} {direction} {n} x {n}",
    unit="GB/s",
    group=BANDWIDTH,
    what="bytes of input and output, with weight and bias; backward, of the gradients of all three",
    **each({**HALVES, **BACKWARD}, ROWS),
)
def layer_norm(peer, n, dtype, direction):
    return norm(peer, lambda ops, x, w, b: ops.layer_norm(x, w, b), n, dtype, direction, 2)


@row(
    "RMS norm {dtype} {direction} {n} x {n}",
    unit="GB/s",
    group=BANDWIDTH,
    what="bytes of input and output, with weight; backward, of the gradients of both",
    **each({**HALVES, **BACKWARD}, ROWS),
)
def rms_norm(peer, n, dtype, direction):
    return norm(peer, lambda ops, x, w: ops.rms_norm(x, w), n, dtype, direction, 1)


def norm(peer: Peer, function: Callable, n: int, dtype: str, direction: str, vectors: int):
    inputs = [random(n, n, dtype=dtype)]
    inputs += [random(n, dtype=dtype, seed=1 + k) for k in range(vectors)]
    once = bytes_of(dtype) * n * n
    if direction == "forward":
        return operator(peer, function, *inputs, amount=2 * once)
    # The result and its gradient are the same here, and half of it is rounding where it is narrow.
    return operator(
        peer,
        function,
        *inputs,
        amount=3 * once,
        which=range(vectors + 1),
        with_forward=False,
        tolerance=max(2 * TOLERANCE[dtype], 1e-4),
    )


def bytes_of(dtype: str) -> int:
    return 4 if dtype == "float32" else 2


# Names are those of the functions of the peers' tensors or of their operators.
POINTWISE = {
    "x * y + x": lambda ops, x, y: x * y + x,
    "gelu": lambda ops, x, y: ops.gelu(x),
    "x + y.T": lambda ops, x, y: x + y.T,
}


@row(
    "{name} {dtype} {n} x {n}",
    unit="GB/s",
    group=BANDWIDTH,
    what="bytes of the inputs that are used and of the output, once each",
    **each({**HALVES, "name": list(POINTWISE)}, ROWS),
)
def pointwise(peer, n, dtype, name):
    inputs = random(n, n, dtype=dtype), random(n, n, dtype=dtype, seed=1)
    tensors = 2 if name == "gelu" else 3
    amount = tensors * bytes_of(dtype) * n * n
    return operator(peer, POINTWISE[name], *inputs, amount=amount)


# Of whole numbers up to 16, whose sums float32 holds exactly.
def whole_numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 16, shape).astype(np.float32)


LINES = {
    "tiny": [{"rows": 2, "n": 9}],
    "small": [{"rows": 16, "n": 1 << 14}],
    "full": [{"rows": 16, "n": 1 << 20}, {"rows": 8192, "n": 8192}],
}


@row("cumsum {rows} x {n}", unit="GB/s", group=BANDWIDTH, what="bytes in and out", **LINES)
def cumsum(peer, rows, n):
    x = whole_numbers(rows, n)
    return operator(peer, lambda ops, x: ops.cumsum(x), x, amount=8 * x.size)


@row("sort {rows} x {n}", unit="ms", group=BANDWIDTH, what="the sorted values of each row", **LINES)
def sort(peer, rows, n):
    return operator(peer, lambda ops, x: ops.sort(x), random(rows, n), amount=1)


def require_transfers(peer: Peer) -> None:
    if peer.no_transfers:
        raise Skip(peer.no_transfers)


@row(
    "upload {size}",
    unit="GB/s",
    group=BANDWIDTH,
    what="a new device tensor from pageable host memory, waited for",
    **QUARTER,
)
def upload(peer, size):
    require_transfers(peer)
    host = ramp(size)

    def verify(handle) -> None:
        peer.require_on_device(handle)
        expect(peer.to_numpy(handle), host, 0)

    return Workload(lambda: peer.array(host), verify, size)


@row(
    "readback {size}",
    unit="GB/s",
    group=BANDWIDTH,
    what="a host array from a device tensor",
    **QUARTER,
)
def readback(peer, size):
    require_transfers(peer)
    host = ramp(size)
    handle = peer.array(host)
    peer.require_on_device(handle)
    return Workload(lambda: peer.to_numpy(handle), lambda result: expect(result, host, 0), size)
