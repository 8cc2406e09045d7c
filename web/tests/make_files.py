"""`python web/tests/make_files.py` writes the graph files of the tests into web/tests/files.

Results are PyTorch's on the CPU; where random numbers are drawn, they are those of the device,
which the player has to repeat. index.json lists the files with their calls; malformed.json has
programs that a player refuses.
"""

import copy
import importlib
import json
import pathlib
import sys

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from torch_webgpu.graphs._format import PROGRAM_KEY

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ROOT / "web" / "tests" / "files"
DEVICE = "webgpu"
index: list[dict[str, object]] = []


def record(name, calls, rtol=1e-4, atol=1e-5, placed=False):
    """Lists a file with its calls: (function, inputs, outputs) with tensors on any device.

    placed: calls state the shapes of inputs, which nothing else tells."""
    tensors = {}
    for k, (_, inputs, outputs) in enumerate(calls):
        for kind, values in (("in", inputs), ("out", outputs)):
            for key, value in values.items():
                tensors[f"{k}.{kind}.{key}"] = value.detach().cpu().contiguous().clone()
    save_file(tensors, FILES / f"{name}.expected")
    index.append(
        {
            "name": name,
            "rtol": rtol,
            "atol": atol,
            "placed": placed,
            "calls": [
                {"function": f, "inputs": list(inputs), "outputs": list(outputs)}
                for f, inputs, outputs in calls
            ],
        }
    )


def inference(name, model, examples, **tolerance):
    """A model as it infers, compared with the CPU."""
    model = model.eval()
    near = copy.deepcopy(model).to(DEVICE)
    names = [f"x{k}" for k in range(len(examples[0]))]

    def forward(**inputs):
        with torch.no_grad():
            return near(*inputs.values())

    torch.webgpu.export(
        forward, dict(zip(names, examples[0], strict=True)), FILES / name, state={"model": near}
    )
    with torch.no_grad():
        calls = [
            ("forward", dict(zip(names, values, strict=True)), {"output": model(*values)})
            for values in examples
        ]
    record(name, calls, **tolerance)


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 16, 3, stride=2)
        self.out = nn.Linear(16, 5)

    def forward(self, x):
        x = F.max_pool2d(self.norm(self.first(x)).relu(), 2)
        return self.out(self.second(x).relu().mean((2, 3))).softmax(1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.qkv = nn.Linear(32, 96)
        self.out = nn.Linear(32, 32)
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm(x))


def models():
    inference(
        "mlp",
        nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 7)),
        [[torch.randn(5, 20)] for _ in range(2)],
    )
    inference("conv", Convolutions(), [[torch.randn(2, 3, 15, 17)] for _ in range(2)])
    inference("attention", Attention(), [[torch.randn(2, 9, 32)] for _ in range(2)])


def dynamic_sizes():
    """Files whose calls decide sizes; Dim's ranges are what errors.ts expects."""
    model = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 7), nn.LayerNorm(7))
    dynamic_inference(
        "sized",
        model,
        {"x": {0: torch.export.Dim("batch", max=70)}},
        [[torch.randn(n, 20)] for n in (3, 1, 70, 65)],
    )
    dynamic_inference(
        "sized_images",
        Convolutions(),
        {"x": {0: torch.export.Dim("batch", max=4)}},
        [[torch.randn(n, 3, 15, 17)] for n in (2, 1, 4)],
    )
    dynamic_inference(
        "sized_attention",
        Attention(),
        {"x": {0: torch.export.Dim("batch", max=3), 1: torch.export.Dim("length", max=40)}},
        [[torch.randn(*shape, 32)] for shape in ((2, 9), (1, 1), (3, 40), (1, 33))],
        placed=True,
    )


def dynamic_inference(name, model, shapes, examples, **options):
    model = model.eval()
    near = copy.deepcopy(model).to(DEVICE)

    def forward(x):
        with torch.no_grad():
            return near(x)

    torch.webgpu.export(forward, {"x": examples[0][0]}, FILES / name, dynamic_shapes=shapes)
    with torch.no_grad():
        calls = [("forward", {"x": x}, {"output": model(x)}) for (x,) in examples]
    record(name, calls, **options)


class Network(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.dropout = nn.Dropout(dropout)
        self.second = nn.Linear(32, 4)

    def forward(self, x):
        return self.second(self.dropout(self.first(x).relu()))


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.05)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=1e-2, momentum=0.9)


def training(name, dropout, make_optimizer, device, sizes=(12,) * 6, dim=None):
    """Training steps and inference in one file; the results are those of `device`.

    dim: calls decide how many rows a batch has."""
    torch.manual_seed(3)
    model = Network(dropout).to(DEVICE)
    optimizer = make_optimizer(model.parameters())
    reference = model if device == DEVICE else copy.deepcopy(model).to(device)
    wanted = optimizer if device == DEVICE else make_optimizer(reference.parameters())

    def step_of(model, optimizer):
        def step(x, target):
            model.train()
            loss = F.cross_entropy(model(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return {"loss": loss}

        return step

    def classify_of(model):
        def classify(x):
            model.eval()
            with torch.no_grad():
                return {"scores": model(x)}

        return classify

    batches = [(torch.randn(n, 16), torch.randint(0, 4, (n,))) for n in sizes]
    x, target = batches[0]
    torch.webgpu.export(
        {"step": step_of(model, optimizer), "classify": classify_of(model)},
        {"step": {"x": x, "target": target}, "classify": {"x": x}},
        FILES / name,
        dynamic_shapes=dim
        and {"step": {"x": {0: dim}, "target": {0: dim}}, "classify": {"x": {0: dim}}},
        state={"model": model, "optimizer": optimizer},
    )
    step, classify = step_of(reference, wanted), classify_of(reference)
    calls = []
    for k, (x, target) in enumerate(batches):
        given = {"x": x, "target": target}
        if k == 3:
            given["lr"] = torch.tensor(1e-3)
            for group in wanted.param_groups:
                group["lr"] = 1e-3
        calls.append(("step", given, step(x.to(device), target.to(device))))
        if k % 2:
            calls.append(("classify", {"x": x}, classify(x.to(device))))
    record(name, calls, rtol=2e-4, atol=2e-5)
    save_file(
        {key: value.detach().cpu().clone() for key, value in reference.state_dict().items()},
        FILES / f"{name}.state",
    )


def dtypes():
    def f(i64, b, f16, i32, u8, f32):
        return {
            "i64": i64 * 3_000_000_000 - 1,
            "b": ~b | (i32 > 1),
            "f16": f16 * 1.5,
            "i32": i32 - u8.to(torch.int32),
            "u8": u8 + 1,
            "f32": torch.where(b, f32, -f32),
        }

    def example():
        return {
            "i64": torch.randint(-(1 << 31), 1 << 31, (7,)) * 5,
            "b": torch.randint(0, 2, (7,)).bool(),
            "f16": (torch.randn(7) * 100).half(),
            "i32": torch.randint(-5, 5, (7,), dtype=torch.int32),
            "u8": torch.randint(0, 255, (7,), dtype=torch.uint8),
            "f32": torch.randn(7),
        }

    examples = [example() for _ in range(2)]
    torch.webgpu.export(f, examples[0], FILES / "dtypes")
    record("dtypes", [("f", given, f(**given)) for given in examples], rtol=0, atol=0)


def half_floats():
    """Without the variant for CPUs, so that an adapter with half floats takes that for those."""
    torch.manual_seed(12)
    model = nn.Sequential(nn.Linear(32, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 8))
    model.requires_grad_(False)
    near = copy.deepcopy(model).half().to(DEVICE)
    x = torch.randn(5, 32).half()
    path = FILES / "halves"
    torch.webgpu.export(lambda x: near(x).softmax(-1), {"x": x}, path)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    program = json.loads(metadata[PROGRAM_KEY])
    for function in program["functions"].values():
        function["variants"] = [
            v for v in function["variants"] if not v["requires"].get("software")
        ]
    save_file(load_file(path), path, metadata={**metadata, PROGRAM_KEY: json.dumps(program)})
    wanted = model(x.float()).softmax(-1).half()
    record("halves", [("call", {"x": x}, {"output": wanted})], rtol=5e-3, atol=5e-3)


def unusual_views():
    """Inputs that no command uses, tensors without elements, outputs within others."""

    def f(x, unused, nothing):
        inner = {"same": unused, "none": None}
        return {"y": (x * 2, torch.cat([x, nothing])), "inner": inner, "nothing": nothing}

    given = {"x": torch.randn(3), "unused": torch.tensor([True, False]), "nothing": torch.zeros(0)}
    torch.webgpu.export(f, given, FILES / "views")
    wanted = {
        "y0": given["x"] * 2,
        "y1": given["x"],
        "inner_same": given["unused"],
        "nothing": given["nothing"],
    }
    record("views", [("f", given, wanted)])


def random_numbers():
    torch.manual_seed(11)

    def draw(x):
        return {"uniform": torch.rand_like(x), "normal": torch.randn_like(x) + x}

    x = torch.zeros(1000)
    torch.webgpu.export(draw, [x], FILES / "random")
    record("random", [("draw", {"x": x}, draw(x.to(DEVICE))) for _ in range(3)])


def captured():
    """What Graph.save writes: version 1."""
    model = nn.Linear(6, 3).to(DEVICE)
    x = torch.randn(4, 6, device=DEVICE)
    count = torch.zeros(1, device=DEVICE)
    graph = torch.webgpu.Graph()
    with torch.no_grad(), torch.webgpu.graph(graph):
        count.add_(1)
        y = model(x) * count
    model.register_buffer("unused", torch.arange(3.0, device=DEVICE))
    graph.save(
        FILES / "captured",
        inputs={"x": x},
        outputs={"y": y, "count": count},
        state={"model": model, "options": {"depth": 3, "rate": 0.5, "name": "a"}},
    )
    calls = []
    for k in range(3):
        given = torch.randn(4, 6)
        wanted = (given @ model.weight.cpu().T + model.bias.cpu()) * (k + 1)
        calls.append(("run", {"x": given}, {"y": wanted, "count": torch.tensor([k + 1.0])}))
    record("captured", calls)


def errors():
    table = nn.Embedding(10, 4).to(DEVICE)
    torch.webgpu.export(lambda i: table(i), {"i": torch.tensor([1, 2, 3])}, FILES / "index")
    index = torch.tensor([9, 0, 4])
    record("index", [("call", {"i": index}, {"output": table(index.to(DEVICE))})])


def weights():
    """A file large enough to be fetched in several requests."""
    inference("wide", nn.Linear(700, 600, bias=False), [[torch.randn(2, 700)]])


def malformed():
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "graphs")]
    module = importlib.import_module("test_files")
    (FILES / "example.json").write_text(json.dumps(module.example()))
    programs = {}
    for name in module.MALFORMED:
        if name != "too few parameters":  # which a player plays
            programs[name] = module.malformed(name)
    (FILES / "malformed.json").write_text(json.dumps(programs))


def main() -> None:
    FILES.mkdir(exist_ok=True)
    torch.manual_seed(0)
    models()
    training("training", 0.0, adamw, "cpu")
    training("dropout", 0.25, sgd, DEVICE)
    dynamic_sizes()
    batch = torch.export.Dim("batch", max=12)
    training("sized_training", 0.0, adamw, "cpu", (12, 1, 7, 12, 3, 11), batch)
    dtypes()
    half_floats()
    unusual_views()
    random_numbers()
    captured()
    errors()
    weights()
    malformed()
    (FILES / "index.json").write_text(json.dumps(index))


if __name__ == "__main__":
    main()
