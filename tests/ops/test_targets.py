"""Operations planned for smaller targets than the device: right results, within the limits.

Every family of csrc/ops has representatives here.
"""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from common import DEVICE, check, check_gradients, to_device

import torch_webgpu
from torch_webgpu import wgsl

BROWSER = ("browser", {"max_storage_buffers": 8, "max_storage_binding_size": 128 << 20})
# Bindings of a few kilobytes, and grids that fold.
SMALL = (
    "browser",
    {
        "max_storage_buffers": 6,
        "max_storage_binding_size": 16384,
        "max_workgroups_per_dimension": 96,
    },
)


def randn(*shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype).requires_grad_()


def ints(*shape, high=10):
    return torch.randint(0, high, shape)


def lstm(x, h, c, *weights):
    return torch.lstm(x, (h, c), list(weights), True, 1, 0.0, False, False, False)[0]


def gru(x, h, *weights):
    return torch.gru(x, h, list(weights), True, 1, 0.0, False, False, False)[0]


def rnn_weights(gates):
    return [
        torch.randn(shape) * 0.3
        for shape in ((gates * 8, 6), (gates * 8, 8), (gates * 8,), (gates * 8,))
    ]


def adam_step(*tensors):
    parameters, gradients = tensors[: len(tensors) // 2], tensors[len(tensors) // 2 :]
    parameters = [p.clone().requires_grad_() for p in parameters]
    for p, g in zip(parameters, gradients, strict=True):
        p.grad = g.clone()
    torch.optim.AdamW(parameters, lr=0.1, foreach=True).step()
    return [p.detach() for p in parameters]


def in_place(function):
    return lambda x, *rest: function(x.clone(), *rest)


TENSORS = [torch.randn(40, 3), torch.randn(7), torch.randn(300), torch.randn(2, 2), torch.randn(64)]

# Family: name, function, arguments.
CASES = {
    "pointwise": [
        ("add", torch.add, (randn(33, 5), randn(5))),
        ("where", torch.where, (torch.rand(100) > 0.5, randn(100), randn(100))),
        ("comparison and cast", lambda x: (x > 0).to(torch.int8), (torch.randn(41, 7),)),
        ("addcmul half", torch.addcmul, tuple(torch.randn(64).half() for _ in range(3))),
    ],
    "reduce": [
        ("sum", lambda x: x.sum(1), (randn(60, 50),)),
        ("sum of all", lambda x: x.sum(), (randn(9000),)),
        ("var_mean", lambda x: torch.var_mean(x, 0), (randn(70, 30),)),
        ("argmax", lambda x: x.argmax(1), (torch.randn(40, 60),)),
        ("norm bf16", lambda x: x.norm(dim=0), (torch.randn(30, 20).bfloat16(),)),
    ],
    "matmul": [
        ("mm", torch.mm, (randn(70, 40), randn(40, 50))),
        ("large mm", torch.mm, (torch.randn(130, 128), torch.randn(128, 132))),
        ("bmm", torch.bmm, (randn(3, 20, 30), randn(3, 30, 10))),
        ("mv", torch.mv, (randn(50, 60), randn(60))),
        ("addmm", torch.addmm, (randn(9), randn(8, 16), randn(16, 9))),
        ("split K", torch.mm, (torch.randn(4, 900), torch.randn(900, 4))),
    ],
    "conv": [
        (
            "conv2d",
            lambda x, w, b: F.conv2d(x, w, b, padding=1),
            (randn(2, 3, 9, 8), randn(4, 3, 3, 3), randn(4)),
        ),
        (
            "transposed",
            lambda x, w: F.conv_transpose2d(x, w, stride=2),
            (randn(2, 3, 5, 5), randn(3, 4, 3, 3)),
        ),
        ("groups", lambda x, w: F.conv1d(x, w, groups=2), (randn(2, 4, 20), randn(6, 2, 3))),
    ],
    "attention": [
        (
            "sdpa",
            F.scaled_dot_product_attention,
            (randn(2, 2, 12, 8), randn(2, 2, 12, 8), randn(2, 2, 12, 8)),
        ),
    ],
    "norm": [
        (
            "layer_norm",
            lambda x, w, b: F.layer_norm(x, (30,), w, b),
            (randn(12, 30), randn(30), randn(30)),
        ),
        (
            "group_norm",
            lambda x, w, b: F.group_norm(x, 2, w, b),
            (randn(3, 4, 5, 5), randn(4), randn(4)),
        ),
        (
            "batch_norm",
            lambda x, w, b, m, v: F.batch_norm(x, m.clone(), v.clone(), w, b, training=True),
            (randn(6, 4, 5), randn(4), randn(4), torch.zeros(4), torch.ones(4)),
        ),
    ],
    "softmax": [
        ("softmax", lambda x: x.softmax(-1), (randn(20, 60),)),
        ("log_softmax", lambda x: x.log_softmax(0), (randn(20, 12),)),
    ],
    "index": [
        ("gather", lambda x, i: x.gather(0, i), (randn(20, 6), ints(9, 6))),
        ("index", lambda x, i, j: x[i, j], (randn(20, 12), ints(30), ints(30))),
        (
            "index_put",
            in_place(lambda x, i, v: x.index_put_((i,), v, accumulate=True)),
            (torch.randn(20, 4), ints(30), torch.randn(30, 4)),
        ),
        (
            "scatter_add",
            in_place(lambda x, i, v: x.scatter_add_(0, i, v)),
            (torch.randn(20, 4), ints(9, 4), torch.randn(9, 4)),
        ),
        ("nonzero", torch.nonzero, (torch.rand(50, 7) > 0.5,)),
        (
            "masked_fill",
            lambda x, m: x.masked_fill(m, 2.0),
            (randn(20, 5), torch.rand(20, 5) > 0.5),
        ),
    ],
    "sort": [
        ("sort", lambda x: x.sort(1), (torch.randn(6, 300),)),
        # No two are equal: the order of those is not the CPU's.
        ("long sort", lambda x: x.sort(), (torch.randperm(3000).float(),)),
        ("topk", lambda x: x.topk(5), (torch.randn(6, 300),)),
        ("searchsorted", torch.searchsorted, (torch.arange(50.0), torch.randn(60) * 20)),
    ],
    "scan": [
        ("cumsum", lambda x: x.cumsum(1), (randn(9, 200),)),
        ("long cumsum", lambda x: x.cumsum(0), (torch.ones(4000),)),
        ("cummax", lambda x: x.cummax(0), (torch.randn(300, 4),)),
    ],
    "movement": [
        ("cat", lambda *x: torch.cat(x), tuple(torch.randn(4, 3) for _ in range(14))),
        ("pad", lambda x: F.pad(x, (1, 2, 3, 1), mode="reflect"), (randn(2, 3, 6, 7),)),
        ("roll", lambda x: x.roll((2, 3), (0, 1)), (randn(20, 9),)),
        ("tril", torch.tril, (randn(15, 15),)),
        ("unfold", lambda x: F.unfold(x, 3), (randn(2, 2, 7, 7),)),
    ],
    "linalg": [
        (
            "solve",
            torch.linalg.solve,
            (torch.randn(2, 8, 8) + 9 * torch.eye(8), torch.randn(2, 8, 3)),
        ),
        ("det", torch.linalg.det, (torch.randn(3, 6, 6),)),
        ("cholesky", torch.linalg.cholesky, (torch.eye(7) * 8 + torch.ones(7, 7),)),
    ],
    "fft": [
        ("fft", torch.fft.fft, (torch.randn(3, 60, dtype=torch.complex64),)),
        ("long fft", torch.fft.fft, (torch.randn(1500, dtype=torch.complex64),)),
        ("rfft", torch.fft.rfft, (torch.randn(3, 1031),)),
    ],
    "loss": [
        ("nll", F.nll_loss, (randn(20, 6), ints(20, high=6))),
        ("cross_entropy", F.cross_entropy, (randn(20, 6), ints(20, high=6))),
        ("multi_margin", F.multi_margin_loss, (torch.randn(8, 5), ints(8, high=5))),
        (
            "ctc",
            lambda x, t: F.ctc_loss(
                x, t, torch.tensor([10, 9]), torch.tensor([4, 3]), reduction="sum"
            ),
            (torch.randn(10, 2, 5).log_softmax(-1).requires_grad_(), ints(2, 4, high=4) + 1),
        ),
    ],
    "pool": [
        ("max_pool2d", lambda x: F.max_pool2d(x, 2), (randn(2, 3, 8, 8),)),
        ("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2), (randn(2, 3, 9, 9),)),
        ("adaptive", lambda x: F.adaptive_avg_pool2d(x, 3), (randn(2, 3, 9, 8),)),
    ],
    "resample": [
        (
            "bilinear",
            lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
            (randn(1, 2, 6, 7),),
        ),
        (
            "grid_sample",
            lambda x, g: F.grid_sample(x, g, align_corners=False),
            (randn(2, 2, 6, 7), torch.rand(2, 4, 5, 2) * 2 - 1),
        ),
    ],
    "rnn": [
        (
            "lstm",
            lstm,
            (torch.randn(5, 2, 6), torch.randn(1, 2, 8), torch.randn(1, 2, 8), *rnn_weights(4)),
        ),
        ("gru", gru, (torch.randn(5, 2, 6), torch.randn(1, 2, 8), *rnn_weights(3))),
    ],
    "foreach": [
        ("foreach_add", lambda *x: torch._foreach_add(list(x), 2), tuple(TENSORS)),
        (
            "foreach_addcmul",
            lambda *x: torch._foreach_addcmul(list(x), list(x), list(x), 2),
            tuple(TENSORS),
        ),
    ],
    "optim": [("adamw", adam_step, (*TENSORS, *TENSORS[::1]))],
    "quantize": [
        (
            "fake_quantize",
            lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127),
            (torch.randn(50),),
        ),
    ],
    "embedding": [
        ("embedding", lambda i, w: F.embedding(i, w), (ints(12), randn(10, 6))),
        ("embedding_bag", lambda i, w: F.embedding_bag(i, w), (ints(4, 5), torch.randn(10, 6))),
    ],
    "distance": [("cdist", torch.cdist, (torch.randn(20, 5), torch.randn(30, 5)))],
    "factory": [
        ("arange", lambda x: x + torch.arange(30, device=x.device), (torch.randn(30),)),
        ("eye", lambda x: x + torch.eye(9, device=x.device), (torch.randn(9, 9),)),
    ],
    "storage": [("copy", lambda x: x.t().contiguous().to(torch.float16), (torch.randn(30, 20),))],
}
NAMED = [(family, *case) for family, cases in CASES.items() for case in cases]
# What does not fit SMALL, and says so.
TOO_WIDE = r"its kernel binds \d storage buffers"
TOO_LARGE = r"does not fit into the storage bindings of target 'browser with changes'"
REFUSED = {
    "lstm": TOO_WIDE,
    "gru": TOO_WIDE,
    "batch_norm": TOO_WIDE,
    "ctc": TOO_WIDE,
    "long sort": TOO_LARGE,
    "rfft": TOO_LARGE,
}


@contextlib.contextmanager
def planned_for(target):
    """Checks what the operations inside dispatch against the target's limits."""
    base, limits = target
    with wgsl.target(base, limits=limits), wgsl.record() as dispatches:
        yield
    grid = limits.get("max_workgroups_per_dimension", 65535)
    assert dispatches
    for dispatch in dispatches:
        assert len(dispatch.bindings) <= limits["max_storage_buffers"], dispatch
        assert max(dispatch.bindings) <= limits["max_storage_binding_size"], dispatch
        assert max(dispatch.grid) <= grid, dispatch


def compare(function, args):
    tolerances = {"rtol": 2e-3, "atol": 2e-3}
    if any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args):
        check_gradients(function, *args, **tolerances)
    else:
        check(function, *args, **tolerances)


@pytest.mark.parametrize(
    ("function", "args"), [case[2:] for case in NAMED], ids=[f"{c[0]}-{c[1]}" for c in NAMED]
)
def test_a_browser(function, args):
    with planned_for(BROWSER):
        compare(function, args)


@pytest.mark.parametrize(
    ("name", "function", "args"),
    [case[1:] for case in NAMED],
    ids=[f"{c[0]}-{c[1]}" for c in NAMED],
)
def test_small_bindings(name, function, args):
    with planned_for(SMALL):
        if name not in REFUSED:
            compare(function, args)
            return
        with pytest.raises(NotImplementedError, match=REFUSED[name]):
            compare(function, args)
        torch.ones(3, device=DEVICE).add_(1)  # the device stays usable


@pytest.mark.parametrize("target", [BROWSER, SMALL], ids=["browser", "small"])
def test_random_numbers_do_not_depend_on_the_target(target):
    def draw():
        torch.manual_seed(5)
        return torch.randn(10_000, device=DEVICE), F.dropout(torch.ones(9000, device=DEVICE))

    expected = draw()
    with planned_for(target):
        found = draw()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other.cpu())


def test_large_tensors_in_a_browser():
    x = torch.randn(3 << 20)
    limits = {"max_storage_buffers": 8, "max_storage_binding_size": 4 << 20}
    with planned_for(("browser", limits)):
        check(lambda x: (x + 1).sum(), x, rtol=1e-4, atol=1)
        check(lambda x: x.view(3, -1).softmax(0), x)


def test_a_plan_has_its_own_pipelines():
    x = torch.randn(64, device=DEVICE)
    torch.tanh(x)
    before = torch_webgpu._C.stream_stats()["pipelines"]
    with wgsl.target("browser", limits={"max_storage_buffers": 5}):
        torch.tanh(x)
        assert torch_webgpu._C.stream_stats()["pipelines"] == before + 1
    with wgsl.target("device"):
        torch.tanh(x)
    with wgsl.target("browser", limits={"max_storage_buffers": 5}):
        torch.tanh(x)
    assert torch_webgpu._C.stream_stats()["pipelines"] == before + 1


def test_the_backward_pass_is_planned_for_the_target_too():
    x = torch.randn(50, 40, requires_grad=True)
    with planned_for(("browser", {**SMALL[1], "max_storage_binding_size": 4096})):
        check_gradients(lambda x: (x * x).sum(0), x)


def test_a_target_that_asks_for_more_is_refused():
    x = torch.ones(4, device=DEVICE)
    with (
        wgsl.target(limits={"max_storage_buffers": 1000}),
        pytest.raises(
            RuntimeError, match=r"asks for more than it grants: max_storage_buffers of 1000"
        ),
    ):
        torch.tanh(x)
    assert torch.tanh(x).cpu().isfinite().all()


def test_other_sizes_of_subgroups_are_for_captures_only():
    if "subgroups" not in torch.webgpu.get_device_properties().features:
        pytest.skip("the device has no subgroups")
    x, w = torch.randn(1, 512, device=DEVICE), torch.randn(512, 512, device=DEVICE)
    sizes = {"subgroup_min_size": 128, "subgroup_max_size": 128}
    graph = torch.webgpu.Graph(keep_graph=True)
    with wgsl.target("browser", features=["subgroups"], limits=sizes):
        with pytest.raises(RuntimeError, match="128 to 128 invocations can be captured"):
            x @ w
        with torch.webgpu.graph(graph):
            x @ w
    with pytest.raises(RuntimeError, match="subgroups of other sizes"):
        graph.replay()
    with pytest.raises(RuntimeError, match="subgroups of other sizes"):
        graph.instantiate()


def test_a_kernel_with_more_workgroup_memory_than_the_target_is_refused():
    x = torch.randn(4, 300, device=DEVICE)
    with (
        wgsl.target("browser", limits={"max_workgroup_storage": 8176}),
        pytest.raises(
            NotImplementedError,
            match=r"sort\(\): its kernel needs 8192 bytes of workgroup memory, "
            r"where target 'browser with changes' has 8176",
        ),
    ):
        torch.sort(x)
    with wgsl.target("browser", limits={"max_workgroup_storage": 8192}):
        check(torch.sort, x.cpu())


def test_enable_lines():
    assert wgsl.enables("browser") == ""
    assert wgsl.enables("swiftshader") == "enable subgroups;\n"
    both = wgsl.enables("browser", features=["shader-f16", "subgroups"])
    assert both.splitlines() == ["enable f16;", "enable subgroups;"]
    packed = wgsl.enables("browser", features=["packed_4x8_integer_dot_product"])
    assert packed == "requires packed_4x8_integer_dot_product;\n"


def test_language_features_are_the_devices():
    feature = "packed_4x8_integer_dot_product"
    granted = feature in torch.webgpu.get_device_properties().features
    lines = wgsl.enables("device").splitlines()
    assert (f"requires {feature};" in lines) == granted
    # Dawn's all do; wgpu-native does not tell.
    assert granted == (torch.webgpu.get_device_properties().runtime == "dawn")
    x = torch.ones(4, device=DEVICE)
    with wgsl.target("browser", features=[feature]):
        if granted:
            assert torch.exp(x).cpu().isfinite().all()
        else:
            with pytest.raises(RuntimeError, match=f"asks for more than it grants: {feature}"):
                torch.exp(x)


def test_the_lines_of_the_device_compile():
    source = f"""
        {wgsl.enables()}
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(1) fn run(@builtin(workgroup_id) id: vec3u) {{
          out[id.x] = 1u;
        }}
    """
    torch.webgpu.compile_shader(source)


def test_unknown_names_are_refused():
    with (
        pytest.raises(ValueError, match="no shader target named 'toaster'"),
        wgsl.target("toaster"),
    ):
        pass
    with (
        pytest.raises(ValueError, match="no feature or limit max_teapots"),
        wgsl.target(limits={"max_teapots": 1}),
    ):
        pass


def test_commands_that_are_only_recorded_are_not_executed():
    x = torch.ones(6, device=DEVICE)
    with wgsl.record(execute=False) as dispatches:
        x.add_(1)
        with pytest.raises(RuntimeError, match="recorded and not executed"):
            x.cpu()
    assert [dispatch.label for dispatch in dispatches] == ["add"]
    assert x.cpu().tolist() == [1] * 6
    assert to_device(torch.ones(2)).cpu().tolist() == [1, 1]
