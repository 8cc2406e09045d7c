"""Operators of sparse tensors that have no kernel run on the CPU by the policy of dense ones."""

import pytest
import torch
from common import DEVICE

from torch_webgpu import _C

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")

SOLVE = "aten::triangular_solve.X"
# What has kernels for the CPU's sparse tensors and none for the device's: solves, and what is only
# about memory or processes.
WITHOUT_KERNELS = {SOLVE, "aten::is_pinned", "aten::_pin_memory", "c10d::allreduce_"}


with_sparse_solves = pytest.mark.skipif(
    not torch.backends.mkl.is_available(), reason="the CPU's sparse solves are MKL's"
)


def triangle():
    return (torch.ones(4, 4).tril() + torch.eye(4)).to_sparse_csr()


def solve(right, left, **out):
    return torch.triangular_solve(right, left, upper=False, **out).solution


def test_all_others_have_kernels():
    _C.register_operators()
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    missing = set()
    for name in torch._C._dispatch_get_all_op_names():
        if name.split("::")[0] in ("aten", "c10d"):
            for layout in ("Sparse", "SparseCsr"):
                if has(name, f"{layout}CPU") and not has(name, f"{layout}PrivateUse1"):
                    missing.add(name)
    assert missing <= WITHOUT_KERNELS


def test_refused():
    x, a = torch.ones(4, 2, device=DEVICE), triangle().to(DEVICE)
    with pytest.raises(NotImplementedError, match=f"'{SOLVE}'.*'webgpu'.*for sparse tensors"):
        solve(x, a)
    assert torch.webgpu.fallbacks().get(SOLVE) is None


@with_sparse_solves
def test_counted_and_equal_to_the_cpus(silent_fallbacks):
    right, left = torch.randn(4, 2), triangle()
    out = torch.zeros(4, 2, device=DEVICE), torch.zeros(0, device=DEVICE)
    for options in ({}, {"out": out}):
        actual = solve(right.to(DEVICE), left.to(DEVICE), **options)
        assert actual.device.type == DEVICE
        torch.testing.assert_close(actual.cpu(), solve(right, left))
    torch.testing.assert_close(out[0].cpu(), solve(right, left))
    assert silent_fallbacks() == {SOLVE: 2}


@with_sparse_solves
def test_gradients(silent_fallbacks):
    results = []
    for device in ("cpu", DEVICE):
        right = torch.linspace(-1, 1, 8).reshape(4, 2).to(device).requires_grad_()
        left = triangle().to(device).requires_grad_()
        grads = torch.autograd.grad(solve(right, left).square().sum(), (right, left))
        results.append([grad.to_dense().cpu() for grad in grads])
    torch.testing.assert_close(results[1], results[0])
    assert silent_fallbacks()[SOLVE] == 2


def test_what_the_cpu_lacks_is_refused_in_every_mode(silent_fallbacks):
    for sparse in (torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr()):
        with pytest.raises(NotImplementedError, match="the CPU has none either"):
            torch.flip(sparse.to(DEVICE), (0,))
    assert silent_fallbacks() == {}


def test_arguments_on_the_cpu_are_refused(silent_fallbacks):
    with pytest.raises(RuntimeError, match="same device"):
        solve(torch.ones(4, 2), triangle().to(DEVICE))
    assert silent_fallbacks() == {}


@pytest.fixture(scope="module")
def doubled():
    """An operator of somebody else, whose kernels are for the CPU. It writes twice `x` into `out`
    and returns it, a list, and a new tensor."""
    library = torch.library.Library("sparse_fallback_test", "DEF")
    library.define(
        "doubled(Tensor[] xs, Tensor? none, *, Generator? generator=None, Tensor(a!) out)"
        " -> (Tensor(a!), Tensor[], Tensor)"
    )

    def kernel(xs, none, *, generator, out):
        assert all(t.device.type == "cpu" for t in (*xs, out)) and none is None
        twice = xs[0] * 2
        out.resize_as_sparse_(twice)
        out.copy_(twice)
        return out, [x * 3 for x in xs], xs[0] * 4

    for key in ("SparseCPU", "SparseCsrCPU"):
        library.impl("doubled", kernel, key)
    yield torch.ops.sparse_fallback_test.doubled
    library._destroy()


LAYOUTS = ["to_sparse", "to_sparse_csr", "to_sparse_csc"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sparse_outputs_are_written(layout, doubled, silent_fallbacks):
    x = torch.tensor([[0.0, 1, 2], [3, 0, 0]])
    sparse = getattr(x, layout)().to(DEVICE)
    out = getattr(torch.zeros(2, 3), layout)().to(DEVICE)
    written, several, new = doubled([sparse, sparse], None, out=out)
    assert written is out and silent_fallbacks() == {"sparse_fallback_test::doubled": 1}
    for actual, expected in ((out, x * 2), (several[1], x * 3), (new, x * 4), (sparse, x)):
        assert actual.device.type == DEVICE and actual.layout == sparse.layout
        assert actual._nnz() == 3
        assert torch.equal(actual.to_dense().cpu(), expected)


@with_sparse_solves
def test_one_warning(check_python):
    code = f"""
import warnings
import torch
import torch_webgpu
a = torch.eye(3, device="webgpu").to_sparse_csr()
x = torch.ones(3, 1, device="webgpu")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(3):
        assert torch.triangular_solve(x, a).solution.cpu().tolist() == [[1], [1], [1]]
caught = [str(w.message) for w in caught if "webgpu" in str(w.message)]
assert len(caught) == 1, caught
assert caught[0].startswith("'{SOLVE}' has no webgpu kernel for sparse tensors"), caught
assert torch.webgpu.fallbacks() == {{"{SOLVE}": 3}}
"""
    check_python(code, env={"TORCH_WEBGPU_FALLBACK": "warn"})
