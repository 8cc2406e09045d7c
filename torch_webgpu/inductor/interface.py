"""The device as Dynamo sees it."""

import functools
import types
from typing import Any

from torch_webgpu import _C, webgpu

_MOST_BINDINGS = 16  # kMaxBindings of csrc/runtime/pipeline.h


def register(device_interface: Any) -> None:
    """Registers the interface with torch._dynamo.device_interface."""

    class WebGPUInterface(device_interface.DeviceInterface):
        """Each device has one stream: most of what is asked has one answer."""

        device = webgpu.device
        Event = webgpu.Event
        Stream = webgpu.Stream

        class Worker:
            """What compile workers ask. They have no device of their own."""

            @staticmethod
            def set_device(device: int) -> None:
                return None

            @staticmethod
            def current_device() -> int:
                return 0

            @staticmethod
            def get_device_properties(device: Any = None) -> Any:
                return properties()

        current_device = staticmethod(webgpu.current_device)
        set_device = staticmethod(webgpu.set_device)
        device_count = staticmethod(webgpu.device_count)
        is_available = staticmethod(webgpu.is_available)
        stream = staticmethod(webgpu.stream)
        current_stream = staticmethod(webgpu.current_stream)
        set_stream = staticmethod(webgpu.set_stream)
        synchronize = staticmethod(webgpu.synchronize)
        memory_allocated = staticmethod(webgpu.memory_allocated)

        @staticmethod
        def exchange_device(device: int) -> int:
            return _C.exchange_device(device)

        @staticmethod
        def maybe_exchange_device(device: int) -> int:
            return _C.exchange_device(device)

        @staticmethod
        def get_raw_stream(device_idx: int) -> int:
            return 0

        @staticmethod
        def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
            return None

        @staticmethod
        def is_bf16_supported(including_emulation: bool = False) -> bool:
            return True  # generated kernels compute it in float32, as eager ones do

        @staticmethod
        def get_compute_capability(device: Any = None) -> int:
            return 0

    # Of all that there can be: how many there are is not asked before one is used.
    for name in ("webgpu", *(f"webgpu:{index}" for index in range(_C.most_devices))):
        device_interface.register_interface_for_device(name, WebGPUInterface)


@functools.cache
def properties() -> types.SimpleNamespace:
    """The properties of ``webgpu:0``, which code is made for, with those that Inductor splits
    reductions by. WebGPU does not tell how many cores there are, so these are guesses of the right
    size."""
    real = webgpu.get_device_properties(0)
    software = real.type == "software"
    return types.SimpleNamespace(
        type="webgpu",
        name=real.name,
        multi_processor_count=2 if software else 128,
        max_threads_per_multi_processor=256 if software else 2048,
        warp_size=32,
        max_threads_per_block=256,
        regs_per_multiprocessor=None,
        major=None,
        limits=real.limits,
    )


def buffer_budget(may_raise: bool = True) -> int:
    """Storage buffers that a kernel may bind, beside the error words of one that may raise.

    Of the target of the scope that the graph is compiled in (`torch_webgpu.wgsl.target`)."""
    return min(_MOST_BINDINGS, _C.target_storage_buffers()) - int(may_raise)
