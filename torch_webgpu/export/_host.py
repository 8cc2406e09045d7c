"""Tensors on the CPU: an export executes their operators, so it puts back what these change."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch

from torch_webgpu.export._alive import has_no_data

# Of copies. What does not fit, such as a data set, is not copied.
_MOST_BYTES = 256 << 20


class _Tensor(NamedTuple):
    """A tensor before the export."""

    tensor: torch.Tensor
    version: int


class HostTensors:
    """Those that there are before an export, with copies of their memory."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self._tensors = [_Tensor(x, x._version) for x in tensors if _is_on_host(x)]
        # By memory, because tensors may be views of others.
        storages = {}
        for tensor, _ in self._tensors:
            storage = tensor.untyped_storage()
            storages[storage._cdata] = storage
        self._copies: dict[int, torch.UntypedStorage] = {}
        left = _MOST_BYTES
        for key, storage in sorted(storages.items(), key=lambda item: item[1].nbytes()):
            left -= storage.nbytes()
            if left < 0:
                break
            self._copies[key] = storage.clone()

    def left(self) -> dict[int, torch.UntypedStorage]:
        """What a run has left in memory that it changed, by the memory."""
        found = {}
        for tensor, version in self._tensors:
            storage = tensor.untyped_storage()
            key = storage._cdata
            if tensor._version != version and key in self._copies and key not in found:
                found[key] = storage.clone()
        return found

    def apply(self, contents: Mapping[int, torch.UntypedStorage]) -> None:
        for tensor, _ in self._tensors:
            storage = tensor.untyped_storage()
            content = contents.get(storage._cdata)
            if content is not None and content.nbytes() == storage.nbytes():
                storage.copy_(content)

    def tensor_of(self, key: int) -> torch.Tensor:
        """A tensor that lies in the memory."""
        return next(x for x, _ in self._tensors if x.untyped_storage()._cdata == key)

    def restore(self) -> Sequence[tuple[torch.Tensor, bool]]:
        """Puts back what was changed in place. Returns the tensors that were changed, and whether
        they could be put back."""
        changed = []
        restored = set()
        for tensor, version in self._tensors:
            if tensor._version == version:
                continue
            storage = tensor.untyped_storage()
            copy = self._copies.get(storage._cdata)
            is_known = copy is not None and copy.nbytes() == storage.nbytes()
            if copy is not None and is_known and storage._cdata not in restored:
                storage.copy_(copy)
                restored.add(storage._cdata)
            changed.append((tensor, is_known))
        return changed

    def clear(self) -> None:
        self._tensors.clear()
        self._copies.clear()


def _is_on_host(tensor: torch.Tensor) -> bool:
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and not has_no_data(tensor)
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and not tensor.is_inference()
        and torch._C._has_storage(tensor)
    )
