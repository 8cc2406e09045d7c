"""The functions of torch.nn, on small tensors."""

import torch

from ..model import FLOATS
from . import maker, new

CONTIGUOUS = ".clone(memory_format=torch.contiguous_format)"


def loses_minus(x, kind, dims):
    """The CPU's max_pool1d takes what lies in memory, without the lazy minus of x."""
    return kind == "max_pool" and dims == 1 and x.is_neg()


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
    if loses_minus(x, kind, dims):
        return None
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


@maker(3)
def convolved_otherwise(m):
    """Groups, dilation, without a batch, in three dimensions."""
    name = m.pick(lambda x: x.dtype in FLOATS and x.dim() in (2, 3, 4, 5) and x.numel() > 0)
    if not name or not m.is_tame(name, 16.0):
        return None
    x = m.tensor(name)
    batched = x.dim() == 5 or (x.dim() > 2 and m.chance(0.5))
    dims = x.dim() - (2 if batched else 1)
    if dims > 3:
        return None
    channels = x.size(-dims - 1)
    groups = m.choice([k for k in (1, 2, 3, 4) if channels % k == 0])
    kernel = [m.integer(1, min(3, s)) for s in x.shape[-dims:]]
    out = groups * m.choice((1, 2))
    stride, dilation = m.integer(1, 2), m.integer(1, 2)
    bias = m.choice(("None", weight(m, (out,), x.dtype)))
    if m.chance(0.6):
        shape = (out, channels // groups, *kernel)
        padding = m.choice((f"stride={stride}, padding=1", 'padding="same"', 'padding="valid"'))
        # Where groups are dilated, oneDNN crashes on one position with strides of channels last.
        source = f"{name}{CONTIGUOUS}" if groups > 1 and dilation > 1 else name
        text = f"F.conv{dims}d({source}, {weight(m, shape, x.dtype)}, {bias}, {padding}, groups={groups}, dilation={dilation})"
        return new(m, f"conv{dims}d", f"{text}{CONTIGUOUS}", "sums", m.largest(name) * 8)
    shape = (channels, out // groups, *kernel)
    rest = f"stride=2, padding=1, output_padding={m.integer(0, 1)}, groups={groups}, dilation={dilation}"
    text = f"F.conv_transpose{dims}d({name}, {weight(m, shape, x.dtype)}, {bias}, {rest})"
    return new(m, f"conv_transpose{dims}d", f"{text}{CONTIGUOUS}", "sums", m.largest(name) * 8)


@maker(3)
def columns(m):
    """im2col and col2im."""
    name = m.pick(lambda x: x.dtype in FLOATS and x.dim() in (3, 4) and x.numel() > 0)
    if not name or not m.is_tame(name, 16.0):
        return None
    x = m.tensor(name)
    sizes = [*x.shape[-2:]]
    kernel = [m.integer(1, min(3, s)) for s in sizes]
    rest = (
        f"{kernel}, dilation={m.integer(1, 2)}, padding={m.integer(0, 2)}, stride={m.integer(1, 2)}"
    )
    text = f"F.unfold({name}, {rest})"
    if m.chance(0.5):
        return new(m, "unfold", text)
    return new(m, "fold", f"F.fold({text}, {sizes}, {rest})", "sums", m.largest(name) * 16)


@maker(3)
def pooled_otherwise(m):
    name = m.pick(lambda x: x.dtype in FLOATS and x.dim() in (2, 3, 4) and x.numel() > 0)
    if not name or not m.is_tame(name):
        return None
    x = m.tensor(name)
    dims = m.choice([k for k in (1, 2, 3) if k <= x.dim() - 1])
    size = m.integer(1, min(3, *x.shape[-dims:]))
    pad, stride, ceil = m.integer(0, size // 2), m.integer(1, 2), m.chance(0.4)
    both = f"{name}, {size}, {stride}, {pad}"
    kind, text = m.choice(
        (
            ("max_pool", f"F.max_pool{dims}d({both}, {m.integer(1, 2)}, {ceil})"),
            ("max_pool", f"F.max_pool{dims}d({both}, return_indices=True)[{m.integer(0, 1)}]"),
            (
                "max_unpool",
                f"F.max_unpool{dims}d(*F.max_pool{dims}d({name}, {size}, {size}, return_indices=True), {size})",
            ),
            ("avg_pool", f"F.avg_pool{dims}d({both}, {ceil}, {m.chance(0.5)})"),
            (
                "lp_pool",
                f"F.lp_pool{dims}d({name}.detach().abs() + 0.5, 2.0, {size}, {stride}, {ceil})",
            ),
            (
                "adaptive_avg_pool",
                f"F.adaptive_avg_pool{dims}d({name}, {[m.integer(1, 4) for _ in range(dims)]})",
            ),
            (
                "adaptive_max_pool",
                f"F.adaptive_max_pool{dims}d({name}, {[m.integer(1, 4) for _ in range(dims)]})",
            ),
        )
    )
    if loses_minus(x, kind, dims):
        return None
    return new(m, kind, text + CONTIGUOUS, "sums", m.largest(name))


@maker(3)
def resampled(m):
    name = m.pick(lambda x: x.dtype in FLOATS and x.dim() in (3, 4, 5) and x.numel() > 0)
    if not name or not m.is_tame(name):
        return None
    x = m.tensor(name)
    dims = x.dim() - 2
    linear = ("linear", "bilinear", "trilinear")[dims - 1]
    mode = m.choice((linear, linear, "nearest", "nearest-exact", "area", "bicubic"))
    corners = f", align_corners={m.chance(0.5)}" if mode[-2:] in ("ar", "ic") else ""
    size = m.choice(
        (f"size={[m.integer(1, 6) for _ in range(dims)]}", "scale_factor=2", "scale_factor=0.5")
    )
    options = [("interpolate", f'F.interpolate({name}, {size}, mode="{mode}"{corners})')]
    if dims == 2:
        theta = f"torch.tensor([[1, 0.25, 0], [0, 0.75, 0.125]], dtype={x.dtype}, device=device)"
        grid = f"F.affine_grid({theta}.expand({x.size(0)}, 2, 3), [{x.size(0)}, 1, 3, 4], align_corners=False)"
        how = f'mode="{m.choice(("bilinear", "bicubic"))}", padding_mode="{m.choice(("zeros", "border", "reflection"))}"'
        options += [
            ("grid_sample", f"F.grid_sample({name}, {grid}, {how}, align_corners={m.chance(0.5)})"),
            ("affine_grid", grid),
            ("pixel_unshuffle", f"F.pixel_unshuffle({name}, {m.integer(1, 2)})"),
            ("pixel_shuffle", f"F.pixel_shuffle({name}, {m.integer(1, 2)})"),
            ("channel_shuffle", f"F.channel_shuffle({name}, {m.integer(1, 2)})"),
        ]
        # The CPU's antialias repeats the first row where the result has one column.
        wide = size == "scale_factor=2" or x.size(-1) > 3
        if mode in ("bilinear", "bicubic") and wide and ", 1]" not in size:
            smooth = f'F.interpolate({name}, {size}, mode="{mode}"{corners}, antialias=True)'
            options.append(("interpolate", smooth))
    kind, text = m.choice(options)
    return new(m, kind, text + CONTIGUOUS, "sums", m.largest(name) * 2)


@maker(2)
def normalized_otherwise(m):
    name = m.pick(lambda x: x.dtype in FLOATS and x.dim() > 2 and x.numel() > 1)
    if not name or not m.is_tame(name, 16.0):
        return None
    x = m.tensor(name)
    channels = x.size(1)
    groups = m.choice([k for k in (1, 2, 3, 4) if channels % k == 0])
    scales, shifts = (weight(m, (channels,), x.dtype) for _ in range(2))
    shape = tuple(x.shape[-2:])
    kind, text = m.choice(
        (
            ("group_norm", f"F.group_norm({name}, {groups}, {scales}, {shifts}, eps=0.01)"),
            ("instance_norm", f"F.instance_norm({name}, None, None, {scales}, {shifts}, eps=0.01)"),
            ("layer_norm", f"F.layer_norm({name}, {shape}, {weight(m, shape, x.dtype)}, eps=0.01)"),
            ("local_response_norm", f"F.local_response_norm({name}, {m.integer(1, 3)})"),
            (
                "batch_norm",
                f"F.batch_norm({name}, None, None, {scales}, {shifts}, training=True, eps=0.01)",
            ),
        )
    )
    if kind == "batch_norm" and x.size(0) == 1:
        return None  # as in `normalized`
    return new(m, kind, text + CONTIGUOUS, "sums", 16.0)


@maker(2)
def attended(m):
    name = m.pick(lambda x: x.dtype in FLOATS and x.dim() in (3, 4) and x.numel() > 0)
    if not name or not m.is_tame(name, 4.0):
        return None
    x = m.tensor(name)
    length = x.size(-2)
    mask = f"data({m.integer(0, 99)}, ({length}, {length}), torch.bool).to(device)"
    rest = m.choice(
        (
            *("", ", is_causal=True", ", scale=0.5"),
            f", attn_mask={mask} | torch.eye({length}, dtype=torch.bool, device=device)",
        )
    )
    text = f"F.scaled_dot_product_attention({name}, {name}.flip(-2), {name}{rest})"
    return new(m, "sdpa", text + CONTIGUOUS, "sums", m.largest(name) ** 2)


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
