"""torchvision: models, operators, transforms. Needs one made for the installed torch."""

import copy

import pytest
import torch
import torch.nn.functional as F

try:
    torchvision = pytest.importorskip("torchvision")
    PRESENT = torchvision.extension._has_ops()
except (ImportError, RuntimeError) as error:  # a torchvision of another torch raises the latter
    pytest.skip(f"torchvision cannot be used: {error}", allow_module_level=True)
if not PRESENT:
    pytest.skip("torchvision's library cannot be loaded", allow_module_level=True)

from torchvision import models, ops, tv_tensors
from torchvision.transforms import v2

DEVICE = "webgpu"


def random(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(1))


def near(actual, expected, rtol=1e-3, atol=1e-3):
    """`atol` is a share of the largest element."""
    scale = expected.abs().max().item() if expected.numel() else 0
    torch.testing.assert_close(
        actual.detach().cpu(), expected.detach(), rtol=rtol, atol=atol * scale
    )


def same_gradients(here, model, rtol=1e-2):
    pairs = zip(here.named_parameters(), model.named_parameters(), strict=True)
    for (name, one), (_, other) in pairs:
        assert (one.grad is None) == (other.grad is None), name
        if other.grad is not None:
            difference = (one.grad.cpu() - other.grad).norm()
            assert difference <= rtol * other.grad.norm() + 1e-6, name


CLASSIFIERS = {
    "alexnet": {},
    "densenet121": {"growth_rate": 8, "block_config": (2, 2, 2, 2), "num_init_features": 16},
    "efficientnet_b0": {},
    "mnasnet0_5": {},
    "mobilenet_v3_small": {},
    "regnet_y_400mf": {},
    "resnet18": {},
    "shufflenet_v2_x0_5": {},
    "squeezenet1_1": {},
}


def check_model(model, x, loss):
    here = copy.deepcopy(model).to(DEVICE)
    expected, actual = model(x), here(x.to(DEVICE))
    near(loss(actual), loss(expected))
    loss(expected).backward()
    loss(actual).backward()
    same_gradients(here, model)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers(name):
    torch.manual_seed(2)
    if name == "densenet121":
        model = models.DenseNet(**CLASSIFIERS[name], num_classes=10)
    else:
        model = models.get_model(name, weights=None, num_classes=10)
    labels = torch.tensor([3, 7])
    check_model(
        model.eval(), random(2, 3, 64, 64), lambda y: F.cross_entropy(y, labels.to(y.device))
    )


@pytest.mark.parametrize("name", ["vit", "swin", "convnext"])
def test_transformers(name):
    torch.manual_seed(2)
    if name == "vit":
        model = models.VisionTransformer(32, 8, 2, 4, 48, 96, num_classes=10)
    elif name == "swin":
        options = {"depths": [1, 2], "num_heads": [2, 4], "window_size": [4, 4]}
        block = models.swin_transformer.SwinTransformerBlockV2
        merging = models.swin_transformer.PatchMergingV2
        model = models.SwinTransformer(
            [4, 4], 16, **options, num_classes=10, block=block, downsample_layer=merging
        )
    else:
        setting = models.convnext.CNBlockConfig
        model = models.ConvNeXt([setting(16, 32, 1), setting(32, None, 2)], num_classes=10)
    labels = torch.tensor([3, 7])
    check_model(
        model.eval(), random(2, 3, 32, 32), lambda y: F.cross_entropy(y, labels.to(y.device))
    )


@pytest.mark.parametrize("name", ["lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large"])
def test_segmentation(name):
    torch.manual_seed(2)
    model = models.get_model(name, weights=None, weights_backbone=None, num_classes=5).eval()
    check_model(model, random(1, 3, 64, 64), lambda y: y["out"].square().mean())


def test_video():
    torch.manual_seed(2)
    model = models.get_model("r3d_18", weights=None, num_classes=5).eval()
    check_model(model, random(1, 3, 4, 32, 32), lambda y: y.square().mean())


@pytest.mark.further
def test_optical_flow():
    torch.manual_seed(2)
    model = models.get_model("raft_small", weights=None).eval()
    first, second = random(2, 1, 3, 128, 128)
    with torch.no_grad():
        expected = model(first, second, num_flow_updates=2)[-1]
        actual = model.to(DEVICE)(first.to(DEVICE), second.to(DEVICE), num_flow_updates=2)[-1]
    near(actual, expected)


# Models that take all candidates, for those that sample them choose others on each device.
ALL = 1 << 20
DETECTORS = {
    "fasterrcnn_mobilenet_v3_large_320_fpn": {
        "rpn_batch_size_per_image": ALL,
        "box_batch_size_per_image": ALL,
    },
    "maskrcnn_resnet50_fpn": {"rpn_batch_size_per_image": ALL, "box_batch_size_per_image": ALL},
    "retinanet_resnet50_fpn": {},
    "fcos_resnet50_fpn": {},
    "ssdlite320_mobilenet_v3_large": {},
}
SIZE = {"min_size": 64, "max_size": 64}


def moved(data, device):
    if isinstance(data, dict):
        return {name: moved(value, device) for name, value in data.items()}
    if isinstance(data, list):
        return [moved(value, device) for value in data]
    return data.to(device)


@pytest.mark.parametrize("name", DETECTORS)
def test_detection(name):
    torch.manual_seed(2)
    size = {} if name.startswith("ssd") else SIZE
    model = models.get_model(
        name, weights=None, weights_backbone=None, num_classes=4, **DETECTORS[name], **size
    )
    here = copy.deepcopy(model).to(DEVICE)
    images = [random(3, 64, 64), random(3, 48, 64)]
    target = {
        "boxes": torch.tensor([[4.0, 4.0, 40.0, 44.0], [20.0, 10.0, 60.0, 46.0]]),
        "labels": torch.tensor([1, 3]),
        "masks": (random(2, 64, 64) > 0.5).to(torch.uint8),
    }
    targets = [target, {**target, "masks": target["masks"][:, :48]}]
    for one in (model, here):
        one.train()
        for module in one.modules():  # two images are too few for statistics of a batch
            if isinstance(module, torch.nn.BatchNorm2d | torch.nn.Dropout):
                module.eval()
    expected = model(images, targets)
    actual = here(moved(images, DEVICE), moved(targets, DEVICE))
    assert expected.keys() == actual.keys()
    for loss, value in expected.items():
        near(actual[loss], value, rtol=1e-2)
    sum(expected.values()).backward()
    sum(actual.values()).backward()
    if name != "ssdlite320_mobilenet_v3_large":  # there the CPU's are rounding errors, too
        # Signs of activations next to zero differ: in float32 the CPU's own are off by 0.02.
        same_gradients(here, model, rtol=0.1)

    model.eval()
    here.eval()
    with torch.no_grad():
        found = here(moved(images, DEVICE))
    for result in found:
        assert result["boxes"].device.type == result["scores"].device.type == DEVICE
        assert len(result["boxes"]) == len(result["labels"]) == len(result["scores"])


def test_operators():
    boxes = random(40, 4) * 20
    boxes[:, 2:] += boxes[:, :2] + 1
    scores, groups = random(40), torch.arange(40) % 3
    here = boxes.to(DEVICE)
    for one in (ops.box_iou, ops.generalized_box_iou, ops.distance_box_iou, ops.complete_box_iou):
        near(one(here, here[:9]), one(boxes, boxes[:9]))
    for actual, expected in (
        (ops.nms(here, scores.to(DEVICE), 0.3), ops.nms(boxes, scores, 0.3)),
        (
            ops.batched_nms(here, scores.to(DEVICE), groups.to(DEVICE), 0.3),
            ops.batched_nms(boxes, scores, groups, 0.3),
        ),
        (ops.remove_small_boxes(here, 9), ops.remove_small_boxes(boxes, 9)),
    ):
        assert torch.equal(actual.cpu(), expected)
    near(ops.box_convert(here, "xyxy", "cxcywh"), ops.box_convert(boxes, "xyxy", "cxcywh"))
    x, target = random(40, 3), (random(40, 3) > 0.5).float()
    near(ops.sigmoid_focal_loss(x.to(DEVICE), target.to(DEVICE)), ops.sigmoid_focal_loss(x, target))


@pytest.mark.parametrize("name", ["roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool"])
def test_regions(name):
    regions = torch.tensor([[0.0, 1, 1, 20, 24], [1.0, 4, 0, 12, 30], [0.0, 0, 0, 31, 31]])
    pool = getattr(ops, name)
    x = random(2, 8, 32, 32).requires_grad_()
    here = x.detach().to(DEVICE).requires_grad_()
    expected, actual = pool(x, regions, 2), pool(here, regions.to(DEVICE), 2)
    near(actual, expected)
    expected.square().sum().backward()
    actual.square().sum().backward()
    near(here.grad, x.grad)


def test_deformable_convolution():
    torch.manual_seed(2)
    layer = ops.DeformConv2d(4, 6, 3, padding=1)
    offset, mask = random(2, 18, 9, 9) * 2 - 1, random(2, 9, 9, 9)
    x = random(2, 4, 9, 9)
    here = copy.deepcopy(layer).to(DEVICE)
    expected = layer(x, offset, mask)
    actual = here(x.to(DEVICE), offset.to(DEVICE), mask.to(DEVICE))
    near(actual, expected)
    expected.square().sum().backward()
    actual.square().sum().backward()
    same_gradients(here, layer)


TRANSFORMS = {
    "affine": lambda x: v2.functional.affine(x, 20.0, [2, -3], 1.2, [5.0, 3.0]),
    "autocontrast": v2.functional.autocontrast,
    "blur": lambda x: v2.functional.gaussian_blur(x, [5, 3], [1.1, 0.7]),
    "brightness": lambda x: v2.functional.adjust_brightness(x, 1.3),
    "crop": lambda x: v2.functional.resized_crop(x, 3, 2, 20, 17, [24, 24], antialias=True),
    "elastic": lambda x: v2.functional.elastic(x, (random(1, 32, 40, 2) * 0.1).to(x.device)),
    "equalize": v2.functional.equalize,
    "flip": v2.functional.horizontal_flip,
    "gray": v2.functional.rgb_to_grayscale,
    "hue": lambda x: v2.functional.adjust_hue(x, 0.1),
    "pad": lambda x: v2.functional.pad(x, [1, 2, 3, 4], padding_mode="reflect"),
    "perspective": lambda x: v2.functional.perspective(
        x, [[0, 0], [39, 0], [39, 31], [0, 31]], [[2, 1], [36, 3], [38, 30], [1, 28]]
    ),
    "posterize": lambda x: v2.functional.posterize(x, 3),
    "rotate": lambda x: v2.functional.rotate(x, 30.0),
    "saturation": lambda x: v2.functional.adjust_saturation(x, 0.6),
    "sharpness": lambda x: v2.functional.adjust_sharpness(x, 1.7),
    "solarize": lambda x: v2.functional.solarize(x, 0.4 if x.is_floating_point() else 100),
}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_transforms(name, dtype):
    x = random(2, 3, 32, 40)
    x = (x * 255).to(dtype) if dtype == torch.uint8 else x
    if name == "posterize" and dtype == torch.float32:
        x = (x * 255).to(torch.uint8).float() / 255  # steps of 32 have neighbours on both sides
    transform = TRANSFORMS[name]
    actual, expected = transform(x.to(DEVICE)), transform(x)
    assert actual.device.type == DEVICE and actual.dtype == expected.dtype
    if dtype == torch.uint8:  # a sum that is rounded may be next to a half
        assert (actual.cpu().int() - expected.int()).abs().max() <= 1
    else:
        near(actual, expected)


def test_pipeline_of_annotated_images():
    image = tv_tensors.Image((random(3, 32, 40) * 255).to(torch.uint8), device=DEVICE)
    boxes = tv_tensors.BoundingBoxes(
        torch.tensor([[4, 4, 20, 16]]), format="XYXY", canvas_size=(32, 40), device=DEVICE
    )
    pipeline = v2.Compose(
        [
            v2.RandomHorizontalFlip(1.0),
            v2.Resize((16, 20), antialias=True),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.5] * 3, [0.25] * 3),
        ]
    )
    out, moved_boxes = pipeline(image, boxes)
    assert isinstance(out, tv_tensors.Image) and out.device.type == DEVICE
    assert moved_boxes.cpu().tolist() == [[10, 2, 18, 8]]
    expected = v2.functional.to_dtype(
        v2.functional.resize(image.cpu().flip(-1), [16, 20], antialias=True), torch.float32, True
    )
    torch.testing.assert_close(out.cpu(), (expected - 0.5) / 0.25, rtol=0, atol=0.02)


def test_mixing():
    labels = torch.tensor([0, 1, 2, 3])
    for mix in (v2.MixUp(num_classes=5), v2.CutMix(num_classes=5)):
        torch.manual_seed(3)
        images, targets = mix(random(4, 3, 8, 8).to(DEVICE), labels.to(DEVICE))
        assert images.device.type == targets.device.type == DEVICE
        torch.testing.assert_close(targets.sum(1).cpu(), torch.ones(4))
