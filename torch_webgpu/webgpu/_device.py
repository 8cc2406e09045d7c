import torch

DeviceLike = torch.device | str | int | None


def check_device(device: DeviceLike) -> None:
    """Raises unless `device` is the webgpu device; None means the current one."""
    if device is None:
        return
    if isinstance(device, int):
        # torch.cuda takes a negative index to mean 'leave the device as it is'.
        index = max(device, 0)
    else:
        device = torch.device(device)
        if device.type != "webgpu":
            raise ValueError(f"Expected a webgpu device, but got: {device}")
        index = device.index or 0
    if index != 0:
        raise RuntimeError(
            f"webgpu error: invalid device ordinal {index}, there is one device, webgpu:0"
        )
