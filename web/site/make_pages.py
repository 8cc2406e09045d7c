"""`python web/site/make_pages.py` writes what the pages load into web/dist/site."""

import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F

ROOT = pathlib.Path(__file__).resolve().parents[2]
SITE = ROOT / "web" / "dist" / "site"
sys.path.insert(0, str(ROOT))


def digits(folder: pathlib.Path) -> None:
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
        types=True,
    )
    images = torch.cat([data.train_images, data.test_images])
    labels = torch.cat([data.train_labels, data.test_labels])
    counts = np.array([len(data.train_labels), len(data.test_labels)], "<u4")
    with (folder / "digits.bin").open("wb") as file:
        file.write(counts.tobytes())
        file.write((images * 16).round().to(torch.uint8).numpy().tobytes())
        file.write(labels.to(torch.uint8).numpy().tobytes())


def main() -> None:
    digits(SITE / "digits")


if __name__ == "__main__":
    main()
