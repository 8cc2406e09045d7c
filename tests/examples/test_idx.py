"""The IDX reader takes what MNIST ships and refuses everything else by name."""

import gzip
import struct

import numpy as np
import pytest
from idx_files import idx_bytes, write_set

from examples.digits.data import mnist
from examples.digits.idx import DataError, load_pair, read_idx


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (6, 8, 8), dtype=np.uint8)


@pytest.mark.parametrize("dot", ["-", "."])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_round_trip(tmp_path, images, dot, suffix):
    labels = np.arange(6, dtype=np.uint8)
    write_set(tmp_path, images, labels, dot, suffix)
    read_images, read_labels = load_pair(tmp_path, "t10k")
    np.testing.assert_array_equal(read_images, images)
    np.testing.assert_array_equal(read_labels, labels)


def test_tensors(tmp_path, images):
    write_set(tmp_path, images, np.arange(6))
    digits = mnist(tmp_path)
    assert digits.train_images.shape == (6, 1, 8, 8)
    assert digits.image_size == 8
    np.testing.assert_allclose(digits.test_images[:, 0].numpy(), images / 255, rtol=1e-6)
    assert digits.test_labels.tolist() == list(range(6))


GOOD = idx_bytes(np.zeros((2, 3, 4)))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "truncated header"),
        (GOOD[:10], "truncated header"),
        (GOOD[:-1], "truncated: 23 bytes"),
        (GOOD + b"\0", "trailing bytes"),
        (b"\x89PNG" + GOOD[4:], "not an IDX file"),
        (idx_bytes(np.zeros((2, 3, 4)), type_code=0x0D), "not unsigned byte"),
        (idx_bytes(np.zeros((24, 1))) + b"\0" * 8, "2 dimensions where 3"),
        # 2**32 elements: must not wrap around to the zero bytes that are there.
        (struct.pack(">BBBB3I", 0, 0, 8, 3, 2**16, 2**16, 1), "truncated: 0 bytes"),
    ],
)
def test_bad_content(tmp_path, data, message):
    path = tmp_path / "images"
    path.write_bytes(data)
    with pytest.raises(DataError, match=message):
        read_idx(path, 3)


@pytest.mark.parametrize("damage", [lambda z: z[:-12], lambda z: b"plain" + z, lambda z: z[:20]])
def test_bad_gzip(tmp_path, damage):
    path = tmp_path / "images.gz"
    path.write_bytes(damage(gzip.compress(GOOD)))
    with pytest.raises(DataError, match="cannot be read"):
        read_idx(path, 3)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz"):
        load_pair(tmp_path, "train")


@pytest.mark.parametrize(
    ("count", "labels", "message"),
    [
        (6, np.arange(5), "6 train images but 5 labels"),
        (6, np.full(6, 10), "10 is not a digit"),
        (0, np.arange(0), "no images"),
    ],
)
def test_pairs_must_fit(tmp_path, images, count, labels, message):
    write_set(tmp_path, images[:count], labels)
    with pytest.raises(DataError, match=message):
        load_pair(tmp_path, "train")


def test_images_must_be_square(tmp_path, images):
    write_set(tmp_path, images[:, :, :7], np.arange(6))
    with pytest.raises(DataError, match="square"):
        mnist(tmp_path)
