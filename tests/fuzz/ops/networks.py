"""The functions of torch.nn, on small tensors."""

import torch

from ..model import FLOATS
from . import maker, new


def weight(m, shape, dtype):
    return f"(data({m.integer(0, 99)}, {tuple(shape)}, {dtype}) / 4).to(device)"


@maker(3)
def convolved(m):
    name = m.pick(lambda x: x.dtype in FLOATS and x.dim() in (3, 4) and x.numel() > 0)
    if not name or not m.is_tame(name, 16.0):
        return None
    x = m.tensor(name)
    dims = x.dim() - 2
    channels = x.size(1)
    kernel = [m.integer(1, min(3, s)) for s in x.shape[2:]]
    out = m.choice((1, 2, 4))
    scale = m.largest(name) * 8
    bias = m.choice(("None", weight(m, (out,), x.dtype)))
    stride, padding = m.integer(1, 2), m.integer(0, 1)
    if m.chance(0.7):
        text = f"F.conv{dims}d({name}, {weight(m, (out, channels, *kernel), x.dtype)}, {bias}, stride={stride}, padding={padding})"
        return new(m, f"conv{dims}d", f"{text}.clone()", "sums", scale)
    text = f"F.conv_transpose{dims}d({name}, {weight(m, (channels, out, *kernel), x.dtype)}, {bias}, stride={stride})"
    return new(m, f"conv_transpose{dims}d", f"{text}.clone()", "sums", scale)


@maker(3)
def pooled(m):
    name = m.pick(lambda x: x.dtype in FLOATS and x.dim() in (3, 4) and x.numel() > 0)
    if not name or not m.is_tame(name):
        return None
    x = m.tensor(name)
    dims = x.dim() - 2
    size = min(2, *x.shape[2:])
    kind, text = m.choice(
        (
            ("max_pool", f"F.max_pool{dims}d({name}, {size}, {m.integer(1, 2)})"),
            ("avg_pool", f"F.avg_pool{dims}d({name}, {size}, {m.integer(1, 2)})"),
            ("adaptive_avg_pool", f"F.adaptive_avg_pool{dims}d({name}, 2)"),
            ("adaptive_max_pool", f"F.adaptive_max_pool{dims}d({name}, 2)"),
            (
                "interpolate",
                f'F.interpolate({name}, scale_factor=2, mode="{("linear", "bilinear")[dims - 1]}")',
            ),
            ("interpolate", f'F.interpolate({name}, size={[3] * dims}, mode="nearest")'),
        )
    )
    return new(m, kind, f"{text}.clone()", "sums", m.largest(name))


@maker(3)
def normalized(m):
    name = m.pick(lambda x: x.dtype in FLOATS and x.dim() > 1 and x.numel() > 1)
    if not name or not m.is_tame(name, 16.0):
        return None
    x = m.tensor(name)
    last, channels = x.size(-1), x.size(1)
    if x.size(0) == 1:
        return None  # the CPU's batch_norm is wrong for some gradients of one image, see soak.py
    affine = f", {weight(m, (last,), x.dtype)}" if m.chance(0.5) else ""
    kind, text = m.choice(
        (
            ("layer_norm", f"F.layer_norm({name}, ({last},){affine})"),
            ("rms_norm", f"F.rms_norm({name}, ({last},){affine}, eps=0.01)"),
            ("group_norm", f"F.group_norm({name}, {channels}, eps=0.01)"),
            (
                "batch_norm",
                f"F.batch_norm({name}, {weight(m, (channels,), x.dtype)}, {weight(m, (channels,), x.dtype)}.abs() + 1)",
            ),
            ("normalize", f"F.normalize({name}, dim=1, eps=0.01)"),
        )
    )
    if kind == "layer_norm":
        text = text[:-1] + ", eps=0.01)"
        if not affine:
            text = text.replace(", eps", ", None, None, eps")
        else:
            text = text.replace(", eps", ", None, eps")
    return new(m, kind, f"{text}.clone()", "sums", 16.0)


@maker(2)
def losses(m):
    name = m.pick(lambda x: x.dtype == torch.float32 and x.dim() == 2 and x.numel() > 0)
    if not name or not m.is_tame(name, 16.0):
        return None
    x = m.tensor(name)
    target = (
        f"torch.tensor({[m.integer(0, x.size(1) - 1) for _ in range(x.size(0))]}, device=device)"
    )
    kind, text = m.choice(
        (
            ("cross_entropy", f"F.cross_entropy({name}, {target})"),
            ("nll_loss", f'F.nll_loss({name}, {target}, reduction="none")'),
            ("mse_loss", f"F.mse_loss({name}, {name}.flip(0))"),
            ("smooth_l1_loss", f"F.smooth_l1_loss({name}, {name}.flip(0))"),
            ("bce", f"F.binary_cross_entropy_with_logits({name}, torch.ones_like({name}))"),
            ("sdpa", f"F.scaled_dot_product_attention({name}[None], {name}[None], {name}[None])"),
            ("glu", f"F.glu(torch.cat([{name}, {name}], 1), 1)"),
            ("pixel", f"F.cosine_similarity({name}, {name}.flip(0), eps=0.01)"),
        )
    )
    return new(m, kind, f"{text}.clone()", "sums", m.largest(name) ** 2)
