"""sentence-transformers: models without a device, and pools of processes without a list of them."""

import inspect
import types
from typing import Any

from torch_webgpu import webgpu
from torch_webgpu.integrations import _choice, _patching


def adapt_environment(environment: types.ModuleType) -> None:
    """`get_device_name`, which SentenceTransformer, CrossEncoder and SparseEncoder ask."""

    def make(get_device_name: Any) -> Any:
        def get_name() -> str:
            name = str(get_device_name())
            if name == "cpu" and _choice.chosen_or_told(
                "sentence_transformers", "sentence_transformers"
            ):
                return str(_choice.device())
            return name

        return get_name

    _patching.replace(environment, "get_device_name", make)


def adapt_model(model: types.ModuleType) -> None:
    """`start_multi_process_pool` takes a process for each device, as it does with CUDA."""

    def make(start_multi_process_pool: Any) -> Any:
        signature = inspect.signature(start_multi_process_pool)
        if "target_devices" not in signature.parameters:
            raise AttributeError("start_multi_process_pool takes no target_devices")

        def start(self: Any, *args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(self, *args, **kwargs)
            is_open = bound.arguments.get("target_devices") is None
            if is_open and model.get_device_name() == "webgpu:0":
                devices = [f"webgpu:{index}" for index in range(webgpu.device_count())]
                bound.arguments["target_devices"] = devices
            return start_multi_process_pool(*bound.args, **bound.kwargs)

        return start

    _patching.replace_method(model.BaseModel, "start_multi_process_pool", make)
