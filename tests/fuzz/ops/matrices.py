"""Small products of matrices."""

import torch

from ..model import COMPUTED, FLOATS
from . import change, maker, new

PRODUCED = (*FLOATS, torch.complex64, torch.int64, torch.int32)


def matrix(m, rank=None):
    return m.pick(
        lambda x: x.dtype in PRODUCED and x.dim() > 0 and (rank is None or x.dim() == rank)
    )


def partner(m, name, size):
    """A matrix with `size` rows, as text, and the variable that it reads."""
    x = m.tensor(name)
    fitting = [
        n
        for n in m.alive
        if n not in m.hosts
        and m.tensor(n).dtype == x.dtype
        and m.tensor(n).dim() == 2
        and size in m.tensor(n).shape
    ]
    if fitting:
        other = m.choice(fitting)
        return (other if m.tensor(other).size(0) == size else f"{other}.mT"), other
    columns = m.choice((1, 2, 4, 8, 17))
    return f"data({m.integer(0, 99)}, ({size}, {columns}), {x.dtype}).to(device)", None


@maker(6)
def products(m):
    name = matrix(m)
    if not name or not m.is_tame(name, 16.0):
        return None
    x = m.tensor(name)
    other, read = partner(m, name, x.size(-1))
    if read and not m.is_tame(read, 16.0):
        return None
    scale = m.largest(name, *([read] if read else [])) ** 2 * max(x.size(-1), 1) ** 0.5
    options = [("matmul", f"torch.matmul({name}, {other})")]
    if x.dim() == 2:
        options += [
            ("mm", f"torch.mm({name}, {other})"),
            (
                "addmm",
                f"torch.addmm(torch.ones((), dtype={x.dtype}, device=device), {name}, {other}, beta=2, alpha=3)",
            ),
            ("linear", f"F.linear({name}, {other}.mT)"),
            ("einsum", f'torch.einsum("ij,jk->ki", {name}, {other})'),
            ("mv", f"torch.mv({name}, {other}[:, 0])"),
            ("tensordot", f"torch.tensordot({name}, {other}, 1)"),
        ]
    if x.dim() == 3:
        options += [
            ("bmm", f"torch.bmm({name}, {name}.mT)"),
            ("baddbmm", f"torch.baddbmm({name} @ {name}.mT, {name}, {name}.mT, beta=0.5, alpha=2)"),
        ]
    if x.dim() == 1:
        options += [
            ("dot", f"torch.dot({name}, {name}.flip(0))"),
            ("outer", f"torch.outer({name}, {name})"),
            ("vdot", f"torch.vdot({name}, {name})"),
        ]
    kind, text = m.choice(options)
    if kind in ("baddbmm",) and x.dtype not in (torch.float32, torch.complex64):
        return None
    return new(m, kind, text, "sums", scale * 4)


@maker(2)
def products_into(m):
    """addmm_ and its relatives, whose result may be a view with any strides."""
    name = matrix(m, 2)
    if not name or not m.is_tame(name, 16.0) or not m.may_write(name, refused=False):
        return None
    x = m.tensor(name)
    rows, columns = x.shape
    k = m.choice((1, 3, 8))
    left = f"data({m.integer(0, 99)}, ({rows}, {k}), {x.dtype}).to(device)"
    right = f"data({m.integer(0, 99)}, ({k}, {columns}), {x.dtype}).to(device)"
    kind, text = m.choice(
        (
            ("addmm_", f"{name}.addmm_({left}, {right}, alpha=2)"),
            ("mm out", f"torch.mm({left}, {right}, out={name})"),
            ("addr_", f"{name}.addr_({left}[:, 0], {right}[0])"),
            (
                "addmm_ self",
                f"{name}.addmm_({name}.clone(), {name}.clone().mT[:, :0] @ {right}[:0])",
            ),
        )
    )
    if kind == "addmm_ self":
        text = f"{name}.addmm_({name}.new_zeros({rows}, 0), {name}.new_zeros(0, {columns}))"
    return change(kind, text, name, rule="sums", scale=16.0 * m.largest(name) * k)


@maker(2)
def outer_products(m):
    name = m.pick(lambda x: x.dtype in COMPUTED and x.numel() <= 16)
    if not name or not m.is_tame(name):
        return None
    x = m.tensor(name)
    kind, text = m.choice(
        (
            ("kron", f"torch.kron({name}, {name})"),
            ("outer", f"torch.outer({name}.flatten(), {name}.flatten())"),
            ("cross", f"torch.linalg.cross({name}.flatten()[:3], {name}.flatten()[-3:])"),
            ("trace", f"torch.trace({name})"),
            ("vander", f"torch.vander({name}.flatten()[:4], 3)"),
        )
    )
    if kind in ("cross", "vander") and x.dtype not in (torch.float32, torch.int64):
        return None
    return new(m, kind, text, "sums", m.largest(name) ** 2)
