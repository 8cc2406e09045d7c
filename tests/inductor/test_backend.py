"""How the backend is found, what it shows, what it caches, and that other devices keep theirs."""

import re

import pytest
import torch
from compiled import DEVICE, check, compile

CPU = """
import re, torch
from torch._inductor.utils import run_and_get_code
def program(x, y):
    x = torch.softmax(x @ y, -1) + torch.arange(8)
    return torch.nn.functional.conv2d(x[None, None], torch.ones(1, 1, 3, 3)).sum(), x.argmax(1)
torch.manual_seed(0)
_, codes = run_and_get_code(torch.compile(program), torch.randn(8, 8), torch.randn(8, 8))
print(re.sub("#.*|/tmp/[^ ]*", "", codes[0]))
"""


def test_plain_compile_finds_the_backend():
    check(lambda x: x.sin() + 1, torch.randn(100, device=DEVICE), exact=True)


def test_backend_has_a_name():
    x = torch.randn(100, device=DEVICE)
    assert "webgpu" in torch._dynamo.list_backends()
    check(lambda x: x.sin() + 1, x, backend="webgpu", exact=True)
    check(lambda x: x.sin() + 1, x, backend="webgpu", mode="max-autotune-no-cudagraphs")
    check(lambda x: x + 1, x, backend="webgpu", options={"max_fusion_size": 2}, exact=True)


def test_output_code_is_wgsl_that_names_its_ops():
    from torch._inductor.utils import run_and_get_code

    _, codes = run_and_get_code(
        compile(lambda x: torch.relu(x.sin())), torch.randn(64, device=DEVICE)
    )
    assert re.search(r"poi_fused_relu_sin_0 = wgsl_kernel\(", codes[0])
    assert "let tmp1 = sin_f(tmp0);" in codes[0]


def test_import_does_not_import_the_compiler(check_python):
    check_python(
        "import sys, torch, torch_webgpu\n"
        "assert 'torch._inductor' not in sys.modules\n"
        "assert 'torch._dynamo' not in sys.modules"
    )


def test_cpu_compiles_as_without_this_package(check_python):
    alone = check_python(CPU, env={"TORCH_WEBGPU_AUTOLOAD": "0"}, timeout=300)
    beside = check_python("import torch_webgpu" + CPU, timeout=300)
    assert alone == beside
    assert "cpp_fused" in alone


@pytest.mark.long  # test_compiled_autotuning.py has a second process that finds what it needs, too
def test_second_process_generates_no_code(check_python, tmp_path):
    program = """
import torch
from torch._dynamo.utils import counters
def program(x):
    return torch.softmax(x, -1) * 2
x = torch.randn(20, 100).to("webgpu")
torch.testing.assert_close(torch.compile(program)(x).cpu(), program(x.cpu()))
print(counters["inductor"]["fxgraph_cache_miss"], counters["inductor"]["fxgraph_cache_hit"])
"""
    env = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    assert check_python(program, env=env).split() == ["1", "0"]
    assert check_python(program, env=env).split() == ["0", "1"]


def test_graph_breaks_run_eagerly_on_the_device():
    def program(x):
        x = x + 1
        if x.sum().item() > 0:
            return torch.linalg.cholesky(x @ x.t() + torch.eye(4, device=x.device) * 9)
        return x

    check(program, torch.rand(4, 4, device=DEVICE))


def test_calls_of_the_device_module():
    def program(x):
        torch.webgpu.synchronize()
        return x * 2

    check(program, torch.rand(4, device=DEVICE), exact=True)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_fusion_size": 1},
        {"size_asserts": False},
        {"split_reductions": False},
        {"combo_kernels": True},
        {"memory_planning": True},
        {"comprehensive_padding": False},
    ],
    ids=str,
)
def test_settings_of_inductor(settings):
    def program(x, y):
        return torch.softmax(x + 1, -1) @ y, (x * 3).sum(0), y.cos()

    x, y = torch.randn(20, 30, device=DEVICE), torch.randn(30, 40, device=DEVICE)
    with torch._inductor.config.patch(settings):
        check(program, x, y, tolerances={"rtol": 1e-4, "atol": 1e-4})


def test_debug_folder(check_python, tmp_path):
    check_python(
        'import torch\ntorch.compile(lambda x: x.sin())(torch.ones(4, device="webgpu"))',
        env={
            "TORCH_COMPILE_DEBUG": "1",
            "TORCH_COMPILE_DEBUG_DIR": str(tmp_path),
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",  # a graph from the cache has no code to show
        },
    )
    (code,) = tmp_path.rglob("output_code.py")
    assert "wgsl_kernel" in code.read_text()


def test_control_flow_and_transforms():
    x = torch.randn(6, 5, device=DEVICE)
    check(lambda x: torch.vmap(lambda row: row.sin().sum())(x), x)
    check(
        lambda x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)),
        x,
    )
    exported = torch.export.export(torch.nn.Softmax(-1), (x,))
    check(exported.module(), x)


def test_ahead_of_time_compilation_names_graphs(tmp_path):
    x = torch.randn(4, 5, device=DEVICE)
    exported = torch.export.export(torch.nn.Linear(5, 3).to(DEVICE), (x,))
    with pytest.raises(Exception, match=r"do not support webgpu: torch\.webgpu\.Graph\.save"):
        torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "model.pt2"))
    assert not list(tmp_path.iterdir())
    for wrapper in ("cpp_wrapper", "fx_wrapper"):
        with (
            torch._inductor.config.patch({wrapper: True}),
            pytest.raises(Exception, match="do not support webgpu"),
        ):
            compile(torch.sin)(x)
