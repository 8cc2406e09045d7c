"""torch._foreach_*: equal to the CPU's, in few dispatches, and right where the fast way is not."""

import pytest
import torch
from common import check_error

DEVICE = "webgpu"
# Few, since software adapters take long to compile kernels for many.
SHAPES = [(5,), (0,), (3, 4), (1030,), ()]
UNARY = [
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1",
    "floor", "frac", "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt",
    "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
]  # fmt: skip
BINARY = ["add", "sub", "mul", "div", "maximum", "minimum", "clamp_min", "clamp_max", "pow"]


def tensors(dtype=torch.float32, seed=0, shapes=SHAPES):
    generator = torch.Generator().manual_seed(seed)
    if not dtype.is_floating_point and not dtype.is_complex:
        return [torch.randint(1, 9, s, generator=generator).to(dtype) for s in shapes]
    return [(torch.rand(s, generator=generator) * 0.8 + 0.1).to(dtype) for s in shapes]


def to_device(value):
    if isinstance(value, torch.Tensor):
        return value.to(DEVICE)
    if isinstance(value, list):
        return [to_device(v) for v in value]
    return value


def check(name, *args, dispatches=None):
    """Functional and in-place forms against the CPU; `dispatches` of either at most."""
    for suffix in ("", "_"):
        function = getattr(torch, f"_foreach_{name}{suffix}", None)
        if function is None:
            continue
        host = [[t.clone() for t in args[0]], *args[1:]]
        device = to_device(args[0]), *(to_device(a) for a in args[1:])
        expected = function(*host) if suffix == "" else (function(*host), host[0])[1]
        before = torch.webgpu.stats()["dispatches"]
        got = function(*device) if suffix == "" else (function(*device), device[0])[1]
        used = torch.webgpu.stats()["dispatches"] - before
        for g, e in zip(got, expected, strict=True):
            assert g.stride() == e.stride()
            torch.testing.assert_close(g.cpu(), e, rtol=2e-6 if e.dtype == torch.float32 else None,
                                       atol=2e-6 if e.dtype == torch.float32 else None)  # fmt: skip
        if dispatches is not None:
            assert used <= dispatches, f"{name}{suffix}: {used} dispatches"


@pytest.mark.parametrize("name", ["add", "sub", "mul", "maximum", "clamp_max", "pow"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16])
@pytest.mark.parametrize("number", [True, 2, 1.5])
def test_result_dtype_of_numbers(name, dtype, number):
    for suffix in ("", "_"):
        function = getattr(torch, f"_foreach_{name}{suffix}")
        for other in (number, [number] * len(SHAPES)):

            def results(device, function=function, other=other):
                lists = [t.to(device) for t in tensors(dtype)]
                try:
                    made = function(lists, other)
                except Exception as error:
                    return type(error)
                return [t.cpu() for t in made or lists]

            expected = results("cpu")
            if expected is NotImplementedError:  # the CPU has no clamp of bool
                continue
            if isinstance(expected, type):
                assert results(DEVICE) is expected, (suffix, other)
            else:
                torch.testing.assert_close(results(DEVICE), expected)


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    check(name, tensors(), dispatches=1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.int8])
def test_dtypes(dtype):
    for name in ("neg", "abs", "sign"):
        check(name, tensors(dtype), dispatches=1)
    for name in ("add", "sub", "mul", "maximum"):
        check(name, tensors(dtype), 3, dispatches=1)
        check(name, tensors(dtype), tensors(dtype, seed=1), dispatches=2)
    if dtype.is_floating_point:
        check("addcdiv", tensors(dtype), tensors(dtype, 1), tensors(dtype, 2), 0.5, dispatches=2)


def test_complex():
    lists = [tensors(torch.complex64, seed) for seed in range(3)]
    check("mul", lists[0], lists[1], dispatches=2)
    check("add", lists[0], 2 + 1j, dispatches=1)
    check("addcmul", *lists, 0.5 + 0.5j, dispatches=2)


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    a, b = tensors(), tensors(seed=1)
    check(name, a, 0.7, dispatches=1)
    check(name, a, [0.1 * i for i in range(1, len(a) + 1)], dispatches=1)
    check(name, a, b, dispatches=2)


def test_alpha_and_device_scalars():
    a, b = tensors(), tensors(seed=1)
    for name in ("add", "sub"):
        function = getattr(torch, f"_foreach_{name}")
        got = function(to_device(a), to_device(b), alpha=0.25)
        for g, e in zip(got, function(a, b, alpha=0.25), strict=True):
            torch.testing.assert_close(g.cpu(), e)
    for name in ("add", "mul", "div"):
        check(name, a, torch.tensor(0.3), dispatches=2)
        half = tensors(torch.float16)
        check(name, half, torch.tensor(0.3, dtype=torch.float16), dispatches=2)
    device = to_device(a)
    torch._foreach_mul_(device, device[4])  # a number that is one of the tensors
    for g, e in zip(device, a, strict=True):
        torch.testing.assert_close(g.cpu(), e * a[4])


@pytest.mark.parametrize("name", ["mul", "div", "maximum", "clamp_max", "pow", "add", "sub"])
def test_numbers_on_the_device(name):
    """A list of tensors without dimensions, one for each tensor of the first list."""
    numbers = tensors(seed=1, shapes=[()] * len(SHAPES))
    check(name, tensors(), numbers, dispatches=1)
    # Results keep these dtypes. The CPU rounds the numbers to them first: differences show it.
    for dtype in (torch.float16, torch.bfloat16) if name not in ("add", "sub") else ():
        check(name, tensors(dtype, shapes=SHAPES[:-1]), numbers[:-1], dispatches=1)
    check(name, tensors(shapes=[(2, 3), (4,)]), tensors(seed=1, shapes=[(1,), (1, 1, 1)])[:1] * 2)


def test_numbers_that_promote_or_are_changed():
    numbers = to_device(tensors(seed=1, shapes=[(), ()]))
    halves = to_device(tensors(torch.float16, shapes=[(), (3,)]))
    wide, narrow = torch._foreach_mul(halves, numbers)
    assert (wide.dtype, narrow.dtype) == (torch.float32, torch.float16)
    integers = to_device([torch.arange(3), torch.arange(4)])
    for got, x, n in zip(torch._foreach_mul(integers, numbers), integers, numbers, strict=True):
        assert torch.equal(got, x * n)
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch._foreach_mul_(integers, numbers)
    host = [n.cpu() for n in numbers]
    got = torch._foreach_mul(to_device(tensors(shapes=[(2,), (3,)])), host)
    for g, e in zip(got, torch._foreach_mul(tensors(shapes=[(2,), (3,)]), host), strict=True):
        torch.testing.assert_close(g.cpu(), e)
    base = torch.arange(1.0, 9.0).to(DEVICE)
    lists = [base[:4], base[4:]]
    with pytest.raises(RuntimeError, match="single memory location"):
        torch._foreach_mul_(lists, [base[1], base[6]])  # elements of the tensors themselves


@pytest.mark.parametrize("base", [0.9, 2, -1.5, True])
def test_powers_of_a_number(base):
    exponents = tensors()
    before = torch.webgpu.stats()["dispatches"]
    got = torch._foreach_pow(base, to_device(exponents))
    assert torch.webgpu.stats()["dispatches"] - before == 1
    for g, e in zip(got, torch._foreach_pow(base, exponents), strict=True):
        torch.testing.assert_close(g.cpu(), e, equal_nan=True)
    for dtype in (torch.float16, torch.int64, torch.int32):
        given = tensors(dtype)
        for g, e in zip(torch._foreach_pow(base, to_device(given)),
                        torch._foreach_pow(base, given), strict=True):  # fmt: skip
            torch.testing.assert_close(g.cpu(), e, equal_nan=True)
    with pytest.raises(RuntimeError, match="at least one tensor"):
        torch._foreach_pow(base, [])


@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
def test_ternary(name):
    a, b, c = (tensors(seed=s) for s in range(3))
    values = [0.1 * i for i in range(len(a))]
    check(name, a, b, c, 0.5, dispatches=2)
    check(name, a, b, c, values, dispatches=2)
    device = to_device(a)
    getattr(torch, f"_foreach_{name}_")(device, to_device(b), to_device(c), torch.tensor(values))
    for g, e in zip(device, getattr(torch, f"_foreach_{name}")(a, b, c, values), strict=True):
        torch.testing.assert_close(g.cpu(), e)


def test_lerp():
    a, b, weights = (tensors(seed=s) for s in range(3))
    check("lerp", a, b, 0.3, dispatches=2)
    check("lerp", a, b, weights, dispatches=3)
    check("lerp", a, b, [0.1 * i for i in range(len(a))], dispatches=2)


def test_zero_and_copy():
    device = to_device(tensors())
    before = torch.webgpu.stats()["dispatches"]
    torch._foreach_zero_(device)
    assert torch.webgpu.stats()["dispatches"] == before + 1
    assert all(not t.cpu().any() for t in device)
    source = tensors(seed=3)
    torch._foreach_copy_(device, to_device(source))
    assert all(torch.equal(d.cpu(), s) for d, s in zip(device, source, strict=True))
    torch._foreach_copy_(device, source)  # from the host, one by one
    assert all(torch.equal(d.cpu(), s) for d, s in zip(device, source, strict=True))


def test_many_and_large():
    host = [torch.randn(1 + 7 * i) for i in range(70)] + [torch.randn(300_000)]
    check("mul", host, 3.0, dispatches=9)
    check("add", host, [torch.randn_like(t) for t in host], dispatches=15)


def test_layouts_and_views():
    """Dense tensors of any strides are fast; what is not dense or shares memory is still right."""
    dense = [torch.randn(4, 6).t(), torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)]
    check("mul", dense, 2.0, dispatches=1)
    check("add", dense, [t.clone() for t in dense], dispatches=1)
    check("add", dense, [t.contiguous() for t in dense])
    check("mul", [torch.randn(4, 6)[:, ::2], torch.randn(5)], 2.0)

    flat = torch.arange(40.0)
    device = flat.to(DEVICE)
    for begin, end in ((0, 16), (1, 9), (4, 7)):  # aligned, not aligned, with a partial vector
        torch._foreach_add_([device[begin:end], device[20:22]], 1.0)
        torch._foreach_add_([flat[begin:end], flat[20:22]], 1.0)
        assert torch.equal(device.cpu(), flat)
    parts = [flat[0:8], flat[8:15], flat[16:19]]
    device_parts = [device[0:8], device[8:15], device[16:19]]
    torch._foreach_mul_(parts, 2.0)
    torch._foreach_mul_(device_parts, 2.0)
    assert torch.equal(device.cpu(), flat)
    x = device[:8]
    torch._foreach_mul_([x], [x])
    torch._foreach_mul_([flat[:8]], [flat[:8]])
    assert torch.equal(device.cpu(), flat)


def test_promotion_and_errors():
    integers = tensors(torch.int64)
    for name in ("sqrt", "reciprocal"):
        got = getattr(torch, f"_foreach_{name}")(to_device(integers))
        for g, e in zip(got, getattr(torch, f"_foreach_{name}")(integers), strict=True):
            torch.testing.assert_close(g.cpu(), e)
    got = torch._foreach_add(to_device(integers), 0.5)
    for g, e in zip(got, torch._foreach_add(integers, 0.5), strict=True):
        torch.testing.assert_close(g.cpu(), e)
    for call in (
        lambda t: torch._foreach_add([], 1),
        lambda t: torch._foreach_add(t, t[:-1]),
        lambda t: torch._foreach_mul(t, [1.0, 2.0]),
        lambda t: torch._foreach_add_(t, torch.tensor(2.0).to(t[0].device).expand(3)),
    ):
        with pytest.raises(RuntimeError) as expected:
            call(tensors())
        with pytest.raises(RuntimeError) as got:
            call(to_device(tensors()))
        assert str(got.value).splitlines()[0] == str(expected.value).splitlines()[0]


def test_differences_with_truth_values_are_refused():
    for scalars in (True, [True, False]):
        check_error(lambda x, s=scalars: torch._foreach_sub(x, s), [torch.ones(2), torch.ones(3)])
        check_error(lambda x, s=scalars: torch._foreach_sub_(x, s), [torch.ones(2), torch.ones(3)])


@pytest.mark.parametrize("name", ["clamp_max", "clamp_min", "maximum", "minimum"])
def test_bounds_that_do_not_fit_are_refused(name):
    for suffix in ("", "_"):
        function = getattr(torch, f"_foreach_{name}{suffix}")
        for scalars in (300, [1, 300]):
            check_error(
                lambda x, y, f=function, s=scalars: f([x, y], s),
                torch.ones(2, dtype=torch.int16),
                torch.ones(3, dtype=torch.int8),
            )


@pytest.mark.parametrize("name", ["mul_", "lerp_", "copy_", "zero_"])
def test_autograd_sees_what_is_written(name):
    arguments = {"mul_": [2.0], "lerp_": [tensors(), 0.5], "copy_": [tensors()], "zero_": []}[name]

    def run(device):
        x = [t.to(device) for t in tensors()]
        saved = [t.clone().requires_grad_() * t for t in x]  # x is needed for backward
        moved = to_device(arguments) if device == DEVICE else arguments
        getattr(torch, f"_foreach_{name}")(x, *moved)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            saved[0].sum().backward()
        return [t._version for t in x]

    assert run(DEVICE) == run("cpu")


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_factors_that_integers_cannot_hold(device):
    def lists():
        return [torch.tensor([1, 2], dtype=torch.int8, device=device)]

    fits = "value cannot be converted to type int8_t without overflow"
    for name in ("_foreach_add", "_foreach_sub", "_foreach_add_", "_foreach_sub_"):
        operator = getattr(torch, name)
        for alpha, text in (
            (300, fits),
            (-200, fits),
            (True, "Boolean alpha only supported for Boolean results"),
            (2.5, "argument alpha must not be a floating point number"),
        ):
            given = lists()
            with pytest.raises(RuntimeError, match=text):
                operator(given, lists(), alpha=alpha)
            assert given[0].tolist() == [1, 2]
    with pytest.raises(RuntimeError, match=fits):
        torch._foreach_add(lists(), torch.tensor(1, dtype=torch.int8, device=device), alpha=300)
    with pytest.raises(RuntimeError, match=fits):
        torch._foreach_addcmul(lists(), lists(), lists(), value=300)
    (found,) = torch._foreach_sub(lists(), lists(), alpha=127)
    assert found.tolist() == [-126, 4]
