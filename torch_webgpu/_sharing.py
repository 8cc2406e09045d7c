"""Tensors on their way to other processes, into files, and to several devices of one.

`torch.multiprocessing` shares a CUDA tensor's memory with the process that receives it. WebGPU has
no memory that two processes can share, so a webgpu tensor travels as a copy in shared host memory.
"""

import functools
import sys
from collections.abc import Callable
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions

_Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def install() -> None:
    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, _reduce_tensor)
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)
    tensor: Any = torch.Tensor
    tensor._reduce_ex_internal = _with_sparse_tensors(tensor._reduce_ex_internal)
    _limit_data_parallel()


def _with_sparse_tensors(reduce: Callable[..., Any]) -> Callable[..., Any]:
    """Pickles a sparse tensor of the device as one of the CPU: as its indices and values.

    PyTorch pickles what has no storage, on a device like this one, as a tensor of the CPU that it
    moves to the device while it unpickles. A file of the old format has no data at that time.
    """

    @functools.wraps(reduce)
    def reduce_ex(tensor: torch.Tensor, protocol: int) -> Any:
        if tensor.device.type != "webgpu" or tensor.layout in (torch.strided, torch.jagged):
            return reduce(tensor, protocol)
        size = tensor.size()
        parts: tuple[Any, ...]
        if tensor.layout == torch.sparse_coo:
            parts = (tensor._indices(), tensor._values(), size, tensor.is_coalesced())
        elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
            parts = (tensor.crow_indices(), tensor.col_indices(), tensor.values(), size)
        else:
            parts = (tensor.ccol_indices(), tensor.row_indices(), tensor.values(), size)
        return torch._utils._rebuild_sparse_tensor, (tensor.layout, parts)

    return reduce_ex


def _reduce_tensor(tensor: torch.Tensor) -> _Reduced:
    # PyTorch refuses what requires a gradient and is no leaf.
    is_refused = tensor.requires_grad and not tensor.is_leaf
    if tensor.device.type != "webgpu" or is_refused:
        return reductions.reduce_tensor(tensor)
    host = tensor.detach().cpu()
    _keep_for_child(host)
    return _rebuild_tensor, (
        type(tensor),
        tensor.device,
        tensor.requires_grad,
        *reductions.reduce_tensor(host),
    )


def _keep_for_child(host: torch.Tensor) -> None:
    """Keeps the copy with a process that is being started, if there is one.

    The process inherits the open file of the shared memory, which must not be closed, and its
    number taken by another file, before the process runs. For a queue the file is duplicated.
    """
    popen: Any = get_spawning_popen()
    if popen is not None:
        vars(popen).setdefault("_copies_of_webgpu_tensors", []).append(host)


def _rebuild_tensor(
    kind: type[torch.Tensor],
    device: torch.device,
    requires_grad: bool,
    rebuild: Callable[..., torch.Tensor],
    arguments: tuple[Any, ...],
) -> torch.Tensor:
    from torch_webgpu import webgpu

    # A forked child has no devices, and the first use says why.
    count = webgpu.device_count() or (webgpu._is_in_bad_fork() and device.index + 1)
    if device.index >= count:
        raise RuntimeError(
            f"a tensor on {device} of another process cannot be received: this process has "
            f"{count} webgpu device(s). Move it to the CPU before it is sent, or set "
            f"TORCH_WEBGPU_ADAPTER alike in both processes."
        )
    tensor = rebuild(*arguments).to(device)
    if kind is torch.nn.Parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


def _reduce_storage(storage: torch.UntypedStorage) -> _Reduced:
    if storage.device.type == "webgpu":
        raise RuntimeError(
            "Cannot pickle webgpu storage; try pickling a webgpu tensor instead, which is copied "
            "through shared host memory"
        )
    return reductions.reduce_storage(storage)


def _limit_data_parallel() -> None:
    """`DataParallel` takes one webgpu device and raises for several.

    It moves tensors with functions that only builds of PyTorch with CUDA have.
    """
    # The package's attribute of that name is a function, so the module is looked up.
    parallel = sys.modules["torch.nn.parallel.data_parallel"].DataParallel
    comm = torch.nn.parallel.comm
    initialize, scatter, gather = parallel.__init__, comm.scatter, comm.gather

    @functools.wraps(initialize)
    def checked_initialize(self: Any, *arguments: Any, **options: Any) -> None:
        initialize(self, *arguments, **options)
        if _is_webgpu_chosen():
            _only_device(self.device_ids)

    @functools.wraps(scatter)
    def scatter_to_one(
        tensor: torch.Tensor, devices: Any = None, *arguments: Any, **options: Any
    ) -> Any:
        if devices is None or not _is_webgpu_chosen():
            return scatter(tensor, devices, *arguments, **options)
        return (tensor.to(torch.device("webgpu", _only_device(devices))),)

    @functools.wraps(gather)
    def gather_from_one(
        tensors: Any, dim: int = 0, destination: Any = None, *arguments: Any, **options: Any
    ) -> Any:
        tensors = list(tensors)
        if len(tensors) != 1 or tensors[0].device.type != "webgpu":
            return gather(tensors, dim, destination, *arguments, **options)
        index = torch._utils._get_device_index(destination, allow_cpu=True, optional=True)
        return tensors[0].to(torch.device("webgpu", index) if index >= 0 else "cpu")

    parallel.__init__ = checked_initialize
    comm.scatter, comm.gather = scatter_to_one, gather_from_one


def _is_webgpu_chosen() -> bool:
    """Whether DataParallel's indices mean webgpu devices. It prefers CUDA, MPS and others."""
    return torch._utils._get_available_device_type() == "webgpu"


def _only_device(devices: Any) -> int:
    if len(devices) > 1:
        raise NotImplementedError(
            "DataParallel runs on one webgpu device, because it sends tensors between devices with "
            "functions that only CUDA has. Use torch.nn.parallel.DistributedDataParallel with one "
            "process for each device, as torchrun starts them, or DataParallel(device_ids=[0])."
        )
    return int(torch._utils._get_device_index(devices[0], allow_cpu=False, optional=True))
