"""What a launch refuses whatever the operator: operands that end behind their storage, are of
another dtype than the kernel reads, or have more dimensions than it takes."""

import re
from collections import Counter
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from common import DEVICE, check, check_error

aten = torch.ops.aten

SHRUNK = "storage size of 4000 are out of bounds for storage of size"


def shrunk(size=0):
    x = torch.ones(1000, device=DEVICE)
    x.untyped_storage().resize_(size)
    return x


READERS = {
    "pointwise": lambda x: x + 1,
    "pointwise second": lambda x: torch.ones(1000, device=DEVICE) * x,
    "pointwise in place": lambda x: x.add_(1),
    "fill": lambda x: x.fill_(2),
    "zero": lambda x: x.zero_(),
    "random": lambda x: x.normal_(),
    "reduction": lambda x: x.sum(),
    "reduction out": lambda x: torch.sum(torch.ones(1000, 2, device=DEVICE), 1, out=x),
    "copy": lambda x: x.clone(),
    "to host": lambda x: x.cpu(),
    "from host": lambda x: x.copy_(torch.ones(1000)),
    "item": lambda x: x[999].item(),
    "matmul": lambda x: x.view(10, 100) @ torch.ones(100, 3, device=DEVICE),
    "convolution": lambda x: F.conv1d(x.view(1, 10, 100), torch.ones(2, 10, 3, device=DEVICE)),
    "index_select": lambda x: x.index_select(0, torch.zeros(3, dtype=torch.int64, device=DEVICE)),
    "sort": lambda x: x.sort(),
    "cat": lambda x: torch.cat([x, x]),
    "softmax": lambda x: x.softmax(0),
    "cumsum": lambda x: x.cumsum(0),
    "nonzero": lambda x: x.nonzero(),
    "pool": lambda x: F.max_pool1d(x.view(1, 10, 100), 2),
    "dropout": lambda x: F.dropout(x),
    "foreach": lambda x: torch._foreach_add_([x, torch.ones(3, device=DEVICE)], 1),
    "fft": lambda x: torch.fft.fft(x),
    "transposed": lambda x: x.view(10, 100).t() + 1,
}


@pytest.mark.parametrize("size", [0, 100])
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_shrunk_storage_is_not_read(reader, size):
    x = shrunk(size)
    with pytest.raises(RuntimeError, match=f"are out of bounds for storage of size {size}"):
        reader(x)


def test_a_storage_may_shrink_and_grow_again():
    x = torch.ones(1000, device=DEVICE)
    view = x[10:20]
    x.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match=SHRUNK):
        x.sum()
    with pytest.raises(RuntimeError, match="storage size of 80 are"):
        view.sum()
    assert (x[:0] + 1).cpu().numel() == 0  # nothing lies behind the storage
    x.untyped_storage().resize_(4000)
    x.fill_(3)
    assert x.sum().item() == 3000
    assert view.sum().item() == 30


@pytest.mark.parametrize("alpha", [1.5, 2, -2.7, 0.5, 0, True])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.bool])
def test_index_add_multiplies_in_its_dtype(dtype, alpha):
    def add(out, index, source):
        return out.index_add(0, index, source, alpha=alpha)

    source = torch.arange(5).to(dtype)
    check(add, torch.zeros(5, dtype=dtype), torch.arange(5), source)
    check(add, torch.ones(3, dtype=dtype), torch.tensor([2, 0, 2, 1, 0]), source)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_a_kernel_for_two_buffers_does_not_run_on_one(dtype):
    """Both have a pipeline of their own: the second call must not find the first one's."""

    def columns(base):
        image = base[:12].view(1, 1, 3, 4)
        apart = torch.empty(1, 4, 6, dtype=dtype, device=base.device)
        aten.im2col.out(image, [2, 2], [1, 1], [0, 0], [1, 1], out=apart)
        inside = base[12:].view(1, 4, 6)
        aten.im2col.out(image, [2, 2], [1, 1], [0, 0], [1, 1], out=inside)
        return apart, inside

    check(columns, torch.arange(36).to(dtype))


def test_sorting_within_one_buffer():
    def sort(base):
        indices = torch.empty(8, dtype=torch.int64, device=base.device)
        torch.sort(base[:8].clone(), out=(base.new_empty(8), indices))
        torch.sort(base[:8], out=(base[8:], indices))
        return base, indices

    check(sort, torch.randperm(16))


def test_families_of_pipelines_have_one_user():
    """Two kernels of one family would find each other's pipelines."""
    sources = Path(__file__).parents[2] / "csrc"
    uses = Counter()
    for path in [*sources.rglob("*.cpp"), *sources.rglob("*.h")]:
        uses.update(re.findall(r"PipelineFamily::(k\w+)", path.read_text()))
    listing = (sources / "wgsl" / "pipeline_family.h").read_text()
    names = re.findall(r"^  (k\w+)(.*)$", listing, re.MULTILINE)
    assert all(rest == "," for _, rest in names), "the compiler numbers them"
    assert uses == Counter({name: 1 for name, _ in names})


@pytest.mark.parametrize("size", [(3, 2, 2), (3, 2, 2, 2, 2), (3,)])
def test_pdist_of_other_ranks(size):
    x = torch.randn(size, device=DEVICE)
    with pytest.raises(RuntimeError, match="pdist only supports 2D tensors, got: "):
        aten._pdist_forward(x, 2.0)
    with pytest.raises(RuntimeError, match="pdist only supports 2D tensors, got: "):
        aten._pdist_backward(x, x, 2.0, x)


def test_distances_between_other_shapes():
    x = torch.randn(4, 3, device=DEVICE)
    with pytest.raises(RuntimeError, match="cdist only supports at least 2D tensors, X1 got: 1D"):
        aten._cdist_forward(x[0], x, 2.0, None)
    with pytest.raises(RuntimeError, match="must have the same number of columns"):
        aten._cdist_forward(x, x[:, :2], 2.0, None)
    with pytest.raises(RuntimeError, match="a value for each pair of 4 and 4 rows"):
        aten._cdist_backward(x, x, x, 2.0, x)
    with pytest.raises(RuntimeError, match="a value for each of 6 pairs"):
        aten._pdist_backward(x[0], x, 2.0, x[0])
    check_error(lambda a: torch.cdist(a, a, p=-1.0), torch.randn(4, 3))


ONES = [1, 1]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("values", [[], [1], [1, 1, 1], [1] * 9])
def test_convolution_with_lists_of_other_lengths(transposed, place, values):
    lists = [ONES, [0, 0], ONES, [0, 0]]
    lists[place] = values
    stride, padding, dilation, output_padding = lists
    x = torch.randn(1, 2, 5, 5, device=DEVICE)
    w = torch.randn(2, 2, 3, 3, device=DEVICE)
    rest = (stride, padding, dilation, transposed, output_padding, 1)
    with pytest.raises(RuntimeError, match="or a list of 2 values to match the convolution"):
        aten.convolution_overrideable(x, w, None, *rest)
    with pytest.raises(RuntimeError, match="or a list of 2 values to match the convolution"):
        aten.convolution_backward_overrideable(x, x, w, *rest, [True, True, True])


@pytest.mark.parametrize("transposed", [False, True])
def test_convolution_of_other_shapes(transposed):
    def convolve(x, w, bias=None, groups=1, padding=ONES):
        return aten.convolution_overrideable(
            x, w, bias, ONES, padding, ONES, transposed, [0, 0], groups
        )

    x = torch.randn(1, 2, 5, 5, device=DEVICE)
    w = torch.randn(2, 2, 3, 3, device=DEVICE)
    many = torch.randn([1] * 7, device=DEVICE)
    for bad in (x[0, 0], x[:, :1], x[:, :, None, None], many):
        with pytest.raises(RuntimeError):
            convolve(bad, w)
    for bad in (w[0], w[0, 0], w.expand(4, 2, 2, 3, 3), many):
        with pytest.raises(RuntimeError):
            convolve(x, bad)
    for bad in (torch.ones(3, device=DEVICE), torch.ones(2, 1, device=DEVICE)):
        with pytest.raises(RuntimeError, match="expected bias to be 1-dimensional with 2 elements"):
            convolve(x, w, bad)
    for groups in (0, -1, 3):
        with pytest.raises(RuntimeError, match="groups"):
            convolve(x, w, groups=groups)
    with pytest.raises(RuntimeError, match="Expected grad_output of size"):
        aten.convolution_backward_overrideable(
            x[:, :, 1:], x, w, ONES, ONES, ONES, transposed, [0, 0], 1, [True, True, True]
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolution_without_dilation(dims, dtype):
    plain = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
    transposed = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dims - 1]
    x = torch.ones(1, 2, *[5] * dims, device=DEVICE).to(dtype)
    w = torch.ones(2, 2, *[3] * dims, device=DEVICE).to(dtype)
    for dilation in (0, -1):
        for convolve in (plain, transposed):
            with pytest.raises(RuntimeError, match="dilation should be greater than zero"):
                convolve(x, w, dilation=dilation)


@pytest.mark.parametrize("types", [(torch.float32, torch.float16), (torch.float16, torch.float32)])
def test_grid_sample_of_two_dtypes(types):
    def sample(x, grid):
        return F.grid_sample(x, grid, align_corners=False)

    check_error(
        sample, torch.randn(1, 1, 3, 3, dtype=types[0]), torch.rand(1, 2, 2, 2).to(types[1])
    )


@pytest.mark.parametrize("power", [torch.pow, torch.Tensor.pow_])
@pytest.mark.parametrize("exponent", [255, 300, 2**40, -129])
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_exponents_that_do_not_fit(dtype, exponent, power):
    def raised(x):
        return power(x.clone(), exponent)

    x = torch.arange(5).to(dtype)
    try:
        raised(x)
    except RuntimeError:
        check_error(raised, x)
    else:
        check(raised, x)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize(
    ("offsets", "text"),
    [
        ([0, 5], r"offsets\[-1\] can not be greater than input's length 3"),
        ([0, 2, 4], r"offsets\[-1\] can not be greater than input's length 3"),
        ([1, 2], r"offsets\[0\] has to be 0"),
    ],
)
def test_bags_outside_the_indices(mode, offsets, text):
    def bag(index, weight, offsets):
        result = F.embedding_bag(index, weight, offsets, mode=mode)
        return result.cpu()  # where errors of the device arrive

    args = torch.tensor([0, 1, 2]), torch.randn(4, 2), torch.tensor(offsets)
    with pytest.raises(RuntimeError, match=text):
        bag(*args)
    with pytest.raises(RuntimeError, match=text):
        bag(*(t.to(DEVICE) for t in args))


def device_ones(dtype, *size):
    return torch.ones(size, device=DEVICE).to(dtype)


WRONG_DTYPES = {
    "batch_norm_update_stats": lambda: aten.batch_norm_update_stats(
        device_ones(torch.uint8, 2, 3, 4), None, None, 0.1
    ),
    "cummax values": lambda: aten._cummax_helper(
        device_ones(torch.float32, 4),
        device_ones(torch.int16, 4),
        device_ones(torch.int64, 4),
        0,
    ),
    "cummax indices": lambda: aten._cummax_helper(
        device_ones(torch.float32, 4),
        device_ones(torch.float32, 4),
        device_ones(torch.float32, 4),
        0,
    ),
    "logcumsumexp": lambda: aten._logcumsumexp.out(
        device_ones(torch.float32, 4), 0, out=device_ones(torch.int32, 4)
    ),
    "dirichlet": lambda: aten._dirichlet_grad(
        device_ones(torch.float32, 4), device_ones(torch.float16, 4), device_ones(torch.float32, 4)
    ),
    "cdist": lambda: aten._cdist_forward(
        device_ones(torch.float32, 4, 2), device_ones(torch.float16, 4, 2), 2.0, None
    ),
    "convolution bias": lambda: aten.convolution_overrideable(
        device_ones(torch.float32, 1, 1, 3, 3),
        device_ones(torch.float32, 1, 1, 3, 3),
        device_ones(torch.float16, 1),
        ONES,
        ONES,
        ONES,
        False,
        [0, 0],
        1,
    ),
}


@pytest.mark.parametrize("call", WRONG_DTYPES.values(), ids=WRONG_DTYPES)
def test_other_dtypes_are_refused_before_a_shader_is_made(call):
    with pytest.raises(RuntimeError) as error:
        call()
    assert "compiler" not in str(error.value)


def ones(*size):
    return torch.ones(size, device=DEVICE)


# Calls that skip what ATen checks for its public functions; all wrote or read past something.
OTHER_SHAPES = {
    "batch norm without statistics": lambda: aten.native_batch_norm(
        ones(2, 3), None, None, None, None, False, 0.1, 1e-5
    ),
    "batch norm of a vector": lambda: aten.native_batch_norm(
        ones(3), None, None, None, None, True, 0.1, 1e-5
    ),
    "batch norm weight": lambda: aten.native_batch_norm(
        ones(2, 3), ones(2), None, None, None, True, 0.1, 1e-5
    ),
    "batch norm gradient without statistics": lambda: aten.native_batch_norm_backward(
        ones(2, 3), ones(2, 3), None, None, None, None, None, True, 1e-5, [True] * 3
    ),
    "batch norm gradient": lambda: aten.native_batch_norm_backward(
        ones(2, 2), ones(2, 3), None, None, None, ones(3), ones(3), True, 1e-5, [True] * 3
    ),
    "optimizer steps": lambda: aten._fused_adagrad_.tensor_lr(
        [ones(3)],
        [ones(3)],
        [ones(3)],
        [],
        lr=ones(),
        lr_decay=0.0,
        weight_decay=0.0,
        eps=1e-8,
        maximize=False,
    ),
    "a step of no numbers": lambda: aten._fused_adagrad_.tensor_lr(
        [ones(3)],
        [ones(3)],
        [ones(3)],
        [ones(0)],
        lr=ones(),
        lr_decay=0.0,
        weight_decay=0.0,
        eps=1e-8,
        maximize=False,
    ),
    "weight norm": lambda: aten._weight_norm_interface(ones(), ones()),
    "fractional pooling": lambda: aten.fractional_max_pool3d_backward(
        ones(1, 2, 2, 2), ones(1, 4, 4, 4), [2, 2, 2], [], ones(1, 2, 2, 2).long()
    ),
    "pooling": lambda: aten.max_pool3d_with_indices_backward(
        ones(1, 2, 2, 2), ones(1, 4, 4, 4), [2, 2], [], [0], [1], False, ones(1).long()
    ),
    "padding": lambda: aten.reflection_pad2d_backward(ones(1, 4, 4), ones(1, 2, 2), [1] * 8),
    "ctc lengths": lambda: aten._ctc_loss_backward(
        ones(2),
        ones(4, 2, 3),
        ones(2, 2).long(),
        [4],
        [2],
        ones(2),
        ones(2, 4, 5),
        0,
    ),
    "ctc alpha": lambda: aten._ctc_loss_backward(
        ones(2),
        ones(4, 2, 3),
        ones(2, 2).long(),
        [4, 4],
        [2, 2],
        ones(2),
        ones(2, 4, 3),
        0,
    ),
}


@pytest.mark.parametrize("call", OTHER_SHAPES.values(), ids=OTHER_SHAPES)
def test_other_shapes_are_refused(call):
    with pytest.raises((RuntimeError, IndexError)):
        call()
