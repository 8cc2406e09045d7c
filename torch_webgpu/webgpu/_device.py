import torch

from torch_webgpu import _C

DeviceLike = torch.device | str | int | None


def requested_index(device: DeviceLike) -> int:
    """The index that `device` names, -1 if it names none: the current device is meant then.

    Raises ValueError for a device of another kind.
    """
    if device is None:
        return -1
    if isinstance(device, int):
        return max(device, -1)
    device = torch.device(device)
    if device.type != "webgpu":
        raise ValueError(f"Expected a webgpu device, but got: {device}")
    return -1 if device.index is None else device.index


def index_of(device: DeviceLike) -> int:
    """The index of the webgpu device that is meant; None means the current one.

    Raises ValueError for a device of another kind, RuntimeError for an index that no device has.
    """
    return _C.device_index(requested_index(device))
