"""Rows about matrix products: squares, thin ones, batches, vectors, and the layers made of them."""

import contextlib

import torch

from .operators import SHORT, TOLERANCE, bytes_of, each, operator, random
from .peers.base import Peer
from .peers.torch_peer import TorchPeer
from .registry import Skip, Workload, row

PRODUCTS = "Matrix products"
VECTORS = "Products of few rows"


def matmul(peer: Peer, m: int, k: int, n: int, dtype: str, layout: str = "nn") -> Workload:
    """The letters of a layout say which factor is transposed in memory."""
    a = random(*((k, m) if layout[0] == "t" else (m, k)), dtype="float32")
    b = random(*((n, k) if layout[1] == "t" else (k, n)), dtype="float32", seed=1)

    def function(ops, a, b):
        return (a.T if layout[0] == "t" else a) @ (b.T if layout[1] == "t" else b)

    return operator(peer, function, a, b, amount=2 * m * k * n, dtype=dtype)


SQUARES = {
    "tiny": [{"n": 8}],
    "small": [{"n": 256}, {"n": 512}],
    "full": [{"n": 1024}, {"n": 2048}, {"n": 4096}, {"n": 8192}, {"n": 4097}],
}
STRICT = "no TF32 anywhere"


def squares(dtype: str) -> None:
    @row(
        f"matmul {SHORT[dtype]} {{n}}",
        unit="TFLOP/s",
        group=PRODUCTS,
        what=f"n x n by n x n, {STRICT}" if dtype == "float32" else "n x n by n x n",
        **SQUARES,
    )
    def square(peer, n):
        return matmul(peer, n, n, n, dtype)


for dtype in SHORT:
    squares(dtype)


LARGE = {"tiny": [{"n": 8}], "small": [{"n": 512}], "full": [{"n": 4096}]}


@row(
    "matmul {dtype} {n}, {layout}",
    unit="TFLOP/s",
    group=PRODUCTS,
    what="the letters say whether the factors are contiguous (n) or transposed (t)",
    **each({"dtype": ["float16", "bfloat16"], "layout": ["nt", "tn", "tt"]}, LARGE),
)
def layouts(peer, n, dtype, layout):
    return matmul(peer, n, n, n, dtype, layout)


@row(
    "linear, bias, GELU {dtype} {n}",
    unit="TFLOP/s",
    group=PRODUCTS,
    what="a linear layer and the activation after it, as eager operators",
    **each({"dtype": ["float16", "bfloat16"]}, LARGE),
)
def linear_gelu(peer, n, dtype):
    inputs = random(n, n) / n**0.5, random(n, n, seed=1), random(n, seed=2)
    function = lambda ops, x, w, b: ops.gelu(ops.linear(x, w, b))  # noqa: E731
    return operator(peer, function, *inputs, amount=2 * n**3, dtype=dtype)


@row(
    'matmul f32 {n}, precision "high"',
    unit="TFLOP/s",
    group=PRODUCTS,
    what='under torch.set_float32_matmul_precision("high")',
    **LARGE,
)
def matmul_high(peer, n):
    if not isinstance(peer, TorchPeer):
        raise Skip("a setting of PyTorch")
    a, b = random(n, n), random(n, n, seed=1)

    def function(ops, a, b):
        with precision("high"):
            return a @ b

    return operator(peer, function, a, b, amount=2 * n**3, tolerance=2e-3)


@contextlib.contextmanager
def precision(name: str):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@row(
    "matmul {dtype} {m} x {k} x {n}",
    unit="TFLOP/s",
    group=PRODUCTS,
    what="few rows",
    **each(
        {"dtype": ["float32", "float16"]},
        {
            "tiny": [{"m": 2, "k": 8, "n": 8}],
            "small": [{"m": 16, "k": 512, "n": 512}],
            "full": [{"m": m, "k": 4096, "n": 4096} for m in (16, 64)],
        },
    ),
)
def thin(peer, m, k, n, dtype):
    return matmul(peer, m, k, n, dtype)


@row(
    "bmm {dtype} {batch} x {n}",
    unit="TFLOP/s",
    group=PRODUCTS,
    what="a batch of products n x n by n x n",
    **each(
        {"dtype": ["float32", "float16"]},
        {
            "tiny": [{"batch": 2, "n": 4}],
            "small": [{"batch": 8, "n": 128}],
            "full": [{"batch": 64, "n": 512}],
        },
    ),
)
def batched(peer, batch, n, dtype):
    a, b = random(batch, n, n), random(batch, n, n, seed=1)
    return operator(peer, lambda ops, a, b: a @ b, a, b, amount=2 * batch * n**3, dtype=dtype)


@row(
    "x @ W.T {dtype}, {rows} x {k} by {n}",
    unit="GB/s",
    group=VECTORS,
    what="bytes of W",
    **each(
        {"dtype": list(TOLERANCE)},
        {
            "tiny": [{"rows": 1, "k": 8, "n": 4}],
            "small": [{"rows": 1, "k": 1024, "n": 1024}],
            "full": [
                {"rows": 1, "k": 4096, "n": 4096},
                {"rows": 1, "k": 4096, "n": 131072},
                {"rows": 8, "k": 4096, "n": 4096},
            ],
        },
    ),
)
def few_rows(peer, rows, k, n, dtype):
    x, w = random(rows, k), random(n, k, seed=1)
    amount = bytes_of(dtype) * n * k
    return operator(peer, lambda ops, x, w: x @ w.T, x, w, amount=amount, dtype=dtype)
