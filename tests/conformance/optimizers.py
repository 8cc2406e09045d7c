"""Entries of optim_db: parameters and state after some steps, for each way to take them."""

import functools
import itertools

import torch
from torch.testing._internal.common_utils import TestCase

from . import comparison

SIDES = {"loop": ("single",), "multi-tensor": ("foreach",), "fused": ("fused",)}
LEFT_OUT = {"SparseAdam": "its gradients are sparse, and webgpu tensors are strided"}
STEPS = 5


def name_of(info):
    return info.optim_cls.__name__


def variants_of(info, dtype):
    if dtype is torch.float32 or (dtype is torch.complex64 and info.supports_complex):
        yield "single"
        if "foreach" in info.supported_impls:
            yield "foreach"
        if "fused" in info.supported_impls and not dtype.is_complex:
            yield "fused"


def checks(info, dtype, variant, limit):
    for given in itertools.islice(info.optim_inputs_func("cpu", dtype), limit or None):
        yield given.desc, functools.partial(check, info, given.kwargs, dtype, variant)


def check(info, settings, dtype, variant, device):
    """Each way is compared with the plainest one on the CPU."""
    plain = {way: False for way in ("foreach", "fused") if way in info.supported_impls}
    chosen = plain if variant == "single" else plain | {variant: True}
    expected = train(info, settings | plain, dtype, "cpu")
    actual = train(info, settings | chosen, dtype, device)
    rtol, atol = comparison.WIDE[dtype]
    TestCase().assertEqual(actual, expected, rtol=rtol, atol=atol)


def train(info, settings, dtype, device):
    """Fits a small linear map. All parameters are matrices: Muon takes no others."""
    generator = torch.Generator().manual_seed(0)
    weight, bias, x = (
        torch.randn(shape, dtype=dtype, generator=generator).to(device)
        for shape in ((6, 5), (6, 1), (5, 3))
    )
    parameters = [torch.nn.Parameter(weight), torch.nn.Parameter(bias)]
    optimizer = info.optim_cls(parameters, **settings)

    def closure():
        optimizer.zero_grad()
        loss = (parameters[0] @ x + parameters[1]).abs().square().sum()
        loss.backward()
        return loss

    for _ in range(STEPS):
        optimizer.step(closure)
    # What a line search keeps of its last steps, close to the minimum, is rounding.
    state = [] if info.step_requires_closure else optimizer.state_dict()["state"]
    return [t.detach().cpu() for t in (*parameters, *comparison.tensors_of(state))]
