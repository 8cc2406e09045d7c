"""Losses, in each reduction."""

import torch

from ..model import FLOATS
from . import maker, new
from .networks import weight


def targets(m, shape, classes, ignored=0.1):
    """Classes as text; some are the ignored -100."""
    count = torch.Size(shape).numel()
    found = [-100 if m.chance(ignored) else m.integer(0, classes - 1) for _ in range(count)]
    return f"torch.tensor({found}, dtype=torch.int64, device=device).view({list(shape)})"


def reduction(m):
    return f', reduction="{m.choice(("mean", "sum", "none"))}"'


@maker(3)
def of_classes(m):
    name = m.pick(lambda x: x.dtype in FLOATS and x.dim() in (1, 2, 3, 4) and x.numel() > 0)
    if not name or not m.is_tame(name, 16.0):
        return None
    x = m.tensor(name)
    axis = 0 if x.dim() == 1 else 1
    classes = x.size(axis)
    shape = [s for k, s in enumerate(x.shape) if k != axis]
    weights = f", {weight(m, (classes,), x.dtype)}.abs()" if m.chance(0.4) else ""
    smooth = ", label_smoothing=0.25" if m.chance(0.3) else ""
    target = targets(m, shape, classes, ignored=m.choice((0, 0.2)))
    logs = f"F.log_softmax({name}, {axis})"
    kind, text = m.choice(
        (
            ("cross_entropy", f"F.cross_entropy({name}, {target}{weights}{smooth}{reduction(m)})"),
            ("cross_entropy", f"F.cross_entropy({name}, {target}, ignore_index=0{reduction(m)})"),
            (
                "cross_entropy",
                f"F.cross_entropy({name}, F.softmax({name}.detach(), {axis}){weights}{smooth}{reduction(m)})",
            ),
            ("nll_loss", f"F.nll_loss({logs}, {target}{weights}{reduction(m)})"),
            (
                "multi_margin_loss",
                f"F.multi_margin_loss({name}, {target}, {m.integer(1, 2)}{reduction(m)})",
            ),
        )
    )
    if kind == "multi_margin_loss" and ("-100" in target or x.dim() > 2):
        return None
    return new(m, kind, f"{text}.clone()", "sums", m.largest(name) * x.numel() ** 0.5)


@maker(3)
def of_pairs(m):
    name = m.pick(lambda x: x.dtype in FLOATS and x.dim() > 0 and x.numel() > 0)
    if not name or not m.is_tame(name, 8.0):
        return None
    x = m.tensor(name)
    other = f"{name}.detach().flip(0)"
    share = f"({name}.sigmoid() * 0.75 + 0.125)"
    signs = f"(({other} > 0).to({x.dtype}) * 2 - 1)"
    kind, arguments = m.choice(
        (
            ("mse_loss", f"{name}, {other}"),
            ("l1_loss", f"{name}, {other}"),
            ("smooth_l1_loss", f"{name}, {other}, beta={m.choice((0.0, 0.5, 1.0))}"),
            ("huber_loss", f"{name}, {other}, delta={m.choice((0.5, 2.0))}"),
            ("binary_cross_entropy", f"{share}, ({other} > 0).to({x.dtype})"),
            (
                "binary_cross_entropy_with_logits",
                f"{name}, ({other} > 0).to({x.dtype}), pos_weight=torch.tensor(2, dtype={x.dtype}, device=device)",
            ),
            ("kl_div", f"{name}, {share}.detach(), log_target={m.chance(0.5)}"),
            ("poisson_nll_loss", f"{name}, {other}.abs(), log_input=True, full={m.chance(0.5)}"),
            ("gaussian_nll_loss", f"{name}, {other}, {other}.abs() + 0.5"),
            ("hinge_embedding_loss", f"{name}, {signs}"),
            ("margin_ranking_loss", f"{name}, {other}, {signs}, margin=0.5"),
            ("soft_margin_loss", f"{name}, {signs}"),
            ("triplet_margin_loss", f"{name}, {other} + 1, {other} * 2"),
            ("multilabel_soft_margin_loss", f"{name}, ({other} > 0).to({x.dtype})"),
        )
    )
    if kind in ("triplet_margin_loss", "gaussian_nll_loss") and x.dtype != torch.float32:
        return None
    scale = m.largest(name) ** 2 * x.numel() ** 0.5
    if kind == "poisson_nll_loss":
        scale = 3000.0
    detached = ".detach()" if kind == "triplet_margin_loss" else ""
    return new(m, kind, f"F.{kind}({arguments}{reduction(m)}){detached}.clone()", "sums", scale)
