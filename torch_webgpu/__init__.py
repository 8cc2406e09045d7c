"""PyTorch on WebGPU: ``device="webgpu"``.

Importing torch is enough once this package is installed: PyTorch calls `_autoload` through the
``torch.backends`` entry point. The device's functions are in ``torch.webgpu``.
"""

import os as _os

__version__ = "0.1.0.dev0"

# For find_package(TorchWebGPU): pass as -DCMAKE_PREFIX_PATH.
cmake_prefix_path = _os.path.join(_os.path.dirname(__file__), "share", "cmake")


def _autoload() -> None:
    """Registers the device with PyTorch. Starts no GPU and never breaks ``import torch``."""
    from torch_webgpu import _register

    _register.register_or_warn()


# Last: this import calls _autoload when it is the first import of torch.
import torch as _torch  # noqa: E402, F401

_autoload()
