"""What `import torch` runs once torch-webgpu is installed: the entry point of ``torch.backends``.

PyTorch has one slot for an accelerator, and a device from outside takes it: with ``webgpu``
registered, `backward()` on CUDA fails. So `import torch` registers the device only where PyTorch
has no other accelerator to use. `import torch_webgpu`, or ``TORCH_WEBGPU_AUTOLOAD=1`` in the
environment, registers it everywhere.

This is a package of its own because importing any module of `torch_webgpu` registers the device.
"""

import os
import sys
import warnings

_VARIABLE = "TORCH_WEBGPU_AUTOLOAD"


def autoload() -> None:
    """Registers the device, or leaves a placeholder as ``torch.webgpu``.

    Starts no GPU, initializes no driver, and never breaks ``import torch``.
    """
    if "torch_webgpu" in sys.modules:
        return  # It is what imports torch, and registers the device when torch is ready.
    reason = _reason_to_wait()
    if reason:
        import torch

        from torch_webgpu_autoload._placeholder import Placeholder

        torch.webgpu = Placeholder(reason)  # type: ignore[attr-defined]
        return
    import torch_webgpu  # noqa: F401  registers the device


def bitsandbytes_backend() -> None:
    """Tells bitsandbytes of the device: its entry point ``bitsandbytes.backends``.

    Nothing is to be done where the device is not registered. If it is registered later, the
    library is told then. Never breaks ``import bitsandbytes``: a version that is not known gets a
    warning.
    """
    if "torch_webgpu" in sys.modules:
        from torch_webgpu.integrations import _imports

        _imports.install_by_entry_point("bitsandbytes")


def _reason_to_wait() -> str:
    """Why the device is not registered now; empty if it is to be."""
    choice = os.environ.get(_VARIABLE, "")
    if choice == "1":
        return ""
    if choice == "0":
        return f"{_VARIABLE} is 0"
    if choice:
        warnings.warn(f"{_VARIABLE} is '0' or '1', not {choice!r}; ignored", stacklevel=3)
    from torch_webgpu_autoload import _accelerators

    name = _accelerators.available()
    return f"PyTorch uses one accelerator at a time, and this machine has {name}" if name else ""
