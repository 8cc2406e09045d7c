"""How generated modules speak of the device."""

from torch._inductor.codegen import common

from torch_webgpu import _C, _torch_versions


class WebGPUOpOverrides(common.DeviceOpOverrides):
    """Each device has one stream: nothing to set. Where there is one device, nothing to guard."""

    def device_guard(self, device_idx: int) -> str:
        if _C.device_count() == 1:
            return "torch._ops.contextlib.nullcontext()"
        return f"torch.webgpu.device({device_idx})"

    def set_device(self, device_idx: int) -> str:
        return "pass"

    def synchronize(self) -> str:
        return "torch.webgpu.synchronize()"

    def import_get_raw_stream_as(self, name: str) -> str:
        return f"def {name}(_): return 0"


def register() -> None:
    """Tells Inductor."""
    _torch_versions.prepare_device_op_overrides(common)
    common.register_device_op_overrides("webgpu", WebGPUOpOverrides())
