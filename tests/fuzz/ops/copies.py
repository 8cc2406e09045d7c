"""Copies between views, dtypes and devices, and filling."""

import torch

from ..model import COMPUTED, STORED
from . import change, dim_of, maker, new
from .factories import data, dtype_of

ALL = (*COMPUTED, *STORED)


def fits(m, to, dtype):
    """Whether a conversion is defined: floats to integers only if they are in range."""
    x = m.tensor(to)
    integral = not (dtype.is_floating_point or dtype.is_complex)
    if integral and (x.is_floating_point() or x.is_complex()):
        if not m.is_tame(to):
            return False
        return dtype != torch.uint8 or not bool(
            (x.real < 0).any() if x.is_complex() else (x < 0).any()
        )
    return True


@maker(5)
def converted(m):
    name, dtype = m.pick(), m.choice(ALL)
    if not name or not fits(m, name, dtype):
        return None
    text = m.choice(
        (f"{name}.to({dtype})", f"{name}.to({dtype}, copy=True)", f"{name}.type({dtype})")
    )
    return new(m, "to dtype", text, rule="equal")


@maker(2)
def cloned(m):
    name = m.pick_any()
    if not name:
        return None
    formats = ["preserve_format", "contiguous_format"]
    if m.tensor(name).dim() == 4:
        formats.append("channels_last")
    step = new(m, "clone", f"{name}.clone(memory_format=torch.{m.choice(formats)})")
    if name in m.hosts:
        m.hosts.update(step.made)
    return step


@maker(3)
def to_host(m):
    name = m.pick()
    if not name:
        return None
    blocking = ", non_blocking=True)" if m.chance(0.3) else ")"
    wait = "; synchronize(device)" if blocking != ")" else ""
    step = new(m, "to host", f'{name}.to("cpu", copy=True{blocking}{wait}')
    m.hosts.update(step.made)
    return step


@maker(2)
def read_back(m):
    """Numbers that Python reads from the device."""
    name = m.pick(lambda x: x.numel() > 0)
    if not name:
        return None
    x = m.tensor(name)
    at = m.integer(0, x.numel() - 1)
    kind, text = m.choice(
        (
            ("item", f"torch.tensor({name}.flatten()[{at}].item(), dtype={x.dtype})"),
            ("tolist", f"torch.tensor({name}.tolist(), dtype={x.dtype})"),
            (
                "numpy",
                f"torch.from_numpy({name}.detach().clone().resolve_conj().resolve_neg().cpu().numpy())",
            ),
            ("bool", f"torch.tensor(bool({name}.flatten()[{at}]))"),
        )
    )
    if kind == "numpy" and x.dtype == torch.bfloat16:
        return None
    step = new(m, kind, text, rule="equal")
    m.hosts.update(step.made)
    return step


@maker(2)
def to_device(m):
    name = m.pick(host=True)
    if not name:
        return None
    dtype = dtype_of(m)
    call = f".to(device, {dtype}, copy=True" if fits(m, name, dtype) else ".to(device, copy=True"
    blocking = ", non_blocking=True)" if m.chance(0.4) else ")"
    return new(m, "to device", f"{name}{call}{blocking}", rule="equal")


def source_of(m, x):
    """A tensor of the shape of x (or that broadcasts to it), as text."""
    names = [
        name
        for name in m.alive
        if m.tensor(name).shape == x.shape or (m.chance(0.3) and m.tensor(name).numel() == 1)
    ]
    if names and m.chance(0.8):
        return m.choice(names)
    return None


@maker(8)
def copy_into(m):
    name = m.pick_any(lambda x: not x.is_neg())
    if not name or not m.may_write(name):
        return None
    x = m.tensor(name)
    source = source_of(m, x)
    if source:
        if not m.may_read_while(name, source) or not fits(m, source, x.dtype):
            return None
        if m.tensor(source).is_complex() and not x.is_complex():
            return None
        if m.tensor(source).is_neg() and x.dtype != m.tensor(source).dtype:
            return None  # the CPU forgets the lazy bit: half.copy_(float._neg_view())
    else:
        shape = tuple(x.shape)
        if shape and m.chance(0.2):
            shape = shape[m.integer(0, len(shape)) :]
        source = data(m, shape, x.dtype) + ("" if m.chance(0.4) else ".to(device)")
    blocking = ", non_blocking=True)" if m.chance(0.2) else ")"
    wait = "; synchronize(device)" if name in m.hosts and blocking != ")" else ""
    text = m.choice((f"{name}.copy_({source}{blocking}{wait}", f"{name}[...] = {source}"))
    return change("copy_" if "copy_" in text else "setitem", text, name, rule="equal")


@maker(5)
def shifted(m):
    """Two views of one base: PyTorch refuses them if they overlap, else they are copied."""
    name = m.pick_any(lambda x: x.dim() and x.size(0) > 1)
    if not name or not m.may_write(name, refused=False):
        return None
    x = m.tensor(name)
    half = x.size(0) // 2
    text = m.choice(
        (
            f"{name}[:{half}].copy_({name}[-{half}:])",
            f"{name}[-{half}:].copy_({name}[:{half}])",
            f"{name}[:{half}] = {name}[-{half}:].flip(0)",
            f"{name}[...] = {name}.flip(0)",
            f"{name}.copy_({name}.roll(1, 0))",
        )
    )
    return change("copy_ within", text, name)


@maker(4)
def filled(m):
    name = m.pick_any()
    if not name or not m.may_write(name):
        return None
    x = m.tensor(name)
    number = m.choice((0, 1, 2, 5, True)) if not x.is_floating_point() else m.choice((0.5, -1, 3))
    d = dim_of(m, x)
    kind, text = m.choice(
        (
            ("fill_", f"{name}.fill_({number})"),
            ("zero_", f"{name}.zero_()"),
            ("setitem", f"{name}[...] = {number}"),
            ("setitem", f"{name}[..., ::2] = {number}"),
            ("fill_", f"{name}.select({d}, 0).fill_({number})"),
            ("masked_fill_", f"{name}.masked_fill_({name} == {name}, {number})"),
        )
    )
    if kind == "masked_fill_" and (not m.is_plain(name) or torch._debug_has_internal_overlap(x)):
        return None
    return change(kind, text, name, rule="equal")
