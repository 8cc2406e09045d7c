"""Tensor types by name, such as ``torch.webgpu.FloatTensor``: what ``Tensor.type()`` names, and
what code older than ``torch.device`` builds and tests with.
"""

from typing import Any

import torch

_DTYPES = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ShortTensor": torch.int16,
}


class _TensorType(type):
    dtype: torch.dtype

    def __instancecheck__(cls, value: object) -> bool:
        return (
            isinstance(value, torch.Tensor)
            and value.device.type == "webgpu"
            and value.dtype == cls.dtype
            and value.layout == torch.strided
        )

    def __call__(cls, *args: Any) -> torch.Tensor:
        """A tensor of the given sizes, uninitialized, or of a sequence's or tensor's values."""
        if not args or all(isinstance(size, int) for size in args):
            return torch.empty(args or (0,), dtype=cls.dtype, device="webgpu")
        (values,) = args
        if isinstance(values, torch.Size):
            return torch.empty(values, dtype=cls.dtype, device="webgpu")
        return torch.as_tensor(values, dtype=cls.dtype, device="webgpu")


def tensor_types() -> dict[str, type]:
    """The types by their names in the module."""
    # The full name, as Tensor.type(torch.webgpu.FloatTensor) looks at.
    return {
        name: _TensorType(f"torch.webgpu.{name}", (), {"dtype": dtype, "__module__": "builtins"})
        for name, dtype in _DTYPES.items()
    }
