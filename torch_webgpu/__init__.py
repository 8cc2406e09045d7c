"""PyTorch on WebGPU: ``device="webgpu"``.

Importing this package registers the device; its functions are in ``torch.webgpu``. On machines
without another accelerator, `import torch` alone does the same (see `torch_webgpu_autoload`).
"""

import os as _os

__version__ = "0.1.0.dev0"

# For find_package(TorchWebGPU): pass as -DCMAKE_PREFIX_PATH.
cmake_prefix_path = _os.path.join(_os.path.dirname(__file__), "share", "cmake")


# Last, for this import calls `torch_webgpu_autoload.autoload` when it is the first import of torch.
import torch as _torch  # noqa: E402, F401

from torch_webgpu import _register  # noqa: E402

_register.register_or_warn()
