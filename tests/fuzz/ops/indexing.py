"""Reading and writing by index."""

import torch

from ..model import COMPUTED, FLOATS
from . import change, dim_of, maker, new, size_at
from .pointwise import computed


def index(m, size, count=None, distinct=False, negative=False, dtype="torch.int64"):
    """A list of indices below the size, as text."""
    count = m.integer(0, 5) if count is None else count
    if distinct:
        found = m.sample(range(size), min(count, size))
    else:
        found = (
            [m.integer(-size if negative else 0, size - 1) for _ in range(count)] if size else []
        )
    return f"torch.tensor({found}, dtype={dtype}, device=device)", len(found)


def table(m, shape, size, dim, distinct=False):
    """An index tensor of a shape; distinct along a dimension."""
    if distinct:
        order = m.sample(range(size), min(shape[dim], size))
        if len(order) < shape[dim]:
            return None
        sizes = [1] * len(shape)
        sizes[dim] = len(order)
        return f"torch.tensor({order}, device=device).view({sizes}).expand({list(shape)})"
    total = 1
    for s in shape:
        total *= s
    found = [m.integer(0, size - 1) for _ in range(total)]
    return f"torch.tensor({found}, dtype=torch.int64, device=device).view({list(shape)})"


@maker(7)
def reading(m):
    name = m.pick(lambda x: x.dim() > 0 and x.numel() > 0)
    if not name:
        return None
    x = m.tensor(name)
    d = m.integer(-x.dim(), x.dim() - 1)
    size = x.size(d)
    rows, _ = index(m, size, negative=False, dtype=m.choice(("torch.int64", "torch.int32")))
    first, count = index(m, x.size(0), negative=True)
    flat, _ = index(m, x.numel(), negative=True)
    kind = m.choice(
        (
            "index_select",
            "index",
            "index",
            "index2",
            "take",
            "gather",
            "take_along_dim",
            "mask",
            "masked_select",
            "where",
        )
    )
    if kind == "index_select":
        text = f"torch.index_select({name}, {d}, {rows})"
    elif kind == "index":
        between = ":, " * (d % x.dim())
        picked, _ = index(m, size, negative=True)
        text = f"{name}[{between}{picked}]"
    elif kind == "index2":
        if x.dim() < 2:
            return None
        last, _ = index(m, x.size(-1), count=count, negative=True)
        text = f"{name}[{first}, ..., {last}]"
    elif kind == "take":
        text = f"torch.take({name}, {flat})"
    elif kind in ("gather", "take_along_dim"):
        shape = [m.integer(1, s) for s in x.shape]
        if kind == "take_along_dim":
            shape = [s if k != d % x.dim() else m.integer(1, 4) for k, s in enumerate(x.shape)]
        text = f"torch.{kind}({name}, {d}, {table(m, shape, size, d)})"
        if kind == "take_along_dim":
            text = f"torch.take_along_dim({name}, {table(m, shape, size, d)}, {d})"
    else:
        masks = [
            n
            for n in m.alive
            if n not in m.hosts and m.tensor(n).dtype == torch.bool and m.tensor(n).shape == x.shape
        ]
        if masks:
            mask = m.choice(masks)
        elif m.is_plain(name) and x.dtype in COMPUTED:
            mask = f"({name} != 1)"
        else:
            return None
        text = {
            "mask": f"{name}[{mask}]",
            "masked_select": f"torch.masked_select({name}, {mask})",
            "where": f"torch.where({mask})[0]",
        }[kind]
    return new(m, kind, text)


def values_like(m, x, shape):
    numbers = f"data({m.integer(0, 99)}, {tuple(shape)}, {x.dtype})"
    return f"{numbers}.to(device)"


@maker(8)
def writing(m):
    name = m.pick(lambda x: x.dim() > 0 and x.numel() > 0)
    if not name or not m.may_write(name, refused=False):
        return None
    x = m.tensor(name)
    d = m.integer(-x.dim(), x.dim() - 1)
    size = x.size(d)
    kind = m.choice(
        (
            "index_fill",
            "index_copy",
            "index_add",
            "scatter",
            "scatter value",
            "scatter_add",
            "scatter_reduce",
            "index_put",
            "index_put acc",
            "put",
            "masked_fill",
            "masked_scatter",
            "fill_diagonal",
            "setitem",
            "scatter_reduce",
        )
    )
    shape = list(x.shape)
    at, count = index(m, size, distinct=kind in ("index_copy",))
    part = shape.copy()
    part[d] = count
    sums = kind in ("index_add", "scatter_add", "scatter_reduce", "index_put acc")
    if sums and not (m.is_tame(name) and x.dtype in COMPUTED):
        return None
    rule, scale = ("sums", m.largest(name) * 16) if sums else ("bits", 1.0)
    inplace = m.chance(0.7)
    tail = "_" if inplace else ""
    if kind == "index_fill":
        call = f"{name}.index_fill{tail}({d}, {at}, {m.choice((0, 1, 3))})"
    elif kind in ("index_copy", "index_add"):
        call = f"{name}.{kind}{tail}({d}, {at}, {values_like(m, x, part)})"
    elif kind.startswith("scatter"):
        shape = [m.integer(1, s) for s in x.shape]
        where = table(m, shape, size, d, distinct=not sums)
        if where is None:
            return None
        if kind == "scatter value":
            call = f"{name}.scatter{tail}({d}, {where}, 2)"
        else:
            reduce = ""
            if kind == "scatter_reduce":
                reduce = f', "{m.choice(("sum", "amax", "amin", "mean", "prod"))}", include_self={m.chance(0.6)}'
                if x.dtype in (torch.bool, torch.complex64) or (
                    "prod" in reduce and m.largest(name) > 8
                ):
                    return None
                if "prod" in reduce:
                    scale = 16.0**4
            call = f"{name}.{kind}{tail}({d}, {where}, {values_like(m, x, shape)}{reduce})"
    elif kind == "index_put":
        at, count = index(m, x.size(0), distinct=True)
        call = f"{name}.index_put{tail}(({at},), {values_like(m, x, [count, *x.shape[1:]])})"
    elif kind == "index_put acc":
        at, count = index(m, x.size(0), negative=True)
        call = f"{name}.index_put{tail}(({at},), {values_like(m, x, [count, *x.shape[1:]])}, accumulate=True)"
    elif kind == "put":
        at, count = index(m, x.numel(), distinct=True)
        call = f"{name}.put{tail}({at}, {values_like(m, x, [count])})"
    elif kind in ("masked_fill", "masked_scatter"):
        mask = f"data({m.integer(0, 99)}, {tuple(x.shape)}, torch.bool).to(device)"
        value = (
            m.choice(("0", "2", "torch.tensor(1)"))
            if kind == "masked_fill"
            else values_like(m, x, x.shape)
        )
        call = f"{name}.{kind}{tail}({mask}, {value})"
    elif kind == "fill_diagonal":
        if x.dim() < 2:
            return None
        inplace, call = True, f"{name}.fill_diagonal_({m.choice((0, 1))}, wrap={m.chance(0.5)})"
    else:
        at, count = index(m, x.size(0), distinct=True)
        inplace, call = True, f"{name}[{at}] = {values_like(m, x, [count, *x.shape[1:]])}"
    if inplace:
        return change(kind + "_", call, name, rule=rule, scale=scale)
    return new(m, kind, call, rule, scale)


@maker(5)
def accumulating(m):
    """Several values that go to one place."""
    name = m.pick(lambda x: x.dim() > 0 and x.numel() > 0 and computed(x))
    if not name or not m.may_write(name, refused=False) or not m.is_tame(name):
        return None
    x = m.tensor(name)
    d = m.integer(-x.dim(), x.dim() - 1)
    at, count = index(m, x.size(d))
    part = list(x.shape)
    part[d] = count
    values = values_like(m, x, part)
    how = m.choice(("amax", "amin", "mean", "prod"))
    flat, number = index(m, x.numel())
    shape = [m.integer(1, s) for s in x.shape]
    where = table(m, shape, x.size(d), d)
    tail = m.choice(("", "_"))
    kind, call = m.choice(
        (
            ("index_add", f"index_add{tail}({d}, {at}, {values}, alpha={m.choice((2, -1, 3))})"),
            (
                "index_reduce",
                f'index_reduce{tail}({d}, {at}, {values}, "{how}", include_self={m.chance(0.6)})',
            ),
            (
                "index_reduce",
                f'index_reduce{tail}({d}, {at}, {values}, "{how}", include_self={m.chance(0.6)})',
            ),
            ("put acc", f"put{tail}({flat}, {values_like(m, x, [number])}, accumulate=True)"),
            (
                "scatter reduce",
                f'scatter{tail}({d}, {where}, {values_like(m, x, shape)}, reduce="{m.choice(("add", "multiply"))}")',
            ),
        )
    )
    scale = m.largest(name) * 16
    if "prod" in call or "multiply" in call:
        if m.largest(name) > 8:
            return None
        scale *= 16.0**3
    text = f"{name}.{call}"
    if tail:
        return change(kind + "_", text, name, rule="sums", scale=scale)
    return new(m, kind, text, "sums", scale)


@maker(4)
def statements(m):
    """x[index] += number, and masks."""
    name = m.pick(lambda x: x.dim() > 0 and x.numel() > 0 and computed(x))
    if not name or not m.may_write(name, refused=False) or not m.is_tame(name):
        return None
    x = m.tensor(name)
    rows, _ = index(m, x.size(0), distinct=True)
    last, _ = index(m, x.size(-1), negative=True)
    # A bool takes no other sum, and a complex number has no order.
    test = f"({name} == 1)" if x.is_complex() else f"({name} > 0)"
    number = "True" if x.dtype == torch.bool else str(m.choice((2, 3)))
    sign = "|" if x.dtype == torch.bool else m.choice(("+", "*", "-"))
    if x.dtype == torch.uint8 and sign == "-":
        return None
    kind, text = m.choice(
        (
            ("setitem +=", f"{name}[{rows}] {sign}= {number}"),
            ("setitem +=", f"{name}[..., ::2] {sign}= {number}"),
            ("setitem mask", f"{name}[{test}] = {number}"),
            ("setitem mask", f"{name}[{test}] {sign}= {number}"),
            ("setitem mask", f"{name}[({name}.select(-1, 0) != 1)] = {number}"),
            ("setitem", f"{name}[..., {last}] = {number}"),
            ("setitem", f"{name}[{rows}, ...] = {name}.new_full((), 2)"),
        )
    )
    return change(kind, text, name, rule="close", scale=m.largest(name))


@maker(3)
def mixed(m):
    """Indices beside slices, booleans, None and numbers."""
    name = m.pick(lambda x: x.dim() > 1 and x.numel() > 0)
    if not name:
        return None
    x = m.tensor(name)
    first, count = index(m, x.size(0), count=m.choice((1, 2, 4)), negative=True)
    second, _ = index(m, x.size(1), count=count, negative=True, dtype="torch.int32")
    last, _ = index(m, x.size(-1), count=count, negative=True)
    mask = f"data({m.integer(0, 99)}, ({x.size(0)},), torch.bool).to(device)"
    options = [
        f"{name}[{first}, None]",
        f"{name}[None, {first}]",
        f"{name}[{first}[:, None], {second}]",
        f"{name}[{first}, {m.integer(-x.size(1), x.size(1) - 1)}]",
        f"{name}[{m.integer(-x.size(0), x.size(0) - 1)}, {second}]",
        f"{name}[{mask}]",
        f"{name}[{mask}, 0]",
        f"{name}[1:, {second}]",
        f"{name}[::2, ..., {last}]",
        f"{name}[{m.sample(range(x.size(0)), 1)}]",
        f"{name}[{m.chance(0.5)}].clone()",
    ]
    if x.dim() > 2:
        options += [f"{name}[{first}, :, {last}]", f"{name}[:, {second}, 0]"]
    return new(m, "index mixed", m.choice(options))


@maker(2)
def out_of_range(m):
    """An index that may be beyond the end: reported, on a device when it is synchronized."""
    # Complex gradients that an operator lacks are refused earlier there, later on the CPU.
    name = m.pick(lambda x: x.dim() > 0 and not (x.is_complex() and x.requires_grad))
    if not name:
        return None
    x = m.tensor(name)
    d = m.integer(-x.dim(), x.dim() - 1)
    size = x.size(d)
    found = [m.integer(0, max(size - 1, 0)) for _ in range(m.integer(0, 3))]
    if m.chance(0.5):
        found.insert(m.integer(0, len(found)), m.choice((size, size + 3)))
    at = f"torch.tensor({found}, dtype=torch.int64, device=device)"
    part = list(x.shape)
    part[d] = len(found)
    rows = f"{at}.view({[-1 if k == d % x.dim() else 1 for k in range(x.dim())]}).expand({part})"
    kind, text = m.choice(
        (
            ("index_select", f"torch.index_select({name}, {d}, {at})"),
            ("gather", f"torch.gather({name}, {d}, {rows})"),
            ("index", f"{name}[{':, ' * (d % x.dim())}{at}]"),
            ("take", f"torch.take({name}, {at} + {(x.numel() - size)})"),
            ("index_add", f"torch.index_add({name}, {d}, {at}, {values_like(m, x, part)})"),
            ("index_copy", f"torch.index_copy({name}, {d}, {at[:-1]}), {values_like(m, x, part)})"),
            ("scatter", f"torch.scatter({name}, {d}, {rows}, {values_like(m, x, part)})"),
            ("index_fill", f"torch.index_fill({name}, {d}, {at}, 1)"),
            ("one_hot", f"F.one_hot({at}, {max(size, 1)})"),
            ("embedding", f"F.embedding({at}, {name})"),
        )
    )
    if kind in ("index_copy", "scatter") and len(set(found)) < len(found):
        return None
    if kind in ("index_add",) and not (m.is_tame(name) and computed(x)):
        return None
    return new(m, kind, text, "sums" if kind == "index_add" else "bits", m.largest(name) * 16)


@maker(2)
def scattered_views(m):
    name = m.pick(lambda x: x.dim() > 0 and x.numel() > 0)
    if not name or not m.is_plain_memory(name):  # the result has its strides
        return None
    x, d = m.tensor(name), m.integer(0, m.tensor(name).dim() - 1)
    shape = list(x.shape)
    part = shape[:d] + shape[d + 1 :]
    if m.chance(0.5):
        return new(
            m, "select_scatter", f"torch.select_scatter({name}, {values_like(m, x, part)}, {d}, 0)"
        )
    if m.chance(0.2) and x.dim() > 1:
        numbers = values_like(m, x, x.diagonal().shape)
        return new(m, "diagonal_scatter", f"torch.diagonal_scatter({name}, {numbers})")
    half = shape.copy()
    half[d] = (shape[d] + 1) // 2
    return new(
        m,
        "slice_scatter",
        f"torch.slice_scatter({name}, {values_like(m, x, half)}, {d}, 0, {shape[d]}, 2)",
    )


@maker(2)
def one_hot(m):
    name = m.pick(lambda x: x.dim() == 2 and computed(x) and x.numel() > 0)
    if not name:
        return None
    x = m.tensor(name)
    at, _ = index(m, x.size(0), count=m.integer(1, 6))
    kind, text = m.choice(
        (
            ("embedding", f"F.embedding({at}, {name})"),
            ("one_hot", f"F.one_hot({at}, {x.size(0)})"),
            ("bincount", f"torch.bincount({at}, minlength={m.integer(0, 4)})"),
        )
    )
    return new(m, kind, text)


@maker(3)
def bags(m):
    name = m.pick(lambda x: x.dim() == 2 and x.dtype in FLOATS and x.numel() > 0)
    if not name or not m.is_tame(name, 16.0):
        return None
    x = m.tensor(name)
    count = m.integer(0, 8)
    at, _ = index(m, x.size(0), count=count)
    padding = m.choice(("", "", f", padding_idx={m.integer(-1, x.size(0) - 1)}"))
    if m.chance(0.2):
        often = m.choice(("", ", scale_grad_by_freq=True"))
        return new(m, "embedding", f"F.embedding({at}, {name}{padding}{often})")
    mode = m.choice(("sum", "mean", "max"))
    weights = ""
    if mode == "sum" and m.chance(0.5):
        weights = f", per_sample_weights=data({m.integer(0, 99)}, (SHAPE), {x.dtype}).to(device)"
    if m.chance(0.3):
        width = m.integer(1, 3)
        at, _ = index(m, x.size(0), count=2 * width)
        bags, weights = f"{at}.view(2, {width}), {name}", weights.replace("SHAPE", f"2, {width}")
    else:
        starts = [0, *sorted(m.integer(0, count) for _ in range(m.integer(0, 3)))]
        last = m.chance(0.3)
        offsets = f"torch.tensor({[*starts, count] if last else starts}, device=device)"
        bags = f"{at}, {name}, {offsets}, include_last_offset={last}"
        weights = weights.replace("SHAPE", f"{count},")
    text = f'F.embedding_bag({bags}, mode="{mode}"{padding}{weights})'
    return new(m, "embedding_bag", text, "sums", m.largest(name) * 16)


@maker(1)
def dim_checked(m):
    """Dimensions that may not exist: both must refuse them."""
    name = m.pick()
    if not name:
        return None
    d = dim_of(m, m.tensor(name), wrong=0.5)
    at, _ = index(m, max(size_at(m.tensor(name), d), 1), count=2)
    return new(m, "index_select", f"torch.index_select({name}, {d}, {at})")
