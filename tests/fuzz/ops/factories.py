"""New tensors."""

import torch

from ..model import COMPUTED, FLOATS, INTEGERS, STORED
from . import maker, new

SIZES = (1, 2, 3, 4, 4, 5, 6, 8, 9, 16, 17, 33, 0)


def shape_of(m, most=4):
    rank = m.choice((0, 1, 1, 2, 2, 2, 3, 3, 4)[: 2 * most + 1])
    shape, total = [], 1
    for _ in range(rank):
        size = m.choice(SIZES) if m.chance(0.6) else m.integer(1, 4)
        if total * size > 200:
            size = m.integer(1, 2)
        total *= max(size, 1)
        shape.append(size)
    return tuple(shape)


def dtype_of(m):
    if m.chance(0.07):
        return m.choice(STORED)
    if m.chance(0.35):
        return torch.float32
    return m.choice(COMPUTED)


def kind_of_data(m):
    return m.random.choices(("plain", "fraction", "special", "wide"), (6, 2, 1, 2))[0]


def data(m, shape, dtype, kind=None):
    seed = m.integer(0, 9999)
    kind = kind or kind_of_data(m)
    return f'data({seed}, {shape}, {dtype}, "{kind}")'


@maker(10)
def device_tensor(m):
    shape = shape_of(m)
    if m.alive and m.chance(0.5):  # of the same shape as another: they fit together
        shape = tuple(m.tensor(m.choice(m.alive)).shape)
    dtype = dtype_of(m)
    convert = ""
    if dtype in FLOATS and m.chance(0.15):
        convert = ".requires_grad_()"
    return new(m, "data", f"{data(m, shape, dtype)}.to(device){convert}")


@maker(1.2)
def host_tensor(m):
    step = new(m, "host data", data(m, shape_of(m), dtype_of(m)))
    m.hosts.update(step.made)
    return step


@maker(2.5)
def filled(m):
    shape, dtype = shape_of(m), m.choice(COMPUTED)
    options = f"dtype={dtype}, device=device"
    number = m.choice((0, 1, 2, 7, -3, 0.5, True))
    integral = dtype in INTEGERS
    floating = m.choice(FLOATS)
    text = m.choice(
        (
            f"torch.zeros({shape}, {options})",
            f"torch.ones({shape}, {options})",
            f"torch.full({shape}, {number}, {options})",
            f"torch.empty({shape}, {options}).fill_({number})",
            f"torch.tensor({number}, {options})",
            f"torch.arange({m.integer(0, 20)}, dtype={m.choice((*INTEGERS, *FLOATS))}, device=device)",
            f"torch.arange({m.integer(-9, 0)}, {m.integer(1, 9)}, 0.5, dtype={floating}, device=device)",
            f"torch.eye({m.integer(0, 6)}, {m.integer(1, 6)}, {options})",
            f"torch.linspace(-2, 2, {m.choice((1, 5, 9, 17))}, dtype={floating}, device=device)",
            f"torch.tril_indices({m.integer(1, 5)}, {m.integer(1, 5)}, {m.integer(-2, 2)}, device=device)",
            f"torch.triu_indices({m.integer(1, 5)}, {m.integer(1, 5)}, {m.integer(-2, 2)}, device=device)",
            f"torch.tensor([[1, 2, 3], [4, 5, 6]], {options})",
            f"torch.empty({m.integer(1, 4)}, 3, 2, 2, {options}, memory_format=torch.channels_last).fill_({number})",
            f"torch.empty_strided((3, 4), (1, 3), {options}).fill_({int(number) if integral else number})",
        )
    )
    return new(m, text[6:].split("(")[0].strip(), text)


@maker(2)
def like(m):
    name = m.pick()
    if not name:
        return None
    dtype = "" if m.chance(0.6) else f", dtype={m.choice(COMPUTED)}"
    shape = shape_of(m)
    text = m.choice(
        (
            f"torch.zeros_like({name}{dtype})",
            f"torch.ones_like({name}{dtype})",
            f"torch.full_like({name}, 3{dtype})",
            f"torch.empty_like({name}{dtype}).fill_(1)",
            f"{name}.new_zeros({shape}{dtype})",
            f"{name}.new_ones({shape}{dtype})",
            f"{name}.new_full({shape}, 2{dtype})",
            f"{name}.new_tensor([1, 0, 2]{dtype})",
        )
    )
    kind = text.replace(name, "").replace("torch", "").strip(".").split("(")[0]
    return new(m, kind, text)
