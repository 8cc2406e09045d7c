"""Ultralytics' YOLO: device strings, prediction, training. Needs a torchvision that fits torch."""

import numpy
import pytest
import torch

try:
    import torchvision  # noqa: F401

    ultralytics = pytest.importorskip("ultralytics")
except (ImportError, RuntimeError) as error:  # a torchvision of another torch raises the latter
    pytest.skip(f"torchvision cannot be used: {error}", allow_module_level=True)

import cv2
from ultralytics.utils.torch_utils import parse_device, select_device


@pytest.fixture(autouse=True)
def quiet(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # where it writes


def test_device_strings(enable):
    for device in ("webgpu", "webgpu:0", torch.device("webgpu")):
        assert select_device(device) == torch.device("webgpu", 0)
    assert parse_device("webgpu:0") == "webgpu:0"
    with pytest.raises(RuntimeError, match="invalid device ordinal 4"):
        select_device("webgpu:4")
    assert select_device("") == select_device("cpu") == torch.device("cpu")
    enable("ultralytics")
    assert select_device("") == torch.device("webgpu", 0)
    assert select_device("cpu") == torch.device("cpu")


def test_prediction():
    torch.manual_seed(1)
    model = ultralytics.YOLO("yolov8n.yaml")
    image = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        model.model.eval()
        expected = model.model(image)[0]
        actual = model.model.webgpu()(image.webgpu())[0]
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-3, atol=1e-3)
    pixels = (image[0].permute(1, 2, 0).numpy() * 255).astype("uint8")
    results = model.predict(pixels, device="webgpu", imgsz=64, verbose=False)
    assert results[0].boxes.data.device.type == "webgpu"


@pytest.mark.parametrize("amp", [False, True])
def test_training(tmp_path, amp):
    images, labels = tmp_path / "images", tmp_path / "labels"
    images.mkdir()
    labels.mkdir()
    numbers = numpy.random.default_rng(2)
    for index in range(4):
        image = numbers.integers(0, 80, (32, 32, 3), dtype="uint8")
        image[8:24, 8:24] = 255
        cv2.imwrite(str(images / f"{index}.png"), image)
        (labels / f"{index}.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    data = tmp_path / "data.yaml"
    data.write_text(f"path: {tmp_path}\ntrain: images\nval: images\nnames: {{0: square}}\n")
    model = ultralytics.YOLO("yolov8n.yaml")
    model.train(
        data=data,
        device="webgpu",
        epochs=1,
        imgsz=32,
        batch=2,
        amp=amp,
        workers=0,
        val=False,
        plots=False,
        project=tmp_path,
        verbose=False,
    )
    trainer = model.trainer
    assert next(trainer.model.parameters()).device.type == "webgpu"
    assert trainer.scaler._device == "webgpu" and trainer.scaler.is_enabled() == amp
    losses = trainer.loss_items
    losses = list(losses.values()) if isinstance(losses, dict) else list(losses)
    assert torch.stack(losses).isfinite().all()
