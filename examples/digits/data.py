"""The two sources of handwritten digits, in one form."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .idx import DataError, load_pair

# The held-back images must be the same in `train` and in `run`, so no option changes this seed.
SPLIT_SEED = 2024
HELD_BACK = 0.25


@dataclass(frozen=True)
class Digits:
    """Images are float32 (N, 1, size, size) in [0, 1], labels int64 (N,)."""

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    @property
    def image_size(self) -> int:
        return self.train_images.shape[-1]

    def to(self, device: torch.device) -> "Digits":
        tensors = (self.train_images, self.train_labels, self.test_images, self.test_labels)
        return Digits(self.name, *(t.to(device) for t in tensors))


def _tensors(images: np.ndarray, labels: np.ndarray, brightest: float) -> tuple[Tensor, Tensor]:
    scaled = (images / brightest).astype(np.float32)
    return torch.from_numpy(scaled).unsqueeze(1), torch.from_numpy(labels.astype(np.int64))


def embedded() -> Digits:
    """1,797 real 8x8 digits that scikit-learn carries (UCI's optical recognition set)."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    bunch = load_digits()
    images, test_images, labels, test_labels = train_test_split(
        bunch.images,
        bunch.target,
        test_size=HELD_BACK,
        stratify=bunch.target,
        random_state=SPLIT_SEED,
    )
    train = _tensors(images, labels, 16.0)
    return Digits("scikit-learn digits", *train, *_tensors(test_images, test_labels, 16.0))


def mnist(folder: Path) -> Digits:
    """The four IDX files of MNIST, or of a set in its format, in `folder`."""
    images, labels = load_pair(folder, "train")
    test_images, test_labels = load_pair(folder, "t10k")
    shapes = {images.shape[1:], test_images.shape[1:]}
    if len(shapes) != 1 or images.shape[1] != images.shape[2] or images.shape[1] < 8:
        raise DataError(f"{folder}: images must share one square size of at least 8: {shapes}")
    train = _tensors(images, labels, 255.0)
    return Digits(f"IDX files in {folder}", *train, *_tensors(test_images, test_labels, 255.0))


def load(folder: Path | None) -> Digits:
    return embedded() if folder is None else mnist(folder)
