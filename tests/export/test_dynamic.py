"""torch.webgpu.export with sizes that a call decides, compared with PyTorch on the CPU."""

import copy
import pathlib
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from torch_webgpu.graphs import _expressions as expressions

DEVICE = "webgpu"


def exported(path, function, inputs, shapes, **options):
    torch.webgpu.export(function, inputs, path, dynamic_shapes=shapes, **options)
    return torch.webgpu.Graph.load(path)


def compare(path, module, make, shapes, example, sizes, tolerance=1e-4):
    """Exports a module, or a function, at the sizes `example` and plays it at `sizes`."""
    torch.manual_seed(0)
    near = copy.deepcopy(module).to(DEVICE) if isinstance(module, nn.Module) else module

    def forward(**inputs):
        with torch.no_grad():
            return near(*inputs.values())

    graph = exported(path, forward, make(*example), shapes)
    for size in sizes:
        inputs = make(*size)
        with torch.no_grad():
            wanted = module(*inputs.values())
        for name, value in (wanted if isinstance(wanted, dict) else {"output": wanted}).items():
            result = graph(**inputs)[name].cpu()
            torch.testing.assert_close(result, value, rtol=tolerance, atol=tolerance)
    return graph


def batch_of(*shape):
    return lambda n: {"x": torch.randn(n, *shape)}


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(40, 32)
        self.places = nn.Parameter(torch.randn(70, 32))
        self.qkv = nn.Linear(32, 96)

    def forward(self, tokens):
        x = self.table(tokens) + self.places[: tokens.shape[1]]
        q, k, v = self.qkv(x).view(*tokens.shape, 3, 4, 8).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


def test_a_batch_of_a_perceptron(tmp_path):
    model = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 7), nn.LayerNorm(7))
    sizes = [(1,), (2,), (5,), (64,), (65,), (70,)]
    shapes = {"x": {0: Dim("batch", max=70)}}
    graph = compare(tmp_path / "m", model, batch_of(20), shapes, (3,), sizes)
    assert graph.inputs == {"x": (torch.float32, ("batch", 20))}
    message = "x must have the shape [batch, 20] with batch from 1 to 70, not"
    for rows in (0, 71):
        with pytest.raises(ValueError, match=re.escape(message)):
            graph(x=torch.randn(rows, 20))
    with pytest.raises(ValueError, match=re.escape(message)):
        graph(x=torch.randn(5, 21))


def test_images_of_a_convolutional_network(tmp_path):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=8, padding=1),
        nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
        nn.ReLU(),
        nn.Conv2d(6, 16, 3, stride=2, dilation=2),
    ).eval()
    shapes = {"x": {0: "batch", 2: Dim("height", min=6), 3: Dim("width", min=6)}}
    make = lambda n, h, w: {"x": torch.randn(n, 3, h, w)}  # noqa: E731
    sizes = [(1, 6, 6), (4, 9, 8), (2, 20, 17), (4, 22, 24)]
    compare(tmp_path / "m", model, make, shapes, (4, 22, 24), sizes)


def test_a_series_of_one_dimension(tmp_path):
    model = nn.Sequential(nn.Conv1d(6, 12, 5, padding=2, stride=2, groups=3), nn.Conv1d(12, 7, 3))
    shapes = {"x": {0: "batch", 2: Dim("length", min=5)}}
    make = lambda n, length: {"x": torch.randn(n, 6, length)}  # noqa: E731
    compare(tmp_path / "m", model, make, shapes, (4, 90), [(1, 5), (4, 9), (2, 31), (4, 90)])


def test_batches_and_lengths_of_attention(tmp_path):
    shapes = {"tokens": {0: Dim("batch", max=4), 1: Dim("length", max=70)}}
    make = lambda n, length: {"tokens": torch.randint(0, 40, (n, length))}  # noqa: E731
    sizes = [(1, 1), (4, 9), (3, 65), (2, 70)]
    graph = compare(tmp_path / "m", Attention(), make, shapes, (2, 7), sizes)
    with pytest.raises(ValueError, match="batch from 1 to 4 and length from 1 to 70"):
        graph(tokens=torch.zeros(5, 5, dtype=torch.long))


def test_a_layer_of_a_transformer(tmp_path):
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    shapes = {"x": {0: "batch", 1: "length"}}
    make = lambda n, length: {"x": torch.randn(n, length, 16)}  # noqa: E731
    compare(tmp_path / "m", model, make, shapes, (4, 9), [(1, 1), (3, 1), (1, 9), (4, 7)])


def test_a_recurrent_network(tmp_path):
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = nn.GRU(8, 8, batch_first=True)

        def forward(self, x):
            return self.cells(x)[0]

    compare(tmp_path / "m", Last(), batch_of(3, 8), {"x": {0: "batch"}}, (4,), [(1,), (4,)])


FUNCTIONS = {
    "mean": lambda x: x.mean(0),
    "softmax": lambda x: x.softmax(0),
    "deviation": lambda x: (x - x.mean(0)) * (1 / x.shape[0]),
    "quotient": lambda x: x * ((x.shape[0] + 1) / (2 * x.shape[0])),
    "root": lambda x: x * x.shape[0] ** 0.5,
    "halves": lambda x: x[: (x.shape[0] + 1) // 2].sum(0),
    "differences": lambda x: F.pad(x[1:] - x[:-1], (0, 0, 0, 1)),
    "parts": lambda x: torch.cat([x, 2 * x, x[:1]]),
    "numbers": lambda x: x + torch.arange(x.shape[0], device=x.device)[:, None],
    "products": lambda x: (x @ x.T).tril().softmax(-1) @ x,
    "columns": lambda x: (x.T @ x).tanh(),
    "residual": lambda x: torch.relu(x + (x @ x[:1].expand(12, 12))),
    "factors": lambda x: torch.baddbmm(x[None], x[None], (x.T @ x)[None], beta=0.5, alpha=2),
    "factor of nothing": lambda x: torch.addmm(x / 0, x, x.T @ x, beta=0),
    "stacked": lambda x: torch.stack([x[:, :7], 2 * x[:, 5:], x @ (x.T @ x)[:, :7]]),
    "reductions in a row": lambda x: torch.cat([x.sum(1), x.softmax(0).amax(1), x[-1]]),
    "halves in a row": lambda x: torch.cat([x[:, :1].half(), x[:1, :1].half(), x[:, 2:3].half()]),
    "truths in a row": lambda x: torch.cat([x[:, 0] > 0, x[:1, 0] > 1, x[:, 1] > 0]),
    "sorted": lambda x: dict(
        zip(("values", "places"), x.round().sort(stable=True, dim=0), strict=True)
    ),
    "sorted down": lambda x: x.log().sort(stable=True, dim=0, descending=True).indices,
    "sorted truths": lambda x: (x > 0).sort(stable=True, dim=0).indices,
    "largest of a row": lambda x: dict(zip(("values", "places"), x.topk(3), strict=True)),
    "smallest of a row": lambda x: x.topk(3, largest=False).values,
    "running products": lambda x: x.cumprod(0),
    "running integers": lambda x: (3 * x).int().cumsum(0),
    "running logarithms": lambda x: (4 * x).logcumsumexp(0),
    "buckets": lambda x: {
        "left": torch.bucketize(x.round(), torch.arange(-1.0, 2, device=x.device)),
        "right": torch.bucketize(
            x.round(), torch.arange(-1.0, 2, device=x.device), right=True, out_int32=True
        ),
    },
    "even steps": lambda x: {
        "sum": x[:, 0] + torch.linspace(-1, 0.3, x.shape[0], device=x.device),
        "steps": torch.linspace(5, 1, 2 * x.shape[0], device=x.device),
    },
    "averages": lambda x: {
        "one": F.adaptive_avg_pool1d(x.T, 1),
        "three": F.adaptive_avg_pool1d(x.T, 3),
        "plane": F.adaptive_avg_pool2d(x[None], (5, None)),
        "infinite": F.adaptive_avg_pool1d(1 / x.round().abs().T, 4),
    },
    "windows": lambda x: x.unfold(1, 3, 2).amax(-1) + x.unfold(0, 1, 1)[:, :5, 0],
    "a constant diagonal": lambda x: torch.diag(torch.ones_like(x[:, 0])) * x[:, :1],
    "running sums": lambda x: {"rows": x.cumsum(0), "truths": (x > 0).cumsum(1)},
    "last rows": lambda x: x[-3:].sum(0),
    "truth": lambda x: x > 0,
    "integers": lambda x: (100 * x).long() // 3,
    "places": lambda x: x.argmax(0),
    "flat": lambda x: x.view(-1, 4).sum(1),
    "several": lambda x: {"all": x + 1, "one": x[-1], "again": x + 1},
    "constant": lambda x: x * torch.tensor(0.5, device=x.device),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_operators_over_a_dynamic_dimension(tmp_path, name):
    sizes = [(1,), (2,), (7,), (300,)]
    compare(tmp_path / "m", FUNCTIONS[name], batch_of(12), {"x": {0: "n"}}, (300,), sizes, 1e-3)


@pytest.mark.long
def test_more_workgroups_than_one_dimension_has(tmp_path):
    make = lambda n: {"x": torch.randn(n, 2, 2)}  # noqa: E731
    sizes = [(2,), (65536,), (70000,)]
    shapes = {"x": {0: Dim("n", max=70000)}}
    compare(tmp_path / "m", lambda x: x @ x.mT, make, shapes, (5,), sizes)


def test_halves(tmp_path):
    make = lambda n, k: {"x": torch.randn(n, k).half(), "y": torch.randn(k, 5).half()}  # noqa: E731
    shapes = {"x": {0: "n", 1: "k"}, "y": {0: "k"}}
    f = lambda x, y: (x @ y).relu()  # noqa: E731
    compare(tmp_path / "m", f, make, shapes, (70, 40), [(1, 1), (70, 40), (9, 33)], 2e-2)


def test_sizes_of_one_name_are_the_same(tmp_path):
    graph = exported(
        tmp_path / "m",
        lambda x, y: x + y,
        {"x": torch.zeros(9, 4), "y": torch.zeros(9, 4)},
        {"x": {0: Dim("n", max=20)}, "y": {0: Dim("n", max=20)}},
    )
    x = torch.randn(20, 4)
    assert torch.equal(graph(x=x, y=x)["output"].cpu(), x + x)
    with pytest.raises(ValueError, match="y has 3 for n, which is 20 in this call"):
        graph(x=x, y=x[:3])


def test_inferred_sizes(tmp_path):
    given = {"x": torch.zeros(9, 4), "y": torch.zeros(9, 4), "w": torch.randn(4, 3)}
    every = {0: Dim.AUTO, 1: Dim.AUTO}
    graph = exported(
        tmp_path / "m",
        lambda x, y, w: (x + y) @ w,
        given,
        {"x": every, "y": every, "w": {0: Dim.AUTO, 1: Dim.STATIC}},
    )
    shapes = {name: shape for name, (_, shape) in graph.inputs.items()}
    assert shapes["x"] == shapes["y"] and shapes["w"] == (shapes["x"][1], 3)
    assert isinstance(shapes["x"][0], str) and isinstance(shapes["x"][1], str)
    weight = torch.randn(4, 3, device=DEVICE)
    graph = exported(tmp_path / "m", lambda x: x @ weight, {"x": given["x"]}, {"x": every})
    assert graph.inputs["x"][1] == ("x_0", 4)
    with pytest.raises(RuntimeError, match=r"needs Eq\(x_0, y_0\): state that"):
        exported(
            tmp_path / "m",
            lambda x, y: x + y,
            {"x": given["x"], "y": given["y"]},
            {"x": {0: Dim.DYNAMIC}, "y": {0: Dim.DYNAMIC}},
        )


def branch(x):
    if x.shape[0] > 3:
        return x + 1
    return x


REFUSED = {
    "histogram": (lambda x: x.histc(5, -2, 2), "aten.histc depends on sizes"),
    "transform": (lambda x: torch.fft.rfft(x).real, "aten._fft_r2c depends on sizes"),
    "topk": (lambda x: x.topk(3, 0).values, "3 <= n"),
    "branch": (branch, "depends on n > 3"),
    "number": (lambda x: x + float(x.shape[0]), "depends on n"),
    "loop": (lambda x: sum(x[k] for k in range(x.shape[0])), "depends on n"),
    "chunks": (lambda x: x.chunk(2)[0], "torch.Tensor.chunk depends on"),
    "row": (lambda x: x[5], "5 < n"),
    "pairs": (lambda x: x.view(-1, 24), "what is done needs"),
    "squeeze": (lambda x: x[:, :1].squeeze(), "aten.squeeze removes a dimension of n"),
    "values": (lambda x: x.nonzero(), "aten.nonzero makes sizes"),
    "item": (lambda x: x * x.sum().item(), "makes sizes or numbers of data"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_depends_on_sizes_otherwise_raises(tmp_path, name):
    function, message = REFUSED[name]
    with pytest.raises(RuntimeError, match=message) as caught:
        exported(tmp_path / "m", function, {"x": torch.randn(8, 12)}, {"x": {0: "n"}})
    assert str(caught.value).startswith("cannot export ")
    assert re.search(rf"{re.escape(pathlib.Path(__file__).name)}:\d+: ", str(caught.value))
    assert not (tmp_path / "m").exists()


def test_values_that_are_read_on_the_host_raise(tmp_path):
    def f(x):
        return x * 2 if x.sum() > 0 else x  # this line

    wanted = r"f: .*reads on the host what a tensor holds\n.*# this line"
    with pytest.raises(RuntimeError, match=wanted):
        exported(tmp_path / "m", f, batch_of(3)(4), {"x": {0: Dim("n", max=8)}})


def test_kernels_that_sizes_choose_are_refused(tmp_path):
    """Also where only the place of a factor depends on sizes."""
    rows, square = torch.randn(40, 12, device=DEVICE), torch.randn(12, 12, device=DEVICE)

    def moved(x):
        return rows.narrow(0, x.shape[0], 4) @ square + x.sum()

    def empty_at_the_most(x):
        rest = rows[: x.shape[1] - 4][x.shape[0] :]
        return (rest @ square + rest).sum() + x.sum()

    for function, message in (
        (moved, r"aten\.addmm depends on sizes"),
        (empty_at_the_most, "has no workgroups for the largest sizes"),
    ):
        with pytest.raises(RuntimeError, match=message):
            exported(tmp_path / "m", function, {"x": torch.randn(8, 12)}, {"x": {0: "n"}})


def test_what_is_stated_wrongly_raises(tmp_path):
    def export(shapes, error, message):
        with pytest.raises(error, match=message):
            exported(tmp_path / "m", lambda x, y: x + y.sum(), given, shapes)

    given = {"x": torch.zeros(4, 5), "y": torch.zeros(4)}
    export({"x": {0: "n", 1: "n"}}, ValueError, "the examples have 4 and 5 for 'n'")
    export({"z": {0: "n"}}, ValueError, "has no input 'z'")
    export({"x": {2: "n"}}, ValueError, "has no dimension 2")
    export({"x": {0: "y"}}, ValueError, "name of an input")
    export({"x": {0: "1n"}}, ValueError, "no identifier")
    export({"x": {0: 5}}, ValueError, "the example has 4")
    export({"x": {0: Dim("n", min=5)}}, ValueError, "the range is 5")
    export({"x": {0: 2 * Dim("n")}}, ValueError, "computed from another one")
    export({"x": {0: 1.5}}, TypeError, "needs a torch.export.Dim")
    export({"x": {0: "n"}, "y": {0: "m"}, "z": {}}, ValueError, "has no input 'z'")
    export({"x": {0: Dim("n", max=8)}, "y": {0: Dim("n", max=9)}}, ValueError, "elsewhere")
    export([{0: "n"}], TypeError, "an entry for each input")


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3, stride=2, groups=2),
        nn.Flatten(),
        nn.Linear(72, 5),
    )


def step_of(loss_of, optimizer):
    def step(**inputs):
        loss = loss_of(**inputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    return step


OPTIMIZERS = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1),
    "SGD": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9),
}


@pytest.mark.sampled("AdamW")
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_training_steps_with_batches_of_any_size(tmp_path, kind):
    reference, model = network(), network().to(DEVICE)
    wanted, optimizer = (OPTIMIZERS[kind](m.parameters()) for m in (reference, model))

    def step_with(model, optimizer):
        def loss_of(x, target):
            model.train()
            return F.cross_entropy(model(x), target)

        return step_of(loss_of, optimizer)

    def classify(x):
        model.eval()
        with torch.no_grad():
            return model(x).argmax(1)

    def batch(n):
        return {"x": torch.randn(n, 2, 7, 8), "target": torch.randint(0, 5, (n,))}

    dim = Dim("batch", min=2, max=12)
    x, target = batch(3).values()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    options = [dict(group) for group in optimizer.param_groups]
    graph = exported(
        tmp_path / "m",
        {"step": step_with(model, optimizer), "classify": classify},
        {"step": {"x": x, "target": target}, "classify": {"x": x}},
        {"step": {"x": {0: dim}, "target": {0: dim}}, "classify": {"x": {0: dim}}},
        state={"model": model, "optimizer": optimizer},
    )
    # Nothing was executed, and all is as it was.
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert optimizer.state == {}
    assert [dict(group) for group in optimizer.param_groups] == options
    types = (tmp_path / "m.d.ts").read_text()
    assert "/** F32[batch, 2, 7, 8]; batch is 2 to 12 */" in types
    assert "/** I64[batch]; batch is 2 to 12 */" in types

    step = step_with(reference, wanted)
    for k, size in enumerate((12, 2, 5, 12, 7)):
        given = batch(size)
        rate = {}
        if k == 3:
            rate = {"lr": torch.tensor(1e-3)}
            for group in wanted.param_groups:
                group["lr"] = 1e-3
        loss = graph["step"](**given, **rate)["loss"].cpu()
        torch.testing.assert_close(loss, step(**given)["loss"], rtol=1e-3, atol=1e-4)
        reference.eval()
        predicted = reference(given["x"]).argmax(1)
        assert torch.equal(graph["classify"](x=given["x"])["output"].cpu(), predicted)
    for name, value in graph.state()["model"].items():
        torch.testing.assert_close(
            value.cpu(), reference.state_dict()[name], rtol=5e-3, atol=1e-3, msg=name
        )


def planes(channels, least=8):
    return (
        lambda n, h: {"x": torch.randn(n, channels, h, h)},
        {"x": {0: "n", 2: Dim("h", min=least), 3: Dim("h", min=least)}},
    )


def rows(width):
    return lambda n: {"x": torch.randn(n, width)}, {"x": {0: Dim("n", min=2)}}


def norms(activation):
    return nn.Sequential(
        nn.Linear(12, 32), nn.LayerNorm(32), activation, nn.Linear(32, 32), nn.LayerNorm(32)
    )


class Of(nn.Module):
    def __init__(self, module, function):
        super().__init__()
        self.module, self.function = module, function

    def forward(self, x):
        return self.function(self.module(x))


TRAINED = {
    "layer norms and ReLU": (lambda: norms(nn.ReLU()), *rows(12), [(9,), (2,), (5,)]),
    "layer norms and GELU": (lambda: norms(nn.GELU()), *rows(12), [(9,), (2,), (5,)]),
    "layers of a transformer": (
        lambda: nn.Sequential(
            *(nn.TransformerEncoderLayer(16, 2, 32, 0, batch_first=True) for _ in range(2))
        ),
        lambda n, length: {"x": torch.randn(n, length, 16)},
        {"x": {0: "n", 1: "length"}},
        [(3, 9), (1, 1), (2, 5)],
    ),
    "strided convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 6, 3, stride=(2, 3))
        ),
        *planes(3),
        [(2, 17), (1, 8), (2, 9), (1, 12)],
    ),
    "transposed convolutions": (
        lambda: nn.Sequential(
            nn.ConvTranspose2d(3, 6, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(6, 4, 3)
        ),
        *planes(3),
        [(2, 12), (1, 8), (2, 9)],
    ),
    "group norms of planes": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 4, 3)
        ),
        *planes(3),
        [(2, 12), (1, 8), (2, 9)],
    ),
    "batch norms and maxima of planes": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 4, 3)
        ),
        *planes(3),
        [(2, 15), (1, 8), (2, 9)],
    ),
    "averages of planes": (
        lambda: nn.Sequential(nn.Conv2d(3, 6, 3), nn.AdaptiveAvgPool2d((2, 3)), nn.Flatten()),
        *planes(3),
        [(2, 12), (1, 8), (2, 9)],
    ),
    "deviations": (lambda: Of(nn.Linear(6, 7), lambda x: x.std(0)), *rows(6), [(9,), (2,), (5,)]),
    "parts of odd rows": (
        lambda: Of(nn.Linear(6, 7), lambda x: torch.cat([x.tanh(), x[:1], x])),
        *rows(6),
        [(9,), (2,), (5,)],
    ),
    "sorted rows": (
        lambda: Of(nn.Linear(6, 7), lambda x: x.sort(0).values[:2] * x.topk(2, 0).values),
        *rows(6),
        [(9,), (2,), (5,)],
    ),
}


@pytest.mark.sampled("layer norms and ReLU", "parts of odd rows")
@pytest.mark.parametrize("name", TRAINED)
def test_training_of_networks(tmp_path, name):
    """The first size is the largest, and the example's."""
    make_model, make, shapes, sizes = TRAINED[name]
    torch.manual_seed(1)
    reference = make_model()
    model = copy.deepcopy(reference).to(DEVICE)
    wanted, optimizer = (
        torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in (reference, model)
    )

    def step_with(model, optimizer):
        return step_of(lambda x: model(x).pow(2).mean(), optimizer)

    state = {"model": model, "optimizer": optimizer}
    graph = exported(
        tmp_path / "m", step_with(model, optimizer), make(*sizes[0]), shapes, state=state
    )
    step = step_with(reference, wanted)
    for size in sizes:
        given = make(*size)
        torch.testing.assert_close(
            graph(**given)["loss"].cpu(), step(**given)["loss"], rtol=1e-3, atol=1e-5
        )
    for name, value in graph.state()["model"].items():
        torch.testing.assert_close(
            value.cpu(), reference.state_dict()[name], rtol=1e-3, atol=1e-4, msg=name
        )


def test_random_numbers_go_on(tmp_path):
    graph = exported(
        tmp_path / "m", lambda x: F.dropout(x, 0.5), {"x": torch.ones(50)}, {"x": {0: "n"}}
    )
    x = torch.ones(40)
    first = graph(x=x, seed0=3, offset0=0)["output"]
    second = graph(x=x)["output"]
    assert set(first.tolist()) == {0.0, 2.0}
    assert not torch.equal(first, second)
    assert torch.equal(graph(x=x, seed0=3, offset0=0)["output"], first)
    short = graph(x=x[:7], seed0=3, offset0=0)["output"]
    assert torch.equal(short, first[:7])


def test_one_function_may_be_dynamic_and_another_not(tmp_path):
    model = nn.Linear(6, 3).to(DEVICE)
    graph = exported(
        tmp_path / "m",
        {
            "any": lambda x: model(x),
            "two": lambda x: model(x).sort(0).values,
            "more": lambda x: model(x) + 1,
        },
        {"any": torch.zeros(4, 6), "two": torch.zeros(2, 6), "more": torch.zeros(9, 6)},
        {"any": {"x": {0: Dim("n")}}, "more": {"x": {0: Dim("n")}}},
        state={"model": model},
    )
    x = torch.randn(9, 6)  # without a largest size, that of all examples is the largest
    wanted = model(x.to(DEVICE))
    torch.testing.assert_close(graph["more"](x=x)["output"], wanted + 1)
    torch.testing.assert_close(graph["any"](x=x)["output"], wanted)
    torch.testing.assert_close(graph["two"](x=x[:2])["output"], wanted[:2].sort(0).values)
    with pytest.raises(ValueError, match="must have the shape"):
        graph["two"](x=x)


def test_state_of_any_size_is_kept(tmp_path):
    total = torch.zeros(6, device=DEVICE)

    def add(x):
        total.add_(x.sum(0))
        return total

    graph = exported(tmp_path / "m", add, {"x": torch.ones(5, 6)}, {"x": {0: "n"}})
    assert not total.any()
    for size, wanted in ((5, 5.0), (1, 6.0), (4, 10.0)):
        assert graph(x=torch.ones(size, 6))["output"].tolist() == [wanted] * 6


def test_quotients_are_expressions():
    values = {"n": 3}
    bits = expressions.evaluate(["f32", 1, "n"], values)
    assert bits == int.from_bytes(torch.tensor(1 / 3).view(torch.int32).numpy().tobytes(), "little")
    with pytest.raises(ValueError, match="has no value"):
        expressions.evaluate(["f32", 1, ["-", "n", 3]], values)


class Running(nn.Module):
    def __init__(self, in_place):
        super().__init__()
        self.in_place, self.last = in_place, None
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        mean = self.mean * 0.9 + x.mean(0)
        if self.in_place:
            self.mean.copy_(mean)
        else:
            self.mean = mean
        self.last = x * 2
        return x - self.mean


@pytest.mark.parametrize("shapes", [None, {"x": {0: "n"}}], ids=["fixed", "dynamic"])
def test_modules_keep_their_tensors(tmp_path, shapes):
    for in_place in (True, False):
        module = Running(in_place).to(DEVICE)
        mean = module.mean
        given = {"x": torch.ones(4, 3, device=DEVICE)}
        if in_place:
            exported(tmp_path / "m", module, given, shapes)
        else:
            with pytest.raises(RuntimeError, match=r"the buffer Running\.mean is assigned"):
                exported(tmp_path / "m", module, given, shapes)
        assert module.mean is mean and module.last is None
        assert mean.tolist() == [0] * 3
