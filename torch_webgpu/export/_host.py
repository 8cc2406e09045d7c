"""Tensors on the CPU: an export executes their operators, so it puts back what these change."""

import ctypes
import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch

from torch_webgpu.export._alive import has_no_data, parts_of

# Of copies. What does not fit, such as a data set, is not copied.
_MOST_BYTES = 64 << 20


class Content(NamedTuple):
    """What a run has left in memory on the CPU."""

    bytes: torch.UntypedStorage
    digest: Hashable  # equal for equal bytes

    @classmethod
    def of(cls, storage: torch.UntypedStorage) -> "Content":
        raw = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
        return cls(storage.clone(), hashlib.sha256(raw).digest())


class _Memory:
    """Memory before an export, with the tensors that lie in it."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.storage = storage
        self.tensors: list[torch.Tensor] = []
        self.copy: torch.UntypedStorage | None = None
        self.versions: list[int] = []  # of the tensors, where there is no copy

    def is_changed(self) -> bool:
        if self.copy is None:
            return self.versions != _versions(self.tensors)
        return self.storage.nbytes() != self.copy.nbytes() or any(
            not torch.equal(one, other)
            for one, other in zip(_parts(self.storage), _parts(self.copy), strict=True)
        )

    def fill(self, content: torch.UntypedStorage) -> None:
        if self.storage.nbytes() != content.nbytes():
            self.storage.resize_(content.nbytes())
        self.storage.copy_(content)


class HostTensors:
    """Those that there are before an export, with copies of their memory. Changes are found by
    comparing bytes: NumPy and `Tensor.data` change them without a version."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self._memory: dict[int, _Memory] = {}  # tensors may be views of others
        self._changed: list[_Memory] = []  # by the last run
        for tensor in tensors:
            if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or has_no_data(tensor):
                continue
            for part in filter(_is_on_host, parts_of(tensor)):
                storage = part.untyped_storage()
                memory = self._memory.setdefault(storage._cdata, _Memory(storage))
                memory.tensors.append(tensor)
        left = _MOST_BYTES
        for memory in sorted(self._memory.values(), key=lambda one: one.storage.nbytes()):
            left -= memory.storage.nbytes()
            if left >= 0:
                memory.copy = memory.storage.clone()
            else:
                memory.versions = _versions(memory.tensors)

    def left(self) -> dict[int, Content]:
        """What a run has left in memory that it changed. restore() puts this back."""
        changed = {key: memory for key, memory in self._memory.items() if memory.is_changed()}
        self._changed = list(changed.values())
        return {
            key: Content.of(memory.storage)
            for key, memory in changed.items()
            if memory.copy is not None and memory.storage.nbytes() == memory.copy.nbytes()
        }

    def apply(self, contents: Mapping[int, Content]) -> None:
        for key, content in contents.items():
            self._memory[key].fill(content.bytes)

    def tensor_of(self, key: int) -> torch.Tensor:
        """A tensor that lies in the memory."""
        return self._memory[key].tensors[0]

    def restore(self) -> Sequence[tuple[torch.Tensor, bool]]:
        """Puts back what left() found changed. Returns a tensor for each memory that was changed,
        and whether it could be put back, which needs a copy."""
        for memory in self._changed:
            if memory.copy is not None:
                memory.fill(memory.copy)
            else:
                memory.versions = _versions(memory.tensors)
        return [(memory.tensors[0], memory.copy is not None) for memory in self._changed]

    def clear(self) -> None:
        self._memory.clear()
        self._changed.clear()


def _parts(storage: torch.UntypedStorage) -> tuple[torch.Tensor, torch.Tensor]:
    """The bytes, eight at a time, which compare faster, and the rest."""
    bytes_ = torch.tensor([], dtype=torch.uint8, device="cpu").set_(storage)
    whole = len(bytes_) // 8 * 8
    return bytes_[:whole].view(torch.int64), bytes_[whole:]


def _versions(tensors: Iterable[torch.Tensor]) -> list[int]:
    return [0 if x.is_inference() else x._version for x in tensors]


def _is_on_host(tensor: torch.Tensor) -> bool:
    return (
        tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and torch._C._has_storage(tensor)
        and tensor.untyped_storage().nbytes() > 0
    )
