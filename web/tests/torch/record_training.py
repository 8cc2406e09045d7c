"""Records networks that PyTorch trains: web/tests/files/torch/training.json, with the state dicts
as .pt and as .safetensors files beside it.
"""

import json
import pathlib

import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn

OUT = pathlib.Path(__file__).parents[1] / "files" / "torch"
STEPS = 15
BATCH = 32


def mlp():
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 10))


def convolutional():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.GELU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, stride=2),
        nn.Flatten(),
        nn.Linear(8, 10),
    )


class Attention(nn.Module):
    """Digits as sequences of eight rows."""

    def __init__(self):
        super().__init__()
        self.place = nn.Embedding(8, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.out = nn.Linear(64, 10)

    def forward(self, x):
        x = x + self.place(torch.arange(8))
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        return self.out(x.flatten(1))


RUNS = {
    "mlp-sgd": (mlp, (64,), lambda p: torch.optim.SGD(p, lr=0.1)),
    "mlp-momentum": (
        mlp,
        (64,),
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3),
    ),
    "mlp-adam": (
        mlp,
        (64,),
        lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=1e-3, amsgrad=True),
    ),
    "conv-adamw": (convolutional, (1, 8, 8), lambda p: torch.optim.AdamW(p, lr=0.01)),
    "attention-sgd": (Attention, (8, 8), lambda p: torch.optim.SGD(p, lr=0.1)),
}


def prints():
    """Tensors whose text takes every branch of the format."""
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(3, 5, generator=generator)
    inf, nan = float("inf"), float("nan")
    return [
        normal,
        normal[0],
        normal.half(),
        normal * 1e-6,
        normal * 1e9,
        torch.tensor([1.0, 2.0, -30.0]),
        torch.tensor([1.0, inf, nan, -inf, 0.0]),
        torch.tensor([0.5, inf, nan]),
        torch.tensor([nan, nan]),
        torch.tensor([0.03125, 0.5]),
        torch.tensor(3.5),
        torch.tensor(7),
        torch.tensor([1, -20, 300]),
        torch.tensor([1, 2], dtype=torch.int32),
        torch.tensor([[True, False]]),
        torch.empty(0),
        torch.empty(2, 0),
        torch.empty(0, dtype=torch.int64),
        torch.arange(30.0),
        torch.arange(2000),
        torch.randn(40, 40, generator=generator),
        torch.randn(2, 3, 4, generator=generator),
    ]


def promotions():
    """Operators on two operands of all dtypes: dtype and values of the result."""
    dtypes = ["float32", "float16", "int32", "int64", "bool"]
    operands = [[name, values] for name in dtypes for values in ([1, 0, 2], 1)]
    numbers = [["number", 2], ["number", 0.5], ["number", True]]
    result = []
    for op in ("add", "div"):
        for a in operands:
            # Each pair of dtypes takes a shader, so the second operator has a part of them.
            if op == "div" and isinstance(a[1], int):
                continue
            for b in [*operands, *numbers]:
                x = torch.tensor(a[1], dtype=getattr(torch, a[0]))
                y = b[1] if b[0] == "number" else torch.tensor(b[1], dtype=getattr(torch, b[0]))
                out = getattr(torch, op)(x, y)
                name = str(out.dtype).removeprefix("torch.")
                result.append([op, a, b, [name, out.float().nan_to_num(99, 98).tolist()]])
    return result


def checkpoints():
    """What people save beside state dicts, with dtypes that WGSL does not have."""
    model = nn.Linear(2, 2)
    tied = torch.arange(3.0)
    torch.save(
        {
            "model": model.state_dict(),
            "optimizer": torch.optim.Adam(model.parameters(), lr=0.5).state_dict(),
            "epoch": 3,
            "best": 0.25,
            "name": "run",
            "done": True,
            "nothing": None,
            "large": 2**60,
            "losses": [1.5, [2, "x"]],
            "size": torch.Size([2, 3]),
            "dtype": torch.bfloat16,
            "tied": [tied, tied],
            "__proto__": 1,
        },
        OUT / "checkpoint.pt",
    )
    torch.save(torch.tensor([1, 2]), OUT / "tensor.pt")
    itself = []
    itself.append(itself)
    torch.save({"list": itself}, OUT / "itself.pt")
    deep = []
    for _ in range(200):
        deep = [deep]
    torch.save(deep, OUT / "deep.pt")
    values = {
        "bfloat16": torch.tensor([1.0, -2.5, 3.140625], dtype=torch.bfloat16),
        "float64": torch.tensor([0.1, -1e300, 2.0], dtype=torch.float64),
        "uint8": torch.tensor([0, 200, 255], dtype=torch.uint8),
        "int8": torch.tensor([-128, 0, 127], dtype=torch.int8),
        "int16": torch.tensor([-32768, 0, 32767], dtype=torch.int16),
    }
    torch.save({name: value[1:] for name, value in values.items()}, OUT / "dtypes.pt")
    save_file(values, OUT / "dtypes.safetensors")


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images[: STEPS * BATCH], dtype=torch.float32) / 16
    y = torch.tensor(labels[: STEPS * BATCH], dtype=torch.int64)
    save_file({"x": x, "y": y}, OUT / "digits.safetensors")
    record = {"steps": STEPS, "batch": BATCH, "runs": {}}
    for name, (make, shape, optimizer_of) in RUNS.items():
        torch.manual_seed(0)
        model = make()
        torch.save(model.state_dict(), OUT / f"{name}.pt")
        optimizer = optimizer_of(model.parameters())
        losses = []
        for k in range(STEPS):
            if k == STEPS // 2:
                half = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(half, OUT / f"{name}-half.pt")
            batch = slice(k * BATCH, (k + 1) * BATCH)
            loss = nn.functional.cross_entropy(model(x[batch].reshape(-1, *shape)), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        save_file(model.state_dict(), OUT / f"{name}.safetensors")
        record["runs"][name] = {"losses": losses, "shape": list(shape)}
    # What torch.save keeps of views: one storage, strides, offsets.
    whole = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    views = {
        "whole": whole,
        "part": whole[1:3, 2:5],
        "transposed": whole.t(),
        "inner": {"half": whole.half(), "mask": whole > 5, "long": torch.tensor([-(2**40), 7])},
        "parameter": nn.Parameter(whole[0].clone()),
        "empty": torch.empty(0, 3),
    }
    torch.save(views, OUT / "views.pt")
    torch.save(nn.Linear(2, 2), OUT / "module.pt")
    checkpoints()
    record["promotions"] = promotions()
    printed = prints()
    save_file({str(k): t.clone() for k, t in enumerate(printed)}, OUT / "prints.safetensors")
    record["prints"] = [str(t) for t in printed]
    (OUT / "training.json").write_text(json.dumps(record))


if __name__ == "__main__":
    main()
