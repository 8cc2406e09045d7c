"""What the steps of a program may call. A printed script contains this file."""

import torch
import torch.nn.functional as F  # noqa: F401

SPECIAL = (float("nan"), float("inf"), float("-inf"), -0.0, 0.0)


def data(seed, shape, dtype, kind="plain"):
    """A tensor of the CPU. plain: small multiples of 1/4, exact in every dtype. fraction: numbers
    that are rounded. special: NaN, infinities and zeros of both signs among them. wide: all
    integers of the dtype."""
    generator = torch.Generator().manual_seed(seed)
    parts = (*shape, 2) if dtype.is_complex else shape
    if dtype.is_floating_point or dtype.is_complex:
        if kind == "fraction":
            values = torch.randn(parts, generator=generator)
        else:
            values = torch.randint(-16, 17, parts, generator=generator) / 4
        if kind == "special":
            chosen = torch.randint(0, 4 * len(SPECIAL), parts, generator=generator)
            for k, special in enumerate(SPECIAL):
                values[chosen == k] = special
        if dtype.is_complex:
            return torch.view_as_complex(values).to(dtype)
        return values.to(dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, parts, generator=generator).bool()
    low, high = (torch.iinfo(dtype).min, torch.iinfo(dtype).max) if kind == "wide" else (-9, 9)
    low = 0 if dtype == torch.uint8 else low
    return torch.randint(low, high, parts, generator=generator).to(dtype)


def ramp(tensor):
    """Gradients for backward: they differ by element, so that a wrong order shows."""
    steps = torch.arange(tensor.numel()) % 5 - 1.5
    return steps.reshape(tensor.shape).to(tensor.dtype).to(tensor.device)


def synchronize(device):
    if torch.device(device).type == "webgpu":
        torch.webgpu.synchronize()
