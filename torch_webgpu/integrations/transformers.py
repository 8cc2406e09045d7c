"""Hugging Face transformers: the Trainer's device and precisions, `pipeline()` without a device,
and `from_pretrained()` with bitsandbytes' weights without a `device_map`.

The Trainer's device is Accelerate's. `device_map="auto"` plans with Accelerate's memory figures,
which tell of webgpu where Accelerate has chosen it.
"""

import inspect
import os
import types
from typing import Any

import torch

from torch_webgpu import webgpu
from torch_webgpu.integrations import _choice, _patching
from torch_webgpu.integrations.accelerate import would_choose_webgpu


def adapt_import_utils(import_utils: types.ModuleType) -> None:
    """`bf16=True` of the Trainer finds the device able to."""

    def make(is_torch_bf16_gpu_available: Any) -> Any:
        def is_available() -> bool:
            return bool(is_torch_bf16_gpu_available()) or would_choose_webgpu()

        is_available.__name__ = "is_torch_bf16_gpu_available"
        is_available.__doc__ = is_torch_bf16_gpu_available.__doc__
        return is_available

    _patching.replace(import_utils, "is_torch_bf16_gpu_available", make)


def adapt_training_args(training_args: types.ModuleType) -> None:
    """`TrainingArguments.device` is Accelerate's, where its list of devices ends at the CPU."""
    cached = vars(training_args.TrainingArguments)["_setup_devices"]
    set_up = cached.func

    def setup_devices(self: Any) -> torch.device:
        device = set_up(self)
        state = self.distributed_state
        open_to_others = device.type == "cpu" and not self.use_cpu and state is not None
        if open_to_others and state.device.type == "webgpu":
            return torch.device(state.device)
        return device

    cached.func = setup_devices


def adapt_trainer(trainer: types.ModuleType) -> None:
    """Checkpoints keep the state of the device's random numbers, in a file of their own."""

    def path(self: Any, folder: str) -> str:
        return os.path.join(folder, f"webgpu_rng_state_{self.args.process_index}.pth")

    def make_save(save_rng_state: Any) -> Any:
        def save(self: Any, output_dir: str) -> None:
            save_rng_state(self, output_dir)
            if self.args.device.type == "webgpu":
                torch.save(webgpu.get_rng_state_all(), path(self, output_dir))

        return save

    def make_load(load_rng_state: Any) -> Any:
        def load(self: Any, checkpoint: str | None) -> None:
            load_rng_state(self, checkpoint)
            if checkpoint is None or self.args.device.type != "webgpu":
                return
            if os.path.exists(path(self, checkpoint)):
                webgpu.set_rng_state_all(torch.load(path(self, checkpoint), weights_only=True))

        return load

    _patching.replace_method(trainer.Trainer, "_save_rng_state", make_save)
    _patching.replace_method(trainer.Trainer, "_load_rng_state", make_load)


def adapt_pipelines(base: types.ModuleType) -> None:
    """`pipeline()` without a device, and with an index of one."""

    def make(init: Any) -> Any:
        signature = inspect.signature(init)
        if "device" not in signature.parameters:
            raise AttributeError("Pipeline.__init__ takes no device")

        def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
            bound = signature.bind(self, *args, **kwargs)
            device = bound.arguments.get("device")
            if _is_open(device, bound.arguments["model"]) and _choice.chosen_or_told(
                "transformers", "transformers.pipeline()"
            ):
                bound.arguments["device"] = torch.device("webgpu", device or 0)
            init(*bound.args, **bound.kwargs)

        return initialize

    def _is_open(device: Any, model: Any) -> bool:
        # None and indices mean the first accelerator that the pipeline's list finds.
        if getattr(model, "hf_device_map", None) is not None:
            return False
        asked = device is None or (isinstance(device, int) and device >= 0)
        return asked and not any(
            getattr(base, f"is_torch_{name}_available")()
            for name in ("cuda", "hpu", "mlu", "mps", "musa", "npu", "xpu")
        )

    _patching.replace_method(base.Pipeline, "__init__", make)


def adapt_quantizer(module: types.ModuleType) -> None:
    """Models with weights in 4 or 8 bits that are loaded without a `device_map`."""

    def make(update_device_map: Any) -> Any:
        def update(self: Any, device_map: Any) -> Any:
            found = update_device_map(self, device_map)
            if (
                device_map is None
                and found == {"": "cpu"}
                and _choice.chosen_or_told("transformers", "a model with bitsandbytes' weights")
            ):
                return {"": str(_choice.device())}
            return found

        return update

    (quantizer,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    )
    _patching.replace_method(quantizer, "update_device_map", make)
