"""Reductions, scans, sorting."""

import torch

from ..model import COMPUTED, FLOATS
from . import change, dim_of, maker, new
from .pointwise import computed


def ordered(x):
    return computed(x) and not x.is_complex()


def unordered(m, name):
    """The operand of a sort that is not stable, as text: the order of equal numbers shows in the
    gradient."""
    x = m.tensor(name)
    distinct = x.unique().numel() == x.numel() and not bool(x.isnan().any())
    return name if distinct or not x.requires_grad else f"{name}.detach()"


def small(x):
    """Whether integers fit into a half."""
    return x.is_floating_point() or x.is_complex() or bool((x.double().abs() <= 1000).all())


def dims_of(m, x):
    if m.chance(0.25):
        return "", ""
    if m.chance(0.25) and x.dim() > 1:
        dims = sorted(m.sample(range(x.dim()), m.integer(1, x.dim())))
        return f", {tuple(dims)}", m.choice(("", ", keepdim=True"))
    return f", {dim_of(m, x)}", m.choice(("", ", keepdim=True"))


def into(m, kind, call, dtype, rule, scale):
    """Sometimes into out= of any shape: it is resized."""
    if m.chance(0.12):
        out = m.pick(lambda x: x.dtype == dtype)
        if out and m.may_write(out, refused=False):
            reads = [n for n in m.alive if n in call]
            shared = m.tensor(out).untyped_storage()._cdata
            if all(m.tensor(n).untyped_storage()._cdata != shared for n in reads):
                text = f"{call[:-1]}, out={out})"
                return change(kind + " out", text, out, rule=rule, scale=scale)
    return new(m, kind, call, rule, scale)


@maker(8)
def sums(m):
    name = m.pick(computed)
    if not name or not m.is_tame(name):
        return None
    x = m.tensor(name)
    dim, keep = dims_of(m, x)
    kind = m.choice(
        ("sum", "sum", "mean", "nansum", "var", "std", "vector_norm", "logsumexp", "prod")
    )
    scale = m.largest(name)
    if kind in ("var", "std", "logsumexp", "vector_norm") and not (
        x.is_floating_point() or (kind == "vector_norm" and x.is_complex())
    ):
        return None
    if kind == "vector_norm":
        dim = dim or ", None"
        order = m.choice(("2", "1", "inf", "0"))
        text = f"torch.linalg.vector_norm({name}, {order}{dim}{keep})"
    elif kind == "prod":
        if m.largest(name) > 4 or x.numel() > 40 or "(" in dim:
            return None
        text = f"torch.prod({name}{dim}{keep})"
        return new(m, kind, text, "close", scale)
    elif kind == "logsumexp":
        text = f"torch.logsumexp({name}{dim or ', 0'}{keep})"
    else:
        dtype = ""
        if kind in ("sum", "mean", "nansum") and m.chance(0.25) and small(x):
            dtype = f", dtype={m.choice((torch.float32, torch.float16) if not x.is_complex() else (torch.complex64,))}"
        if kind in ("var", "std") and m.chance(0.3) and dim:
            keep = f", correction={m.choice((0, 1, 2))}{keep}"
        text = f"torch.{kind}({name}{dim}{keep}{dtype})"
        if kind == "std":
            return new(m, kind, text, "sums", scale * 4)
    scale = scale * scale if kind == "var" else scale
    if kind == "sum":
        result = x.dtype if x.is_floating_point() or x.is_complex() else torch.int64
        if dim and not dtype:
            return into(m, kind, text, result, "sums", scale * max(x.numel() ** 0.5, 1))
        return new(m, kind, text, "sums", scale * max(x.numel() ** 0.5, 1))
    return new(m, kind, text, "sums", scale)


@maker(7)
def extremes(m):
    name = m.pick(ordered)
    if not name or not m.is_plain(name):
        return None
    x = m.tensor(name)
    dim, keep = dims_of(m, x)
    one = dim_of(m, x)
    kind = m.choice(
        (
            "amax",
            "amin",
            "any",
            "all",
            "max",
            "min",
            "argmax",
            "argmin",
            "count_nonzero",
            "aminmax",
            "median",
            "cummax",
            "cummin",
            "logcumsumexp",
            "kthvalue",
        )
    )
    if kind in ("max", "min"):
        text = (
            f"torch.{kind}({name})"
            if m.chance(0.4)
            else f"torch.{kind}({name}, {one}{keep}).values"
        )
    elif kind in ("argmax", "argmin"):
        text = f"torch.take_along_dim({name}, torch.{kind}({name}, {one}, keepdim=True), {one})"
    elif kind == "aminmax":
        text = f"torch.aminmax({name}, dim={one}).{m.choice(('min', 'max'))}"
    elif kind == "median":
        if not m.is_plain_memory(name):
            return None  # the CPU is wrong for expanded tensors
        text = f"torch.{m.choice(('median', 'nanmedian'))}({name}, {one}{keep}).values.detach()"
    elif kind == "kthvalue":
        size = x.size(one) if x.dim() and -x.dim() <= one < x.dim() else 1
        text = f"torch.kthvalue({name}, {m.integer(1, max(size, 1))}, {one}{keep}).values.detach()"
    elif kind in ("cummax", "cummin"):
        text = f"torch.{kind}({name}, {one}).values"
    elif kind == "logcumsumexp":
        if x.dtype not in FLOATS or not m.is_tame(name, 16.0):
            return None
        return new(m, kind, f"torch.logcumsumexp({name}, {one})", "sums", 16.0)
    elif kind == "count_nonzero":
        text = f"torch.count_nonzero({name}{dim})"
    else:
        text = f"torch.{kind}({name}{dim}{keep})"
        if dim and kind[0] == "a" and kind[1] == "m":
            return into(m, kind, text, x.dtype, "equal", 1.0)
    return new(m, kind, text, "equal")


@maker(4)
def scans(m):
    name = m.pick(computed)
    if not name or not m.is_tame(name, 16.0):
        return None
    x, d = m.tensor(name), dim_of(m, m.tensor(name))
    kind = m.choice(("cumsum", "cumsum", "cumprod", "diff", "trapezoid", "softmax", "log_softmax"))
    scale = m.largest(name) * max(x.numel() ** 0.5, 1)
    if kind == "cumprod" and (m.largest(name) > 2 or x.numel() > 60):
        return None
    if kind == "cumsum" and m.chance(0.25) and m.may_write(name, refused=False):
        return change("cumsum_", f"{name}.cumsum_({d})", name, rule="sums", scale=scale)
    if kind in ("softmax", "log_softmax"):
        if x.dtype not in FLOATS:
            return None
        dtype = f", dtype={torch.float32}" if m.chance(0.2) else ""
        return new(m, kind, f"torch.{kind}({name}, {d}{dtype})", "close", scale)
    named = "dim=" if kind in ("diff", "trapezoid") else ""
    return new(m, kind, f"torch.{kind}({name}, {named}{d})", "sums", scale)


@maker(4)
def sorting(m):
    name = m.pick(ordered)
    if not name or not m.is_plain(name):
        return None
    x, d = m.tensor(name), dim_of(m, m.tensor(name))
    down = m.choice(("False", "True"))
    size = x.size(d) if x.dim() and -x.dim() <= d < x.dim() else 1
    loose = unordered(m, name)
    kind, text = m.choice(
        (
            ("sort", f"torch.sort({name}, dim={d}, descending={down}, stable=True).values"),
            ("sort", f"torch.sort({name}, dim={d}, descending={down}, stable=True).indices"),
            ("argsort", f"torch.argsort({name}, dim={d}, descending={down}, stable=True)"),
            ("msort", f"torch.msort({loose})"),
            ("topk", f"torch.topk({loose}, {m.integer(0, size)}, {d}, largest={down}).values"),
            ("unique", f"torch.unique({name}).clone()"),
            ("unique_consecutive", f"torch.unique_consecutive({name}).clone()"),
            ("nonzero", f"torch.nonzero({name})"),
            ("bucketize", f"torch.bucketize({name}, torch.tensor([-2, 0, 1, 3], device=device))"),
            ("isin", f"torch.isin({name}, torch.tensor([1, 2, -1], device=device))"),
        )
    )
    if x.dtype not in COMPUTED:
        return None
    return new(m, kind, text, "equal")
