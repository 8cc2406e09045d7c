"""Rows about convolutions and their gradients, of ResNet-50's shapes and of depthwise ones."""

import numpy as np

from .operators import bytes_of, each, operator, random
from .peers.torch_peer import TorchPeer
from .registry import Skip, row

CONVOLUTIONS = "Convolutions"
DEPTHWISE = "Depthwise convolutions"


def shape(batch, channels, side, filters, kernel, stride=1) -> dict[str, int]:
    names = ("batch", "channels", "side", "filters", "kernel", "stride")
    return dict(zip(names, (batch, channels, side, filters, kernel, stride), strict=True))


# Which operand's gradient is timed; none for the convolution itself.
DIRECTIONS = {"forward": None, "input gradient": 0, "weight gradient": 1}
NAME = "{channels}x{side}x{side}"
LAST = ", channels last"


def channels_last(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def convolution(
    peer, batch, channels, side, filters, kernel, stride, dtype, direction, groups=1, layout=""
):
    x = random(batch, channels, side, side)
    if layout == LAST:
        if not isinstance(peer, TorchPeer):
            raise Skip("its images have their channels first")
        x = channels_last(x)
    if direction == "weight gradient":
        x /= 16  # The sums of x times y over all positions would overflow float16.
    weight = random(filters, channels // groups, kernel, kernel, seed=1)
    out = (side + 2 * (kernel // 2) - kernel) // stride + 1
    flops = 2 * batch * out**2 * weight.size
    moved = bytes_of(dtype) * (x.size + batch * filters * out**2)
    operand = DIRECTIONS[direction]
    # Sums over many images in narrow numbers are rounded to a part of the largest of them.
    return operator(
        peer,
        lambda ops, x, w: ops.conv2d(x, w, stride, kernel // 2, groups),
        x,
        weight,
        amount=flops if groups == 1 else moved,
        dtype=dtype,
        which=() if operand is None else (operand,),
        with_forward=False,
        tolerance=None if operand is None or dtype == "float32" else 2e-2,
    )


@row(
    "conv2d {dtype} {direction} {batch}x"
    + NAME
    + " to {filters}, {kernel}x{kernel}, stride {stride}",
    unit="TFLOP/s",
    group=CONVOLUTIONS,
    what="images x channels x height x width to channels, kernel; padded by half the kernel",
    **each(
        {"dtype": ["float32", "float16"], "direction": list(DIRECTIONS)},
        {
            "tiny": [shape(1, 2, 4, 2, 3)],
            "small": [shape(2, 32, 14, 32, 3)],
            "full": [
                shape(32, 64, 56, 64, 3),
                shape(32, 256, 56, 64, 1),
                shape(32, 128, 28, 128, 3),
                shape(32, 256, 14, 256, 3),
                shape(32, 512, 7, 512, 3),
                shape(32, 128, 56, 128, 3, 2),
                shape(32, 256, 56, 512, 1, 2),
                shape(32, 3, 224, 64, 7, 2),
            ],
        },
    ),
)
def conv2d(peer, **arguments):
    return convolution(peer, **arguments)


@row(
    "depthwise {dtype} {direction} {batch}x"
    + NAME
    + ", {kernel}x{kernel}, stride {stride}{layout}",
    unit="GB/s",
    group=DEPTHWISE,
    what="bytes of the images in and out; a filter for each channel",
    **each(
        {
            "dtype": ["float32", "float16"],
            "direction": list(DIRECTIONS),
            "layout": ["", LAST],
        },
        {
            "tiny": [shape(1, 8, 4, 8, 3)],
            "small": [shape(2, 32, 14, 32, 3)],
            "full": [shape(32, 128, 56, 128, 3), shape(32, 96, 56, 96, 7)],
        },
    ),
)
def depthwise(peer, **arguments):
    return convolution(peer, groups=arguments["channels"], **arguments)
