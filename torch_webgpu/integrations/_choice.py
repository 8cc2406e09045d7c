"""Whether a library that chooses a device by itself is to take webgpu."""

import warnings

import torch

from torch_webgpu import _C

# The libraries that the program allowed to choose webgpu, be the adapter software or not.
enabled: set[str] = set()
_told: set[str] = set()


def chosen(library: str) -> bool:
    """Whether the library takes webgpu where it has found no accelerator.

    For a library with a way to be told a default device: so it does with an accelerator adapter.
    """
    return available() if library in enabled else _accelerator_adapter() is not None


def chosen_or_told(library: str, what: str) -> bool:
    """The same for a library with a list of devices in its code, which the program must enable.

    If it did not, and there is an accelerator adapter, a warning says once that `what` takes the
    CPU.
    """
    if library in enabled:
        return available()
    adapter = None if library in _told else _accelerator_adapter()
    if adapter is not None:
        _told.add(library)
        warnings.warn(
            f"{what} runs on the CPU, although there is the WebGPU adapter {adapter}. "
            f"torch_webgpu.integrations.enable({library!r}), or naming device='webgpu', uses it.",
            stacklevel=4,
        )
    return False


def device() -> torch.device:
    """The device that is chosen."""
    return torch.device("webgpu", 0)


def available() -> bool:
    """Whether there is an adapter, software or not."""
    return _C.is_available()


def _accelerator_adapter() -> str | None:
    """The name of the adapter that the device uses or would use; None for none, or software."""
    if not _C.is_available():
        return None
    adapter = _C.adapter()
    return adapter["name"] if adapter["type"] != "software" else None
