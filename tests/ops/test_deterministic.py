"""torch.use_deterministic_algorithms(True): the same bits in every run, or an error."""

import pytest
import torch
import torch.nn.functional as F
from common import DEVICE


@pytest.fixture(autouse=True)
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def values(*shape):
    """Numbers of very different sizes: their sum depends on the order."""
    x = torch.randn(shape) * 10 ** (torch.rand(shape) * 8 - 4)
    return x.to(DEVICE).requires_grad_()


def index(high, *shape):
    return torch.randint(0, high, shape).to(DEVICE)


# Results and gradients are compared.
CASES = [
    (
        "scatter_add",
        lambda x, i, v: x.scatter_add(0, i, v),
        values(40, 30),
        index(40, 900, 30),
        values(900, 30),
    ),
    (
        "scatter_add_1d",
        lambda x, i, v: x.scatter_add(0, i, v),
        values(7),
        index(7, 20000),
        values(20000),
    ),
    (
        "scatter_reduce_sum",
        lambda x, i, v: x.scatter_reduce(0, i, v, "sum"),
        values(7),
        index(7, 20000),
        values(20000),
    ),
    (
        "scatter_reduce_mean",
        lambda x, i, v: x.scatter_reduce(0, i, v, "mean"),
        values(7),
        index(7, 20000),
        values(20000),
    ),
    (
        "scatter_reduce_prod",
        lambda x, i, v: x.scatter_reduce(0, i, v, "prod"),
        values(7),
        index(7, 50),
        values(50),
    ),
    ("scatter", lambda x, i, v: x.scatter(0, i, v), values(7), index(7, 20000), values(20000)),
    (
        "index_add",
        lambda x, i, v: x.index_add(0, i, v),
        values(7, 5),
        index(7, 9000),
        values(9000, 5),
    ),
    (
        "index_add_half",
        lambda x, i, v: x.index_add(0, i, v.half()),
        torch.zeros(7, 5, device=DEVICE).half(),
        index(7, 900),
        values(900, 5).detach(),
    ),
    (
        "index_copy",
        lambda x, i, v: x.index_copy(0, i, v),
        values(7, 5),
        index(7, 9000),
        values(9000, 5).detach(),
    ),
    (
        "index_put",
        lambda x, i, v: x.index_put((i,), v),
        values(7, 5),
        index(7, 9000),
        values(9000, 5).detach(),
    ),
    (
        "index_put_accumulate",
        lambda x, i, v: x.index_put((i,), v, accumulate=True),
        values(7, 5),
        index(7, 9000),
        values(9000, 5),
    ),
    (
        "index_put_two",
        lambda x, i, j, v: x.index_put((i, j), v, accumulate=True),
        values(7, 5),
        index(7, 9000),
        index(5, 9000),
        values(9000),
    ),
    (
        "put",
        lambda x, i, v: x.put(i, v, accumulate=True),
        values(7, 5),
        index(35, 9000),
        values(9000),
    ),
    ("index_select", lambda x, i: x.index_select(0, i), values(7, 5), index(7, 9000)),
    ("gather", lambda x, i: x.gather(0, i), values(7, 5), index(7, 9000, 5)),
    ("take", torch.take, values(7, 5), index(35, 9000)),
    ("indexing", lambda x, i: x[i], values(7, 5), index(7, 9000)),
    ("repeat_interleave", lambda x: x.repeat_interleave(500, 0), values(7, 5)),
    ("embedding", lambda x, i: F.embedding(i, x), values(7, 5), index(7, 9000)),
    (
        "embedding_bag",
        lambda x, i: F.embedding_bag(i, x, mode="mean"),
        values(7, 5),
        index(7, 90, 100),
    ),
    ("bincount", lambda i, v: torch.bincount(i, v), index(7, 20000), values(20000).detach()),
    ("unfold", lambda x: x.unfold(0, 9, 1), values(300)),
    ("pad_reflect", lambda x: F.pad(x, (2, 2, 2, 2), "reflect"), values(1, 2, 6, 6)),
    ("pad_replicate", lambda x: F.pad(x, (9, 9, 9, 9), "replicate"), values(1, 2, 3, 3)),
    ("pad_circular", lambda x: F.pad(x, (2, 2, 2, 2), "circular"), values(1, 2, 6, 6)),
    ("fold", lambda x: F.fold(x, (14, 14), 5), values(2, 75, 100)),
    ("nearest", lambda x: F.interpolate(x, scale_factor=7), values(2, 3, 5, 5)),
    ("bilinear", lambda x: F.interpolate(x, scale_factor=7, mode="bilinear"), values(2, 3, 5, 5)),
    ("bicubic", lambda x: F.interpolate(x, scale_factor=7, mode="bicubic"), values(2, 3, 5, 5)),
    (
        "trilinear",
        lambda x: F.interpolate(x, scale_factor=4, mode="trilinear"),
        values(2, 3, 5, 5, 5),
    ),
    ("max_pool2d", lambda x: F.max_pool2d(x, 5, 1), values(2, 3, 14, 14)),
    ("avg_pool2d", lambda x: F.avg_pool2d(x, 5, 1), values(2, 3, 14, 14)),
    ("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, 9), values(2, 3, 14, 14)),
    ("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, 9), values(2, 3, 14, 14)),
    (
        "conv2d",
        lambda x, w, b: F.conv2d(x, w, b),
        values(4, 3, 14, 14),
        values(5, 3, 3, 3),
        values(5),
    ),
    (
        "conv_transpose2d",
        lambda x, w: F.conv_transpose2d(x, w, stride=2),
        values(4, 3, 7, 7),
        values(3, 5, 3, 3),
    ),
    ("mm", torch.mm, values(3, 9000), values(9000, 2)),
    ("layer_norm", lambda x, w: F.layer_norm(x, (300,), w), values(400, 300), values(300)),
    (
        "batch_norm",
        lambda x, w: F.batch_norm(x, None, None, w, training=True),
        values(40, 3, 90),
        values(3),
    ),
    ("cumsum", lambda x: x.cumsum(0), values(20000)),
    ("sum", torch.sum, values(200000)),
    ("cross_entropy", F.cross_entropy, values(900, 30), index(30, 900)),
    ("nll_loss2d", F.nll_loss, values(4, 30, 9, 9), index(30, 4, 9, 9)),
    ("cdist", torch.cdist, values(60, 20), values(70, 20)),
    ("cumprod", lambda x: x.cumprod(0), values(50)),
    ("var", lambda x: x.var(0), values(20000, 2)),
]


def bits(result):
    results = result if isinstance(result, (list, tuple)) else [result]
    return [r.detach().cpu().reshape(-1).view(torch.uint8) for r in results]


@pytest.mark.parametrize(
    ("function", "args"), [(*case[1:2], case[2:]) for case in CASES], ids=[c[0] for c in CASES]
)
def test_same_bits(function, args):
    inputs = [a for a in args if a.requires_grad]
    runs = []
    for _ in range(3):
        result = function(*args)
        gradients = []
        if inputs:
            weights = torch.linspace(-3, 7, result.numel(), device=DEVICE).reshape(result.shape)
            gradients = torch.autograd.grad((result * weights).sum(), inputs)
        runs.append(bits(result) + bits(gradients))
    for run in runs[1:]:
        assert all(torch.equal(one, other) for one, other in zip(run, runs[0], strict=True))


def test_several_elements_for_one_place_arrive_in_order():
    """The last one stays, as on CPU."""
    x = torch.zeros(3, device=DEVICE)
    i = torch.tensor([0, 2] * 5000, device=DEVICE)
    v = torch.arange(10000.0, device=DEVICE)
    for result in (x.index_put((i,), v), x.index_copy(0, i, v), x.scatter(0, i, v)):
        assert result.tolist() == [9998, 0, 9999]


def test_what_is_not_deterministic_says_so():
    x = torch.rand(1, 2, 6, 6, device=DEVICE, requires_grad=True)
    places = torch.rand(1, 5, 5, 2, device=DEVICE) * 2 - 1
    result = F.grid_sample(x, places, align_corners=False).sum()
    with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
        result.backward()
