"""Searching, counting, and sets of values."""

import torch

from ..model import FLOATS, INTEGERS
from . import dim_of, maker, new
from .indexing import index
from .networks import CONTIGUOUS
from .reductions import ordered, unordered


def sortable(m, test=lambda x: True):
    """The name of a tensor without NaN: where one falls among numbers is not compared here."""
    name = m.pick(lambda x: ordered(x) and test(x))
    return name if name and m.is_tame(name) else None


@maker(2)
def modes(m):
    name = sortable(m)
    if not name:
        return None
    d, keep = dim_of(m, m.tensor(name)), m.choice(("", ", keepdim=True"))
    return new(m, "mode", f"torch.mode({name}, {d}{keep}).values.detach()", "equal")


@maker(3)
def searched(m):
    name = sortable(m, lambda x: x.dtype != torch.bool)
    if not name:
        return None
    x = m.tensor(name)
    lead, line = x.shape[:-1], x.dim() == 1
    others = [
        n
        for n in m.alive
        if n not in m.hosts
        and m.tensor(n).dtype == x.dtype
        and (line or m.tensor(n).shape[:-1] == lead)
        and m.is_tame(n)
    ]
    other = m.choice(others) if others else name
    side = m.choice(("", ", right=True", ', side="left"', ', side="right"'))
    narrow = m.choice(("", ", out_int32=True"))
    inner = f"torch.sort({name}, -1).values"
    kind, text = m.choice(
        (
            ("searchsorted", f"torch.searchsorted({inner}, {other}{side}{narrow})"),
            (
                "searchsorted",
                f"torch.searchsorted({name}, {other}{side}, sorter=torch.sort({name}, dim=-1, stable=True).indices)",
            ),
            (
                "searchsorted",
                f"torch.searchsorted(torch.sort({name}.flatten()).values, {m.integer(-3, 3)}{side})",
            ),
            (
                "bucketize",
                f"torch.bucketize({other}, torch.sort({name}.flatten()).values{narrow}, right={m.chance(0.5)})",
            ),
        )
    )
    return new(m, kind, text)


@maker(3)
def sets(m):
    name = sortable(m)
    if not name:
        return None
    d = dim_of(m, m.tensor(name))
    function = m.choice(("unique", "unique_consecutive"))
    dim = f", dim={d}" if m.chance(0.7) else ""
    if m.chance(0.4):
        text = f"torch.{function}({name}{dim})"
    else:
        parts = "return_inverse=True, return_counts=True"
        text = f"torch.{function}({name}, {parts}{dim})[{m.integer(0, 2)}]"
    # index_select, as on CUDA; the CPU stacks slices and moves the dimension back: other strides.
    return new(m, function + " dim" * bool(dim), text + CONTIGUOUS, "equal")


@maker(2)
def counted(m):
    name = m.pick(lambda x: x.dtype in (*FLOATS, *INTEGERS))
    if not name:
        return None
    x = m.tensor(name)
    if x.dtype in FLOATS:
        if x.numel() > 256:
            return None  # the CPU counts in the dtype: a bfloat16 stays at 256
        bins = m.choice((1, 4, 8, 16))  # their edges are exact
        return new(m, "histc", f"torch.histc({name}, {bins}, min=-4, max=4)")
    at, count = index(m, 9)
    weights = f"data({m.integer(0, 99)}, ({count},), torch.float32).to(device)"
    texts = [f"torch.bincount({at}, {weights}, minlength={m.integer(0, 4)})"]
    if not x.numel() or int(x.max()) <= 100:  # the result has that length
        texts.append(f"torch.bincount({name})")
        texts.append(f"torch.bincount({name}.flatten())")
    return new(m, "bincount", m.choice(texts), "sums", 16.0)


@maker(2)
def quantiles(m):
    name = m.pick(lambda x: x.dtype == torch.float32)
    if not name or not m.is_plain_memory(name) or not m.is_plain(name):
        return None
    x = m.tensor(name)
    function = m.choice(("quantile", "nanquantile"))
    if function == "quantile" and not m.is_tame(name):
        return None
    q = m.choice(("0.25", "1.0", "0.5", "torch.tensor([0.0, 0.25, 0.75], device=device)"))
    how = m.choice(("linear", "lower", "higher", "midpoint", "nearest"))
    dim = m.choice((f", {dim_of(m, x)}", f", {dim_of(m, x)}, keepdim=True", ""))
    text = f'torch.{function}({name}, {q}{dim}, interpolation="{how}").detach()'
    return new(m, function, text, "close", 16.0)


@maker(2)
def picked_out(m):
    """Positions of what holds, and several at once."""
    name = m.pick(ordered)
    if not name or not m.is_plain(name):
        return None
    x, d = m.tensor(name), dim_of(m, m.tensor(name))
    size = x.size(d) if x.dim() and -x.dim() <= d < x.dim() else 1
    kind, text = m.choice(
        (
            ("argwhere", f"torch.argwhere({name})"),
            ("nonzero", f"torch.nonzero({name}, as_tuple=True)[0].clone()" if x.dim() else ""),
            ("isin", f"torch.isin({name}, {name}.flatten()[:3], invert={m.chance(0.5)})"),
            ("sort", f"{unordered(m, name)}.sort({d}).values"),
            ("topk", f"torch.topk({name}, {m.integer(0, size + 1)}, {d}).values.detach()"),
            ("equal", f"torch.tensor(torch.equal({name}, {name}.clone()), device=device)"),
            ("isclose", f"torch.isclose({name}, {name}.clone(), equal_nan={m.chance(0.5)})"),
        )
    )
    return new(m, kind, text, "equal") if text else None
