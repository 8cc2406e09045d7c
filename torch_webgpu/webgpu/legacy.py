"""Types of tensors and storages by name, such as ``torch.webgpu.FloatTensor``: what ``type()``
names, and what code older than ``torch.device`` builds and tests with.
"""

from typing import Any, NoReturn

import torch
from torch._utils import classproperty
from torch.storage import _LegacyStorage, _warn_typed_storage_removal

_DTYPES = {
    "BFloat16": torch.bfloat16,
    "Bool": torch.bool,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Short": torch.int16,
}
_COMPLEX_DTYPES = {"ComplexDouble": torch.complex128, "ComplexFloat": torch.complex64}


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


def _tensor_types() -> dict[str, type]:
    """The types by their names in the module."""
    # The full name, as Tensor.type(torch.webgpu.FloatTensor) looks at.
    return {
        f"{name}Tensor": _TensorType(
            f"torch.webgpu.{name}Tensor", (), {"dtype": dtype, "__module__": "builtins"}
        )
        for name, dtype in _DTYPES.items()
    }


class _Storage(_LegacyStorage):
    """What ``torch.webgpu.FloatStorage`` and its like have in common. Deprecated, as torch.cuda's:
    ``torch.UntypedStorage`` takes a device."""

    _dtype: torch.dtype

    @classproperty  # type: ignore[untyped-decorator]
    def dtype(self) -> torch.dtype:
        _warn_typed_storage_removal()
        return self._dtype

    @classmethod
    def from_buffer(cls, *args: Any, **kwargs: Any) -> NoReturn:
        _warn_typed_storage_removal()
        raise RuntimeError("from_buffer: Not available for webgpu storage")

    @classmethod
    def _new_with_weak_ptr(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError("_new_with_weak_ptr: Not available for webgpu storage")

    @classmethod
    def _new_shared_filename(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError("_new_shared_filename: Not available for webgpu storage")


def _storage_types() -> dict[str, type]:
    """The types of storages by their names in the module. PyTorch learns of them."""
    # PyTorch takes a storage's dtype from its class, and the device from the class's module.
    types = {
        f"{name}Storage": type(
            f"{name}Storage", (_Storage,), {"_dtype": dtype, "__module__": "torch.webgpu"}
        )
        for name, dtype in {**_DTYPES, **_COMPLEX_DTYPES}.items()
    }
    torch._storage_classes.update(types.values())
    return types


globals().update(_tensor_types() | _storage_types())
