"""max_autotune chooses among the kernels of products by timing them."""

import pytest
import torch
import torch.nn.functional as F
from compiled import DEVICE, assert_equal, check, compile
from torch._dynamo.utils import counters
from torch._inductor.utils import run_and_get_code

from torch_webgpu.inductor import choices

WIDE = {"rtol": 1e-4, "atol": 1e-4}
NO_GRAPHS = "max-autotune-no-cudagraphs"
M, K, N = 32, 48, 64


@pytest.fixture(autouse=True)
def fresh_counters():
    counters.clear()


@pytest.fixture
def fastest(monkeypatch):
    """Has one kernel be the fastest, without timing any."""

    def choose(strategy):
        def milliseconds(launch):
            launch()
            return 1.0 if strategy_of(launch) == strategy else 2.0

        monkeypatch.setattr(choices, "_milliseconds", milliseconds)

    return choose


def strategy_of(launch):
    """The kernel that a timed call takes; nothing for eager mode's."""
    return getattr(launch.func, "strategy", "")


def randn(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(DEVICE, dtype)


def code_of(program, *args):
    """What is generated of a program that computes what it computes in eager mode."""
    torch._dynamo.reset()
    actual, (code,) = run_and_get_code(torch.compile(program, mode=NO_GRAPHS), *args)
    assert_equal(actual, program(*args), **WIDE)
    return code


PRODUCTS = {
    "mm": (torch.mm, [(M, K), (K, N)]),
    "addmm": (torch.addmm, [(N,), (M, K), (K, N)]),
    "bmm": (torch.bmm, [(3, M, K), (3, K, N)]),
    "baddbmm": (torch.baddbmm, [(3, M, N), (3, M, K), (3, K, N)]),
}


@pytest.mark.parametrize("strategy", ["tiles_32", "registers_128", "direct"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_the_fastest_is_taken(fastest, name, strategy):
    fastest(strategy)
    program, shapes = PRODUCTS[name]
    args = [randn(*shape) for shape in shapes]
    assert f"extern_kernels.webgpu_{name}_{strategy}(" in code_of(program, *args)
    assert counters["inductor"]["select_algorithm_autotune"] == 1


@pytest.mark.parametrize("name", PRODUCTS)
def test_what_follows_is_computed_by_the_fastest(fastest, name):
    fastest("tiles_32")
    product, shapes = PRODUCTS[name]
    args = [randn(*shape) for shape in shapes]
    code = code_of(lambda *args: product(*args).sigmoid(), *args)
    assert "strategy='tiles_32'" in code and "extern_kernels.webgpu" not in code


def test_eager_mode_is_kept_unless_another_is_clearly_faster(monkeypatch):
    args = randn(M, K), randn(K, N)
    for factor, is_kept in ((0.99, True), (0.5, False)):
        monkeypatch.setattr(
            choices, "_milliseconds", lambda launch, f=factor: f if strategy_of(launch) else 1.0
        )
        assert ("extern_kernels.mm(" in code_of(torch.mm, *args)) == is_kept


def test_kernels_that_do_not_take_the_product_are_not_timed(monkeypatch):
    timed = []

    def milliseconds(launch):
        timed.append(strategy_of(launch))
        return 1.0

    monkeypatch.setattr(choices, "_milliseconds", milliseconds)
    code_of(torch.mm, randn(M, K), randn(K, N))
    assert {"", "direct", "tiles_32", "registers_128"} <= set(timed)
    assert not [name for name in timed if name.startswith(("vector", "convolution"))]
    timed.clear()
    code_of(torch.mm, randn(M, 47), randn(47, N))  # rows that are no groups of four
    assert "tiles_32" in timed and "registers_128" not in timed


def test_a_call_that_the_kernel_does_not_take(fastest):
    """The operand starts elsewhere than when the choice was made."""
    fastest("registers_128")
    torch._dynamo.reset()
    compiled = torch.compile(lambda a, b: (a @ b).relu(), mode=NO_GRAPHS)
    b = randn(K, N)
    base = randn(M * K + 1)
    for start in (0, 1):
        a = base[start : start + M * K].view(M, K)
        assert_equal(compiled(a, b), (a @ b).relu(), **WIDE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_timing(dtype):
    def program(x, w, v):
        return F.gelu(x @ w) @ v

    args = randn(M, K, dtype=dtype), randn(K, N, dtype=dtype), randn(N, K, dtype=dtype)
    tolerances = WIDE if dtype == torch.float32 else {"rtol": 5e-3, "atol": 5e-2}
    check(program, *args, mode=NO_GRAPHS, dynamic=None, tolerances=tolerances)
    assert counters["inductor"]["select_algorithm_autotune"] == 2


def test_dynamic_sizes():
    compiled = compile(lambda a, b: (a @ b).sin(), mode=NO_GRAPHS, dynamic=True)
    for m, k, n in [(30, 40, 50), (3, 70, 9)]:
        a, b = randn(m, k), randn(k, n)
        assert_equal(compiled(a, b), (a @ b).sin(), **WIDE)


def test_other_products_are_left_alone():
    a, b = (torch.randint(-9, 9, shape).to(DEVICE) for shape in ((M, K), (K, N)))
    check(torch.mm, a, b, mode=NO_GRAPHS, dynamic=None, exact=True)
    a, b, c = randn(M, K), randn(K, N), randn(N)
    for program in (
        lambda a, b, c: torch.addmm(c, a, b, alpha=2, beta=0.5),
        lambda a, b, c: torch.addmm(c.expand(M, N), a, b, alpha=2, beta=0.5),
    ):
        check(program, a, b, c, mode=NO_GRAPHS, dynamic=None, tolerances=WIDE)
    assert not counters["inductor"]["select_algorithm_autotune"]


@pytest.mark.parametrize(("mode", "replays"), [("max-autotune", 2), (NO_GRAPHS, 0)])
def test_graphs(mode, replays):
    compiled = compile(lambda a, b: (a @ b).relu(), mode=mode)
    a, b = randn(M, K), randn(K, N)
    for _ in range(3):
        assert_equal(compiled(a, b), (a @ b).relu(), **WIDE)
        a.add_(1)
    assert counters["inductor"]["webgpu_graph_replays"] == replays


def test_nothing_is_timed_while_a_graph_is_captured(fastest):
    fastest("tiles_32")
    compiled = compile(lambda a, b: (a @ b).relu(), mode=NO_GRAPHS)
    a, b = randn(M, K), randn(K, N)
    graph = torch.webgpu.Graph()
    with torch.webgpu.graph(graph):
        y = compiled(a, b)
    commands = graph.num_commands()
    graph.replay()
    assert_equal(y, (a @ b).relu(), **WIDE)
    assert commands == 1


def test_second_process_times_nothing(check_python, tmp_path):
    program = f"""
import torch
from torch._dynamo.utils import counters
from torch_webgpu.inductor import choices
timed = []
def milliseconds(launch):
    timed.append(launch)
    return 1.0 if getattr(launch.func, "strategy", "") == "tiles_32" else 2.0
choices._milliseconds = milliseconds
a, b = torch.randn({M}, {K}).to("webgpu"), torch.randn({K}, {N}).to("webgpu")
compiled = torch.compile(lambda a, b: (a @ b, (b.t() @ a.t()).relu()), mode="{NO_GRAPHS}")
for one, other in zip(compiled(a, b), (a @ b, (a @ b).t().relu())):
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
print(counters["inductor"]["fxgraph_cache_hit"], len(timed) > 0)
"""
    env = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    assert check_python(program, env=env).split()[-2:] == ["0", "True"]
    assert check_python(program, env=env).split()[-2:] == ["1", "False"]
    codes = [path.read_text() for path in tmp_path.rglob("*.py")]
    assert any("webgpu_mm_tiles_32(" in code for code in codes)
