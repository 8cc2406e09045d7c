"""What `python -m torch_webgpu` and torch.utils.collect_env tell about the device."""

import importlib.metadata
import os
import platform
from collections.abc import Callable, Mapping
from typing import Any

import torch

import torch_webgpu
from torch_webgpu import _C, _torch_versions, webgpu


def collect() -> dict[str, Any]:
    """Versions, settings, adapters, and what the chosen adapter grants. Starts the device.

    ``chosen`` holds for each device the index of its adapter; ``device`` is about webgpu:0. Where
    there is none, ``error`` says why, and ``device``, ``chosen`` and ``adapters`` are empty.
    """
    facts: dict[str, Any] = {
        "versions": {
            "torch_webgpu": torch_webgpu.__version__,
            "torch": torch.__version__,
            "built for torch": _torch_versions.built_for() or "unknown",
            "python": platform.python_version(),
            "system": platform.platform(),
            "wgpudawn": _version("wgpudawn"),
            "wgpu": _version("wgpu"),
        },
        "settings": {k: v for k, v in sorted(os.environ.items()) if k.startswith("TORCH_WEBGPU_")},
        "adapters": [],
        "chosen": [],
        "device": {},
        "error": "",
    }
    try:
        facts["adapters"] = webgpu.list_adapters()
        facts["chosen"] = _C.chosen_adapters()
        properties = webgpu.get_device_properties(0)
        facts["device"] = {**vars(properties), "free_memory": webgpu.mem_get_info(0)[0]}
    except Exception as error:  # whatever a runtime or a driver has to say
        facts["error"] = str(error)
    return facts


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def report(facts: dict[str, Any]) -> str:
    """The facts of `collect` as text."""
    lines = ["Versions", *_pairs(facts["versions"])]
    if facts["settings"]:
        lines += ["", "Settings", *_pairs(facts["settings"])]
    lines += ["", "Adapters, best first"]
    device = facts["device"]
    for index, adapter in enumerate(facts["adapters"]):
        used = _devices_of(index, facts["chosen"])
        text = "{name} ({backend}, {type}, {driver})".format(**adapter)
        lines.append(f"  {index}  {text}{f'  <- {used}' if used else ''}")
    if facts["error"]:
        return "\n".join([*lines, "", f"No device: {facts['error']}"])
    mark = " (estimated)" if device["total_memory_is_estimated"] else ""
    lines += [
        "",
        "Device webgpu:0",
        *_pairs(
            {
                "runtime": device["runtime"],
                "memory": f"{device['total_memory'] / 2**30:.1f} GiB{mark}, "
                f"{device['free_memory'] / 2**30:.1f} GiB free",
                "features": ", ".join(device["features"]),
            }
        ),
        "  limits",
        *("  " + line for line in _pairs({k: f"{v:,}" for k, v in device["limits"].items()})),
    ]
    return "\n".join(lines)


def _devices_of(adapter: int, chosen: list[int]) -> str:
    """The devices on an adapter, such as ``webgpu:0, webgpu:1``."""
    return ", ".join(f"webgpu:{k}" for k, position in enumerate(chosen) if position == adapter)


def _pairs(facts: Mapping[str, object]) -> list[str]:
    width = max(map(len, facts))
    return [f"  {name:<{width}}  {value}" for name, value in facts.items()]


def _same(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(actual.cpu(), expected, rtol=tolerance, atol=tolerance)


def _check_copies() -> None:
    there = torch.arange(100_001, dtype=torch.int64)
    _same(there.to("webgpu"), there)


def _check_product() -> None:
    a, b = torch.randn(65, 130), torch.randn(130, 33)
    _same(a.to("webgpu") @ b.to("webgpu"), a @ b)


def _check_reduction() -> None:
    values = torch.randn(70, 1000)
    _same(values.to("webgpu").logsumexp(1), values.logsumexp(1))


def _check_half() -> None:
    values = torch.randn(1000).half()
    _same(values.to("webgpu").sigmoid(), values.sigmoid(), 2e-3)


def _check_gradients() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten())
    images = torch.randn(2, 3, 9, 9)
    results = []
    for device in ("cpu", "webgpu"):
        model.zero_grad()
        model.to(device)(images.to(device)).square().mean().backward()
        results.append([p.grad.cpu() for p in model.parameters() if p.grad is not None])
    for expected, actual in zip(*results, strict=True):
        _same(actual, expected)


def _check_random() -> None:
    webgpu.manual_seed(1)
    first = torch.rand(10_000, device="webgpu")
    webgpu.manual_seed(1)
    _same(torch.rand(10_000, device="webgpu"), first.cpu(), 0)
    if not 0.48 < first.mean().item() < 0.52:
        raise AssertionError("the mean of uniform numbers is not 1/2")


def _check_errors() -> None:
    try:
        torch.zeros(3, device="webgpu")[torch.tensor([5], device="webgpu")].cpu()
    except IndexError:
        return
    raise AssertionError("an index out of range was not noticed")


CHECKS: dict[str, Callable[[], None]] = {
    "copies": _check_copies,
    "products": _check_product,
    "reductions": _check_reduction,
    "half precision": _check_half,
    "gradients": _check_gradients,
    "random numbers": _check_random,
    "errors of kernels": _check_errors,
}


def self_test() -> dict[str, str]:
    """Runs small computations and compares them with the CPU's: the error of each, empty if none.

    An operator that the CPU would stand in for is an error too.
    """
    mode = webgpu.get_fallback_mode()
    webgpu.set_fallback_mode("error")
    results = {}
    try:
        for name, check in CHECKS.items():
            try:
                check()
                results[name] = ""
            except Exception as error:
                results[name] = f"{type(error).__name__}: {error}"
    finally:
        webgpu.set_fallback_mode(mode)
    return results


def summary() -> str:
    """A line for each adapter, without starting the device."""
    lines = ["WebGPU adapters:"]
    try:
        chosen = _C.chosen_adapters()
        for index, adapter in enumerate(webgpu.list_adapters()):
            text = "{name} ({backend}, {type}, {driver})".format(**adapter)
            used = _devices_of(index, chosen)
            lines.append(f"{text}{f', used as {used}' if used else ''}")
    except Exception as error:
        lines.append(f"none: {error}")
    return "\n".join(lines)
