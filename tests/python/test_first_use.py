"""Kernels are registered with the dispatcher when the device is first used, whatever uses it."""

import os

import pytest
import torch

HAS_KERNELS = (
    "def has_kernels():\n"
    "    return torch._C._dispatch_has_kernel_for_dispatch_key('aten::mm', 'PrivateUse1')\n"
)

# Of tensors that are on the device but have no memory there.
WITHOUT_MEMORY = """
class Named(torch.Tensor):
    @staticmethod
    def __new__(cls, dtype=torch.float32):
        return cls._make_wrapper_subclass(cls, (4, 4), dtype=dtype, device='webgpu')
    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        if function == aten._to_copy.default:
            return Named(options['dtype'])
        called.append((str(function), arguments[0].dtype))
        return arguments[0]
called = []
"""

# Each runs in a process that has imported torch and done nothing else. Operators are called without
# what PyTorch's Python functions do before.
USES = {
    "a function of Python": "torch.ones(2, device='webgpu')",
    "empty": "aten.empty.memory_format([2], device='webgpu')",
    "empty_strided": "aten.empty_strided.default([2], [1], device='webgpu')",
    "no elements": "aten.empty.memory_format([0], device='webgpu')",
    "scalar_tensor": "aten.scalar_tensor.default(1, device='webgpu')",
    "randperm": "aten.randperm.default(4, device='webgpu')",
    "zero tensor": "aten._efficientzerotensor.default([2], device='webgpu')",
    "copy": "aten._to_copy.default(torch.ones(2), device=torch.device('webgpu'))",
    "COO": "aten._sparse_coo_tensor_with_dims.default("
    "1, 0, [3], dtype=torch.float32, layout=torch.sparse_coo, device='webgpu')",
    "empty COO": "aten.empty.memory_format([3], layout=torch.sparse_coo, device='webgpu')",
    "CSR": "aten.empty.memory_format([2, 2], layout=torch.sparse_csr, device='webgpu')",
    "quantized": "aten._empty_affine_quantized.default([2], dtype=torch.quint8, device='webgpu')",
    "quantized by channel": "aten._empty_per_channel_affine_quantized.default([2], "
    "scales=torch.ones(2), zero_points=torch.zeros(2), axis=0, dtype=torch.quint8, "
    "device='webgpu')",
    "quantized like another": "aten.empty_quantized.default([2], torch.quantize_per_tensor("
    "torch.ones(2), 0.1, 0, torch.quint8), device='webgpu')",
    "view of what has no memory": "view_without_memory()",
    "storage": "torch.UntypedStorage(8, device='webgpu')",
    "file": "torch.load(sys.argv[1])",
    "map_location": "torch.load(sys.argv[2], map_location='webgpu')",
    "autocast": "torch.autocast('webgpu')",
    "Dynamo": "importlib.import_module('torch._dynamo')",
    "kernel of the program": "torch.library.Library('aten', 'IMPL', 'PrivateUse1').impl("
    "'frac', lambda x: x)",
    "nothing": "None",
}


@pytest.fixture
def check_program(check_python):
    """Runs a program in which the device has not been used yet."""

    def check(code: str, *arguments: object) -> str:
        given = [str(argument) for argument in arguments]
        return check_python(
            f"import importlib, os, sys, torch, torch_webgpu\n{HAS_KERNELS}"
            f"aten, sys.argv[1:] = torch.ops.aten, {given!r}\n"
            f"assert not has_kernels()\n{code}"
        )

    return check


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks, to import torch once")
def test_whatever_comes_first_registers_the_kernels(check_program, tmp_path):
    torch.save(torch.ones(2, device="webgpu"), tmp_path / "webgpu.pt")
    torch.save(torch.ones(2), tmp_path / "cpu.pt")
    printed = check_program(
        f"{WITHOUT_MEMORY}"
        "def view_without_memory():\n"
        "    with torch._C._DisableTorchDispatch():\n"
        "        return Named().view(16), Named().t(), Named().unfold(0, 1, 1)\n"
        f"for name, use in {USES!r}.items():\n"
        "    if os.fork() == 0:\n"
        "        try:\n"
        "            used = eval(use)\n"
        "            print(name, has_kernels(), sep=': ', flush=True)\n"
        "        except Exception as error:\n"
        "            print(name, error, sep=': ', flush=True)\n"
        "        os._exit(0)\n"
        "    os.wait()\n",
        tmp_path / "webgpu.pt",
        tmp_path / "cpu.pt",
    )
    expected = {name: str(name != "nothing") for name in USES}
    assert dict(line.split(": ", 1) for line in printed.splitlines()) == expected


def test_what_needs_no_memory_has_kernels_at_load(check_program):
    check_program(
        "has = torch._C._dispatch_has_kernel_for_dispatch_key\n"
        "composites = ('CompositeImplicitAutograd', 'CompositeExplicitAutograd')\n"
        "schemas = {}\n"
        "for schema in torch._C._jit_get_all_schemas():\n"
        "    name = '.'.join(filter(None, (schema.name, schema.overload_name)))\n"
        "    if schema.name.startswith('aten::') and torch._C._dispatch_has_kernel(name):\n"
        "        schemas[name] = schema\n"
        "def kernels():\n"
        "    return {name for name in schemas if has(name, 'PrivateUse1')}\n"
        "def makes(name, schema):\n"
        "    types = [str(argument.type) for argument in schema.arguments]\n"
        "    if 'Optional[Device]' not in types or any('Tensor' in t for t in types):\n"
        "        return False\n"
        "    return has(name, 'CPU') and not any(has(name, key) for key in composites)\n"
        "def shares(schema):\n"
        "    alias = [argument.alias_info for argument in schema.arguments]\n"
        "    is_view = any(one is not None and not one.is_write for one in alias)\n"
        "    return is_view or schema.name in ('aten::resize_', 'aten::set_', 'aten::is_set_to')\n"
        "found = kernels()\n"
        "wanted = {name for name, schema in schemas.items() if makes(name, schema)}\n"
        "assert 'aten::empty_strided' in wanted and not has_kernels()\n"
        "torch.empty(1, device='webgpu')\n"
        "wanted |= {name for name in kernels() if shares(schemas[name])}\n"
        "assert found == wanted and 'aten::view' in wanted, found ^ wanted\n"
    )


def test_threads_may_be_first_together(check_program):
    check_program(
        "import threading\n"
        "barrier, results = threading.Barrier(8), []\n"
        "def work(n):\n"
        "    barrier.wait()\n"
        "    x = aten.scalar_tensor.default(float(n), device='webgpu')\n"
        "    results.append((n, aten.mul.Tensor(x, x).add(1).item()))\n"
        "threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]\n"
        "for thread in threads:\n"
        "    thread.start()\n"
        "for thread in threads:\n"
        "    thread.join()\n"
        "assert sorted(results) == [(n, n * n + 1.0) for n in range(8)]\n"
        "assert not torch.webgpu.fallbacks()\n"
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks, to import torch once")
def test_threads_find_the_runtime_together(check_program):
    # Switches between threads are frequent, so that some fall into the import of the runtime.
    check_program(
        "import threading\n"
        "def work():\n"
        "    barrier.wait()\n"
        "    found.append(torch.webgpu.is_available())\n"
        "for _ in range(8):\n"
        "    if os.fork() == 0:\n"
        "        sys.setswitchinterval(1e-5)\n"
        "        barrier, found = threading.Barrier(8), []\n"
        "        threads = [threading.Thread(target=work) for _ in range(8)]\n"
        "        for thread in threads:\n"
        "            thread.start()\n"
        "        for thread in threads:\n"
        "            thread.join()\n"
        "        os._exit(0 if found == [True] * 8 else 1)\n"
        "    assert os.wait()[1] == 0\n"
    )


def test_a_thread_without_python_may_be_first(check_program):
    # The gradient is made on a thread of autograd, which finds the runtime with Python's lock.
    check_program(
        "class Move(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x):\n"
        "        return x.clone()\n"
        "    @staticmethod\n"
        "    def backward(ctx, gradient):\n"
        "        return aten._to_copy.default(gradient, device=torch.device('webgpu')).cpu() * 2\n"
        "x = torch.ones(2, requires_grad=True)\n"
        "Move.apply(x).sum().backward()\n"
        "assert x.grad.tolist() == [2, 2] and has_kernels()\n"
    )


def test_autocast_of_fake_tensors(check_program):
    check_program(
        "from torch._subclasses.fake_tensor import FakeTensorMode\n"
        "with FakeTensorMode():\n"
        "    x = torch.empty(4, 4, device='webgpu')\n"
        "    with torch.autocast('webgpu', torch.float16):\n"
        "        assert (x @ x).dtype == torch.float16\n"
        "assert not torch.webgpu.is_initialized()\n"
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("first", "name", "dtype"),
    [
        ("x @ x", "mm.default", "half"),
        ("torch.exp(half)", "exp.default", "full"),
        ("x + x", "add.Tensor", "full"),
        ("half.add_(half)", "add_.Tensor", "half"),
    ],
)
def test_autocast_that_is_enabled_by_its_flag(check_program, first, name, dtype):
    check_program(
        f"{WITHOUT_MEMORY}x, half = Named(), Named(torch.float16)\n"
        "assert not torch.is_autocast_enabled('webgpu') and torch.is_autocast_cache_enabled()\n"
        "assert torch.get_autocast_dtype('webgpu') == torch.float16\n"
        "torch.set_autocast_enabled('webgpu', True)\n"
        "torch.set_autocast_dtype('webgpu', torch.bfloat16)\n"
        "assert torch.get_autocast_dtype('webgpu') == torch.bfloat16\n"
        "torch.set_autocast_dtype('webgpu', torch.float16)\n"
        "assert torch.is_autocast_enabled('webgpu') and not has_kernels()\n"
        f"expected = ('aten.{name}', torch.float16 if '{dtype}' == 'half' else torch.float32)\n"
        f"{first}\n"
        "assert has_kernels() and called == [expected], called\n"
        f"{first}\n"
        "x.requires_grad_()\n"
        f"{first}\n"
        "assert called == [expected] * 3, called\n"
        "assert not torch.webgpu.is_initialized()\n"
    )


def test_a_program_s_kernel_replaces_ours_until_it_is_taken_back(check_program):
    check_program(
        "with torch.library._scoped_library('aten', 'IMPL') as library:\n"
        "    library.impl('frac', lambda x: x + 40, 'PrivateUse1')\n"
        "    assert torch.frac(torch.tensor(2.5, device='webgpu')).item() == 42.5\n"
        "assert torch.frac(torch.tensor(2.5, device='webgpu')).item() == 0.5\n"
        "assert not torch.webgpu.fallbacks()\n"
    )


def test_a_kernel_of_another_library_stays(check_program):
    # As a library in C++ registers one, which this package does not see.
    check_program(
        "library = torch._C._dispatch_library('IMPL', 'aten', 'PrivateUse1')\n"
        "library.impl('frac', 'PrivateUse1', lambda x: x + 40)\n"
        "assert not has_kernels()\n"
        "assert torch.frac(torch.tensor(2.5, device='webgpu')).item() == 42.5\n"
        "assert has_kernels()\n"
    )


def test_without_an_operator_nothing_is_registered(check_program):
    check_program(
        "torch.manual_seed(1)\n"
        "assert torch.webgpu.memory_allocated() == 0\n"
        "torch.ones(3).add(1)\n"
        "assert torch.webgpu.device_count() == 1\n"
        "assert not has_kernels()\n"
    )
