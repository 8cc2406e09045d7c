"""Optimizers made ready for a capture: what they compute with lies on the device."""

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import optim

from torch_webgpu import _torch_versions

# Optimizers whose states are zeros before the first step.
_START_WITH_ZEROS = (
    optim.Adam,
    optim.AdamW,
    optim.Adadelta,
    optim.Adamax,
    optim.RAdam,
    optim.RMSprop,
    optim.SGD,
)
_FORMS = ("fused", "foreach")
_SCALES = "_step_supports_amp_scaling"  # PyTorch's mark of an optimizer that takes gradient scales


@functools.cache
def _fused_forms() -> tuple[type, ...]:
    """Optimizers besides SGD whose fused form takes a learning rate that lies on the device."""
    adagrad = [optim.Adagrad] if _torch_versions.adagrad_takes_rate() else []
    return (optim.Adam, optim.AdamW, *adagrad)


class PreparedOptimizer:
    """An optimizer in a `prepared` block."""

    def __init__(self, name: str, optimizer: optim.Optimizer) -> None:
        self.name = name
        self.optimizer = optimizer
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.before = [dict(group) for group in optimizer.param_groups]
        self.marks = {k: mark for k, mark in vars(optimizer).items() if k == _SCALES}
        self.numbers: dict[torch.Tensor, dict[str, torch.Tensor]] = {}  # those that were on the CPU
        self.fresh: list[torch.Tensor] = []  # parameters without a state
        self.rates: list[torch.Tensor] = []  # of each group: the learning rate on the device
        for parameter in self.parameters:
            if parameter.device.type != "webgpu":
                raise ValueError(
                    f"the optimizer {name!r} has a parameter on {parameter.device}, not on webgpu"
                )

    def prepare(self) -> None:
        for group in self.optimizer.param_groups:
            rate = torch.as_tensor(group["lr"], dtype=torch.float32).clone().to("webgpu")
            self.rates.append(rate)
            group["lr"] = rate
            if "capturable" in group:
                group["capturable"] = True
            if self._fuses(group):
                group["fused"], group["foreach"] = True, False
        if all(group.get("fused") for group in self.optimizer.param_groups):
            # A gradient scaler then gives its scale to step(), where it would read on the host
            # whether a gradient is infinite.
            vars(self.optimizer)[_SCALES] = True
        for parameter, state in self.optimizer.state.items():
            # Such as the number of steps: PyTorch keeps numbers on the CPU where it may.
            numbers = {
                name: part
                for name, part in state.items()
                if isinstance(part, torch.Tensor) and part.dim() == 0 and part.device.type == "cpu"
            }
            self.numbers[parameter] = numbers
            for label, number in numbers.items():
                state[label] = number.to("webgpu", torch.float32)
        self.fresh = [
            p for p in self.parameters if p.requires_grad and not self.optimizer.state.get(p)
        ]
        if self.fresh:
            self._start()

    def _fuses(self, group: dict[str, Any]) -> bool:
        """Whether a step is captured in its fused form. Of SGD and Adagrad no other form reads a
        learning rate, or the number of steps, from the device. Of Adam it takes a third of the
        shaders, which a page compiles first."""
        if isinstance(self.optimizer, optim.SGD):
            return True
        plain = all(p.is_floating_point() for p in group["params"])
        return type(self.optimizer) in _fused_forms() and plain and not group["differentiable"]

    @contextlib.contextmanager
    def parts(self) -> Iterator[None]:
        """In the block, a step consists of operators that the compiler has, on lists of tensors."""
        groups = self.optimizer.param_groups
        before = [{name: group.get(name) for name in _FORMS} for group in groups]
        for group in groups:
            if "foreach" in group and not group.get("differentiable"):
                group["foreach"] = True
            if "fused" in group:
                group["fused"] = False
        took_scales = vars(self.optimizer).pop(_SCALES, False)
        try:
            yield
        finally:
            if took_scales:
                vars(self.optimizer)[_SCALES] = took_scales
            for group, forms in zip(groups, before, strict=True):
                group.update({name: form for name, form in forms.items() if name in group})

    def _start(self) -> None:
        """Makes the states that the first step would make, as they are before it."""
        kind = type(self.optimizer)
        damps = any(g.get("momentum") and g.get("dampening") for g in self.optimizer.param_groups)
        if kind not in _START_WITH_ZEROS or damps:
            raise ValueError(
                f"the optimizer {self.name!r} has no state before its first step, and what a "
                f"{kind.__name__} would start with is not known here: call its step() once first"
            )
        known = {p: dict(state) for p, state in self.optimizer.state.items()}
        kept = [(p, p.detach().clone(), p.grad) for p in self.parameters]
        for parameter, _, _ in kept:
            fresh = parameter.requires_grad and not known.get(parameter)
            parameter.grad = torch.zeros_like(parameter) if fresh else None
        self.optimizer.step()
        with torch.no_grad():
            for parameter, value, gradient in kept:
                parameter.copy_(value)
                parameter.grad = gradient
                if not known.get(parameter):
                    for part in self.optimizer.state[parameter].values():
                        if isinstance(part, torch.Tensor):
                            part.zero_()

    def restore(self) -> None:
        vars(self.optimizer).pop(_SCALES, None)
        vars(self.optimizer).update(self.marks)
        for group, before in zip(self.optimizer.param_groups, self.before, strict=True):
            group.clear()
            group.update(before)
        for parameter, numbers in self.numbers.items():
            self.optimizer.state[parameter].update(numbers)
        for parameter in self.fresh:
            self.optimizer.state.pop(parameter, None)

    def state_dict(self) -> dict[str, Any]:
        """As the optimizer's own, with the options that it had."""
        found = self.optimizer.state_dict()
        for group, before in zip(found["param_groups"], self.before, strict=True):
            for name in ("lr", "capturable", "fused", "foreach"):
                if name in before:
                    value = before[name]
                    group[name] = value.item() if isinstance(value, torch.Tensor) else value
        return found


class PreparedScaler:
    """A gradient scaler in a `prepared` block."""

    def __init__(self, scaler: torch.amp.GradScaler) -> None:
        self.scaler = scaler
        self.is_fresh = scaler._scale is None

    def prepare(self) -> None:
        if self.is_fresh:  # as the first scale() would
            self.scaler._lazy_init_scale_growth_tracker(torch.device("webgpu"))

    def restore(self) -> None:
        if self.is_fresh:
            self.scaler._scale = self.scaler._growth_tracker = None

    def state_dict(self) -> dict[str, Any]:
        """As the scaler's own, with what changes as tensors."""
        tensors = {"scale": self.scaler._scale, "_growth_tracker": self.scaler._growth_tracker}
        return {**self.scaler.state_dict(), **tensors}


Prepared = PreparedOptimizer | PreparedScaler


@contextlib.contextmanager
def prepared(state: Mapping[str, Any]) -> Iterator[dict[str, Prepared]]:
    """In the block, the optimizers and gradient scalers among `state` can be captured: learning
    rates, step counts and scales are tensors on the device, and all states exist. They are as
    before at its end.

    Raises ValueError for an optimizer whose states cannot be made ahead of a step.
    """
    found: dict[str, Prepared] = {}
    for name, holder in state.items():
        if isinstance(holder, optim.Optimizer):
            found[name] = PreparedOptimizer(name, holder)
        elif isinstance(holder, torch.amp.GradScaler) and holder.is_enabled():
            found[name] = PreparedScaler(holder)
    with contextlib.ExitStack() as stack:
        for one in found.values():
            stack.callback(one.restore)
            one.prepare()
        yield found
