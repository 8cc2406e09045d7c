"""What the command lines of the examples share: the device, their errors and exit codes."""

import argparse
import sys
from collections.abc import Callable

import torch

EXIT_NOT_LEARNED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
DEFAULT = "(default: %(default)s)"


class UsageError(Exception):
    """Something the user gave cannot be used; the text is one line that says why."""


def one_line(error: Exception) -> str:
    """The first line of an error: what follows in PyTorch's is for its developers."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def exit_code(command: Callable[[], int]) -> int:
    """What `command` returns; what a user caused ends with one line and its code."""
    try:
        return command()
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def open_device(name: str) -> torch.device:
    """The device, once it has shown that it can hold a tensor."""
    if name.startswith("webgpu"):
        # Only then: where PyTorch has another accelerator, the import would end its use.
        import torch_webgpu  # noqa: F401  registers the device
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    # AssertionError is what a build without CUDA raises for "cuda".
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UsageError(f"device {name!r} is not available: {error}") from error
    return device


def describe(device: torch.device) -> str:
    """The device with the name of what is behind it."""
    module = getattr(torch, device.type, None)
    if device.type == "cpu" or not hasattr(module, "get_device_name"):
        return str(device)
    properties = module.get_device_properties(device)
    # WebGPU tells more than the name: driver, backend, whether it is software.
    return f"{device}: {getattr(properties, 'adapter', module.get_device_name(device))}"


def report_fallbacks(device: torch.device) -> None:
    """A fallback is correct but slow, so it is never left unsaid."""
    fallbacks = getattr(getattr(torch, device.type, None), "fallbacks", None)
    counts = fallbacks() if fallbacks else {}
    if counts:
        print("ops that ran on the CPU: " + ", ".join(f"{k} x{v}" for k, v in counts.items()))


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value
