"""Runs a function on the CPU and on the device, and compares all memory that it may touch."""

import torch
from layouts import Layout
from torch.testing import assert_close

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def same(actual: torch.Tensor, expected: torch.Tensor, **tolerances) -> None:
    assert actual.device.type == "webgpu"
    assert_close(actual.cpu(), expected, equal_nan=True, **tolerances)


def check_result(function, *operands: tuple[torch.Tensor, Layout | None], **tolerances) -> None:
    """function(*views) is the same on both. An operand is a flat tensor and a layout of it; those
    of one tensor share memory. A tensor without layout is passed as it is, also to the device."""
    expected = function(*(layout.of(base) if layout else base for base, layout in operands))
    moved = _on_device(operands)
    same(function(*moved), expected, **tolerances)


def check_in_place(function, target, *operands, **tolerances) -> None:
    """function(target, *operands) changes the target alike, and none of the bits around it."""
    base, layout = target
    views = _on_device((target, *operands))
    device_base = views[0].as_strided((layout.length,), (1,), 0)
    before = base.clone()
    function(*views)
    function(layout.of(base), *(view.of(b) if view else b for b, view in operands))
    after = device_base.cpu()
    assert torch.equal(layout.surroundings(after), layout.surroundings(before))
    assert_close(layout.of(after), layout.of(base), equal_nan=True, **tolerances)


def _on_device(operands) -> list[torch.Tensor]:
    bases = {}
    for base, layout in operands:
        if layout and id(base) not in bases:
            bases[id(base)] = base.to("webgpu")
    return [layout.of(bases[id(base)]) if layout else base for base, layout in operands]
