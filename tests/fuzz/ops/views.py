"""Views: of every kind, also of tensors of the host."""

import torch

from . import dim_of, maker, new, size_at

WIDTHS = {
    1: (torch.int8, torch.uint8),
    2: (torch.int16, torch.float16, torch.bfloat16),
    4: (torch.int32, torch.float32),
    8: (torch.int64, torch.float64, torch.complex64),
    16: (torch.complex128,),
}


def view(m, name, kind, call):
    step = new(m, kind, f"{name}{call}")
    if name in m.hosts:
        m.hosts.update(step.made)
    return step


@maker(14)
def simple(m):
    name = m.pick_any()
    if not name:
        return None
    x = m.tensor(name)
    d, e = dim_of(m, x), dim_of(m, x)
    size = max(size_at(x, d), 1)
    start = m.integer(-size, size - 1)
    kind, call = m.choice(
        (
            ("transpose", f".transpose({d}, {e})"),
            ("transpose", f".transpose({d}, {e})"),
            ("select", f".select({d}, {start})"),
            ("narrow", f".narrow({d}, {m.integer(0, size - 1)}, {m.integer(0, max(size - 1, 1))})"),
            ("unsqueeze", f".unsqueeze({d})"),
            ("squeeze", f".squeeze({d})"),
            ("squeeze", ".squeeze()"),
            ("diagonal", f".diagonal({m.integer(-1, 1)}, {d}, {e})"),
            ("unfold", f".unfold({d}, {m.integer(1, max(size, 1))}, {m.integer(1, 3)})"),
            ("movedim", f".movedim({d}, {e})"),
            ("t", ".t()"),
            ("mT", ".mT"),
            ("mH", ".mH"),
            ("flatten", f".flatten({d})"),
            ("ravel", ".ravel()"),
            ("view", ".view(-1)"),
            ("reshape", f".reshape({factors(m, x.numel())})"),
            ("view", f".view({factors(m, x.numel())})"),
            ("unflatten", f".unflatten({d}, {factors(m, size)})"),
            ("split", f".split({m.integer(1, size)}, {d})[0]"),
            ("chunk", f".chunk({m.integer(1, 3)}, {d})[-1]"),
            ("tensor_split", f".tensor_split({m.integer(1, 3)}, {d})[-1]"),
            ("unbind", f".unbind({d})[{m.integer(0, size - 1)}]"),
            ("detach", ".detach()"),
            ("data", ".data"),
            ("contiguous", ".contiguous()"),
            ("alias", "[...]"),
            ("view_as", f".view_as({name})"),
        )
    )
    return view(m, name, kind, call)


@maker(8)
def sliced(m):
    name = m.pick_any(lambda x: x.dim() > 0)
    if not name:
        return None
    parts = []
    for size in m.tensor(name).shape:
        if m.chance(0.3) or not size:
            parts.append(":")
        elif m.chance(0.15):
            parts.append(str(m.integer(-size, size - 1)))
        elif m.chance(0.08):
            parts.append("None, :")
        else:
            start = m.integer(0, min(size - 1, 3))
            stop = m.integer(start, size)
            step = m.choice(("", "", ":2", ":3"))
            parts.append(f"{start}:{stop if m.chance(0.5) else ''}{step}")
    return view(m, name, "slice", f"[{', '.join(parts)}]")


@maker(3)
def permuted(m):
    name = m.pick_any(lambda x: x.dim() > 1)
    if not name:
        return None
    dims = list(range(m.tensor(name).dim()))
    m.random.shuffle(dims)
    return view(m, name, "permute", f".permute({dims})")


@maker(4)
def expanded(m):
    name = m.pick(lambda x: x.numel() <= 60)
    if not name:
        return None
    x = m.tensor(name)
    sizes = [m.choice((size, 3)) if size == 1 else m.choice((size, -1)) for size in x.shape]
    if m.chance(0.4):
        sizes.insert(0, m.integer(1, 4))
    return view(m, name, "expand", f".expand({sizes})")


@maker(4)
def strided(m):
    """Any window of the storage, also one whose elements share memory."""
    name = m.pick_any()
    if not name:
        return None
    x = m.tensor(name)
    room = x.untyped_storage().nbytes() // x.itemsize
    if not room:
        return None
    offset = m.integer(0, min(room - 1, 9))
    sizes, strides, last = [], [], offset
    for _ in range(m.integer(0, 3)):
        stride, size = m.choice((0, 1, 1, 2, 3, 4, 6)), m.integer(1, 5)
        while last + (size - 1) * stride >= room:
            size -= 1
        last += (size - 1) * stride
        sizes.append(size)
        strides.append(stride)
    return view(m, name, "as_strided", f".as_strided({sizes}, {strides}, {offset})")


@maker(4)
def other_dtype(m):
    """Only to types whose every pattern of bits is a value that can be computed with."""
    name = m.pick_any(lambda x: x.dtype != torch.bool and not x.is_conj() and not x.is_neg())
    if not name:
        return None
    x = m.tensor(name)
    # Other widths depend on strides, which are not compared where there are no elements.
    widths = WIDTHS.values() if x.numel() else [WIDTHS[x.itemsize]]
    options = [d for types in widths for d in types if x.dtype == d or not d.is_complex]
    return view(m, name, "view dtype", f".view({m.choice(options)})")


@maker(5)
def complex_view(m):
    if m.chance(0.25):
        name = m.pick_any(lambda x: x.dtype in (torch.float32, torch.complex64))
        return view(m, name, "_neg_view", "._neg_view()") if name else None
    name = m.pick_any(lambda x: x.is_complex())
    if name:
        call = m.choice(
            (
                *(".conj()", ".real", ".imag", ".conj().imag", ".resolve_conj()", ".resolve_neg()"),
                *(".adjoint()", "[...].real"),
            )
        )
        if m.chance(0.2):
            step = new(m, "view_as_real", f"torch.view_as_real({name})")
            if name in m.hosts:
                m.hosts.update(step.made)
            return step
        return view(m, name, call.strip(".[]()"), call)
    name = m.pick_any(lambda x: x.dtype == torch.float32 and x.dim() and x.size(-1) == 2)
    if not name:
        return None
    step = new(m, "view_as_complex", f"torch.view_as_complex({name})")
    if name in m.hosts:
        m.hosts.update(step.made)
    return step


def factors(m, total):
    """Sizes whose product is the total."""
    if not total:
        return [0]
    sizes = []
    while total > 1 and len(sizes) < 3:
        options = [k for k in (2, 3, 4, 5, 6, 8) if total % k == 0]
        if not options or m.chance(0.3):
            break
        sizes.append(m.choice(options))
        total //= sizes[-1]
    sizes.insert(m.integer(0, len(sizes)), total)
    return sizes
