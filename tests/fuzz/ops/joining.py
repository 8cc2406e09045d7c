"""Joining, padding, rolling, repeating."""

from ..model import COMPUTED
from . import dim_of, maker, new, size_at


@maker(5)
def joined(m):
    name = m.pick(lambda x: x.numel() <= 150)
    if not name:
        return None
    x = m.tensor(name)
    d = dim_of(m, x)
    wanted = [s for k, s in enumerate(x.shape) if k != d % max(x.dim(), 1)]
    names = [name]
    for other in m.alive:
        y = m.tensor(other)
        same = (
            y.dim() == x.dim()
            and [s for k, s in enumerate(y.shape) if k != d % max(x.dim(), 1)] == wanted
        )
        if other not in m.hosts and same and m.chance(0.4) and len(names) < 4:
            names.append(other)
    if len(names) == 1:
        names.append(name)
    listed = ", ".join(names)
    kind = m.choice(("cat", "cat", "stack", "hstack", "vstack", "dstack", "concat"))
    dim = f", {d}" if kind in ("cat", "stack", "concat") else ""
    if kind == "stack":
        listed = f"{name}, {name}"
    return new(m, kind, f"torch.{kind}([{listed}]{dim})", "equal")


@maker(6)
def moved(m):
    name = m.pick(lambda x: x.numel() <= 120)
    if not name:
        return None
    x = m.tensor(name)
    d, e = dim_of(m, x), dim_of(m, x)
    pads = [m.integer(0, 2) for _ in range(2 * min(x.dim(), 2))]
    signed = [m.integer(-1, 2) for _ in pads]
    kind, text = m.choice(
        (
            ("roll", f"torch.roll({name}, {m.integer(-3, 3)}, {d})"),
            ("roll", f"torch.roll({name}, {m.integer(-3, 3)})"),
            ("flip", f"torch.flip({name}, [{d}])"),
            ("rot90", f"torch.rot90({name}, {m.integer(0, 3)}, [{d}, {e}])"),
            (
                "repeat",
                f"{name}.repeat({[m.integer(1, 2) for _ in range(x.dim() + m.integer(0, 1))]})",
            ),
            ("tile", f"torch.tile({name}, (2,))"),
            ("repeat_interleave", f"torch.repeat_interleave({name}, {m.integer(0, 3)}, {d})"),
            ("tril", f"torch.tril({name}, {m.integer(-2, 2)})"),
            ("triu", f"torch.triu({name}, {m.integer(-2, 2)})"),
            ("diag", f"torch.diag({name}, {m.integer(-1, 1)})"),
            ("diag_embed", f"torch.diag_embed({name}, {m.integer(-1, 1)})"),
            ("pad", f"F.pad({name}, {signed}, value=2)"),
            ("meshgrid", f'torch.meshgrid({name}, {name}, indexing="ij")[1].contiguous()'),
            ("block_diag", f"torch.block_diag({name}, {name})"),
            ("unfold_copy", f"torch.unfold_copy({name}, {d}, {max(size_at(x, d) // 2, 1)}, 1)"),
            ("narrow_copy", f"torch.narrow_copy({name}, {d}, 0, {size_at(x, d) // 2})"),
        )
    )
    return new(m, kind, text)


@maker(3)
def moved_otherwise(m):
    name = m.pick(lambda x: x.numel() <= 120)
    if not name:
        return None
    x = m.tensor(name)
    d, e = dim_of(m, x), dim_of(m, x)
    size = size_at(x, d)
    repeats = f"torch.tensor({[m.integer(0, 2) for _ in range(size)]}, device=device)"
    widths = [m.integer(0, 2) for _ in range(2 * x.dim())]
    kind, text = m.choice(
        (
            ("roll", f"torch.roll({name}, ({m.integer(-3, 3)}, {m.integer(-3, 3)}), ({d}, {e}))"),
            ("flip", f"torch.flip({name}, {list(range(x.dim()))})"),
            ("fliplr", f"torch.fliplr({name})"),
            ("repeat_interleave", f"torch.repeat_interleave({name}, {repeats}, {d})"),
            ("repeat_interleave", f"torch.repeat_interleave({name}, {m.integer(0, 3)})"),
            ("pad", f"F.pad({name}, {widths}, value=1)"),
            ("column_stack", f"torch.column_stack([{name}, {name}])"),
            ("stack", f"torch.stack([{name}, {name}, {name}], {d})"),
            ("diag_embed", f"torch.diag_embed({name}, {m.integer(-1, 1)}, {d}, {e})"),
            ("tril", f"{name}.clone().tril_({m.integer(-2, 2)})"),
            ("triu", f"{name}.clone().triu_({m.integer(-2, 2)})"),
            ("copy of a view", f"torch.permute_copy({name}, {list(range(x.dim()))[::-1]})"),
            ("copy of a view", f"torch.select_copy({name}, {d}, {m.integer(-1, 1)})"),
            ("copy of a view", f"torch.diagonal_copy({name}, 0, {d}, {e})"),
        )
    )
    return new(m, kind, text)


@maker(3)
def padded(m):
    name = m.pick(lambda x: x.dim() in (2, 3, 4, 5) and x.dtype in COMPUTED)
    if not name:
        return None
    x = m.tensor(name)
    sides = m.integer(1, min(x.dim() - 1, 3)) if x.dim() < 5 else 3
    most = [min(2, x.size(-1 - k // 2) - 1) for k in range(2 * sides)]
    if min(most) < 0:
        return None
    sizes = [m.integer(0, k) for k in most]
    mode = m.choice(("reflect", "replicate", "circular"))
    return new(m, "pad " + mode, f'F.pad({name}, {sizes}, mode="{mode}")')
