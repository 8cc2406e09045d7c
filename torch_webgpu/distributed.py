"""torch.distributed for the device: its backend ``webgpu_gloo``, and what communication costs.

``init_process_group()``, ``init_process_group("gloo")`` and ``new_group`` without a backend use it for
tensors of webgpu, beside Gloo for tensors of the CPU. It reads tensors into host memory, has Gloo
communicate and uploads the results, while the program goes on; docs/distributed.md says more.
"""

import datetime
import functools
import types
from typing import Any, TypedDict

from torch_webgpu import _C, _import_hook

__all__ = ["BACKEND", "Statistics", "is_built", "statistics"]

#: The name for ``init_process_group(BACKEND)`` or ``init_process_group(f"cpu:gloo,webgpu:{BACKEND}")``.
BACKEND = "webgpu_gloo"


class Statistics(TypedDict):
    """Sums over all process groups of this process. Times are in seconds.

    Steps of different collectives run side by side, and beside the program, so their times may
    add up to more than has passed.
    """

    collectives: int  #: collectives and messages of webgpu tensors
    bytes_read: int  #: from the device to host memory
    bytes_written: int  #: from host memory to the device
    reading: float  #: until the values were in host memory, work before them on the device included
    communicating: float  #: in Gloo, waiting for the other processes included
    writing: float  #: until the upload was in the device's stream


def is_built() -> bool:
    """Whether this package was built for a PyTorch with torch.distributed."""
    return bool(_C.has_distributed)


def statistics() -> Statistics:
    """What communication of webgpu tensors cost since the process started."""
    sums = _C.communication_statistics() if is_built() else {}

    def seconds(name: str) -> float:
        return sums.get(f"{name}_ns", 0) * 1e-9

    return Statistics(
        collectives=sums.get("collectives", 0),
        bytes_read=sums.get("bytes_read", 0),
        bytes_written=sums.get("bytes_written", 0),
        reading=seconds("reading"),
        communicating=seconds("communicating"),
        writing=seconds("writing"),
    )


def _install() -> None:
    """Registers the backend when torch.distributed is imported, which some programs never do."""
    if is_built():
        _import_hook.when_imported("torch.distributed.distributed_c10d", _register)


def _register(c10d: types.ModuleType) -> None:
    c10d.Backend.register_backend(
        BACKEND, functools.partial(_create, c10d), devices=["cpu", "webgpu"]
    )
    _add_to_gloo(c10d)


def _create(
    c10d: Any, store: Any, rank: int, world_size: int, timeout: datetime.timedelta
) -> object:
    if not c10d.is_gloo_available():
        raise RuntimeError("Distributed package doesn't have Gloo built in")
    # It has connections of its own: a group's messages are told apart by their order.
    return _C.process_group(c10d.ProcessGroupGloo(store, rank, world_size, timeout=timeout))


def _add_to_gloo(c10d: Any) -> None:
    """Makes a group that is asked for as "gloo", or without a backend, one for both devices.

    PyTorch looks up the devices of a name, and gives all of them to the same backend.
    """
    config = c10d.BackendConfig
    initialize = config.__init__

    @functools.wraps(initialize)
    def initialize_for_both(self: Any, backend: str) -> None:
        initialize(self, backend)
        chosen = self.device_backend_map
        if str(backend).lower() == c10d.Backend.GLOO and "cpu" in chosen:
            if not _has_cuda():
                # With one backend for all its devices PyTorch makes it once, else once for each.
                chosen.pop("cuda", None)
            chosen["webgpu"] = c10d.Backend(BACKEND)
        elif chosen == {"webgpu": BACKEND} and str(backend) == c10d.Backend.UNDEFINED:
            # PyTorch takes Gloo for the group's default backend.
            self.device_backend_map = {
                "cpu": c10d.Backend(c10d.Backend.GLOO),
                "webgpu": c10d.Backend(BACKEND),
            }

    config.__init__ = initialize_for_both


def _has_cuda() -> bool:
    import torch

    return bool(torch._C._has_cuda)
