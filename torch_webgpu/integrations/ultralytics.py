"""Ultralytics: `device="webgpu"` for training, validation and prediction."""

import types
import warnings
from typing import Any

import torch

from torch_webgpu import webgpu
from torch_webgpu.integrations import _choice, _patching


def adapt_torch_utils(torch_utils: types.ModuleType) -> None:
    """`select_device` and `parse_device`, through which every device string goes."""

    def make_parse(parse_device: Any) -> Any:
        def parse(device: Any = "") -> str:
            named = _named(device)
            return str(named) if named is not None else str(parse_device(device))

        return parse

    def make_select(select_device: Any) -> Any:
        def select(device: Any = "", newline: bool = False, verbose: bool = True) -> Any:
            named = _named(device)
            if named is not None:
                webgpu.get_device_properties(named)  # raises for an index that is not there
                return torch.device("webgpu", named.index or 0)
            selected = select_device(device, newline=newline, verbose=verbose)
            is_open = not isinstance(device, torch.device) and str(device) in ("", "None")
            on_cpu = is_open and selected == torch.device("cpu")
            if on_cpu and _choice.chosen_or_told("ultralytics", "ultralytics"):
                return _choice.device()
            return selected

        return select

    _patching.replace(torch_utils, "parse_device", make_parse)
    _patching.replace(torch_utils, "select_device", make_select)


def adapt_trainer(trainer: types.ModuleType) -> None:
    """The gradient scaler belongs to the trainer's device."""

    def make(setup_train: Any) -> Any:
        def setup(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self.device.type != "webgpu":
                return setup_train(self, *args, **kwargs)
            with warnings.catch_warnings():
                # It makes a scaler of CUDA first.
                warnings.filterwarnings("ignore", message=".*GradScaler is enabled, but CUDA")
                result = setup_train(self, *args, **kwargs)
            self.scaler = torch.amp.GradScaler(
                "webgpu", enabled=bool(self.amp) and self.args.amp != "bf16"
            )
            return result

        return setup

    _patching.replace_method(trainer.BaseTrainer, "_setup_train", make)


def _named(device: Any) -> torch.device | None:
    """The webgpu device that the program names, if it does."""
    if isinstance(device, torch.device):
        return device if device.type == "webgpu" else None
    return torch.device(device) if isinstance(device, str) and "webgpu" in device else None
