"""What Dynamo and Inductor are told of the device, each when it is first imported.

`torch_webgpu._register` lists the functions here with the modules that they wait for.
"""

import functools
import hashlib
import pathlib
from types import ModuleType
from typing import Any


def register_interface(device_interface: ModuleType) -> None:
    from torch_webgpu import _C
    from torch_webgpu.inductor import fake, interface

    # Tracing may dispatch by the device's keys without a tensor that has memory.
    _C.register_operators()
    interface.register(device_interface)
    fake.install()


def keep_out_of_traces(trace_rules: ModuleType) -> None:
    # torch.webgpu.synchronize() and the like break the graph; their Python is not traced.
    trace_rules.add("torch_webgpu")


def prepare_optimizers(optimizer: ModuleType) -> None:
    from torch_webgpu.inductor import compat

    compat.make_optimizers_capturable(optimizer)


def extend_flex_attention(flex_attention: ModuleType) -> None:
    from torch_webgpu.inductor import compat

    compat.extend_flex_attention(flex_attention)


def register_code_generator(common: ModuleType) -> None:
    common.register_backend_for_device(
        "webgpu",
        _Scheduling,
        _Wrapper,
        _NoWrapper,
        _NoWrapper,
        device_custom_pass=_graph_pass(),
    )


class _Scheduling:
    """Stands for the scheduling's class, which imports half of Inductor."""

    def __new__(cls, scheduler: Any) -> Any:
        from torch_webgpu.inductor.scheduling import WgslScheduling

        return WgslScheduling(scheduler)


class _Wrapper:
    """Stands for the wrapper's class, which is imported when a graph needs it."""

    supports_caching = True

    @staticmethod
    def create(*args: Any, **kwargs: Any) -> Any:
        from torch_webgpu.inductor.wrapper import WgslWrapper

        return WgslWrapper.create(*args, **kwargs)


class _NoWrapper:
    """Stands where Inductor looks for wrappers in C++ and in FX."""

    supports_caching = True

    @staticmethod
    def create(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            "AOTInductor and the options cpp_wrapper and fx_wrapper of Inductor do not support "
            "webgpu: torch.webgpu.Graph.save writes a captured graph to a file that runs without "
            "the model's code"
        )


def prepare_inductor(compile_fx: ModuleType) -> None:
    # Imported before the first graph, and when Inductor's other modules are complete.
    from torch_webgpu.inductor import compat, device_ops

    compat.apply()
    device_ops.register()


def _graph_pass() -> Any:
    from torch._inductor.custom_graph_pass import CustomGraphModulePass

    class GraphPass(CustomGraphModulePass):
        """Its identifier keeps code that another version of this backend wrote, or that was written
        for another device, from being found in Inductor's cache."""

        def __call__(self, gm: Any) -> None:
            from torch_webgpu.inductor import passes

            passes.change(gm.graph)

        def uuid(self) -> str:
            from torch_webgpu.inductor.interface import buffer_budget

            return f"{version_of_generated_code()} {buffer_budget()}"

    return GraphPass()


@functools.cache
def version_of_generated_code() -> str:
    """Of this backend's sources, for the adapter's limits."""
    from torch_webgpu import _C, webgpu

    package = pathlib.Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in [
        *sorted((package / "inductor").glob("*.py")),
        package / "wgsl.py",
        *sorted((package / "share" / "wgsl").glob("*.json")),
    ]:
        digest.update(path.read_bytes())
    properties = webgpu.get_device_properties()
    digest.update(repr((properties.type, sorted(properties.limits.items()))).encode())
    adapters = [_C.adapter(index)["name"] for index in range(webgpu.device_count())]
    if len(adapters) > 1:  # WgslWrapper compares them
        digest.update(repr(adapters).encode())
    return digest.hexdigest()
