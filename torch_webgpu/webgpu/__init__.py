"""``torch.webgpu``: the WebGPU device, with the names and meanings of ``torch.cuda``.

``webgpu:0``, ``webgpu:1`` ... are the machine's adapters: its GPUs, or a software adapter if there
is none; TORCH_WEBGPU_ADAPTER chooses others. Each has one stream: what is queued first runs first.
A device is started by its first use; importing torch touches none.
"""

import importlib
from typing import TYPE_CHECKING, Any

import torch

from torch_webgpu import _C

from ._device import DeviceLike, index_of, requested_index

if TYPE_CHECKING:
    from torch_webgpu.export import export, load_state
    from torch_webgpu.graphs import (
        Graph,
        graph,
        graph_pool_handle,
        is_current_stream_capturing,
        make_graphed_callables,
        update_graph,
    )
    from torch_webgpu.webgpu.fallback import (
        fallbacks,
        get_fallback_mode,
        reset_fallbacks,
        set_fallback_mode,
    )
    from torch_webgpu.webgpu.flat_parameters import FlatParameter, flatten_parameters
    from torch_webgpu.webgpu.memory import (
        empty_cache,
        get_per_process_memory_fraction,
        host_memory_stats,
        host_memory_stats_as_nested_dict,
        ipc_collect,
        max_memory_allocated,
        max_memory_cached,
        max_memory_reserved,
        mem_get_info,
        memory_allocated,
        memory_cached,
        memory_reserved,
        memory_stats,
        memory_stats_as_nested_dict,
        memory_summary,
        reset_accumulated_host_memory_stats,
        reset_accumulated_memory_stats,
        reset_max_memory_allocated,
        reset_max_memory_cached,
        reset_peak_host_memory_stats,
        reset_peak_memory_stats,
        set_per_process_memory_fraction,
    )
    from torch_webgpu.webgpu.profiler import Profile, ProfileEntry, profile, stats
    from torch_webgpu.webgpu.properties import (
        DeviceProperties,
        get_device_capability,
        get_device_name,
        get_device_properties,
        list_adapters,
    )
    from torch_webgpu.webgpu.random import (
        default_generators,
        get_rng_state,
        get_rng_state_all,
        initial_seed,
        manual_seed,
        manual_seed_all,
        seed,
        seed_all,
        set_rng_state,
        set_rng_state_all,
    )
    from torch_webgpu.webgpu.shaders import Kernel, ShaderLibrary, compile_shader
    from torch_webgpu.webgpu.streams import (
        Event,
        Stream,
        StreamContext,
        current_stream,
        default_stream,
        set_stream,
        stream,
    )

__all__ = [
    "DeviceProperties",
    "Event",
    "FlatParameter",
    "Graph",
    "Kernel",
    "OutOfMemoryError",
    "Profile",
    "ProfileEntry",
    "ShaderLibrary",
    "Stream",
    "StreamContext",
    "can_device_access_peer",
    "compile_shader",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "export",
    "fallbacks",
    "flatten_parameters",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_fallback_mode",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "graph",
    "graph_pool_handle",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "list_adapters",
    "load_state",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "profile",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_fallbacks",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_fallback_mode",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stats",
    "stream",
    "synchronize",
    "update_graph",
]

OutOfMemoryError = torch.OutOfMemoryError


def is_available() -> bool:
    """Whether a WebGPU adapter can be had. Does not start the device; the answer is remembered."""
    return _C.is_available()


def device_count() -> int:
    """The number of usable devices, 0 where there is no adapter. Starts none; remembered."""
    return _C.device_count()


def current_device() -> int:
    """The index of the thread's current device."""
    return _C.current_device()


def set_device(device: DeviceLike) -> None:
    """Makes it the thread's current device. A negative index changes nothing.

    Raises RuntimeError for an index that no device has.
    """
    _C.exchange_device(index_of(device))


class device:
    """Context manager that makes `device` the current one; None or an index below 0 keeps it.

    Raises RuntimeError for an index that no device has.
    """

    def __init__(self, device: DeviceLike) -> None:
        self.idx = requested_index(device)
        index_of(self.idx)
        self.prev_idx = -1

    def __enter__(self) -> "device":
        self.prev_idx = _C.exchange_device(self.idx)
        return self

    def __exit__(self, *exception: Any) -> None:
        _C.exchange_device(self.prev_idx)


class device_of(device):
    """Context manager that selects the device of a tensor; does nothing for another device's."""

    def __init__(self, obj: torch.Tensor | torch.UntypedStorage) -> None:
        super().__init__(obj.device if obj.device.type == "webgpu" else None)


def synchronize(device: DeviceLike = None) -> None:
    """Waits until all work queued on the device has finished, without holding the GIL.

    Raises what went wrong on it since the last synchronization: IndexError for an index out of
    range, RuntimeError for the rest.
    """
    _C.synchronize(index_of(device))


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Whether a device can read the memory of another: never. Copies go through the host."""
    index_of(device)
    index_of(peer_device)
    return False


def init() -> None:
    """Starts the current device, as its first use would. Raises RuntimeError without an adapter."""
    _C.init()


def is_initialized() -> bool:
    """Whether a device has been started."""
    return _C.is_initialized()


# Imported when first used, for they would be most of what `import torch` takes here.
_DTYPES = "BFloat16 Bool Byte Char Double Float Half Int Long Short"
_LATER = {
    name: module
    for module, names in {
        "torch_webgpu.export": ("export", "load_state"),
        "torch_webgpu.graphs": (
            "Graph",
            "graph",
            "graph_pool_handle",
            "is_current_stream_capturing",
            "make_graphed_callables",
            "update_graph",
        ),
        "torch_webgpu.webgpu.fallback": (
            "fallbacks",
            "get_fallback_mode",
            "reset_fallbacks",
            "set_fallback_mode",
        ),
        "torch_webgpu.webgpu.flat_parameters": ("FlatParameter", "flatten_parameters"),
        "torch_webgpu.webgpu.legacy": (
            *(f"{dtype}Tensor" for dtype in _DTYPES.split()),
            *(f"{dtype}Storage" for dtype in f"{_DTYPES} ComplexDouble ComplexFloat".split()),
        ),
        "torch_webgpu.webgpu.memory": (
            "empty_cache",
            "get_per_process_memory_fraction",
            "host_memory_stats",
            "host_memory_stats_as_nested_dict",
            "ipc_collect",
            "max_memory_allocated",
            "max_memory_cached",
            "max_memory_reserved",
            "mem_get_info",
            "memory_allocated",
            "memory_cached",
            "memory_reserved",
            "memory_stats",
            "memory_stats_as_nested_dict",
            "memory_summary",
            "reset_accumulated_host_memory_stats",
            "reset_accumulated_memory_stats",
            "reset_max_memory_allocated",
            "reset_max_memory_cached",
            "reset_peak_host_memory_stats",
            "reset_peak_memory_stats",
            "set_per_process_memory_fraction",
        ),
        "torch_webgpu.webgpu.profiler": ("Profile", "ProfileEntry", "profile", "stats"),
        "torch_webgpu.webgpu.properties": (
            "DeviceProperties",
            "get_device_capability",
            "get_device_name",
            "get_device_properties",
            "list_adapters",
        ),
        "torch_webgpu.webgpu.random": (
            "default_generators",
            "get_rng_state",
            "get_rng_state_all",
            "initial_seed",
            "manual_seed",
            "manual_seed_all",
            "seed",
            "seed_all",
            "set_rng_state",
            "set_rng_state_all",
        ),
        "torch_webgpu.webgpu.shaders": ("Kernel", "ShaderLibrary", "compile_shader"),
        "torch_webgpu.webgpu.streams": (
            "Event",
            "Stream",
            "StreamContext",
            "current_stream",
            "default_stream",
            "set_stream",
            "stream",
        ),
    }.items()
    for name in names
}
MODULES_IMPORTED_LATER = {
    "amp": "torch_webgpu.webgpu.amp",
    "fallback": "torch_webgpu.webgpu.fallback",
    "graphs": "torch_webgpu.graphs",
    "legacy": "torch_webgpu.webgpu.legacy",
    "memory": "torch_webgpu.webgpu.memory",
    "profiler": "torch_webgpu.webgpu.profiler",
    "properties": "torch_webgpu.webgpu.properties",
    "random": "torch_webgpu.webgpu.random",
    "shaders": "torch_webgpu.webgpu.shaders",
    "streams": "torch_webgpu.webgpu.streams",
    "tunable": "torch_webgpu.webgpu.tunable",
}


def __getattr__(name: str) -> object:
    # torch.utils.checkpoint asks for it before it saves the generator's state.
    if name == "_initialized":
        return is_initialized()
    if name in MODULES_IMPORTED_LATER:
        return importlib.import_module(MODULES_IMPORTED_LATER[name])
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_LATER[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, *MODULES_IMPORTED_LATER})


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 tensors can be computed with. They are, in float32, hence as emulation."""
    return including_emulation


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that ``torch.autocast("webgpu", dtype=...)`` accepts."""
    _C.register_operators()  # torch.autocast calls this first, and may meet fake tensors only
    return [torch.float16, torch.bfloat16]


def _is_in_bad_fork() -> bool:
    return _C.in_bad_fork()


def _lazy_init() -> None:
    """PyTorch calls this before it first creates something on the device, and remembers that.

    The first allocation starts the device.
    """
    _C.register_operators()
