"""Some eighty operations, each compared with the CPU, quick enough for every runtime and driver.

As a program it runs them all on the device of this process and prints a JSON object: what the
device is, and the error text of every check ("" where it passed).
"""

import json

import torch
import torch.nn.functional as F
from torch.testing import assert_close


class Inputs:
    """Tensors of one device, from numbers that are the same for every device."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._generator = torch.Generator().manual_seed(7)

    def floats(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(shape, generator=self._generator).to(dtype).to(self.device)

    def integers(
        self, *shape: int, dtype: torch.dtype = torch.int64, low: int = -100, high: int = 100
    ) -> torch.Tensor:
        numbers = torch.randint(low, high, shape, generator=self._generator)
        return numbers.to(dtype).to(self.device)

    def bools(self, *shape: int) -> torch.Tensor:
        return self.integers(*shape) > 0


def gradients(function, *leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """function(*leaves), and the gradients of the leaves for an uneven gradient of the result."""
    leaves = tuple(leaf.requires_grad_() for leaf in leaves)
    result = function(*leaves)
    upstream = torch.linspace(-1, 2, result.numel()).view(result.shape).to(result.device)
    return result.detach(), *torch.autograd.grad(result, leaves, upstream)


def filled_slice(base: torch.Tensor) -> torch.Tensor:
    base[1:3, ::2].fill_(7)
    return base


def odd_bytes(x: torch.Tensor) -> torch.Tensor:
    x[1:].view(-1)[3:10].add_(1)
    return x


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.int32) ^ 0x55


def own_kernel(x: torch.Tensor) -> torch.Tensor:
    if x.device.type == "cpu":
        return x * 3
    library = torch.webgpu.compile_shader("""
        @group(0) @binding(0) var<storage, read_write> x: array<f32>;
        @group(0) @binding(1) var<uniform> factor: f32;
        @compute @workgroup_size(64)
        fn scale(@builtin(global_invocation_id) id: vec3u) {
          if (id.x < arrayLength(&x)) { x[id.x] *= factor; }
        }
    """)
    library.scale(x, 3)
    return x


def sgd_step(x: Inputs) -> tuple[torch.Tensor, ...]:
    layer = x.floats(6, 3).requires_grad_()
    optimizer = torch.optim.SGD([layer], lr=0.1, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        (layer * layer).backward(torch.ones_like(layer))
        optimizer.step()
    return (layer.detach(),)


LONG = 1 << 40

CHECKS = {
    # Moving data
    "upload and readback": lambda x: x.integers(33, dtype=torch.int16),
    "strided readback": lambda x: x.floats(5, 7).t()[1:, ::2],
    "contiguous": lambda x: x.floats(2, 3, 4, 5).permute(3, 1, 0, 2).contiguous(),
    "expand": lambda x: x.floats(3, 1).expand(3, 5).clone(),
    "flipped bytes": lambda x: x.integers(9, 5, dtype=torch.int8).t().contiguous(),
    "view as integers": lambda x: bits(x.floats(6)),
    "fill a slice": lambda x: filled_slice(x.floats(5, 6)),
    "odd offset of bytes": lambda x: odd_bytes(x.integers(4, 5, dtype=torch.uint8)),
    "odd offset of halves": lambda x: odd_bytes(x.floats(4, 5, dtype=torch.bfloat16)),
    "to float16": lambda x: (x.floats(40) * 100).half(),
    "from float16": lambda x: x.floats(41, dtype=torch.float16).float(),
    "to bfloat16": lambda x: (x.floats(40) * 1e3).bfloat16(),
    "to int64": lambda x: (x.floats(37) * 1e5).long(),
    "from int64": lambda x: (x.integers(37) * LONG).float(),
    "to bool": lambda x: x.integers(37, low=-2, high=2).bool(),
    "float64 moves": lambda x: x.floats(3, 4, dtype=torch.float64).t(),
    # Arithmetic
    "add with broadcasting": lambda x: x.floats(3, 1, 4) + x.floats(5, 1),
    "add in place": lambda x: x.floats(3, 4).add_(x.floats(4), alpha=2),
    "add to a view of itself": lambda x: x.floats(4, 4).add_(1).t().add(x.floats(4, 4)),
    "multiply mixed types": lambda x: x.floats(6, dtype=torch.float16) * x.floats(6),
    "int64 multiply": lambda x: x.integers(50) * (x.integers(50) + LONG),
    "int64 floor division": lambda x: (x.integers(50) * LONG) // (x.integers(50, low=1)),
    "int32 remainder": lambda x: (
        x.integers(50, dtype=torch.int32) % x.integers(50, dtype=torch.int32, low=1)
    ),
    "uint8 wraps": lambda x: x.integers(50, dtype=torch.uint8) * 3 + 200,
    "complex multiply": lambda x: (
        torch.view_as_complex(x.floats(9, 2)) * torch.view_as_complex(x.floats(4, 1, 2))
    ),
    "true division": lambda x: x.integers(20) / x.integers(20, low=1),
    "pow": lambda x: x.floats(20).abs() ** 1.7,
    "pow of a negative base": lambda x: x.floats(20) ** 3,
    "addcmul": lambda x: torch.addcmul(x.floats(8), x.floats(3, 8), x.floats(3, 1), value=0.5),
    "lerp": lambda x: torch.lerp(x.floats(9), x.floats(9), 0.3),
    "clamp": lambda x: x.floats(30).clamp(-0.5, 0.7),
    "maximum with nan": lambda x: torch.maximum(x.floats(5), (x.floats(5) - 9).sqrt()),
    "shift": lambda x: x.integers(20, low=0) << 33,
    # Functions
    "exp": lambda x: x.floats(30).exp(),
    "log of zero": lambda x: x.floats(30).clamp_min(0).log(),
    "sin": lambda x: (x.floats(30) * 100).sin(),
    "tanh": lambda x: (x.floats(30) * 30).tanh(),
    "erf in float16": lambda x: x.floats(30, dtype=torch.float16).erf(),
    "gelu": lambda x: F.gelu(x.floats(30)),
    "sqrt of complex": lambda x: torch.view_as_complex(x.floats(9, 2)).sqrt(),
    "round": lambda x: (x.integers(30).float() / 2).round(),
    # Comparison and choice
    "less than": lambda x: x.floats(4, 5) < x.floats(5),
    "int64 equality": lambda x: x.integers(64, high=-97) * LONG == x.integers(64, high=-97),
    "logical": lambda x: x.bools(33) & ~x.bools(33),
    "isnan": lambda x: (x.floats(20) - 0.3).log().isnan(),
    "where": lambda x: torch.where(x.bools(4, 5), x.floats(4, 5), x.floats(5)),
    "where on bytes": lambda x: torch.where(
        x.bools(21), x.integers(21, dtype=torch.int8), x.integers(21, dtype=torch.int8)
    ),
    # Reductions
    "sum": lambda x: x.floats(300, 7).sum(),
    "sum over a middle dimension": lambda x: x.floats(3, 40, 5).sum(1, keepdim=True),
    "int64 sum": lambda x: (x.integers(999) * LONG).sum(),
    "mean in float16": lambda x: (x.floats(900, dtype=torch.float16) + 100).mean(),
    "amax": lambda x: x.floats(6, 50).t().amax(0),
    "argmax": lambda x: x.floats(6, 50).argmax(1),
    "variance": lambda x: x.floats(8, 33).var(1),
    "any": lambda x: (x.integers(9, 9) > 60).any(0),
    "norm": lambda x: torch.linalg.vector_norm(x.floats(77), 2),
    # Matrix products and convolutions
    "matrix product": lambda x: x.floats(33, 70) @ x.floats(70, 21),
    "product of transposed halves": lambda x: (
        x.floats(20, 9, dtype=torch.float16).t() @ x.floats(20, 30, dtype=torch.float16)
    ),
    "product of bfloat16": lambda x: (
        x.floats(9, 20, dtype=torch.bfloat16) @ x.floats(20, 8, dtype=torch.bfloat16)
    ),
    "long product": lambda x: x.floats(5, 3000) @ x.floats(3000, 6) / 50,
    "int64 product": lambda x: x.integers(5, 6) * LONG @ x.integers(6, 7),
    "complex product": lambda x: (
        torch.view_as_complex(x.floats(5, 6, 2)) @ torch.view_as_complex(x.floats(6, 3, 2))
    ),
    "batched product": lambda x: torch.baddbmm(
        x.floats(4, 1, 7), x.floats(4, 5, 6), x.floats(4, 6, 7), beta=0.5, alpha=2
    ),
    "linear": lambda x: F.linear(x.floats(9, 20), x.floats(30, 20), x.floats(30)),
    "convolution": lambda x: F.conv2d(
        x.floats(2, 3, 9, 8), x.floats(4, 3, 3, 3), x.floats(4), stride=2, padding=1
    ),
    "convolution in halves": lambda x: F.conv2d(
        x.floats(2, 4, 8, 8, dtype=torch.float16), x.floats(6, 2, 3, 3).half(), groups=2
    ),
    "softmax": lambda x: x.floats(7, 300).softmax(1),
    "log-softmax over rows": lambda x: x.floats(70, 3, 5).log_softmax(0),
    # Gradients
    "gradient of a product": lambda x: gradients(
        lambda a, b: a @ b.t(), x.floats(9, 20), x.floats(7, 20)
    ),
    "gradient of a convolution": lambda x: gradients(
        lambda a, w, b: F.conv2d(a, w, b, padding=1),
        x.floats(2, 3, 6, 7),
        x.floats(4, 3, 3, 3),
        x.floats(4),
    ),
    "gradient of softmax": lambda x: gradients(lambda a: a.softmax(1), x.floats(6, 40)),
    "gradient of broadcasting": lambda x: gradients(
        lambda a, b: a * b.exp(), x.floats(4, 3), x.floats(3)
    ),
    "gradient of a view": lambda x: gradients(lambda a: a.t()[1:].sigmoid(), x.floats(4, 3)),
    "gradient of relu": lambda x: gradients(lambda a: a.relu() * a, x.floats(25)),
    "gradient of gelu": lambda x: gradients(F.gelu, x.floats(25)),
    "gradient of mean": lambda x: gradients(lambda a: a.mean(0).tanh(), x.floats(6, 5)),
    "sgd with momentum": sgd_step,
    "a kernel of one's own": lambda x: own_kernel(x.floats(70)),
}


def failure(name: str) -> str:
    """What is wrong with a check on the device; empty if nothing is."""
    tolerances = {"rtol": 1e-4, "atol": 1e-5} if "complex" in name else {}
    try:
        results, expected = ([CHECKS[name](Inputs(device))] for device in ("webgpu", "cpu"))
        for actual, want in zip(_flat(results), _flat(expected), strict=True):
            if actual.device.type != "webgpu":
                return f"the result is on {actual.device}"
            assert_close(actual.cpu(), want, equal_nan=True, **tolerances)
    except Exception as error:  # a check that raises has failed like one that differs
        return f"{type(error).__name__}: {error}"
    return ""


def _flat(results) -> list[torch.Tensor]:
    return [t for r in results for t in (r if isinstance(r, tuple) else (r,))]


def main() -> None:
    properties = torch.webgpu.get_device_properties()
    print(
        json.dumps(
            {
                "adapter": properties.name,
                "runtime": properties.runtime,
                "features": list(properties.features),
                "limits": properties.limits,
                "failures": {name: failure(name) for name in CHECKS},
            }
        )
    )


if __name__ == "__main__":
    main()
