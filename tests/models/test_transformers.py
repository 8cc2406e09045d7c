"""Architectures of Hugging Face's transformers and diffusers, small and with random weights:
forward and backward on the device against the CPU, in training mode and without one fallback."""

import copy

import pytest
import torch
from architectures import ALL, distances, make, run
from common import DEVICE


@pytest.mark.parametrize(
    ("name", "overrides"),
    [pytest.param(name, rest, id=name) for name, rest in ALL.items()],
)
def test_forward_and_backward(name, overrides):
    torch.manual_seed(0)
    model, inputs = make(name, overrides)
    on_device = copy.deepcopy(model).to(DEVICE)
    exact_model = copy.deepcopy(model).double()
    if hasattr(exact_model, "set_experts_implementation"):
        exact_model.set_experts_implementation("eager")  # the grouped products have no float64
    expected = run(model, inputs)
    exact = run(
        exact_model,
        {k: x.double() if x.is_floating_point() else x for k, x in inputs.items()},
    )
    actual = run(on_device, {k: x.to(DEVICE) for k, x in inputs.items()})
    assert actual.keys() == expected.keys() == exact.keys()
    # As near to the float64 results as the CPU's float32, within an order of magnitude: what
    # rounding does to a whole model depends on the model.
    own = max(distances(expected, exact).values())
    far = {k: d for k, d in distances(actual, exact).items() if not d <= 10 * own + 1e-5}
    assert not far, f"the CPU in float32: {own:.1e}"
