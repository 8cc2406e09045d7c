"""Hugging Face Accelerate: `Accelerator()` on webgpu, mixed precision, memory for device maps.

Accelerate has a setting for a default device, ACCELERATE_TORCH_DEVICE. It goes before `cpu=True`,
so the default is put where Accelerate comes to the end of its own list instead.
"""

import os
import types
from collections.abc import Callable
from typing import Any

import torch

from torch_webgpu import webgpu
from torch_webgpu.integrations import _choice, _patching

# What `PartialState.default_device` returns without webgpu. None until Accelerate is imported.
_ask_accelerate: Callable[[Any], torch.device] | None = None


def adapt_state(state: types.ModuleType) -> None:
    """`PartialState` takes webgpu where it has found nothing and was not told."""
    global _ask_accelerate
    partial_state = state.PartialState
    _ask_accelerate = ask = vars(partial_state)["default_device"].fget

    def default_device(self: Any) -> torch.device:
        device = ask(self)
        if device.type == "cpu" and _choice.chosen("accelerate"):
            return _choice.device()
        return device

    default_device.__doc__ = ask.__doc__
    partial_state.default_device = property(default_device)


def would_choose_webgpu() -> bool:
    """Whether Accelerate takes webgpu when it chooses next, unless it is told to take the CPU."""
    named = os.environ.get("ACCELERATE_TORCH_DEVICE")
    if named:
        return torch.device(named).type == "webgpu"
    try:
        from accelerate.state import PartialState
    except ImportError:  # without Accelerate nothing chooses
        return False
    if _ask_accelerate is None:  # of a version that is not known
        return False
    fallback = os.environ.get("PYTORCH_ENABLE_MPS_FALLBACK")
    found = _ask_accelerate(object.__new__(PartialState))
    if fallback is None:  # the question alone must not set it
        os.environ.pop("PYTORCH_ENABLE_MPS_FALLBACK", None)
    return found.type == "cpu" and _choice.chosen("accelerate")


def uses_webgpu() -> bool:
    """Whether Accelerate has chosen webgpu, or would if it has not chosen yet."""
    from accelerate.state import PartialState

    device = PartialState._shared_state.get("device")
    return would_choose_webgpu() if device is None else bool(device.type == "webgpu")


def adapt_accelerator(accelerator: types.ModuleType) -> None:
    """`mixed_precision="fp16"` accepts the device."""
    _patching.extend_constant(accelerator.Accelerator.__init__, {"cuda", "xpu", "npu"}, "webgpu")


def adapt_modeling(modeling: types.ModuleType) -> None:
    """Gradient scalers of the device, and its memory for `device_map="auto"`."""

    def make_scaler(get_grad_scaler: Any) -> Any:
        def get_scaler(distributed_type: Any = None, **kwargs: Any) -> Any:
            from accelerate.utils.dataclasses import DistributedType

            if distributed_type != DistributedType.FSDP and uses_webgpu():
                return torch.amp.GradScaler("webgpu", **kwargs)
            return get_grad_scaler(distributed_type, **kwargs)

        return get_scaler

    def make_memory(get_max_memory: Any) -> Any:
        def get_memory(max_memory: dict[Any, Any] | None = None) -> dict[Any, Any]:
            if not would_choose_webgpu():
                return get_max_memory(max_memory)
            if max_memory is None:
                given = get_max_memory()
                # An adapter that works in main memory must not count it a second time.
                if webgpu.get_device_properties(0).type != "discrete":
                    return {0: webgpu.mem_get_info(0)[0]}
                free = {0: webgpu.mem_get_info(0)[0]}
                for index in range(1, webgpu.device_count()):
                    if webgpu.get_device_properties(index).type == "discrete":
                        free[index] = webgpu.mem_get_info(index)[0]
                return {**free, **given}
            # Integers are the device's indices. The original knows none, and would warn.
            own = sorted(k for k in max_memory if isinstance(k, int))
            wrong = [k for k in own if not 0 <= k < webgpu.device_count()]
            if wrong:
                raise ValueError(f"there is no device webgpu:{wrong[0]}")
            for key, size in max_memory.items():
                if isinstance(size, str):  # in place, as callers expect
                    max_memory[key] = modeling.convert_file_size_to_int(size)
            rest = {k: v for k, v in max_memory.items() if k not in own}
            return {k: max_memory[k] for k in own} | (get_max_memory(rest) if rest else {})

        return get_memory

    _patching.replace(modeling, "get_grad_scaler", make_scaler)
    _patching.replace(modeling, "get_max_memory", make_memory)


def adapt_memory(memory: types.ModuleType) -> None:
    """`clear_device_cache`, and `release_memory` and `find_executable_batch_size` with it."""

    def make(clear_device_cache: Any) -> Any:
        def clear(garbage_collection: bool = False) -> None:
            clear_device_cache(garbage_collection)
            webgpu.empty_cache()

        return clear

    _patching.replace(memory, "clear_device_cache", make)


def adapt_dataclasses(dataclasses: types.ModuleType) -> None:
    """`ProfileKwargs(activities=["webgpu"])`."""

    def make(get_activity: Any) -> Any:
        def get(self: Any, activity: str) -> Any:
            if activity == "webgpu":
                return torch.profiler.ProfilerActivity.PrivateUse1
            return get_activity(self, activity)

        return get

    _patching.replace_method(dataclasses.ProfileKwargs, "_get_profiler_activity", make)


_GENERATOR = "webgpu_random_state_{}.pt"


def adapt_checkpointing(checkpointing: types.ModuleType) -> None:
    """`save_state` and `load_state` keep the state of the device's random numbers in a file."""

    def make_save(save_accelerator_state: Any) -> Any:
        def save(output_dir: Any, *args: Any, **kwargs: Any) -> Any:
            result = save_accelerator_state(output_dir, *args, **kwargs)
            if uses_webgpu():
                rank = checkpointing.PartialState().process_index
                path = os.path.join(output_dir, _GENERATOR.format(rank))
                torch.save(webgpu.get_rng_state_all(), path)
            return result

        return save

    def make_load(load_accelerator_state: Any) -> Any:
        def load(input_dir: Any, *args: Any, **kwargs: Any) -> Any:
            result = load_accelerator_state(input_dir, *args, **kwargs)
            rank = checkpointing.PartialState().process_index
            path = os.path.join(input_dir, _GENERATOR.format(rank))
            if uses_webgpu() and os.path.exists(path):
                webgpu.set_rng_state_all(torch.load(path, weights_only=True))
            return result

        return load

    _patching.replace(checkpointing, "save_accelerator_state", make_save)
    _patching.replace(checkpointing, "load_accelerator_state", make_load)
