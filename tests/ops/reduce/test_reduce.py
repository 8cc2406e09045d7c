import pytest
import torch
from common import DEVICE, FLOATS, INTEGERS, check, check_error, check_gradients, to_device
from hypothesis import given, settings
from hypothesis import strategies as st

FLOAT_OPS = ["sum", "mean", "prod", "amax", "amin", "nansum", "std", "var", "argmax", "argmin"]
INTEGER_OPS = ["sum", "prod", "amax", "amin", "argmax", "argmin"]
# A workgroup has 256 invocations and a vector 4, 8 or 16 elements; work is split at powers of two.
EDGES = [1, 2, 3, 15, 16, 17, 31, 33, 63, 65, 127, 128, 129, 255, 256, 257, 511, 513, 1023, 1025]
EDGES += [4095, 4096, 4097, 8191, 8193, 32767, 32769, 65537, 131071, 262145]


def tolerance(dtype):
    return {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(dtype, 1e-5)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FLOAT_OPS)
def test_float_dims(name, dtype):
    op = getattr(torch, name)
    x = torch.randn(3, 5, 4, 6).to(dtype)
    near = {"rtol": tolerance(dtype), "atol": tolerance(dtype)}
    check(op, x, **near)
    for dim in range(-4, 4):
        check(lambda t, dim=dim: op(t, dim=dim), x, **near)
        check(lambda t, dim=dim: op(t, dim=dim, keepdim=True), x.transpose(1, 3), **near)


@pytest.mark.parametrize("dims", [(0, 2), (1, 3), (0, 3), (0, 1, 3), (2, 3), (0, 1, 2, 3), ()])
@pytest.mark.parametrize("name", ["sum", "mean", "amax", "std"])
def test_several_dims(name, dims):
    op = getattr(torch, name)
    x = torch.randn(3, 5, 4, 6)
    check(lambda t: op(t, dim=dims), x)
    check(lambda t: op(t, dim=dims, keepdim=True), x.permute(2, 0, 3, 1))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", INTEGER_OPS)
def test_integers_are_exact(name, dtype):
    op = getattr(torch, name)
    limits = torch.iinfo(dtype)
    x = torch.randint(limits.min // 2, limits.max // 2, (7, 50), dtype=dtype)
    check(op, x)
    check(lambda t: op(t, dim=1), x)
    check(lambda t: op(t, dim=0), x.t())
    extremes = torch.tensor([[limits.min, limits.max], [limits.max, limits.min]], dtype=dtype)
    check(lambda t: op(t, dim=1), extremes)


@pytest.mark.parametrize("length", EDGES)
def test_no_element_is_skipped(length):
    ones = to_device(torch.ones(length + 3))
    for view in (ones[:length], ones[1 : length + 1], ones[3:]):
        assert view.sum().item() == length
        assert (view * 2).sum(dtype=torch.int64).item() == 2 * length
    x = torch.randint(-100, 100, (length + 1,), dtype=torch.int8)
    check(lambda t: t[1:].sum(), x)
    check(lambda t: t[1:].amin(), x)
    # The one element that counts stands at either end.
    for place in (0, length - 1):
        spike = torch.zeros(length)
        spike[place] = 1
        check(torch.argmax, spike)
        check(torch.amax, spike.half())


@pytest.mark.parametrize("shape", [(1, 70000), (70000, 1), (3, 20000), (20000, 3), (300, 301)])
def test_shapes_of_work(shape):
    x = torch.randint(-3, 4, shape).float()
    for t in (x, x.t()):
        for dim in (0, 1):
            check(lambda a, dim=dim: a.sum(dim), t, rtol=0, atol=0)
            check(lambda a, dim=dim: a.max(dim), t, rtol=0, atol=0)
            check(lambda a, dim=dim: a.var(dim), t + 1000, rtol=1e-4, atol=1e-4)


def test_many_results():
    x = torch.randint(0, 3, (70000, 5), dtype=torch.uint8)
    check(lambda t: t.sum(1), x)
    check(lambda t: t.sum(0), x)
    check(lambda t: t.amax(1), x)


def test_count_and_trace():
    x = torch.randint(0, 3, (5, 7, 3))
    check(torch.count_nonzero, x)
    check(lambda t: torch.count_nonzero(t, dim=(0, 2)), x.float())
    check(torch.trace, x[0])
    check_error(torch.trace, x)


def test_larger_than_a_binding():
    limit = torch.webgpu.get_device_properties().limits["max_storage_binding_size"]
    if limit > 2**28:
        pytest.skip("the adapter binds more than this test wants to allocate")
    length = limit + 12345
    x = torch.zeros(length, dtype=torch.int8, device=DEVICE)
    for place in (0, limit // 2, limit - 1, limit + 1, length - 1):
        x[place] = 5
        assert x.argmax().item() == place
        assert x.amax().item() == 5
        x[place] = 0
    rows = x[: length // 5 * 5].view(5, -1)
    rows[3, -1] = 7
    assert rows.amax(1).tolist() == [0, 0, 0, 7, 0]


def test_sum_stays_accurate():
    x = torch.rand(5_000_000)
    expected = x.double().sum().item()
    assert to_device(x).sum().item() == pytest.approx(expected, rel=1e-6)
    assert to_device(x).mean().item() == pytest.approx(expected / x.numel(), rel=1e-6)


def test_variance_of_a_large_mean():
    x = torch.randn(100_003) + 1e4
    assert to_device(x).var().item() == pytest.approx(x.double().var().item(), rel=1e-4)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_random_views(data):
    shape = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=5))
    x = torch.randint(-9, 9, [n + 3 for n in shape]).float()
    for d, size in enumerate(shape):
        step = data.draw(st.integers(1, 2))
        start = data.draw(st.integers(0, 3 if step == 1 else 1))
        x = x.narrow(d, start, size)[(slice(None),) * d + (slice(None, None, step),)]
    x = x.permute(data.draw(st.permutations(range(len(shape)))))
    if data.draw(st.booleans()):
        x = x.unsqueeze(0).expand(3, *x.shape)
    dims = data.draw(st.sets(st.integers(0, x.dim() - 1)))
    keepdim = data.draw(st.booleans())
    name = data.draw(st.sampled_from(["sum", "amax", "amin", "mean"]))
    check(lambda t: getattr(torch, name)(t, dim=tuple(dims), keepdim=keepdim), x)


@pytest.mark.parametrize("name", ["any", "all"])
def test_truth(name):
    op = getattr(torch, name)
    for x in (torch.rand(5, 9) > 0.2, torch.zeros(5, 9), torch.ones(5, 9, dtype=torch.uint8)):
        check(op, x)
        check(lambda t: op(t, dim=0), x)
        check(lambda t: op(t, dim=1, keepdim=True), x)
        check(lambda t: op(t, dim=(0, 1)), x)
    check(op, torch.tensor([float("nan")]))
    check(op, torch.empty(0))


def test_extremes_and_their_places():
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[1.0, 3, 3], [nan, 2, nan], [-inf, -inf, -inf], [inf, 0, inf]])
    for op in (torch.max, torch.min, torch.argmax, torch.argmin, torch.amax, torch.amin):
        for dim in (0, 1):
            check(lambda t, op=op, dim=dim: op(t, dim), x)
        check(op, x)
    check(lambda t: torch.aminmax(t, dim=1), x)
    check(torch.aminmax, x)
    tied = torch.zeros(3, 5000, dtype=torch.int64)
    check(lambda t: t.max(1), tied)
    check(lambda t: t.min(0), tied)
    check(torch.argmax, tied)
    check(torch.max, torch.tensor([True, False]))


@pytest.mark.parametrize("order", [0, 1, 2, 3, 0.5, -1, -2, float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64])
def test_norms(order, dtype):
    x = torch.randn(4, 6, 5).to(dtype)
    near = {"rtol": 5 * tolerance(dtype), "atol": tolerance(dtype)}
    for dim in (None, 0, (0, 2)):
        check(lambda t, dim=dim: torch.linalg.vector_norm(t, order, dim), x, **near)
    check(lambda t: t.norm(order, dim=1), x, **near)


def test_complex():
    x = torch.randn(6, 7, dtype=torch.complex64)
    for op in (torch.sum, torch.mean, torch.prod):
        check(op, x)
        check(lambda t, op=op: op(t, dim=0), x)
    check(torch.var, x)


def test_dtype_and_out():
    x = torch.randint(0, 100, (4, 5), dtype=torch.int32)
    check(lambda t: t.sum(dtype=torch.float32), x)
    check(lambda t: t.sum(0, dtype=torch.int32), x)
    check(lambda t: t.sum(0, dtype=torch.bool), x)
    check(lambda t: t.half().sum(1, dtype=torch.float32), x)
    check(lambda t: torch.mean(t, 0, dtype=torch.float32), x)
    out = torch.empty(8, device=DEVICE)[::2]
    torch.amax(to_device(x.float()), 1, out=out)
    assert out.tolist() == x.float().amax(1).tolist()
    values, indices = torch.empty(4, device=DEVICE), torch.empty(0, dtype=torch.int64).to(DEVICE)
    torch.max(to_device(x.float()), 1, out=(values, indices))
    assert indices.tolist() == x.max(1).indices.tolist()


def test_neighbours_of_a_half_result_stay():
    out = torch.full((7,), 9.0, dtype=torch.float16, device=DEVICE)
    torch.sum(torch.ones(2, 10, dtype=torch.float16, device=DEVICE), 1, out=out[3:5])
    assert out.tolist() == [9, 9, 9, 10, 10, 9, 9]


def test_empty():
    for shape, dim in (((0,), 0), ((0, 3), 0), ((3, 0), 1), ((3, 0), 0)):
        x = torch.empty(shape)
        for op in (torch.sum, torch.prod, torch.mean, torch.nansum, torch.var):
            check(lambda t, op=op, dim=dim: op(t, dim=dim), x)
    check(torch.sum, torch.empty(0))
    check(torch.mean, torch.empty(0))
    check(lambda t: torch.linalg.vector_norm(t, dim=0), torch.empty(0, 2))


def test_complex_mean_divides_by_a_complex_number():
    # As everywhere in PyTorch, the number of elements becomes complex.
    # So an infinite part makes the other part NaN.
    inf, nan = float("inf"), float("nan")
    for value in (complex(inf, 2), complex(2, -inf), complex(inf, inf), complex(nan, 1)):
        check(torch.mean, torch.tensor([value, 1 + 2j, 3 - 1j]))
        check(lambda t: t.mean(1, keepdim=True), torch.tensor([[value, 1 + 2j], [2 - 1j, 5j]]))


def test_scalars():
    x = torch.tensor(3.5)
    for op in (torch.sum, torch.mean, torch.amax, torch.argmax, torch.max, torch.var, torch.norm):
        check(op, x)
    check(lambda t: t.max(0), x)


def test_errors():
    check_error(lambda t: t.amax(0), torch.empty(0, 3))
    check_error(lambda t: t.argmax(), torch.empty(0))
    check_error(lambda t: t.max(), torch.empty(0))
    check_error(lambda t: t.sum(3), torch.ones(2, 2))
    check_error(lambda t: t.sum((0, 0)), torch.ones(2, 2))
    check_error(lambda t: t.mean(), torch.ones(2, dtype=torch.int64))
    for op in (torch.std, torch.var, torch.std_mean, torch.var_mean):
        check_error(lambda t, op=op: op(t, 0), torch.ones(2, dtype=torch.int64))


@pytest.mark.parametrize("op", [torch.std, torch.var])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.complex64])
@pytest.mark.parametrize("result", [torch.int64, torch.bool])
def test_variance_is_not_written_as_an_integer(op, dtype, result):
    def run(t):
        return op(t, 0, out=torch.empty(0, dtype=result, device=t.device))

    check_error(run, torch.ones(3, dtype=dtype))


@pytest.mark.parametrize(
    "op",
    [
        lambda t: t.sum(1),
        lambda t: t.mean((0, 2)),
        lambda t: t.prod(1),
        lambda t: t.amax(2),
        lambda t: t.var((0, 1)),
    ],
)
def test_gradients(op):
    check_gradients(op, torch.randn(3, 4, 5, requires_grad=True), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool]
)
def test_hash_tensor(dtype):
    torch.manual_seed(0)
    x = (torch.randn(6, 70, 5) * 50).to(dtype)
    check(torch.hash_tensor, x)
    check(lambda t: torch.hash_tensor(t, 1), x)
    check(lambda t: torch.hash_tensor(t, 2, keepdim=True), x.transpose(0, 2))
    check(lambda t: torch.hash_tensor(t, (0, 2)), x)
    check(lambda t: torch.hash_tensor(t, 1), x[:0])
    check_error(torch.hash_tensor, x[:0])


PAIRS = {
    "max": lambda x, out: torch.max(x, 0, keepdim=True, out=out),
    "min": lambda x, out: torch.min(x, 0, keepdim=True, out=out),
    "aminmax": lambda x, out: torch.aminmax(x, dim=0, keepdim=True, out=out),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("strided", [0, 1])
def test_outputs_of_a_pair_may_differ_in_strides(name, strided):
    def into(x):
        dtypes = [torch.float32, torch.float32 if name == "aminmax" else torch.int64]
        outs = [torch.zeros(1, 5, 6, dtype=dtype, device=x.device) for dtype in dtypes]
        memory = torch.zeros(1, 5, 6, 3, dtype=dtypes[strided], device=x.device)
        outs[strided] = memory[..., 0]
        PAIRS[name](x, tuple(outs))
        return [*outs, memory]

    check(into, torch.randn(4, 5, 6))


def test_a_pair_of_outputs_shares_no_memory_with_the_input():
    def shared(x, function, which):
        outs = [torch.empty(5, device=x.device), torch.empty(5, device=x.device)]
        if function is not torch.aminmax:
            outs[1] = outs[1].long()
        outs[which] = x.view(-1)[3:8]
        return function(x, dim=0, out=tuple(outs))

    check_error(lambda x: shared(x, torch.max, 0), torch.randn(4, 5))
    check_error(lambda x: shared(x, torch.min, 0), torch.randn(4, 5))
    check_error(lambda x: shared(x, torch.aminmax, 0), torch.randn(4, 5))
    check_error(lambda x: shared(x, torch.aminmax, 1), torch.randn(4, 5))


def test_extremes_into_another_dtype():
    x = torch.randn(3, 5)
    for function in (torch.max, torch.min):
        for dtype in (torch.float64, torch.float16):

            def into(x, function=function, dtype=dtype):
                return function(x, out=torch.empty((), dtype=dtype, device=x.device))

            check(into, x)
        to_integer = torch.empty((), dtype=torch.int32, device=DEVICE)
        with pytest.raises(RuntimeError, match="canCast"):
            function(x.to(DEVICE), out=to_integer)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64])
def test_hash_of_a_single_element(dtype, silent_fallbacks):
    check(torch.hash_tensor, torch.tensor(5).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64])
def test_index_of_a_single_element(dtype, silent_fallbacks):
    for x in (torch.tensor(5).to(dtype), torch.tensor([5]).to(dtype)):
        for function in (torch.argmax, torch.argmin):
            check(lambda x, function=function: function(x, 0), x)
            check(lambda x, function=function: function(x, 0, keepdim=True), x)
