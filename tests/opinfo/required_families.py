"""More rows for required.py: order, scans, scatter, recurrent cells, transforms, linear algebra."""

import torch
import torch.nn.functional as F
from required import ALL, COMPLEX, FLOATS, IMAGE, INTEGERS, M, V, integers, mask, row, spd

# Order, counting, search
row("sort", lambda x: x.sort(dim=1, stable=True), M, dtypes=ALL)
row("argsort", lambda x: x.argsort(dim=1, stable=True), M, dtypes=ALL, gradient=False)
row("kthvalue", lambda x: x.kthvalue(2, 1), M)
row("median", lambda x: (x.median(), x.median(1).values), M)
row(
    "unique",
    lambda x: x.unique(return_inverse=True, return_counts=True),
    M,
    dtypes=ALL,
    gradient=False,
)
row("nonzero", torch.nonzero, mask(4, 6), gradient=False)
row(
    "searchsorted",
    lambda x, v: torch.searchsorted(x.sort().values, v),
    V,
    M,
    dtypes=ALL,
    gradient=False,
)
row("histc", lambda x: torch.histc(x, 5, 0.5, 2), M, dtypes=FLOATS[:1], gradient=False)
row("bincount", lambda i: torch.bincount(i), integers(3, 0, 3, 5), dtypes=INTEGERS, gradient=False)
row(
    "bincount weights",
    lambda i, w: torch.bincount(i, w),
    integers(3, 0, 3),
    (3,),
    dtypes=FLOATS[:1],
    gradient=False,
)

# Scans
for name in ("cumsum", "cumprod"):
    function = getattr(torch, name)
    row(name, lambda x, f=function: f(x, 1), M, dtypes=ALL)
row("cummax", lambda x: x.cummax(1), M, dtypes=FLOATS)
row("logcumsumexp", lambda x: x.logcumsumexp(1), M)

# Scatter, movement
COLUMNS = integers([0, 2, 1], [3, 3, 0])
for mode in ("sum", "prod", "mean", "amax", "amin"):
    row(
        f"scatter_reduce {mode}",
        lambda x, i, s, m=mode: x.scatter_reduce(0, i, s, m),
        M,
        COLUMNS,
        (2, 3),
        dtypes=ALL,
    )
row(
    "scatter",
    lambda x, i, s: x.scatter(0, i, s),
    M,
    integers([0, 2, 1], [3, 1, 0]),
    (2, 3),
    dtypes=ALL,
)
row("scatter_add", lambda x, i, s: x.scatter_add(0, i, s), M, COLUMNS, (2, 3), dtypes=ALL)
row("gather", lambda x, i: x.gather(0, i), M, COLUMNS, dtypes=ALL)
row("index_add", lambda x, i, s: x.index_add(0, i, s), M, integers(3, 0, 3), (3, 6), dtypes=ALL)
row(
    "index_put accumulate",
    lambda x, i, s: x.index_put((i,), s, accumulate=True),
    M,
    integers(3, 0, 3),
    (3, 6),
    dtypes=ALL,
)
row("roll", lambda x: x.roll((1, -2), (0, 1)), M, dtypes=ALL)
row("flip", lambda x: x.flip(1), M, dtypes=ALL)
row("repeat_interleave", lambda x: x.repeat_interleave(2, 1), M, dtypes=ALL)
row("tril", torch.tril, M, dtypes=ALL)
row("triu", torch.triu, M, dtypes=ALL)
row("diag", lambda x: (x.diag(), x[0].diag()), M, dtypes=ALL)
row(
    "grid_sample",
    lambda x, g: F.grid_sample(x, g, align_corners=False),
    (1, 2, 5, 5),
    lambda t: torch.linspace(-0.93, 0.97, 18).reshape(1, 3, 3, 2).to(t),
    dtypes=FLOATS[:1],
)
row("unfold", lambda x: F.unfold(x, 3, padding=1), (1, 2, 6, 6))
row("fold", lambda x: F.fold(x, (6, 6), 3, padding=1), (1, 18, 36))
for mode in ("constant", "reflect", "replicate", "circular"):
    row(f"pad {mode}", lambda x, m=mode: F.pad(x, (1, 2, 2, 1), mode=m), IMAGE)

# Recurrent cells: the weights are operands, so that they are moved and have gradients.
WEIGHTS = {"rnn_tanh": 1, "gru": 3, "lstm": 4}
for name, gates in WEIGHTS.items():

    def recurrent(x, h, wi, wh, bi, bh, name=name):
        state = (h, h) if name == "lstm" else h
        function = getattr(torch, name)
        return function(x, state, [wi, wh, bi, bh], True, 1, 0.0, True, False, False)

    size = 5 * gates
    row(
        name,
        recurrent,
        (3, 2, 4),
        (1, 2, 5),
        (size, 4),
        (size, 5),
        (size,),
        (size,),
        dtypes=FLOATS[:1],
    )

# Transforms, complex numbers, linear algebra
for name, size in (("radix", 16), ("Bluestein", 13)):
    row(f"fft {name}", lambda x: torch.fft.fft(x), (2, size), dtypes=(torch.float32, *COMPLEX))
row("rfft", torch.fft.rfft, (2, 12), dtypes=FLOATS[:1])
row("irfft", torch.fft.irfft, (2, 7), dtypes=COMPLEX)
row(
    "complex arithmetic",
    lambda x, y: (x + y, x * y, x / y, x.abs(), x.angle(), x.conj() @ y.mT),
    M,
    M,
    dtypes=COMPLEX,
)
row(
    "complex functions",
    lambda x: (x.exp(), x.log(), x.sqrt(), x.sin(), x.tanh(), x**2),
    M,
    dtypes=COMPLEX,
)
MATRICES = {"dtypes": (torch.float32, *COMPLEX)}
row("cholesky", torch.linalg.cholesky, spd(2, 5, 5), dtypes=FLOATS[:1])
row(
    "triangular_solve",
    lambda a, b: torch.linalg.solve_triangular(a.tril(), b, upper=False),
    spd(5, 5),
    (5, 2),
    **MATRICES,
)
row("solve", torch.linalg.solve, spd(5, 5), (5, 2), **MATRICES)
row("inv", torch.linalg.inv, spd(5, 5), **MATRICES)
row("det", torch.linalg.det, spd(5, 5), **MATRICES)
row("lu", lambda a: torch.linalg.lu(a)[1:], spd(5, 5), **MATRICES)
row("qr", torch.linalg.qr, spd(5, 5), **MATRICES)

# Quantized and random
row(
    "_int_mm",
    lambda a, b: torch._int_mm(a.to(torch.int8), b.to(torch.int8)),
    (32, 16),
    (16, 8),
    dtypes=INTEGERS,
    gradient=False,
)
for name, args in {
    "uniform_": (), "normal_": (), "bernoulli_": (0.3,), "exponential_": (), "geometric_": (0.3,),
    "cauchy_": (), "log_normal_": (), "random_": (),
}.items():  # fmt: skip
    row(
        name,
        lambda x, n=name, a=args: getattr(torch.empty_like(x), n)(*a),
        M,
        gradient=False,
        values=False,
    )
row(
    "randint",
    lambda x: torch.randint(0, 9, (4,), device=x.device),
    V,
    dtypes=INTEGERS,
    gradient=False,
    values=False,
)
row(
    "randperm",
    lambda x: torch.randperm(9, device=x.device),
    V,
    dtypes=INTEGERS,
    gradient=False,
    values=False,
)
row(
    "multinomial",
    lambda x: torch.multinomial(x, 3),
    M,
    dtypes=FLOATS[:1],
    gradient=False,
    values=False,
)
row("poisson", torch.poisson, M, dtypes=FLOATS[:1], gradient=False, values=False)
row("dropout", lambda x: F.dropout(x, 0.5), M, values=False)
