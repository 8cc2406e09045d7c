"""torch.distributed for the device: its backend ``webgpu_gloo``, and what communication costs.

``init_process_group()``, ``init_process_group("gloo")`` and ``new_group`` without a backend use it
for tensors of webgpu, beside Gloo for tensors of the CPU. It reads tensors into host memory, has
Gloo communicate and uploads the results, while the program goes on; docs/distributed.md says more.
"""

from typing import Any, TypedDict

import torch

from torch_webgpu import _C
from torch_webgpu._register import PROCESS_GROUP as BACKEND

__all__ = ["BACKEND", "Statistics", "is_built", "statistics"]


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


def _create(c10d: Any, chosen: Any, options: Any) -> object:
    """For ``Backend.register_backend(extended_api=True)``."""
    if not c10d.is_gloo_available():
        raise RuntimeError("Distributed package doesn't have Gloo built in")
    # It has connections of its own: a group's messages are told apart by their order.
    gloo = c10d.ProcessGroupGloo(
        chosen.store, chosen.group_rank, chosen.group_size, timeout=chosen.timeout
    )
    # As PyTorch sets them for its own.
    gloo.options.global_ranks_in_group = chosen.global_ranks_in_group
    gloo.options.group_name = chosen.group_id
    _list_ranks(gloo)
    kind = c10d.ProcessGroupGloo._Options
    if not hasattr(kind, "__deepcopy__"):
        kind.__deepcopy__ = _copy_options
    return _C.process_group(gloo)


def _list_ranks(gloo: Any) -> None:
    """Lists the ranks of a group of all processes, of which PyTorch's list is empty.

    A split looks up the ranks of the new group in that list, and reads beyond its end unless it is
    that of the first ProcessGroupGloo of this process.
    """
    if not gloo.options.global_ranks_in_group:
        gloo.options.global_ranks_in_group = list(range(gloo.size()))


def _prepare_split(c10d: Any, parent: Any) -> None:
    """Before `split_group(parent)`: raises where the processes would wait for each other in vain.

    PyTorch names the new group by the number of groups that a process is in, and Gloo's processes
    meet by that name.
    """
    counts = [0] * parent.size()
    c10d.all_gather_object(counts, len(c10d._world.pg_names), parent)
    if len(set(counts)) > 1:
        raise RuntimeError(
            f"split_group: the processes belong to unlike numbers of groups, {counts}, and "
            f"PyTorch would give the new group unlike names. new_group() makes it in any case."
        )
    of_cpu = parent._get_backend(torch.device("cpu"))
    of_cpu = getattr(of_cpu, "wrapped_pg", of_cpu)  # under TORCH_DISTRIBUTED_DEBUG=DETAIL
    if isinstance(of_cpu, c10d.ProcessGroupGloo):
        _list_ranks(of_cpu)


def _copy_options(options: Any, memo: dict[int, Any]) -> Any:
    """For split_group(), which changes a copy of the options of the group's backend. PyTorch cannot
    copy those of Gloo. A copy has the same network devices."""
    copied = type(options)()
    for name in ("_timeout", "_devices", "_threads", "global_ranks_in_group", "group_name"):
        setattr(copied, name, getattr(options, name))
    return copied


def _add_to_gloo(c10d: Any, config: Any, backend: str) -> None:
    """Makes a group that is asked for as "gloo", or without a backend, one for both devices.

    PyTorch looks up the devices of a name, and gives all of them to the same backend. `config` is
    the BackendConfig that it made so.
    """
    gloo = c10d.Backend.GLOO
    chosen = config.device_backend_map
    if str(backend).lower() == gloo and "cpu" in chosen:
        if not torch._C._has_cuda:
            # Where devices have different backends, PyTorch makes one for each device.
            chosen.pop("cuda", None)
        chosen["webgpu"] = c10d.Backend(BACKEND)
    elif str(backend) == c10d.Backend.UNDEFINED and chosen == {"webgpu": BACKEND}:
        # PyTorch takes Gloo for the group's default backend.
        config.device_backend_map = {"cpu": c10d.Backend(gloo), "webgpu": c10d.Backend(BACKEND)}
