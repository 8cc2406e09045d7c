"""timm: image models of several families, training helpers. Needs a torchvision that fits torch."""

import copy

import pytest
import torch
import torch.nn.functional as F

try:
    import torchvision  # noqa: F401

    timm = pytest.importorskip("timm")
except (ImportError, RuntimeError) as error:  # a torchvision of another torch raises the latter
    pytest.skip(f"torchvision cannot be used: {error}", allow_module_level=True)

from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3, NativeScaler

DEVICE = "webgpu"


def images(size, batch=2):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(batch, 3, size, size, generator=generator)


# One of each way to build a model, made small.
MODELS = {
    "test_resnet": {},
    "test_vit": {"img_size": 64},
    "test_efficientnet": {},
    "test_convnext": {},
    "mobilenetv3_small_050": {},
    "swin_tiny_patch4_window7_224": {
        "img_size": 56,
        "embed_dim": 24,
        "depths": (1, 1, 1, 1),
        "num_heads": (2, 2, 2, 2),
    },
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    torch.manual_seed(2)
    model = timm.create_model(name, num_classes=10, **MODELS[name]).eval()
    here = copy.deepcopy(model).to(DEVICE)
    x, labels = images(MODELS[name].get("img_size", 64)), torch.tensor([3, 7])
    expected, actual = model(x), here(x.to(DEVICE))
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-3, atol=1e-4)
    F.cross_entropy(expected, labels).backward()
    F.cross_entropy(actual, labels.to(DEVICE)).backward()
    for one, other in zip(here.parameters(), model.parameters(), strict=True):
        if other.grad is not None:
            scale = other.grad.abs().max().item()
            torch.testing.assert_close(
                one.grad.cpu(), other.grad, rtol=1e-2, atol=1e-3 * scale + 1e-6
            )


def test_features_of_several_sizes():
    torch.manual_seed(2)
    model = timm.create_model("test_resnet", features_only=True).eval()
    here = copy.deepcopy(model).to(DEVICE)
    for one, other in zip(here(images(64).to(DEVICE)), model(images(64)), strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "lamb"])
def test_training(optimizer):
    losses = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(2)
        model = timm.create_model("test_resnet", num_classes=4, drop_rate=0).to(device)
        update = create_optimizer_v2(model, opt=optimizer, lr=1e-2, weight_decay=0.05)
        average = ModelEmaV3(model, decay=0.9)
        x, labels = images(32, 4).to(device), torch.arange(4, device=device)
        for _ in range(3):
            loss = F.cross_entropy(model(x), labels, label_smoothing=0.1)
            update.zero_grad()
            loss.backward()
            update.step()
            average.update(model)
            losses.append(loss.item())
        with torch.no_grad():
            losses.append(F.cross_entropy(average.module.eval()(x), labels).item())
    assert losses[4:] == pytest.approx(losses[:4], rel=2e-2)


def test_mixed_precision_with_mixed_images():
    torch.manual_seed(2)
    model = timm.create_model("test_vit", num_classes=4, img_size=32).to(DEVICE)
    mix = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=4)
    update = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scale = NativeScaler(device=DEVICE)
    x, target = mix(images(32, 4).to(DEVICE), torch.arange(4, device=DEVICE))
    losses = []
    for _ in range(4):
        with torch.autocast(DEVICE, dtype=torch.float16):
            loss = SoftTargetCrossEntropy()(model(x), target)
        update.zero_grad()
        scale(loss, update, clip_grad=1.0, parameters=model.parameters())
        losses.append(loss.item())
    assert losses[-1] < losses[0]
