"""Rows about single operators. Every peer runs the same function through its own `ops`."""

from collections.abc import Callable

import numpy as np

from .peers.base import Peer
from .peers.torch_peer import reference
from .registry import Skip, Workload, WrongResult, every_scale, row

SMALL_OPS = "Host cost of small operators"
BANDWIDTH = "Memory bandwidth"
COMPUTE = "Compute"
# Largest error over the largest value of the reference, which is computed in float64. TF32 (3e-4)
# would not pass for float32.
TOLERANCE = {"float32": 5e-5, "float16": 5e-3}
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


def operator(
    peer: Peer, function: Callable, *inputs: np.ndarray, amount: float, stepwise: bool = False
) -> Workload:
    """`function(ops, *inputs)` on the peer's device, checked against float64 on the CPU."""
    wanted = reference(function, inputs)

    def verify(output) -> None:
        peer.require_on_device(output)
        expect(peer.to_numpy(output), wanted, TOLERANCE[inputs[0].dtype.name])

    handles = [peer.array(value) for value in inputs]
    return Workload(peer.compile(function, handles, stepwise=stepwise), verify, amount)


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


@row(
    "softmax {n} x {n}",
    unit="GB/s",
    group=BANDWIDTH,
    what="bytes read and written by a softmax of each row",
    **ROWS,
)
def softmax(peer, n):
    return operator(peer, lambda ops, x: ops.softmax(x), random(n, n), amount=8 * n * n)


@row(
    "layer norm {n} x {n}",
    unit="GB/s",
    group=BANDWIDTH,
    what="bytes of input and output, with weight and bias",
    **ROWS,
)
def layer_norm(peer, n):
    inputs = random(n, n), random(n, seed=1), random(n, seed=2)
    return operator(peer, lambda ops, x, w, b: ops.layer_norm(x, w, b), *inputs, amount=8 * n * n)


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


def matmul(peer, n, dtype):
    inputs = random(n, n, dtype=dtype), random(n, n, dtype=dtype, seed=1)
    return operator(peer, lambda ops, a, b: a @ b, *inputs, amount=2 * n**3)


SQUARE = {
    "tiny": [{"n": 8}],
    "small": [{"n": 256}, {"n": 512}],
    "full": [{"n": 1024}, {"n": 2048}, {"n": 4096}],
}


@row(
    "matmul f32 {n}",
    unit="TFLOP/s",
    group=COMPUTE,
    what="n x n by n x n, no TF32 anywhere",
    **SQUARE,
)
def matmul_f32(peer, n):
    return matmul(peer, n, "float32")


@row(
    "matmul f16 {n}",
    unit="TFLOP/s",
    group=COMPUTE,
    what="n x n by n x n, float16 in and out",
    **SQUARE,
)
def matmul_f16(peer, n):
    return matmul(peer, n, "float16")


CONV = {
    "tiny": [{"batch": 1, "channels": 2, "side": 4}],
    "small": [{"batch": 2, "channels": 32, "side": 14}],
    "full": [{"batch": 32, "channels": 128, "side": 28}],
}
CONV_NAME = "{batch}x{channels}x{side}x{side}"


def conv_operands(batch, channels, side):
    x = random(batch, channels, side, side)
    weight = random(channels, channels, 3, 3, seed=1)
    return x, weight, 2 * x.size * channels * 9


@row(
    "conv2d " + CONV_NAME,
    unit="TFLOP/s",
    group=COMPUTE,
    what="3x3, padding 1, as many channels out as in",
    **CONV,
)
def conv2d(peer, batch, channels, side):
    x, weight, flops = conv_operands(batch, channels, side)
    return operator(peer, lambda ops, x, w: ops.conv2d(x, w), x, weight, amount=flops)


def conv2d_backward(peer, operand, shape):
    x, weight, flops = conv_operands(**shape)
    gradient = random(*x.shape, seed=2)

    def function(ops, gradient, x, weight):
        return ops.conv2d_backward(gradient, x, weight, operand)

    return operator(peer, function, gradient, x, weight, amount=flops)


@row(
    "conv2d input gradient " + CONV_NAME,
    unit="TFLOP/s",
    group=COMPUTE,
    what="3x3, padding 1",
    **CONV,
)
def conv2d_input_gradient(peer, **shape):
    return conv2d_backward(peer, 0, shape)


@row(
    "conv2d weight gradient " + CONV_NAME,
    unit="TFLOP/s",
    group=COMPUTE,
    what="3x3, padding 1",
    **CONV,
)
def conv2d_weight_gradient(peer, **shape):
    return conv2d_backward(peer, 1, shape)
