"""Which accelerator of PyTorch's own is available, asked without initializing a driver.

A process that has initialized CUDA cannot use it in forked children any more, such as the workers
of a DataLoader; `torch.cuda.is_available()` does initialize it. So devices are counted with the
vendors' management libraries, as PyTorch itself does under ``PYTORCH_NVML_BASED_CUDA_CHECK=1``, and
where these do not answer, the driver's files decide.
"""

import glob
import os
import pathlib
import warnings
from collections.abc import Callable

import torch

_INTEL = "0x8086"  # PCI vendor


def available() -> str:
    """The name of the first accelerator found, empty if there is none. Never raises."""
    for name, is_built, is_present in (
        ("CUDA", _cuda_is_built, _cuda_is_present),
        ("XPU", lambda: torch._C._has_xpu, _xpu_is_present),
        ("MPS", lambda: torch._C._has_mps, lambda: torch._C._mps_is_available()),
        # Counting its devices initializes them; only builds made for MTIA machines have it.
        ("MTIA", lambda: torch._C._mtia_isBuilt(), lambda: True),
    ):
        try:
            if is_built() and is_present():
                return name
        except Exception as error:
            # Taking the slot of an accelerator that is there breaks programs; leaving it does not.
            warnings.warn(f"cannot tell whether {name} is available: {error!r}", stacklevel=2)
            return name
    return ""


def _cuda_is_built() -> bool:
    return bool(torch._C._has_cuda)  # ROCm builds too


def _cuda_is_present() -> bool:
    return _rocm_is_present() if torch.version.hip else _nvidia_is_present()


def _nvidia_is_present() -> bool:
    count = _count(torch.cuda._device_count_nvml)
    if count >= 0:
        return count > 0
    return any(
        os.path.exists(path)
        for path in (
            "/proc/driver/nvidia/version",
            "/dev/nvidiactl",
            "/dev/nvhost-gpu",  # Jetson
            "/dev/dxg",  # Windows Subsystem for Linux
            os.path.expandvars(r"%SystemRoot%\System32\nvcuda.dll"),
        )
    )


def _rocm_is_present() -> bool:
    count = _count(torch.cuda._device_count_amdsmi)
    return count > 0 if count >= 0 else os.path.exists("/dev/kfd")


def _count(ask: Callable[[], int]) -> int:
    """The number of visible devices, or a negative number if the library does not answer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ask()


def _xpu_is_present() -> bool:
    vendors = glob.glob("/sys/class/drm/renderD*/device/vendor")
    if vendors:
        return any(pathlib.Path(path).read_text().strip() == _INTEL for path in vendors)
    return torch.xpu.device_count() > 0
