"""Reader for the IDX files in which MNIST (and its relatives) are distributed."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from ..command import UsageError

UNSIGNED_BYTE = 0x08


class DataError(UsageError):
    """A data file is missing or is not what it claims to be."""


def _read_bytes(path: Path) -> bytes:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            return file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error


def read_idx(path: Path, ndim: int) -> np.ndarray:
    """The unsigned-byte array of `ndim` dimensions in an IDX file, plain or gzip-compressed.

    The header is two zero bytes, a type code, the number of dimensions, then one big-endian
    32-bit size per dimension; the elements follow, and nothing else may.
    """
    data = _read_bytes(path)
    header_size = 4 + 4 * ndim
    if len(data) < header_size:
        raise DataError(f"{path}: truncated header: {len(data)} bytes of {header_size}")
    if data[:2] != b"\0\0":
        raise DataError(f"{path}: not an IDX file (magic number {data[:4].hex()})")
    if data[2] != UNSIGNED_BYTE:
        raise DataError(f"{path}: element type 0x{data[2]:02x} is not unsigned byte (0x08)")
    if data[3] != ndim:
        raise DataError(f"{path}: {data[3]} dimensions where {ndim} are expected")
    shape = tuple(int(n) for n in np.frombuffer(data, ">u4", ndim, offset=4))
    # Python integers: a corrupt header must not wrap around into a plausible size.
    expected, present = math.prod(shape), len(data) - header_size
    if present != expected:
        what = "truncated" if present < expected else "has trailing bytes"
        raise DataError(f"{path}: {what}: {present} bytes of data for shape {shape}")
    return np.frombuffer(data, np.uint8, offset=header_size).reshape(shape)


def find_idx(folder: Path, stem: str, ndim: int) -> Path:
    """The file of `stem` ("train-images", ...) under the names in use, plain or gzipped."""
    names = [f"{stem}{dot}idx{ndim}-ubyte{gz}" for gz in ("", ".gz") for dot in ("-", ".")]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{folder}: none of {', '.join(names)} is there")


def load_pair(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, height, width) and labels (N,) of one split: "train" or "t10k"."""
    images_path = find_idx(folder, f"{split}-images", 3)
    labels_path = find_idx(folder, f"{split}-labels", 1)
    images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
    if len(images) != len(labels):
        raise DataError(f"{folder}: {len(images)} {split} images but {len(labels)} labels")
    if images.size == 0:
        raise DataError(f"{images_path}: holds no images")
    if labels.max() > 9:
        raise DataError(f"{labels_path}: label {labels.max()} is not a digit")
    return images, labels
