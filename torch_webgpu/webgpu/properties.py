"""What the adapters are and what they grant."""

from dataclasses import dataclass

from torch_webgpu import _C

from ._device import DeviceLike, index_of


@dataclass(frozen=True)
class DeviceProperties:
    """The adapter in use. `limits` are in bytes where they are sizes.

    CUDA's ``multi_processor_count`` and what else is about multiprocessors are missing, for WebGPU
    does not tell them.
    """

    name: str
    vendor: str
    architecture: str
    driver: str
    backend: str  # "vulkan", "metal", "d3d12", ...
    type: str  # "discrete", "integrated" or "software"
    runtime: str  # "dawn" or the path of the library
    features: tuple[str, ...]  # of WebGPU, then WGSL's language features, which wgpu does not tell
    limits: dict[str, int]
    # Bytes: of the adapter's largest memory heap, as Dawn tells. Where that is not told it is
    # estimated: main memory for an adapter that works there, else a lower bound.
    total_memory: int
    total_memory_is_estimated: bool

    @property
    def adapter(self) -> str:
        return f"{self.name} ({self.backend}, {self.type}, {self.driver})"

    @property
    def major(self) -> int:
        """The first number of `get_device_capability`: the version of WebGPU."""
        return _CAPABILITY[0]

    @property
    def minor(self) -> int:
        """The second number of `get_device_capability`."""
        return _CAPABILITY[1]

    @property
    def warp_size(self) -> int:
        """The size of the largest subgroup; 1 where the adapter has no subgroups.

        Adapters with several sizes choose one for each kernel: ``limits["subgroup_min_size"]`` is
        the least.
        """
        return self.limits.get("subgroup_max_size", 0) or 1


_CAPABILITY = (1, 0)


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """The properties of the adapter. Starts the device."""
    index = index_of(device)
    text, features, limits = _C.properties(index)
    _, total, estimated = _C.memory_budget(index)
    return DeviceProperties(
        features=tuple(features),
        limits=limits,
        total_memory=total,
        total_memory_is_estimated=estimated,
        **text,
    )


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """``(1, 0)``: the version of WebGPU. Does not start the device.

    Not comparable with the compute capability of CUDA, which tells a GPU's generation. What an
    adapter can do is in the `features` and `limits` of `get_device_properties`.
    """
    index_of(device)
    return _CAPABILITY


def get_device_name(device: DeviceLike = None) -> str:
    """The name of the adapter. Starts the device."""
    return get_device_properties(device).name


def list_adapters() -> list[dict[str, str]]:
    """All adapters of the machine, best first. The devices are those that are GPUs, or the first if
    none is; TORCH_WEBGPU_ADAPTER chooses others, by their indices in this list or parts of their
    names, with commas between them."""
    return _C.adapters()
