"""Ops without a kernel run on the CPU: counted, warned of once, or refused."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves


@pytest.fixture
def mode():
    before = torch.webgpu.get_fallback_mode()
    torch.webgpu.reset_fallbacks()
    yield torch.webgpu.set_fallback_mode
    torch.webgpu.set_fallback_mode(before)
    torch.webgpu.reset_fallbacks()


# LAPACK's, of no interest to a GPU, so that it will stay without a kernel.
def run_fallback(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.eig(x)[0]


OP = "aten::linalg_eig"


def test_the_suite_refuses_fallbacks():
    assert torch.webgpu.get_fallback_mode() == "error"


def test_error_names_op_and_device(mode):
    mode("error")
    x = torch.eye(3).webgpu()
    with pytest.raises(NotImplementedError, match=rf"Could not run '{OP}.*'webgpu' backend"):
        run_fallback(x)
    assert torch.webgpu.fallbacks() == {}


def test_results_equal_the_cpus_and_are_counted(mode):
    mode("silent")
    host = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    x = host.webgpu()
    for _ in range(3):
        result = run_fallback(x)
        assert result.is_webgpu
        assert torch.equal(result.cpu(), run_fallback(host))
    assert torch.webgpu.fallbacks() == {OP: 3}
    torch.webgpu.reset_fallbacks()
    assert torch.webgpu.fallbacks() == {}


def test_random_numbers_follow_the_devices_generator(mode):
    mode("silent")
    # float64 is drawn on the CPU.
    rates = torch.full((100,), 5.0, dtype=torch.float64).webgpu()
    state = torch.webgpu.get_rng_state()
    first, second = torch.poisson(rates), torch.poisson(rates)
    torch.webgpu.set_rng_state(state)
    assert torch.equal(torch.poisson(rates), first)
    assert not torch.equal(second, first)


def test_mixed_devices_are_refused_before_anything_is_copied(mode):
    mode("silent")
    edges = torch.tensor([0.0, 1.0, 2.0])
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.histogram(torch.ones(4).webgpu(), edges)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.linalg.eig(torch.eye(2), out=[torch.empty(2).webgpu() for _ in range(2)])
    assert torch.webgpu.fallbacks() == {}


def test_arguments_that_belong_on_the_cpu(mode):
    mode("silent")
    x = torch.rand(3, 2, dtype=torch.float64).webgpu()
    assert torch.equal(x.tensor_split(torch.tensor([1]))[1].cpu(), x.cpu()[1:])
    packed = torch.nn.utils.rnn.pack_padded_sequence(x.unsqueeze(-1), torch.tensor([3, 2]))
    assert packed.data.is_webgpu and packed.data.numel() == 5


def test_outputs_are_written_and_resized(mode):
    mode("silent")
    host = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    options = {"dtype": torch.complex64, "device": "webgpu"}
    values, vectors = torch.empty(0, **options), torch.empty(0, **options)
    torch.linalg.eig(host.webgpu(), out=(values, vectors))
    want = torch.linalg.eig(host)
    assert torch.equal(values.cpu(), want[0])
    assert torch.equal(vectors.cpu(), want[1])


def test_resized_outputs_have_the_cpus_strides(mode):
    mode("silent")
    a, b = torch.rand(2, 3), torch.rand(2, 4)
    want = torch.linalg.lstsq(a, b).solution
    assert not want.is_contiguous()
    assert torch.linalg.lstsq(a.webgpu(), b.webgpu()).solution.stride() == want.stride()
    # An output that has the size keeps its own strides.
    options = {"dtype": torch.complex64, "device": "webgpu"}
    values, vectors = torch.empty(3, **options), torch.empty(3, 3, **options)
    torch.linalg.eig(torch.rand(3, 3).webgpu(), out=(values, vectors))
    assert vectors.stride() == (3, 1)


def test_float64_arithmetic_is_a_counted_fallback(mode):
    mode("silent")
    host = torch.tensor([0.5, 2.0, 3.0], dtype=torch.float64)
    x = host.webgpu()
    assert torch.equal((x + x).cpu(), host + host)
    assert sum(torch.webgpu.fallbacks().values()) == 1
    wide = torch.zeros(6, dtype=torch.float64).webgpu()
    wide[::2].add_(x)  # strided and in place: neighbours stay as they are
    assert wide.cpu().tolist() == [0.5, 0, 2.0, 0, 3.0, 0]


def test_one_warning_per_op(check_python):
    code = f"""
import warnings
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves
import torch_webgpu
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    x = torch.eye(3).webgpu()
    for _ in range(3):
        torch.linalg.eig(x)
    torch.webgpu.reset_fallbacks()
    torch.linalg.eig(x)
assert [str(w.message).startswith("'{OP}' has no webgpu kernel") for w in caught] == [True], caught
assert torch.webgpu.fallbacks() == {{"{OP}": 1}}
"""
    check_python(code, env={"TORCH_WEBGPU_FALLBACK": ""})


def test_silent_means_silent(mode):
    mode("silent")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_fallback(torch.eye(2).webgpu())


def test_unknown_mode(mode):
    with pytest.raises(ValueError, match="must be 'warn', 'error' or 'silent'"):
        mode("loud")


def test_generators_drive_fallbacks(mode):
    mode("silent")
    rates = torch.full((50,), 4.0).webgpu()

    def draw(generator: torch.Generator) -> torch.Tensor:
        return torch.poisson(rates, generator=generator).cpu()

    generator = torch.Generator(device="webgpu").manual_seed(1)
    first, second = draw(generator), draw(generator)
    assert not torch.equal(first, second)
    assert torch.equal(draw(generator.manual_seed(1)), first)


def test_unknown_environment_value_is_reported(check_python):
    code = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch
    import torch_webgpu
    assert torch.webgpu.get_fallback_mode() == "warn"
assert "'loud' is not warn, error or silent" in str(caught[-1].message), caught
"""
    check_python(code, env={"TORCH_WEBGPU_FALLBACK": "loud"})


FLOAT64 = {
    "mean": lambda x: x.mean(),
    "mean of a dimension": lambda x: x.view(3, 1).mean(0),
    "complex mean": lambda x: x.to(torch.complex128).mean(),
    "complex norms": lambda x: [
        torch.linalg.vector_norm(x.to(torch.complex128), order) for order in (0, 1, 2, 3)
    ],
    "argmax": lambda x: x.argmax(),
    "argmin of a dimension": lambda x: x.argmin(0),
    "frexp": torch.frexp,
    "ldexp": lambda x: torch.ldexp(x, torch.tensor([1, -2, 3], device=x.device)),
    "complex comparison into reals": lambda x: torch.ne(
        x.to(torch.complex128), 1, out=x.new_empty(3)
    ),
    "comparison into integers": lambda x: torch.eq(x, 1, out=x.new_empty(3, dtype=torch.int64)),
    "complex": lambda x: torch.complex(x, x),
    "comparison": lambda x: x > 1,
    "binary cross entropy": lambda x: F.binary_cross_entropy(x / 4, x / 4),
    "glu": lambda x: F.glu(torch.cat([x, x * 2])),
    "mse": lambda x: F.mse_loss(x, x * 2),
    "layer norm": lambda x: F.layer_norm(x, (3,)),
    "adaptive pooling": lambda x: F.adaptive_avg_pool1d(x.view(1, 1, 3), 1),
    "gradient of padding": lambda x: torch.autograd.functional.vjp(
        lambda y: F.pad(y.view(1, 3), (2, 1), mode="replicate"), x, x.new_ones(1, 6)
    ),
    "gradient of embedding": lambda x: torch.ops.aten.embedding_dense_backward(
        x.view(3, 1), torch.tensor([0, 2, 0], device=x.device), 4, -1, False
    ),
    "bags": lambda x: [
        torch.ops.aten._embedding_bag(
            x.view(3, 1),
            torch.tensor([0, 2, 1], device=x.device),
            torch.tensor([0, 2], device=x.device),
            mode=mode,
        )[0]
        for mode in (0, 1, 2)
    ],
    "inverse transform": lambda x: torch.fft.ifft(x),
    "sort": lambda x: x.sort(),
}


@pytest.mark.parametrize("name", FLOAT64)
def test_float64_results_equal_the_cpus(mode, name):
    mode("silent")
    host = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64)
    actual, expected = FLOAT64[name](host.webgpu()), FLOAT64[name](host)
    assert torch.webgpu.fallbacks()
    pairs = zip(tree_leaves(actual), tree_leaves(expected), strict=True)
    for got, want in pairs:
        assert got.is_webgpu
        torch.testing.assert_close(got.cpu(), want)


def test_integers_divide_in_a_default_dtype_that_has_no_kernels(mode):
    mode("silent")
    x, y = torch.arange(5), torch.arange(1, 6, dtype=torch.int16)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal((x.webgpu() / y.webgpu()).cpu(), x / y)
        assert torch.equal(x.webgpu().sqrt().cpu(), x.sqrt())
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("view", ["_neg_view", "conj"])
def test_copies_into_lazily_negated_and_conjugated_views(mode, view):
    """A dtype in which nothing is negated on the device, into a view that is not dense."""
    mode("silent")

    def run(device):
        x = torch.arange(8.0).to(torch.complex128).to(device)
        getattr(x, view)()[::2].copy_(torch.full((4,), 2 + 3j, dtype=x.dtype).to(device))
        return x.cpu()

    assert torch.equal(run("webgpu"), run("cpu"))
