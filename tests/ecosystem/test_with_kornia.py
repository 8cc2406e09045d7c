"""kornia: filters, geometry, colours, losses, features and augmentation, against the CPU's."""

import copy

import pytest
import torch

kornia = pytest.importorskip("kornia")

from kornia import (  # noqa: E402
    augmentation,
    color,
    enhance,
    feature,
    filters,
    geometry,
    losses,
    morphology,
)

DEVICE = "webgpu"


def images(batch=2, channels=3, rows=24, columns=20):
    return torch.rand(batch, channels, rows, columns, generator=torch.Generator().manual_seed(1))


def near(actual, expected, **tolerances):
    assert actual.device.type == DEVICE and actual.dtype == expected.dtype
    torch.testing.assert_close(actual.cpu(), expected, **{"rtol": 1e-3, "atol": 1e-4, **tolerances})


def homography(device):
    matrix = torch.tensor([[1.0, 0.1, 2.0], [-0.05, 0.9, 1.0], [1e-3, 2e-3, 1.0]])
    return matrix.expand(2, 3, 3).to(device)


def points(device):
    """Four corners of a square, and where they are in a picture."""
    square = torch.tensor([[[0.0, 0.0], [9.0, 0.0], [9.0, 9.0], [0.0, 9.0]]])
    return square.to(device), (square * 0.8 + torch.tensor([2.0, 1.0])).to(device)


IMAGES = {
    "gaussian blur": lambda x: filters.gaussian_blur2d(x, (5, 5), (1.5, 1.5)),
    "box blur": lambda x: filters.box_blur(x, (3, 3)),
    "median blur": lambda x: filters.median_blur(x, (3, 3)),
    "bilateral blur": lambda x: filters.bilateral_blur(x, (3, 3), 0.1, (1.5, 1.5)),
    "Sobel": filters.sobel,
    "Laplacian": lambda x: filters.laplacian(x, 3),
    "Canny": lambda x: filters.canny(x)[0],
    "unsharp mask": lambda x: filters.unsharp_mask(x, (3, 3), (1.5, 1.5)),
    "gradients": filters.spatial_gradient,
    "affine": lambda x: geometry.warp_affine(x, homography(x.device)[:, :2], (18, 22)),
    "perspective": lambda x: geometry.warp_perspective(x, homography(x.device), (18, 22)),
    "rotation": lambda x: geometry.rotate(x, torch.tensor([30.0, -45.0], device=x.device)),
    "resize": lambda x: geometry.resize(x, (15, 31), antialias=True),
    "pyramid": lambda x: geometry.build_pyramid(x, 3)[-1],
    "flip": geometry.hflip,
    "elastic": lambda x: geometry.elastic_transform2d(x, torch.ones(2, 2, 24, 20).to(x) * 0.3),
    "grayscale": color.rgb_to_grayscale,
    "HSV": lambda x: color.hsv_to_rgb(color.rgb_to_hsv(x)),
    "Lab": lambda x: color.lab_to_rgb(color.rgb_to_lab(x)),
    "YCbCr": color.rgb_to_ycbcr,
    "equalized": enhance.equalize,
    "CLAHE": lambda x: enhance.equalize_clahe(x, 2.0, (2, 2)),
    "contrast": lambda x: enhance.adjust_contrast(x, 1.4),
    "hue": lambda x: enhance.adjust_hue(x, 0.4),
    "normalized": lambda x: enhance.normalize(x, torch.tensor(0.4), torch.tensor(0.2)),
    "posterized": lambda x: enhance.posterize(x, 3),
    "dilation": lambda x: morphology.dilation(x, torch.ones(3, 3).to(x)),
    "opening": lambda x: morphology.opening(x, torch.ones(3, 3).to(x)),
    "SSIM": lambda x: losses.ssim_loss(x, x.flip(0), 5),
    "total variation": losses.total_variation,
    "Harris": lambda x: feature.harris_response(color.rgb_to_grayscale(x)),
    "Hessian": lambda x: feature.hessian_response(color.rgb_to_grayscale(x)),
}


@pytest.mark.parametrize("name", IMAGES)
def test_functions_of_images(name):
    near(IMAGES[name](images().to(DEVICE)), IMAGES[name](images()))


DIFFERENTIABLE = ("gaussian blur", "Sobel", "affine", "perspective", "resize", "HSV", "SSIM")


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients(name):
    gradients = []
    for device in ("cpu", DEVICE):
        x = images().to(device).requires_grad_()
        gradients.append(torch.autograd.grad(IMAGES[name](x).square().sum(), x)[0])
    near(gradients[1], gradients[0], rtol=1e-2, atol=1e-3)


def test_gradients_of_a_registration():
    """By the matrix, which is an inverse in between."""
    gradients = []
    for device in ("cpu", DEVICE):
        matrix = homography(device).clone().requires_grad_()
        loss = geometry.warp_perspective(images().to(device), matrix, (24, 20)).square().sum()
        gradients.append(torch.autograd.grad(loss, matrix)[0])
    near(gradients[1], gradients[0], rtol=1e-2, atol=0.5)


def test_geometry_of_points():
    results = []
    for device in ("cpu", DEVICE):
        one, other = points(device)
        matrix = geometry.get_perspective_transform(one, other)
        angles = torch.tensor([[0.1, -0.2, 0.3], [0.0, 0.0, 0.5]], device=device)
        rotations = geometry.axis_angle_to_rotation_matrix(angles)
        results.append(
            [
                matrix,
                geometry.transform_points(matrix, one),
                rotations,
                geometry.rotation_matrix_to_quaternion(rotations),
                geometry.get_rotation_matrix2d(
                    one[:, 0], angles[:1, 0], torch.ones_like(one[:, 0])
                ),
            ]
        )
    for actual, expected in zip(results[1], results[0], strict=True):
        near(actual, expected)


AUGMENTATIONS = {
    "colours": lambda: augmentation.ColorJitter(0.2, 0.3, 0.2, 0.1, p=1.0),
    "affine": lambda: augmentation.RandomAffine(20, (0.1, 0.1), (0.8, 1.2), 10, p=1.0),
    "perspective": lambda: augmentation.RandomPerspective(0.4, p=1.0),
    "crop": lambda: augmentation.RandomResizedCrop((16, 16), p=1.0),
    "erasing": lambda: augmentation.RandomErasing(p=1.0),
    "flip": lambda: augmentation.RandomHorizontalFlip(p=0.5),
    "noise": lambda: augmentation.RandomGaussianBlur((3, 3), (0.5, 1.5), p=1.0),
}


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_augmentations(name):
    """The parameters are drawn on the CPU, so that both devices have the same ones."""
    augment = AUGMENTATIONS[name]()
    torch.manual_seed(3)
    expected = augment(images())
    actual = augment(images().to(DEVICE), params=copy.deepcopy(augment._params))
    near(actual, expected, atol=1e-3)
    assert augment(images().to(DEVICE)).device.type == DEVICE


def test_augmentations_in_a_row_with_masks():
    augment = augmentation.AugmentationSequential(
        augmentation.RandomAffine(15, p=1.0),
        augmentation.RandomHorizontalFlip(p=1.0),
        data_keys=["input", "mask", "keypoints"],
    )
    arguments = images(), (images(channels=1) > 0.5).float(), torch.rand(2, 4, 2) * 20
    torch.manual_seed(3)
    expected = augment(*arguments)
    actual = augment(*(t.to(DEVICE) for t in arguments), params=augment._params)
    near(actual[0], expected[0], atol=1e-3)
    near(actual[2], expected[2])
    assert (actual[1].cpu() != expected[1]).float().mean() < 0.02  # ties at the edges of masks


def test_descriptors_are_matched():
    gray = torch.rand(1, 1, 32, 32, generator=torch.Generator().manual_seed(1))
    results = []
    for device in ("cpu", DEVICE):
        describe = feature.SIFTDescriptor(32, rootsift=False).to(device)
        patches = torch.cat([gray, gray.flip(2), gray.flip(3)]).to(device)
        descriptors = describe(patches)
        results.append((descriptors, *feature.match_nn(descriptors, descriptors.flip(0))))
    for actual, expected in zip(results[1], results[0], strict=True):
        near(actual, expected, atol=1e-3)
