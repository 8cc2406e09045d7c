"""Hugging Face Accelerate: `Accelerator()` on webgpu, mixed precision, memory for device maps.

Accelerate has a setting for a default device, ACCELERATE_TORCH_DEVICE. It goes before `cpu=True`,
so the default is put where Accelerate comes to the end of its own list instead.
"""

import inspect
import os
import re
import types
from collections.abc import Callable
from typing import Any

import torch

from torch_webgpu import webgpu
from torch_webgpu._register import PROCESS_GROUP
from torch_webgpu.integrations import _choice, _patching

# What `PartialState.default_device` returns without webgpu. None until Accelerate is imported.
_ask_accelerate: Callable[[Any], torch.device] | None = None


def adapt_state(state: types.ModuleType) -> None:
    """`PartialState` takes webgpu where it has found nothing and was not told.

    In a process of torchrun it makes a process group, and has the type of several GPUs: with the
    type of one process, each would train a copy of its own.
    """
    global _ask_accelerate
    partial_state = state.PartialState
    several = state.DistributedType.MULTI_GPU
    for method in (
        "_prepare_backend",
        "set_device",
        "wait_for_everyone",
    ):  # before anything is changed
        _patching.check_method(partial_state, method)
    ask = vars(partial_state)["default_device"].fget

    def default_device(self: Any) -> torch.device:
        device = ask(self)
        if device.type == "cpu" and _choice.chosen("accelerate"):
            return _choice.device()
        return device

    def make_backend(prepare_backend: Any) -> Any:
        signature = inspect.signature(prepare_backend)

        def prepare(self: Any, *args: Any, **kwargs: Any) -> Any:
            backend, kind = prepare_backend(self, *args, **kwargs)
            given = signature.bind(self, *args, **kwargs).arguments
            is_alone = int(os.environ.get("LOCAL_RANK", -1)) == -1
            if kind != state.DistributedType.NO or given.get("cpu") or is_alone:
                return backend, kind
            if not would_choose_webgpu():
                return backend, kind
            # Accelerate compares what it gets with what the program asked for, and raises.
            known = ("gloo", PROCESS_GROUP, f"cpu:gloo,webgpu:{PROCESS_GROUP}")
            return (backend if backend in known else "gloo"), several

        return prepare

    def make_device(set_device: Any) -> Any:
        def set_own(self: Any) -> None:
            named = self.device
            is_open = named is None and self.distributed_type == several and would_choose_webgpu()
            is_named = named is not None and named.type == "webgpu" and named.index is None
            if self.backend is None or not (is_open or is_named):
                set_device(self)
                return
            index = self.local_process_index % webgpu.device_count()
            self.device = torch.device("webgpu", index)
            webgpu.set_device(index)

        return set_own

    _ask_accelerate = ask
    default_device.__doc__ = ask.__doc__
    partial_state.default_device = property(default_device)
    _patching.replace_method(partial_state, "_prepare_backend", make_backend)
    _patching.replace_method(partial_state, "set_device", make_device)


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
    """`mixed_precision="fp16"` accepts the device, and DDP gets the device of the process."""
    owner = accelerator.Accelerator
    _patching.extend_constant(owner.__init__, {"cuda", "xpu", "npu"}, "webgpu")

    def make(prepare_model: Any) -> Any:
        def prepare(self: Any, *args: Any, **kwargs: Any) -> Any:
            # DDP is told the number of the process, which is no device's where processes share one.
            state, index = vars(self.state), self.device.index
            number = self.local_process_index
            if self.device.type != "webgpu" or index is None or index == number:
                return prepare_model(self, *args, **kwargs)
            state["local_process_index"] = index
            try:
                return prepare_model(self, *args, **kwargs)
            finally:
                state["local_process_index"] = number

        return prepare

    _patching.replace_method(owner, "prepare_model", make)


def adapt_launch(launch: types.ModuleType) -> None:
    """`accelerate launch --num_processes 2` starts two processes. It would start one."""

    def make(validate: Any) -> Any:
        def validate_command(args: Any) -> Any:
            args, *rest = validate(args)
            other = ("tpu", "tpu_use_cluster", "use_deepspeed", "use_fsdp", "use_megatron_lm")
            is_told = args.multi_gpu or args.cpu or getattr(args, "use_cpu", False)
            if not is_told and not any(getattr(args, name, False) for name in other):
                args.multi_gpu = (args.num_processes or 0) > 1 and would_choose_webgpu()
            return args, *rest

        return validate_command

    _patching.replace(launch, "_validate_launch_command", make)


def adapt_launchers(launchers: types.ModuleType) -> None:
    """`notebook_launcher` says that it launches on webgpu, where it would say CPU.

    For several processes it says how many there are, where it would say CUDA: the device is not
    known yet. It prints in the middle of its work, so its module gets a `print` of its own.
    """
    alone = {"Launching training on CPU.", "Launching training on one CPU."}
    if not alone.issubset(launchers.notebook_launcher.__code__.co_consts):
        raise LookupError(f"notebook_launcher does not print {sorted(alone)}")

    def say(*values: Any, **options: Any) -> None:
        if len(values) == 1 and isinstance(values[0], str):
            values = (renamed(values[0]),)
        print(*values, **options)

    def renamed(text: str) -> str:
        from accelerate.utils import is_cuda_available

        if text in alone and launches_on_webgpu():
            return "Launching training on one WebGPU device."
        if re.fullmatch(r"Launching training on \d+ CUDAs\.", text) and not is_cuda_available():
            # Each process chooses its device. Asking here would load the drivers, and a child that
            # is forked after that cannot use them.
            return text.replace(" on ", " in ").replace(" CUDAs", " processes")
        return text

    launchers.print = say  # type: ignore[attr-defined]


def launches_on_webgpu() -> bool:
    """Whether a function called now, with this environment, would get webgpu from Accelerate."""
    from accelerate.utils import parse_flag_from_env

    # As in Accelerate, a named device comes before the flag.
    is_named = bool(os.environ.get("ACCELERATE_TORCH_DEVICE"))
    return (is_named or not parse_flag_from_env("ACCELERATE_USE_CPU")) and uses_webgpu()


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
