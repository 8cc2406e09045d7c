"""Prints GFLOP/s of matrix products and convolutions, per shape, layout and dtype.

    python -m benchmarks.gemm_sweep [--device webgpu] [--seconds 0.3] [--only mm|vector|conv]

The shapes are chosen so that every kernel appears: large and aligned float32 ones take the 128 x
128 tile, odd sizes and other types the general one, a single row or column the vector kernel, and
few tiles with a long inner dimension are cut into pieces. With CUDA present, its figures follow.
"""

import argparse

import torch
import torch.nn.functional as F

from benchmarks.timing import measure

SQUARE = [128, 256, 512, 1024, 2048, 4096]
RECTANGULAR = [(4096, 64, 4096), (64, 8192, 64), (128, 4096, 1024), (8192, 1024, 128)]
VECTORS = [(4096, 4096), (4864, 896), (131072, 1024), (1, 1 << 24)]
# Images, channels in, size, channels out, kernel, stride, groups
CONVOLUTIONS = [
    (32, 64, 56, 64, 3, 1, 1),
    (32, 256, 56, 64, 1, 1, 1),
    (32, 256, 14, 256, 3, 1, 1),
    (32, 128, 56, 128, 3, 2, 1),
    (32, 3, 224, 64, 7, 2, 1),
    (32, 128, 28, 128, 3, 1, 128),
]


def synchronize(device):
    if device != "cpu":
        torch.get_device_module(device).synchronize()


def seconds_per_call(function, device, budget):
    return measure(function, lambda: synchronize(device), budget=budget).median


def matrices(m, k, n, layout, dtype, device):
    """Factors in row order (N) or column order (T)."""
    a = torch.randn(k, m).t() if layout[0] == "T" else torch.randn(m, k)
    b = torch.randn(n, k).t() if layout[1] == "T" else torch.randn(k, n)
    return a.to(device, dtype), b.to(device, dtype)


def products(limit):
    for size in SQUARE:
        if size <= limit:
            for layout in ("NN", "NT", "TN"):
                yield size, size, size, layout, torch.float32
            yield size + 1, size + 1, size + 1, "NN", torch.float32
            for dtype in (torch.float16, torch.bfloat16):
                yield size, size, size, "NN", dtype
    for m, k, n in RECTANGULAR:
        if max(m, k, n) <= 4 * limit:
            yield m, k, n, "NN", torch.float32


def report(name, operations, seconds):
    print(
        f"{name:44} {operations / seconds / 1e9:12.1f} GFLOP/s {seconds * 1e6:12.1f} us", flush=True
    )


def run_products(device, args):
    for m, k, n, layout, dtype in products(args.limit):
        a, b = matrices(m, k, n, layout, dtype, device)
        name = f"mm {m} x {k} x {n} {layout} {str(dtype).removeprefix('torch.')}"
        report(name, 2 * m * k * n, seconds_per_call(lambda a=a, b=b: a @ b, device, args.seconds))


def run_vectors(device, args):
    for m, k in VECTORS:
        for dtype in (torch.float32, torch.float16):
            a, x = torch.randn(m, k).to(device, dtype), torch.randn(k).to(device, dtype)
            seconds = seconds_per_call(lambda a=a, x=x: torch.mv(a, x), device, args.seconds)
            name = f"mv {m} x {k} {str(dtype).removeprefix('torch.')}"
            rate = a.numel() * a.element_size() / seconds / 1e9
            print(f"{name:44} {rate:12.1f} GB/s    {seconds * 1e6:12.1f} us", flush=True)


def run_convolutions(device, args):
    for images, channels, size, filters, kernel, stride, groups in CONVOLUTIONS:
        images = min(images, args.limit // 128)
        x = torch.randn(images, channels, size, size).to(device)
        w = torch.randn(filters, channels // groups, kernel, kernel).to(device)
        padding = kernel // 2

        def forward(x=x, w=w, stride=stride, padding=padding, groups=groups):
            return F.conv2d(x, w, None, stride, padding, 1, groups)

        y = forward()
        operations = 2 * y.numel() * w[0].numel()
        name = f"{images}x{channels}x{size}x{size} -> {filters}, {kernel}/{stride}, groups {groups}"
        report(f"conv {name}", operations, seconds_per_call(forward, device, args.seconds))
        for k, what in enumerate(("input", "weight")):
            mask = [k == 0, k == 1, False]

            def backward(mask=mask, x=x, w=w, y=y, s=stride, p=padding, g=groups):
                return torch.ops.aten.convolution_backward(
                    y, x, w, None, [s, s], [p, p], [1, 1], False, [0, 0], g, mask
                )

            seconds = seconds_per_call(backward, device, args.seconds)
            report(f"  gradient of the {what}", operations, seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", action="append", help="default: webgpu, and cuda if present")
    parser.add_argument("--seconds", type=float, default=0.3, help="measure each for this long")
    parser.add_argument("--limit", type=int, default=4096, help="largest square matrix")
    parser.add_argument("--only", choices=("mm", "vector", "conv"))
    args = parser.parse_args()
    parts = {"mm": run_products, "vector": run_vectors, "conv": run_convolutions}
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for device in args.device or ["webgpu", *(["cuda"] if torch.cuda.is_available() else [])]:
        print(f"--- {device}")
        if device.startswith("webgpu"):
            import torch_webgpu  # noqa: F401  registers the device
        for name, part in parts.items():
            if args.only in (None, name):
                part(device, args)


if __name__ == "__main__":
    main()
